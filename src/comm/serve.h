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

/* The numbers of active messages, of all layers. */
enum wf_am_number {
    WF_AM_ROWS_ASK = 0, /* region/remote/remote.h */
    WF_AM_ROWS_ANSWER = 1
};

/* Have `fn` called with the world for active messages of this number, on all
 * ports. Under world->drive. */
void wf_serve_handle(weft_world *world, uint32_t number, wf_am_fn *fn);

/* Start the server, unless there is one. Under world->drive. */
weft_status wf_serve(weft_world *world);

/* Takes NULL. */
void wf_server_destroy(wf_server *server);

#endif
