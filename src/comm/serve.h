/* SPDX-License-Identifier: Apache-2.0 */
/* The server: a thread that answers active messages, and drives what has to be
 * driven, while this rank calls nothing.
 *
 * It is there in jobs on several nodes, and where a transport has a descriptor;
 * else a layer above that other ranks ask by active messages starts it. It
 * sleeps on the second bell of the board (mem/board.h), which only active
 * messages ring, and then drives the world, until the world is left. Where a
 * transport has a descriptor a second thread of it sleeps for that. */
#ifndef WF_COMM_SERVE_H
#define WF_COMM_SERVE_H

#include "comm/world.h"

/* Start the server, unless there is one. Under world->drive. */
weft_status wf_serve(weft_world *world);

/* Takes NULL. */
void wf_server_destroy(wf_server *server);

#endif
