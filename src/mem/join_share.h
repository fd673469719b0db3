/* SPDX-License-Identifier: Apache-2.0 */
/* One reader a host: in a large job the table of the job is read by one rank of
 * those that share a host, and handed to the others as memory.
 *
 * Ranks find their mates in the table of their group, which is short. The
 * lowest of them reads the table of the job; the others connect to it and wait
 * for a descriptor of sealed memory, which they map. Rules:
 *
 *   1. Whoever cannot get it that way reads the table itself: a mate that is
 *      gone, does not listen or fails costs time and nothing else. One that is
 *      stuck ends the job, as it would without this, and is named.
 *   2. The reader waits for its mates for a moment only. It cannot do without
 *      them either way: the next thing that it does is to connect to them.
 *   3. Names of sockets are no secrets (/proc/net/unix), and the table has that
 *      of the job. So the table of a group has a secret, too, and a mate proves
 *      that it has read that.
 *   4. What is handed over can no longer be changed by anybody, and is checked
 *      like a table that came from elsewhere. */
#ifndef WF_MEM_JOIN_SHARE_H
#define WF_MEM_JOIN_SHARE_H

#include "mem/join.h"

/* A job of so many ranks has a table of about a MiB, and shares it. */
#define WF_JOIN_SHARED_FROM 4096u

typedef struct wf_join_mates {
    uint32_t reader;    /* the rank that reads for this one, or itself */
    uint64_t socket[2]; /* of that rank */
    wf_secret secret;   /* of the group */
    uint32_t others;    /* for whom it reads */
} wf_join_mates;

/* The mates of `rank` among the first ranks of `table`, up to rank `end`. */
void wf_join_find_mates(const wf_join_table *table, uint32_t rank, uint32_t end,
                        wf_join_mates *out);

/* Listen for mates, under a name that follows from that of the rank's own
 * socket. To be done before others hear of that. */
weft_status wf_join_share_listen(const uint64_t socket[2], int *out);

/* Listen no more: who has connected or will reads the table itself, also if a
 * forked child has the socket. Takes -1. */
void wf_join_share_end(int listener);

/* Hand the table to the mates that `own`, which is their reader, reads for, as
 * far as they come soon. */
void wf_join_share_give(int listener, const wf_join_table *table,
                        const wf_join_mates *own);

/* Get the table of a job of `ranks` ranks from the reader. Fails with
 * WEFT_ERR_CLOSED if that is gone. Frees with wf_join_free. */
weft_status wf_join_share_take(const wf_join_mates *known, uint32_t ranks,
                               const wf_patience *patience,
                               wf_join_table **out);

#endif
