/* SPDX-License-Identifier: Apache-2.0 */
/* What a job does beside collectives, counted. */
#include "control.h"

#include "mem/join.h"
#include "wt.h"
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

static uint32_t log2_up(uint32_t n)
{
    uint32_t bits = 0;

    while (1u << bits < n) {
        bits++;
    }
    return bits;
}

/* Ticket, reply and verdict for each but the leader. */
static void making_takes_three_letters_a_member(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks < 70; ranks++) {
        sim_model m = model_of(ranks, 4);
        sim_result out;

        sim_create(&m, &usual, &out);
        assert_int_equal(out.stuck, 0);
        assert_float_equal(out.summary.all_messages, 3 * (ranks - 1), 0);
        assert_true(out.summary.endpoints.most <= 3);
        assert_true(out.summary.messages.most <= 2 * (3 + 3));
    }
}

/* Colours share a host or have some for themselves. */
static void a_split_tells_everybody_of_all(void **state)
{
    static const uint32_t colours[] = {1, 3, 4, 7, 100};
    sim_control split = usual;
    sim_model m = model_of(100, 4);
    sim_result out;

    (void)state;
    for (unsigned i = 0; i < sizeof(colours) / sizeof(colours[0]); i++) {
        split.colours = colours[i];
        sim_split(&m, &split, &out);
        assert_int_equal(out.stuck, 0);
        assert_true(out.summary.inflow.least >= 99 * 24);
        assert_float_equal(out.summary.all_bytes, out.summary.all_received, 0);
        /* Up, and down again in two letters; then as above. */
        assert_true(out.summary.all_messages >=
                    99 + 2 * 99 + 3 * (100 - colours[i]));
        assert_true(out.summary.endpoints.most <= 3 * 3);
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

static void heartbeats_go_to_the_two_hosts_beside_only(void **state)
{
    sim_model m = model_of(64 * 4, 4);
    sim_result out;

    (void)state;
    sim_idle(&m, &usual, &out);
    assert_float_equal(out.summary.messages.most, 4 * 2, 0);
    assert_float_equal(out.summary.all_messages, 64 * 4 * 2, 0);
    assert_float_equal(out.summary.endpoints.most, 2, 0);
}

/* Those inside a block are watched by hosts that were cut off with them, until
 * the others are alert an eighth of the timeout later. What is said of time
 * is that of the model. */
static void check_cut(uint32_t hosts, sim_cut_off which)
{
    sim_model m = model_of(hosts * 2, 2);
    sim_control cut = usual;
    double timeout = which == SIM_CUT_OTHERS ? 15 : 15 * 9 / 8.0;
    sim_result out;

    cut.cut = which;
    cut.timeout = 15;
    cut.every = 0.5;
    sim_cut(&m, &cut, &out);
    assert_int_equal(out.stuck, 0);
    assert_true(out.summary.seconds.most >= 15 - 2 * cut.every);
    assert_true(out.summary.seconds.most <= timeout + 2 * cut.every);
    /* Heartbeats and questions, and some news. */
    assert_true(out.summary.messages.most <= 2 * 17 * 4 * (log2_up(hosts) + 1));
}

static void hosts_cut_off_together_are_named_by_all_others(void **state)
{
    static const uint32_t few[] = {2, 3, 5, 8, 64};

    (void)state;
    for (unsigned i = 0; i < sizeof(few) / sizeof(few[0]); i++) {
        check_cut(few[i], SIM_CUT_BLOCK);
        check_cut(few[i], SIM_CUT_OTHERS);
        check_cut(few[i], SIM_CUT_ANY);
    }
    check_cut(1563, SIM_CUT_BLOCK);
    if (wt_full()) {
        check_cut(1563, SIM_CUT_OTHERS);
        check_cut(1563, SIM_CUT_ANY);
    }
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
        cmocka_unit_test(making_takes_three_letters_a_member),
        cmocka_unit_test(a_split_tells_everybody_of_all),
        cmocka_unit_test(news_reach_every_host),
        cmocka_unit_test(heartbeats_go_to_the_two_hosts_beside_only),
        cmocka_unit_test(hosts_cut_off_together_are_named_by_all_others),
        cmocka_unit_test(joining_takes_few_keys_a_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
