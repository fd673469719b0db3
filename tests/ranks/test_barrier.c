/* SPDX-License-Identifier: Apache-2.0 */
/* barrier: nobody leaves before everybody has come. */
#include "wt.h"
#include "wt_cmocka.h"

enum { ARRIVED };

static const unsigned rank_counts[] = {1, 2, 3, 4, 5, 8};

/* The word counts arrivals over all rounds: after round i it must be at least
 * i times the ranks. */
static void blocking_body(weft_world *world)
{
    unsigned ranks = weft_world_size(world);

    for (unsigned i = 1; i <= 500; i++) {
        atomic_fetch_add(wt_word(ARRIVED), 1);
        WT_OK(weft_barrier(weft_world_comm(world)));
        WT_CHECK(atomic_load(wt_word(ARRIVED)) >= i * ranks);
    }
}

static void request_body(weft_world *world)
{
    unsigned ranks = weft_world_size(world);

    for (unsigned i = 1; i <= 200; i++) {
        weft_request *request = NULL;

        atomic_fetch_add(wt_word(ARRIVED), 1);
        WT_OK(weft_ibarrier(weft_world_comm(world), &request));
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
        WT_CHECK(atomic_load(wt_word(ARRIVED)) >= i * ranks);
    }
}

static void run_counts(const char *settings, wt_body *body)
{
    for (size_t i = 0; i < sizeof(rank_counts) / sizeof(rank_counts[0]); i++) {
        wt_run_both(rank_counts[i], settings, body);
    }
}

static void nobody_leaves_before_everybody_has_come(void **state)
{
    (void)state;
    run_counts(NULL, blocking_body);
    run_counts("ENGINE=message", blocking_body);
}

static void no_request_completes_before_everybody_has_come(void **state)
{
    (void)state;
    run_counts(NULL, request_body);
    run_counts("ENGINE=message", request_body);
}

static void a_wait_that_never_polls_still_ends(void **state)
{
    (void)state;
    wt_run_both(4, "SPIN=0s YIELD=0s", blocking_body);
}

/* The last rank comes only after all others are inside. */
static void late_body(weft_world *world)
{
    unsigned last = weft_world_size(world) - 1;
    weft_request *request = NULL;
    int done = 0;

    if (weft_world_rank(world) == last) {
        wt_word_await(ARRIVED, last);
        WT_OK(weft_barrier(weft_world_comm(world)));
        return;
    }
    WT_OK(weft_ibarrier(weft_world_comm(world), &request));
    WT_OK(weft_request_test(request, &done));
    WT_CHECK(!done);
    wt_word_add(ARRIVED, 1);
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
}

static void a_blocking_and_a_non_blocking_call_meet(void **state)
{
    (void)state;
    wt_run_both(3, NULL, late_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_leaves_before_everybody_has_come),
        cmocka_unit_test(no_request_completes_before_everybody_has_come),
        cmocka_unit_test(a_wait_that_never_polls_still_ends),
        cmocka_unit_test(a_blocking_and_a_non_blocking_call_meet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
