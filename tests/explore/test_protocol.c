/* SPDX-License-Identifier: Apache-2.0 */
/* All histories of many small plans, and what must hold in each of them. */
#include "plans.h"
#include "wt.h"
#include "wt_cmocka.h"

/* Sanitizers make it ten times slower. */
#if WT_TSAN || WT_ASAN
enum { LENGTH = 3, SMALL = 1 };
#else
enum { LENGTH = 4, SMALL = 0 };
#endif

#define N(list) (sizeof(list) / sizeof((list)[0]))

static void all_histories_of_short_programs_are_right(void **state)
{
    walk_stats stats = {0};

    (void)state;
    assert_true(
        plans_all("012", &(chosen){.techniques = "012", .rounds = 1, .room = 2},
                  LENGTH, &stats));
    plans_print("short programs", &stats);
    assert_true(stats.cut == 0);
    for (wf_happened what = WF_MOVED_IN; what <= WF_FORWARDED; what++) {
        assert_true(stats.happened[what] > 0);
    }
}

static void copies_of_several_hosts_converge_and_end(void **state)
{
    static const chosen list[] = {
        {.text = "0:IU 1:IUPE", .techniques = "012", .rounds = 2, .room = 2},
        {.text = "0:I 1:IU 2:IP", .techniques = "012", .rounds = 2, .room = 2},
        {.text = "1:IE 2:IUE", .techniques = "012", .rounds = 2, .room = 2},
        {.text = "0:I 1:ISU 2:S", .techniques = "01", .rounds = 1, .room = 2},
    };
    walk_stats stats = {0};

    (void)state;
    assert_true(plans_chosen(list, SMALL ? 1 : N(list), &stats));
    plans_print("copies", &stats);
    assert_true(stats.happened[WF_EXPIRED] > 0);
}

static void workers_of_one_host_share_its_copy(void **state)
{
    static const chosen list[] = {
        {.text = "0:I 1:IUP 1:US", .techniques = "012", .rounds = 1, .room = 2},
        {.text = "0:S 1:IP 1:UP", .techniques = "012", .rounds = 2, .room = 2},
        {.text = "0:I 1:LE 1:LU", .techniques = "012", .rounds = 2, .room = 2},
        {.text = "0:I 1:ISEP 1:I", .techniques = "01", .rounds = 1, .room = 2},
    };
    walk_stats stats = {0};

    (void)state;
    assert_true(
        plans_all("011", &(chosen){.techniques = "012", .rounds = 1, .room = 2},
                  LENGTH - 1, &stats));
    assert_true(plans_chosen(list, SMALL ? 1 : N(list), &stats));
    plans_print("workers of one host", &stats);
}

static void a_host_without_room_goes_on_by_messages(void **state)
{
    static const chosen list[] = {
        {.text = "0:U 1:IUPE", .techniques = "012", .rounds = 2, .room = 0},
        {.text = "0:I 1:LU", .techniques = "012", .rounds = 1, .room = 0},
        {.text = "2:IiUuE", .techniques = "012", .rounds = 2, .room = 1},
        {.text = "0:I 2:IiUu", .techniques = "012", .rounds = 1, .room = 1},
    };
    walk_stats stats = {0};

    (void)state;
    assert_true(plans_chosen(list, N(list), &stats));
    plans_print("without room", &stats);
    assert_true(stats.happened[WF_REFUSED] > 0);
}

static void two_keys_cross_on_their_ways(void **state)
{
    static const chosen list[] = {
        {.text = "0:iU 1:Iu", .techniques = "012", .rounds = 1, .room = 2},
        {.text = "1:IUu 2:iu", .techniques = "012", .rounds = 1, .room = 2},
        {.text = "0:i 1:I 2:Uu", .techniques = "012", .rounds = 1, .room = 2},
    };
    walk_stats stats = {0};

    (void)state;
    assert_true(plans_chosen(list, SMALL ? 1 : N(list), &stats));
    plans_print("two keys", &stats);
}

static void steps_of_an_optimizer_are_taken_at_the_owner(void **state)
{
    static const chosen list[] = {
        {"0:I 1:IUUP", "012", 1, 0, 0, 2, true, 0},
        {"0:I 1:IUP 1:UP", "012", 1, 0, 0, 2, true, 0},
        {"0:U 1:IUE 2:IP", "012", 1, 0, 0, 2, true, 0},
    };
    walk_stats stats = {0};

    (void)state;
    assert_true(plans_chosen(list, SMALL ? 1 : N(list), &stats));
    plans_print("optimizer", &stats);
}

/* Epochs are compared as serial numbers of 16 bits: a host that has not heard
 * of so many moves takes what it knows for later than what it hears. */
static void
hosts_that_missed_more_moves_than_epochs_tell_apart_go_on(void **state)
{
    static const chosen list[] = {
        {"0:U 1:IUPE 2:IU", "02", 1, 0, 0, 2, false, 0x8000},
        {"0:I 1:LU 2:P", "012", 1, 0, 0, 2, false, 0xfff0},
        {"1:I 2:P", "02", 1, 1, 0, 2, false, 0x9000},
    };
    walk_stats stats = {0};

    (void)state;
    assert_true(plans_all(
        "012",
        &(chosen){.techniques = "012", .rounds = 2, .room = 2, .moves = 0x9000},
        SMALL ? 2 : 3, &stats));
    assert_true(plans_chosen(list, SMALL ? 1 : N(list), &stats));
    plans_print("epochs that have wrapped", &stats);
    assert_true(stats.happened[WF_MOVED_IN] > 0);
}

static void what_a_dead_server_leaves_is_taken_over(void **state)
{
    static const chosen list[] = {
        {"0:I 1:IU", "1", 1, 1, 0, 2, false, 0},
        {"2:IEi", "0", 2, 1, 0, 1, false, 0},
        {"0:I 1:IS", "1", 1, 1, 0, 2, false, 0},
        {"1:IUE", "01", 1, 1, 0, 2, false, 0},
        {"1:I 2:I", "0", 1, 1, 0, 2, false, 0},
    };
    walk_stats stats = {0};

    (void)state;
    assert_true(plans_all(
        "012",
        &(chosen){.techniques = "012", .rounds = 1, .deaths = 1, .room = 2},
        SMALL ? 1 : 2, &stats));
    assert_true(plans_chosen(list, SMALL ? 2 : N(list), &stats));
    plans_print("a server dies", &stats);
    assert_true(stats.happened[WF_LOST] > 0);
    assert_true(stats.happened[WF_MOVED_IN] > 0);
}

static void a_key_outlives_a_host_that_does_not_own_it(void **state)
{
    static const chosen list[] = {
        {"0:I 1:IU", "012", 1, 0, 1, 2, false, 0},
        {"1:IU 2:U", "012", 1, 0, 1, 2, false, 0},
        {"1:I 2:I", "012", 1, 0, 1, 2, false, 0},
        {"1:L 2:P", "02", 1, 0, 1, 2, false, 0},
    };
    walk_stats stats = {0};

    (void)state;
    assert_true(plans_all(
        "012",
        &(chosen){
            .techniques = "012", .rounds = 1, .host_deaths = 1, .room = 2},
        2, &stats));
    assert_true(plans_chosen(list, SMALL ? 0 : N(list), &stats));
    plans_print("a host dies", &stats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_histories_of_short_programs_are_right),
        cmocka_unit_test(copies_of_several_hosts_converge_and_end),
        cmocka_unit_test(workers_of_one_host_share_its_copy),
        cmocka_unit_test(a_host_without_room_goes_on_by_messages),
        cmocka_unit_test(two_keys_cross_on_their_ways),
        cmocka_unit_test(steps_of_an_optimizer_are_taken_at_the_owner),
        cmocka_unit_test(
            hosts_that_missed_more_moves_than_epochs_tell_apart_go_on),
        cmocka_unit_test(what_a_dead_server_leaves_is_taken_over),
        cmocka_unit_test(a_key_outlives_a_host_that_does_not_own_it),
    };

    return cmocka_run_group_tests_name("protocol", tests, NULL, NULL);
}
