/* SPDX-License-Identifier: Apache-2.0 */
/* The plans of the message engine, carried out in the mind: all ranks of a
 * group at once, without a transport. What travels is not data but a note of
 * whose data it is.
 *
 * Each run proves for one operation, algorithm, size and root that every send
 * meets its receive, in order and of the same length; that nobody is stuck,
 * although a send ends only when it is received; and that each rank ends with
 * everybody's contribution in the right place, exactly once.
 *
 * Data moves either as early or as late as the rules of plan.h allow, so that
 * a step which began too early, or a piece that was overwritten while it was
 * being sent, is seen. */
#include "coll/message/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"

enum { WINDOW_MAX = 8, NOTHING = 0 };

/* Whose data it is: a sum of one number for each contribution, and the ranks
 * from `lo` up to before `hi`, if they are in a row and in order. */
typedef struct note {
    uint64_t sum;
    uint32_t lo;
    uint32_t hi;
    bool ordered;
} note;

typedef struct flight {
    uint64_t at;
    wf_step step;
    bool sent; /* has met its receive, or there is nothing to send */
    bool came;
    struct flight *source; /* late: where the data is to come from */
    uint32_t source_rank;
    note *landed;
} flight;

typedef struct member {
    wf_plan plan;
    uint64_t next; /* step to begin */
    uint64_t length;
    flight window[WINDOW_MAX];
    unsigned first;
    unsigned count;
    note *dst;
    note *work;
    note *slot;
} member;

typedef struct run {
    wf_call_kind kind;
    wf_algorithm how;
    uint32_t size;
    uint32_t root;
    uint32_t pieces;
    uint64_t chunks;
    uint32_t width;
    unsigned window;
    bool late;
    bool in_place;
    member *member;
} run;

static const char *run_text(const run *r)
{
    static char text[200];

    snprintf(text, sizeof(text),
             "%s by %s of %u ranks, root %u, %u pieces, %u chunks by %u, "
             "window %u%s%s",
             wf_call_name((uint8_t)r->kind), wf_algorithm_name(r->how), r->size,
             r->root, r->pieces, (unsigned)r->chunks, r->width, r->window,
             r->late ? ", late" : "", r->in_place ? ", in place" : "");
    return text;
}

static void expect(const run *r, bool holds, const char *what)
{
    if (!holds) {
        fail_msg("%s: %s is false", run_text(r), what);
    }
}

#define EXPECT(r, cond) expect(r, cond, #cond)

/* --- notes ---------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t h = (a + 1) * 0x9e3779b97f4a7c15u;

    h = (h ^ h >> 29 ^ (b + 1)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 32 ^ (c + 1)) * 0x94d049bb133111ebu;
    return h ^ h >> 31;
}

static note note_of(uint32_t rank, uint32_t block, uint64_t chunk)
{
    return (note){mix(rank, block, chunk), rank, rank + 1, true};
}

static note fold(note a, note b)
{
    return (note){a.sum + b.sum, a.lo, b.hi,
                  a.ordered && b.ordered && a.hi == b.lo};
}

static bool same(note a, note b)
{
    return a.sum == b.sum;
}

static uint32_t blocks_of(const run *r)
{
    return wf_call_cuts((uint8_t)r->kind) ? r->member[0].plan.blocks : r->size;
}

static uint64_t chunks_of(const run *r)
{
    return r->member[0].plan.groups * r->member[0].plan.width;
}

static note *dst_at(const run *r, uint32_t rank, uint32_t block, uint64_t chunk)
{
    return &r->member[rank].dst[block * chunks_of(r) + chunk];
}

/* What a rank brings. */
static note src_of(const run *r, uint32_t rank, uint32_t block, uint64_t chunk)
{
    if (r->in_place && wf_call_cuts((uint8_t)r->kind)) {
        return *dst_at(r, rank, block, chunk);
    }
    return note_of(rank, block, chunk);
}

static note *cell(const run *r, uint32_t rank, wf_piece p, uint32_t i,
                  const wf_step *step)
{
    member *m = &r->member[rank];
    uint32_t block = (p.block + i) % r->size;

    if (p.at == WF_AT_SLOT) {
        EXPECT(r, p.slot < m->plan.slots && p.count == 1);
        return &m->slot[p.slot * m->plan.width + step->in_group];
    }
    if (p.at == WF_AT_WORK) {
        uint32_t at = p.bit != 0
                          ? p.block + i
                          : (block + r->size - m->plan.work_first) % r->size;

        EXPECT(r, at < m->plan.work_blocks);
        return &m->work[at * chunks_of(r) + step->chunk];
    }
    EXPECT(r, p.at == WF_AT_DST && p.block + i < blocks_of(r));
    return dst_at(r, rank, p.block + i, step->chunk);
}

static note value(const run *r, uint32_t rank, wf_piece p, uint32_t i,
                  const wf_step *step)
{
    if (p.at == WF_AT_SRC) {
        EXPECT(r, p.block + i < blocks_of(r));
        return src_of(r, rank, p.block + i, step->chunk);
    }
    return *cell(r, rank, p, i, step);
}

/* The blocks of a piece in their order: the i-th one's distance from `block`.
 */
static uint32_t nth(wf_piece p, uint32_t i)
{
    return p.bit == 0 ? i : (i / p.bit * 2 + 1) * p.bit + i % p.bit;
}

static uint32_t length(const run *r, wf_piece p)
{
    uint32_t n = 0;

    if (p.bit == 0) {
        return p.count;
    }
    while (nth(p, n) < r->size) {
        n++;
    }
    return n;
}

/* --- carrying it out ------------------------------------------------------ */

/* The n-th flight that is under way. */
static flight *flying(member *m, unsigned n)
{
    return &m->window[(m->first + n) % WINDOW_MAX];
}

static void move(run *r, uint32_t to, flight *in)
{
    const flight *out = in->source;
    wf_piece p = in->step.recv;
    uint32_t n = length(r, p);
    bool store = in->step.act == WF_STORE;

    in->landed = malloc((n + 1) * sizeof(note));
    assert_non_null(in->landed);
    for (uint32_t i = 0; i < n; i++) {
        note got = value(r, in->source_rank, out->step.send,
                         nth(out->step.send, i), &out->step);

        if (store) {
            *cell(r, to, p, nth(p, i), &in->step) = got;
        } else {
            in->landed[i] = got;
        }
    }
    in->source = NULL;
}

static void meet(run *r, uint32_t from, flight *out, uint32_t to, flight *in)
{
    const wf_piece *a = &out->step.send;
    const wf_piece *b = &in->step.recv;
    bool own_names =
        r->kind == WF_CALL_ALLTOALL || r->kind == WF_CALL_ALLTOALLV;

    EXPECT(r, length(r, *a) == length(r, *b));
    EXPECT(r, a->bit == b->bit && out->step.chunk == in->step.chunk);
    EXPECT(r, own_names || a->block == b->block);
    out->sent = true;
    in->came = true;
    in->source = out;
    in->source_rank = from;
    if (!r->late) {
        move(r, to, in);
    }
}

static flight *waiting_recv(member *m, uint32_t from)
{
    for (unsigned i = 0; i < m->count; i++) {
        flight *f = flying(m, i);

        if (!f->came && f->step.from == from) {
            return f;
        }
    }
    return NULL;
}

static flight *waiting_send(member *m, uint32_t to)
{
    for (unsigned i = 0; i < m->count; i++) {
        flight *f = flying(m, i);

        if (!f->sent && f->step.to == to) {
            return f;
        }
    }
    return NULL;
}

static bool begin_one(run *r, uint32_t rank)
{
    member *m = &r->member[rank];
    uint64_t ended = m->count > 0 ? flying(m, 0)->at : m->next;
    flight *f = flying(m, m->count);
    wf_step step;

    if (m->next == m->length || m->count == r->window) {
        return false;
    }
    wf_plan_at(&m->plan, m->next, &step);
    EXPECT(r, step.needs <= m->next);
    if (step.to == WF_NOBODY && step.from == WF_NOBODY) {
        m->next++;
        return true;
    }
    if (step.needs > ended) {
        return false;
    }
    EXPECT(r, step.to == WF_NOBODY || (step.to < r->size && step.to != rank));
    EXPECT(r, step.from == WF_NOBODY ||
                  (step.from < r->size && step.from != rank));
    *f = (flight){.at = m->next++, .step = step};
    f->sent = step.to == WF_NOBODY;
    f->came = step.from == WF_NOBODY;
    m->count++;
    if (!f->sent) {
        flight *in = waiting_recv(&r->member[step.to], rank);

        if (in != NULL) {
            meet(r, rank, f, step.to, in);
        }
    }
    if (!f->came) {
        flight *out = waiting_send(&r->member[step.from], rank);

        if (out != NULL) {
            meet(r, step.from, out, rank, f);
        }
    }
    return true;
}

static void take(run *r, uint32_t rank, flight *f)
{
    wf_piece p = f->step.recv;
    wf_piece own = p;
    uint32_t n = length(r, p);

    own.at = f->step.own;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = nth(p, i);
        note *out = cell(r, rank, p, k, &f->step);

        if (f->step.act == WF_LAND) {
            *out = f->landed[i];
        } else if (f->step.act == WF_FOLD_FIRST) {
            *out = fold(f->landed[i], value(r, rank, own, k, &f->step));
        } else if (f->step.act == WF_FOLD_LAST) {
            *out = fold(value(r, rank, own, k, &f->step), f->landed[i]);
        }
    }
}

/* Whoever still has to get its data from this flight, gets it now. */
static void flush_from(run *r, const flight *out)
{
    uint32_t to = out->step.to;

    for (unsigned i = 0; to != WF_NOBODY && i < r->member[to].count; i++) {
        flight *in = flying(&r->member[to], i);

        if (in->source == out) {
            move(r, to, in);
        }
    }
}

static bool end_one(run *r, uint32_t rank)
{
    member *m = &r->member[rank];
    flight *f = flying(m, 0);

    if (m->count == 0 || !f->sent || !f->came) {
        return false;
    }
    if (f->source != NULL) {
        move(r, rank, f);
    }
    flush_from(r, f);
    if (f->step.from != WF_NOBODY) {
        take(r, rank, f);
        free(f->landed);
    }
    m->first = (m->first + 1) % WINDOW_MAX;
    m->count--;
    return true;
}

static bool all_over(const run *r)
{
    for (uint32_t i = 0; i < r->size; i++) {
        if (r->member[i].next < r->member[i].length || r->member[i].count > 0) {
            return false;
        }
    }
    return true;
}

static void carry_out(run *r)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < r->size; i++) {
            while (begin_one(r, i) || end_one(r, i)) {
                moved = true;
            }
        }
    }
    if (!all_over(r)) {
        fail_msg("%s: stuck", run_text(r));
    }
}

/* --- before and after ----------------------------------------------------- */

static void bring_rank(run *r, uint32_t rank)
{
    member *m = &r->member[rank];
    uint64_t chunks = chunks_of(r);

    for (uint64_t c = 0; c < chunks; c++) {
        bool copies = r->kind == WF_CALL_SCAN ||
                      (r->kind == WF_CALL_BROADCAST && rank == r->root) ||
                      (r->in_place && wf_call_cuts((uint8_t)r->kind));

        for (uint32_t b = 0; copies && b < blocks_of(r); b++) {
            *dst_at(r, rank, b, c) = note_of(rank, b, c);
        }
        if (r->kind == WF_CALL_ALLGATHER || r->kind == WF_CALL_ALLGATHERV ||
            r->kind == WF_CALL_GATHER || r->kind == WF_CALL_GATHERV) {
            *dst_at(r, rank, rank, c) = note_of(rank, rank, c);
            if (m->plan.work_blocks > 0) {
                m->work[c] = note_of(rank, rank, c);
            }
        }
        for (uint32_t j = 0; r->kind == WF_CALL_ALLTOALL && j < r->size; j++) {
            if (m->plan.work_blocks > 0) {
                m->work[j * chunks + c] =
                    note_of(rank, (rank + j) % r->size, c);
            }
        }
    }
}

static note *notes(uint64_t n)
{
    note *all = calloc(n + 1, sizeof(note));

    assert_non_null(all);
    return all;
}

static bool start(run *r)
{
    r->member = calloc(r->size, sizeof(*r->member));
    assert_non_null(r->member);
    for (uint32_t i = 0; i < r->size; i++) {
        member *m = &r->member[i];

        if (!wf_plan_make(&m->plan, r->kind, r->how, r->size, i, r->root,
                          r->pieces)) {
            free(r->member);
            return false;
        }
        wf_plan_chunks(&m->plan, r->chunks, r->width);
        m->length = wf_plan_length(&m->plan);
        EXPECT(r, chunks_of(r) == m->plan.groups * m->plan.width);
        EXPECT(r, m->plan.blocks == r->member[0].plan.blocks);
        EXPECT(r, m->plan.span == r->member[0].plan.span);
    }
    for (uint32_t i = 0; i < r->size; i++) {
        member *m = &r->member[i];

        m->dst = notes(blocks_of(r) * chunks_of(r));
        m->work = notes(m->plan.work_blocks * chunks_of(r));
        m->slot = notes((uint64_t)m->plan.slots * m->plan.width);
        bring_rank(r, i);
    }
    return true;
}

static note over_ranks(uint32_t from, uint32_t until, uint32_t b, uint64_t c)
{
    note sum = note_of(from, b, c);

    for (uint32_t i = from + 1; i < until; i++) {
        sum = fold(sum, note_of(i, b, c));
    }
    return sum;
}

/* Folds in the order of ranks are promised where a rank's result must be
 * built from its neighbours', or where small data is reduced. */
static bool promises_order(const run *r)
{
    return r->how == WF_BY_DOUBLING ||
           (r->how == WF_BY_BINOMIAL && r->root == 0);
}

static void check_sum(const run *r, uint32_t rank, uint32_t b, uint64_t c,
                      note want)
{
    note got = *dst_at(r, rank, b, c);

    EXPECT(r, same(got, want));
    if (promises_order(r)) {
        EXPECT(r, got.ordered && got.lo == want.lo && got.hi == want.hi);
    }
}

static note scattered(const run *r, uint32_t rank, uint64_t c)
{
    return r->member[rank].plan.work_blocks > 0 ? r->member[rank].work[c]
                                                : *dst_at(r, rank, rank, c);
}

static note exchanged(const run *r, uint32_t rank, uint32_t from, uint64_t c)
{
    const member *m = &r->member[rank];

    return m->plan.work_blocks > 0
               ? m->work[(rank + r->size - from) % r->size * chunks_of(r) + c]
               : *dst_at(r, rank, from, c);
}

static void check_rank(const run *r, uint32_t rank, uint64_t c,
                       const note *total)
{
    for (uint32_t b = 0; b < blocks_of(r); b++) {
        switch (r->kind) {
        case WF_CALL_BROADCAST:
            EXPECT(r, same(*dst_at(r, rank, b, c), note_of(r->root, b, c)));
            break;
        case WF_CALL_ALLREDUCE:
            check_sum(r, rank, b, c, total[b]);
            break;
        case WF_CALL_REDUCE:
            if (rank == r->root) {
                check_sum(r, rank, b, c, total[b]);
            }
            break;
        case WF_CALL_SCAN:
            check_sum(r, rank, b, c, over_ranks(0, rank + 1, b, c));
            break;
        case WF_CALL_EXSCAN:
            if (rank > 0) {
                check_sum(r, rank, b, c, over_ranks(0, rank, b, c));
            } else if (!r->in_place) {
                EXPECT(r, dst_at(r, rank, b, c)->sum == NOTHING);
            }
            break;
        case WF_CALL_REDUCE_SCATTER:
        case WF_CALL_REDUCE_SCATTERV:
            if (b == rank) {
                check_sum(r, rank, b, c, total[b]);
            }
            break;
        case WF_CALL_ALLGATHER:
        case WF_CALL_ALLGATHERV:
            EXPECT(r, same(*dst_at(r, rank, b, c), note_of(b, b, c)));
            break;
        case WF_CALL_GATHER:
        case WF_CALL_GATHERV:
            EXPECT(r, rank != r->root ||
                          same(*dst_at(r, rank, b, c), note_of(b, b, c)));
            break;
        case WF_CALL_SCATTER:
        case WF_CALL_SCATTERV:
            EXPECT(r,
                   b != rank || rank == r->root ||
                       same(scattered(r, rank, c), note_of(r->root, rank, c)));
            break;
        default:
            EXPECT(r, b == rank ||
                          same(exchanged(r, rank, b, c), note_of(b, rank, c)));
            break;
        }
    }
}

static void check_results(const run *r)
{
    note *total = notes(blocks_of(r));

    for (uint64_t c = 0; c < chunks_of(r); c++) {
        for (uint32_t b = 0; wf_call_is((uint8_t)r->kind, WF_REDUCES) &&
                             r->kind != WF_CALL_SCAN &&
                             r->kind != WF_CALL_EXSCAN && b < blocks_of(r);
             b++) {
            total[b] = over_ranks(0, r->size, b, c);
        }
        for (uint32_t i = 0; i < r->size; i++) {
            check_rank(r, i, c, total);
        }
    }
    free(total);
}

/* False: the algorithm does not do it. */
static bool try_run(run r)
{
    if (!start(&r)) {
        return false;
    }
    if (r.size > 1) {
        carry_out(&r);
        check_results(&r);
    }
    for (uint32_t i = 0; i < r.size; i++) {
        free(r.member[i].dst);
        free(r.member[i].work);
        free(r.member[i].slot);
    }
    free(r.member);
    return true;
}

/* --- what is tried -------------------------------------------------------- */

static bool has_root(wf_call_kind kind)
{
    return kind == WF_CALL_BROADCAST || kind == WF_CALL_REDUCE ||
           (kind >= WF_CALL_GATHER && kind <= WF_CALL_SCATTERV);
}

/* Steps of each rank, not of all: how the work grows with the ranks. */
static bool takes_long(wf_call_kind kind, wf_algorithm how)
{
    return how == WF_BY_RING || how == WF_BY_PAIRWISE || how == WF_BY_HALVING ||
           (how == WF_BY_BRUCK && kind == WF_CALL_ALLTOALL) ||
           kind == WF_CALL_SCAN || kind == WF_CALL_EXSCAN ||
           (kind == WF_CALL_ALLGATHER);
}

/* The ways in which one size and root is carried out. */
static unsigned try_ways(run r, bool all_ways)
{
    static const struct {
        uint32_t pieces;
        uint64_t chunks;
        uint32_t width;
        unsigned window;
        bool late;
    } ways[] = {{1, 1, 1, 1, false}, {3, 1, 1, 8, false}, {5, 1, 1, 8, true},
                {2, 5, 2, 8, false}, {2, 5, 2, 4, true},  {1, 3, 1, 1, false},
                {9, 6, 8, 2, true},  {4, 6, 8, 8, false}};
    unsigned done = 0;

    for (unsigned i = 0; i < (all_ways ? 8 : 2); i++) {
        r.pieces = ways[i].pieces;
        r.chunks = ways[i].chunks;
        r.width = ways[i].width;
        r.window = ways[i].window;
        r.late = ways[i].late;
        r.in_place = i % 2 == 1;
        done += try_run(r);
    }
    return done;
}

static unsigned try_roots(run r, bool all_roots, bool all_ways)
{
    const uint32_t some[] = {0, 1 % r.size, r.size / 3, r.size - 1};
    unsigned done = 0;

    if (!has_root(r.kind)) {
        return try_ways(r, all_ways);
    }
    for (uint32_t i = 0; i < (all_roots ? r.size : 4); i++) {
        r.root = all_roots ? i : some[i];
        done += try_ways(r, all_ways);
    }
    return done;
}

/* Nothing here is concurrent, so ThreadSanitizer only makes it slow. */
enum { ALL_UP_TO = WT_TSAN ? 20 : 64, ALL_ROOTS_UP_TO = WT_TSAN ? 9 : 17 };

static unsigned try_sizes(wf_call_kind kind, wf_algorithm how)
{
    static const uint32_t large[] = {97, 128, 251, 1000, 509, 997, 1023, 1024};
    unsigned done = 0;

    for (uint32_t size = 1; size <= ALL_UP_TO; size++) {
        bool small = size <= ALL_ROOTS_UP_TO;

        done += try_roots((run){.kind = kind, .how = how, .size = size}, small,
                          small || size % 16 < 2);
    }
    for (unsigned i = 0; i < (WT_TSAN ? 1 : 8); i++) {
        if (i < 2 || !takes_long(kind, how)) {
            done += try_roots((run){.kind = kind, .how = how, .size = large[i]},
                              false, false);
        } else if (large[i] == 1000 || large[i] == 1024) {
            done += try_run((run){.kind = kind,
                                  .how = how,
                                  .size = large[i],
                                  .pieces = 1,
                                  .chunks = 1,
                                  .width = 1,
                                  .window = 1});
        }
    }
    return done;
}

static void try_kind(wf_call_kind kind, unsigned algorithms)
{
    unsigned found = 0;

    for (unsigned how = 0; how < WF_ALGORITHMS; how++) {
        found += try_sizes(kind, (wf_algorithm)how) > 0;
    }
    assert_int_equal(found, algorithms);
}

static void broadcasts_reach_everybody(void **state)
{
    (void)state;
    try_kind(WF_CALL_BROADCAST, 2);
}

static void reductions_hold_every_contribution_once(void **state)
{
    (void)state;
    try_kind(WF_CALL_REDUCE, 2);
    try_kind(WF_CALL_ALLREDUCE, 4);
}

static void scattered_reductions_hold_every_contribution_once(void **state)
{
    (void)state;
    try_kind(WF_CALL_REDUCE_SCATTER, 3);
    try_kind(WF_CALL_REDUCE_SCATTERV, 2);
}

static void scans_hold_those_before_in_their_order(void **state)
{
    (void)state;
    try_kind(WF_CALL_SCAN, 1);
    try_kind(WF_CALL_EXSCAN, 1);
}

static void gathered_blocks_are_in_their_places(void **state)
{
    (void)state;
    try_kind(WF_CALL_ALLGATHER, 3);
    try_kind(WF_CALL_ALLGATHERV, 1);
    try_kind(WF_CALL_GATHER, 2);
    try_kind(WF_CALL_GATHERV, 1);
}

static void scattered_blocks_reach_their_ranks(void **state)
{
    (void)state;
    try_kind(WF_CALL_SCATTER, 2);
    try_kind(WF_CALL_SCATTERV, 1);
}

static void everybody_gets_its_block_of_everybody(void **state)
{
    (void)state;
    try_kind(WF_CALL_ALLTOALL, 2);
    try_kind(WF_CALL_ALLTOALLV, 1);
}

/* After each round a rank has heard of so many up to itself. */
static void dissemination_tells_everybody_of_everybody(void **state)
{
    static uint32_t heard[2][1024];

    (void)state;
    for (uint32_t size = 1; size <= 1024; size++) {
        wf_plan plan;
        wf_step step;

        for (uint32_t r = 0; r < size; r++) {
            heard[0][r] = 1;
        }
        for (uint32_t round = 0; round < wf_rounds(size); round++) {
            for (uint32_t r = 0; r < size; r++) {
                uint32_t away;

                assert_true(wf_plan_make(&plan, WF_CALL_BARRIER,
                                         WF_BY_DISSEMINATION, size, r, 0, 1));
                assert_int_equal(wf_plan_length(&plan), wf_rounds(size));
                wf_plan_at(&plan, round, &step);
                away = (r + size - step.from) % size;
                assert_int_equal((step.to + size - r) % size, away);
                assert_true(heard[0][r] >= away);
                heard[1][r] = away + heard[0][step.from];
            }
            memcpy(heard[0], heard[1], sizeof(heard[0]));
        }
        for (uint32_t r = 0; r < size; r++) {
            assert_true(heard[0][r] >= size);
        }
    }
}

/* Half of the data through each tree, so nobody should work in both. */
static void hardly_anybody_has_children_in_both_trees(void **state)
{
    (void)state;
    for (uint32_t size = 2; size <= 1024; size++) {
        uint32_t both = 0;

        for (uint32_t rank = 1; rank < size; rank++) {
            wf_plan p;

            assert_true(wf_plan_make(&p, WF_CALL_ALLREDUCE, WF_BY_DOUBLE_TREE,
                                     size, rank, 0, 1));
            assert_true(p.tree[0].depth <= wf_rounds(size));
            assert_true(p.tree[1].depth <= wf_rounds(size));
            both += p.tree[0].child[1] != WF_NOBODY &&
                    p.tree[0].child[0] != WF_NOBODY &&
                    p.tree[1].child[1] != WF_NOBODY &&
                    p.tree[1].child[0] != WF_NOBODY;
        }
        assert_int_equal(both, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broadcasts_reach_everybody),
        cmocka_unit_test(reductions_hold_every_contribution_once),
        cmocka_unit_test(scattered_reductions_hold_every_contribution_once),
        cmocka_unit_test(scans_hold_those_before_in_their_order),
        cmocka_unit_test(gathered_blocks_are_in_their_places),
        cmocka_unit_test(scattered_blocks_reach_their_ranks),
        cmocka_unit_test(everybody_gets_its_block_of_everybody),
        cmocka_unit_test(dissemination_tells_everybody_of_everybody),
        cmocka_unit_test(hardly_anybody_has_children_in_both_trees),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
