/* SPDX-License-Identifier: Apache-2.0 */
/* The public row operations: arguments are checked, and the call goes to the
 * GPU, to other nodes, or to the threads of this process. */
#include "region/rows/rows.h"

#include <string.h>

#include "base/status.h"
#include "region/cuda/rows.h"
#include "region/region.h"

typedef weft_status cuda_fn(const weft_table *table, const weft_ids *ids,
                            const weft_rows *rows,
                            const weft_rows_options *options);

static void count_call(const wf_rows_call *call)
{
    weft_region *region = call->table.region;

    if (region != NULL) {
        atomic_fetch_add_explicit(call->op == WF_ROWS_GATHER
                                      ? &region->count->gathers
                                      : &region->count->scatters,
                                  1, memory_order_relaxed);
    }
}

/* Zeros where nothing was gathered. */
static void clear_left_out(const wf_rows_call *call)
{
    bool past_too = call->options.bounds != WEFT_BOUNDS_UNCHECKED;

    for (uint64_t i = 0; i < call->ids.n; i++) {
        int64_t id = wf_id_at(&call->ids, i);

        if (id < 0 || (past_too && (uint64_t)id >= call->limit)) {
            memset((char *)call->rows.at + i * call->rows.pitch, 0,
                   call->near_bytes);
        }
    }
}

static weft_status host_call(const wf_rows_call *call)
{
    bool left_out = call->options.clear != 0;
    weft_status st;

    if (call->table.region != NULL && !wf_region_maps_all(call->table.region)) {
        st = wf_rows_remote(call);
    } else {
        st = wf_rows_survey(call, &left_out);
        if (st == WEFT_OK && call->far_bytes > 0) {
            wf_rows_run(call);
        }
    }
    if (st == WEFT_OK && left_out) {
        clear_left_out(call);
    }
    return st;
}

static weft_status rows_call(wf_rows_op op, cuda_fn *cuda,
                             const weft_table *table, const weft_ids *ids,
                             const weft_rows *rows,
                             const weft_rows_options *options)
{
    wf_rows_call call;
    weft_status st = wf_rows_check(op, table, ids, rows, options, &call);

    if (st != WEFT_OK) {
        return st;
    }
    count_call(&call);
    if (call.ids.place == WEFT_CUDA) {
        return call.options.clear != 0
                   ? wf_fail(WEFT_ERR_UNSUPPORTED,
                             "rows are not cleared on a GPU")
                   : cuda(&call.table, &call.ids, &call.rows, &call.options);
    }
    return host_call(&call);
}

weft_status weft_rows_gather(const weft_table *table, const weft_ids *ids,
                             const weft_rows *out,
                             const weft_rows_options *options)
{
    return rows_call(WF_ROWS_GATHER, wf_cuda_gather, table, ids, out, options);
}

weft_status weft_rows_scatter(const weft_table *table, const weft_ids *ids,
                              const weft_rows *from,
                              const weft_rows_options *options)
{
    return rows_call(WF_ROWS_SCATTER, wf_cuda_scatter, table, ids, from,
                     options);
}

weft_status weft_rows_scatter_add(const weft_table *table, const weft_ids *ids,
                                  const weft_rows *from,
                                  const weft_rows_options *options)
{
    return rows_call(WF_ROWS_ADD, wf_cuda_scatter_add, table, ids, from,
                     options);
}

weft_status weft_rows_check(void *stream)
{
    return wf_cuda_rows_check(stream);
}
