/* SPDX-License-Identifier: Apache-2.0 */
/* The engines that carry out collectives, and what they are given.
 *
 * An engine is a way to move and reduce data: through memory that all members
 * map, or by messages. Which one serves a communicator is a pure function of
 * its topology and the settings, and so is everything an engine decides by
 * itself: all members must come to the same answer without asking. */
#ifndef WF_COLL_ENGINE_H
#define WF_COLL_ENGINE_H

#include <stdbool.h>

#include <weft/coll.h>

#include "base/types.h"
#include "coll/kernel/reducer.h"
#include "comm/comm.h"
#include "comm/op.h"
#include "transport/transport.h"

/* A part of some data, in bytes from its start. */
typedef struct shm_share {
    size_t from;
    size_t until;
} shm_share;

/* Where a member's buffers lie, if all members map them: numbers of shared
 * allocations (0: private), and offsets into this member's parts. */
typedef struct shm_where {
    uint32_t src;
    uint32_t dst;
    uint64_t src_at;
    uint64_t dst_at;
    uint32_t brought; /* 1: the first chunk is in this member's slot */
    uint32_t zero;
} shm_where;
_Static_assert(sizeof(shm_where) == 32, "goes with a call");

/* State of the algorithms of the shared-memory engine. */
typedef struct wf_shm_progress {
    bool posted;       /* our call is in its cell */
    bool checked;      /* everybody's call is the same as ours */
    uint32_t at;       /* members before this one have been checked */
    uint32_t finished; /* operations that all of those had finished */
    /* Members before it have brought the chunk we need, or, where they read our
     * memory, have answered. */
    uint32_t in_at;
    uint32_t red_at; /* members before it have reduced the chunk `out` */
    uint64_t base;   /* chunks that went through before this operation */
    uint64_t chunks;
    uint64_t in;     /* chunks that we have put into our slot */
    uint64_t red;    /* chunks of which we have reduced our share */
    uint64_t out;    /* chunks that we have taken out */
    uint64_t freed;  /* of `in`, those that all others have taken */
    size_t chunk;    /* bytes, a multiple of the element size and of 64 */
    size_t share_of; /* bytes of the chunk that `share` was worked out for */
    shm_share share; /* our share of such a chunk */
    shm_where where;
    bool first_in; /* seeing all calls meant seeing all first chunks */
    bool pulls;    /* takers may be invited to read the root's memory */
    bool stream;   /* the result is too large for the caches */
    /* Bytes of our share that we have folded, or of our block that we have
     * read, where they lie. */
    size_t direct_at;
} wf_shm_progress;

/* State of the message engine; the rest is with the communicator, since it
 * carries out one operation at a time. */
typedef struct wf_message_progress {
    uint32_t phase;
} wf_message_progress;

/* One collective. Data is one block, or one for each member:
 *
 *   src   blocks in alltoall, reduce_scatter, and in scatter at the root
 *   dst   blocks in alltoall, allgather, and in gather at the root
 *
 * Blocks of the plain forms have `bytes` each and lie one behind the other;
 * those of the v-forms are the parts. wf_coll_src and wf_coll_dst tell of
 * either. Where there is one block, `src` or `dst` is it, of `bytes`. */
typedef struct wf_coll_op {
    wf_op op;
    const void *src;
    void *dst;
    size_t bytes; /* of a block; in v-forms of this member's single block */
    const weft_part *src_part; /* by rank; NULL: not a v-form, or one block */
    const weft_part *dst_part;
    wf_reducer reducer; /* of those that reduce */
    union {
        wf_shm_progress shm;
        wf_message_progress message;
    } state;
} wf_coll_op;

/* Bytes somewhere. */
typedef struct wf_block {
    unsigned char *at;
    size_t bytes;
} wf_block;

static inline wf_block wf_coll_block(const wf_coll_op *op, const void *base,
                                     const weft_part *part, uint32_t member)
{
    wf_block b;

    if (part != NULL) {
        b.at = part[member].at;
        b.bytes = part[member].n * wf_dtype_bytes((weft_dtype)op->op.call.type);
    } else {
        /* Sources are only read; the type is one for both. */
        b.at = (unsigned char *)(uintptr_t)base + member * op->bytes;
        b.bytes = op->bytes;
    }
    return b;
}

/* The block of our source that is for `member`, in operations whose source is
 * one for each; and of our destination that comes from `member`. */
static inline wf_block wf_coll_src(const wf_coll_op *op, uint32_t member)
{
    return wf_coll_block(op, op->src, op->src_part, member);
}

static inline wf_block wf_coll_dst(const wf_coll_op *op, uint32_t member)
{
    return wf_coll_block(op, op->dst, op->dst_part, member);
}

typedef struct wf_engine {
    const char *name; /* as in WEFT_ENGINE */
    const char *what; /* for the log: how it works */
    /* How well it serves this communicator; 0: not at all. Pure. */
    int (*score)(const weft_comm *comm);
    /* Bytes it wants of the communicator's segment, all zero at first. */
    size_t (*area)(const weft_comm *comm);
    weft_status (*attach)(weft_comm *comm, void *area, void **state);
    void (*detach)(weft_comm *comm, void *state);
    /* Get `op` ready to be stepped: set op->op.step and its state. Its number
     * is known. Nothing may fail from here on but a step. */
    void (*begin)(wf_coll_op *op);
    /* All of a blocking operation of up to wf_coll.quick_bytes in one go:
     * WEFT_OK if the others were prompt; WF_PENDING, and then `op` is begun and
     * ready to be stepped; or a failure. Only call, src, dst, bytes and number
     * of `op` are filled in. Optional. */
    weft_status (*quick)(wf_coll_op *op);
    size_t (*quick_bytes)(const weft_comm *comm, const void *state);
} wf_engine;

extern const wf_engine wf_engine_alone;
extern const wf_engine wf_engine_shm;
extern const wf_engine wf_engine_message;

#define WF_LAYER_COLL 1u /* see comm/layer.h */

/* What src/coll keeps with a communicator. */
typedef struct wf_coll {
    const wf_engine *engine;
    void *state; /* the engine's */
    bool has_quick;
    size_t quick_bytes; /* how much engine->quick takes */
} wf_coll;

static inline const wf_coll *wf_coll_of(const weft_comm *comm)
{
    return comm->layer[WF_LAYER_COLL];
}

static inline void *wf_coll_state(const weft_comm *comm)
{
    return wf_coll_of(comm)->state;
}

/* Run `op`, whose communicator, call, buffers and bytes are filled in: to its
 * end if `out` is NULL, else behind a request. */
weft_status wf_coll_finish(wf_coll_op *op, weft_request **out);

/* Like wf_coll_finish, for those whose data is one block. */
static inline weft_status wf_coll_finish_block(wf_coll_op *op,
                                               weft_request **out)
{
    op->src_part = NULL;
    op->dst_part = NULL;
    return wf_coll_finish(op, out);
}

/* The error for two members that made different calls. */
weft_status wf_coll_mismatch(const wf_coll_op *op, uint32_t member,
                             const wf_call *theirs);

/* The error for a part that `from` sends with one length and `to` expects with
 * another, in bytes. */
weft_status wf_coll_uneven(const wf_coll_op *op, uint32_t from, uint64_t sent,
                           uint32_t to, uint64_t expected);

#endif
