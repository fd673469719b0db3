/* SPDX-License-Identifier: Apache-2.0 */
/* One look through the ids before anything is written: are they in bounds, and
 * how many rows are the caller's own? It costs a fraction of a nanosecond an
 * id, for a region whose own rows are one range. */
#include <stdatomic.h>
#include <stdio.h>

#include "base/num.h"
#include "base/status.h"
#include "region/region.h"
#include "region/rows/kernel/rows.h"
#include "region/rows/pool.h"
#include "region/rows/rows.h"

/* Ids that one thread looks through at a time, and from which on there are
 * several. */
#define SURVEY_IDS (1u << 16)

typedef struct survey_job {
    const wf_rows_call *call;
    wf_survey_fn *look;
    int64_t low; /* the caller's own rows, as ids */
    int64_t high;
    _Atomic uint64_t negative;
    _Atomic uint64_t past;
    _Atomic uint64_t own;
} survey_job;

static weft_status tell_past(const wf_rows_call *call)
{
    char who[32] = "";

    if (call->table.region != NULL) {
        snprintf(who, sizeof(who), "rank %u: ", call->table.region->rank);
    }
    for (uint64_t i = 0; i < call->ids.n; i++) {
        int64_t id = wf_id_at(&call->ids, i);

        if (id >= 0 && (uint64_t)id >= call->limit) {
            return wf_fail(WEFT_ERR_INVALID,
                           "%sid %lld at position %llu is out of range (%llu "
                           "rows)",
                           who, (long long)id, (unsigned long long)i,
                           (unsigned long long)call->limit);
        }
    }
    return wf_fail(WEFT_ERR_INVALID,
                   "%san id was out of range (%llu rows), and has changed "
                   "since",
                   who, (unsigned long long)call->limit);
}

static void survey_part(void *ctx, uint32_t part)
{
    survey_job *job = ctx;
    const weft_ids *ids = &job->call->ids;
    uint64_t first = (uint64_t)part * SURVEY_IDS;
    uint64_t n = wf_least(ids->n - first, SURVEY_IDS);
    wf_survey found = {0};

    job->look((const char *)ids->at + first * wf_dtype_bytes(ids->type), n,
              (int64_t)job->call->limit, job->low, job->high, &found);
    atomic_fetch_add_explicit(&job->negative, found.negative,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&job->past, found.past, memory_order_relaxed);
    atomic_fetch_add_explicit(&job->own, found.own, memory_order_relaxed);
}

/* Are the rank's own rows one range of ids? Then which. */
static bool own_range(const wf_rows_call *call, int64_t *low, int64_t *high)
{
    const weft_region *region = call->table.region;
    uint64_t first = call->table.first;
    uint64_t end;
    wf_range range;

    if ((region->ranks > 1 &&
         region->part.kind == WEFT_PARTITION_ROUND_ROBIN) ||
        wf_partition_ranges(&region->part, region->rank) != 1 ||
        !wf_partition_range(&region->part, region->rank, 0, &range)) {
        return false;
    }
    end = range.row + range.rows;
    *low = range.row > first ? (int64_t)(range.row - first) : 0;
    *high = end > first ? (int64_t)(end - first) : 0;
    if (*high > (int64_t)call->limit) {
        *high = (int64_t)call->limit;
    }
    return true;
}

static uint64_t own_by_owner(const wf_rows_call *call)
{
    const weft_region *region = call->table.region;
    uint64_t own = 0;

    for (uint64_t i = 0; i < call->ids.n; i++) {
        int64_t id = wf_id_at(&call->ids, i);

        if (id >= 0 && (uint64_t)id < call->limit) {
            own += wf_partition_owner(&region->part,
                                      call->table.first + (uint64_t)id) ==
                   region->rank;
        }
    }
    return own;
}

static void count_rows(const wf_rows_call *call, uint64_t own, uint64_t moved)
{
    weft_region *region = call->table.region;

    atomic_fetch_add_explicit(&region->count->rows_own, own,
                              memory_order_relaxed);
    atomic_fetch_add_explicit(&region->count->rows_node, moved - own,
                              memory_order_relaxed);
}

weft_status wf_rows_survey(const wf_rows_call *call, bool *left_out)
{
    const wf_row_kernels *kernels = wf_row_kernels_of(wf_cpu_level_used());
    weft_region *region = call->table.region;
    uint64_t n = call->ids.n;
    uint32_t parts = (uint32_t)((n + SURVEY_IDS - 1) / SURVEY_IDS);
    bool ranged;
    survey_job job = {
        .call = call,
        .look = call->ids.type == WEFT_I64 ? kernels->survey_i64
                                           : kernels->survey_i32,
    };

    *left_out = false;
    if (region == NULL && call->options.bounds != WEFT_BOUNDS_ERROR &&
        call->options.clear == 0) {
        return WEFT_OK;
    }
    ranged = region == NULL || own_range(call, &job.low, &job.high);
    wf_pool_run(parts > 1 ? wf_rows_threads(call) : 1, parts, survey_part,
                &job);
    if (job.past > 0 && call->options.bounds == WEFT_BOUNDS_ERROR) {
        return tell_past(call);
    }
    *left_out = call->options.clear != 0 && job.negative + job.past > 0;
    if (region != NULL) {
        count_rows(call, ranged ? job.own : own_by_owner(call),
                   n - job.negative - job.past);
    }
    return WEFT_OK;
}
