/* SPDX-License-Identifier: Apache-2.0 */
/* The thread in rank 0 that holds the table of weft_boot_open_local.
 *
 * It alone touches the table, so there are no locks: rank 0 talks to it over a
 * socket like every other rank does. Rules:
 *
 *  1. A connection of another user is closed at once. A connection is a rank
 *     from its HELLO on (rank 0's from the start); a rank that is there
 * already, or that counts the ranks of the job differently, is told so and
 * otherwise ignored.
 *  2. A GET of a key that is not set is answered when it is set. A rank has one
 *     GET at a time: a new one means that it gave the old one up.
 *  3. A rank whose connection ends without DONE has died. The job cannot form
 *     without it, so, after a moment in which the others can still finish what
 *     they were doing, every GET of a key that is not set fails with
 *     WEFT_ERR_PEER and names it. What is set can still be had. A rank that
 *     could not be served for lack of memory fails the job at once.
 *  4. Once all ranks have come nobody can connect any more: the name is free.
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

/* The parts of it, for who has no thread to spare. Open: like create, but
 * nobody serves. Turn: serve what there is, or wait for it up to `wait_ms`
 * (-1: as long as it takes); false once it is over. Free: end it all. */
weft_status wf_boot_server_open(const char *name, uint32_t ranks, int listener,
                                int own, wf_boot_server **out);
bool wf_boot_server_turn(wf_boot_server *server, int wait_ms);
void wf_boot_server_free(wf_boot_server *server);

#endif
