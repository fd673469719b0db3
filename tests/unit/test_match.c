/* SPDX-License-Identifier: Apache-2.0 */
/* Matching receives and messages, without a transport. */
#include "transport/match.h"

#include "base/alloc.h"
#include "wt_cmocka.h"

enum { SOURCES = 3 };

typedef struct fixture {
    wf_match match;
    wf_msg msg[8];
    wf_arrival arrival[8];
} fixture;

static fixture the_fixture;

static int set_up(void **state)
{
    the_fixture = (fixture){0};
    *state = &the_fixture;
    return wf_match_init(&the_fixture.match, SOURCES) == WEFT_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    wf_match_fini(&((fixture *)*state)->match);
    return 0;
}

static void post(fixture *f, unsigned i, uint32_t from, uint64_t tag,
                 uint64_t mask)
{
    wf_match_fill(&f->msg[i], from, tag, mask, NULL, 0);
    wf_match_post(&f->match, &f->msg[i]);
}

static void keep(fixture *f, unsigned i, uint32_t source, uint64_t tag)
{
    f->arrival[i] = (wf_arrival){.source = source, .tag = tag};
    wf_match_keep(&f->match, &f->arrival[i]);
}

static void a_message_takes_the_first_receive_that_fits(void **state)
{
    fixture *f = *state;

    post(f, 0, 1, 7, WF_TAG_EXACT);
    post(f, 1, 1, 8, WF_TAG_EXACT);
    post(f, 2, 1, 8, WF_TAG_EXACT);
    assert_ptr_equal(wf_match_take_posted(&f->match, 1, 8), &f->msg[1]);
    assert_ptr_equal(wf_match_take_posted(&f->match, 1, 8), &f->msg[2]);
    assert_null(wf_match_take_posted(&f->match, 1, 8));
    assert_null(wf_match_take_posted(&f->match, 2, 7));
    assert_ptr_equal(wf_match_take_posted(&f->match, 1, 7), &f->msg[0]);
}

static void receives_from_any_and_from_one_are_served_by_age(void **state)
{
    fixture *f = *state;

    post(f, 0, 1, 5, WF_TAG_EXACT);
    post(f, 1, WF_SOURCE_ANY, 0, 0);
    post(f, 2, 1, 5, WF_TAG_EXACT);
    assert_ptr_equal(wf_match_take_posted(&f->match, 1, 5), &f->msg[0]);
    assert_ptr_equal(wf_match_take_posted(&f->match, 1, 5), &f->msg[1]);
    assert_ptr_equal(wf_match_take_posted(&f->match, 1, 5), &f->msg[2]);
}

static void a_receive_finds_the_oldest_message_that_fits(void **state)
{
    fixture *f = *state;

    keep(f, 0, 2, 0x10);
    keep(f, 1, 0, 0x21);
    keep(f, 2, 0, 0x22);
    assert_ptr_equal(wf_match_find(&f->match, WF_SOURCE_ANY, 0, 0),
                     &f->arrival[0]);
    assert_ptr_equal(wf_match_find(&f->match, WF_SOURCE_ANY, 0x20, 0xf0),
                     &f->arrival[1]);
    assert_ptr_equal(wf_match_find(&f->match, 0, 0x22, WF_TAG_EXACT),
                     &f->arrival[2]);
    assert_null(wf_match_find(&f->match, 1, 0, 0));
    wf_match_drop(&f->arrival[1]);
    assert_ptr_equal(wf_match_find(&f->match, 0, 0x20, 0xf0), &f->arrival[2]);
    wf_match_drop(&f->arrival[0]);
    wf_match_drop(&f->arrival[2]);
    assert_null(wf_match_find(&f->match, WF_SOURCE_ANY, 0, 0));
}

static void a_receive_is_cancelled_once_wherever_it_stands(void **state)
{
    fixture *f = *state;

    for (unsigned i = 0; i < 3; i++) {
        post(f, i, 0, i, WF_TAG_EXACT);
    }
    post(f, 3, WF_SOURCE_ANY, 0, 0);
    assert_true(wf_match_cancel(&f->match, &f->msg[1]));
    assert_false(wf_match_cancel(&f->match, &f->msg[1]));
    assert_true(wf_match_cancel(&f->match, &f->msg[2]));
    assert_true(wf_match_cancel(&f->match, &f->msg[3]));
    post(f, 4, 0, 4, WF_TAG_EXACT);
    assert_ptr_equal(wf_match_next_of(&f->match, 0), &f->msg[0]);
    assert_ptr_equal(wf_match_next_of(&f->match, 0), &f->msg[4]);
    assert_null(wf_match_next_of(&f->match, 0));
}

static void a_message_beyond_the_room_is_truncated(void **state)
{
    fixture *f = *state;

    wf_match_fill(&f->msg[0], 0, 1, 0, NULL, 10);
    assert_int_equal(wf_match_fits(&f->msg[0], 11), 10);
    assert_int_equal(wf_match_fits(&f->msg[0], 9), 9);
    wf_match_describe(&f->msg[0], 4, 2, 11);
    wf_match_finish(&f->msg[0]);
    assert_true(f->msg[0].done);
    assert_int_equal(f->msg[0].status, WEFT_ERR_TRUNCATED);
    assert_int_equal(f->msg[0].n, 11);
}

static void no_memory_for_the_queues_is_an_error(void **state)
{
    wf_match m;

    (void)state;
    wf_alloc_fail_nth(1);
    assert_int_equal(wf_match_init(&m, SOURCES), WEFT_ERR_NOMEM);
    wf_match_fini(&m);
}

#define WITH_MATCH(test)                                                       \
    cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_MATCH(a_message_takes_the_first_receive_that_fits),
        WITH_MATCH(receives_from_any_and_from_one_are_served_by_age),
        WITH_MATCH(a_receive_finds_the_oldest_message_that_fits),
        WITH_MATCH(a_receive_is_cancelled_once_wherever_it_stands),
        WITH_MATCH(a_message_beyond_the_room_is_truncated),
        cmocka_unit_test(no_memory_for_the_queues_is_an_error),
    };

    return cmocka_run_group_tests_name("match", tests, NULL, NULL);
}
