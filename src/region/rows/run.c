/* SPDX-License-Identifier: Apache-2.0 */
/* Ids become moves, a block at a time, and kernels make the moves; a gather
 * from a flat table is one kernel's work.
 *
 * A block of moves lies in front of those that are asked for ahead of their
 * turn, so that rows are on their way whenever a kernel runs:
 *
 *     moves  | ready ........ | ahead |
 *              copied now       asked for; they begin the next block
 *
 * Several threads share the work in one of two ways. By position: each takes a
 * run of ids at a time. Or by row, where the order of equal ids matters: each
 * looks through all ids and takes those rows that a hash gives it, so that one
 * row is touched by one thread, in the order of the ids. */
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/types.h"
#include "region/region.h"
#include "region/rows/kernel/rows.h"
#include "region/rows/pool.h"
#include "region/rows/rows.h"

#define BLOCK 256u
#define LINE 64u
#define PIECE 256u           /* elements converted at a time */
#define CACHE_MIN (1u << 20) /* no machine has less */
#define CACHE_USUAL (32u << 20)
#define CACHE_SHARE (16u << 20) /* of one thread */

/* Bytes of rows that a thread takes at a time. */
#define SPAN_BYTES (32u << 10)
/* Work that is worth waking another thread for, in ns, and what a row costs. */
#define THREAD_NS 10000u
#define ROW_NS 10u
#define BYTES_PER_NS 8u

typedef struct rows_job {
    const wf_rows_call *call;
    const int32_t *ids32; /* one of the two is NULL */
    const int64_t *ids64;
    uint64_t limit; /* ids from here on are left out; negative ones are, too */
    bool far_to;    /* rows go to the table */

    /* Where the table is: `base` + row * pitch, or where `part` says. */
    char *base;
    uint64_t pitch;
    uint64_t first;
    const wf_partition *part; /* NULL: flat */
    char *near;
    uint64_t near_pitch;

    /* What is done: pick is set, and there are no moves, or with each move
     * one of copy, add and (widen, narrow). */
    wf_pick_fn *pick;
    wf_pick picked;
    size_t bytes; /* on the far side */
    size_t elements;
    wf_copy_fn *copy;
    wf_add_fn *add;
    wf_widen_fn *widen;
    wf_widen_fn *narrow;
    size_t from_size;
    size_t to_size;
    size_t ahead;

    /* How threads share it. */
    uint64_t span;   /* ids at a time */
    uint32_t shares; /* more than 1: by row */
} rows_job;

/* --- ids to moves -------------------------------------------------------- */

static char *far_row(const rows_job *job, uint64_t id)
{
    uint32_t owner;

    if (job->part == NULL) {
        return job->base + id * job->pitch;
    }
    return job->base + wf_partition_offset(job->part, job->first + id, &owner);
}

static uint32_t share_of(uint64_t id, uint32_t shares)
{
    uint64_t hash = id * 0x9e3779b97f4a7c15ull >> 32;

    return (uint32_t)(hash * shares >> 32);
}

/* The moves of ids `at` to `at + n`; returns how many there are. */
WF_INLINE size_t moves_make(const rows_job *job, bool wide, uint64_t at,
                            size_t n, uint32_t share, wf_move *out)
{
    size_t made = 0;

    for (uint64_t i = at; i < at + n; i++) {
        uint64_t id = (uint64_t)(wide ? job->ids64[i] : (int64_t)job->ids32[i]);
        char *near = job->near + i * job->near_pitch;

        if (id >= job->limit ||
            (job->shares > 1 && share_of(id, job->shares) != share)) {
            continue;
        }
        if (job->far_to) {
            out[made++] = (wf_move){.to = far_row(job, id), .from = near};
        } else {
            out[made++] = (wf_move){.to = near, .from = far_row(job, id)};
        }
    }
    return made;
}

/* --- moves --------------------------------------------------------------- */

static void far_ask(const rows_job *job, const wf_move *move)
{
    const char *row = job->far_to ? move->to : move->from;

    for (size_t at = 0; at < job->bytes; at += LINE) {
        __builtin_prefetch(row + at, 0, 2);
    }
}

static void convert_row(const rows_job *job, const wf_move *move)
{
    uint64_t between[PIECE];

    for (size_t at = 0; at < job->elements; at += PIECE) {
        size_t n = wf_least(job->elements - at, PIECE);

        job->widen(between, move->from + at * job->from_size, n);
        job->narrow(move->to + at * job->to_size, between, n);
    }
}

/* Make `n` moves, of which `ahead` more follow. */
static void moves_run(const rows_job *job, const wf_move *moves, size_t n,
                      size_t ahead)
{
    if (job->copy != NULL) {
        job->copy(moves, n, ahead, job->bytes);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (ahead != 0) {
            far_ask(job, &moves[i + ahead]);
        }
        if (job->add != NULL) {
            job->add(moves[i].to, moves[i].from, job->elements);
        } else {
            convert_row(job, &moves[i]);
        }
    }
}

static void span_run(const rows_job *job, uint64_t at, uint64_t end,
                     uint32_t share)
{
    wf_move moves[BLOCK + WF_ROWS_AHEAD_MAX];
    size_t have = 0;
    bool begun = false;

    while (at < end) {
        size_t room = BLOCK + job->ahead - have;
        size_t n = end - at < room ? (size_t)(end - at) : room;

        have += job->ids64 != NULL
                    ? moves_make(job, true, at, n, share, moves + have)
                    : moves_make(job, false, at, n, share, moves + have);
        at += n;
        for (size_t i = 0; !begun && i < have && i < job->ahead; i++) {
            far_ask(job, &moves[i]);
        }
        begun = begun || have > 0;
        if (have > job->ahead) {
            size_t ready = have - job->ahead;

            moves_run(job, moves, ready, job->ahead);
            memmove(moves, moves + ready, job->ahead * sizeof(moves[0]));
            have = job->ahead;
        }
    }
    moves_run(job, moves, have, 0);
}

static void part_run(void *ctx, uint32_t part)
{
    const rows_job *job = ctx;
    uint64_t n = job->call->ids.n;
    uint64_t at = part * job->span;
    uint64_t end = n - at < job->span ? n : at + job->span;

    if (job->pick != NULL) {
        job->pick(&job->picked, at, end);
    } else if (job->shares > 1) {
        span_run(job, 0, n, part);
    } else {
        span_run(job, at, end, 0);
    }
}

/* --- choosing ------------------------------------------------------------ */

/* Bytes of the last cache, as the kernel tells. (sysconf asks the processor,
 * whose answer in a virtual machine is that of the whole host.) */
static uint64_t cache_read(void)
{
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "re");
    unsigned kib = 0;

    if (file == NULL) {
        return CACHE_USUAL;
    }
    if (fscanf(file, "%uK", &kib) != 1) {
        kib = 0;
    }
    fclose(file);
    return kib > 0 ? (uint64_t)kib << 10 : CACHE_USUAL;
}

/* Read once in the life of the process. */
static uint64_t cache_bytes(void)
{
    static _Atomic uint64_t known;
    uint64_t bytes = atomic_load_explicit(&known, memory_order_relaxed);

    if (bytes == 0) {
        bytes = cache_read();
        atomic_store_explicit(&known, bytes, memory_order_relaxed);
    }
    return bytes;
}

/* An output that the caches cannot hold goes past them. One thread's share of
 * the last cache counts, too: a core alone was twice as fast past a cache of
 * 300 MiB that many cores share. */
static bool is_streamed(const wf_rows_call *call, uint32_t threads)
{
    uint64_t bytes = call->ids.n * call->near_bytes;

    return bytes > CACHE_MIN &&
           wf_rows_streamable(call->rows.at, call->rows.pitch,
                              call->near_bytes) &&
           (bytes > (uint64_t)threads * CACHE_SHARE || bytes > cache_bytes());
}

/* A gather whose rows all lie at `base` + row * pitch. */
static void choose_pick(rows_job *job, const wf_rows_call *call,
                        const wf_row_kernels *kernels, uint32_t threads)
{
    unsigned class = wf_row_class(call->far_bytes);
    bool wide = job->ids64 != NULL;
    bool streamed = is_streamed(call, threads);

    if (streamed) {
        job->pick =
            wide ? kernels->stream_i64[class] : kernels->stream_i32[class];
    } else {
        job->pick = wide ? kernels->pick_i64[class] : kernels->pick_i32[class];
    }
    job->picked = (wf_pick){
        .table = job->base,
        .pitch = job->pitch,
        .rows = job->limit,
        .ids = call->ids.at,
        .to = job->near,
        .to_pitch = job->near_pitch,
        .bytes = job->bytes,
        .ahead = job->ahead,
        .asked = streamed ? job->bytes : wf_rows_asked(job->bytes),
    };
}

static void choose_work(rows_job *job, const wf_rows_call *call,
                        uint32_t threads)
{
    const wf_row_kernels *kernels = wf_row_kernels_of(wf_cpu_level_used());
    weft_dtype far = wf_dtype_part(call->table.type);
    weft_dtype near = wf_dtype_part(call->rows.type);

    job->bytes = call->far_bytes;
    job->ahead = wf_rows_ahead(call->far_bytes);
    assert(wf_dtype_bytes(far) > 0);
    job->elements = call->far_bytes / wf_dtype_bytes(far);
    if (call->op == WF_ROWS_ADD) {
        job->add = kernels->add[far];
        return;
    }
    if (call->table.type == call->rows.type) {
        unsigned class = wf_row_class(call->far_bytes);

        if (job->far_to) {
            job->copy = kernels->put[class];
        } else if (job->part != NULL) {
            job->copy = kernels->fetch[class];
        } else {
            choose_pick(job, call, kernels, threads);
        }
        return;
    }
    job->widen = kernels->widen[job->far_to ? near : far];
    job->narrow = kernels->narrow[job->far_to ? far : near];
    job->from_size = wf_dtype_bytes(job->far_to ? near : far);
    job->to_size = wf_dtype_bytes(job->far_to ? far : near);
}

static void choose_place(rows_job *job, const wf_rows_call *call)
{
    const weft_table *t = &call->table;

    job->base = (char *)t->at + t->skip;
    job->pitch = t->pitch;
    job->first = t->first;
    if (t->region != NULL && !wf_partition_is_flat(&t->region->part)) {
        job->part = &t->region->part;
    } else {
        job->base += t->first * t->pitch;
    }
    job->near = call->rows.at;
    job->near_pitch = call->rows.pitch;
    job->far_to = call->op != WF_ROWS_GATHER;
}

/* WEFT_THREADS of the region's world, or its rank's share of the cores. */
static uint32_t threads_by_default(const weft_region *region)
{
    const weft_world *world = region == NULL ? NULL : region->world;
    uint32_t share;

    if (world == NULL || world->host == NULL) {
        return wf_pool_threads();
    }
    if (world->settings.threads != 0) {
        return world->settings.threads;
    }
    share =
        world->host->cpus / (world->host->count > 0 ? world->host->count : 1);
    return share > 0 ? share : 1;
}

uint32_t wf_rows_threads(const wf_rows_call *call)
{
    uint64_t row_ns = ROW_NS + call->far_bytes / BYTES_PER_NS;
    uint64_t useful = 1 + call->ids.n / (THREAD_NS / row_ns + 1);
    uint32_t threads = call->options.threads;

    if (threads == 0) {
        threads = useful < 2 ? 1 : threads_by_default(call->table.region);
        threads = useful < threads ? (uint32_t)useful : threads;
    }
    return wf_least(threads, WF_POOL_MAX);
}

/* Spans of a fair size, but no fewer than threads. */
static uint64_t choose_span(const wf_rows_call *call, uint32_t threads)
{
    uint64_t n = call->ids.n;
    uint64_t span = SPAN_BYTES / call->far_bytes;
    uint64_t each = (n + threads - 1) / threads;

    if (threads < 2) {
        return n;
    }
    span = span < 32 ? 32 : span > 1024 ? 1024 : span;
    span = wf_least(span, each);
    return span > n >> 30 ? span : (n >> 30) + 1;
}

void wf_rows_run(const wf_rows_call *call)
{
    rows_job job = {.call = call};
    uint32_t threads = wf_rows_threads(call);
    bool ordered = call->op == WF_ROWS_SCATTER ||
                   (call->op == WF_ROWS_ADD && call->options.deterministic);
    uint64_t n = call->ids.n;

    if (n == 0 || call->far_bytes == 0) {
        return;
    }
    if (call->ids.type == WEFT_I64) {
        job.ids64 = call->ids.at;
    } else {
        job.ids32 = call->ids.at;
    }
    job.limit = call->options.bounds == WEFT_BOUNDS_UNCHECKED ? 1ull << 63
                                                              : call->limit;
    choose_place(&job, call);
    choose_work(&job, call, threads);
    job.shares = ordered ? threads : 1;
    job.span = choose_span(call, threads);
    wf_pool_run(threads,
                ordered && threads > 1
                    ? threads
                    : (uint32_t)((n + job.span - 1) / job.span),
                part_run, &job);
}
