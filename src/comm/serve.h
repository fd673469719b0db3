/* SPDX-License-Identifier: Apache-2.0 */
/* Answering other ranks while this one calls nothing.
 *
 * Layers above may have parts that others ask for by active messages. A rank
 * that has such starts a server: a thread that sleeps on the second bell of the
 * board (mem/board.h), which only active messages ring, and then drives the
 * world. It lives until the world is left. A job that is idle costs nothing. */
#ifndef WF_COMM_SERVE_H
#define WF_COMM_SERVE_H

#include "comm/world.h"

/* Start the server, unless there is one. Under world->drive. */
weft_status wf_serve(weft_world *world);

/* Takes NULL. */
void wf_server_destroy(wf_server *server);

#endif
