/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank asked for, in a form that travels: ranks compare it to find
 * mismatched calls, errors print it, the board shows it. */
#ifndef WF_COMM_CALL_H
#define WF_COMM_CALL_H

#include <stdbool.h>
#include <string.h>
#include <weft/types.h>

/* Numbers travel between processes. */
typedef enum wf_call_kind {
    WF_CALL_NONE = 0,
    WF_CALL_BARRIER = 1,
    WF_CALL_BROADCAST = 2,
    WF_CALL_ALLREDUCE = 3,
    WF_CALL_SEND = 4,
    WF_CALL_RECV = 5,
    WF_CALL_CREATE = 6, /* split, dup, subset */
    WF_CALL_ALLOC = 7,
    WF_CALL_REDUCE = 8,
    WF_CALL_SCAN = 9,
    WF_CALL_EXSCAN = 10,
    WF_CALL_REDUCE_SCATTER = 11,
    WF_CALL_REDUCE_SCATTERV = 12,
    WF_CALL_ALLGATHER = 13,
    WF_CALL_ALLGATHERV = 14,
    WF_CALL_GATHER = 15,
    WF_CALL_GATHERV = 16,
    WF_CALL_SCATTER = 17,
    WF_CALL_SCATTERV = 18,
    WF_CALL_ALLTOALL = 19,
    WF_CALL_ALLTOALLV = 20,
    WF_CALL_PROBE = 21,
    WF_CALL_SENDRECV = 22,
    WF_CALL_REGION = 23,
    WF_CALL_STORE = 24, /* pull, push, set and localize of a store */
    WF_CALL_KINDS = 25
} wf_call_kind;

#define WF_CALL_ANY UINT32_MAX

/* What is true of every call of a kind. Data that several ranks have or get is
 * one block, or one block for each rank; where there is a root, only the root
 * has one for each. */
typedef enum wf_call_trait {
    WF_HAS_DATA = 1 << 0,      /* else ranks only meet, and agree */
    WF_ROOT_SENDS = 1 << 1,    /* to all others */
    WF_ROOT_RECEIVES = 1 << 2, /* from all others */
    WF_SRC_BLOCKS = 1 << 3,    /* the source is a block for each rank */
    WF_DST_BLOCKS = 1 << 4,    /* the destination is a block for each rank */
    /* The v-forms, whose blocks differ in length. Either every rank passes all
     * lengths, or each one knows only those of its own blocks. */
    WF_ALL_LENGTHS = 1 << 5,
    WF_OWN_LENGTHS = 1 << 6,
    WF_REDUCES = 1 << 7,   /* folds data of several ranks into a result */
    WF_PREFIX = 1 << 8,    /* of this rank and those before it only */
    WF_EXCLUSIVE = 1 << 9, /* and without its own */
    WF_MESSAGE = 1 << 10   /* between two ranks: has a tag, and no number */
} wf_call_trait;

typedef struct wf_call_info {
    const char *name;
    unsigned traits; /* wf_call_trait */
} wf_call_info;

/* By kind. A new kind of call is a row here. */
extern const wf_call_info wf_call_table[WF_CALL_KINDS];

/* Does a kind have any of these traits? */
static inline bool wf_call_is(uint8_t kind, unsigned traits)
{
    return (wf_call_table[kind].traits & traits) != 0;
}

typedef struct wf_call {
    uint8_t kind;
    uint8_t type;
    uint8_t op;
    uint8_t zero;
    /* Or the peer of a message, or WF_CALL_ANY; or, where all ranks pass all
     * counts (allgatherv, reduce_scatterv), a hash of them. */
    uint32_t root;
    /* Elements: of all of it, or of one block; of allgatherv and
     * reduce_scatterv in all; of gatherv, scatterv and alltoallv 0, because
     * ranks differ. */
    uint64_t count;
    union {
        double factor; /* of a pre-multiplied sum */
        uint64_t mark; /* of all others: the caller's, or 0 */
    };
} wf_call;
_Static_assert(sizeof(wf_call) == 24, "compared and sent as bytes");

static inline bool wf_call_equal(const wf_call *a, const wf_call *b)
{
    uint64_t x[3];
    uint64_t y[3];

    /* By words: a call of memcmp costs as much as the rest of a small one. */
    memcpy(x, a, sizeof(x));
    memcpy(y, b, sizeof(y));
    return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2])) == 0;
}

/* Kind, type and operation in the lower half of a word, and back. */
static inline uint64_t wf_call_packed(const wf_call *call)
{
    uint32_t head;

    memcpy(&head, call, sizeof(head));
    return head;
}

static inline wf_call wf_call_unpacked(uint64_t packed, uint64_t count)
{
    uint32_t head = (uint32_t)packed;
    wf_call call = {.count = count};

    memcpy(&call, &head, sizeof(head));
    return call;
}

/* Is it a collective on one buffer, which may be cut anywhere, rather than on
 * blocks that belong to ranks? */
static inline bool wf_call_cuts(uint8_t kind)
{
    return wf_call_is(kind, WF_HAS_DATA) &&
           !wf_call_is(kind, WF_SRC_BLOCKS | WF_DST_BLOCKS);
}

static inline bool wf_call_has_root(uint8_t kind)
{
    return wf_call_is(kind, WF_ROOT_SENDS | WF_ROOT_RECEIVES);
}

/* Does `rank` have, or get, a block for each rank? `side` is WF_SRC_BLOCKS or
 * WF_DST_BLOCKS. */
static inline bool wf_call_blocks_at(const wf_call *call, unsigned side,
                                     uint32_t rank)
{
    return wf_call_is(call->kind, side) &&
           (!wf_call_has_root(call->kind) || rank == call->root);
}

/* Does a reduction give `rank` a result? */
static inline bool wf_call_gives(const wf_call *call, uint32_t rank)
{
    return !(wf_call_is(call->kind, WF_ROOT_RECEIVES) && rank != call->root) &&
           !(wf_call_is(call->kind, WF_EXCLUSIVE) && rank == 0);
}

/* How many ranks, from the first one on, a reduction folds for `rank`. */
static inline uint32_t wf_call_folded(uint8_t kind, uint32_t rank,
                                      uint32_t size)
{
    if (!wf_call_is(kind, WF_PREFIX)) {
        return size;
    }
    return wf_call_is(kind, WF_EXCLUSIVE) ? rank : rank + 1;
}

/* "allreduce"; "?" for what is no collective. */
const char *wf_call_name(uint8_t kind);

/* "allreduce of 17 f32, sum"; always terminated. */
void wf_call_text(const wf_call *call, char *text, size_t room);

/* "number 7 on communicator 2", or "tag 7 on communicator 2" of a message. */
void wf_call_number_text(uint8_t kind, uint32_t sequence, uint32_t comm,
                         char *text, size_t room);

#endif
