/* SPDX-License-Identifier: Apache-2.0 */
/* What each rank did: messages, bytes, the ranks it talked to, memory. */
#ifndef SIM_COUNTS_H
#define SIM_COUNTS_H

#include "events.h"

typedef struct sim_count {
    uint64_t sent; /* messages, as the transport was asked for them */
    uint64_t received;
    uint64_t sent_bytes;
    uint64_t received_bytes;
    uint64_t far_bytes; /* of those sent, to other hosts */
    uint64_t memory;    /* bytes it needs for this */
    uint64_t folded;    /* bytes */
    uint32_t endpoints; /* ranks of other hosts that it talked to */
    sim_time ended;
} sim_count;

/* Two ranks that talk to each other. */
typedef struct sim_pair {
    uint64_t key;     /* 0: free */
    bool counted;     /* as an endpoint of both */
    bool answered[2]; /* of the lower and the higher one: see below */
} sim_pair;

/* All of them: an open hash table. */
typedef struct sim_pairs {
    sim_pair *pair;
    size_t room; /* a power of two */
    size_t count;
} sim_pairs;

/* Count a pair; true if it is new. */
bool sim_pairs_add(sim_pairs *pairs, uint32_t a, uint32_t b);

/* What TCP has to acknowledge by a packet of its own: `from` sends to `to`, and
 * acknowledges with it all that it has received from there; `rank` receives
 * from `from`, and sim_pairs_heard is true if it has sent something there since
 * the last time, as in an exchange. */
void sim_pairs_said(sim_pairs *pairs, uint32_t from, uint32_t to);
bool sim_pairs_heard(sim_pairs *pairs, uint32_t rank, uint32_t from);
void sim_pairs_fini(sim_pairs *pairs);

/* Over all ranks. */
typedef struct sim_spread {
    double least;
    double mean;
    double most;
} sim_spread;

typedef struct sim_summary {
    uint32_t ranks;
    sim_spread messages; /* sent by a rank */
    sim_spread bytes;    /* sent by a rank */
    sim_spread inflow;   /* bytes received by a rank */
    sim_spread far;      /* bytes sent by a rank to other hosts */
    sim_spread memory;
    sim_spread endpoints;
    sim_spread seconds;
    double all_messages;
    double all_bytes;
    double all_received;
} sim_summary;

sim_summary sim_summarize(const sim_count *count, uint32_t ranks);

#endif
