/* SPDX-License-Identifier: Apache-2.0 */
/* How much may be under way, on cables that are simulated: questions arrive
 * after half of the delay, answers leave one after the other as fast as the
 * cable is, and arrive after the other half. Time is counted, not measured. */
#include "comm/flow.h"
#include "wt_cmocka.h"

enum { PAYLOAD = 126 << 10, ANSWER = 2 * PAYLOAD, PLACES = 1 << 12 };

typedef struct cable {
    double rate;       /* bytes in a nanosecond */
    uint64_t delay_ns; /* there and back */
    uint64_t queue_ns; /* that others have put on it */
    wf_flow flow;
    uint64_t now;
    uint64_t free_at; /* the sender's end has sent all answers */
    uint64_t under_way;
    uint64_t answer[PLACES]; /* when each arrives */
    unsigned first;
    unsigned end;
    uint64_t answered;
    uint64_t most; /* bytes under way */
} cable;

static void cable_init(cable *c, double bytes_per_second, double delay_s)
{
    *c = (cable){.rate = bytes_per_second * 1e-9,
                 .delay_ns = (uint64_t)(delay_s * 1e9),
                 .now = 1};
    wf_flow_init(&c->flow, PAYLOAD);
}

static void ask(cable *c)
{
    uint64_t there = c->now + c->delay_ns / 2 + c->queue_ns;
    uint64_t begin = there > c->free_at ? there : c->free_at;

    assert_true(c->end - c->first < PLACES);
    c->free_at = begin + (uint64_t)(ANSWER / c->rate);
    c->answer[c->end++ % PLACES] = c->free_at + c->delay_ns / 2;
    c->under_way += ANSWER;
    c->most = c->most > c->under_way ? c->most : c->under_way;
    wf_flow_sent(&c->flow, ANSWER, c->now);
}

/* Ask for as much as there is room for, for so long; the rate of answers. */
static double run(cable *c, double seconds)
{
    uint64_t begin = c->now;
    uint64_t end = begin + (uint64_t)(seconds * 1e9);

    c->answered = c->most = 0;
    while (c->now < end) {
        while (wf_flow_room(&c->flow, c->under_way, ANSWER)) {
            ask(c);
        }
        c->now = c->answer[c->first++ % PLACES];
        c->under_way -= ANSWER;
        c->answered += ANSWER;
        wf_flow_answered(&c->flow, ANSWER, c->now);
    }
    return (double)c->answered / (double)(c->now - begin) * 1e9;
}

static double product(const cable *c)
{
    return c->rate * (double)c->delay_ns;
}

/* From cables of a rack to those around the world. */
static void cables_are_filled_whatever_their_length(void **state)
{
    static const double rates[] = {1.25e7, 1.25e8, 1.25e9, 1.25e10};
    static const double delays[] = {2e-5, 2e-4, 2e-3, 2e-2};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned j = 0; j < 4; j++) {
            cable c;

            cable_init(&c, rates[i], delays[j]);
            (void)run(&c, 50 * delays[j] + 1);
            if (2 * product(&c) < WF_FLOW_MOST) {
                assert_true(run(&c, 1) > 0.95 * rates[i]);
            } else {
                assert_int_equal(c.flow.window, WF_FLOW_MOST);
            }
        }
    }
}

static void no_more_waits_in_queues_than_fills_the_cable(void **state)
{
    static const double delays[] = {2e-5, 2e-4, 2e-3, 2e-2};

    (void)state;
    for (unsigned j = 0; j < 4; j++) {
        cable c;
        double fills;

        cable_init(&c, 1.25e8, delays[j]);
        (void)run(&c, 5);
        (void)run(&c, 1);
        fills = 2 * (product(&c) + ANSWER);
        assert_true((double)c.most <= (fills > WF_FLOW_LEAST * PAYLOAD
                                           ? fills
                                           : WF_FLOW_LEAST * PAYLOAD));
    }
}

static void a_long_cable_is_full_after_a_few_trips(void **state)
{
    cable c;
    double bound;

    (void)state;
    cable_init(&c, 1.25e9, 2e-2); /* 25 MB are under way on it */
    bound = (double)c.flow.window / 2e-2;
    assert_true(run(&c, 2e-2) < 1.1 * bound);
    (void)run(&c, 8 * 2e-2);
    assert_true(run(&c, 1) > 0.95 * 1.25e9);
}

static void a_queue_of_others_does_not_open_the_window(void **state)
{
    cable c;
    uint64_t before;

    (void)state;
    cable_init(&c, 1.25e9, 1e-2);
    (void)run(&c, 2);
    before = c.flow.window;
    c.queue_ns = 50 * WF_MS;
    (void)run(&c, 5);
    assert_true(c.flow.window <= before);
}

static void the_window_follows_a_rate_that_falls_and_rises(void **state)
{
    cable c;

    (void)state;
    cable_init(&c, 1.25e9, 1e-2);
    (void)run(&c, 2);
    c.rate /= 10;
    (void)run(&c, 8);
    (void)run(&c, 1);
    assert_true((double)c.most < 3 * (product(&c) + ANSWER));
    c.rate *= 10;
    (void)run(&c, 2);
    assert_true(run(&c, 1) > 0.95 * 1.25e9);
}

static void the_window_follows_a_path_that_gets_longer(void **state)
{
    cable c;

    (void)state;
    cable_init(&c, 1.25e9, 4e-3);
    (void)run(&c, 2);
    c.delay_ns *= 5;
    (void)run(&c, 25);
    assert_true(run(&c, 1) > 0.95 * 1.25e9);
    assert_true((double)c.flow.window < 3 * product(&c));
}

static void measuring_the_delay_again_costs_little(void **state)
{
    cable c;

    (void)state;
    cable_init(&c, 1.25e9, 1e-2);
    (void)run(&c, 2);
    assert_true(run(&c, 60) > 0.98 * 1.25e9);
    assert_true((double)c.flow.window < 2.5 * product(&c));
}

/* A caller that asks for little says nothing about what the cable can do. */
static void small_questions_do_not_close_the_window(void **state)
{
    cable c;
    uint64_t before;

    (void)state;
    cable_init(&c, 1.25e9, 1e-2);
    (void)run(&c, 2);
    before = c.flow.window;
    for (int i = 0; i < 1000; i++) {
        wf_flow_sent(&c.flow, 64, c.now);
        c.now += c.delay_ns;
        wf_flow_answered(&c.flow, 64, c.now);
    }
    assert_true(c.flow.window == before);
}

static void what_is_lost_is_not_waited_for(void **state)
{
    cable c;

    (void)state;
    cable_init(&c, 1.25e9, 1e-2);
    wf_flow_sent(&c.flow, 4 * ANSWER, c.now);
    wf_flow_lost(&c.flow, 4 * ANSWER);
    (void)run(&c, 1);
    assert_true(run(&c, 1) > 0.95 * 1.25e9);
}

/* All keys of a parcel may have come here before it was sent. */
static void sending_nothing_begins_no_trip(void **state)
{
    cable c;

    (void)state;
    cable_init(&c, 1.25e9, 1e-2);
    (void)run(&c, 2);
    while (c.first < c.end) {
        wf_flow_answered(&c.flow, ANSWER, c.answer[c.first++ % PLACES]);
    }
    wf_flow_sent(&c.flow, 0, c.now);
    assert_true(c.flow.goal == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cables_are_filled_whatever_their_length),
        cmocka_unit_test(no_more_waits_in_queues_than_fills_the_cable),
        cmocka_unit_test(a_long_cable_is_full_after_a_few_trips),
        cmocka_unit_test(a_queue_of_others_does_not_open_the_window),
        cmocka_unit_test(the_window_follows_a_rate_that_falls_and_rises),
        cmocka_unit_test(the_window_follows_a_path_that_gets_longer),
        cmocka_unit_test(measuring_the_delay_again_costs_little),
        cmocka_unit_test(small_questions_do_not_close_the_window),
        cmocka_unit_test(what_is_lost_is_not_waited_for),
        cmocka_unit_test(sending_nothing_begins_no_trip),
    };

    return cmocka_run_group_tests_name("flow", tests, NULL, NULL);
}
