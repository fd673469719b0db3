/* SPDX-License-Identifier: Apache-2.0 */
/* Saving regions and loading them, by any number of ranks. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/types.h"
#include "cuda_double/double.h"
#include "wt_cmocka.h"
#include "wt_file.h"

/* What the next run makes; set before the ranks are forked. */
typedef struct plan {
    uint32_t dims;
    uint64_t shape[4];
    weft_dtype type;
    weft_region_options options;
    weft_file_options file;
} plan;
static plan now;
static const char *target = "t.weft";

/* Several blocks, none of which begins with a row. */
enum { ROWS = WT_TSAN ? 30001 : 70001 };
static const plan table = {.dims = 2, .shape = {ROWS, 12}, .type = WEFT_F32};

static weft_region *make(weft_world *world, const plan *p)
{
    weft_region_options options = p->options;
    weft_region *region = NULL;

    options.size = sizeof(options);
    WT_OK(weft_region_create(weft_world_comm(world), p->dims, p->shape, p->type,
                             &options, &region));
    return region;
}

static weft_file_options file_options(void)
{
    weft_file_options options = now.file;

    options.size = sizeof(options);
    return options;
}

static void save_body(weft_world *world)
{
    weft_region *region = make(world, &now);
    weft_file_options options = file_options();

    wt_rows_fill(region, 1);
    WT_OK(weft_region_save(region, weft_world_comm(world), wt_path(target),
                           &options));
    weft_region_destroy(region);
}

static void load_body(weft_world *world)
{
    weft_region *region = make(world, &now);
    weft_file_options options = file_options();

    WT_OK(weft_region_load(region, weft_world_comm(world), wt_path("t.weft"),
                           &options));
    WT_OK(weft_barrier(weft_world_comm(world)));
    wt_rows_check(region, 0, now.shape[0], 1);
    weft_region_destroy(region);
}

static void check_file(unsigned parts)
{
    weft_file_info info;
    uint64_t rows[WT_MAX_RANKS];
    uint64_t sum = 0;

    assert_int_equal(weft_file_describe(wt_path("t.weft"), &info), WEFT_OK);
    assert_int_equal(info.dims, now.dims);
    assert_memory_equal(info.shape, now.shape, now.dims * sizeof(uint64_t));
    assert_int_equal(info.type, now.type);
    assert_int_equal(info.parts, parts);
    assert_int_equal(info.partition, now.options.partition);
    assert_int_equal(info.stale, 0);
    assert_int_equal(weft_file_verify(wt_path("t.weft")), WEFT_OK);
    assert_int_equal(weft_file_parts(wt_path("t.weft"), rows, parts), WEFT_OK);
    for (unsigned r = 0; r < parts; r++) {
        sum += rows[r];
    }
    assert_int_equal(sum, now.shape[0]);
    assert_int_equal(wt_folder_count(), 1);
}

static void saved_by_some_ranks_loads_on_others(void **state)
{
    static const unsigned savers[] = {3, 1, 8};
    static const unsigned loaders[] = {5, 1, 2, 8};

    (void)state;
    now = table;
    for (unsigned s = 0; s < 3; s++) {
        wt_run_both(savers[s], "", save_body);
        check_file(savers[s]);
        for (unsigned l = 0; l < 4; l++) {
            if (s == 0 || wt_full()) {
                wt_run_both(loaders[l], "", load_body);
            }
        }
    }
}

/* --- types and shapes ---------------------------------------------------- */

static void types_body(weft_world *world)
{
    static const plan shapes[] = {
        {.dims = 1, .shape = {1237}},       {.dims = 3, .shape = {97, 3, 5}},
        {.dims = 4, .shape = {5, 2, 1, 3}}, {.dims = 2, .shape = {0, 7}},
        {.dims = 2, .shape = {7, 0}},       {.dims = 1, .shape = {1}}};

    for (int type = 0; type < WF_DTYPE_COUNT; type++) {
        plan p = shapes[type % 6];
        weft_region *region;
        weft_region *other;

        p.type = (weft_dtype)type;
        region = make(world, &p);
        other = make(world, &p);
        wt_rows_fill(region, 2);
        WT_OK(weft_region_save(region, weft_world_comm(world),
                               wt_path("t.weft"), NULL));
        WT_OK(weft_region_load(other, weft_world_comm(world), wt_path("t.weft"),
                               NULL));
        WT_OK(weft_barrier(weft_world_comm(world)));
        wt_rows_check(other, 0, p.shape[0], 2);
        weft_region_destroy(region);
        weft_region_destroy(other);
    }
}

static void all_types_and_shapes_come_back(void **state)
{
    (void)state;
    wt_run_both(1, "", types_body);
    wt_run_both(3, "", types_body);
    wt_run_both(5, "", types_body);
}

/* --- partitions ---------------------------------------------------------- */

/* For three ranks. */
static const uint64_t given[] = {0, ROWS - 20000, 20000};

static plan partition_plan(unsigned which)
{
    plan p = table;

    switch (which) {
    case 0:
        p.options.partition = WEFT_PARTITION_ROUND_ROBIN;
        p.options.row_pitch = 64;
        break;
    case 1:
        p.options.partition = WEFT_PARTITION_ROUND_ROBIN;
        p.options.run = 1000;
        break;
    case 2:
        p.options.partition = WEFT_PARTITION_GIVEN;
        p.options.part_rows = given;
        break;
    case 3:
        p.options.aligned = 1;
        p.options.row_pitch = 52;
        break;
    case 4:
        p.options.reach = WEFT_REACH_DISTRIBUTED;
        break;
    default:
        /* Row by row, since nobody sees the others' rows. */
        p.shape[0] = 1999;
        p.options.partition = WEFT_PARTITION_ROUND_ROBIN;
        p.options.run = 3;
        p.options.reach = WEFT_REACH_DISTRIBUTED;
        break;
    }
    return p;
}

enum { PARTITIONS = 6 };

static void a_file_does_not_depend_on_the_partition(void **state)
{
    (void)state;
    for (unsigned which = 0; which < PARTITIONS; which++) {
        now = partition_plan(which);
        wt_run_both(3, "", save_body);
        check_file(3);
        wt_run_both(3, "", load_body);
        now.options = (weft_region_options){.size = 0};
        wt_run_both(2, "", load_body);
        wt_run_both(1, "", save_body);
        now = partition_plan(which);
        wt_run_both(3, "", load_body);
    }
}

static const char *node_of(unsigned rank)
{
    return rank % 2 == 0 ? "NODE=a" : "NODE=b";
}

static void ranks_of_several_nodes_share_a_file(void **state)
{
    wt_job job = {.ranks = 3, .settings_of = node_of};

    (void)state;
    for (unsigned which = 0; which < PARTITIONS; which += 2) {
        now = partition_plan(which);
        if (which == 0) {
            now.shape[0] = 2001;
        }
        job.body = save_body;
        wt_run_job_both(&job);
        check_file(3);
        job.body = load_body;
        wt_run_job_both(&job);
    }
}

static void resized_body(weft_world *world)
{
    plan p = {.dims = 2, .shape = {1001, 5}, .type = WEFT_I64};
    weft_comm *comm = weft_world_comm(world);

    for (unsigned kind = 0; kind < 2; kind++) {
        weft_region *region;
        weft_region *other;

        p.options.partition =
            kind == 0 ? WEFT_PARTITION_EQUAL : WEFT_PARTITION_ROUND_ROBIN;
        p.options.max_rows = 9000;
        p.shape[0] = 1001;
        region = make(world, &p);
        WT_OK(weft_region_resize(region, 8000));
        WT_OK(weft_region_resize(region, 7007));
        wt_rows_fill(region, 3);
        WT_OK(weft_region_save(region, comm, wt_path("t.weft"), NULL));
        p.shape[0] = 7007;
        other = make(world, &p);
        WT_OK(weft_region_load(other, comm, wt_path("t.weft"), NULL));
        WT_OK(weft_barrier(comm));
        wt_rows_check(other, 0, 7007, 3);
        WT_OK(weft_barrier(comm));
        /* And back into what has grown in steps. */
        wt_rows_fill(other, 4);
        WT_OK(weft_region_save(other, comm, wt_path("t.weft"), NULL));
        WT_OK(weft_region_load(region, comm, wt_path("t.weft"), NULL));
        WT_OK(weft_barrier(comm));
        wt_rows_check(region, 0, 7007, 4);
        weft_region_destroy(region);
        weft_region_destroy(other);
    }
}

static void a_region_that_has_grown_is_saved_in_order(void **state)
{
    (void)state;
    wt_run_both(3, "", resized_body);
    wt_run_both(1, "", resized_body);
}

static void longer_body(weft_world *world)
{
    plan p = {.dims = 1, .shape = {50000}, .type = WEFT_F64};
    weft_comm *comm = weft_world_comm(world);

    for (unsigned kind = 0; kind < 3; kind += 2) {
        weft_region *small;
        weft_region *large;

        p.options.partition = (weft_partition)kind;
        p.shape[0] = 30001;
        small = make(world, &p);
        p.shape[0] = 50000;
        large = make(world, &p);
        wt_rows_fill(small, 5);
        wt_rows_fill(large, 6);
        WT_OK(weft_region_save(small, comm, wt_path("t.weft"), NULL));
        WT_OK(weft_region_load(large, comm, wt_path("t.weft"), NULL));
        WT_OK(weft_barrier(comm));
        wt_rows_check(large, 0, 30001, 5);
        wt_rows_check(large, 30001, 50000 - 30001, 6);
        weft_region_destroy(small);
        weft_region_destroy(large);
    }
}

static void a_longer_region_keeps_its_other_rows(void **state)
{
    (void)state;
    wt_run_both(1, "", longer_body);
    wt_run_both(4, "", longer_body);
}

/* --- options ------------------------------------------------------------- */

typedef struct progress {
    uint64_t calls;
    uint64_t done;
    uint64_t bytes;
} progress;

static void note_progress(void *ctx, uint64_t done, uint64_t bytes)
{
    progress *p = ctx;

    WT_CHECK(done >= p->done && done <= bytes);
    WT_CHECK(p->calls == 0 || p->bytes == bytes);
    *p = (progress){p->calls + 1, done, bytes};
}

static void options_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    plan p = {.dims = 2, .shape = {90001, 16}, .type = WEFT_F32};
    weft_region *region = make(world, &p);
    weft_region *other = make(world, &p);
    progress seen = {0};
    weft_region_part part;
    weft_file_options options = {.size = sizeof(options),
                                 .threads = 3,
                                 .direct = 1,
                                 .progress = note_progress,
                                 .progress_ctx = &seen};

    WT_OK(weft_region_part_of(region, weft_comm_rank(comm), 0, &part));
    wt_rows_fill(region, 7);
    WT_OK(weft_region_save(region, comm, wt_path("t.weft"), &options));
    WT_CHECK(seen.calls > 0 && seen.done == seen.bytes);
    WT_CHECK(seen.bytes == part.rows * 64);
    seen = (progress){0};
    WT_OK(weft_region_load(other, comm, wt_path("t.weft"), &options));
    WT_CHECK(seen.calls > 0 && seen.done == part.rows * 64);
    WT_OK(weft_barrier(comm));
    wt_rows_check(other, 0, p.shape[0], 7);
    WT_OK(weft_barrier(comm));
    options.no_verify = 1;
    seen = (progress){0};
    wt_rows_fill(other, 8);
    WT_OK(weft_region_load(other, comm, wt_path("t.weft"), &options));
    WT_OK(weft_barrier(comm));
    wt_rows_check(other, 0, p.shape[0], 7);
    weft_region_destroy(region);
    weft_region_destroy(other);
}

static void threads_and_direct_transfers_give_the_same(void **state)
{
    (void)state;
    wt_run_both(1, "", options_body);
    wt_run_both(3, "", options_body);
    assert_int_equal(weft_file_verify(wt_path("t.weft")), WEFT_OK);
}

/* --- GPU memory ---------------------------------------------------------- */

/* On the double of the driver, whose device memory the tests can look at. */
static void a_region_in_gpu_memory_is_saved_as_any_other(void **state)
{
    wf_double_options machine = {.tag = (uint32_t)getpid(), .granule = 4096};
    weft_region_options on_device = {.place = WEFT_CUDA, .device = -1};

    (void)state;
    wf_driver_use(wf_double_start(&machine));
    now = table;
    now.file.threads = 2;
    now.options = on_device;
    wt_run_both(3, "", save_body);
    check_file(3);
    wt_run_both(2, "", load_body);
    now.options = (weft_region_options){.size = 0};
    wt_run_both(2, "", load_body);
    wt_run_both(2, "", save_body);
    now.options = on_device;
    now.options.partition = WEFT_PARTITION_ROUND_ROBIN;
    now.options.row_pitch = 64;
    wt_run_both(3, "", load_body);
    wt_run_both(3, "", save_body);
    now.options = (weft_region_options){.size = 0};
    wt_run_both(1, "", load_body);
    wf_driver_use(NULL);
}

/* --- the file itself ----------------------------------------------------- */

static void the_file_can_be_mapped_as_the_tensor(void **state)
{
    weft_file_info info;
    const unsigned char *p;
    int fd;

    (void)state;
    now = partition_plan(1);
    wt_run_both(3, "", save_body);
    assert_int_equal(weft_file_describe(wt_path("t.weft"), &info), WEFT_OK);
    assert_int_equal(info.row_pitch, 48);
    fd = open(wt_path("t.weft"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    p = mmap(NULL, 48 * now.shape[0], PROT_READ, MAP_SHARED, fd,
             (off_t)info.data_at);
    assert_ptr_not_equal(p, MAP_FAILED);
    for (uint64_t row = 0; row < now.shape[0]; row++) {
        for (uint64_t c = 0; c < 48; c++) {
            assert_int_equal(p[row * 48 + c], wt_row_byte(1, row, c));
        }
    }
    munmap((void *)(uintptr_t)p, 48 * now.shape[0]);
    close(fd);
}

static void a_file_is_replaced_and_keeps_its_permissions(void **state)
{
    struct stat old;
    struct stat new;
    int fd;

    (void)state;
    now = table;
    wt_run_both(2, "", save_body);
    assert_int_equal(chmod(wt_path("t.weft"), 0600), 0);
    fd = open(wt_path("t.weft"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    now.shape[0] = 100;
    wt_run_both(2, "", save_body);
    assert_int_equal(stat(wt_path("t.weft"), &new), 0);
    assert_int_equal(fstat(fd, &old), 0);
    assert_int_equal(new.st_mode & 0777, 0600);
    assert_int_equal(new.st_nlink, 1);
    assert_int_equal(old.st_nlink, 0);
    assert_true(new.st_size < old.st_size);
    close(fd);
    wt_run_both(2, "", load_body);
    check_file(2);
}

static void what_a_link_names_is_replaced(void **state)
{
    struct stat st;

    (void)state;
    now = table;
    now.shape[0] = 123;
    assert_int_equal(symlink("t.weft", wt_path("link")), 0);
    target = "link";
    wt_run_both(2, "", save_body);
    target = "t.weft";
    assert_int_equal(lstat(wt_path("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(unlink(wt_path("link")), 0);
    wt_run_both(1, "", load_body);
    check_file(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_by_some_ranks_loads_on_others),
        cmocka_unit_test(all_types_and_shapes_come_back),
        cmocka_unit_test(a_file_does_not_depend_on_the_partition),
        cmocka_unit_test(ranks_of_several_nodes_share_a_file),
        cmocka_unit_test(a_region_that_has_grown_is_saved_in_order),
        cmocka_unit_test(a_longer_region_keeps_its_other_rows),
        cmocka_unit_test(threads_and_direct_transfers_give_the_same),
        cmocka_unit_test(a_region_in_gpu_memory_is_saved_as_any_other),
        cmocka_unit_test(the_file_can_be_mapped_as_the_tensor),
        cmocka_unit_test(a_file_is_replaced_and_keeps_its_permissions),
        cmocka_unit_test(what_a_link_names_is_replaced),
    };

    return cmocka_run_group_tests(tests, wt_folder_make, wt_folder_remove);
}
