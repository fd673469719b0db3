/* SPDX-License-Identifier: Apache-2.0 */
/* The rank's side of a pool, by its rules (window.h). */
#include "agg/window.h"

#include "wt_cmocka.h"

enum { SLOTS = 8, US = 1000, MS = 1000000 };

static wf_agg_window_chunk entries[64];
static wf_agg_window w;

static void start(uint32_t limit, uint64_t chunks)
{
    const wf_agg_window_config config = {.slots = SLOTS,
                                         .limit = limit,
                                         .least_ns = 100 * US,
                                         .most_ns = 10 * MS,
                                         .patience_ns = 100 * MS};

    wf_agg_window_init(&w, &config, entries);
    wf_agg_window_call(&w, chunks, 0);
}

static void assert_sends(uint64_t now, uint64_t chunk, bool again)
{
    uint64_t got;
    bool is_again;

    assert_true(wf_agg_window_send(&w, now, &got, &is_again));
    assert_int_equal(got, chunk);
    assert_int_equal(is_again, again);
}

static void assert_silent(uint64_t now)
{
    uint64_t got;
    bool again;

    assert_false(wf_agg_window_send(&w, now, &got, &again));
}

static void send_new(uint64_t now, uint64_t from, uint64_t until)
{
    for (uint64_t c = from; c < until; c++) {
        assert_sends(now, c, false);
    }
}

static void a_result_makes_room_for_the_chunk_of_its_slot(void **state)
{
    (void)state;
    start(SLOTS, 20);
    send_new(0, 0, SLOTS);
    assert_silent(0);
    assert_int_equal(wf_agg_window_result(&w, 0, 50 * US), WF_AGG_WINDOW_NEW);
    assert_sends(50 * US, SLOTS, false);
    assert_silent(50 * US);
    /* Chunk 2 is over, but chunk 9 must wait for chunk 1. */
    assert_int_equal(wf_agg_window_result(&w, 2, 51 * US), WF_AGG_WINDOW_NEW);
    assert_silent(51 * US);
    assert_int_equal(wf_agg_window_result(&w, 1, 52 * US), WF_AGG_WINDOW_NEW);
    assert_sends(52 * US, SLOTS + 1, false);
    assert_sends(52 * US, SLOTS + 2, false);
    assert_silent(52 * US);
}

static void a_result_is_new_once(void **state)
{
    (void)state;
    start(SLOTS, 3);
    assert_int_equal(wf_agg_window_result(&w, 0, 0), WF_AGG_WINDOW_STRANGE);
    send_new(0, 0, 3);
    assert_int_equal(wf_agg_window_result(&w, 1, 1), WF_AGG_WINDOW_NEW);
    assert_int_equal(wf_agg_window_result(&w, 1, 2), WF_AGG_WINDOW_OLD);
    assert_int_equal(wf_agg_window_result(&w, 0, 3), WF_AGG_WINDOW_NEW);
    assert_int_equal(wf_agg_window_result(&w, 3, 3), WF_AGG_WINDOW_STRANGE);
    assert_false(wf_agg_window_is_over(&w));
    assert_int_equal(wf_agg_window_result(&w, 2, 4), WF_AGG_WINDOW_NEW);
    assert_true(wf_agg_window_is_over(&w));
    assert_true(wf_agg_window_due(&w) == UINT64_MAX);
}

static void calls_are_numbered_on(void **state)
{
    (void)state;
    start(SLOTS, 3);
    send_new(0, 0, 3);
    for (uint64_t c = 0; c < 3; c++) {
        wf_agg_window_result(&w, c, 1);
    }
    wf_agg_window_call(&w, 2, 10);
    assert_int_equal(w.begin, 3);
    send_new(10, 3, 5);
    assert_silent(10);
    assert_int_equal(wf_agg_window_result(&w, 2, 11), WF_AGG_WINDOW_OLD);
    assert_int_equal(wf_agg_window_result(&w, 4, 11), WF_AGG_WINDOW_NEW);
    wf_agg_window_call(&w, 0, 12);
    assert_true(wf_agg_window_is_over(&w));
}

static void a_gap_is_filled_before_the_timeout(void **state)
{
    (void)state;
    start(SLOTS, 8);
    send_new(0, 0, 8);
    wf_agg_window_result(&w, 1, 10 * US);
    wf_agg_window_result(&w, 2, 11 * US);
    assert_silent(11 * US);
    wf_agg_window_result(&w, 3, 12 * US);
    assert_sends(12 * US, 0, true);
    /* Once, until others that were sent after it come. */
    wf_agg_window_result(&w, 4, 13 * US);
    wf_agg_window_result(&w, 5, 14 * US);
    wf_agg_window_result(&w, 6, 15 * US);
    wf_agg_window_result(&w, 7, 16 * US);
    assert_silent(16 * US);
    assert_int_equal(w.resent, 1);
    assert_int_equal(w.timeouts, 0);
}

static void the_timeout_follows_the_round_trips(void **state)
{
    (void)state;
    start(1, 1000);
    assert_int_equal(wf_agg_window_timeout(&w), 800 * US);
    for (uint64_t c = 0, now = 0; c < 200; c++, now += MS) {
        assert_sends(now, c, false);
        wf_agg_window_result(&w, c, now + 300 * US);
    }
    assert_true(wf_agg_window_timeout(&w) > 290 * US);
    assert_true(wf_agg_window_timeout(&w) < 330 * US);
    for (uint64_t c = 200, now = 300 * MS; c < 400; c++, now += MS) {
        assert_sends(now, c, false);
        wf_agg_window_result(&w, c, now + (c % 2 == 0 ? 200 : 400) * US);
    }
    assert_true(wf_agg_window_timeout(&w) > 600 * US);
    assert_true(wf_agg_window_timeout(&w) < 900 * US);
}

static void timeouts_double_until_there_is_a_new_result(void **state)
{
    (void)state;
    start(2, 3);
    send_new(0, 0, 2);
    assert_int_equal(wf_agg_window_due(&w), 800 * US);
    assert_silent(800 * US - 1);
    assert_sends(800 * US, 0, true);
    assert_silent(800 * US);
    assert_int_equal(wf_agg_window_due(&w), 2400 * US);
    assert_sends(2400 * US, 0, true);
    assert_silent(2400 * US);
    assert_int_equal(wf_agg_window_due(&w), 5600 * US);
    assert_int_equal(w.timeouts, 2);
    wf_agg_window_result(&w, 0, 3 * MS);
    assert_int_equal(wf_agg_window_due(&w), 3 * MS + 800 * US);
}

/* The upper bound holds, and so does the patience. */
static void a_silent_switch_is_given_up(void **state)
{
    uint64_t now = 0;
    uint64_t chunk;
    bool again;

    (void)state;
    start(1, 1);
    while (!wf_agg_window_gives_up(&w, now)) {
        uint64_t due;

        while (wf_agg_window_send(&w, now, &chunk, &again)) {
        }
        due = wf_agg_window_due(&w);
        assert_true(due > now && due <= now + 10 * MS);
        now = due;
    }
    assert_int_equal(now, 100 * MS);
    assert_true(w.resent >= 10);
    assert_true(wf_agg_window_due(&w) == UINT64_MAX);
    wf_agg_window_result(&w, 0, now);
    assert_true(wf_agg_window_gives_up(&w, now));
}

static void a_rank_that_has_not_asked_does_not_give_up(void **state)
{
    (void)state;
    start(1, 1);
    send_new(0, 0, 1);
    assert_false(wf_agg_window_gives_up(&w, 500 * MS));
    assert_sends(500 * MS, 0, true);
    assert_true(wf_agg_window_due(&w) > 500 * MS);
    assert_int_equal(wf_agg_window_result(&w, 0, 501 * MS), WF_AGG_WINDOW_NEW);
}

static void a_late_rank_is_not_taken_for_a_dead_switch(void **state)
{
    uint64_t now = 0;
    uint64_t chunk;
    bool again;

    (void)state;
    start(SLOTS, 100);
    while (now < 1000 * MS) {
        while (wf_agg_window_send(&w, now, &chunk, &again)) {
            if (again) {
                wf_agg_window_held(&w, chunk, now + 30 * US);
            }
        }
        assert_false(wf_agg_window_gives_up(&w, now));
        now = wf_agg_window_due(&w);
    }
    /* One question at a time, and nobody takes it for congestion. */
    assert_int_equal(w.cwnd, SLOTS);
    assert_true(w.resent < 120);
    assert_true(w.mean_ns < 40 * US);
}

static void heavy_loss_halves_and_little_loss_does_not(void **state)
{
    (void)state;
    start(SLOTS, 1000);
    send_new(0, 0, 8);
    /* One of eight is lost. */
    for (uint64_t c = 1; c < 8; c++) {
        wf_agg_window_result(&w, c, c);
    }
    assert_sends(10, 0, true);
    wf_agg_window_result(&w, 0, 11);
    assert_int_equal(w.cwnd, SLOTS);
    send_new(12, 8, 16);
    for (uint64_t c = 11; c < 16; c++) {
        wf_agg_window_result(&w, c, 13);
    }
    assert_sends(14, 8, true);
    assert_sends(14, 9, true);
    assert_sends(14, 10, true);
    for (uint64_t c = 8; c < 11; c++) {
        wf_agg_window_result(&w, c, 15);
    }
    assert_int_equal(w.cwnd, SLOTS / 2);
    send_new(16, 16, 20);
    assert_silent(16);
    for (uint64_t c = 16; c < 20; c++) {
        wf_agg_window_result(&w, c, 17);
    }
    assert_int_equal(w.cwnd, 4 + 1 + 1);
}

static void a_timeout_halves_the_window_once(void **state)
{
    (void)state;
    start(SLOTS, 8);
    send_new(0, 0, 8);
    wf_agg_window_result(&w, 0, 100 * US);
    assert_silent(100 * US);
    for (uint64_t c = 1; c < 8; c++) {
        assert_sends(500 * US, c, true);
    }
    assert_silent(500 * US);
    assert_int_equal(w.cwnd, SLOTS / 2);
    assert_int_equal(w.timeouts, 1);
}

static void a_timeout_without_any_result_asks_with_one_chunk(void **state)
{
    (void)state;
    start(SLOTS, 8);
    send_new(0, 0, 8);
    assert_sends(800 * US, 0, true);
    assert_silent(800 * US);
    assert_int_equal(w.cwnd, SLOTS / 2);
    wf_agg_window_held(&w, 0, 830 * US);
    assert_int_equal(w.cwnd, SLOTS);
    assert_int_equal(w.lost, 0);
    /* The rest follows when there is a result and then none. */
    wf_agg_window_result(&w, 0, 900 * US);
    for (uint64_t c = 1; c < 8; c++) {
        assert_sends(1100 * US, c, true);
    }
    assert_silent(1100 * US);
}

/* A window of one chunk gets through whatever is lost. */
/* Chunk 0 has a result, which teaches the timeout; those after it come late.
 */
static void a_wrong_timeout_raises_its_lower_bound(void **state)
{
    uint64_t before;

    (void)state;
    start(SLOTS, 100);
    send_new(0, 0, SLOTS);
    assert_int_equal(wf_agg_window_result(&w, 0, 10 * US), WF_AGG_WINDOW_NEW);
    assert_sends(10 * US, SLOTS, false);
    before = wf_agg_window_timeout(&w);
    for (uint64_t c = 1; c <= SLOTS; c++) {
        assert_sends(MS, c, true);
    }
    /* Both results of chunk 1: it was not lost. One timeout counts once. */
    assert_int_equal(wf_agg_window_result(&w, 1, MS), WF_AGG_WINDOW_NEW);
    assert_int_equal(w.wrong, 0);
    assert_int_equal(wf_agg_window_result(&w, 1, MS), WF_AGG_WINDOW_OLD);
    assert_int_equal(wf_agg_window_result(&w, 1, MS), WF_AGG_WINDOW_OLD);
    assert_int_equal(w.wrong, 1);
    assert_int_equal(wf_agg_window_timeout(&w), 2 * before);
    /* It comes down again while results come once. */
    for (uint64_t c = 2; c < 100; c++) {
        while (w.next <= c) {
            assert_sends(MS, w.next, false);
        }
        assert_int_equal(wf_agg_window_result(&w, c, MS), WF_AGG_WINDOW_NEW);
    }
    assert_true(w.floor_ns < 2 * before && w.floor_ns > before);
}

static void one_chunk_at_a_time_goes_on_for_ever(void **state)
{
    uint64_t now = 0;

    (void)state;
    start(1, 50);
    for (uint64_t c = 0; c < 50; c++) {
        assert_sends(now, c, false);
        now = wf_agg_window_due(&w);
        assert_sends(now, c, true);
        now += 20 * US;
        assert_int_equal(wf_agg_window_result(&w, c, now), WF_AGG_WINDOW_NEW);
    }
    assert_true(wf_agg_window_is_over(&w));
    assert_int_equal(w.resent, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_makes_room_for_the_chunk_of_its_slot),
        cmocka_unit_test(a_result_is_new_once),
        cmocka_unit_test(calls_are_numbered_on),
        cmocka_unit_test(a_gap_is_filled_before_the_timeout),
        cmocka_unit_test(the_timeout_follows_the_round_trips),
        cmocka_unit_test(timeouts_double_until_there_is_a_new_result),
        cmocka_unit_test(a_silent_switch_is_given_up),
        cmocka_unit_test(a_rank_that_has_not_asked_does_not_give_up),
        cmocka_unit_test(a_late_rank_is_not_taken_for_a_dead_switch),
        cmocka_unit_test(heavy_loss_halves_and_little_loss_does_not),
        cmocka_unit_test(a_timeout_halves_the_window_once),
        cmocka_unit_test(a_timeout_without_any_result_asks_with_one_chunk),
        cmocka_unit_test(a_wrong_timeout_raises_its_lower_bound),
        cmocka_unit_test(one_chunk_at_a_time_goes_on_for_ever),
    };

    return cmocka_run_group_tests_name("agg_window", tests, NULL, NULL);
}
