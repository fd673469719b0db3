/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are damaged, foreign or do not fit: all ranks are told the same,
 * and what was wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "region/file/format.h"
#include "wt_cmocka.h"
#include "wt_file.h"

enum { ROWS = 30001, COLUMNS = 9 }; /* two blocks of doubles, and some */

static weft_region *make(weft_world *world, uint64_t rows, uint64_t columns,
                         weft_dtype type)
{
    uint64_t shape[] = {rows, columns};
    weft_region *region = NULL;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, type, NULL,
                             &region));
    return region;
}

static void expect(weft_status got, weft_status want, const char *text)
{
    if (got != want || strstr(weft_error_detail(), text) == NULL) {
        WT_FAIL("%s, \"%s\" instead of %s about \"%s\"", weft_status_name(got),
                weft_error_detail(), weft_status_name(want), text);
    }
}

/* Load must fail so on all ranks, and leave the communicator good. */
static void expect_load(weft_region *region, weft_comm *comm, const char *path,
                        weft_status want, const char *text)
{
    expect(weft_region_load(region, comm, path, NULL), want, text);
    wt_check_same(weft_comm_world(comm), weft_error_detail(),
                  strlen(weft_error_detail()));
    WT_OK(weft_barrier(comm));
}

typedef void damage(const char *path, const wf_file_header *h);

static void flip_header(const char *path, const wf_file_header *h)
{
    (void)h;
    wt_file_flip(path, 40);
}
static void flip_magic(const char *path, const wf_file_header *h)
{
    (void)h;
    wt_file_flip(path, 1);
}
static void flip_table(const char *path, const wf_file_header *h)
{
    wt_file_flip(path, h->table_at + 5);
}
static void flip_first(const char *path, const wf_file_header *h)
{
    wt_file_flip(path, h->data_at);
}
static void flip_middle(const char *path, const wf_file_header *h)
{
    wt_file_flip(path, h->data_at + h->block_bytes + 12345);
}
static void flip_last(const char *path, const wf_file_header *h)
{
    wt_file_flip(path, wf_file_bytes(h) - 1);
}
static void cut_last(const char *path, const wf_file_header *h)
{
    wt_file_resize(path, wf_file_bytes(h) - 1);
}
static void cut_data(const char *path, const wf_file_header *h)
{
    wt_file_resize(path, h->data_at + 100);
}
static void cut_header(const char *path, const wf_file_header *h)
{
    (void)h;
    wt_file_resize(path, 100);
}
static void cut_all(const char *path, const wf_file_header *h)
{
    (void)h;
    wt_file_resize(path, 0);
}
static void add_one(const char *path, const wf_file_header *h)
{
    wt_file_resize(path, wf_file_bytes(h) + 1);
}

static const struct {
    damage *how;
    weft_status status;
    const char *text;
} damages[] = {
    {flip_header, WEFT_ERR_PROTOCOL, "header is damaged"},
    {flip_magic, WEFT_ERR_INVALID, "not a file of a saved region"},
    {flip_table, WEFT_ERR_PROTOCOL, "table of checksums is damaged"},
    {flip_first, WEFT_ERR_PROTOCOL, "block 0 (bytes 65536 to 1114111)"},
    {flip_middle, WEFT_ERR_PROTOCOL, "block 1 (bytes 1114112 to 2162687)"},
    {flip_last, WEFT_ERR_PROTOCOL, "block 2 (bytes 2162688 to 2225607)"},
    {cut_last, WEFT_ERR_PROTOCOL, "cut off"},
    {cut_data, WEFT_ERR_PROTOCOL, "cut off"},
    {cut_header, WEFT_ERR_INVALID, "100 bytes, too few"},
    {cut_all, WEFT_ERR_INVALID, "0 bytes, too few"},
    {add_one, WEFT_ERR_PROTOCOL, "added to"},
};

static void read_header(const char *path, wf_file_header *h)
{
    FILE *f = fopen(path, "rb");

    WT_CHECK(f != NULL && fread(h, sizeof(*h), 1, f) == 1);
    fclose(f);
}

static void damaged_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(world, ROWS, COLUMNS, WEFT_F64);
    const char *path = wt_path("d.weft");
    wf_file_header h;

    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        wt_rows_fill(region, i);
        WT_OK(weft_region_save(region, comm, path, NULL));
        WT_OK(weft_file_verify(path));
        read_header(path, &h);
        WT_OK(weft_barrier(comm));
        if (weft_comm_rank(comm) == 0) {
            damages[i].how(path, &h);
        }
        WT_OK(weft_barrier(comm));
        expect(weft_file_verify(path), damages[i].status, damages[i].text);
        expect_load(region, comm, path, damages[i].status, damages[i].text);
    }
    weft_region_destroy(region);
}

static void damage_is_found_and_named(void **state)
{
    (void)state;
    wt_run_both(1, "", damaged_body);
    wt_run_both(3, "", damaged_body);
}

static void unverified_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(world, ROWS, COLUMNS, WEFT_F64);
    weft_file_options options = {.size = sizeof(options), .no_verify = 1};
    const char *path = wt_path("d.weft");

    wt_rows_fill(region, 1);
    WT_OK(weft_region_save(region, comm, path, NULL));
    if (weft_comm_rank(comm) == 0) {
        wt_file_flip(path, wt_file_size(path) - 1);
    }
    WT_OK(weft_barrier(comm));
    WT_OK(weft_region_load(region, comm, path, &options));
    WT_OK(weft_barrier(comm));
    wt_rows_check(region, 0, ROWS - 1, 1);
    weft_region_destroy(region);
}

static void checksums_can_be_left_alone(void **state)
{
    (void)state;
    wt_run_both(2, "", unverified_body);
}

/* --- what does not fit --------------------------------------------------- */

static void fit_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(world, 100, 4, WEFT_F32);
    weft_region *shorter = make(world, 99, 4, WEFT_F32);
    weft_region *wider = make(world, 100, 5, WEFT_F32);
    weft_region *typed = make(world, 100, 4, WEFT_I32);
    weft_region *folded = make(world, 100, 2, WEFT_F64);
    const char *path = wt_path("f.weft");

    WT_OK(weft_region_save(region, comm, path, NULL));
    expect_load(shorter, comm, path, WEFT_ERR_INVALID,
                "100 rows, the region 99");
    expect_load(wider, comm, path, WEFT_ERR_INVALID,
                "rows of 16 bytes, type f32, the region of 20");
    expect_load(typed, comm, path, WEFT_ERR_INVALID, "type i32");
    expect_load(folded, comm, path, WEFT_ERR_INVALID, "type f64");
    expect_load(region, comm, wt_path("missing"), WEFT_ERR_INVALID,
                "no such file");
    expect_load(region, comm, wt_path("."), WEFT_ERR_INVALID, "regular file");
    expect_load(region, comm, "", WEFT_ERR_INVALID, "path is empty");
    expect_load(region, comm, "/dev/zero", WEFT_ERR_INVALID, "regular file");
    WT_OK(weft_region_load(region, comm, path, NULL));
    weft_region_destroy(region);
    weft_region_destroy(shorter);
    weft_region_destroy(wider);
    weft_region_destroy(typed);
    weft_region_destroy(folded);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    wt_run_both(1, "", fit_body);
    wt_run_both(3, "", fit_body);
}

/* --- one rank is wrong --------------------------------------------------- */

static void odd_one_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *turned = NULL;
    weft_region *region = make(world, 100, 4, WEFT_F32);
    uint32_t rank = weft_comm_rank(comm);
    weft_file_options options = {.size = rank == 1 ? 3 : sizeof(options)};

    WT_OK(weft_region_save(region, comm, wt_path("a.weft"), NULL));
    wt_rows_fill(region, 1);
    WT_OK(weft_region_save(region, comm, wt_path("b.weft"), NULL));
    expect_load(region, comm, wt_path(rank == 1 ? "missing" : "a.weft"),
                WEFT_ERR_INVALID, "rank 1: cannot open");
    expect_load(region, comm, wt_path(rank == 2 ? "b.weft" : "a.weft"),
                WEFT_ERR_MISMATCH, "rank 2");
    expect_load(region, comm, rank == 1 ? NULL : wt_path("a.weft"),
                WEFT_ERR_INVALID, "rank 1: path");
    expect(weft_region_save(region, comm, wt_path("a.weft"), &options),
           WEFT_ERR_INVALID, "rank 1: weft_file_options.size");
    expect(weft_region_load(NULL, comm, wt_path("a.weft"), NULL),
           WEFT_ERR_INVALID, "NULL");
    WT_OK(weft_comm_split(comm, 0, -(int64_t)rank, &turned));
    expect(weft_region_save(region, turned, wt_path("a.weft"), NULL),
           WEFT_ERR_INVALID, "in the region");
    weft_comm_destroy(turned);
    WT_OK(weft_comm_split(comm, rank == 0 ? 1 : 2, 0, &turned));
    expect(weft_region_save(region, turned, wt_path("a.weft"), NULL),
           WEFT_ERR_INVALID, "in the region");
    weft_comm_destroy(turned);
    WT_OK(weft_region_load(region, comm, wt_path("a.weft"), NULL));
    weft_region_destroy(region);
}

static void an_error_of_one_rank_is_one_of_all(void **state)
{
    (void)state;
    wt_run_both(3, "", odd_one_body);
}

static void a_file_can_be_asked_by_anyone(void **state)
{
    weft_file_info info;
    uint64_t rows[4];

    (void)state;
    assert_int_equal(weft_file_describe(NULL, &info), WEFT_ERR_INVALID);
    assert_int_equal(weft_file_describe(wt_path("missing"), &info),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_file_verify(NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_file_verify(wt_path("missing")), WEFT_ERR_INVALID);
    assert_int_equal(weft_file_parts(wt_path("a.weft"), rows, 4),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_file_parts(wt_path("a.weft"), rows, 3), WEFT_OK);
    assert_int_equal(rows[0], 34);
    assert_int_equal(rows[2], 32);
    wt_file_flip(wt_path("a.weft"), sizeof(wf_file_header) + 8);
    assert_int_equal(weft_file_parts(wt_path("a.weft"), rows, 3),
                     WEFT_ERR_PROTOCOL);
    assert_int_equal(weft_file_verify(wt_path("a.weft")), WEFT_ERR_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_found_and_named),
        cmocka_unit_test(checksums_can_be_left_alone),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(an_error_of_one_rank_is_one_of_all),
        cmocka_unit_test(a_file_can_be_asked_by_anyone),
    };

    return cmocka_run_group_tests(tests, wt_folder_make, wt_folder_remove);
}
