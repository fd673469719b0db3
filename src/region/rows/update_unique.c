/* SPDX-License-Identifier: Apache-2.0 */
/* Equal ids find each other by a radix sort, which keeps their order; then each
 * run of them is summed by one thread, first to last. */
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"
#include "region/rows/kernel/rows.h"
#include "region/rows/pool.h"
#include "region/rows/update.h"

#define DIGIT 11u
#define DIGITS (1u << DIGIT)
#define PIECE 512u
#define SPAN_RUNS 64u

/* An id and its place in the ids. */
typedef struct entry {
    uint64_t id;
    uint64_t at;
} entry;

typedef struct unique_job {
    const weft_rows *grads;
    const weft_rows *out;
    const entry *sorted;
    const uint64_t *start; /* of each run; one more, the end of the last */
    uint64_t runs;
    uint64_t width;
    wf_widen_fn *widen; /* NULL: f32 already */
    size_t element;
} unique_job;

/* The ids that are no row fall away. Fails on one that is not below `rows`. */
static weft_status entries_make(const weft_ids *ids, uint64_t rows, entry *out,
                                uint64_t *count, uint64_t *most)
{
    uint64_t n = 0;

    *most = 0;
    for (uint64_t i = 0; i < ids->n; i++) {
        int64_t id = ids->type == WEFT_I64 ? ((const int64_t *)ids->at)[i]
                                           : ((const int32_t *)ids->at)[i];

        if (id < 0) {
            continue;
        }
        if (rows > 0 && (uint64_t)id >= rows) {
            return wf_fail(WEFT_ERR_INVALID,
                           "id %lld at position %llu is out of range (%llu "
                           "rows)",
                           (long long)id, (unsigned long long)i,
                           (unsigned long long)rows);
        }
        out[n++] = (entry){(uint64_t)id, i};
        *most = (uint64_t)id > *most ? (uint64_t)id : *most;
    }
    *count = n;
    return WEFT_OK;
}

/* Sorts by the bits that `most` has; returns which has the result. */
static entry *entries_sort(entry *from, entry *to, uint64_t n, uint64_t most)
{
    for (unsigned shift = 0; shift < 64 && most >> shift != 0; shift += DIGIT) {
        uint64_t begin[DIGITS] = {0};
        uint64_t sum = 0;
        entry *swap = from;

        for (uint64_t i = 0; i < n; i++) {
            begin[from[i].id >> shift & (DIGITS - 1)]++;
        }
        for (unsigned d = 0; d < DIGITS; d++) {
            uint64_t here = begin[d];

            begin[d] = sum;
            sum += here;
        }
        for (uint64_t i = 0; i < n; i++) {
            to[begin[from[i].id >> shift & (DIGITS - 1)]++] = from[i];
        }
        from = to;
        to = swap;
    }
    return from;
}

static uint64_t runs_find(const entry *sorted, uint64_t n, uint64_t *start)
{
    uint64_t runs = 0;

    for (uint64_t i = 0; i < n; i++) {
        if (i == 0 || sorted[i].id != sorted[i - 1].id) {
            start[runs++] = i;
        }
    }
    start[runs] = n;
    return runs;
}

static void run_sum(const unique_job *job, uint64_t run)
{
    float *out =
        (float *)(void *)((char *)job->out->at + run * job->out->pitch);
    float room[PIECE];

    for (uint64_t at = 0; at < job->width; at += PIECE) {
        size_t n = wf_least(job->width - at, PIECE);

        memset(out + at, 0, n * sizeof(float));
        for (uint64_t k = job->start[run]; k < job->start[run + 1]; k++) {
            const char *g = (const char *)job->grads->at +
                            job->sorted[k].at * job->grads->pitch +
                            at * job->element;

            if (job->widen != NULL) {
                job->widen(room, g, n);
                g = (const char *)room;
            }
            wf_step_add(out + at, (const float *)(const void *)g, n);
        }
    }
}

static void span_sum(void *ctx, uint32_t part)
{
    const unique_job *job = ctx;
    uint64_t run = (uint64_t)part * SPAN_RUNS;
    uint64_t end = run + SPAN_RUNS < job->runs ? run + SPAN_RUNS : job->runs;

    for (; run < end; run++) {
        run_sum(job, run);
    }
}

static void ids_write(const unique_job *job, const weft_ids *ids, void *out)
{
    for (uint64_t i = 0; i < ids->n; i++) {
        int64_t id =
            i < job->runs ? (int64_t)job->sorted[job->start[i]].id : -1;

        if (ids->type == WEFT_I64) {
            ((int64_t *)out)[i] = id;
        } else {
            ((int32_t *)out)[i] = (int32_t)id;
        }
    }
}

weft_status wf_unique_run(const weft_ids *ids, const weft_rows *grads,
                          uint64_t width, uint64_t rows, void *out_ids,
                          const weft_rows *out_grads, uint64_t *out_count,
                          uint32_t threads)
{
    entry *room = wf_alloc((2 * ids->n + 1) * sizeof(entry));
    uint64_t *start = wf_alloc((ids->n + 1) * sizeof(uint64_t));
    const wf_row_kernels *kernels = wf_row_kernels_of(wf_cpu_level_used());
    unique_job job = {
        .grads = grads,
        .out = out_grads,
        .start = start,
        .width = width,
        .widen = grads->type == WEFT_F32 ? NULL : kernels->widen[grads->type],
        .element = wf_dtype_bytes(grads->type),
    };
    weft_status st = WEFT_OK;
    uint64_t n = 0;
    uint64_t most = 0;

    if (room == NULL || start == NULL) {
        st = wf_fail_nomem("rows_unique to sort %llu ids",
                           (unsigned long long)ids->n);
    }
    if (st == WEFT_OK) {
        st = entries_make(ids, rows, room, &n, &most);
    }
    if (st == WEFT_OK) {
        job.sorted = entries_sort(room, room + ids->n, n, most);
        job.runs = runs_find(job.sorted, n, start);
        wf_pool_run(threads, (uint32_t)((job.runs + SPAN_RUNS - 1) / SPAN_RUNS),
                    span_sum, &job);
        ids_write(&job, ids, out_ids);
        *out_count = job.runs;
    }
    wf_free(room);
    wf_free(start);
    return st;
}
