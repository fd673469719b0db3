/* SPDX-License-Identifier: Apache-2.0 */
/* The server: a thread that answers active messages while this rank calls
 * nothing.
 *
 * A layer above that other ranks ask by active messages starts it. It sleeps on
 * the second bell of the board (mem/board.h), which only active messages ring,
 * and then drives the world, until the world is left. */
#ifndef WF_COMM_SERVE_H
#define WF_COMM_SERVE_H

#include "comm/world.h"

/* Start the server, unless there is one. Under world->drive. */
weft_status wf_serve(weft_world *world);

/* Takes NULL. */
void wf_server_destroy(wf_server *server);

#endif
