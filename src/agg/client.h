/* SPDX-License-Identifier: Apache-2.0 */
/* A rank in a job at one switch: it cuts calls into chunks, sends them through
 * the windows of its lanes and writes the results. Without blocking and without
 * threads: whoever uses it calls step(), and sleeps on the descriptors.
 *
 * Chunk i of a call goes through lane i mod lanes. A result is written when it
 * comes for the first time, so source and destination may be one buffer: what
 * is still to be sent lies in chunks that are not written. No lane goes ahead
 * of another by more than its slots: so no rank has a result of a chunk that is
 * slots x lanes or more beyond anybody's first one without. */
#ifndef WF_AGG_CLIENT_H
#define WF_AGG_CLIENT_H

#include "agg/session.h"
#include "agg/slot.h"
#include "agg/window.h"

typedef struct wf_agg_options {
    uint64_t group[2];
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

typedef struct wf_agg_call {
    const void *src;
    void *dst;
    uint64_t count;
    uint64_t hash;
    uint8_t kind; /* wf_call_kind */
    uint8_t type;
    uint8_t op;
    bool quantised;
    /* Optional: the result of a chunk is about to be written over the `bytes`
     * at `at`. */
    void (*before)(void *ctx, uint64_t chunk, const void *at, size_t bytes);
    void *ctx;
} wf_agg_call;

typedef struct wf_agg_lane {
    wf_agg_window window;
    wf_agg_window_chunk *entries;
    wf_udp_address to;
    wf_udp_batch *batch;
} wf_agg_lane;

typedef struct wf_agg_client {
    wf_agg_options options;
    wf_agg_session session;
    wf_udp_address at; /* the switch */
    int fd;            /* for packets */
    wf_udp_inbox *inbox;
    wf_agg_key key;
    bool joined;
    uint32_t lanes;
    wf_agg_lane lane[WF_AGG_LANES];
    wf_agg_call call;
    uint64_t chunks; /* of the call */
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

/* Begin to join. Nothing is waited for; until step() has succeeded and `joined`
 * is set no call may begin. */
weft_status wf_agg_client_open(wf_agg_client *c, const wf_udp_address *at,
                               const wf_secret *key,
                               const wf_agg_options *options);
void wf_agg_client_close(wf_agg_client *c);

/* Begin a call. Buffers are borrowed until it is over. */
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
