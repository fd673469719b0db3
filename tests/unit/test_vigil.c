/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes are watched, and when they are taken for dead: the rules of
 * vigil.h, for one node of a job that exists on paper only. What all nodes of a
 * job do together is tests/simulate/test_control.c. */
#include "comm/vigil.h"

#include "base/time.h"
#include "mem/board.h"
#include "wt_cmocka.h"

enum { NODES = 16, OWN = 8 };

#define TIMEOUT (8 * WF_SEC)
#define EVERY (200 * WF_MS)
#define START (100 * WF_SEC)

/* Node 8 of 16, each of one rank. */
typedef struct guard {
    wf_gossip gossip;
    wf_vigil vigil;
    uint64_t now;
    uint32_t count;
} guard;

static void look(guard *g)
{
    g->count = wf_vigil_look(&g->vigil, &g->gossip, g->now);
}

static void guard_open(guard *g)
{
    uint32_t node_of[NODES];

    for (uint32_t n = 0; n < NODES; n++) {
        node_of[n] = n;
    }
    assert_int_equal(wf_gossip_init(&g->gossip, node_of, NODES, NODES, OWN),
                     WEFT_OK);
    assert_int_equal(wf_vigil_init(&g->vigil, NODES, TIMEOUT, EVERY), WEFT_OK);
    g->now = START;
    wf_vigil_begin(&g->vigil, g->now);
    assert_true(wf_vigil_is_due(&g->vigil, g->now));
    look(g);
}

static void guard_close(guard *g)
{
    wf_gossip_fini(&g->gossip);
    wf_vigil_fini(&g->vigil);
}

/* Let time pass, heartbeat by heartbeat. All but one are heard. */
static void pass(guard *g, uint64_t ns, uint32_t silent)
{
    for (uint64_t end = g->now + ns; g->now < end;) {
        g->now += EVERY;
        for (uint32_t n = 0; n < NODES; n++) {
            if (n != silent && n != OWN) {
                wf_vigil_hear(&g->vigil, n, g->now);
            }
        }
        look(g);
    }
}

static bool watches(const guard *g, uint32_t node, wf_vigil_state state)
{
    bool found = false;

    for (uint32_t i = 0; i < g->count; i++) {
        const wf_vigil_node *seen = &g->vigil.seen[i];

        found = found || (seen->node == node && seen->state == state);
    }
    return found;
}

static bool is_calm(const guard *g)
{
    return wf_vigil_alert_left(&g->vigil, g->now) == 0;
}

static void in_calm_the_two_beside_it_are_watched(void **state)
{
    guard g;

    (void)state;
    guard_open(&g);
    pass(&g, 3 * TIMEOUT, NODES);
    assert_true(is_calm(&g));
    assert_int_equal(g.count, 2);
    assert_true(watches(&g, OWN - 1, WF_VIGIL_WELL));
    assert_true(watches(&g, OWN + 1, WF_VIGIL_WELL));
    /* The circle closes over those who are gone. */
    wf_gossip_note(&g.gossip, OWN + 1, WF_BOARD_LEFT);
    look(&g);
    assert_int_equal(g.count, 2);
    assert_true(watches(&g, OWN + 2, WF_VIGIL_WELL));
    guard_close(&g);
}

static void silence_alerts_and_all_neighbours_are_watched(void **state)
{
    guard g;

    (void)state;
    guard_open(&g);
    pass(&g, TIMEOUT / 8, OWN + 1);
    assert_true(is_calm(&g));
    pass(&g, 2 * EVERY, OWN + 1);
    assert_false(is_calm(&g));
    assert_true(watches(&g, OWN + 1, WF_VIGIL_WELL));
    /* Distances 1, 2 and 4 on either side, and 8. */
    assert_int_equal(g.count, 7);
    pass(&g, TIMEOUT / 8, OWN + 1);
    assert_true(watches(&g, OWN + 1, WF_VIGIL_SILENT));
    pass(&g, EVERY, NODES); /* it is heard again */
    assert_true(watches(&g, OWN + 1, WF_VIGIL_WELL));
    pass(&g, TIMEOUT / 2 + EVERY, NODES);
    assert_true(is_calm(&g));
    assert_int_equal(g.count, 2);
    guard_close(&g);
}

static void a_node_is_dead_when_it_was_silent_for_the_timeout(void **state)
{
    guard g;

    (void)state;
    guard_open(&g);
    pass(&g, TIMEOUT, OWN + 1);
    assert_true(watches(&g, OWN + 1, WF_VIGIL_SILENT));
    pass(&g, EVERY, OWN + 1);
    assert_true(watches(&g, OWN + 1, WF_VIGIL_DEAD));
    guard_close(&g);
}

/* It was watched after an alert; then others die, and it is no neighbour any
 * more: if nobody watched it on, its silence would begin again elsewhere. */
static void a_silent_node_is_watched_until_it_is_dead(void **state)
{
    guard g;

    (void)state;
    guard_open(&g);
    wf_vigil_alert(&g.vigil, g.now);
    pass(&g, EVERY, OWN + 4);
    assert_true(watches(&g, OWN + 4, WF_VIGIL_WELL));
    wf_gossip_note(&g.gossip, OWN + 1, WF_BOARD_DEAD);
    pass(&g, EVERY, OWN + 4);
    assert_true(watches(&g, OWN + 4, WF_VIGIL_WELL));
    assert_true(watches(&g, OWN + 5, WF_VIGIL_WELL));
    pass(&g, TIMEOUT, OWN + 4);
    assert_true(watches(&g, OWN + 4, WF_VIGIL_DEAD));
    wf_gossip_note(&g.gossip, OWN + 4, WF_BOARD_DEAD);
    look(&g);
    assert_false(watches(&g, OWN + 4, WF_VIGIL_DEAD));
    guard_close(&g);
}

static void an_alert_that_is_heard_lasts_as_long_as_the_others(void **state)
{
    guard g;

    (void)state;
    guard_open(&g);
    wf_vigil_hear_alert(&g.vigil, 0, g.now);
    assert_true(is_calm(&g));
    wf_vigil_hear_alert(&g.vigil, WF_SEC, g.now);
    assert_true(wf_vigil_is_due(&g.vigil, g.now)); /* it is passed on */
    look(&g);
    assert_false(wf_vigil_is_due(&g.vigil, g.now));
    assert_true(g.count == 7);
    wf_vigil_hear_alert(&g.vigil, WF_MS, g.now);
    assert_true(wf_vigil_alert_left(&g.vigil, g.now) == WF_SEC);
    assert_false(wf_vigil_is_due(&g.vigil, g.now));
    wf_vigil_hear_alert(&g.vigil, UINT64_MAX, g.now);
    assert_true(wf_vigil_alert_left(&g.vigil, g.now) == TIMEOUT / 2);
    guard_close(&g);
}

/* A heartbeat says what was left when it was sent. */
static void an_alert_ends_though_heartbeats_take_a_while(void **state)
{
    const uint64_t under_way = 20 * WF_MS;
    guard g[2];
    uint64_t left;

    (void)state;
    guard_open(&g[0]);
    guard_open(&g[1]);
    wf_vigil_alert(&g[0].vigil, START);
    for (unsigned i = 0; i * under_way < TIMEOUT; i++) {
        left = wf_vigil_alert_left(&g[i % 2].vigil, g[0].now);
        g[0].now += under_way;
        wf_vigil_hear_alert(&g[1 - i % 2].vigil, left, g[0].now);
        assert_true(i > 0 || left > 0);
    }
    g[1].now = g[0].now;
    assert_true(is_calm(&g[0]));
    assert_true(is_calm(&g[1]));
    guard_close(&g[0]);
    guard_close(&g[1]);
}

static bool never(void *ctx, uint32_t node)
{
    (void)ctx;
    (void)node;
    return false;
}

static void connections_are_opened_after_a_death_only(void **state)
{
    guard g;

    (void)state;
    guard_open(&g);
    g.vigil.connected = never;
    assert_true(wf_vigil_wary_until(&g.vigil, g.now) <= g.now);
    wf_vigil_alert(&g.vigil, g.now);
    assert_true(wf_vigil_wary_until(&g.vigil, g.now) > g.now);
    look(&g);
    assert_int_equal(g.count, 2);
    wf_vigil_death(&g.vigil, g.now);
    assert_true(wf_vigil_wary_until(&g.vigil, g.now) <= g.now);
    look(&g);
    assert_int_equal(g.count, 7);
    /* That they are watched is no sign of life. */
    assert_false(wf_vigil_heard_since(&g.vigil, OWN + 4, START - 1));
    wf_vigil_hear(&g.vigil, OWN + 4, g.now);
    assert_true(wf_vigil_heard_since(&g.vigil, OWN + 4, START - 1));
    guard_close(&g);
}

static void time_in_which_it_did_not_look_is_nobodys_silence(void **state)
{
    guard g;

    (void)state;
    guard_open(&g);
    g.now += 10 * TIMEOUT;
    look(&g);
    assert_true(is_calm(&g));
    assert_true(watches(&g, OWN + 1, WF_VIGIL_WELL));
    guard_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_calm_the_two_beside_it_are_watched),
        cmocka_unit_test(silence_alerts_and_all_neighbours_are_watched),
        cmocka_unit_test(a_node_is_dead_when_it_was_silent_for_the_timeout),
        cmocka_unit_test(a_silent_node_is_watched_until_it_is_dead),
        cmocka_unit_test(an_alert_that_is_heard_lasts_as_long_as_the_others),
        cmocka_unit_test(an_alert_ends_though_heartbeats_take_a_while),
        cmocka_unit_test(connections_are_opened_after_a_death_only),
        cmocka_unit_test(time_in_which_it_did_not_look_is_nobodys_silence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
