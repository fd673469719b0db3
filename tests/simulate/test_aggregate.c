/* SPDX-License-Identifier: Apache-2.0 */
/* Allreduce through simulated switches, against times worked out by hand. */
#include "aggregate.h"

#include "agg/quantise.h"
#include "agg/wire.h"
#include "wt_cmocka.h"

enum { MIB = 1 << 20 };

/* 1 Gbit/s, and processors that cost nothing. */
static sim_model simple(uint32_t hosts)
{
    sim_model m;

    sim_model_init(&m);
    m.ranks = hosts;
    m.per_host = 1;
    m.bandwidth = 125e6;
    m.header = 42;
    m.latency = 1e-5;
    m.send = 0;
    m.receive = 0;
    m.copy = 1e15;
    m.fold = 1e15;
    return m;
}

static const sim_aggregate usual = {
    .switches = 1, .payload = 1088, .slots = 256};

static sim_result run(const sim_model *m, const sim_aggregate *how,
                      uint64_t bytes)
{
    sim_result r = {0};

    assert_true(sim_aggregate_run(m, how, bytes, &r));
    assert_int_equal(r.stuck, 0);
    return r;
}

/* Seconds that a link needs for a call's packets. */
static double link_seconds(const sim_model *m, uint64_t bytes)
{
    double packets = (double)bytes / 1024;
    double wire = (double)(wf_quantised_bytes(256) + sizeof(wf_agg_head));

    return packets * (wire + m->header) / m->bandwidth;
}

static void time_does_not_depend_on_the_number_of_hosts(void **state)
{
    static const uint32_t hosts[] = {1, 2, 3, 5, 8, 16, 64};

    (void)state;
    for (unsigned i = 0; i < 7; i++) {
        sim_model m = simple(hosts[i]);
        sim_result r = run(&m, &usual, 4 * MIB);
        double least = link_seconds(&m, 4 * MIB);

        assert_true(r.summary.seconds.most > least);
        assert_true(r.summary.seconds.most < 1.02 * least + 1e-4);
        assert_true(r.summary.messages.most == 4096);
    }
}

/* Behind one link as wide as a host's, that link is what all wait for. */
static void a_switch_with_one_link_takes_as_long_as_all_hosts_data(void **state)
{
    sim_model m = simple(4);
    sim_aggregate narrow = usual;
    double least = 4 * link_seconds(&m, MIB);
    double seconds;

    (void)state;
    narrow.links = 1;
    seconds = run(&m, &narrow, MIB).summary.seconds.most;
    assert_true(seconds > least && seconds < 1.1 * least);
    narrow.switches = 4; /* each with a quarter of it */
    seconds = run(&m, &narrow, MIB).summary.seconds.most;
    assert_true(seconds > least / 4 && seconds < 1.25 * least / 4);
}

static void lost_packets_are_sent_again(void **state)
{
    sim_model m = simple(4);
    sim_aggregate lossy = usual;
    sim_result r;
    sim_result again;

    (void)state;
    lossy.loss = 0.01;
    r = run(&m, &lossy, MIB);
    assert_true(r.summary.messages.most > 1024);
    assert_true(r.summary.messages.most < 1.2 * 1024);
    again = run(&m, &lossy, MIB);
    assert_true(r.summary.seconds.most == again.summary.seconds.most);
    lossy.loss = 0.3;
    lossy.slots = 1;
    (void)run(&m, &lossy, MIB / 16);
}

static void odd_sizes_come_to_an_end(void **state)
{
    static const uint64_t bytes[] = {0, 4, 1020, 1024, 1028, 99996};

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        for (uint32_t switches = 1; switches <= 3; switches++) {
            sim_model m = simple(3);
            sim_aggregate how = usual;

            how.switches = switches;
            how.slots = 1 + 7 * i;
            (void)run(&m, &how, bytes[i]);
        }
    }
}

static void what_no_pool_can_be_is_refused(void **state)
{
    sim_model m = simple(3);
    sim_aggregate how = usual;
    sim_result r;

    (void)state;
    how.slots = 0;
    assert_false(sim_aggregate_run(&m, &how, MIB, &r));
    how = usual;
    how.payload = 100;
    assert_false(sim_aggregate_run(&m, &how, MIB, &r));
    how = usual;
    how.switches = 0;
    assert_false(sim_aggregate_run(&m, &how, MIB, &r));
    how = usual;
    m.ranks = WF_AGG_RANKS + 1;
    assert_false(sim_aggregate_run(&m, &how, MIB, &r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_does_not_depend_on_the_number_of_hosts),
        cmocka_unit_test(
            a_switch_with_one_link_takes_as_long_as_all_hosts_data),
        cmocka_unit_test(lost_packets_are_sent_again),
        cmocka_unit_test(odd_sizes_come_to_an_end),
        cmocka_unit_test(what_no_pool_can_be_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
