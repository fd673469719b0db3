/* SPDX-License-Identifier: Apache-2.0 */
/* Regions in CUDA memory when something goes wrong, on the double: any call of
 * the driver fails, or a rank is killed in it. All ranks are told, and the
 * memory comes back, as a third process sees it. */
#include <string.h>
#include <unistd.h>

#include "cuda_double/double.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_fault.h"
#include "wt_proc.h"

#define GRANULE 4096u
#define ROWS 20000u /* of 4 bytes: some granules for each rank */

static const weft_region_options options = {
    .size = sizeof(options), .place = WEFT_CUDA, .max_rows = 4 * ROWS};
static uint32_t tag;
static unsigned strike_at;

static void begin(void)
{
    wf_double_options machine = {.granule = GRANULE};

    machine.tag = tag = (uint32_t)getpid();
    wf_driver_use(wf_double_start(&machine));
}

static weft_status create(weft_comm *comm, weft_region **out)
{
    uint64_t rows = ROWS;

    return weft_region_create(comm, 1, &rows, WEFT_I32, &options, out);
}

static void expect_nothing_held(void)
{
    wf_double_counts c = wf_double_count();

    WT_CHECK(c.contexts == 0 && c.handles == 0 && c.ranges == 0);
    WT_CHECK(c.mappings == 0 && c.depth == 0);
}

static void fill_own(const weft_region *region)
{
    weft_region_part part;

    WT_OK(weft_region_part_of(region, wt_rank(), 0, &part));
    for (uint64_t i = 0; i < part.rows; i++) {
        ((int32_t *)part.at)[i] = (int32_t)(part.row + i);
    }
}

static void check_all(const weft_region *region)
{
    const int32_t *base = weft_region_base(region);

    for (int32_t i = 0; i < (int32_t)ROWS; i++) {
        WT_CHECK(base[i] == i);
    }
}

/* --- a call fails -------------------------------------------------------- */

/* A failure in the rank whose turn it is; true once its calls are used up. */
static bool fail_creation(weft_comm *comm, unsigned nth)
{
    uint32_t victim = nth % wt_ranks();
    weft_region *region = NULL;
    int32_t left = 0;
    weft_status st;

    if (wt_rank() == victim) {
        wf_double_fail_nth(1 + nth / wt_ranks(), WF_CU_NO_MEMORY);
    }
    st = create(comm, &region);
    if (wt_rank() == victim) {
        left = (int32_t)wf_double_fail_nth(0, 0);
    }
    WT_CHECK((st == WEFT_OK) == (region != NULL));
    WT_CHECK(st == WEFT_OK || st == WEFT_ERR_NOMEM);
    if (st != WEFT_OK) {
        WT_CHECK(wt_names_rank(weft_error_detail(), victim) ||
                 wt_rank() == victim);
        expect_nothing_held();
    }
    weft_region_destroy(region);
    WT_OK(weft_broadcast(comm, &left, 1, WEFT_I32, victim));
    WT_CHECK((left > 0) == (st == WEFT_OK));
    return left > 0;
}

static void creation_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = NULL;
    unsigned fds = 0;
    unsigned nth = 0;

    /* The first one warms up what stays for good. */
    WT_OK(create(comm, &region));
    weft_region_destroy(region);
    WT_OK(weft_barrier(comm));
    fds = wt_count_fds();
    while (!fail_creation(comm, nth)) {
        nth++;
    }
    WT_CHECK(nth >= 10 * wt_ranks());
    WT_OK(create(comm, &region));
    fill_own(region);
    WT_OK(weft_region_barrier(region, 30));
    check_all(region);
    WT_OK(weft_region_barrier(region, 30));
    weft_region_destroy(region);
    expect_nothing_held();
    WT_OK(weft_barrier(comm));
    WT_CHECK(wt_count_fds() == fds);
}

static void any_failed_call_fails_the_creation_on_all_ranks(void **state)
{
    static const unsigned ranks[] = {1, 2, 3, 5};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        begin();
        wt_run(ranks[i], NULL, creation_body);
        assert_int_equal(wf_double_used(tag, 0), 0);
    }
}

static bool fail_growth(weft_comm *comm, weft_region *region, unsigned nth)
{
    uint32_t victim = nth % wt_ranks();
    wf_double_counts before = wf_double_count();
    wf_double_counts after;
    int32_t left = 0;
    weft_status st;

    if (wt_rank() == victim) {
        wf_double_fail_nth(1 + nth / wt_ranks(), WF_CU_NO_MEMORY);
    }
    st = weft_region_resize(region, 3 * ROWS);
    if (wt_rank() == victim) {
        left = (int32_t)wf_double_fail_nth(0, 0);
    }
    WT_CHECK(st == WEFT_OK || st == WEFT_ERR_NOMEM);
    if (st != WEFT_OK) {
        after = wf_double_count();
        WT_CHECK(memcmp(&before, &after, sizeof(after)) == 0);
        check_all(region);
    }
    WT_OK(weft_broadcast(comm, &left, 1, WEFT_I32, victim));
    WT_CHECK((left > 0) == (st == WEFT_OK));
    return left > 0;
}

static void growth_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = NULL;
    unsigned nth = 0;

    WT_OK(create(comm, &region));
    fill_own(region);
    WT_OK(weft_region_barrier(region, 30));
    while (!fail_growth(comm, region, nth)) {
        nth++;
    }
    WT_CHECK(nth >= 5 * wt_ranks());
    check_all(region);
    WT_OK(weft_region_barrier(region, 30));
    weft_region_destroy(region);
    expect_nothing_held();
}

static void any_failed_call_leaves_the_region_as_it_was(void **state)
{
    (void)state;
    begin();
    wt_run(1, NULL, growth_body);
    wt_run(3, NULL, growth_body);
    assert_int_equal(wf_double_used(tag, 0), 0);
}

/* --- a rank is killed ---------------------------------------------------- */

static void owner_killed_body(weft_world *world)
{
    weft_region *region = NULL;
    uint64_t held = ((uint64_t)ROWS * 4 + GRANULE - 1) / GRANULE * GRANULE;

    WT_OK(create(weft_world_comm(world), &region));
    fill_own(region);
    WT_OK(weft_region_barrier(region, 30));
    if (wt_rank() == 1) {
        wt_strike(WT_BLOW_KILL);
    }
    wt_await_gone(1);
    check_all(region);
    WT_CHECK(wf_double_used(tag, 0) == held);
    wt_word_add(0, 1);
    wt_word_await(0, wt_ranks() - 1);
    weft_region_destroy(region);
    expect_nothing_held();
}

static void what_a_killed_rank_had_stays_until_the_last_lets_go(void **state)
{
    static const unsigned ranks[] = {2, 3, 5};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        begin();
        wt_run_job(&(wt_job){
            .ranks = ranks[i], .body = owner_killed_body, .doomed = 1u << 1});
        assert_int_equal(wf_double_used(tag, 0), 0);
    }
}

static void killed_in_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = NULL;
    weft_status st;

    if (wt_rank() == 1) {
        wf_double_fail_nth(strike_at, WF_DOUBLE_KILL);
    }
    st = create(comm, &region);
    if (wt_rank() == 1) {
        wt_strike(WT_BLOW_KILL);
    }
    if (st != WEFT_OK) {
        WT_CHECK(st == WEFT_ERR_PEER && region == NULL);
        WT_CHECK(wt_names_rank(weft_error_detail(), 1));
    } else {
        fill_own(region);
        weft_region_destroy(region);
    }
    expect_nothing_held();
}

static void a_rank_killed_in_any_call_leaves_nothing(void **state)
{
    (void)state;
    for (strike_at = 1; strike_at <= 16; strike_at += wt_full() ? 1 : 2) {
        begin();
        wt_run_job(
            &(wt_job){.ranks = 3, .body = killed_in_body, .doomed = 1u << 1});
        assert_int_equal(wf_double_used(tag, 0), 0);
    }
}

/* --- over and over ------------------------------------------------------- */

static void cycles_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned before = 0;

    for (unsigned i = 0; i < 40; i++) {
        weft_region *region = NULL;
        void *view = NULL;

        WT_OK(create(comm, &region));
        WT_OK(weft_region_view_readonly(region, &view));
        WT_OK(weft_region_resize(region, 2 * ROWS));
        if ((i + wt_rank()) % 2 == 0) {
            weft_region_unview(region, view);
        }
        weft_region_destroy(region);
        expect_nothing_held();
        WT_OK(weft_barrier(comm));
        if (i == 10) {
            before = wt_count_fds();
        }
    }
    WT_CHECK(wt_count_fds() == before);
}

static void regions_leave_nothing_in_the_process(void **state)
{
    (void)state;
    begin();
    wt_run(3, NULL, cycles_body);
    assert_int_equal(wf_double_used(tag, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_failed_call_fails_the_creation_on_all_ranks),
        cmocka_unit_test(any_failed_call_leaves_the_region_as_it_was),
        cmocka_unit_test(what_a_killed_rank_had_stays_until_the_last_lets_go),
        cmocka_unit_test(a_rank_killed_in_any_call_leaves_nothing),
        cmocka_unit_test(regions_leave_nothing_in_the_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
