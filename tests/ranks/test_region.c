/* SPDX-License-Identifier: Apache-2.0 */
/* Regions: every rank sees every row, whatever shape, type and partition. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "region/region.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_proc.h"

static const unsigned ranks_of[] = {1, 2, 3, 5, 8, 7, 16};

static unsigned runs(void)
{
    return wt_full() ? 7 : 5;
}

static void run_all(wt_body *body)
{
    for (unsigned i = 0; i < runs(); i++) {
        wt_run_both(ranks_of[i], "TIMEOUT=1800s", body);
    }
}

static unsigned char byte_of(uint64_t row, uint64_t column, unsigned salt)
{
    return (unsigned char)(row * 31 + column * 7 + salt);
}

/* The address of a row as the public calls tell it. */
static unsigned char *row_at(const weft_region *region, uint64_t row)
{
    weft_region_info info;
    weft_region_part part;
    uint32_t owner = 0;
    uint64_t local = 0;
    uint32_t index = 0;

    weft_region_describe(region, &info);
    WT_OK(weft_region_locate(region, row, &owner, &local));
    WT_OK(weft_region_part_of(region, owner, 0, &part));
    while (local >= part.rows) {
        local -= part.rows;
        WT_OK(weft_region_part_of(region, owner, ++index, &part));
    }
    return (unsigned char *)part.at + local * info.row_pitch;
}

static void write_own(weft_region *region, unsigned salt)
{
    weft_region_info info;

    weft_region_describe(region, &info);
    for (uint64_t i = 0; i < info.shape[0]; i++) {
        uint32_t owner = 0;
        uint64_t local = 0;

        WT_OK(weft_region_locate(region, i, &owner, &local));
        for (uint64_t k = 0; owner == info.rank && k < info.row_bytes; k++) {
            row_at(region, i)[k] = byte_of(i, k, salt);
        }
    }
}

static void check_all(weft_region *region, unsigned salt)
{
    weft_region_info info;
    unsigned char *base = weft_region_base(region);

    weft_region_describe(region, &info);
    for (uint64_t i = 0; i < info.shape[0]; i++) {
        const unsigned char *at = row_at(region, i);

        if (info.flat) {
            WT_CHECK(at == base + i * info.row_pitch);
        }
        for (uint64_t k = 0; k < info.row_bytes; k++) {
            if (at[k] != byte_of(i, k, salt)) {
                WT_FAIL("row %llu byte %llu is wrong", (unsigned long long)i,
                        (unsigned long long)k);
            }
        }
    }
}

static void check_zero(weft_region *region, uint64_t from)
{
    weft_region_info info;

    weft_region_describe(region, &info);
    for (uint64_t i = from; i < info.shape[0]; i++) {
        const unsigned char *at = row_at(region, i);

        for (uint64_t k = 0; k < info.row_bytes; k++) {
            if (at[k] != 0) {
                WT_FAIL("row %llu is not zero", (unsigned long long)i);
            }
        }
    }
}

/* Zero at first, what the owner wrote is seen by all, what others write, too.
 */
static void exercise(weft_comm *comm, uint32_t dims, const uint64_t *shape,
                     weft_dtype type, const weft_region_options *options)
{
    weft_region *region = NULL;
    weft_region_info info;
    uint64_t sum = 0;

    WT_OK(weft_region_create(comm, dims, shape, type, options, &region));
    weft_region_describe(region, &info);
    WT_CHECK(info.dims == dims && info.type == type);
    WT_CHECK(memcmp(info.shape, shape, dims * sizeof(*shape)) == 0);
    WT_CHECK(info.rank == weft_comm_rank(comm));
    WT_CHECK(info.ranks == weft_comm_size(comm));
    WT_CHECK(info.reach == WEFT_REACH_MAPPED);
    WT_CHECK(weft_region_base(region) != NULL);
    for (uint32_t r = 0; r < info.ranks; r++) {
        weft_region_part part;

        WT_CHECK(weft_region_parts(region, r) == 1);
        WT_OK(weft_region_part_of(region, r, 0, &part));
        sum += part.rows;
    }
    WT_CHECK(sum == shape[0]);
    check_zero(region, 0);
    WT_OK(weft_region_barrier(region, 0));
    write_own(region, 1);
    WT_OK(weft_region_barrier(region, 0));
    check_all(region, 1);
    WT_OK(weft_region_barrier(region, 0));
    if (info.rank == info.ranks - 1) {
        for (uint64_t i = 0; i < info.shape[0]; i++) {
            for (uint64_t k = 0; k < info.row_bytes; k++) {
                row_at(region, i)[k] = byte_of(i, k, 2);
            }
        }
    }
    WT_OK(weft_region_barrier(region, 0));
    check_all(region, 2);
    weft_region_destroy(region);
}

/* --- the matrix ----------------------------------------------------------- */

static void rows_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint64_t w = weft_comm_size(comm);
    const uint64_t rows[] = {0, 1, w - 1, w, w + 1, 101};

    for (unsigned i = 0; i < 6 * 3; i++) {
        uint64_t shape[] = {rows[i % 6], 37};
        weft_region_options o = {.size = sizeof(o),
                                 .partition = i / 6 == 2
                                                  ? WEFT_PARTITION_ROUND_ROBIN
                                                  : WEFT_PARTITION_EQUAL,
                                 .run = 1 + i % 3,
                                 .aligned = i / 6 == 1};

        exercise(comm, 2, shape, WEFT_F32, &o);
    }
}

static void all_ranks_see_all_rows_of_any_number(void **state)
{
    (void)state;
    run_all(rows_body);
}

static void shapes_body(weft_world *world)
{
    static const uint64_t shapes[][8] = {
        {13, 1, 1, 1, 1, 1, 1, 1},  {13, 4, 5, 1, 1, 1, 1, 1},
        {13, 0, 5, 1, 1, 1, 1, 1},  {3, 2, 2, 2, 2, 2, 2, 2},
        {0, 0, 0, 0, 0, 0, 0, 0},   {1000, 3, 1, 1, 1, 1, 1, 1},
        {5, 3000, 1, 1, 1, 1, 1, 1}};

    for (unsigned i = 0; i < 7; i++) {
        for (uint32_t dims = 1; dims <= 8; dims += i < 5 ? 1 : 3) {
            exercise(weft_world_comm(world), dims, shapes[i],
                     (weft_dtype)(i + dims) % 16, NULL);
        }
    }
}

static void shapes_have_one_to_eight_dimensions(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s", shapes_body);
}

static void types_body(weft_world *world)
{
    for (unsigned type = 0; type < 16; type++) {
        uint64_t shape[] = {11, 5};
        size_t element = weft_dtype_size((weft_dtype)type);
        weft_region_options o = {.size = sizeof(o), .row_pitch = 7 * element};

        exercise(weft_world_comm(world), 2, shape, (weft_dtype)type, NULL);
        exercise(weft_world_comm(world), 2, shape, (weft_dtype)type, &o);
    }
}

static void all_types_work_with_and_without_a_gap_between_rows(void **state)
{
    (void)state;
    wt_run_both(2, "TIMEOUT=1800s", types_body);
}

static void given_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint32_t w = weft_comm_size(comm);
    uint64_t given[16];

    for (unsigned turn = 0; turn < 4; turn++) {
        weft_region_options o = {.size = sizeof(o),
                                 .partition = WEFT_PARTITION_GIVEN,
                                 .part_rows = given,
                                 .aligned = turn == 3};
        uint64_t shape[] = {0, 111};

        for (uint32_t r = 0; r < w; r++) {
            given[r] = turn == 0   ? r * 3
                       : turn == 1 ? (r == w - 1 ? 17 : 0)
                                   : (r * 7 + 5) % 11;
            shape[0] += given[r];
        }
        exercise(comm, 2, shape, WEFT_I16, &o);
    }
}

static void rows_are_split_as_given_also_with_none_for_some(void **state)
{
    (void)state;
    run_all(given_body);
}

static void pages_body(weft_world *world)
{
    uint64_t shape[] = {wt_scaled(3000), 1000};

    for (unsigned pages = 0; pages < 3; pages++) {
        for (int32_t numa = 0; numa < 2; numa++) {
            weft_region_options o = {
                .size = sizeof(o), .pages = (weft_pages)pages, .numa = numa};
            weft_region_stats stats;
            weft_region *region = NULL;

            WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_U8,
                                     &o, &region));
            weft_region_count(region, &stats);
            WT_CHECK(stats.bytes == shape[0] * shape[1]);
            WT_CHECK(stats.own_bytes <= stats.bytes);
            weft_region_destroy(region);
        }
    }
}

static void pages_may_be_small_or_huge_and_placed(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s", pages_body);
}

/* All of it, on all ranks, before anybody has touched a byte. */
static void resident_body(weft_world *world)
{
    uint64_t shape[] = {wt_scaled(1 << 20), 3};
    unsigned char there[1024];
    weft_region_info info;
    weft_region *region = NULL;
    size_t page;
    char *base;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_U8, NULL,
                             &region));
    weft_region_describe(region, &info);
    page = (size_t)sysconf(_SC_PAGESIZE);
    base = weft_region_base(region);
    for (size_t at = 0; at < shape[0] * 3; at += page) {
        WT_CHECK(mincore(base + at, page, there) == 0);
        WT_CHECK((there[0] & 1) != 0);
    }
    WT_CHECK(info.page >= page);
    weft_region_destroy(region);
}

static void memory_is_there_when_it_is_handed_out(void **state)
{
    (void)state;
    run_all(resident_body);
}

/* --- what cannot be ------------------------------------------------------- */

static void expect_bad(weft_comm *comm, uint32_t dims, const uint64_t *shape,
                       weft_dtype type, const weft_region_options *o,
                       weft_status want)
{
    weft_region *region = (weft_region *)(void *)&region;

    WT_STATUS(weft_region_create(comm, dims, shape, type, o, &region), want);
    WT_CHECK(region == (weft_region *)(void *)&region);
}

static void invalid_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    const uint64_t shape[] = {10, 4, 1, 1, 1, 1, 1, 1, 1};
    const uint64_t vast[] = {1ull << 40, 1ull << 40};
    const uint64_t large[] = {1ull << 44, 4};
    const uint64_t rows[8] = {1};
    weft_region_options o = {.size = sizeof(o)};

    WT_STATUS(weft_region_create(NULL, 2, shape, WEFT_F32, NULL, NULL),
              WEFT_ERR_INVALID);
    expect_bad(comm, 0, shape, WEFT_F32, NULL, WEFT_ERR_INVALID);
    expect_bad(comm, 9, shape, WEFT_F32, NULL, WEFT_ERR_INVALID);
    expect_bad(comm, 2, NULL, WEFT_F32, NULL, WEFT_ERR_INVALID);
    expect_bad(comm, 2, shape, (weft_dtype)99, NULL, WEFT_ERR_INVALID);
    expect_bad(comm, 2, vast, WEFT_F32, NULL, WEFT_ERR_NOMEM);
    expect_bad(comm, 2, large, WEFT_F32, NULL, WEFT_ERR_NOMEM);
    o.size = 3;
    expect_bad(comm, 2, shape, WEFT_F32, &o, WEFT_ERR_INVALID);
    o.size = sizeof(o);
    o.row_pitch = 15;
    expect_bad(comm, 2, shape, WEFT_F32, &o, WEFT_ERR_INVALID);
    o.row_pitch = 18;
    expect_bad(comm, 2, shape, WEFT_F32, &o, WEFT_ERR_INVALID);
    o.row_pitch = 0;
    o.partition = WEFT_PARTITION_GIVEN;
    expect_bad(comm, 2, shape, WEFT_F32, &o, WEFT_ERR_INVALID);
    o.part_rows = rows;
    expect_bad(comm, 2, shape, WEFT_F32, &o, WEFT_ERR_INVALID);
    o.partition = (weft_partition)3;
    expect_bad(comm, 2, shape, WEFT_F32, &o, WEFT_ERR_INVALID);
    o.partition = WEFT_PARTITION_EQUAL;
    o.numa = 2000;
    expect_bad(comm, 2, shape, WEFT_F32, &o, WEFT_ERR_INVALID);
    o.numa = 0;
    o.max_rows = UINT64_MAX;
    expect_bad(comm, 2, shape, WEFT_F32, &o, WEFT_ERR_NOMEM);
    o.max_rows = 0;
    exercise(comm, 2, shape, WEFT_F32, &o);
}

static void what_cannot_be_is_refused_on_all_ranks(void **state)
{
    (void)state;
    wt_run_both(1, "TIMEOUT=1800s", invalid_body);
    wt_run_both(3, "TIMEOUT=1800s", invalid_body);
}

/* Its parts fit, their sum does not. */
static void too_big_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint64_t shape[] = {0, 1024};
    weft_region_options o = {.size = sizeof(o)};
    unsigned fds = wt_count_fds();

    wt_meet();
    if (wt_rank() == 0) {
        /* All must ask for the same. */
        *wt_word(1) = (uint32_t)(wf_memory_available() / 1024 / 2 * 3);
    }
    wt_meet();
    shape[0] = *wt_word(1);
    expect_bad(comm, 2, shape, WEFT_U8, &o, WEFT_ERR_NOMEM);
    WT_CHECK(strstr(weft_error_detail(), "MiB") != NULL);
    /* As a reserve it is fine, but it cannot be filled. */
    o.max_rows = shape[0];
    shape[0] = 10;
    {
        weft_region *region = NULL;

        WT_OK(weft_region_create(comm, 2, shape, WEFT_U8, &o, &region));
        WT_STATUS(weft_region_resize(region, o.max_rows), WEFT_ERR_NOMEM);
        WT_OK(weft_region_resize(region, 20));
        weft_region_destroy(region);
    }
    wt_meet();
    WT_CHECK(wt_count_fds() == fds);
}

static void too_big_is_an_error_and_no_bus_error(void **state)
{
    (void)state;
    wt_run(1, "TIMEOUT=1800s", too_big_body);
    wt_run(4, "TIMEOUT=1800s", too_big_body);
}

/* --- mismatch -------------------------------------------------------------
 */

static const char *const arguments[] = {
    "dims",      "type",      "shape[0]",    "shape[1]", "partition",
    "run",       "max_rows",  "pages",       "reach",    "aligned",
    "row_pitch", "part_rows", "element type"};

static void differ(unsigned what, uint32_t *dims, uint64_t *shape,
                   weft_dtype *type, weft_region_options *o, uint64_t *given)
{
    switch (what) {
    case 0:
        *dims = 3;
        break;
    case 1:
        *type = WEFT_I32;
        break;
    case 2:
        shape[0]++;
        break;
    case 3:
        shape[1]++;
        break;
    case 4:
        o->partition = WEFT_PARTITION_ROUND_ROBIN;
        break;
    case 5:
        o->run = 5;
        break;
    case 6:
        o->max_rows = 100;
        break;
    case 7:
        o->pages = WEFT_PAGES_SMALL;
        break;
    case 8:
        o->reach = WEFT_REACH_DISTRIBUTED;
        break;
    case 9:
        o->aligned = 1;
        break;
    case 10:
        o->row_pitch = 64;
        break;
    case 11:
        given[0]++;
        given[1]--;
        break;
    default:
        o->element = 7;
        break;
    }
}

static void mismatch_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);

    for (unsigned i = 0; i < 13; i++) {
        unsigned odd = ranks > 2 ? i % ranks : 1;
        uint64_t shape[] = {10, 4, 1};
        uint64_t given[16] = {5, 5};
        weft_region_options o = {.size = sizeof(o)};
        weft_region *region = NULL;
        char names[32];
        weft_dtype type = WEFT_F32;
        uint32_t dims = 2;

        if (i == 5) {
            o.partition = WEFT_PARTITION_ROUND_ROBIN;
        }
        if (i == 11) {
            o.partition = WEFT_PARTITION_GIVEN;
            o.part_rows = given;
        }
        if (wt_rank() == odd) {
            differ(i, &dims, shape, &type, &o, given);
        }
        WT_STATUS(weft_region_create(comm, dims, shape, type, &o, &region),
                  WEFT_ERR_MISMATCH);
        WT_CHECK(region == NULL);
        /* It is the odd one that is blamed, not the first. */
        snprintf(names, sizeof(names), "region: rank %u has", odd);
        if (strstr(weft_error_detail(), names) == NULL ||
            strstr(weft_error_detail(), arguments[i]) == NULL) {
            WT_FAIL("%s of rank %u: %s", arguments[i], odd,
                    weft_error_detail());
        }
        WT_OK(weft_barrier(comm));
    }
}

static void a_mismatch_names_the_odd_rank_and_the_argument(void **state)
{
    (void)state;
    wt_run_both(2, "TIMEOUT=1800s", mismatch_body);
    wt_run_both(5, "TIMEOUT=1800s", mismatch_body);
}

static void bad_on_one_body(weft_world *world)
{
    uint64_t shape[] = {10, 4};
    weft_region *region = NULL;

    WT_STATUS(weft_region_create(weft_world_comm(world),
                                 wt_rank() == 2 ? 77 : 2, shape, WEFT_F32, NULL,
                                 &region),
              WEFT_ERR_INVALID);
    WT_CHECK(wt_names_rank(weft_error_detail(), 2));
    WT_CHECK(strstr(weft_error_detail(), "77") != NULL);
    exercise(weft_world_comm(world), 2, shape, WEFT_F32, NULL);
}

static void a_bad_argument_on_one_rank_is_told_to_all(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s", bad_on_one_body);
}

static void another_call_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint64_t shape[] = {10, 4};
    weft_region *region = NULL;
    weft_status st =
        wt_rank() == 1
            ? weft_barrier(comm)
            : weft_region_create(comm, 2, shape, WEFT_F32, NULL, &region);

    WT_CHECK(st == WEFT_ERR_MISMATCH && region == NULL);
    WT_CHECK(strstr(weft_error_detail(), "region") != NULL);
}

static void another_call_on_one_rank_is_a_mismatch(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s", another_call_body);
}

/* --- nothing is left ------------------------------------------------------ */

static void leaves_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint64_t shape[] = {100, 100};
    unsigned fds;
    unsigned mappings;

    exercise(comm, 2, shape, WEFT_F32, NULL);
    wt_meet();
    fds = wt_count_fds();
    mappings = wt_count_mappings();
    for (unsigned i = 0; i < 20; i++) {
        exercise(comm, 2, shape, WEFT_F32, NULL);
    }
    wt_meet();
    WT_CHECK(wt_count_fds() == fds);
    WT_CHECK(WT_ASAN || wt_count_mappings() <= mappings + 1);
}

static void a_destroyed_region_leaves_nothing(void **state)
{
    (void)state;
    wt_run(3, "TIMEOUT=1800s", leaves_body);
}

static void find_body(weft_world *world)
{
    enum { MANY = 20 };
    weft_comm *comm = weft_world_comm(world);
    uint64_t shape[] = {10, 4};
    weft_region *region[MANY];
    char *base[MANY];

    for (unsigned i = 0; i < MANY; i++) {
        WT_OK(weft_region_create(comm, 2, shape, WEFT_F32, NULL, &region[i]));
        base[i] = weft_region_base(region[i]);
    }
    for (unsigned i = 0; i < MANY; i++) {
        weft_region_info info;
        weft_region *found = weft_region_find(base[i] + 159);

        WT_CHECK(found == region[i]);
        weft_region_destroy(found);
        WT_CHECK(weft_region_find(base[i] - 1) != region[i]);
        weft_region_describe(region[i], &info);
        wt_check_same(world, &info.id, sizeof(info.id));
    }
    for (unsigned i = 0; i < MANY; i++) {
        unsigned k = (i * 7) % MANY;
        weft_region *found;

        weft_region_retain(region[k]);
        weft_region_destroy(region[k]);
        found = weft_region_find(base[k]);
        WT_CHECK(found == region[k]);
        weft_region_destroy(found);
        weft_region_destroy(region[k]);
        WT_CHECK(weft_region_find(base[k]) == NULL);
    }
    WT_CHECK(weft_region_find(&shape) == NULL);
    WT_CHECK(weft_region_find(NULL) == NULL);
}

static void a_region_is_found_by_any_address_in_it(void **state)
{
    (void)state;
    wt_run(1, "TIMEOUT=1800s", find_body);
    wt_run(3, "TIMEOUT=1800s", find_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_see_all_rows_of_any_number),
        cmocka_unit_test(shapes_have_one_to_eight_dimensions),
        cmocka_unit_test(all_types_work_with_and_without_a_gap_between_rows),
        cmocka_unit_test(rows_are_split_as_given_also_with_none_for_some),
        cmocka_unit_test(pages_may_be_small_or_huge_and_placed),
        cmocka_unit_test(memory_is_there_when_it_is_handed_out),
        cmocka_unit_test(what_cannot_be_is_refused_on_all_ranks),
        cmocka_unit_test(too_big_is_an_error_and_no_bus_error),
        cmocka_unit_test(a_mismatch_names_the_odd_rank_and_the_argument),
        cmocka_unit_test(a_bad_argument_on_one_rank_is_told_to_all),
        cmocka_unit_test(another_call_on_one_rank_is_a_mismatch),
        cmocka_unit_test(a_destroyed_region_leaves_nothing),
        cmocka_unit_test(a_region_is_found_by_any_address_in_it),
    };

    return cmocka_run_group_tests_name("region", tests, NULL, NULL);
}
