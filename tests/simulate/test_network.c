/* SPDX-License-Identifier: Apache-2.0 */
/* The model of the network, against times that are worked out by hand. */
#include "network.h"

#include "wt_cmocka.h"

/* The ranks of the first list each send one message at the beginning. */
typedef struct sending {
    uint32_t senders;
    uint32_t from[8];
    uint32_t to[8];
    uint64_t bytes;
    bool begun[16];
} sending;

static bool arrived(sim *s, uint32_t rank, sim_message *m)
{
    (void)m;
    s->count[rank].ended = s->now;
    return true;
}

static void step(sim *s, uint32_t rank)
{
    sending *p = s->state;

    for (uint32_t i = 0; !p->begun[rank] && i < p->senders; i++) {
        if (p->from[i] == rank) {
            sim_message *m = sim_message_new(s, rank, p->to[i]);

            m->bytes = p->bytes;
            sim_post(s, m);
        }
    }
    p->begun[rank] = true;
}

static const sim_actor actor = {arrived, step, NULL};

/* Numbers that add up in the head: 1 us, 1 GB/s, no header, no processor. */
static sim_model simple(uint32_t ranks, uint32_t per_host)
{
    sim_model m;

    sim_model_init(&m);
    m.ranks = ranks;
    m.per_host = per_host;
    m.latency = 1e-6;
    m.bandwidth = 1e9;
    m.header = 0;
    m.send = 0;
    m.receive = 0;
    m.local_latency = 0;
    m.local_send = 0;
    m.copy = 1e9;
    return m;
}

/* Microseconds until the last message has come. */
static double last_of(const sim_model *model, sending p)
{
    double last = 0;
    sim s;

    sim_init(&s, model, &actor, &p);
    sim_run(&s);
    for (uint32_t r = 0; r < model->ranks; r++) {
        double us = (double)s.count[r].ended * 1e-6;

        last = us > last ? us : last;
    }
    sim_fini(&s);
    return last;
}

static void a_message_takes_latency_and_its_bytes(void **state)
{
    sim_model m = simple(2, 1);
    sending p = {1, {0}, {1}, 1000, {0}};

    (void)state;
    assert_float_equal(last_of(&m, p), 1 + 1, 1e-3);
    m.send = 2e-6;
    m.receive = 3e-6;
    m.header = 500;
    assert_float_equal(last_of(&m, p), 2 + 1 + 1.5 + 3, 1e-3);
}

static void who_sends_nothing_back_acknowledges(void **state)
{
    sim_model m = simple(2, 1);
    sending one_way = {1, {0}, {1}, 1000, {0}};
    sending both_ways = {2, {0, 1}, {1, 0}, 1000, {0}};

    (void)state;
    m.ack = 4e-6;
    assert_float_equal(last_of(&m, one_way), 1 + 1 + 4, 1e-3);
    assert_float_equal(last_of(&m, both_ways), 1 + 1, 1e-3);
}

static void more_than_a_packet_is_acknowledged_at_once(void **state)
{
    sim_model m = simple(2, 1);
    sending packet = {1, {0}, {1}, 1000, {0}};
    sending longer = {1, {0}, {1}, 2000, {0}};

    (void)state;
    m.segment = 1000;
    m.longer = 4e-6;
    assert_float_equal(last_of(&m, packet), 1 + 1, 1e-3);
    assert_float_equal(last_of(&m, longer), 1 + 2 + 4, 1e-3);
}

static void ranks_of_a_host_share_its_link(void **state)
{
    sim_model m = simple(16, 8);
    sending p = {4, {0, 1, 2, 3}, {8, 9, 10, 11}, 1000, {0}};

    (void)state;
    assert_float_equal(last_of(&m, p), 1 + 4, 1e-3);
}

static void all_who_send_to_one_host_share_its_link(void **state)
{
    sim_model m = simple(8, 1);
    sending p = {5, {1, 2, 3, 4, 5}, {0, 0, 0, 0, 0}, 1000, {0}};

    (void)state;
    assert_float_equal(last_of(&m, p), 1 + 5, 1e-3);
}

static void pairs_of_hosts_do_not_disturb_each_other(void **state)
{
    sim_model m = simple(8, 1);
    sending p = {4, {0, 1, 2, 3}, {4, 5, 6, 7}, 1000, {0}};

    (void)state;
    assert_float_equal(last_of(&m, p), 1 + 1, 1e-3);
}

static void an_oversubscribed_core_slows_all_of_them(void **state)
{
    sim_model m = simple(8, 1);
    sending p = {4, {0, 1, 2, 3}, {4, 5, 6, 7}, 8000, {0}};

    (void)state;
    /* 8 links over 4 are the bandwidth of 2: the last one waits for three
     * messages of 4 us, and then takes 8 on its receiver's link. */
    m.oversubscription = 4;
    assert_float_equal(last_of(&m, p), 3 * 4 + 1 + 8, 1e-3);
}

static void a_bucket_passes_its_burst_at_once(void **state)
{
    sim_model m = simple(16, 8);
    sending p = {4, {0, 1, 2, 3}, {8, 9, 10, 11}, 1000, {0}};

    (void)state;
    m.burst = 3000;
    /* The bucket is empty at the beginning of time, and is full later. */
    m.send = 10e-6;
    assert_float_equal(last_of(&m, p), 10 + 1 + 1, 1e-3);
}

static void messages_inside_a_host_are_copied_twice(void **state)
{
    sim_model m = simple(2, 2);
    sending p = {1, {0}, {1}, 1000, {0}};

    (void)state;
    m.local_latency = 5e-6;
    m.local_send = 1e-6;
    assert_float_equal(last_of(&m, p), (1 + 1) + 5 + (1 + 1), 1e-3);
}

static void ranks_wait_for_a_core(void **state)
{
    sim_model m = simple(8, 4);
    sending p = {4, {0, 1, 2, 3}, {4, 5, 6, 7}, 0, {0}};

    (void)state;
    m.send = 2e-6;
    m.cores = 1;
    assert_float_equal(last_of(&m, p), 4 * 2 + 1, 1e-3);
    m.cores = 2;
    assert_float_equal(last_of(&m, p), 2 * 2 + 1, 1e-3);
    /* The receivers need the same core. */
    m.cores = 1;
    m.one_machine = 1;
    m.receive = 1e-6;
    assert_true(last_of(&m, p) >= 4 * 2 + 4 * 1);
}

static void pinned_ranks_leave_other_cores_idle(void **state)
{
    sim_model m = simple(8, 4);
    sending p = {2, {0, 2}, {4, 6}, 0, {0}};

    (void)state;
    m.send = 2e-6;
    m.cores = 2;
    assert_float_equal(last_of(&m, p), 2 + 1, 1e-3);
    m.pinned = 1;
    assert_float_equal(last_of(&m, p), 2 * 2 + 1, 1e-3);
}

static void events_come_in_the_order_of_time(void **state)
{
    sim_events events = {0};
    sim_event e;
    sim_time last = 0;
    uint32_t seed = 1;
    unsigned count = 0;

    (void)state;
    for (unsigned i = 0; i < 5000; i++) {
        seed = seed * 1664525 + 1013904223;
        sim_events_add(&events, seed % 97, i, 0, NULL);
    }
    while (sim_events_next(&events, &e)) {
        assert_true(e.at >= last);
        last = e.at;
        count++;
    }
    assert_int_equal(count, 5000);
    sim_events_add(&events, 7, 1, 0, NULL);
    sim_events_add(&events, 7, 2, 0, NULL);
    assert_true(sim_events_next(&events, &e) && e.what == 1);
    assert_true(sim_events_next(&events, &e) && e.what == 2);
    sim_events_fini(&events);
}

static void a_model_is_read_from_lines(void **state)
{
    char text[] = "# a network\n latency = 2e-3 # slow\n\nbandwidth=5\n";
    char wrong[] = "latency=1\nspeed=3\n";
    FILE *file = fmemopen(text, sizeof(text) - 1, "r");
    char line[100];
    sim_model m;

    (void)state;
    sim_model_init(&m);
    assert_non_null(file);
    assert_true(sim_model_read(&m, file, line, sizeof(line)));
    fclose(file);
    assert_float_equal(m.latency, 2e-3, 0);
    assert_float_equal(m.bandwidth, 5, 0);
    file = fmemopen(wrong, sizeof(wrong) - 1, "r");
    assert_non_null(file);
    assert_false(sim_model_read(&m, file, line, sizeof(line)));
    assert_string_equal(line, "speed=3");
    fclose(file);
    assert_false(sim_model_set(&m, "latency=-1"));
    assert_false(sim_model_set(&m, "latency=x"));
    assert_false(sim_model_set(&m, "latency"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_takes_latency_and_its_bytes),
        cmocka_unit_test(who_sends_nothing_back_acknowledges),
        cmocka_unit_test(more_than_a_packet_is_acknowledged_at_once),
        cmocka_unit_test(ranks_of_a_host_share_its_link),
        cmocka_unit_test(all_who_send_to_one_host_share_its_link),
        cmocka_unit_test(pairs_of_hosts_do_not_disturb_each_other),
        cmocka_unit_test(an_oversubscribed_core_slows_all_of_them),
        cmocka_unit_test(a_bucket_passes_its_burst_at_once),
        cmocka_unit_test(messages_inside_a_host_are_copied_twice),
        cmocka_unit_test(ranks_wait_for_a_core),
        cmocka_unit_test(pinned_ranks_leave_other_cores_idle),
        cmocka_unit_test(events_come_in_the_order_of_time),
        cmocka_unit_test(a_model_is_read_from_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
