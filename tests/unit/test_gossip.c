/* SPDX-License-Identifier: Apache-2.0 */
/* Who is told of deaths, in jobs that exist on paper only. */
#include "comm/gossip.h"

#include <stdlib.h>
#include <string.h>

#include "mem/board.h"
#include "wt_cmocka.h"

enum { NODES_MAX = 64, ROOM = 4 };

/* One rank speaks for each node; a rank of a node dies with it. */
typedef struct job {
    uint32_t nodes;
    uint32_t ranks; /* of all nodes */
    uint32_t *node_of;
    wf_gossip node[NODES_MAX];
    bool dead[NODES_MAX];
    unsigned long sent;
    uint64_t dice;
} job;

static uint32_t roll(job *j, uint32_t n)
{
    j->dice = j->dice * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(j->dice >> 33) % n;
}

static void job_open(job *j, uint32_t nodes, uint32_t per_node, uint64_t seed)
{
    memset(j, 0, sizeof(*j));
    j->nodes = nodes;
    j->ranks = nodes * per_node;
    j->dice = seed;
    j->node_of = calloc(j->ranks, sizeof(*j->node_of));
    assert_non_null(j->node_of);
    for (uint32_t r = 0; r < j->ranks; r++) {
        j->node_of[r] = r % nodes; /* not in order */
    }
    for (uint32_t n = 0; n < nodes; n++) {
        assert_int_equal(
            wf_gossip_init(&j->node[n], j->node_of, j->ranks, nodes, n),
            WEFT_OK);
    }
}

static void job_close(job *j)
{
    for (uint32_t n = 0; n < j->nodes; n++) {
        wf_gossip_fini(&j->node[n]);
    }
    free(j->node_of);
}

/* One node sends its list, or what is new, to another. */
static void send_list(job *j, uint32_t from, uint32_t to, bool untold)
{
    wf_gone part[ROOM];
    uint32_t at = 0;
    size_t n;

    do {
        n = wf_gossip_list(&j->node[from], untold, &at, part, ROOM);
        j->sent++;
        for (size_t i = 0; i < n; i++) {
            assert_true(wf_gossip_check(&j->node[to], &part[i]));
            for (uint32_t r = 0; r < part[i].count; r++) {
                wf_gossip_note(&j->node[to], part[i].first + r, part[i].state);
            }
        }
    } while (n == ROOM);
}

/* Every living node tells what it has not told; true if one had something. */
static bool tell_round(job *j)
{
    static bool due[NODES_MAX];
    bool any = false;

    for (uint32_t n = 0; n < j->nodes; n++) {
        due[n] = !j->dead[n] && j->node[n].untold > 0;
    }
    for (uint32_t n = 0; n < j->nodes; n++) {
        uint32_t to[WF_GOSSIP_NEIGHBOURS];
        uint32_t count = wf_gossip_neighbours(&j->node[n], to);

        for (uint32_t i = 0; due[n] && i < count; i++) {
            if (!j->dead[to[i]]) {
                send_list(j, n, to[i], true);
            }
        }
        if (due[n]) {
            wf_gossip_told(&j->node[n]);
            any = true;
        }
    }
    return any;
}

/* Every living node compares digests with its neighbours. */
static bool digest_round(job *j)
{
    bool any = false;

    for (uint32_t n = 0; n < j->nodes; n++) {
        uint32_t to[WF_GOSSIP_NEIGHBOURS];
        uint32_t count = wf_gossip_neighbours(&j->node[n], to);

        for (uint32_t i = 0; !j->dead[n] && i < count; i++) {
            wf_digest digest = wf_gossip_digest(&j->node[n]);

            if (j->dead[to[i]]) { /* silent for too long */
                const wf_gossip *g = &j->node[n];

                for (uint32_t m = g->start[to[i]]; m < g->start[to[i] + 1];
                     m++) {
                    any |= wf_gossip_note(&j->node[n], g->member[m],
                                          WF_BOARD_DEAD);
                }
            } else if (!wf_gossip_agrees(&j->node[to[i]], &digest)) {
                send_list(j, to[i], n, false);
                if (j->node[n].gone > j->node[to[i]].gone) {
                    send_list(j, n, to[i], false);
                }
                any = true;
            }
        }
    }
    return any;
}

static void check_all_know(const job *j, uint32_t gone)
{
    for (uint32_t n = 0; n < j->nodes; n++) {
        if (!j->dead[n]) {
            assert_int_equal(j->node[n].gone, gone);
        }
    }
}

static uint32_t log2_up(uint32_t n)
{
    uint32_t bits = 0;

    while (1u << bits < n) {
        bits++;
    }
    return bits;
}

static void kill_node(job *j, uint32_t node)
{
    j->dead[node] = true;
}

static void a_death_is_heard_by_all_within_log_steps(void **state)
{
    static job j;

    (void)state;
    for (uint32_t nodes = 2; nodes <= NODES_MAX; nodes++) {
        unsigned rounds = 0;

        job_open(&j, nodes, 3, nodes);
        wf_gossip_note(&j.node[nodes / 2], roll(&j, j.ranks), WF_BOARD_DEAD);
        while (tell_round(&j)) {
            rounds++;
        }
        check_all_know(&j, 1);
        assert_true(rounds <= log2_up(nodes) + 1);
        assert_true(j.sent <= (unsigned long)nodes * 2 * (log2_up(nodes) + 1));
        job_close(&j);
    }
}

static void neighbours_are_few_and_alive(void **state)
{
    static job j;
    uint32_t to[WF_GOSSIP_NEIGHBOURS];

    (void)state;
    for (uint32_t nodes = 1; nodes <= NODES_MAX; nodes++) {
        uint32_t count;

        job_open(&j, nodes, 1, nodes);
        for (uint32_t n = 1; n < nodes; n += 2) {
            wf_gossip_note(&j.node[0], n, WF_BOARD_LEFT);
        }
        count = wf_gossip_neighbours(&j.node[0], to);
        assert_true(count <= 2 * log2_up(nodes + 1));
        assert_true(nodes < 3 || count > 0);
        for (uint32_t i = 0; i < count; i++) {
            assert_true(to[i] % 2 == 0 && to[i] != 0);
            for (uint32_t k = 0; k < i; k++) {
                assert_true(to[i] != to[k]);
            }
        }
        job_close(&j);
    }
}

/* Nodes die all the time, also with what they were about to tell. */
static void every_living_node_hears_everything_though_others_die(void **state)
{
    static job j;

    (void)state;
    for (uint32_t nodes = 2; nodes <= NODES_MAX; nodes++) {
        for (uint64_t seed = 0; seed < 8; seed++) {
            uint32_t gone = 0;
            unsigned rounds = 0;

            job_open(&j, nodes, 2, seed * 1000 + nodes);
            for (unsigned i = 0; i < nodes / 2; i++) {
                uint32_t node = roll(&j, nodes);
                uint32_t rank = node; /* its first one dies alone */

                if (!j.dead[node]) {
                    wf_gossip_note(&j.node[node], rank, WF_BOARD_DEAD);
                    if (roll(&j, 2) == 0) {
                        kill_node(&j, node);
                    }
                }
                if (roll(&j, 3) == 0) {
                    tell_round(&j);
                }
            }
            while (tell_round(&j) || digest_round(&j)) {
                rounds++;
                assert_true(rounds < 4 * nodes + 16);
            }
            for (uint32_t n = 0; n < nodes; n++) {
                if (!j.dead[n]) {
                    gone = j.node[n].gone;
                }
            }
            check_all_know(&j, gone);
            for (uint32_t n = 0; n < nodes; n++) {
                for (uint32_t d = 0; d < nodes; d++) {
                    assert_true(j.dead[n] || !j.dead[d] ||
                                j.node[n].living[d] == 0);
                }
            }
            job_close(&j);
        }
    }
}

static void the_lowest_living_rank_speaks(void **state)
{
    static job j;
    wf_gossip *g = &j.node[0];

    (void)state;
    job_open(&j, 2, 3, 0); /* ranks 1, 3 and 5 are on node 1 */
    assert_int_equal(wf_gossip_living(g, 1, 0), 1);
    assert_int_equal(wf_gossip_living(g, 1, 1), 3);
    assert_true(wf_gossip_note(g, 1, WF_BOARD_DEAD));
    assert_false(wf_gossip_note(g, 1, WF_BOARD_LEFT));
    assert_int_equal(wf_gossip_living(g, 1, 0), 3);
    assert_int_equal(wf_gossip_living(g, 1, 2), WF_GOSSIP_NOBODY);
    job_close(&j);
}

static void a_malformed_part_of_a_list_is_refused(void **state)
{
    static job j;
    const wf_gossip *g = &j.node[0];

    (void)state;
    job_open(&j, 2, 2, 0);
    assert_true(wf_gossip_check(g, &(wf_gone){0, 4, WF_BOARD_DEAD}));
    assert_false(wf_gossip_check(g, &(wf_gone){0, 5, WF_BOARD_DEAD}));
    assert_false(wf_gossip_check(g, &(wf_gone){4, 1, WF_BOARD_DEAD}));
    assert_false(wf_gossip_check(g, &(wf_gone){1, 0, WF_BOARD_DEAD}));
    assert_false(wf_gossip_check(g, &(wf_gone){1, UINT32_MAX, WF_BOARD_LEFT}));
    assert_false(wf_gossip_check(g, &(wf_gone){1, 1, WF_BOARD_HERE}));
    assert_false(wf_gossip_check(g, &(wf_gone){1, 1, 99}));
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_is_heard_by_all_within_log_steps),
        cmocka_unit_test(neighbours_are_few_and_alive),
        cmocka_unit_test(every_living_node_hears_everything_though_others_die),
        cmocka_unit_test(the_lowest_living_rank_speaks),
        cmocka_unit_test(a_malformed_part_of_a_list_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
