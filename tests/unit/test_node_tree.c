/* SPDX-License-Identifier: Apache-2.0 */
/* Who tells whom among the members of a group, in jobs that exist on paper
 * only. */
#include "comm/node_tree.h"

#include <stdlib.h>
#include <string.h>

#include "comm/control.h"
#include "comm/mail.h"
#include "wt_cmocka.h"

/* A job as one rank after the other sees it. */
typedef struct job {
    weft_world world;
    wf_host host;
    wf_plane plane;
    uint32_t *members; /* of a group */
    uint32_t size;
    uint64_t dice;
} job;

static uint32_t roll(job *j, uint32_t n)
{
    j->dice = j->dice * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(j->dice >> 33) % n;
}

static void job_open(job *j, uint32_t ranks, uint32_t nodes, uint64_t seed)
{
    memset(j, 0, sizeof(*j));
    j->dice = seed;
    j->host.ranks = ranks;
    j->host.nodes = nodes;
    j->host.peer = calloc(ranks, sizeof(*j->host.peer));
    j->host.board = aligned_alloc(64, wf_board_size(ranks, 0));
    j->members = calloc(ranks, sizeof(*j->members));
    assert_non_null(j->host.peer);
    assert_non_null(j->host.board);
    assert_non_null(j->members);
    memset(j->host.board, 0, wf_board_size(ranks, 0));
    j->world.host = &j->host;
    if (nodes > 1) {
        j->world.plane = &j->plane;
        assert_int_equal(wf_node_tree_init(&j->plane.notes, nodes), WEFT_OK);
    }
    for (uint32_t r = 0; r < ranks; r++) {
        j->host.peer[r].node = r < nodes ? r : roll(j, nodes);
        atomic_store(&wf_host_entry(&j->host, r)->state, WF_BOARD_HERE);
    }
}

static void job_close(job *j)
{
    if (j->world.plane != NULL) {
        wf_node_tree_fini(&j->plane.notes);
    }
    free(j->host.peer);
    free(j->host.board);
    free(j->members);
}

/* Some ranks, in any order. */
static void pick_members(job *j, uint32_t size)
{
    uint32_t ranks = j->host.ranks;

    for (uint32_t r = 0; r < ranks; r++) {
        j->members[r] = r;
    }
    for (uint32_t r = ranks; r > 1; r--) {
        uint32_t other = roll(j, r);
        uint32_t moved = j->members[other];

        j->members[other] = j->members[r - 1];
        j->members[r - 1] = moved;
    }
    j->size = size;
}

static uint32_t node_of(const job *j, uint32_t member)
{
    return j->host.peer[j->members[member]].node;
}

static uint32_t log2_up(uint32_t n)
{
    uint32_t bits = 0;

    while ((uint64_t)1 << bits < n) {
        bits++;
    }
    return bits;
}

/* --- numbers -------------------------------------------------------------- */

static void every_node_but_the_first_is_below_one_other(void **state)
{
    (void)state;
    for (uint32_t nodes = 1; nodes < 300; nodes++) {
        uint32_t seen[300] = {0};

        for (uint32_t n = 0; n < nodes; n++) {
            uint32_t child;
            uint32_t partners = n != 0;

            for (uint32_t i = 0; (child = wf_node_tree_down(n, i, nodes)) != 0;
                 i++) {
                assert_int_equal(wf_node_tree_up(child, nodes), n);
                seen[child]++;
                partners++;
            }
            assert_true(partners <= 3);
        }
        for (uint32_t n = 1; n < nodes; n++) {
            assert_int_equal(seen[n], 1);
        }
    }
    assert_int_equal(wf_node_tree_up(UINT32_MAX - 2, UINT32_MAX),
                     UINT32_MAX - 3);
    assert_int_equal(wf_node_tree_down(0, 0, UINT32_MAX), 1u << 5);
    assert_int_equal(wf_node_tree_down(UINT32_MAX - 1, 0, UINT32_MAX), 0);
}

/* Whom a node talks to: the two beside it, and one at the distance of a power
 * of two, whichever that is. */
static void a_node_has_two_partners_beside_it_and_one_chord(void **state)
{
    static const uint32_t many[] = {2, 3, 8, 9, 64, 100, 512, 1000, 1563, 4096};

    (void)state;
    for (unsigned k = 0; k < sizeof(many) / sizeof(many[0]); k++) {
        uint32_t nodes = many[k];
        uint32_t *chord = calloc(nodes, sizeof(*chord));

        assert_non_null(chord);
        for (uint32_t n = 1; n < nodes; n++) {
            uint32_t up = wf_node_tree_up(n, nodes);
            uint32_t distance = n > up ? n - up : up - n;

            assert_int_equal(distance & (distance - 1), 0);
            chord[n] += distance > 1;
            chord[up] += distance > 1;
        }
        for (uint32_t n = 0; n < nodes; n++) {
            assert_true(chord[n] <= 1);
        }
        free(chord);
    }
}

static void there_are_few_steps(void **state)
{
    (void)state;
    assert_int_equal(wf_node_tree_levels(1), 1);
    assert_int_equal(wf_node_tree_levels(2), 2);
    assert_int_equal(wf_node_tree_levels(8), 5);
    assert_int_equal(wf_node_tree_levels(64), 11);
    assert_int_equal(wf_node_tree_levels(1563), 22);
    for (uint32_t nodes = 1; nodes < 300; nodes++) {
        assert_true(wf_node_tree_levels(nodes) <= 2 * log2_up(nodes) + 1);
    }
}

/* --- places --------------------------------------------------------------- */

/* Each member is told by exactly one, to whom it is known; only heads talk to
 * other nodes, each to three at most. */
static void check_places(job *j)
{
    wf_mail_group g = {
        .world = &j->world, .member = j->members, .size = j->size};
    uint32_t *told = calloc(j->size, sizeof(*told));
    uint32_t *parent = calloc(j->size, sizeof(*parent));

    assert_non_null(told);
    assert_non_null(parent);
    for (uint32_t m = 0; m < j->size; m++) {
        uint32_t next = 0;
        uint32_t far = 0;
        uint32_t child;
        wf_node_tree t;

        j->host.rank = j->members[m];
        wf_node_tree_find(&j->world, j->members, j->size, &t);
        assert_int_equal(t.self, m);
        assert_int_equal(node_of(j, t.head), node_of(j, m));
        assert_true(t.head <= m);
        assert_true((t.parent == m) == (m == 0));
        assert_true(t.steps <= wf_node_tree_levels(t.nodes));
        parent[m] = t.parent;
        far = node_of(j, t.parent) != node_of(j, m);
        while (wf_mail_below(&g, &t, &next, &child)) {
            told[child] |= 1u << 31 | m;
            far += node_of(j, child) != node_of(j, m);
        }
        assert_true(far == 0 || t.head == m);
        assert_true(far <= 3);
    }
    for (uint32_t m = 1; m < j->size; m++) {
        assert_int_equal(told[m], 1u << 31 | parent[m]);
    }
    assert_int_equal(told[0], 0);
    free(told);
    free(parent);
}

static void every_member_is_told_by_its_parent_alone(void **state)
{
    static const uint32_t nodes[] = {1, 2, 3, 5, 8, 13, 32};

    (void)state;
    for (unsigned i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
        job j;

        job_open(&j, nodes[i] * 3, nodes[i], i);
        for (uint32_t size = 1; size <= nodes[i] * 3; size++) {
            pick_members(&j, size);
            check_places(&j);
        }
        job_close(&j);
    }
}

/* --- questions ------------------------------------------------------------ */

/* With three ranks a node, of which the first is gone: rank 2 of its node asks
 * the second that is left on the others, each once but for turn 0. */
static void one_of_each_other_node_is_asked_in_turn(void **state)
{
    (void)state;
    for (uint32_t nodes = 2; nodes <= 64; nodes += nodes < 10 ? 1 : 9) {
        uint32_t asked[64] = {0};
        uint32_t turns = (nodes + 14) / 16;
        job j;

        job_open(&j, 3 * nodes, nodes, 0);
        for (uint32_t r = 0; r < 3 * nodes; r++) {
            j.members[r] = r;
            j.host.peer[r].node = r / 3;
            atomic_store(&wf_host_entry(&j.host, r)->state,
                         r % 3 == 0 ? WF_BOARD_LEFT : WF_BOARD_HERE);
        }
        j.size = 3 * nodes;
        j.host.rank = 3 * (nodes / 2) + 2;
        for (uint32_t turn = 0; turn <= turns; turn++) {
            uint32_t far[WF_NODE_TREE_OPPOSITES];
            uint32_t n =
                wf_node_tree_opposites(&j.world, j.members, j.size, turn, far);

            assert_true(n > 0 && n <= 2 * log2_up(nodes) + 16);
            for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(far[i] % 3, 2);
                asked[far[i] / 3] += turn > 0;
            }
        }
        for (uint32_t n = 0; n < nodes; n++) {
            assert_int_equal(asked[n], n != nodes / 2);
        }
        job_close(&j);
    }
}

/* --- ends ----------------------------------------------------------------- */

/* Pass it on as mail.c does; returns how many members heard. */
static uint32_t flood(job *j, uint32_t from, const bool *deaf, bool *heard)
{
    uint32_t *queue = calloc(j->size, sizeof(*queue));
    uint32_t first = 0;
    uint32_t last = 1;
    uint32_t count = 1;

    assert_non_null(queue);
    queue[0] = from;
    heard[from] = true;
    while (first < last) {
        uint32_t m = queue[first++];
        uint32_t far[WF_NODE_TREE_NEIGHBOURS];
        uint32_t n;

        j->host.rank = j->members[m];
        n = wf_node_tree_neighbours(&j->world, j->members, j->size, far);
        assert_true(n <= WF_NODE_TREE_NEIGHBOURS);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(node_of(j, far[i]) != node_of(j, m));
            if (!heard[far[i]] && !deaf[far[i]]) {
                heard[far[i]] = true;
                queue[last++] = far[i];
                count++;
            }
        }
        for (uint32_t i = 0; i < j->size; i++) {
            if (node_of(j, i) == node_of(j, m) && !heard[i] && !deaf[i]) {
                heard[i] = true; /* from a mate: it goes no further */
                count++;
            }
        }
    }
    free(queue);
    return count;
}

/* Two ranks a node; some nodes have lost one, and some both, of which half are
 * known to be dead and the others only do not answer. */
static void an_end_reaches_all_who_listen(void **state)
{
    (void)state;
    for (uint32_t nodes = 1; nodes <= 64; nodes++) {
        job j;

        job_open(&j, 2 * nodes, nodes, nodes);
        for (uint32_t r = 0; r < 2 * nodes; r++) {
            j.host.peer[r].node = r / 2;
        }
        for (unsigned turn = 0; turn < 8; turn++) {
            bool *deaf = calloc(2 * nodes, sizeof(*deaf));
            bool *heard = calloc(2 * nodes, sizeof(*heard));
            uint32_t lost = roll(&j, log2_up(nodes) + 1);
            uint32_t listening = 0;

            assert_non_null(deaf);
            assert_non_null(heard);
            for (uint32_t r = 0; r < 2 * nodes; r++) {
                j.members[r] = r;
                atomic_store(&wf_host_entry(&j.host, r)->state, WF_BOARD_HERE);
            }
            j.size = 2 * nodes;
            for (uint32_t i = 0; i < lost; i++) {
                uint32_t r = 2 + roll(&j, 2 * nodes - 2);

                deaf[r] = true;
                deaf[r ^ 1] |= i % 2 != 0;
                atomic_store(&wf_host_entry(&j.host, r)->state,
                             roll(&j, 2) ? WF_BOARD_DEAD : WF_BOARD_HERE);
            }
            for (uint32_t r = 0; r < 2 * nodes; r++) {
                listening += !deaf[r];
            }
            assert_int_equal(flood(&j, 0, deaf, heard), listening);
            free(deaf);
            free(heard);
        }
        job_close(&j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_node_but_the_first_is_below_one_other),
        cmocka_unit_test(a_node_has_two_partners_beside_it_and_one_chord),
        cmocka_unit_test(there_are_few_steps),
        cmocka_unit_test(every_member_is_told_by_its_parent_alone),
        cmocka_unit_test(one_of_each_other_node_is_asked_in_turn),
        cmocka_unit_test(an_end_reaches_all_who_listen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
