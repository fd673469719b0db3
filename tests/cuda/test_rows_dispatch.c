/* SPDX-License-Identifier: Apache-2.0 */
/* How row operations reach the kernels of a GPU, without one: functions in C
 * stand in for libweft_cuda.so, and the double for the driver. Device addresses
 * are host addresses then. What the kernels make of a table's parts is written
 * here a second time, and compared with what the CPU gathers. */
#include <string.h>
#include <unistd.h>

#include "cuda_double/double.h"
#include "region/cuda/library.h"
#include "wt.h"
#include "wt_cmocka.h"

enum { ROWS = 101, WIDTH = 5, IDS = 300 };

static _Thread_local wf_cuda_bad bad;

static int fake_device(void *stream, int32_t *out)
{
    (void)stream;
    *out = 0;
    return 0;
}

static const char *fake_explain(int error)
{
    return error == WF_CUDA_UNSUPPORTED ? "no such kernel" : "a fault";
}

static int fake_reach(const void *host, uint64_t *out)
{
    *out = (uint64_t)(uintptr_t)host;
    return 0;
}

static char *row_at(const wf_cuda_table *t, uint64_t row)
{
    const wf_cuda_part *part = t->part;

    if (t->parts == 0) {
        return (char *)(uintptr_t)(t->at + row * t->pitch);
    }
    row += t->first;
    if (t->run > 0) {
        uint64_t turn = row / t->run;

        part += turn % t->parts;
        row = turn / t->parts * t->run + row % t->run;
    } else {
        while (part + 1 < t->part + t->parts && part[1].row <= row) {
            part++;
        }
        row -= part->row;
    }
    return (char *)(uintptr_t)(part->at + row * t->pitch);
}

static int fake_move(const wf_cuda_rows_call *call, bool to_table)
{
    size_t bytes = call->table.width * weft_dtype_size(call->table.type);

    for (uint64_t i = 0; i < call->ids.n; i++) {
        int64_t id = ((const int64_t *)call->ids.at)[i];
        char *near = (char *)call->rows.at + i * call->rows.pitch;

        if (id >= 0 && (uint64_t)id >= call->table.rows) {
            bad = (wf_cuda_bad){1, 0, id, i, call->table.rows};
        } else if (id >= 0 && to_table) {
            memcpy(row_at(&call->table, (uint64_t)id), near, bytes);
        } else if (id >= 0) {
            memcpy(near, row_at(&call->table, (uint64_t)id), bytes);
        }
    }
    return 0;
}

static int fake_gather(const wf_cuda_rows_call *call)
{
    return fake_move(call, false);
}

static int fake_scatter(const wf_cuda_rows_call *call)
{
    return fake_move(call, true);
}

static int fake_add(const wf_cuda_rows_call *call)
{
    (void)call;
    return WF_CUDA_UNSUPPORTED;
}

static int fake_check(void *stream, wf_cuda_bad *out)
{
    (void)stream;
    *out = bad;
    bad = (wf_cuda_bad){0};
    return 0;
}

static const wf_cuda_functions fake = {
    .abi = WF_CUDA_ABI,
    .device = fake_device,
    .explain = fake_explain,
    .reach = fake_reach,
    .gather = fake_gather,
    .scatter = fake_scatter,
    .scatter_add = fake_add,
    .check = fake_check,
};

static float value_of(uint64_t row, uint64_t column, float add)
{
    return (float)(row * 10 + column) + add;
}

/* Rows `first` on, columns 1 to 3, through the GPU's functions. */
static void check_view(weft_region *region, uint64_t first, float add)
{
    float out[IDS][3];
    int64_t numbers[IDS];
    weft_table table = {.region = region,
                        .first = first,
                        .skip = sizeof(float),
                        .width = 3,
                        .type = WEFT_F32};
    weft_ids ids = {numbers, WEFT_I64, IDS, WEFT_CUDA};
    weft_rows rows = {out, 0, WEFT_F32, WEFT_CUDA};

    for (uint64_t i = 0; i < IDS; i++) {
        numbers[i] = (int64_t)(i * 37 % (ROWS - first));
    }
    WT_OK(weft_rows_gather(&table, &ids, &rows, NULL));
    for (uint64_t i = 0; i < IDS; i++) {
        for (uint64_t k = 0; k < 3; k++) {
            WT_CHECK(out[i][k] ==
                     value_of(first + (uint64_t)numbers[i], k + 1, add));
        }
    }
    WT_OK(weft_rows_check(NULL));
    numbers[5] = (int64_t)(ROWS - first);
    WT_OK(weft_rows_gather(&table, &ids, &rows, NULL));
    WT_STATUS(weft_rows_check(NULL), WEFT_ERR_INVALID);
    WT_CHECK(strstr(weft_error_detail(), "at position 5 is out of range"));
    WT_OK(weft_rows_check(NULL));
}

static void write_all(weft_region *region, weft_place place, float add)
{
    static _Thread_local float from[ROWS][WIDTH];
    static _Thread_local int64_t numbers[ROWS];
    weft_table table = {.region = region, .width = WIDTH, .type = WEFT_F32};
    weft_ids ids = {numbers, WEFT_I64, ROWS, place};
    weft_rows rows = {from, 0, WEFT_F32, place};

    for (uint64_t r = 0; r < ROWS; r++) {
        numbers[r] = (int64_t)r;
        for (uint64_t k = 0; k < WIDTH; k++) {
            from[r][k] = value_of(r, k, add);
        }
    }
    WT_OK(weft_rows_scatter(&table, &ids, &rows, NULL));
}

static void try_region(weft_world *world, const weft_region_options *options)
{
    static const uint64_t shape[] = {ROWS, WIDTH};
    weft_region *region = NULL;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_F32,
                             options, &region));
    if (wt_rank() == 0) {
        write_all(region, WEFT_HOST, 0.5f);
    }
    WT_OK(weft_region_barrier(region, 30));
    check_view(region, 0, 0.5f);
    check_view(region, 7, 0.5f);
    WT_OK(weft_region_barrier(region, 30));
    if (wt_rank() == wt_ranks() - 1) {
        write_all(region, WEFT_CUDA, 0.25f);
    }
    WT_OK(weft_region_barrier(region, 30));
    check_view(region, 7, 0.25f);
    WT_OK(weft_region_barrier(region, 30));
    weft_region_destroy(region);
}

static void regions_body(weft_world *world)
{
    uint64_t given[WT_MAX_RANKS] = {ROWS};

    wf_cuda_library_use(&fake);
    try_region(world,
               &(weft_region_options){.size = sizeof(weft_region_options)});
    try_region(world, &(weft_region_options){
                          .size = sizeof(weft_region_options), .aligned = 1});
    for (uint64_t run = 1; run <= 3; run += 2) {
        try_region(world, &(weft_region_options){
                              .size = sizeof(weft_region_options),
                              .partition = WEFT_PARTITION_ROUND_ROBIN,
                              .run = run});
    }
    for (unsigned r = 1; r < wt_ranks(); r += 2) {
        given[0] -= 11;
        given[r] = 11;
    }
    try_region(world,
               &(weft_region_options){.size = sizeof(weft_region_options),
                                      .partition = WEFT_PARTITION_GIVEN,
                                      .part_rows = given,
                                      .aligned = 1});
}

static void kernels_are_told_where_rows_lie(void **state)
{
    static const unsigned ranks[] = {1, 2, 3, 5};

    (void)state;
    wf_driver_use(
        wf_double_start(&(wf_double_options){.tag = (uint32_t)getpid()}));
    for (unsigned i = 0; i < 4; i++) {
        wt_run(ranks[i], NULL, regions_body);
    }
    wf_driver_use(NULL);
}

static void plain_memory_is_a_table_too(void **state)
{
    float at[4][6] = {{0}};
    float out[2][3];
    int64_t numbers[2] = {1, 0};
    weft_table table = {.at = at,
                        .rows = 4,
                        .pitch = sizeof(at[0]),
                        .place = WEFT_CUDA,
                        .first = 2,
                        .skip = 2 * sizeof(float),
                        .width = 3,
                        .type = WEFT_F32};
    weft_ids ids = {numbers, WEFT_I64, 2, WEFT_CUDA};
    weft_rows rows = {out, 0, WEFT_F32, WEFT_CUDA};

    (void)state;
    wf_cuda_library_use(&fake);
    at[3][2] = 7;
    at[2][4] = 9;
    assert_int_equal(weft_rows_gather(&table, &ids, &rows, NULL), WEFT_OK);
    assert_true(out[0][0] == 7 && out[1][2] == 9);
    table.place = WEFT_HOST;
    assert_int_equal(weft_rows_gather(&table, &ids, &rows, NULL), WEFT_OK);
    assert_int_equal(weft_rows_scatter_add(&table, &ids, &rows, NULL),
                     WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(weft_error_detail(), "no such kernel"));
    table.skip = 1;
    table.type = WEFT_F64;
    table.width = 1;
    assert_int_equal(weft_rows_gather(&table, &ids, &rows, NULL),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "aligned"));
    wf_cuda_library_use(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_told_where_rows_lie),
        cmocka_unit_test(plain_memory_is_a_table_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
