/* SPDX-License-Identifier: Apache-2.0 */
/* Where a switch pays, by what links carry. */
#include "agg/pays.h"

#include "wt_cmocka.h"

static double ratio(uint32_t hosts, double switch_rate, wf_call_kind kind)
{
    return wf_agg_pays_ratio(&(wf_agg_site){hosts, 1, switch_rate}, kind);
}

static void an_allreduce_pays_from_three_hosts_on(void **state)
{
    (void)state;
    assert_false(wf_agg_pays(1, WF_CALL_ALLREDUCE));
    assert_false(wf_agg_pays(2, WF_CALL_ALLREDUCE));
    for (uint32_t hosts = 3; hosts < 300; hosts++) {
        double r = ratio(hosts, 0, WF_CALL_ALLREDUCE);

        assert_true(wf_agg_pays(hosts, WF_CALL_ALLREDUCE));
        assert_true(r > 0.5 && r <= 0.75);
    }
}

/* Count both directions of a host's link by themselves: out, without a switch,
 * goes all but the host's own part; to a switch goes all. */
static void a_reduce_scatter_never_pays(void **state)
{
    (void)state;
    for (uint32_t hosts = 2; hosts < 300; hosts++) {
        double h = hosts;
        double without = (h - 1) / h; /* out, and in */
        double out = 1;
        double in = 1 / h;
        double busier = out > in ? out : in;

        assert_false(wf_agg_pays(hosts, WF_CALL_REDUCE_SCATTER));
        assert_true(ratio(hosts, 0, WF_CALL_REDUCE_SCATTER) ==
                    busier / without);
        /* Nor do more links of the switch help. */
        assert_true(ratio(hosts, 10 * h, WF_CALL_REDUCE_SCATTER) > 1);
    }
}

static void links_of_the_switches_bound_it(void **state)
{
    (void)state;
    /* One link for eight hosts; then two, four, eight. */
    assert_true(ratio(8, 1, WF_CALL_ALLREDUCE) > 4);
    assert_true(ratio(8, 2, WF_CALL_ALLREDUCE) > 2);
    assert_true(ratio(8, 4, WF_CALL_ALLREDUCE) > 1);
    assert_true(ratio(8, 8, WF_CALL_ALLREDUCE) < 0.6);
    assert_true(ratio(8, 80, WF_CALL_ALLREDUCE) ==
                ratio(8, 0, WF_CALL_ALLREDUCE));
}

static void what_a_switch_does_not_serve_pays_nowhere(void **state)
{
    (void)state;
    assert_false(wf_agg_pays(8, WF_CALL_BROADCAST));
    assert_false(wf_agg_pays(8, WF_CALL_ALLGATHER));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allreduce_pays_from_three_hosts_on),
        cmocka_unit_test(a_reduce_scatter_never_pays),
        cmocka_unit_test(links_of_the_switches_bound_it),
        cmocka_unit_test(what_a_switch_does_not_serve_pays_nowhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
