/* SPDX-License-Identifier: Apache-2.0 */
/* The thread in rank 0 that serves the table of weft_boot_open_local.
 *
 * It alone touches the table, so there are no locks: rank 0 talks to it over a
 * socket like every other rank does. Rules:
 *
 *  1. A connection of another user is closed at once. A connection is a rank
 *     from its HELLO on (rank 0's from the start). A rank that has already
 *     joined, or that reports another number of ranks, gets an error and is
 *     otherwise ignored.
 *  2. A GET of a key that is not set is answered when it is set. A rank has one
 *     GET at a time: a new one cancels the old one.
 *  3. A rank whose connection ends without DONE has died. The job cannot form
 *     without it, so, after a grace period in which the others can still
 *     finish, every GET of a key that is not set fails with WEFT_ERR_PEER and
 *     names the rank. Keys that are set can still be read. A rank that could
 *     not be served for lack of memory fails the job at once.
 *  4. Once all ranks have joined, nobody listens any more: the name is free.
 *  5. The thread ends when all ranks have said DONE or are gone; or, when rank
 *     0 has closed its connection, a short while later at most. */
#ifndef WF_BOOT_SERVER_H
#define WF_BOOT_SERVER_H

#include "boot/boot.h"

typedef struct wf_boot_server wf_boot_server;

/* Serve `ranks` ranks on `listener`, a listening socket, and rank 0 on `own`;
 * `name` is for messages. On success the server owns both sockets. */
weft_status wf_boot_server_create(const char *name, uint32_t ranks,
                                  int listener, int own, wf_boot_server **out);

/* Wait for the thread to end, and free all. Rank 0 has closed its end. */
void wf_boot_server_destroy(wf_boot_server *server);

/* The same server without a thread. wf_boot_server_open is like
 * wf_boot_server_create, but serves nothing by itself. wf_boot_server_turn
 * waits up to `wait_ms` (-1: without limit) for requests and serves them; it
 * returns false once the server has ended. wf_boot_server_free ends it. */
weft_status wf_boot_server_open(const char *name, uint32_t ranks, int listener,
                                int own, wf_boot_server **out);
bool wf_boot_server_turn(wf_boot_server *server, int wait_ms);
void wf_boot_server_free(wf_boot_server *server);

#endif
