/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are regions. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wt_cmocka.h"
#include "wt_file.h"

enum { ROWS = 30001, COLUMNS = 9 }; /* two blocks of doubles, and some */

static const uint64_t shape[] = {ROWS, COLUMNS};

static void expect(weft_status got, weft_status want, const char *text)
{
    if (got != want || strstr(weft_error_detail(), text) == NULL) {
        WT_FAIL("%s, \"%s\" instead of %s about \"%s\"", weft_status_name(got),
                weft_error_detail(), weft_status_name(want), text);
    }
}

static weft_region *make(weft_world *world)
{
    weft_region *region = NULL;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_F64, NULL,
                             &region));
    return region;
}

static void check_described(weft_region *region, uint32_t ranks)
{
    weft_region_info info;
    weft_region_part part;
    uint64_t rows = 0;

    weft_region_describe(region, &info);
    WT_CHECK(info.dims == 2 && info.shape[0] == ROWS && info.ranks == ranks);
    WT_CHECK(info.shape[1] == COLUMNS && info.type == WEFT_F64);
    WT_CHECK(info.flat == 1 && info.reach == WEFT_REACH_MAPPED);
    for (uint32_t r = 0; r < ranks; r++) {
        WT_OK(weft_region_part_of(region, r, 0, &part));
        WT_CHECK(part.rows == 0 ||
                 (char *)part.at ==
                     (char *)weft_region_base(region) + part.row * COLUMNS * 8);
        rows += part.rows;
    }
    WT_CHECK(rows == ROWS);
}

/* --- reading ------------------------------------------------------------- */

static void save_body(weft_world *world)
{
    weft_region *region = make(world);

    wt_rows_fill(region, 1);
    WT_OK(weft_region_save(region, weft_world_comm(world), wt_path("o.weft"),
                           NULL));
    weft_region_destroy(region);
}

/* Does a write to it end a child with a signal? */
static void check_protected(unsigned char *byte)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        *(volatile unsigned char *)byte = 1;
        _exit(0);
    }
    WT_CHECK(child > 0 && waitpid(child, &status, 0) == child);
    WT_CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
}

static void read_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = NULL;
    void *view = NULL;

    WT_OK(weft_region_open(comm, wt_path("o.weft"), 0, &region));
    check_described(region, weft_comm_size(comm));
    wt_rows_check(region, 0, ROWS, 1);
    WT_OK(weft_region_view_readonly(region, &view));
    WT_CHECK(memcmp(view, weft_region_base(region), ROWS * COLUMNS * 8) == 0);
    expect(weft_region_load(region, comm, wt_path("o.weft"), NULL),
           WEFT_ERR_DENIED, "read-only");
    expect(weft_region_sync(region), WEFT_ERR_INVALID, "for writing");
    if (weft_comm_rank(comm) == 0 && !WT_TSAN && !WT_ASAN) {
        check_protected(weft_region_base(region));
    }
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
    WT_OK(weft_file_verify(wt_path("o.weft")));
}

static void a_file_opened_for_reading_is_the_region(void **state)
{
    (void)state;
    wt_run_both(3, "", save_body);
    wt_run_both(1, "", read_body);
    wt_run_both(2, "", read_body);
    wt_run_both(5, "", read_body);
}

/* --- writing ------------------------------------------------------------- */

static void write_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    const char *path = wt_path("o.weft");
    weft_file_options careless = {.size = sizeof(careless), .no_verify = 1};
    weft_region *region = NULL;
    weft_region *other = make(world);
    weft_file_info info;

    WT_OK(weft_region_open(comm, path, 1, &region));
    WT_OK(weft_file_describe(path, &info));
    WT_CHECK(info.stale == 1);
    wt_rows_fill(region, 2);
    WT_OK(weft_barrier(comm));
    wt_rows_check(region, 0, ROWS, 2);
    expect(weft_region_load(other, comm, path, NULL), WEFT_ERR_PROTOCOL,
           "out of date");
    expect(weft_file_verify(path), WEFT_ERR_PROTOCOL, "out of date");
    WT_OK(weft_region_load(other, comm, path, &careless));
    WT_OK(weft_barrier(comm));
    wt_rows_check(other, 0, ROWS, 2);
    WT_OK(weft_region_sync(region));
    WT_OK(weft_file_verify(path));
    WT_OK(weft_region_load(other, comm, path, NULL));
    /* Written after the sync, which is for the user to avoid. */
    WT_OK(weft_barrier(comm));
    if (weft_comm_rank(comm) == 0) {
        *(unsigned char *)weft_region_base(region) ^= 1;
    }
    WT_OK(weft_barrier(comm));
    expect(weft_file_verify(path), WEFT_ERR_PROTOCOL, "after weft_region_sync");
    WT_OK(weft_region_sync(region));
    WT_OK(weft_file_verify(path));
    weft_region_destroy(region);
    weft_region_destroy(other);
}

static void what_is_written_is_in_the_file(void **state)
{
    (void)state;
    wt_run_both(1, "", write_body);
    wt_run_both(3, "", write_body);
    wt_run_both(8, "", write_body);
}

static void new_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    const char *path = wt_path("n.weft");
    weft_region *region = NULL;
    const unsigned char *base;

    WT_OK(weft_region_open_new(comm, path, 2, shape, WEFT_F64, &region));
    base = weft_region_base(region);
    check_described(region, weft_comm_size(comm));
    for (size_t i = 0; i < ROWS * COLUMNS * 8; i++) {
        WT_CHECK(base[i] == 0);
    }
    WT_OK(weft_barrier(comm));
    wt_rows_fill(region, 1);
    WT_OK(weft_region_sync(region));
    WT_OK(weft_file_verify(path));
    weft_region_destroy(region);
    WT_OK(weft_barrier(comm));
    WT_OK(weft_region_open(comm, path, 0, &region));
    wt_rows_check(region, 0, ROWS, 1);
    weft_region_destroy(region);
}

static void a_new_file_is_zero_and_can_be_opened_again(void **state)
{
    (void)state;
    wt_run_both(1, "", new_body);
    wt_run_both(3, "", new_body);
    assert_int_equal(wt_folder_count(), 2);
}

static void empty_body(weft_world *world)
{
    static const uint64_t shapes[][2] = {{0, 4}, {4, 0}, {1, 1}};
    weft_comm *comm = weft_world_comm(world);

    for (unsigned i = 0; i < 3; i++) {
        weft_region *region = NULL;

        WT_OK(weft_region_open_new(comm, wt_path("n.weft"), 2, shapes[i],
                                   WEFT_I16, &region));
        WT_OK(weft_region_sync(region));
        WT_OK(weft_file_verify(wt_path("n.weft")));
        weft_region_destroy(region);
    }
}

static void empty_files_are_regions_too(void **state)
{
    (void)state;
    wt_run_both(1, "", empty_body);
    wt_run_both(3, "", empty_body);
}

/* --- refused ------------------------------------------------------------- */

static void refused_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = NULL;
    weft_region *again = NULL;
    weft_region *plain = make(world);
    uint32_t rank = weft_comm_rank(comm);
    uint64_t other[] = {ROWS + (rank == 1), COLUMNS};

    expect(weft_region_open(comm, wt_path("missing"), 0, &region),
           WEFT_ERR_INVALID, "rank 0: cannot open");
    expect(weft_region_open(comm, wt_path("."), 0, &region), WEFT_ERR_INVALID,
           "regular file");
    expect(weft_region_open(comm, NULL, 0, &region), WEFT_ERR_INVALID, "path");
    expect(weft_region_open_new(comm, wt_path("no/such"), 2, shape, WEFT_F64,
                                &region),
           WEFT_ERR_SYSTEM, "no/such");
    expect(weft_region_open_new(comm, wt_path("n.weft"), 0, shape, WEFT_F64,
                                &region),
           WEFT_ERR_INVALID, "dimensions");
    expect(weft_region_sync(plain), WEFT_ERR_INVALID, "from a file");
    expect(weft_region_sync(NULL), WEFT_ERR_INVALID, "from a file");
    if (weft_comm_size(comm) > 1) {
        expect(weft_region_open(comm, wt_path("o.weft"), rank == 1, &region),
               WEFT_ERR_MISMATCH, "rank 1: writable");
        expect(weft_region_open_new(comm, wt_path("x.weft"), 2, other, WEFT_F64,
                                    &region),
               WEFT_ERR_MISMATCH, "rank 1: shape");
    }
    WT_CHECK(region == NULL);
    WT_OK(weft_region_open(comm, wt_path("o.weft"), 1, &region));
    expect(weft_region_open(comm, wt_path("o.weft"), 1, &again),
           WEFT_ERR_DENIED, "another job");
    WT_OK(weft_region_sync(region));
    expect(weft_region_resize(region, ROWS - 1), WEFT_ERR_UNSUPPORTED, "file");
    expect(weft_region_resize(region, ROWS + 1), WEFT_ERR_UNSUPPORTED, "file");
    weft_region_destroy(region);
    weft_region_destroy(plain);
    /* The last descriptor takes the lock with it. */
    WT_OK(weft_barrier(comm));
    WT_OK(weft_region_open(comm, wt_path("o.weft"), 1, &region));
    WT_OK(weft_region_sync(region));
    weft_region_destroy(region);
}

static void what_cannot_be_opened_is_an_error_on_all(void **state)
{
    (void)state;
    wt_run_both(1, "", refused_body);
    wt_run_both(3, "", refused_body);
    assert_int_equal(wt_folder_count(), 2);
}

static const char *node_of(unsigned rank)
{
    return rank % 2 == 0 ? "NODE=a" : "NODE=b";
}

static void nodes_body(weft_world *world)
{
    weft_region *region = NULL;

    expect(
        weft_region_open(weft_world_comm(world), wt_path("o.weft"), 0, &region),
        WEFT_ERR_UNSUPPORTED, "several nodes");
}

static void ranks_of_several_nodes_cannot_map_one_file(void **state)
{
    wt_job job = {.ranks = 2, .settings_of = node_of, .body = nodes_body};

    (void)state;
    wt_run_job_both(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_opened_for_reading_is_the_region),
        cmocka_unit_test(what_is_written_is_in_the_file),
        cmocka_unit_test(a_new_file_is_zero_and_can_be_opened_again),
        cmocka_unit_test(empty_files_are_regions_too),
        cmocka_unit_test(what_cannot_be_opened_is_an_error_on_all),
        cmocka_unit_test(ranks_of_several_nodes_cannot_map_one_file),
    };

    return cmocka_run_group_tests(tests, wt_folder_make, wt_folder_remove);
}
