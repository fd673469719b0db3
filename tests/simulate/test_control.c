/* SPDX-License-Identifier: Apache-2.0 */
/* What a job does beside collectives, counted. */
#include "control.h"

#include "mem/join.h"
#include "wt_cmocka.h"

static const sim_control usual = {
    .colours = 1, .dead = 1, .every = 0.25, .address = 120, .table = 1e-5};

static sim_model model_of(uint32_t ranks, uint32_t per_host)
{
    sim_model m;

    sim_model_init(&m);
    m.ranks = ranks;
    m.per_host = per_host;
    return m;
}

static void a_leader_mails_everybody_twice(void **state)
{
    sim_model m = model_of(100, 4);
    sim_result out;

    (void)state;
    sim_create(&m, &usual, &out);
    assert_int_equal(out.stuck, 0);
    /* Three of 4 members get the memory of their node, but for the leader's. */
    assert_float_equal(out.summary.all_messages, 3 * 99 + 24 * 3, 0);
    assert_float_equal(out.summary.messages.most, 2 * 99, 0);
    assert_float_equal(out.summary.endpoints.most, 96, 0);
}

static void along_a_tree_nobody_mails_many(void **state)
{
    sim_control tree = usual;

    (void)state;
    tree.tree = true;
    for (uint32_t ranks = 1; ranks < 70; ranks++) {
        sim_model m = model_of(ranks, 4);
        sim_result out;

        sim_create(&m, &tree, &out);
        assert_int_equal(out.stuck, 0);
        assert_true(out.summary.all_messages >= 3 * (ranks - 1));
        assert_true(out.summary.messages.most <= 14);
    }
}

static void a_split_tells_everybody_of_all(void **state)
{
    sim_control split = usual;
    sim_model m = model_of(100, 4);
    sim_result out;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        split.tree = i == 1;
        split.colours = 3;
        sim_split(&m, &split, &out);
        assert_int_equal(out.stuck, 0);
        assert_true(out.summary.inflow.least >= 99 * 24);
        assert_float_equal(out.summary.all_bytes, out.summary.all_received, 0);
    }
}

static void news_reach_every_host(void **state)
{
    (void)state;
    for (uint32_t hosts = 2; hosts < 40; hosts++) {
        sim_model m = model_of(hosts * 3, 3);
        sim_result out;

        sim_news(&m, &usual, &out);
        assert_int_equal(out.stuck, 0);
        assert_true(out.summary.messages.most <= 2 * 12);
    }
}

static void heartbeats_go_to_neighbours_only(void **state)
{
    sim_model m = model_of(64 * 4, 4);
    sim_result out;

    (void)state;
    sim_idle(&m, &usual, &out);
    /* 32 away is the same host in both directions. */
    assert_float_equal(out.summary.messages.most, 4 * 11, 0);
    assert_float_equal(out.summary.all_messages, 64 * 4 * 11, 0);
    assert_float_equal(out.summary.endpoints.most, 11, 0);
}

static void joining_takes_few_keys_a_rank(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks < 40; ranks++) {
        sim_model m = model_of(ranks, 4);
        sim_result out;

        sim_join(&m, &usual, &out);
        assert_int_equal(out.stuck, 0);
        assert_true(out.summary.messages.least <= 2);
        assert_true(out.summary.messages.most <= 2 * wf_join_group(ranks) + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leader_mails_everybody_twice),
        cmocka_unit_test(along_a_tree_nobody_mails_many),
        cmocka_unit_test(a_split_tells_everybody_of_all),
        cmocka_unit_test(news_reach_every_host),
        cmocka_unit_test(heartbeats_go_to_neighbours_only),
        cmocka_unit_test(joining_takes_few_keys_a_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
