/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank and a switch tell each other on the control channel, a TCP
 * connection to the same port number as that of the packets. Pure: bytes and
 * their checks, no I/O.
 *
 *   switch   HELLO   a random number of the connection
 *   rank     JOIN    the group that wants to be a job, who this rank is, what
 *                    it wants, a random number; a proof over all of it and of
 *                    the switch's number
 *   switch   JOINED  when all ranks of the group have joined: the job's number
 *                    and epoch, what it gets, where packets go; or why not. A
 *                    proof over all of it and of the rank's number
 *
 * Nothing more is said. A rank leaves by closing its connection; some seconds
 * after the first has left the job ends, and the connections of all others with
 * it: they may still ask for their last results until then. The kernel's
 * keep-alive sees hosts that are gone.
 *
 * Proofs are keyed hashes under the key of the switch's file, which never
 * crosses the network. The key of the job's packets is made of that one, of
 * the group, which the ranks chose at random, and of a salt, which the switch
 * did: the same is never made twice. */
#ifndef WF_AGG_CONTROL_H
#define WF_AGG_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agg/wire.h"

#define WF_AGG_CONTROL_MAGIC 0x43414657u /* "WFAC" */
#define WF_AGG_CONTROL_FORMAT 1u
#define WF_AGG_SHARDS WF_AGG_LANES

typedef struct wf_agg_hello {
    uint32_t magic;
    uint32_t format;
    uint64_t nonce[2];
} wf_agg_hello;
_Static_assert(sizeof(wf_agg_hello) == 24, "layout");

typedef struct wf_agg_join {
    uint32_t magic;
    uint32_t format;
    uint64_t nonce[2];
    uint64_t group[2]; /* the same on all ranks; random */
    uint16_t rank;
    uint16_t ranks;
    uint16_t slots;   /* wanted, in each shard */
    uint16_t payload; /* bytes of a packet at most; as wf_agg_shape */
    uint16_t port;    /* of this rank's packets, on the connection's address */
    uint8_t whole;    /* tags cover payloads */
    uint8_t zero;
    uint32_t zero2;
    uint64_t proof;
} wf_agg_join;
_Static_assert(sizeof(wf_agg_join) == 64, "layout");

/* Why a switch refuses. Numbers travel. */
typedef enum wf_agg_status {
    WF_AGG_JOINED_OK = 0,
    WF_AGG_REFUSED_KEY = 1,    /* the proof is wrong: another key */
    WF_AGG_REFUSED_BAD = 2,    /* it asks for what there cannot be */
    WF_AGG_REFUSED_QUOTA = 3,  /* no room for another job, or so large a one */
    WF_AGG_REFUSED_DIFFER = 4, /* ranks of the group ask for different things */
    WF_AGG_REFUSED_GONE = 5,   /* a rank left, or did not come in time */
    WF_AGG_STATUSES
} wf_agg_status;

/* "the keys differ"; "?" for what is none. */
const char *wf_agg_status_text(uint32_t status);

typedef struct wf_agg_joined {
    uint32_t magic;
    uint32_t format;
    uint32_t status; /* wf_agg_status; all else counts only with OK */
    uint32_t job;
    uint32_t epoch;
    uint16_t slots; /* at most what was wanted */
    uint16_t shards;
    uint16_t port[WF_AGG_SHARDS];
    uint64_t salt[2];
    uint64_t proof;
} wf_agg_joined;
_Static_assert(sizeof(wf_agg_joined) == 64, "layout");

/* Give a message its proof, and check one. The nonce is the peer's. */
void wf_agg_join_prove(const wf_secret *key, const uint64_t nonce[2],
                       wf_agg_join *join);
wf_agg_status wf_agg_join_check(const wf_secret *key, const uint64_t nonce[2],
                                const wf_agg_join *join);
void wf_agg_joined_prove(const wf_secret *key, const uint64_t nonce[2],
                         wf_agg_joined *joined);
/* Is this the answer of a switch that knows the key, and is it possible? */
bool wf_agg_joined_check(const wf_secret *key, const uint64_t nonce[2],
                         const wf_agg_join *join, const wf_agg_joined *joined);

/* The key of the job's packets. */
wf_secret wf_agg_derive(const wf_secret *key, const uint64_t group[2],
                        const wf_agg_joined *joined);

#endif
