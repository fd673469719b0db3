/* SPDX-License-Identifier: Apache-2.0 */
/* Regions in CUDA memory, on the double of the driver: the whole protocol
 * between processes, with one device and with two. What a kernel would do is
 * done by hand, since the double's device memory is host memory. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_double/double.h"
#include "wt.h"
#include "wt_cmocka.h"

#define GRANULE 4096u

/* What the bodies are to do; set before the ranks are forked. */
static weft_region_options options;
static uint64_t shape[2];

static void begin(wf_double_options machine)
{
    machine.tag = (uint32_t)getpid();
    machine.granule = GRANULE;
    wf_driver_use(wf_double_start(&machine));
    options = (weft_region_options){
        .size = sizeof(options), .place = WEFT_CUDA, .device = -1};
    shape[0] = 1001;
    shape[1] = 7;
}

/* When all ranks are here, none of this process's holds anything. */
static void expect_nothing_held(void)
{
    wf_double_counts c;

    wt_meet();
    c = wf_double_count();
    WT_CHECK(c.contexts == 0 && c.handles == 0 && c.ranges == 0);
    WT_CHECK(c.mappings == 0 && c.registered == 0 && c.depth == 0);
    wt_meet();
}

static weft_region *create(weft_world *world)
{
    weft_region *region = NULL;

    WT_OK(weft_region_create(weft_world_comm(world), 2, shape, WEFT_I32,
                             &options, &region));
    return region;
}

static int32_t value_at(uint64_t row, uint64_t column, int32_t salt)
{
    return (int32_t)(row * 31 + column) ^ salt;
}

/* Rows of storage; of round-robin regions their number in it. */
static void fill_own(const weft_region *region, int32_t salt)
{
    uint32_t rank = wt_rank();
    weft_region_part part;

    for (uint32_t i = 0; i < weft_region_parts(region, rank); i++) {
        WT_OK(weft_region_part_of(region, rank, i, &part));
        for (uint64_t r = 0; r < part.rows; r++) {
            int32_t *row = (int32_t *)part.at + r * shape[1];

            for (uint64_t c = 0; c < shape[1]; c++) {
                row[c] = value_at(r + part.row, c, salt + (int32_t)rank);
            }
        }
    }
}

static void check_all(const weft_region *region, int32_t salt)
{
    weft_region_part part;

    for (uint32_t rank = 0; rank < wt_ranks(); rank++) {
        for (uint32_t i = 0; i < weft_region_parts(region, rank); i++) {
            WT_OK(weft_region_part_of(region, rank, i, &part));
            for (uint64_t n = 0; n < part.rows * shape[1]; n++) {
                WT_CHECK(((int32_t *)part.at)[n] ==
                         value_at(n / shape[1] + part.row, n % shape[1],
                                  salt + (int32_t)rank));
            }
        }
    }
}

static void check_zero(const weft_region *region, uint64_t from, uint64_t rows)
{
    const int32_t *base = weft_region_base(region);

    for (uint64_t i = from * shape[1]; i < (from + rows) * shape[1]; i++) {
        WT_CHECK(base[i] == 0);
    }
}

/* --- creation ------------------------------------------------------------ */

static void share_body(weft_world *world)
{
    weft_region *region = create(world);
    weft_region_info info;

    weft_region_describe(region, &info);
    WT_CHECK(info.place == WEFT_CUDA && info.page == GRANULE);
    WT_CHECK(info.reach == WEFT_REACH_MAPPED);
    if (info.flat) {
        check_zero(region, 0, shape[0]);
    }
    WT_OK(weft_region_barrier(region, 30));
    fill_own(region, 5);
    WT_OK(weft_region_barrier(region, 30));
    check_all(region, 5);
    WT_OK(weft_region_barrier(region, 30));
    weft_region_destroy(region);
    expect_nothing_held();
}

static void every_rank_sees_all_parts(void **state)
{
    static const unsigned ranks[] = {1, 2, 3, 5, 8};
    static const uint64_t rows[] = {0, 1, 7, 1001};

    (void)state;
    for (size_t i = 0; i < 5; i++) {
        for (size_t j = wt_full() ? 0 : 2; j < 4; j++) {
            begin((wf_double_options){0});
            shape[0] = rows[j];
            wt_run_both(ranks[i], NULL, share_body);
        }
    }
}

static void parts_are_given_dealt_or_aligned(void **state)
{
    static const uint64_t given[] = {300, 0, 701};

    (void)state;
    begin((wf_double_options){0});
    options.partition = WEFT_PARTITION_GIVEN;
    options.part_rows = given;
    wt_run_both(3, NULL, share_body);
    options.partition = WEFT_PARTITION_ROUND_ROBIN;
    options.run = 10;
    wt_run_both(3, NULL, share_body);
    options.partition = WEFT_PARTITION_EQUAL;
    options.aligned = 1;
    wt_run_both(3, NULL, share_body);
}

static void nothing_at_all_is_a_region_too(void **state)
{
    (void)state;
    begin((wf_double_options){0});
    shape[0] = 0;
    wt_run_both(3, NULL, share_body);
}

/* --- growth -------------------------------------------------------------- */

static void resize_body(weft_world *world)
{
    weft_region *region = create(world);
    void *base = weft_region_base(region);

    fill_own(region, 1);
    WT_OK(weft_region_barrier(region, 30));
    WT_OK(weft_region_resize(region, 5000));
    WT_CHECK(weft_region_base(region) == base);
    check_zero(region, 1001, 3999);
    WT_OK(weft_region_barrier(region, 30));
    fill_own(region, 2);
    WT_OK(weft_region_barrier(region, 30));
    check_all(region, 2);
    WT_OK(weft_region_barrier(region, 30));
    WT_OK(weft_region_resize(region, 500));
    WT_OK(weft_region_resize(region, 9000));
    check_zero(region, 500, 8500);
    WT_STATUS(weft_region_resize(region, 9001), WEFT_ERR_INVALID);
    weft_region_destroy(region);
    expect_nothing_held();
}

static void a_region_grows_and_shrinks_in_place(void **state)
{
    static const unsigned ranks[] = {1, 2, 3, 5};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        begin((wf_double_options){0});
        options.max_rows = 9000;
        wt_run_both(ranks[i], NULL, resize_body);
    }
}

/* --- views --------------------------------------------------------------- */

static bool write_faults(volatile char *at)
{
    struct rlimit no_core = {0, 0};
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGSEGV, SIG_DFL);
        *at = 1;
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status);
}

static void view_body(weft_world *world)
{
    weft_region *region = create(world);
    void *view = NULL;

    fill_own(region, 3);
    WT_OK(weft_region_view_readonly(region, &view));
    WT_OK(weft_region_barrier(region, 30));
    WT_CHECK(memcmp(view, weft_region_base(region),
                    shape[0] * shape[1] * sizeof(int32_t)) == 0);
    WT_CHECK(write_faults(view));
    WT_CHECK(!write_faults(weft_region_base(region)));
    WT_OK(weft_region_barrier(region, 30));
    if (wt_rank() % 2 == 0) {
        weft_region_unview(region, view);
    }
    weft_region_destroy(region);
    expect_nothing_held();
}

static void a_view_cannot_be_written_to(void **state)
{
    (void)state;
    begin((wf_double_options){0});
    wt_run(3, NULL, view_body);
}

/* --- several devices ----------------------------------------------------- */

static void devices_body(weft_world *world)
{
    weft_region *region;
    weft_region_info info;
    const char *base;
    int own = (int)(wt_rank() % 2);

    region = create(world);
    base = weft_region_base(region);
    weft_region_describe(region, &info);
    WT_CHECK(info.device == own);
    WT_CHECK(wf_double_access(base, own) == WF_CU_READWRITE);
    WT_CHECK(wf_double_access(base, 1 - own) == 0);
    WT_CHECK(weft_region_base_on(region, own) == base);
    WT_CHECK(wf_double_access(base, 1 - own) == 0);
    WT_CHECK(weft_region_base_on(region, 1 - own) == base);
    WT_CHECK(wf_double_access(base, 1 - own) == WF_CU_READWRITE);
    WT_CHECK(weft_region_base_on(region, 2) == NULL);
    WT_CHECK(strstr(weft_error_detail(), "CUDA device 2") != NULL);
    WT_OK(weft_region_resize(region, 4000));
    WT_CHECK(wf_double_access(base + 3999 * shape[1] * 4, 1 - own) ==
             WF_CU_READWRITE);
    fill_own(region, 4);
    WT_OK(weft_region_barrier(region, 30));
    check_all(region, 4);
    WT_OK(weft_region_barrier(region, 30));
    weft_region_destroy(region);
    expect_nothing_held();
}

static void a_view_from_another_device_is_really_granted(void **state)
{
    (void)state;
    begin((wf_double_options){.devices = 2});
    options.max_rows = 4000;
    wt_run_both(2, NULL, devices_body);
    wt_run_both(3, NULL, devices_body);
}

static void no_peers_body(weft_world *world)
{
    weft_region *region = NULL;

    WT_STATUS(weft_region_create(weft_world_comm(world), 2, shape, WEFT_I32,
                                 &options, &region),
              WEFT_ERR_UNSUPPORTED);
    WT_CHECK(strstr(weft_error_detail(), "no peer access") != NULL);
    expect_nothing_held();
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void devices_without_peer_access_are_told_of_on_all_ranks(void **state)
{
    (void)state;
    begin((wf_double_options){.devices = 2, .no_peers = true});
    wt_run_both(2, NULL, no_peers_body);
    wt_run_both(5, NULL, no_peers_body);
}

/* --- no room, no driver -------------------------------------------------- */

static void too_big_body(weft_world *world)
{
    weft_region *region = NULL;

    WT_STATUS(weft_region_create(weft_world_comm(world), 2, shape, WEFT_I32,
                                 &options, &region),
              WEFT_ERR_NOMEM);
    WT_CHECK(strstr(weft_error_detail(), "MiB") != NULL);
    expect_nothing_held();
    shape[0] = 1001;
    share_body(world);
}

static void too_big_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    begin((wf_double_options){.bytes = 4u << 20});
    shape[0] = 400000; /* 11 MB */
    wt_run(1, NULL, too_big_body);
    wt_run(3, NULL, too_big_body);
}

static void growth_body(weft_world *world)
{
    weft_region *region = create(world);

    fill_own(region, 6);
    WT_OK(weft_region_barrier(region, 30));
    WT_STATUS(weft_region_resize(region, 400000), WEFT_ERR_NOMEM);
    check_all(region, 6);
    WT_OK(weft_region_resize(region, 2000));
    check_zero(region, 1001, 999);
    WT_OK(weft_region_barrier(region, 30));
    weft_region_destroy(region);
    expect_nothing_held();
}

static void growth_that_does_not_fit_changes_nothing(void **state)
{
    (void)state;
    begin((wf_double_options){.bytes = 4u << 20});
    options.max_rows = 400000;
    wt_run(3, NULL, growth_body);
}

static void no_driver_body(weft_world *world)
{
    const wf_driver *driver = NULL;
    weft_region *region = NULL;

    if (wf_driver_open("auto", &driver) == WEFT_OK) {
        WT_SKIP("there is a CUDA driver here");
    }
    WT_STATUS(weft_region_create(weft_world_comm(world), 2, shape, WEFT_I32,
                                 &options, &region),
              WEFT_ERR_UNSUPPORTED);
    WT_CHECK(strstr(weft_error_detail(), "CUDA driver") != NULL);
    options.place = WEFT_HOST;
    region = create(world);
    WT_CHECK(weft_region_base_on(region, 0) == NULL);
    WT_CHECK(strstr(weft_error_detail(), "CUDA driver") != NULL);
    fill_own(region, 7);
    WT_OK(weft_region_barrier(region, 30));
    check_all(region, 7);
    weft_region_destroy(region);
}

static void a_machine_without_a_gpu_has_all_else(void **state)
{
    (void)state;
    begin((wf_double_options){0});
    wf_driver_use(NULL);
    wt_run(2, NULL, no_driver_body);
}

/* As Python and the command line choose it. */
static void the_setting_chooses_the_double(void **state)
{
    (void)state;
    begin((wf_double_options){0});
    wf_driver_use(NULL);
    setenv("CUDA_DOUBLE", "2:0:4096", 1);
    wt_run(3, "CUDA_DRIVER=" WT_CUDA_DOUBLE, share_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_sees_all_parts),
        cmocka_unit_test(parts_are_given_dealt_or_aligned),
        cmocka_unit_test(nothing_at_all_is_a_region_too),
        cmocka_unit_test(a_region_grows_and_shrinks_in_place),
        cmocka_unit_test(a_view_cannot_be_written_to),
        cmocka_unit_test(a_view_from_another_device_is_really_granted),
        cmocka_unit_test(devices_without_peer_access_are_told_of_on_all_ranks),
        cmocka_unit_test(too_big_is_an_error_on_all_ranks),
        cmocka_unit_test(growth_that_does_not_fit_changes_nothing),
        cmocka_unit_test(a_machine_without_a_gpu_has_all_else),
        cmocka_unit_test(the_setting_chooses_the_double),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
