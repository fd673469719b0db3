/* SPDX-License-Identifier: Apache-2.0 */
/* A rank in a job at one switch or several: it cuts calls into chunks, sends
 * them through the windows of its lanes and writes the results. Without
 * blocking and without threads: whoever uses it calls step(), and sleeps on the
 * descriptors.
 *
 *   client.c   calls      client_link.c   switches: from connecting to joined
 *
 * A lane is a shard of a switch, and lanes are numbered over all switches.
 * Chunk i of a call goes through lane i mod lanes. A result is written when it
 * comes for the first time, so source and destination may be one buffer: what
 * is still to be sent lies in chunks that are not written. No lane goes ahead
 * of another by more than its slots: so no rank has a result of a chunk that is
 * wf_agg_client_reach() or more beyond anybody's first one without. */
#ifndef WF_AGG_CLIENT_H
#define WF_AGG_CLIENT_H

#include "agg/session.h"
#include "agg/slot.h"
#include "agg/window.h"

#define WF_AGG_SWITCHES 8u /* of a job at most */

typedef struct wf_agg_options {
    uint64_t group[2];
    uint32_t switches; /* that there are addresses of; 0: one */
    uint32_t rank;
    uint32_t ranks;
    uint32_t slots;    /* wanted in each lane, */
    uint32_t window;   /* of which so many are used; 0: all */
    uint32_t payload;  /* see wf_agg_shape */
    bool whole;        /* tags cover payloads */
    uint64_t least_ns; /* see window.h */
    uint64_t most_ns;
    uint64_t patience_ns;
} wf_agg_options;

/* Elements of a chunk: where they are, where the result goes, how many. */
typedef struct wf_agg_piece {
    const void *src;
    void *dst;
    uint32_t count;
} wf_agg_piece;

typedef struct wf_agg_call {
    const void *src;
    void *dst;
    uint64_t count; /* elements of the whole call, as switches compare them */
    uint64_t hash;
    uint8_t kind; /* wf_call_kind */
    uint8_t type;
    uint8_t op;
    bool quantised;
    /* Optional: the result of a chunk is about to be written over the `bytes`
     * at `at`. */
    void (*before)(void *ctx, uint64_t chunk, const void *at, size_t bytes);
    /* Optional: this rank has only `chunks` of the call, at places that this
     * tells; `src` and `dst` do not count then. */
    wf_agg_piece (*piece)(void *ctx, uint64_t chunk);
    uint64_t chunks;
    void *ctx;
} wf_agg_call;

/* One of the switches. */
typedef struct wf_agg_link {
    wf_udp_address at;
    wf_agg_session session;
    int fd; /* for packets */
    wf_agg_key key;
    uint32_t first; /* of its lanes */
} wf_agg_link;

typedef struct wf_agg_lane {
    uint32_t link;
    uint8_t shard; /* of that switch */
    wf_agg_window window;
    wf_agg_window_chunk *entries;
    wf_udp_address to;
} wf_agg_lane;

typedef struct wf_agg_client {
    wf_agg_options options;
    uint32_t links;
    wf_agg_link link[WF_AGG_SWITCHES];
    wf_udp_inbox *inbox;
    wf_udp_batch *batch;  /* of the lane that sends now, */
    unsigned char *stage; /* and its quantised payloads */
    size_t staged;        /* bytes of them */
    bool joined;
    uint32_t lanes;
    wf_agg_lane lane[WF_AGG_SWITCHES * WF_AGG_LANES];
    wf_agg_call call;
    uint64_t chunks; /* of the call */
    uint64_t ready;  /* of these may be sent; the caller's to move on */
    uint32_t each;   /* elements of a chunk */
    bool under_way;
    bool disagrees;
    wf_agg_called called[2]; /* who called what, when calls differ */
    uint32_t missing; /* a rank for which others wait; WF_AGG_ALL: unknown */
    uint64_t moved;   /* packets that came */
    uint64_t refused; /* of these, not for us */
    uint64_t results; /* that were written */
    unsigned char *scratch; /* a payload, aligned */
    unsigned char
        *aligned; /* elements of a chunk, where the caller's are not */
} wf_agg_client;

/* Begin to join, at options->switches addresses. Nothing is waited for; until
 * step() has succeeded and `joined` is set no call may begin. */
weft_status wf_agg_client_open(wf_agg_client *c, const wf_udp_address *at,
                               const wf_secret *key,
                               const wf_agg_options *options);
void wf_agg_client_close(wf_agg_client *c);

/* Take a step with the sessions of those switches from which nothing came
 * (`heard` has a bit for each other), and join once all of them agree. */
weft_status wf_agg_client_meet(wf_agg_client *c, uint32_t heard);

/* Have all switches answered so far? */
bool wf_agg_client_answered(const wf_agg_client *c);

/* The error of a switch: its address, and what is the detail. */
weft_status wf_agg_link_fail(const wf_agg_link *link, weft_status st);

/* How far, in chunks, any rank can be ahead of another: see above. */
uint64_t wf_agg_client_reach(const wf_agg_client *c);

/* Elements in a chunk: as many as a packet of `payload` bytes holds, and in
 * whole blocks where they are quantised, so that all packets but the last have
 * one length. */
uint32_t wf_agg_each(size_t payload, weft_dtype type, bool quantised);

/* Begin a call. Buffers are borrowed until it is over. All of it may be sent,
 * unless the caller lowers `ready` before the next step. */
void wf_agg_client_begin(wf_agg_client *c, const wf_agg_call *call,
                         uint64_t now);

/* Do what there is to do. WEFT_OK; c->under_way says whether the call goes on.
 * Failures: WEFT_ERR_MISMATCH (`called` tells), or the switch is of no more
 * use, for the reason that is the detail: close the client. */
weft_status wf_agg_client_step(wf_agg_client *c, uint64_t now);

/* When step() has something to do though nothing comes. */
uint64_t wf_agg_client_due(const wf_agg_client *c);

/* The first chunk of the call without a result on this rank. */
uint64_t wf_agg_client_first(const wf_agg_client *c);

#endif
