/* SPDX-License-Identifier: Apache-2.0 */
/* The trees of the message engine: who talks to whom, for every group that is
 * not too large and several roots. */
#include "coll/message/tree.h"

#include <string.h>

#include "wt_cmocka.h"

enum { RANKS_MAX = 1024 };

typedef struct walk {
    uint32_t size;
    uint32_t root;
    uint32_t last_round;
    uint32_t visits[RANKS_MAX]; /* by rank */
    uint32_t below[RANKS_MAX];  /* by number: itself and all that hang below */
} walk;

static walk the_walk;

static uint32_t log2_rounded_up(uint32_t n)
{
    uint32_t rounds = 0;

    while (n > (uint64_t)1 << rounds) {
        rounds++;
    }
    return rounds;
}

/* Reach `number` in `round`, then all below it, the farthest first and one in
 * each round, as the engine sends. */
static void reach(walk *w, uint32_t number, uint32_t round)
{
    w->visits[tree_rank(number, w->root, w->size)]++;
    w->below[number] = 1;
    w->last_round = round > w->last_round ? round : w->last_round;
    for (uint32_t m = tree_span(number, w->size) >> 1; m > 0; m >>= 1) {
        uint32_t child = number + m;

        if (child < w->size) {
            reach(w, child, ++round);
            w->below[number] += w->below[child];
        }
    }
}

static const walk *walk_from(uint32_t root, uint32_t size)
{
    walk *w = &the_walk;

    memset(w, 0, sizeof(*w));
    w->size = size;
    w->root = root;
    reach(w, 0, 0);
    return w;
}

typedef void check_group(uint32_t root, uint32_t size);

static void for_all_groups(check_group *check)
{
    for (uint32_t size = 1; size <= RANKS_MAX; size++) {
        const uint32_t roots[] = {0, 1 % size, size / 3, size / 2, size - 1};

        for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
            check(roots[i], size);
        }
    }
}

static void check_numbers(uint32_t root, uint32_t size)
{
    assert_int_equal(tree_number(root, root, size), 0);
    assert_int_equal(tree_rank(0, root, size), root);
    for (uint32_t rank = 0; rank < size; rank++) {
        uint32_t number = tree_number(rank, root, size);

        assert_true(number < size);
        assert_int_equal(tree_rank(number, root, size), rank);
    }
}

static void each_rank_has_one_number_and_the_root_has_0(void **state)
{
    (void)state;
    for_all_groups(check_numbers);
}

static void check_reached(uint32_t root, uint32_t size)
{
    const walk *w = walk_from(root, size);

    for (uint32_t rank = 0; rank < size; rank++) {
        assert_int_equal(w->visits[rank], 1);
    }
}

static void every_rank_is_reached_once_from_the_root(void **state)
{
    (void)state;
    for_all_groups(check_reached);
}

static void check_rounds(uint32_t root, uint32_t size)
{
    assert_int_equal(walk_from(root, size)->last_round, log2_rounded_up(size));
}

static void the_last_is_reached_after_log2_of_size_rounds(void **state)
{
    (void)state;
    for_all_groups(check_rounds);
}

/* A number's parent is itself less its span: the engine receives from there. */
static void check_parents(uint32_t root, uint32_t size)
{
    (void)root;
    for (uint32_t number = 0; number < size; number++) {
        uint32_t span = tree_span(number, size);

        for (uint32_t m = span >> 1; m > 0 && number + m < size; m >>= 1) {
            assert_int_equal(tree_span(number + m, size), m);
        }
        if (number != 0) {
            assert_true(span <= number);
            assert_true(span < tree_span(number - span, size));
        }
    }
}

static void parents_and_children_agree(void **state)
{
    (void)state;
    for_all_groups(check_parents);
}

static void check_below(uint32_t root, uint32_t size)
{
    const walk *w = walk_from(root, size);

    for (uint32_t number = 0; number < size; number++) {
        uint32_t span = tree_span(number, size);
        uint32_t left = size - number;

        assert_int_equal(w->below[number], span < left ? span : left);
    }
}

/* So a partial result covers neighbours, and folds are in the order of ranks.
 */
static void below_a_number_hang_the_numbers_that_follow_it(void **state)
{
    (void)state;
    for_all_groups(check_below);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_has_one_number_and_the_root_has_0),
        cmocka_unit_test(every_rank_is_reached_once_from_the_root),
        cmocka_unit_test(the_last_is_reached_after_log2_of_size_rounds),
        cmocka_unit_test(parents_and_children_agree),
        cmocka_unit_test(below_a_number_hang_the_numbers_that_follow_it),
    };

    return cmocka_run_group_tests_name("tree", tests, NULL, NULL);
}
