/* SPDX-License-Identifier: Apache-2.0 */
/* Loading files that say nothing about themselves, and .npy files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wt_cmocka.h"
#include "wt_file.h"

enum { ROWS = 70001, COLUMNS = 12, WIDTH = COLUMNS * 4 };

/* What the files hold; set before the ranks are forked. */
static uint64_t width;
static uint64_t skip;
static weft_partition partition;

static weft_region *make(weft_world *world, uint64_t rows)
{
    uint64_t shape[] = {rows, COLUMNS};
    weft_region_options options = {.size = sizeof(options),
                                   .partition = partition,
                                   .row_pitch = WIDTH + 4};
    weft_region *region = NULL;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_F32,
                             &options, &region));
    return region;
}

/* Rows `first` and following of the stream, each `width` bytes. */
static void write_rows(const char *name, const void *head, size_t n,
                       uint64_t first, uint64_t rows)
{
    unsigned char *bytes = malloc(n + rows * width + 1);

    assert_non_null(bytes);
    memcpy(bytes, head, n);
    for (uint64_t r = 0; r < rows; r++) {
        for (uint64_t c = 0; c < width; c++) {
            bytes[n + r * width + c] = wt_row_byte(1, first + r, c);
        }
    }
    wt_file_write(wt_path(name), bytes, n + rows * width);
    free(bytes);
}

static const char *const parts[] = {"x_part_0_of_5", "x_part_1_of_5",
                                    "x_part_2_of_5", "x_part_3_of_5",
                                    "x_part_4_of_5"};

static void write_parts(void)
{
    static const uint64_t rows[] = {1, 0, 60000, 9999, 1};
    uint64_t first = 0;

    for (unsigned i = 0; i < 5; i++) {
        write_rows(parts[i], "", 0, first, rows[i]);
        first += rows[i];
    }
    assert_int_equal(first, ROWS);
}

static weft_status load_parts(weft_region *region, weft_world *world)
{
    const char *paths[5];
    weft_file_options options = {.size = sizeof(options),
                                 .threads = 2,
                                 .file_row_bytes = width == WIDTH ? 0 : width,
                                 .skip = skip};

    for (unsigned i = 0; i < 5; i++) {
        paths[i] = wt_path(parts[i]);
    }
    return weft_region_load_raw(region, weft_world_comm(world), paths, 5,
                                &options);
}

static void parts_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(world, ROWS + 100);

    wt_rows_fill(region, 2);
    WT_OK(weft_barrier(comm));
    WT_OK(load_parts(region, world));
    WT_OK(weft_barrier(comm));
    wt_rows_check_bytes(region, ROWS, skip, width, 1);
    wt_rows_check(region, ROWS, 100, 2);
    for (uint64_t row = 0; row < 100 && skip > 0; row++) {
        weft_region_part part;
        uint32_t rank = weft_comm_rank(comm);
        const unsigned char *p;

        WT_OK(weft_region_part_of(region, rank, 0, &part));
        p = (const unsigned char *)part.at + row * (WIDTH + 4);
        if (partition == WEFT_PARTITION_EQUAL && row < part.rows) {
            WT_CHECK(p[0] == wt_row_byte(2, part.row + row, 0));
            WT_CHECK(p[WIDTH - 1] == wt_row_byte(2, part.row + row, WIDTH - 1));
            WT_CHECK(p[WIDTH] == 0xee);
        }
    }
    weft_region_destroy(region);
}

static void part_files_are_read_as_one(void **state)
{
    static const unsigned ranks[] = {1, 3, 8};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        width = i == 1 ? 20 : WIDTH;
        skip = i == 1 ? 8 : 0;
        write_parts();
        partition = WEFT_PARTITION_EQUAL;
        wt_run_both(ranks[i], "", parts_body);
        partition = WEFT_PARTITION_ROUND_ROBIN;
        wt_run_both(ranks[i], "", parts_body);
    }
}

/* --- refused ------------------------------------------------------------- */

static void expect(weft_status got, weft_status want, const char *text)
{
    if (got != want || strstr(weft_error_detail(), text) == NULL) {
        WT_FAIL("%s, \"%s\" instead of %s about \"%s\"", weft_status_name(got),
                weft_error_detail(), weft_status_name(want), text);
    }
}

static void refused_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(world, 100);
    weft_file_options options = {.size = sizeof(options)};
    const char *paths[2] = {wt_path("odd"), wt_path("x_part_0_of_5")};

    expect(weft_region_load_raw(region, comm, paths, 1, &options),
           WEFT_ERR_INVALID, "not a multiple");
    expect(weft_region_load_raw(region, comm, paths + 1, 1, &options), WEFT_OK,
           "");
    expect(load_parts(region, world), WEFT_ERR_INVALID, "70001 rows");
    paths[0] = wt_path("missing");
    expect(weft_region_load_raw(region, comm, paths, 2, &options),
           WEFT_ERR_INVALID, "missing");
    paths[0] = wt_path(".");
    expect(weft_region_load_raw(region, comm, paths, 2, &options),
           WEFT_ERR_INVALID, "regular file");
    expect(weft_region_load_raw(region, comm, paths, 0, &options),
           WEFT_ERR_INVALID, "path");
    options.skip = 4;
    expect(weft_region_load_raw(region, comm, paths + 1, 1, &options),
           WEFT_ERR_INVALID, "do not fit");
    options.skip = UINT64_MAX;
    options.file_row_bytes = 2;
    expect(weft_region_load_raw(region, comm, paths + 1, 1, &options),
           WEFT_ERR_INVALID, "do not fit");
    if (weft_comm_size(comm) > 1) {
        uint32_t rank = weft_comm_rank(comm);

        paths[0] = paths[1];
        expect(
            weft_region_load_raw(region, comm, paths, rank == 1 ? 2 : 1, NULL),
            WEFT_ERR_MISMATCH, "rank 1: 2 files");
        paths[0] = rank == 1 ? NULL : paths[1];
        expect(weft_region_load_raw(region, comm, paths, 1, NULL),
               WEFT_ERR_INVALID, "rank 1");
    }
    WT_OK(weft_barrier(comm));
    weft_region_destroy(region);
}

static void what_does_not_fit_is_refused_on_all_ranks(void **state)
{
    (void)state;
    width = WIDTH;
    skip = 0;
    partition = WEFT_PARTITION_EQUAL;
    write_parts();
    wt_file_write(wt_path("odd"), "12345", 5);
    wt_run_both(1, "", refused_body);
    wt_run_both(3, "", refused_body);
}

/* --- .npy ---------------------------------------------------------------- */

static size_t npy_header(char *out, size_t room, const char *type,
                         const char *order, const char *shape)
{
    size_t n;

    memcpy(out, "\x93NUMPY\x01\x00", 8);
    n = 10 + (size_t)snprintf(out + 10, room - 10,
                              "{'descr': '%s', 'fortran_order': %s, "
                              "'shape': %s, }",
                              type, order, shape);
    while (n % 64 != 63) {
        out[n++] = ' ';
    }
    out[n++] = '\n';
    out[8] = (char)((n - 10) & 255);
    out[9] = (char)((n - 10) >> 8);
    return n;
}

static void write_npy(const char *name, const char *type, const char *order,
                      const char *shape, uint64_t rows)
{
    char head[256];
    size_t n = npy_header(head, sizeof(head), type, order, shape);

    write_rows(name, head, n, 0, rows);
}

static void npy_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(world, ROWS);
    const char *path = wt_path("a.npy");
    weft_file_info info;

    WT_OK(weft_file_describe(path, &info));
    WT_CHECK(info.dims == 3 && info.shape[0] == ROWS && info.shape[2] == 3);
    WT_CHECK(info.type == WEFT_F32 && info.row_pitch == WIDTH);
    WT_OK(weft_region_load_raw(region, comm, &path, 1, NULL));
    WT_OK(weft_barrier(comm));
    wt_rows_check(region, 0, ROWS, 1);
    path = wt_path("fortran.npy");
    expect(weft_region_load_raw(region, comm, &path, 1, NULL),
           WEFT_ERR_UNSUPPORTED, "ascontiguousarray");
    path = wt_path("type.npy");
    expect(weft_region_load_raw(region, comm, &path, 1, NULL), WEFT_ERR_INVALID,
           "i32");
    path = wt_path("row.npy");
    expect(weft_region_load_raw(region, comm, &path, 1, NULL), WEFT_ERR_INVALID,
           "rows of 24 bytes");
    path = wt_path("short.npy");
    expect(weft_region_load_raw(region, comm, &path, 1, NULL),
           WEFT_ERR_PROTOCOL, "cut off");
    path = wt_path("odd.npy");
    expect(weft_region_load_raw(region, comm, &path, 1, NULL), WEFT_ERR_INVALID,
           "too short");
    weft_region_destroy(region);
}

static void npy_files_are_loaded_or_refused_by_name(void **state)
{
    (void)state;
    width = WIDTH;
    partition = WEFT_PARTITION_EQUAL;
    write_npy("a.npy", "<f4", "False", "(70001, 4, 3)", ROWS);
    write_npy("fortran.npy", "<f4", "True", "(100, 12)", 100);
    write_npy("type.npy", "<i4", "False", "(100, 12)", 100);
    write_npy("row.npy", "<f4", "False", "(200, 6)", 100);
    write_npy("short.npy", "<f4", "False", "(101, 12)", 100);
    wt_file_write(wt_path("odd.npy"), "\x93NUMPY", 6);
    wt_run_both(1, "", npy_body);
    wt_run_both(3, "", npy_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(part_files_are_read_as_one),
        cmocka_unit_test(what_does_not_fit_is_refused_on_all_ranks),
        cmocka_unit_test(npy_files_are_loaded_or_refused_by_name),
    };

    return cmocka_run_group_tests(tests, wt_folder_make, wt_folder_remove);
}
