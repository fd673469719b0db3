/* SPDX-License-Identifier: Apache-2.0 */
/* The engines that carry out collectives, and what they are given.
 *
 * An engine is a way to move and reduce data: through memory that all members
 * map, by messages, or by both. Which one serves a call is a pure function of
 * the call, of the communicator's topology and of the settings, and so is
 * everything an engine decides by itself: all members must come to the same
 * answer without asking.
 *
 * Members that make different calls may come to different engines, and are to
 * get an error. So all calls are compared by one engine, that of barriers; a
 * call that another one serves is first run there without its data. An engine
 * that finds different calls by itself is left to it. */
#ifndef WF_COLL_ENGINE_H
#define WF_COLL_ENGINE_H

#include <stdalign.h>
#include <stdbool.h>
#include <weft/coll.h>

#include "base/types.h"
#include "coll/kernel/reducer.h"
#include "comm/comm.h"
#include "comm/op.h"
#include "transport/transport.h"

/* Bytes for an engine's state of an operation, on callers' stacks. */
#define WF_COLL_ROOM 200u

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
    void *state;        /* what the engine keeps with the communicator */
    /* Who has the operation next, once calls are compared; NULL: nobody. */
    const struct wf_coll_seat *next;
    wf_step_fn *compare;
    /* What the engine keeps of this operation; whatever was there at first. */
    alignas(8) unsigned char room[WF_COLL_ROOM];
} wf_coll_op;

/* Bytes somewhere. */
typedef struct wf_block {
    unsigned char *at;
    size_t bytes;
} wf_block;

/* Has the engine data to move, or are calls all there is to compare? */
static inline bool wf_coll_moves(const wf_coll_op *op)
{
    return op->next == NULL && wf_call_is(op->op.call.kind, WF_HAS_DATA);
}

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

/* The calls of a kind that an engine serves on a communicator: of `from` to
 * less than `until` bytes, counted as call.count is, and of these types. What
 * covers a call with the highest score serves it. */
typedef struct wf_offer {
    int score;      /* 0: no calls */
    uint32_t types; /* a bit for each weft_dtype */
    uint64_t from;
    uint64_t until;
} wf_offer;

#define WF_ALL_TYPES UINT32_MAX

/* All calls of a kind. */
static inline wf_offer wf_offer_all(int score)
{
    return (wf_offer){
        .score = score, .types = WF_ALL_TYPES, .until = UINT64_MAX};
}

/* What engines on two members say to each other, beside operations. */
typedef struct wf_coll_word {
    uint32_t kind;
    uint32_t epoch;
    uint64_t number;
    uint64_t value;
} wf_coll_word;

typedef struct wf_engine {
    const char *name; /* as in WEFT_ENGINE */
    const char *what; /* for the log: how it works */
    /* It finds different calls by itself, and may hand a call on to the engine
     * that would serve it without this one (wf_coll_hand_on). */
    bool hands_on;
    /* Are its own settings good? Optional. */
    weft_status (*check)(const wf_settings *settings);
    /* What it serves here. Pure, and asked when a communicator is made. For
     * WF_CALL_ALLOC: whether weft_alloc is to have its memory. */
    wf_offer (*offer)(const weft_comm *comm, wf_call_kind kind);
    /* Bytes it wants of the segment that the members of a node share, all zero
     * at first; NULL on a node with one member. */
    size_t (*area)(const weft_comm *comm);
    /* Only where it serves any calls. A state that is NULL is not detached. */
    weft_status (*attach)(weft_comm *comm, void *area, void **state);
    void (*detach)(weft_comm *comm, void *state);
    /* Get `op` ready to be stepped: set op->op.step and its room. Its number
     * and op->state are known. Nothing may fail from here on but a step. */
    void (*begin)(wf_coll_op *op);
    /* All of a blocking operation of fewer than `quick_until` bytes in one go:
     * WEFT_OK if the others were prompt; WF_PENDING, and then `op` is begun and
     * ready to be stepped; or a failure. Only call, src, dst, bytes, number and
     * state of `op` are filled in. It shows the call (wf_coll_show) once others
     * have what they wait for, or if it cannot tell them at once. Optional. */
    weft_status (*quick)(wf_coll_op *op);
    size_t quick_until;
    /* A member has said something (wf_coll_say). Runs under world->drive, at
     * any time between attach and detach. What comes before attach is lost.
     * Optional. */
    void (*hear)(weft_comm *comm, void *state, uint32_t from,
                 const wf_coll_word *word, const void *payload, size_t n);
    /* Memory for weft_alloc and weft_free. All members have made the call;
     * `salt` tells it from others. Gives none, or all have it: see
     * wf_coll_all_or_none. Optional: else it is of the arena, or ordinary
     * memory. */
    weft_status (*alloc)(weft_comm *comm, void *state, size_t bytes,
                         uint64_t salt, void **out);
    void (*free)(weft_comm *comm, void *state, void *buffer);
} wf_engine;

/* As many as there may be. */
#define WF_ENGINES 6u

extern const wf_engine wf_engine_alone;
extern const wf_engine wf_engine_shm;
extern const wf_engine wf_engine_message;
extern const wf_engine wf_engine_hosts;

#define WF_LAYER_COLL 1u /* see comm/layer.h */

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

/* From a step of an engine that hands on: `op` is begun anew on the engine that
 * serves it else, with whatever buffers and count it has by now, and stepped.
 */
weft_status wf_coll_hand_on(wf_coll_op *op);

/* Say something to the same engine of another member, with up to
 * wf_ports_am_payload bytes. Under world->drive. */
weft_status wf_coll_say(weft_comm *comm, const wf_engine *engine, uint32_t to,
                        const wf_coll_word *word, const void *payload,
                        size_t n);

/* Did all members get what they asked for? WEFT_OK if `own` is that everywhere;
 * a member that failed, for the reason that is the detail, must not be the only
 * one to know. Collective. */
weft_status wf_coll_all_or_none(weft_comm *comm, weft_status own);

/* Bytes that this rank passes where that may be a block for each rank. */
uint64_t wf_coll_block_bytes(const wf_coll_op *op);

/* Show on the board what this rank does, and count it. */
static inline void wf_coll_show(const wf_coll_op *op)
{
    wf_comm_show(op->op.comm, &op->op);
    wf_comm_count(op->op.comm, wf_call_is(op->op.call.kind, WF_SRC_BLOCKS)
                                   ? wf_coll_block_bytes(op)
                                   : op->bytes);
}

/* The error for two members that made different calls. */
weft_status wf_coll_mismatch(const wf_coll_op *op, uint32_t member,
                             const wf_call *theirs);

/* The error for a part that `from` sends with one length and `to` expects with
 * another, in bytes. */
weft_status wf_coll_uneven(const wf_coll_op *op, uint32_t from, uint64_t sent,
                           uint32_t to, uint64_t expected);

#endif
