/* SPDX-License-Identifier: Apache-2.0 */
/* Every collective as a value: a call with all its arguments, made on buffers
 * whose contents depend on (seed, rank) only, and checked against what must
 * come out.
 *
 *     wt_coll c = {.kind = WT_ALLTOALLV, .type = WEFT_F32, .n = 100};
 *     wt_call call;
 *
 *     wt_call_init(&call, comm, &c, NULL);
 *     WT_OK(wt_call_run(&call));
 *     wt_call_check(&call);
 *     wt_call_fini(&call);
 *
 * All ranks do this with the same wt_coll, save in tests of mismatches. */
#ifndef WT_COLL_H
#define WT_COLL_H

#include "wt.h"

typedef enum wt_coll_kind {
    WT_BARRIER,
    WT_BROADCAST,
    WT_ALLREDUCE,
    WT_REDUCE,
    WT_SCAN,
    WT_EXSCAN,
    WT_REDUCE_SCATTER,
    WT_REDUCE_SCATTERV,
    WT_ALLGATHER,
    WT_ALLGATHERV,
    WT_GATHER,
    WT_GATHERV,
    WT_SCATTER,
    WT_SCATTERV,
    WT_ALLTOALL,
    WT_ALLTOALLV,
    WT_COLLS
} wt_coll_kind;

/* How long the parts of a v-form are. */
typedef enum wt_lengths {
    WT_RAGGED, /* anything from 0 to twice n */
    WT_EVEN,
    WT_LONE,     /* one has n elements, the others none */
    WT_LONE_ROW, /* of alltoallv: one rank sends, the others do not */
    WT_LENGTHS
} wt_lengths;

/* How they lie in memory. */
typedef enum wt_placing {
    WT_PACKED,
    WT_GAPS,
    WT_REVERSED, /* the last rank's first, with gaps */
    WT_PLACINGS
} wt_placing;

typedef struct wt_coll {
    wt_coll_kind kind;
    weft_dtype type;
    weft_op op;    /* of those that reduce */
    uint32_t root; /* of those that have one */
    size_t n;      /* elements of a block, in v-forms of an average one */
    wt_lengths lengths;
    wt_placing placing;
    bool in_place;  /* where there is such a form */
    unsigned shift; /* off alignment: elements, or bytes if nothing is added */
    /* Bit r: rank r's source or destination lies in the pool. */
    uint32_t shared_src;
    uint32_t shared_dst;
    bool rough; /* values on which the order of additions shows */
    /* Sums of 16-bit floats may be rounded more than once. */
    bool rounded_often;
    uint64_t seed;
} wt_coll;

/* Memory of weft_alloc, for sources and for destinations. */
typedef struct wt_pool {
    char *src;
    char *dst;
    size_t bytes; /* of each */
} wt_pool;

/* Collective over `comm`. */
void wt_pool_init(wt_pool *pool, weft_comm *comm, size_t bytes);
void wt_pool_fini(wt_pool *pool, weft_comm *comm);

/* Memory with data in it, and what it was before the call. */
typedef struct wt_arena {
    char *base;
    char *before;
    size_t bytes;
    bool pooled;
} wt_arena;

/* One rank's side of a call. `n` and the parts are what is passed; a test may
 * change them before it makes the call. */
typedef struct wt_call {
    weft_comm *comm;
    wt_coll what;
    uint32_t rank;
    uint32_t size;
    size_t n;
    unsigned srcs; /* blocks: none, one, or one for each rank */
    unsigned dsts;
    weft_part src[WT_MAX_RANKS];
    weft_part dst[WT_MAX_RANKS];
    wt_arena from;
    wt_arena to;
} wt_call;

/* `pool` may be NULL if nothing is shared. */
void wt_call_init(wt_call *call, weft_comm *comm, const wt_coll *what,
                  const wt_pool *pool);
void wt_call_fini(wt_call *call);

weft_status wt_call_run(wt_call *call);
weft_status wt_call_start(wt_call *call, weft_request **out);
/* wt_call_start and a wait for it. */
weft_status wt_call_run_request(wt_call *call);

/* End the rank unless the result is right and nothing else was written. */
void wt_call_check(wt_call *call);

/* All of it: end the rank unless it succeeds and the result is right. */
void wt_coll_carry_out(weft_comm *comm, const wt_coll *what,
                       const wt_pool *pool, bool blocking);

/* A hash of the result. Those ranks have the same for which wt_coll_same is
 * true. */
uint64_t wt_call_hash(const wt_call *call);

/* "alltoallv of 17 f32 ...". */
void wt_coll_text(const wt_coll *what, char *text, size_t room);

const char *wt_coll_name(wt_coll_kind kind);
bool wt_coll_reduces(wt_coll_kind kind);
bool wt_coll_has_root(wt_coll_kind kind);
bool wt_coll_has_parts(wt_coll_kind kind);
/* Do all ranks end with the same data? */
bool wt_coll_same(wt_coll_kind kind);

/* Is there such a reduction of this kind? */
bool wt_coll_takes(wt_coll_kind kind, weft_op_kind op);

#endif
