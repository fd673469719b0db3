/* SPDX-License-Identifier: Apache-2.0 */
/* Who is on which node, and how operations over several nodes are cut. */
#include "coll/hosts/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/types.h"
#include "coll/hosts/shape.h"
#include "wt_cmocka.h"

enum { RANKS_MAX = 2048 };

static const char *const texts[] = {"aabb",   "abab",     "abbb",
                                    "aabab",  "abcdefgh", "aabbccdd",
                                    "cbabca", "aaaaab",   "abcabcabcc"};

enum { TEXTS = sizeof(texts) / sizeof(texts[0]) };

static void make(wf_layout *l, const char *text, uint32_t rank)
{
    uint32_t node[64];
    uint32_t size = (uint32_t)strlen(text);

    for (uint32_t r = 0; r < size; r++) {
        node[r] = (uint32_t)(text[r] - 'a');
    }
    assert_int_equal(wf_layout_init(l, node, size, rank), WEFT_OK);
}

/* `nodes` with `members` each. */
static void make_even(wf_layout *l, uint32_t nodes, uint32_t members,
                      uint32_t rank)
{
    uint32_t *node = malloc(nodes * members * sizeof(*node));

    assert_non_null(node);
    for (uint32_t r = 0; r < nodes * members; r++) {
        node[r] = r / members;
    }
    assert_int_equal(wf_layout_init(l, node, nodes * members, rank), WEFT_OK);
    free(node);
}

/* --- layouts -------------------------------------------------------------- */

static void members_are_listed_by_node_in_the_order_of_ranks(void **state)
{
    wf_layout l;

    (void)state;
    make(&l, "cbabca", 4);
    assert_int_equal(l.nodes, 3);
    assert_int_equal(l.rails, 2);
    assert_int_equal(l.node, 0);
    assert_int_equal(l.local, 1);
    assert_int_equal(wf_layout_member(&l, 0, 0), 0);
    assert_int_equal(wf_layout_member(&l, 0, 1), 4);
    assert_int_equal(wf_layout_member(&l, 1, 1), 3);
    assert_int_equal(wf_layout_member(&l, 2, 0), 2);
    wf_layout_fini(&l);
}

static void every_rank_has_one_place_in_its_nodes_run(void **state)
{
    (void)state;
    for (unsigned t = 0; t < TEXTS; t++) {
        wf_layout l;
        bool seen[64] = {false};

        make(&l, texts[t], 0);
        for (uint32_t r = 0; r < l.size; r++) {
            uint32_t at = l.place[r];
            uint32_t runs = 0;

            assert_true(at < l.size && !seen[at]);
            seen[at] = true;
            assert_int_equal(l.placed[at], r);
            for (uint32_t i = 0; i < l.rails; i++) {
                const uint32_t *run = &l.run[i * l.nodes + l.node_of[r]];

                runs += run[0] <= at && at < run[1];
                /* No rail is without a block of a node. */
                assert_true(run[0] < run[1]);
            }
            assert_int_equal(runs, 1);
        }
        wf_layout_fini(&l);
    }
}

static void each_rail_has_one_driver_a_node_and_nobody_two(void **state)
{
    (void)state;
    for (unsigned t = 0; t < TEXTS; t++) {
        wf_layout l;
        uint32_t out[64];

        make(&l, texts[t], 0);
        for (uint32_t rails = 1; rails <= l.rails; rails++) {
            bool seen[64] = {false};

            for (uint32_t i = 0; i < rails; i++) {
                wf_layout_drivers(&l, i, rails, out);
                for (uint32_t n = 0; n < l.nodes; n++) {
                    wf_layout own;

                    assert_int_equal(l.node_of[out[n]], n);
                    assert_false(seen[out[n]]);
                    seen[out[n]] = true;
                    make(&own, texts[t], out[n]);
                    assert_int_equal(wf_layout_rail(&own, rails), i);
                    wf_layout_fini(&own);
                }
            }
        }
        wf_layout_fini(&l);
    }
}

/* --- shapes --------------------------------------------------------------- */

static const wf_call_kind kinds[] = {WF_CALL_ALLREDUCE, WF_CALL_REDUCE,
                                     WF_CALL_BROADCAST, WF_CALL_ALLGATHER,
                                     WF_CALL_REDUCE_SCATTER};

enum { KINDS = 5 };

static wf_call call_of(wf_call_kind kind, uint64_t count, uint32_t root)
{
    return (wf_call){
        .kind = (uint8_t)kind, .type = WEFT_F32, .count = count, .root = root};
}

static wf_shape shape_of(const wf_layout *l, const wf_call *call,
                         uint64_t chunk)
{
    wf_shape_limits limits = {.slot = wf_shape_slot(l->size, l->nodes, chunk),
                              .along = 64,
                              .fixed = chunk != UINT64_MAX};
    wf_shape shape;

    wf_shape_init(&shape, l, call, true, &limits);
    assert_true(wf_shape_work(&shape, l, 0) <= limits.slot);
    return shape;
}

/* Shares, and rails, lie behind each other and are all of the work area. */
static void check_cover(const wf_layout *l, const wf_shape *s)
{
    for (uint64_t k = 0; k < s->rounds; k++) {
        size_t work = wf_shape_work(s, l, k);
        size_t at = 0;

        for (uint32_t m = 0; m < l->most; m++) {
            wf_range r = wf_shape_share(s, l, k, m, l->most);

            assert_int_equal(r.from, at);
            at = r.until;
        }
        assert_int_equal(at, work);
        at = 0;
        for (uint32_t i = 0; i < s->rails; i++) {
            wf_range r = wf_shape_rail(s, l, k, i);

            assert_int_equal(r.from, at);
            at = r.until;
        }
        assert_int_equal(at, work);
    }
}

static void rounds_shares_and_rails_are_all_of_the_data(void **state)
{
    static const uint64_t counts[] = {17, 301, 5003, 200003};

    (void)state;
    for (unsigned i = 0; i < TEXTS * KINDS * 4; i++) {
        wf_layout l;
        wf_call call = call_of(kinds[i % KINDS], counts[i / KINDS % 4], 1);
        wf_shape s;

        make(&l, texts[i / KINDS / 4], 0);
        s = shape_of(&l, &call, i % 2 == 0 ? UINT64_MAX : 4096);
        assert_int_equal(s.way, WF_SHAPE_RAILS);
        assert_true(s.rounds * s.chunk >= s.bytes);
        assert_true((s.rounds - 1) * s.chunk < s.bytes);
        check_cover(&l, &s);
        wf_layout_fini(&l);
    }
}

/* What two drivers of a rail send each other has the same length for both, and
 * fits where it lands. */
static void pieces_fit_where_they_land(void **state)
{
    (void)state;
    for (unsigned i = 0; i < TEXTS * KINDS; i++) {
        wf_layout l;
        wf_call call = call_of(kinds[i % KINDS], 50021, 1);
        wf_shape s;

        make(&l, texts[i / KINDS], 0);
        s = shape_of(&l, &call, UINT64_MAX);
        for (uint32_t n = 0; n < l.nodes; n++) {
            wf_plan plan;
            size_t longest;

            wf_shape_plan(&s, &l, &call, n, &plan);
            longest = wf_shape_longest(&s, &l, &plan);
            for (uint64_t at = 0; at < wf_plan_length(&plan); at++) {
                wf_step step;

                wf_plan_at(&plan, at, &step);
                for (uint32_t k = 0; k < s.rails; k++) {
                    wf_range r =
                        wf_shape_piece(&s, &l, &plan, k, &step, step.recv);
                    size_t work =
                        wf_shape_work(&s, &l, step.chunk / plan.width);

                    if (step.from != WF_NOBODY) {
                        assert_true(r.from <= r.until && r.until <= work);
                        assert_true(r.until - r.from <= longest);
                    }
                }
            }
        }
        wf_layout_fini(&l);
    }
}

static void note(bool *seen, uint32_t node)
{
    if (node != WF_NOBODY) {
        seen[node] = true;
    }
}

/* Partners of a speaker that also drives a rail: the most that any has. */
static uint32_t partners(const wf_layout *l, const wf_call *call,
                         const wf_shape *s, uint32_t node)
{
    bool seen[RANKS_MAX] = {false};
    uint32_t count = 0;
    wf_plan plan;
    wf_step step;

    (void)wf_plan_make(&plan, WF_CALL_BARRIER, WF_BY_DISSEMINATION, l->nodes,
                       node, 0, 1);
    for (uint64_t at = 0; at < plan.steps; at++) {
        wf_plan_at(&plan, at, &step);
        note(seen, step.to);
        note(seen, step.from);
    }
    wf_shape_plan(s, l, call, node, &plan);
    for (uint64_t at = 0; at < plan.steps * plan.width; at++) {
        wf_plan_at(&plan, at, &step);
        note(seen, step.to);
        note(seen, step.from);
    }
    for (uint32_t n = 0; n < l->nodes; n++) {
        count += seen[n];
    }
    return count;
}

static void check_partners(uint32_t nodes, wf_call_kind kind, uint64_t count)
{
    wf_layout l;
    wf_call call;
    wf_shape s;
    uint32_t bound = 2 * wf_rounds(nodes) + 2;

    make_even(&l, nodes, 2, 0);
    call = call_of(kind, count, (nodes - 1) / 2);
    s = shape_of(&l, &call, UINT64_MAX);
    for (uint32_t n = 0; n < nodes; n++) {
        uint32_t has = partners(&l, &call, &s, n);

        if (has > bound) {
            fail_msg("%s of %u f32 on %u nodes by %s: node %u has %u partners",
                     wf_call_name((uint8_t)kind), (unsigned)count, nodes,
                     wf_algorithm_name(s.choice.how), n, has);
        }
    }
    wf_layout_fini(&l);
}

static void no_rank_has_more_than_2_log2_nodes_and_2_partners(void **state)
{
    static const uint32_t more[] = {100, 128, 200, 256, 511, 1000};
    static const uint64_t counts[] = {100, 3000, 50000, 10000000};

    (void)state;
    for (unsigned i = 0; i < KINDS * 4; i++) {
        for (uint32_t nodes = 2; nodes <= 70; nodes++) {
            check_partners(nodes, kinds[i % KINDS], counts[i / KINDS]);
        }
        for (unsigned k = 0; k < 6; k++) {
            check_partners(more[k], kinds[i % KINDS], counts[i / KINDS]);
        }
    }
}

static void small_data_goes_along_and_other_calls_go_plainly(void **state)
{
    wf_shape_limits limits = {.slot = 1 << 20, .along = 1024};
    wf_layout l;
    wf_shape s;
    wf_call call = call_of(WF_CALL_ALLREDUCE, 256, 0);

    (void)state;
    make(&l, "aabab", 0);
    wf_shape_init(&s, &l, &call, true, &limits);
    assert_int_equal(s.way, WF_SHAPE_ALONG);
    call.count = 257;
    wf_shape_init(&s, &l, &call, true, &limits);
    assert_int_equal(s.way, WF_SHAPE_RAILS);
    wf_shape_init(&s, &l, &call, false, &limits);
    assert_int_equal(s.way, WF_SHAPE_MEET);
    call.count = 0;
    wf_shape_init(&s, &l, &call, true, &limits);
    assert_int_equal(s.way, WF_SHAPE_MEET);
    /* The largest node brings three blocks. */
    call = call_of(WF_CALL_ALLGATHER, 85, 0);
    wf_shape_init(&s, &l, &call, true, &limits);
    assert_int_equal(s.way, WF_SHAPE_ALONG);
    call.count = 86;
    wf_shape_init(&s, &l, &call, true, &limits);
    assert_int_equal(s.way, WF_SHAPE_RAILS);
    call.kind = WF_CALL_ALLTOALL;
    wf_shape_init(&s, &l, &call, true, &limits);
    assert_int_equal(s.way, WF_SHAPE_PLAIN);
    wf_layout_fini(&l);
}

/* One tree costs the root all bytes several times, two trees twice as many
 * steps. */
static void small_data_takes_one_tree_and_large_data_two(void **state)
{
    static const wf_call_kind rooted[] = {WF_CALL_REDUCE, WF_CALL_BROADCAST};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        for (uint32_t nodes = 2; nodes <= 70; nodes++) {
            wf_algorithm large = nodes < 4 ? WF_BY_BINOMIAL : WF_BY_DOUBLE_TREE;

            assert_int_equal(wf_hosts_choose(rooted[i], 32 << 10, nodes)->how,
                             WF_BY_BINOMIAL);
            assert_int_equal(wf_hosts_choose(rooted[i], 64 << 10, nodes)->how,
                             large);
            assert_int_equal(wf_hosts_choose(rooted[i], 1 << 30, nodes)->how,
                             large);
        }
    }
}

/* With more than 16384 ranks those with a block for each rank go plainly. */
static void slots_have_room_for_blocks_only_where_blocks_need_them(void **state)
{
    const uint64_t chosen = UINT64_MAX;

    (void)state;
    assert_int_equal(wf_shape_slot(16384, 256, chosen), 1 << 20);
    assert_int_equal(wf_shape_slot(16448, 257, chosen), 256 << 10);
    assert_int_equal(wf_shape_slot(100000, 1563, chosen), 256 << 10);
    assert_int_equal(wf_shape_slot(100000, 1563, 1), 4 << 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            slots_have_room_for_blocks_only_where_blocks_need_them),
        cmocka_unit_test(members_are_listed_by_node_in_the_order_of_ranks),
        cmocka_unit_test(every_rank_has_one_place_in_its_nodes_run),
        cmocka_unit_test(each_rail_has_one_driver_a_node_and_nobody_two),
        cmocka_unit_test(rounds_shares_and_rails_are_all_of_the_data),
        cmocka_unit_test(pieces_fit_where_they_land),
        cmocka_unit_test(no_rank_has_more_than_2_log2_nodes_and_2_partners),
        cmocka_unit_test(small_data_goes_along_and_other_calls_go_plainly),
        cmocka_unit_test(small_data_takes_one_tree_and_large_data_two),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
