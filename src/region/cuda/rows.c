/* SPDX-License-Identifier: Apache-2.0 */
#include "region/cuda/rows.h"

#include <assert.h>
#include <string.h>

#include "base/status.h"
#include "base/types.h"
#include "region/cuda/abi.h"
#include "region/cuda/library.h"
#include "region/region.h"

static weft_status cuda_status(const wf_cuda_functions *cuda, int error,
                               const char *what)
{
    enum { NO_MEMORY = 2 }; /* cudaErrorMemoryAllocation */

    if (error == 0) {
        return WEFT_OK;
    }
    return wf_fail(error == WF_CUDA_UNSUPPORTED ? WEFT_ERR_UNSUPPORTED
                   : error == NO_MEMORY         ? WEFT_ERR_NOMEM
                                                : WEFT_ERR_SYSTEM,
                   "%s on a GPU: %s", what, cuda->explain(error));
}

/* Where the parts of a region that is not flat begin. `room` has
 * WF_CUDA_PARTS_MAX entries. */
static weft_status find_parts(const wf_partition *p, uint64_t at,
                              wf_cuda_part *room, wf_cuda_table *out)
{
    uint32_t n = 0;

    if (p->kind == WEFT_PARTITION_ROUND_ROBIN && p->count > 1) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "rows on a GPU: a round-robin region that has grown is "
                       "not supported");
    }
    for (uint32_t s = 0; s < p->count; s++) {
        const wf_stretch *stretch = &p->stretch[s];

        for (uint32_t r = 0; r < p->ranks; r++) {
            bool dealt = p->kind == WEFT_PARTITION_ROUND_ROBIN;

            if (!dealt && stretch->first[r + 1] == stretch->first[r]) {
                continue;
            }
            if (n == WF_CUDA_PARTS_MAX) {
                return wf_fail(WEFT_ERR_UNSUPPORTED,
                               "rows on a GPU: a region that is not flat may "
                               "have at most %d parts",
                               WF_CUDA_PARTS_MAX);
            }
            room[n++] = (wf_cuda_part){stretch->row + stretch->first[r],
                                       at + stretch->at[r]};
        }
    }
    out->run = p->kind == WEFT_PARTITION_ROUND_ROBIN ? p->run : 0;
    out->parts = n;
    out->part = room;
    return WEFT_OK;
}

static weft_status map_region(const wf_cuda_functions *cuda, void *stream,
                              const weft_table *table, wf_cuda_part *room,
                              wf_cuda_table *out)
{
    weft_region *region = table->region;
    int32_t device;
    int error = cuda->device(stream, &device);
    uint64_t base;

    if (error != 0) {
        return cuda_status(cuda, error, "asking for the device");
    }
    if (!wf_region_maps_all(region)) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "rank %u: rows of this region lie on other nodes, or "
                       "are not mapped here; a GPU cannot fetch them",
                       region->rank);
    }
    base = (uint64_t)(uintptr_t)weft_region_base_on(region, device);
    if (base == 0 && region->part.rows > 0) {
        return WEFT_ERR_UNSUPPORTED; /* the detail is base_on's */
    }
    out->on_host = region->place == WEFT_HOST;
    if (wf_partition_is_flat(&region->part)) {
        out->at = base + table->first * region->part.pitch + table->skip;
        return WEFT_OK;
    }
    out->first = table->first;
    return find_parts(&region->part, base + table->skip, room, out);
}

static weft_status map_memory(const wf_cuda_functions *cuda,
                              const weft_table *table, wf_cuda_table *out)
{
    uint64_t at = (uint64_t)(uintptr_t)table->at;
    int error = 0;

    out->on_host = table->place == WEFT_HOST;
    if (out->on_host && table->rows > 0) {
        error = cuda->reach(table->at, &at);
    }
    if (error == WF_CUDA_UNREACHABLE) {
        return wf_fail(WEFT_ERR_INVALID,
                       "the table is host memory that GPUs cannot access: use "
                       "a region, or pinned memory");
    }
    out->at = at + table->first * table->pitch + table->skip;
    return cuda_status(cuda, error, "a host table");
}

/* What kernels load at once: complex numbers are two others. */
static uint64_t alignment_of(weft_dtype type)
{
    uint64_t unit = wf_dtype_bytes(wf_dtype_part(type));

    assert(unit > 0);
    return unit;
}

/* Kernels load whole elements; copying rows of one type takes any bytes. */
static weft_status check_aligned(const wf_cuda_table *t, const weft_rows *rows)
{
    uint64_t table_bits = t->at | t->pitch;
    uint64_t rows_bits = (uint64_t)(uintptr_t)rows->at | rows->pitch;

    for (uint32_t i = 0; i < t->parts; i++) {
        table_bits |= t->part[i].at;
    }
    if (table_bits % alignment_of(t->type) != 0 ||
        rows_bits % alignment_of(rows->type) != 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "on a GPU the elements of table and rows must be "
                       "aligned to their size");
    }
    return WEFT_OK;
}

static weft_status map_table(const wf_cuda_functions *cuda, void *stream,
                             const weft_table *table, wf_cuda_part *room,
                             wf_cuda_table *out)
{
    memset(out, 0, sizeof(*out));
    out->pitch = table->pitch;
    out->rows = table->limit == 0 ? table->rows - table->first : table->limit;
    out->width = table->width;
    out->type = table->type;
    return table->region != NULL ? map_region(cuda, stream, table, room, out)
                                 : map_memory(cuda, table, out);
}

typedef enum cuda_op { CUDA_GATHER, CUDA_SCATTER, CUDA_ADD } cuda_op;

static weft_status run(cuda_op op, const weft_table *table, const weft_ids *ids,
                       const weft_rows *rows, const weft_rows_options *options)
{
    static const char *const names[] = {"gather", "scatter", "scatter_add"};
    const wf_cuda_functions *cuda;
    wf_cuda_part room[WF_CUDA_PARTS_MAX];
    wf_cuda_rows_call call = {.ids = *ids,
                              .rows = *rows,
                              .bounds = options->bounds,
                              .deterministic = options->deterministic,
                              .sort = options->sort,
                              .stream = options->stream};
    weft_status st = wf_cuda_library(&cuda);
    int error;

    if (st == WEFT_OK) {
        st = map_table(cuda, options->stream, table, room, &call.table);
    }
    if (st == WEFT_OK && (op == CUDA_ADD || table->type != rows->type)) {
        st = check_aligned(&call.table, rows);
    }
    if (st != WEFT_OK) {
        return st;
    }
    error = op == CUDA_GATHER    ? cuda->gather(&call)
            : op == CUDA_SCATTER ? cuda->scatter(&call)
                                 : cuda->scatter_add(&call);
    return cuda_status(cuda, error, names[op]);
}

weft_status wf_cuda_gather(const weft_table *table, const weft_ids *ids,
                           const weft_rows *out,
                           const weft_rows_options *options)
{
    return run(CUDA_GATHER, table, ids, out, options);
}

weft_status wf_cuda_scatter(const weft_table *table, const weft_ids *ids,
                            const weft_rows *from,
                            const weft_rows_options *options)
{
    return run(CUDA_SCATTER, table, ids, from, options);
}

weft_status wf_cuda_scatter_add(const weft_table *table, const weft_ids *ids,
                                const weft_rows *from,
                                const weft_rows_options *options)
{
    return run(CUDA_ADD, table, ids, from, options);
}

weft_status wf_cuda_rows_check(void *stream)
{
    const wf_cuda_functions *cuda;
    wf_cuda_bad bad = {0};
    weft_status st = wf_cuda_library(&cuda);

    if (st == WEFT_OK) {
        st = cuda_status(cuda, cuda->check(stream, &bad), "waiting for rows");
    }
    if (st != WEFT_OK || bad.seen == 0) {
        return st;
    }
    return wf_fail(WEFT_ERR_INVALID,
                   "id %lld at position %llu is out of range (%llu rows)",
                   (long long)bad.id, (unsigned long long)bad.at,
                   (unsigned long long)bad.rows);
}

weft_status wf_cuda_update(const weft_table *weights,
                           const weft_table *const *state, const weft_ids *ids,
                           const weft_rows *grads, const weft_update *update,
                           const weft_rows_options *options)
{
    const wf_cuda_functions *cuda;
    wf_cuda_part room[WF_CUDA_PARTS_MAX];
    wf_cuda_update_call call = {.ids = *ids,
                                .grads = *grads,
                                .bounds = options->bounds,
                                .rule = *update,
                                .stream = options->stream};
    weft_status st = wf_cuda_library(&cuda);

    if (st == WEFT_OK) {
        st = map_table(cuda, options->stream, weights, room, &call.weights);
    }
    for (int i = 0; st == WEFT_OK && i < WEFT_UPDATE_STATES; i++) {
        if (state[i] != NULL) {
            st = map_table(cuda, options->stream, state[i], room,
                           &call.state[i]);
        }
    }
    if (st != WEFT_OK) {
        return st;
    }
    return cuda_status(cuda, cuda->update(&call), "rows_update");
}

weft_status wf_cuda_unique(const weft_ids *ids, const weft_rows *grads,
                           uint64_t width, uint64_t rows, void *out_ids,
                           const weft_rows *out_grads, uint64_t *out_count,
                           const weft_rows_options *options)
{
    const wf_cuda_functions *cuda;
    wf_cuda_unique_call call = {.ids = *ids,
                                .grads = *grads,
                                .width = width,
                                .rows = rows,
                                .out_ids = out_ids,
                                .out_grads = out_grads->at,
                                .out_pitch = out_grads->pitch,
                                .out_count = out_count,
                                .stream = options->stream};
    weft_status st = wf_cuda_library(&cuda);

    if (st != WEFT_OK) {
        return st;
    }
    return cuda_status(cuda, cuda->unique(&call), "rows_unique");
}
