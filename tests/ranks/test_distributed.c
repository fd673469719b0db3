/* SPDX-License-Identifier: Apache-2.0 */
/* Rows on other nodes: gather, scatter and scatter_add give what they give
 * where all is mapped, for all reaches, partitions, types and row sizes. */
#include <stdlib.h>
#include <string.h>

#include "distributed_rows.h"
#include "wt_data.h"

static const char *const layouts[] = {"a",     "ab",    "aab",     "abc",
                                      "aabbb", "abcab", "aabbbccc"};
static const weft_reach reaches[] = {WEFT_REACH_AUTO, WEFT_REACH_DISTRIBUTED,
                                     WEFT_REACH_HIERARCHY};

enum {
    LAYOUTS = sizeof(layouts) / sizeof(layouts[0]),
    REACHES = 3,
    TYPES = 16
};

static uint64_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

/* Ids with repetitions; about one in eight is negative. */
static void random_ids(int64_t *ids, uint64_t n, uint64_t rows, uint64_t seed)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t r = random_next(&seed);

        ids[i] = rows == 0 || r % 8 == 0 ? -1 - (int64_t)(r % 5)
                                         : (int64_t)(r / 8 % rows);
    }
}

/* --- gather --------------------------------------------------------------- */

static void gather_shape(weft_world *world, const dr_shape *shape)
{
    weft_region *region = dr_create(world, shape);
    int64_t ids[257];
    uint64_t n = shape->width > 3000 ? 9 : 257;

    random_ids(ids, n, shape->rows, weft_world_rank(world) + 3);
    dr_check_gather(region, ids, n);
    dr_check_gather(region, ids, 1);
    dr_check_gather(region, ids, 0);
    if (shape->rows < 100) {
        dr_check_all(region);
    }
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

/* Types, partitions, reaches and widths take turns; all of them when full. */
static void gather_body(weft_world *world)
{
    static const uint64_t widths[] = {1, 3, 37, 700, 2500};
    unsigned turn = weft_world_size(world);

    for (unsigned type = 0; type < TYPES; type++) {
        for (unsigned reach = 0; reach < REACHES; reach++) {
            for (unsigned part = 0; part < 3; part++) {
                dr_shape shape = {.rows = 41 + 100 * (turn % 2),
                                  .width = widths[turn % 5],
                                  .type = (weft_dtype)type,
                                  .reach = reaches[reach],
                                  .partition = (weft_partition)part,
                                  .run = turn % 4,
                                  .gap = turn % 3};

                turn++;
                if (wt_full() || turn % 4 == 0) {
                    gather_shape(world, &shape);
                }
            }
        }
    }
}

static void gather_finds_rows_on_all_nodes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < LAYOUTS; i++) {
        dr_run(layouts[i], gather_body);
    }
}

/* Longer than a message, than a question, and a region without rows. */
static void sizes_body(weft_world *world)
{
    static const dr_shape shapes[] = {
        {.rows = 11, .width = 1023, .type = WEFT_F32},
        {.rows = 11, .width = 1025, .type = WEFT_F32},
        {.rows = 7, .width = 16401, .type = WEFT_U8},
        {.rows = 5, .width = 9001, .type = WEFT_C128},
        {.rows = 5, .width = 70001, .type = WEFT_I16},
        {.rows = 0, .width = 4, .type = WEFT_F32},
        {.rows = 9, .width = 0, .type = WEFT_F32},
        {.rows = 1, .width = 1, .type = WEFT_BOOL}};

    for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        dr_shape shape = shapes[i];

        shape.reach = reaches[i % REACHES];
        gather_shape(world, &shape);
    }
}

static void rows_of_any_size_arrive_whole(void **state)
{
    (void)state;
    dr_run("ab", sizes_body);
    dr_run("abcab", sizes_body);
}

/* More ids than are looked at together. */
static void many_body(weft_world *world)
{
    dr_shape shape = {.rows = 5003, .width = 2, .type = WEFT_I32};
    weft_region *region = dr_create(world, &shape);
    uint64_t n = wt_scaled(150001);
    int64_t *ids = malloc(n * sizeof(*ids));

    WT_CHECK(ids != NULL);
    random_ids(ids, n, shape.rows, weft_world_rank(world));
    dr_check_gather(region, ids, n);
    free(ids);
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

static void many_ids_are_asked_for_in_blocks(void **state)
{
    (void)state;
    dr_run("aab", many_body);
}

/* Ranks of the region are not those of the job: their order is turned round,
 * and the first rank of the job is not in it. */
static void group_body(weft_world *world)
{
    int32_t rank = (int32_t)weft_world_rank(world);
    weft_comm *comm = NULL;

    WT_OK(weft_comm_split(weft_world_comm(world), rank == 0 ? -1 : 1, -rank,
                          &comm));
    for (unsigned i = 0; comm != NULL && i < REACHES; i++) {
        dr_shape shape = {.rows = 37,
                          .width = 5,
                          .type = WEFT_I32,
                          .reach = reaches[i],
                          .partition = (weft_partition)i,
                          .run = 2};
        weft_region *region = dr_create_on(comm, &shape);

        dr_check_all(region);
        WT_OK(weft_region_barrier(region, 0));
        weft_region_destroy(region);
    }
    weft_comm_destroy(comm);
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void regions_of_a_group_find_their_ranks(void **state)
{
    (void)state;
    dr_run("aab", group_body);
    dr_run("abacb", group_body);
    dr_run("aabbbcca", group_body);
}

/* --- views, conversion, bounds -------------------------------------------- */

static void columns_body(weft_world *world)
{
    dr_shape shape = {.rows = 60, .width = 50, .type = WEFT_F64};
    weft_region *region;
    weft_table table;
    int32_t ids[40];
    float out[40][13];

    shape.reach = reaches[weft_world_size(world) % REACHES];
    region = dr_create(world, &shape);
    table = dr_table(region);
    table.first = 20;
    table.limit = 35;
    table.skip = 7 * sizeof(double);
    table.width = 11;
    for (int i = 0; i < 40; i++) {
        ids[i] = i < 35 ? 34 - i : -1;
    }
    memset(out, 0, sizeof(out));
    WT_OK(weft_rows_gather(
        &table, &(weft_ids){.at = ids, .type = WEFT_I32, .n = 40},
        &(weft_rows){.at = out, .pitch = sizeof(out[0]), .type = WEFT_F32},
        NULL));
    for (uint64_t i = 0; i < 40; i++) {
        for (uint64_t c = 0; c < 13; c++) {
            int want = i < 35 && c < 11 ? dr_value(20 + 34 - i, 7 + c) : 0;

            WT_CHECK((int)out[i][c] == want);
        }
    }
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

static void views_and_conversions_work_between_nodes(void **state)
{
    (void)state;
    dr_run("ab", columns_body);
    dr_run("aab", columns_body);
    dr_run("aabbb", columns_body);
    dr_run("abca", columns_body);
}

static void bounds_body(weft_world *world)
{
    dr_shape shape = {.rows = 10, .width = 1, .type = WEFT_I32};
    weft_region *region = dr_create(world, &shape);
    weft_table table = dr_table(region);
    weft_rows_options skip = {.size = sizeof(skip), .bounds = WEFT_BOUNDS_SKIP};
    int64_t ids[4] = {9, 10, 0, INT64_MAX};
    int32_t out[4] = {-5, -5, -5, -5};
    weft_ids all = {.at = ids, .type = WEFT_I64, .n = 4};
    weft_rows rows = {.at = out, .type = WEFT_I32};

    WT_STATUS(weft_rows_gather(&table, &all, &rows, NULL), WEFT_ERR_INVALID);
    WT_CHECK(strstr(weft_error_detail(), "id 10") != NULL);
    WT_CHECK(out[0] == -5 && out[2] == -5);
    WT_OK(weft_rows_gather(&table, &all, &rows, &skip));
    WT_CHECK(out[0] == dr_value(9, 0) && out[1] == -5 && out[2] == 0 &&
             out[3] == -5);
    WT_OK(weft_region_barrier(region, 0));
    /* One rank: several would write the same rows at once. */
    if (weft_world_rank(world) == 0) {
        WT_OK(weft_rows_scatter(&table, &all, &rows, &skip));
    }
    WT_OK(weft_region_barrier(region, 0));
    dr_check_all(region);
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

static void ids_past_the_end_are_told_of_before_anything_moves(void **state)
{
    (void)state;
    dr_run("ab", bounds_body);
    dr_run("aabb", bounds_body);
}

/* --- scatter -------------------------------------------------------------- */

/* Each rank clears the rows of its turn everywhere, then writes them anew, with
 * wrong rows under the same ids before the right ones. */
static void scatter_rows(weft_region *region, uint32_t rank, uint32_t ranks,
                         weft_dtype type)
{
    weft_table table = dr_table(region);
    size_t size = weft_dtype_size(type);
    weft_region_info info;
    int64_t *ids;
    char *from;
    uint64_t n = 0;

    weft_region_describe(region, &info);
    ids = malloc(3 * info.shape[0] * sizeof(*ids) + 8);
    from = calloc(3 * info.shape[0] * table.width + 1, size);
    WT_CHECK(ids != NULL && from != NULL);
    for (int again = 0; again < 3; again++) {
        for (uint64_t row = rank; row < info.shape[0]; row += ranks) {
            ids[n] = again == 1 ? -1 : (int64_t)row;
            for (uint64_t c = 0; c < table.width; c++) {
                dr_set(from + (n * table.width + c) * size, type,
                       again == 2 ? dr_value(row, c) : 99);
            }
            n++;
        }
    }
    WT_OK(weft_rows_scatter(&table,
                            &(weft_ids){.at = ids, .type = WEFT_I64, .n = n},
                            &(weft_rows){.at = from, .type = type}, NULL));
    free(ids);
    free(from);
}

static void clear_own(weft_region *region)
{
    weft_region_info info;

    weft_region_describe(region, &info);
    for (uint64_t row = 0; row < info.shape[0]; row++) {
        char *at = dr_own_row(region, row);

        if (at != NULL) {
            memset(at, 0, info.row_bytes);
        }
    }
}

static weft_dtype wider(weft_dtype type)
{
    return wf_dtype_trains(type)                                     ? WEFT_F64
           : type == WEFT_I8 || type == WEFT_I16 || type == WEFT_I32 ? WEFT_I64
                                                                     : type;
}

static void scatter_shape(weft_world *world, const dr_shape *shape)
{
    weft_region *region = dr_create(world, shape);

    clear_own(region);
    WT_OK(weft_region_barrier(region, 0));
    scatter_rows(region, weft_world_rank(world), weft_world_size(world),
                 wider(shape->type));
    WT_OK(weft_region_barrier(region, 0));
    dr_check_all(region);
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

static void scatter_body(weft_world *world)
{
    static const uint64_t widths[] = {1, 5, 130, 1100, 4099};

    for (unsigned i = 0; i < TYPES; i++) {
        for (unsigned reach = 0; reach < REACHES; reach++) {
            dr_shape shape = {.rows = 23,
                              .width = widths[i % 5],
                              .type = (weft_dtype)i,
                              .reach = reaches[reach],
                              .partition = (weft_partition)((i + reach) % 3),
                              .run = 2,
                              .gap = i % 2};

            if (wt_full() || reach == i % REACHES) {
                scatter_shape(world, &shape);
            }
        }
    }
}

static void of_equal_ids_the_last_row_stays(void **state)
{
    (void)state;
    for (unsigned i = 1; i < LAYOUTS; i += wt_full() ? 1 : 2) {
        dr_run(layouts[i], scatter_body);
    }
}

/* --- scatter_add ---------------------------------------------------------- */

/* Every rank adds 1 to every element, `TIMES` times, and to row 0 in every
 * position of a second call. */
enum { TIMES = 5 };

static void add_everywhere(weft_region *region)
{
    weft_table table = dr_table(region);
    size_t size = weft_dtype_size(table.type);
    weft_region_info info;
    int64_t ids[64];
    char *ones;

    weft_region_describe(region, &info);
    ones = malloc(64 * table.width * size);
    WT_CHECK(ones != NULL && info.shape[0] <= 64);
    for (uint64_t i = 0; i < 64 * table.width; i++) {
        dr_set(ones + i * size, table.type, 1);
    }
    for (int t = 0; t < TIMES; t++) {
        for (uint64_t i = 0; i < info.shape[0]; i++) {
            ids[i] = (int64_t)((i * 5 + (unsigned)t) % info.shape[0]);
        }
        WT_OK(weft_rows_scatter_add(
            &table,
            &(weft_ids){.at = ids, .type = WEFT_I64, .n = info.shape[0]},
            &(weft_rows){.at = ones, .type = table.type}, NULL));
    }
    memset(ids, 0, sizeof(ids));
    WT_OK(weft_rows_scatter_add(
        &table, &(weft_ids){.at = ids, .type = WEFT_I64, .n = 3},
        &(weft_rows){.at = ones, .type = table.type}, NULL));
    free(ones);
}

static void check_sums(weft_region *region, uint32_t ranks)
{
    weft_table table = dr_table(region);
    weft_region_info info;

    weft_region_describe(region, &info);
    for (uint64_t row = 0; row < info.shape[0]; row++) {
        const char *at = dr_own_row(region, row);
        int sum = (int)ranks * (TIMES + (row == 0 ? 3 : 0));

        for (uint64_t c = 0; at != NULL && c < table.width; c++) {
            int want = table.type == WEFT_BOOL ? 1 : sum;

            WT_CHECK(dr_get(at + c * weft_dtype_size(table.type), table.type) ==
                     want);
        }
    }
}

static void add_body(weft_world *world)
{
    for (unsigned type = 0; type < WF_DTYPE_COUNT; type++) {
        dr_shape shape = {.rows = 17 + type,
                          .width = type % 3 == 0 ? 3 : 410,
                          .type = (weft_dtype)type,
                          .reach = reaches[type % REACHES],
                          .partition = (weft_partition)(type / 2 % 3)};
        weft_region *region;

        if (!wt_adds(shape.type)) {
            continue;
        }
        region = dr_create(world, &shape);
        clear_own(region);
        WT_OK(weft_region_barrier(region, 0));
        add_everywhere(region);
        WT_OK(weft_region_barrier(region, 0));
        check_sums(region, weft_world_size(world));
        WT_OK(weft_region_barrier(region, 0));
        weft_region_destroy(region);
    }
}

static void no_sum_is_lost_between_ranks_that_add_at_once(void **state)
{
    (void)state;
    for (unsigned i = 0; i < LAYOUTS; i++) {
        dr_run(layouts[i], add_body);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_finds_rows_on_all_nodes),
        cmocka_unit_test(rows_of_any_size_arrive_whole),
        cmocka_unit_test(many_ids_are_asked_for_in_blocks),
        cmocka_unit_test(regions_of_a_group_find_their_ranks),
        cmocka_unit_test(views_and_conversions_work_between_nodes),
        cmocka_unit_test(ids_past_the_end_are_told_of_before_anything_moves),
        cmocka_unit_test(of_equal_ids_the_last_row_stays),
        cmocka_unit_test(no_sum_is_lost_between_ranks_that_add_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
