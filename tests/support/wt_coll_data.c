/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of a call: laying them out, filling them, and checking them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "wt_coll.h"
#include "wt_data.h"

/* Bytes on both sides of the data that nobody may write. */
#define GUARD 64
#define POISON 0x5a

void wt_pool_init(wt_pool *pool, weft_comm *comm, size_t bytes)
{
    WT_OK(weft_alloc(comm, bytes, (void **)&pool->src));
    WT_OK(weft_alloc(comm, bytes, (void **)&pool->dst));
    pool->bytes = bytes;
}

void wt_pool_fini(wt_pool *pool, weft_comm *comm)
{
    weft_free(comm, pool->dst);
    weft_free(comm, pool->src);
}

/* --- how long the blocks are --------------------------------------------- */

static size_t elem_of(const wt_call *k)
{
    return weft_dtype_size(k->what.type);
}

/* Parts that all are to know of are numbered by the one rank they belong to:
 * then `from` or `to` is 0. */
static size_t part_length(const wt_call *k, uint32_t from, uint32_t to)
{
    const wt_coll *c = &k->what;
    uint32_t chosen = (uint32_t)(c->seed % k->size);
    bool in_row = from + to == chosen;

    switch (c->lengths) {
    case WT_RAGGED:
        return wt_mix(c->seed, from, to) % (2 * c->n + 1);
    case WT_LONE:
        if (c->kind == WT_ALLTOALLV) {
            in_row = from == chosen && to == (chosen + 1) % k->size;
        }
        return in_row ? c->n : 0;
    case WT_LONE_ROW:
        if (c->kind == WT_ALLTOALLV) {
            in_row = from == chosen;
        }
        return in_row ? c->n : 0;
    default:
        return c->n;
    }
}

/* Elements that go from one rank to another. */
static size_t length(const wt_call *k, uint32_t from, uint32_t to)
{
    switch (k->what.kind) {
    case WT_BARRIER:
        return 0;
    case WT_ALLGATHERV:
    case WT_GATHERV:
        return part_length(k, from, 0);
    case WT_SCATTERV:
    case WT_REDUCE_SCATTERV:
        return part_length(k, 0, to);
    case WT_ALLTOALLV:
        return part_length(k, from, to);
    default:
        return k->what.n;
    }
}

static unsigned count_srcs(const wt_call *k)
{
    switch (k->what.kind) {
    case WT_BARRIER:
        return 0;
    case WT_REDUCE_SCATTER:
    case WT_REDUCE_SCATTERV:
    case WT_ALLTOALL:
    case WT_ALLTOALLV:
        return k->size;
    case WT_SCATTER:
    case WT_SCATTERV:
        return k->rank == k->what.root ? k->size : 0;
    default:
        return 1;
    }
}

static unsigned count_dsts(const wt_call *k)
{
    switch (k->what.kind) {
    case WT_BARRIER:
        return 0;
    case WT_ALLGATHER:
    case WT_ALLGATHERV:
    case WT_ALLTOALL:
    case WT_ALLTOALLV:
        return k->size;
    case WT_GATHER:
    case WT_GATHERV:
        return k->rank == k->what.root ? k->size : 0;
    case WT_REDUCE:
        return k->rank == k->what.root ? 1 : 0;
    default:
        return 1;
    }
}

static void set_lengths(wt_call *k)
{
    bool many_srcs;
    bool many_dsts;

    k->srcs = count_srcs(k);
    k->dsts = count_dsts(k);
    many_srcs = k->srcs == k->size && k->what.kind != WT_BARRIER;
    many_dsts = k->dsts == k->size && k->what.kind != WT_BARRIER;
    for (uint32_t i = 0; i < k->srcs; i++) {
        k->src[i].n = length(k, k->rank, many_srcs ? i : k->rank);
    }
    for (uint32_t i = 0; i < k->dsts; i++) {
        k->dst[i].n = length(k, many_dsts ? i : k->rank, k->rank);
    }
    k->n = length(k, k->rank, k->rank);
}

/* --- where they lie ------------------------------------------------------ */

/* Is there one block that is both source and destination? */
static bool is_in_place(const wt_call *k)
{
    bool possible = k->what.kind != WT_ALLTOALL && k->what.kind != WT_ALLTOALLV;

    return k->srcs > 0 && k->dsts > 0 && possible &&
           (k->what.in_place || k->what.kind == WT_BROADCAST);
}

/* Where each block starts; returns where the last one ends. */
static size_t place(const wt_call *k, const weft_part *part, unsigned count,
                    size_t *at)
{
    const wt_coll *c = &k->what;
    size_t unit = wt_coll_reduces(c->kind) ? elem_of(k) : 1;
    bool gaps = wt_coll_has_parts(c->kind) && c->placing != WT_PACKED;
    size_t end = GUARD + c->shift * unit;

    for (unsigned i = 0; i < count; i++) {
        unsigned b = gaps && c->placing == WT_REVERSED ? count - 1 - i : i;

        at[b] = end;
        end += part[b].n * elem_of(k) + (gaps ? (1 + b % 3) * unit : 0);
    }
    return end;
}

static void arena_init(wt_arena *a, size_t end, char *pool, size_t room)
{
    a->bytes = end + GUARD;
    a->pooled = pool != NULL;
    if (a->pooled && a->bytes > room) {
        WT_FAIL("%zu bytes do not fit into a pool of %zu", a->bytes, room);
    }
    a->base = a->pooled ? pool : aligned_alloc(64, (a->bytes + 63) / 64 * 64);
    a->before = malloc(a->bytes);
    WT_CHECK(a->base != NULL && a->before != NULL);
    memset(a->base, POISON, a->bytes);
}

static void arena_fini(wt_arena *a)
{
    free(a->before);
    if (!a->pooled) {
        free(a->base);
    }
    *a = (wt_arena){.base = NULL};
}

static bool is_shared(const wt_call *k, uint32_t mask)
{
    return (mask >> k->rank & 1) != 0;
}

/* Lay out the blocks of one side in an arena of their own. */
static void lay_out(wt_call *k, wt_arena *a, weft_part *part, unsigned count,
                    char *pool, size_t room)
{
    size_t at[WT_MAX_RANKS];

    if (count == 0) {
        return;
    }
    arena_init(a, place(k, part, count, at), pool, room);
    for (unsigned i = 0; i < count; i++) {
        part[i].at = a->base + at[i];
    }
}

static void lay_out_all(wt_call *k, const wt_pool *pool)
{
    const wt_coll *c = &k->what;
    bool in_src = pool != NULL && is_shared(k, c->shared_src);
    bool in_dst = pool != NULL && is_shared(k, c->shared_dst);
    size_t room = pool != NULL ? pool->bytes : 0;
    bool in_place = is_in_place(k);
    bool in_set_of_dsts = in_place && k->dsts > k->srcs;

    if (!in_set_of_dsts) {
        lay_out(k, &k->from, k->src, k->srcs, in_src ? pool->src : NULL, room);
    }
    if (!in_place || in_set_of_dsts) {
        lay_out(k, &k->to, k->dst, k->dsts, in_dst ? pool->dst : NULL, room);
    }
    if (in_set_of_dsts) {
        k->src[0] = k->dst[k->rank];
    } else if (in_place) {
        k->dst[0] = k->src[k->srcs > 1 ? k->rank : 0];
    }
}

/* --- what is in them ----------------------------------------------------- */

/* The block that goes from one rank to another; `to` is 0 where all get the
 * same. */
static void fill_block(const wt_call *k, void *at, size_t n, uint32_t from,
                       uint32_t to)
{
    const wt_coll *c = &k->what;
    uint64_t seed = c->seed * WT_MAX_RANKS + to;

    if (!wt_coll_reduces(c->kind)) {
        wt_fill_bytes(at, n * elem_of(k), seed, from);
    } else if (c->rough) {
        wt_fill_rough(at, n, c->type, seed, from);
    } else {
        wt_fill(at, n, c->type, c->op.kind, seed, from);
    }
}

/* Is the source one block for each rank? */
static bool has_set_of_srcs(wt_coll_kind kind)
{
    return kind == WT_REDUCE_SCATTER || kind == WT_REDUCE_SCATTERV ||
           kind == WT_SCATTER || kind == WT_SCATTERV || kind == WT_ALLTOALL ||
           kind == WT_ALLTOALLV;
}

static void fill_srcs(wt_call *k)
{
    for (uint32_t i = 0; i < k->srcs; i++) {
        if (k->src[i].n > 0) {
            fill_block(k, k->src[i].at, k->src[i].n, k->rank, i);
        }
    }
}

/* Whatever an empty part points to must not matter. */
static void mislead(weft_part *part, unsigned count, uint64_t seed)
{
    for (unsigned i = 0; i < count; i++) {
        if (part[i].n == 0) {
            part[i].at = (seed + i) % 2 == 0 ? NULL : (void *)(uintptr_t)8;
        }
    }
}

static void remember(wt_arena *a)
{
    if (a->base != NULL) {
        memcpy(a->before, a->base, a->bytes);
    }
}

void wt_call_init(wt_call *k, weft_comm *comm, const wt_coll *what,
                  const wt_pool *pool)
{
    memset(k, 0, sizeof(*k));
    k->comm = comm;
    k->what = *what;
    k->rank = weft_comm_rank(comm);
    k->size = weft_comm_size(comm);
    set_lengths(k);
    lay_out_all(k, pool);
    fill_srcs(k);
    remember(&k->from);
    remember(&k->to);
    if (wt_coll_has_parts(what->kind)) {
        mislead(k->src, k->srcs, what->seed);
        mislead(k->dst, k->dsts, what->seed);
    }
}

void wt_call_fini(wt_call *k)
{
    arena_fini(&k->from);
    arena_fini(&k->to);
}

/* --- what must come out -------------------------------------------------- */

static void expect_sum(const wt_call *k, void *want, size_t n)
{
    const wt_coll *c = &k->what;
    bool scattered = has_set_of_srcs(c->kind);
    uint64_t seed = c->seed * WT_MAX_RANKS + (scattered ? k->rank : 0);
    unsigned ranks = c->kind == WT_SCAN     ? k->rank + 1
                     : c->kind == WT_EXSCAN ? k->rank
                                            : k->size;

    wt_reference(want, n, c->type, c->op, seed, ranks);
}

/* What block `i` of the destination must become. */
static void expect_block(const wt_call *k, uint32_t i, void *want, size_t n)
{
    const wt_coll *c = &k->what;

    switch (c->kind) {
    case WT_BROADCAST:
        fill_block(k, want, n, c->root, 0);
        return;
    case WT_ALLGATHER:
    case WT_ALLGATHERV:
    case WT_GATHER:
    case WT_GATHERV:
        fill_block(k, want, n, i, 0);
        return;
    case WT_SCATTER:
    case WT_SCATTERV:
        fill_block(k, want, n, c->root, k->rank);
        return;
    case WT_ALLTOALL:
    case WT_ALLTOALLV:
        fill_block(k, want, n, i, k->rank);
        return;
    default:
        expect_sum(k, want, n);
        return;
    }
}

/* Numbers of 16 bits that were rounded at every step: how far off may they be?
 * The values are those of wt_fill: below 8 in sums, up to 2 in products. */
static bool nearly(const wt_call *k, const void *got, const void *want,
                   size_t i)
{
    const wt_coll *c = &k->what;
    double ulp = c->type == WEFT_BF16 ? 0x1p-8 : 0x1p-11;
    double x;
    double y;
    double im;

    wt_get(got, i, c->type, &x, &im);
    wt_get(want, i, c->type, &y, &im);
    if (c->op.kind == WEFT_OP_PROD) {
        return fabs(x - y) <= fabs(y) * ulp * k->size;
    }
    return fabs(x - y) <= 8.0 * k->size * ulp * k->size;
}

static bool may_be_rounded(const wt_call *k)
{
    const wt_coll *c = &k->what;
    bool rounds = c->op.kind == WEFT_OP_SUM || c->op.kind == WEFT_OP_AVG ||
                  c->op.kind == WEFT_OP_PROD ||
                  c->op.kind == WEFT_OP_PREMUL_SUM;

    return c->rounded_often && rounds && wt_coll_reduces(c->kind) &&
           wt_is_narrow(c->type);
}

static size_t first_wrong(const wt_call *k, const char *got, const char *want,
                          size_t n)
{
    size_t at = wt_first_difference(got, want, n, k->what.type);

    while (at < n && may_be_rounded(k) && nearly(k, got, want, at)) {
        size_t next = (at + 1) * elem_of(k);

        at += 1 + wt_first_difference(got + next, want + next, n - at - 1,
                                      k->what.type);
    }
    return at;
}

static void check_block(const wt_call *k, uint32_t i)
{
    size_t n = k->dst[i].n;
    const char *got = k->dst[i].at;
    char *want = malloc(n * elem_of(k));
    char text[2][80];
    char call[400];
    size_t at;

    WT_CHECK(want != NULL);
    expect_block(k, i, want, n);
    at = first_wrong(k, got, want, n);
    if (at != n) {
        wt_element_text(got, at, k->what.type, text[0], sizeof(text[0]));
        wt_element_text(want, at, k->what.type, text[1], sizeof(text[1]));
        wt_coll_text(&k->what, call, sizeof(call));
        WT_FAIL("%s: element %zu of %zu in block %u is %s instead of %s", call,
                at, n, i, text[0], text[1]);
    }
    free(want);
}

/* Take a block of the result for what it was before, if it lies here. */
static void forgive(wt_arena *a, const weft_part *block, size_t elem)
{
    char *at = block->at;

    if (a->base != NULL && at >= a->base && at < a->base + a->bytes) {
        memcpy(a->before + (at - a->base), at, block->n * elem);
    }
}

static void check_rest(const wt_call *k, const wt_arena *a, const char *name)
{
    char call[400];
    size_t at = 0;

    if (a->base == NULL || memcmp(a->base, a->before, a->bytes) == 0) {
        return;
    }
    while (a->base[at] == a->before[at]) {
        at++;
    }
    wt_coll_text(&k->what, call, sizeof(call));
    WT_FAIL("%s: byte %zu of %zu of the memory of %s was written", call, at,
            a->bytes, name);
}

void wt_call_check(wt_call *k)
{
    bool gets = k->what.kind != WT_EXSCAN || k->rank > 0;

    for (uint32_t i = 0; gets && i < k->dsts; i++) {
        if (k->dst[i].n > 0) {
            check_block(k, i);
            forgive(&k->from, &k->dst[i], elem_of(k));
            forgive(&k->to, &k->dst[i], elem_of(k));
        }
    }
    check_rest(k, &k->from, k->to.base == NULL ? "both" : "the source");
    check_rest(k, &k->to, "the destination");
}

uint64_t wt_call_hash(const wt_call *k)
{
    uint64_t hash = 0;

    for (uint32_t i = 0; i < k->dsts; i++) {
        if (k->dst[i].n > 0) {
            hash = wt_mix(hash, i,
                          wt_hash(k->dst[i].at, k->dst[i].n * elem_of(k)));
        }
    }
    return hash;
}
