/* SPDX-License-Identifier: Apache-2.0 */
/* Those who are left after a death make a communicator out of the broken one,
 * on one node and on several, which are pretended; or go on without a rank that
 * is stuck, or that they do not want. */
#include <stdio.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_fault.h"

#define MOST_RANKS 8

/* Set before the ranks are forked. */
static struct {
    const char *nodes;
    unsigned victim;
} job;

static const char *settings_of(unsigned rank)
{
    static _Thread_local char text[64];

    snprintf(text, sizeof(text), "TIMEOUT=60s NODE=%c", job.nodes[rank]);
    return text;
}

static void run(const char *nodes, unsigned victim, wt_body *body)
{
    job.nodes = nodes;
    job.victim = victim;
    wt_run_job(&(wt_job){.ranks = (unsigned)strlen(nodes),
                         .settings_of = settings_of,
                         .body = body,
                         .doomed = 1u << victim});
    wt_expect_no_names();
}

/* The victim dies; the others are told so. */
static void lose_one(weft_comm *comm)
{
    int64_t x = 1;
    weft_status st = WEFT_OK;

    WT_OK(weft_barrier(comm));
    /* Nobody is in it any more when one dies. */
    wt_word_add(1, 1);
    wt_word_await(1, wt_ranks());
    if (wt_rank() == job.victim) {
        wt_strike(WT_BLOW_KILL);
    }
    while (st == WEFT_OK) {
        st = weft_allreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM);
    }
    WT_STATUS(st, WEFT_ERR_PEER);
}

/* All but the victim, from the last to the first. */
static size_t living(uint32_t *out)
{
    size_t n = 0;

    for (unsigned r = wt_ranks(); r-- > 0;) {
        if (r != job.victim) {
            out[n++] = r;
        }
    }
    return n;
}

static void go_on_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *left[2];
    uint32_t ranks[MOST_RANKS];
    size_t n = living(ranks);

    lose_one(comm);
    for (unsigned i = 0; i < 2; i++) {
        int64_t x = 1;

        WT_OK(weft_comm_subset(comm, ranks, n, &left[i]));
        WT_CHECK(weft_comm_size(left[i]) == n);
        WT_CHECK(weft_comm_world_rank(left[i], 0) == ranks[0]);
        WT_OK(weft_allreduce(left[i], &x, &x, 1, WEFT_I64, WEFT_SUM));
        WT_CHECK(x == (int64_t)n);
    }
    WT_STATUS(weft_comm_error(comm), WEFT_ERR_PEER);
    weft_comm_destroy(left[0]);
    WT_OK(weft_barrier(left[1]));
    weft_comm_destroy(left[1]);
}

static void those_who_are_left_of_a_node_go_on(void **state)
{
    (void)state;
    run("aaa", 0, go_on_body);
    run("aaa", 2, go_on_body);
    run("aaaaa", 3, go_on_body);
}

static void those_who_are_left_on_several_nodes_go_on(void **state)
{
    (void)state;
    run("abc", 0, go_on_body);
    run("aab", 2, go_on_body);
    run("aabbc", 2, go_on_body);
    run("aabbc", 4, go_on_body);
}

static void the_dead_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *none = NULL;
    uint32_t ranks[MOST_RANKS];

    lose_one(comm);
    for (uint32_t r = 0; r < wt_ranks(); r++) {
        ranks[r] = r;
    }
    WT_STATUS(weft_comm_subset(comm, ranks, wt_ranks(), &none), WEFT_ERR_PEER);
    WT_CHECK(wt_names_rank(weft_error_detail(), job.victim));
    WT_CHECK(none == NULL);
    /* Whoever leaves earlier is gone, too. */
    wt_word_add(0, 1);
    wt_word_await(0, wt_ranks() - 1);
}

static void a_subset_with_the_dead_one_names_it(void **state)
{
    (void)state;
    run("aaa", 1, the_dead_body);
    run("aabbc", 2, the_dead_body);
}

static void aborted_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *none = NULL;
    uint32_t self = wt_rank();

    weft_comm_abort(comm, "the test");
    WT_STATUS(weft_comm_subset(comm, &self, 1, &none), WEFT_ERR_ABORTED);
    WT_CHECK(none == NULL);
}

static void nothing_is_left_of_an_aborted_communicator(void **state)
{
    (void)state;
    wt_run(3, "", aborted_body);
}

/* --- shrink -------------------------------------------------------------- */

static void expect_works(weft_comm *comm, size_t size)
{
    int64_t x = 1;

    WT_CHECK(weft_comm_size(comm) == size);
    WT_OK(weft_allreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM));
    WT_CHECK(x == (int64_t)size);
    WT_OK(weft_barrier(comm));
}

/* Only some of them are in a call when one dies, so only those are told. */
static void untold_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *left = NULL;
    uint32_t victim = job.victim;
    bool told = wt_rank() == (victim + 1) % wt_ranks();

    WT_OK(weft_barrier(comm));
    wt_word_add(1, 1);
    wt_word_await(1, wt_ranks());
    if (wt_rank() == victim) {
        wt_strike(WT_BLOW_KILL);
    }
    if (told) { /* of that, or that another one shrinks it */
        WT_CHECK(weft_barrier(comm) != WEFT_OK);
    }
    WT_OK(weft_comm_shrink(comm, &victim, 1, &left));
    expect_works(left, wt_ranks() - 1);
    WT_CHECK(weft_comm_error(comm) != WEFT_OK);
    weft_comm_destroy(left);
}

static void a_group_shrinks_though_not_all_were_told_of_the_death(void **state)
{
    (void)state;
    run("aaa", 0, untold_body);
    run("aaaaa", 3, untold_body);
    run("abc", 1, untold_body);
    run("aabbc", 2, untold_body);
}

/* Nobody was told of the death, and nobody has to be. */
static void apart_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *left = NULL;
    uint32_t ranks[MOST_RANKS];
    size_t n = living(ranks);

    WT_OK(weft_barrier(comm));
    wt_word_add(1, 1);
    wt_word_await(1, wt_ranks());
    if (wt_rank() == job.victim) {
        wt_strike(WT_BLOW_KILL);
    }
    WT_OK(weft_comm_create_group(comm, ranks, n, 0, 0, &left));
    expect_works(left, n);
    weft_comm_destroy(left);
}

static void a_group_without_the_dead_one_is_made_by_whoever_knows(void **state)
{
    (void)state;
    run("aaaa", 1, apart_body);
    run("aabbc", 2, apart_body);
}

/* A second one dies: shrinking names it, and works without both. */
static void second_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *left = NULL;
    uint32_t gone[2] = {job.victim, wt_ranks() - 1};

    lose_one(comm);
    if (wt_rank() == gone[1]) {
        wt_strike(WT_BLOW_KILL);
    }
    WT_STATUS(weft_comm_shrink(comm, gone, 1, &left), WEFT_ERR_PEER);
    WT_CHECK(wt_names_rank(weft_error_detail(), gone[1]));
    WT_OK(weft_comm_shrink(comm, gone, 2, &left));
    expect_works(left, wt_ranks() - 2);
    weft_comm_destroy(left);
}

static void run_second(const char *nodes)
{
    job.nodes = nodes;
    job.victim = 0;
    wt_run_job(&(wt_job){.ranks = (unsigned)strlen(nodes),
                         .settings_of = settings_of,
                         .body = second_body,
                         .doomed = 1u | 1u << (strlen(nodes) - 1)});
}

static void a_group_shrinks_again_when_another_one_dies(void **state)
{
    (void)state;
    run_second("aaaa");
    run_second("aabb");
}

/* A deadline passed, or it was aborted: a subset would be refused. */
static void without_last_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *left = NULL;
    uint32_t last = wt_ranks() - 1;

    if (wt_rank() == last) {
        WT_STATUS(weft_barrier(comm), WEFT_ERR_ABORTED);
        WT_STATUS(weft_comm_shrink(comm, &last, 1, &left), WEFT_ERR_INVALID);
        wt_word_await(0, last);
        return;
    }
    if (wt_rank() == 0) {
        weft_comm_abort(comm, "the test");
    }
    WT_OK(weft_comm_shrink(comm, &last, 1, &left));
    expect_works(left, last);
    wt_word_add(0, 1);
    wt_word_await(0, last);
    weft_comm_destroy(left);
}

static void a_group_shrinks_after_it_was_aborted(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=60s", without_last_body);
    wt_run_nodes(2, 2, without_last_body);
}

static void invalid_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *none = NULL;
    uint32_t other = 1 - wt_rank();
    uint32_t twice[2] = {other, other};
    uint32_t beyond = wt_ranks();

    WT_STATUS(weft_comm_shrink(NULL, &other, 1, &none), WEFT_ERR_INVALID);
    WT_STATUS(weft_comm_shrink(comm, &other, 1, NULL), WEFT_ERR_INVALID);
    WT_STATUS(weft_comm_shrink(comm, NULL, 1, &none), WEFT_ERR_INVALID);
    WT_STATUS(weft_comm_shrink(comm, twice, 2, &none), WEFT_ERR_INVALID);
    WT_STATUS(weft_comm_shrink(comm, &beyond, 1, &none), WEFT_ERR_INVALID);
    WT_OK(weft_barrier(comm));
    WT_CHECK(none == NULL);
}

static void a_wrong_list_of_the_excluded_changes_nothing(void **state)
{
    (void)state;
    wt_run_both(2, NULL, invalid_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_are_left_of_a_node_go_on),
        cmocka_unit_test(those_who_are_left_on_several_nodes_go_on),
        cmocka_unit_test(a_subset_with_the_dead_one_names_it),
        cmocka_unit_test(nothing_is_left_of_an_aborted_communicator),
        cmocka_unit_test(a_group_shrinks_though_not_all_were_told_of_the_death),
        cmocka_unit_test(a_group_without_the_dead_one_is_made_by_whoever_knows),
        cmocka_unit_test(a_group_shrinks_again_when_another_one_dies),
        cmocka_unit_test(a_group_shrinks_after_it_was_aborted),
        cmocka_unit_test(a_wrong_list_of_the_excluded_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
