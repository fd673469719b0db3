/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations on regions of several ranks: every partition, views, sums that
 * all ranks make at once, counters, errors. */
#include <stdlib.h>
#include <string.h>
#include <weft/rows.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_data.h"

#define WIDTH 9u

/* What stands in each element once the ranks have written their rows. */
static int32_t value_of(uint64_t row, uint64_t column)
{
    return (int32_t)(row * 1000 + column + 1);
}

static weft_region *make(weft_world *world, uint64_t rows, uint64_t width,
                         weft_dtype type, weft_region_options options)
{
    uint64_t shape[2] = {rows, width};
    weft_region *region;

    options.size = sizeof(options);
    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, type, &options,
                             &region));
    return region;
}

static uint64_t rows_of(const weft_region *region)
{
    weft_region_info info;

    weft_region_describe(region, &info);
    return info.shape[0];
}

static weft_table table_of(weft_region *region, uint64_t width, weft_dtype type)
{
    return (weft_table){.region = region, .width = width, .type = type};
}

/* Each rank writes the rows that it owns, in one scatter. */
static void write_own(weft_region *region)
{
    uint64_t rows = rows_of(region);
    int64_t *ids = malloc((rows + 1) * sizeof(*ids));
    int32_t *from = malloc((rows + 1) * WIDTH * sizeof(*from));
    weft_table t = table_of(region, WIDTH, WEFT_I32);
    weft_ids i = {ids, WEFT_I64, 0, WEFT_HOST};
    weft_rows r = {from, 0, WEFT_I32, WEFT_HOST};

    WT_CHECK(ids != NULL && from != NULL);
    for (uint64_t row = 0; row < rows; row++) {
        uint32_t owner;
        uint64_t local;

        WT_OK(weft_region_locate(region, row, &owner, &local));
        if (owner != wt_rank()) {
            continue;
        }
        for (uint64_t c = 0; c < WIDTH; c++) {
            from[i.n * WIDTH + c] = value_of(row, c);
        }
        ids[i.n++] = (int64_t)row;
    }
    WT_OK(weft_rows_scatter(&t, &i, &r, NULL));
    WT_OK(weft_region_barrier(region, 0));
    free(ids);
    free(from);
}

/* Any rank finds all of them, with any view. */
static void read_all(weft_region *region, uint64_t first, uint64_t limit,
                     uint64_t skip, uint64_t width, uint32_t threads)
{
    enum { N = 700 };
    int32_t ids[N];
    int32_t *out = malloc(N * (WIDTH + 1) * sizeof(*out));
    weft_table t = table_of(region, width, WEFT_I32);
    weft_ids i = {ids, WEFT_I32, N, WEFT_HOST};
    weft_rows r = {out, (width + 1) * sizeof(*out), WEFT_I32, WEFT_HOST};
    weft_rows_options o = {.size = sizeof(o), .threads = threads};
    uint64_t rows = limit == 0 ? rows_of(region) - first : limit;

    WT_CHECK(out != NULL);
    t.first = first;
    t.limit = limit;
    t.skip = skip * sizeof(int32_t);
    for (unsigned k = 0; k < N; k++) {
        uint64_t random = wt_mix(9, wt_rank(), k);

        ids[k] = rows == 0 || random % 11 == 0 ? -1 : (int32_t)(random % rows);
    }
    memset(out, 0, N * (WIDTH + 1) * sizeof(*out));
    WT_OK(weft_rows_gather(&t, &i, &r, &o));
    for (unsigned k = 0; k < N; k++) {
        for (uint64_t c = 0; c < width; c++) {
            int32_t want =
                ids[k] < 0 ? 0 : value_of(first + (uint64_t)ids[k], skip + c);

            WT_CHECK(out[k * (width + 1) + c] == want);
        }
        WT_CHECK(out[k * (width + 1) + width] == 0);
    }
    free(out);
}

static void write_and_read(weft_region *region)
{
    uint64_t rows = rows_of(region);

    write_own(region);
    read_all(region, 0, 0, 0, WIDTH, 1);
    read_all(region, 0, 0, 0, WIDTH, 3);
    read_all(region, rows / 3, 0, 2, 4, 1);
    if (rows > 3) {
        read_all(region, rows / 2, 1, WIDTH - 1, 1, 2);
    }
    WT_OK(weft_region_barrier(region, 0));
}

static void partitions_body(weft_world *world)
{
    static const uint64_t counts[] = {0, 1, 2, 7, 101, 3000};
    uint32_t ranks = weft_world_size(world);

    for (unsigned c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (unsigned kind = 0; kind < 6; kind++) {
            uint64_t given[WT_MAX_RANKS] = {0};
            weft_region_options o = {0};
            weft_region *region;

            o.aligned = kind == 1 || kind == 3;
            if (kind == 2 || kind == 3) {
                /* All but the last have none, and the last but one a few. */
                o.partition = WEFT_PARTITION_GIVEN;
                o.part_rows = given;
                given[ranks - 1] = counts[c] - counts[c] / 3;
                given[ranks / 2] += counts[c] / 3;
            } else if (kind >= 4) {
                o.partition = WEFT_PARTITION_ROUND_ROBIN;
                o.run = kind == 4 ? 1 : 3;
            }
            if (counts[c] > 200 && (kind == 2 || kind == 5)) {
                o.row_pitch = WIDTH * 4 + 12;
            }
            region = make(world, counts[c], WIDTH, WEFT_I32, o);
            write_and_read(region);
            weft_region_destroy(region);
        }
    }
}

static void rows_are_found_in_every_partition(void **state)
{
    static const unsigned ranks[] = {1, 2, 3, 5};

    (void)state;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        wt_run_both(ranks[i], NULL, partitions_body);
    }
}

static void resize_body(weft_world *world)
{
    for (unsigned kind = 0; kind < 3; kind++) {
        weft_region_options o = {.max_rows = 400, .aligned = kind == 1};
        weft_region *region;

        if (kind == 2) {
            o.partition = WEFT_PARTITION_ROUND_ROBIN;
            o.run = 2;
        }
        region = make(world, 50, WIDTH, WEFT_I32, o);
        WT_OK(weft_region_resize(region, 133));
        write_and_read(region);
        WT_OK(weft_region_resize(region, 400));
        write_and_read(region);
        WT_OK(weft_region_resize(region, 77));
        write_and_read(region);
        weft_region_destroy(region);
    }
}

static void rows_are_found_after_growth(void **state)
{
    (void)state;
    wt_run_both(1, NULL, resize_body);
    wt_run_both(3, NULL, resize_body);
}

/* All ranks add to the same rows at once, some with several threads. */
static void add_all(weft_world *world, weft_dtype type, uint64_t width)
{
    enum { ROWS = 5, N = 4000 };
    size_t size = weft_dtype_size(type);
    weft_region_options options = {0};
    weft_region *region = make(world, ROWS, width, type, options);
    char *ones = malloc(N * width * size);
    char *got = malloc(ROWS * width * size);
    int64_t *ids = malloc(N * sizeof(*ids));
    unsigned times[ROWS] = {0};
    weft_table t = table_of(region, width, type);
    weft_ids i = {ids, WEFT_I64, N, WEFT_HOST};
    weft_rows r = {ones, 0, type, WEFT_HOST};
    weft_rows_options o = {.size = sizeof(o), .threads = 1 + wt_rank() % 3};

    WT_CHECK(ones != NULL && got != NULL && ids != NULL);
    for (size_t e = 0; e < N * width; e++) {
        if (wt_is_floating(type)) {
            wt_put(ones, e, type, 1, 2);
        } else {
            memset(ones + e * size, 0, size);
            ones[e * size] = 1;
        }
    }
    for (unsigned k = 0; k < N; k++) {
        ids[k] = (int64_t)(k % ROWS);
        times[k % ROWS]++;
    }
    wt_meet();
    WT_OK(weft_rows_scatter_add(&t, &i, &r, &o));
    WT_OK(weft_region_barrier(region, 0));
    r.at = got;
    i.n = ROWS;
    WT_OK(weft_rows_gather(&t, &i, &r, NULL));
    for (size_t e = 0; e < ROWS * width; e++) {
        double total = (double)times[e / width] * wt_ranks();
        char want[16] = {0};
        int64_t whole = type == WEFT_BOOL ? 1 : (int64_t)total;

        if (wt_is_floating(type)) {
            wt_put(want, 0, type, total, 2 * total);
        } else {
            memcpy(want, &whole, size);
        }
        WT_CHECK(memcmp(got + e * size, want, size) == 0);
    }
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
    free(ones);
    free(got);
    free(ids);
}

static void add_body(weft_world *world)
{
    static const weft_dtype types[] = {WEFT_BOOL, WEFT_U8,  WEFT_I8,  WEFT_I16,
                                       WEFT_I32,  WEFT_I64, WEFT_F32, WEFT_F64,
                                       WEFT_C64,  WEFT_C128};

    for (unsigned t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        add_all(world, types[t], 1);
        add_all(world, types[t], 7);
    }
}

static void no_sum_is_lost_between_ranks(void **state)
{
    static const unsigned ranks[] = {1, 2, 3, 5, 8};

    (void)state;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        wt_run_both(ranks[i], NULL, add_body);
    }
}

/* Sums of halves end where one more changes nothing, whoever adds. */
static void half_body(weft_world *world)
{
    enum { N = 1000 };
    weft_region_options options = {0};

    for (int type = WEFT_F16; type <= WEFT_BF16; type++) {
        weft_region *region = make(world, 3, 3, (weft_dtype)type, options);
        uint16_t ones[N * 3];
        uint16_t got[3];
        int64_t ids[N];
        weft_table t = table_of(region, 3, (weft_dtype)type);
        weft_ids i = {ids, WEFT_I64, N, WEFT_HOST};
        weft_rows r = {ones, 0, (weft_dtype)type, WEFT_HOST};
        double want = type == WEFT_F16 ? 2048 : 256;

        for (unsigned k = 0; k < N; k++) {
            ids[k] = 1;
        }
        for (unsigned k = 0; k < 3 * N; k++) {
            wt_put(ones, k, (weft_dtype)type, 1, 0);
        }
        if ((double)N * wt_ranks() < want) {
            want = (double)N * wt_ranks();
        }
        WT_OK(weft_rows_scatter_add(&t, &i, &r, NULL));
        WT_OK(weft_region_barrier(region, 0));
        i.n = 1;
        r.at = got;
        WT_OK(weft_rows_gather(&t, &i, &r, NULL));
        for (unsigned c = 0; c < 3; c++) {
            double re;
            double im;

            wt_get(got, c, (weft_dtype)type, &re, &im);
            WT_CHECK(re == want);
        }
        WT_OK(weft_region_barrier(region, 0));
        weft_region_destroy(region);
    }
}

static void sums_of_halves_are_whole(void **state)
{
    (void)state;
    wt_run_both(1, NULL, half_body);
    wt_run_both(3, NULL, half_body);
}

static void counters_body(weft_world *world)
{
    enum { ROWS = 60 };

    for (unsigned kind = 0; kind < 2; kind++) {
        weft_region_options options = {
            .partition =
                kind == 0 ? WEFT_PARTITION_EQUAL : WEFT_PARTITION_ROUND_ROBIN};
        weft_region *region = make(world, ROWS, 2, WEFT_F32, options);
        int64_t ids[ROWS + 3];
        float out[(ROWS + 3) * 2];
        weft_table t = table_of(region, 2, WEFT_F32);
        weft_ids i = {ids, WEFT_I64, ROWS + 3, WEFT_HOST};
        weft_rows r = {out, 0, WEFT_F32, WEFT_HOST};
        weft_rows_options o = {.size = sizeof(o), .bounds = WEFT_BOUNDS_SKIP};
        weft_region_stats stats;
        uint64_t own = 0;

        for (int64_t k = 0; k < ROWS; k++) {
            uint32_t owner;
            uint64_t local;

            ids[k] = k;
            WT_OK(weft_region_locate(region, (uint64_t)k, &owner, &local));
            own += owner == wt_rank();
        }
        ids[ROWS] = -1;
        ids[ROWS + 1] = ROWS;
        ids[ROWS + 2] = -7;
        WT_OK(weft_rows_gather(&t, &i, &r, &o));
        i.n = ROWS;
        WT_OK(weft_rows_scatter_add(&t, &i, &r, &o));
        weft_region_count(region, &stats);
        WT_CHECK(stats.gathers == 1);
        WT_CHECK(stats.scatters == 1);
        WT_CHECK(stats.rows_own == 2 * own);
        WT_CHECK(stats.rows_node == 2 * (ROWS - own));
        WT_CHECK(stats.rows_remote == 0);
        weft_region_destroy(region);
    }
}

static void rows_are_counted_by_where_they_are(void **state)
{
    (void)state;
    wt_run_both(1, NULL, counters_body);
    wt_run_both(3, NULL, counters_body);
}

static void errors_body(weft_world *world)
{
    weft_region_options options = {0};
    weft_region *region = make(world, 10, 4, WEFT_F32, options);
    int64_t ids[2] = {3, 10};
    float out[8];
    weft_table t = table_of(region, 4, WEFT_F32);
    weft_ids i = {ids, WEFT_I64, 2, WEFT_HOST};
    weft_rows r = {out, 0, WEFT_F32, WEFT_HOST};

    WT_STATUS(weft_rows_gather(&t, &i, &r, NULL), WEFT_ERR_INVALID);
    WT_CHECK(wt_names_rank(weft_error_detail(), wt_rank()));
    WT_CHECK(strstr(weft_error_detail(), "id 10 at position 1") != NULL);
    t.width = 5;
    WT_STATUS(weft_rows_gather(&t, &i, &r, NULL), WEFT_ERR_INVALID);
    t.width = 3;
    t.skip = 8;
    WT_STATUS(weft_rows_gather(&t, &i, &r, NULL), WEFT_ERR_INVALID);
    t.skip = 4;
    ids[1] = 9;
    WT_OK(weft_rows_gather(&t, &i, &r, NULL));
    weft_region_destroy(region);
}

static void mistakes_are_told_with_the_rank(void **state)
{
    (void)state;
    wt_run_both(2, NULL, errors_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found_in_every_partition),
        cmocka_unit_test(rows_are_found_after_growth),
        cmocka_unit_test(no_sum_is_lost_between_ranks),
        cmocka_unit_test(sums_of_halves_are_whole),
        cmocka_unit_test(rows_are_counted_by_where_they_are),
        cmocka_unit_test(mistakes_are_told_with_the_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
