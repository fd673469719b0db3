/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel's messages: what is proven passes, and nothing else. */
#include <string.h>

#include "agg/control.h"
#include "wt_cmocka.h"

static const wf_secret key = {{11, 12}};
static const wf_secret other = {{11, 13}};
static const uint64_t nonce[2] = {5, 6};
static const uint64_t late[2] = {5, 7};

static wf_agg_join some_join(void)
{
    wf_agg_join join = {.nonce = {1, 2},
                        .group = {3, 4},
                        .rank = 1,
                        .ranks = 4,
                        .slots = 16,
                        .payload = 1088,
                        .port = 99};

    wf_agg_join_prove(&key, nonce, &join);
    return join;
}

static wf_agg_joined some_joined(void)
{
    wf_agg_joined joined = {.job = 1025,
                            .epoch = 1,
                            .slots = 16,
                            .shards = 2,
                            .port = {100, 101},
                            .salt = {8, 9}};

    wf_agg_joined_prove(&key, nonce, &joined);
    return joined;
}

static void a_join_is_proven_for_one_key_and_one_connection(void **state)
{
    wf_agg_join join = some_join();

    (void)state;
    assert_int_equal(wf_agg_join_check(&key, nonce, &join), WF_AGG_JOINED_OK);
    assert_int_equal(wf_agg_join_check(&other, nonce, &join),
                     WF_AGG_REFUSED_KEY);
    assert_int_equal(wf_agg_join_check(&key, late, &join), WF_AGG_REFUSED_KEY);
}

static void every_altered_bit_of_a_message_is_noticed(void **state)
{
    wf_agg_join join = some_join();
    wf_agg_joined joined = some_joined();

    (void)state;
    for (unsigned bit = 0; bit < 8 * 64; bit++) {
        unsigned char mask = (unsigned char)(1u << bit % 8);

        ((unsigned char *)&join)[bit / 8] ^= mask;
        assert_int_not_equal(wf_agg_join_check(&key, nonce, &join),
                             WF_AGG_JOINED_OK);
        ((unsigned char *)&join)[bit / 8] ^= mask;
        ((unsigned char *)&joined)[bit / 8] ^= mask;
        assert_false(wf_agg_joined_check(&key, nonce, &join, &joined));
        ((unsigned char *)&joined)[bit / 8] ^= mask;
    }
    assert_true(wf_agg_joined_check(&key, nonce, &join, &joined));
}

static void joins_that_cannot_be_are_refused(void **state)
{
    wf_agg_join j[7];

    (void)state;
    for (unsigned i = 0; i < 7; i++) {
        j[i] = some_join();
    }
    j[0].rank = 4;
    j[1].ranks = 0;
    j[2].slots = 0;
    j[3].payload = 100;
    j[4].port = 0;
    j[5].whole = 2;
    j[6].zero2 = 1;
    for (unsigned i = 0; i < 7; i++) {
        wf_agg_join_prove(&key, nonce, &j[i]);
        assert_int_equal(wf_agg_join_check(&key, nonce, &j[i]),
                         WF_AGG_REFUSED_BAD);
    }
}

static void answers_that_cannot_be_are_refused(void **state)
{
    wf_agg_join join = some_join();
    wf_agg_joined a[6];

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        a[i] = some_joined();
    }
    a[0].slots = 17;
    a[1].slots = 0;
    a[2].shards = 0;
    a[3].shards = WF_AGG_SHARDS + 1;
    a[4].port[1] = 0;
    a[5].status = WF_AGG_STATUSES;
    for (unsigned i = 0; i < 6; i++) {
        wf_agg_joined_prove(&key, nonce, &a[i]);
        assert_false(wf_agg_joined_check(&key, nonce, &join, &a[i]));
    }
    /* Of a refusal nothing else counts. */
    a[0].status = WF_AGG_REFUSED_QUOTA;
    wf_agg_joined_prove(&key, nonce, &a[0]);
    assert_true(wf_agg_joined_check(&key, nonce, &join, &a[0]));
}

static void each_registration_has_a_key_of_its_own(void **state)
{
    const uint64_t group[2] = {3, 4};
    const uint64_t group2[2] = {3, 5};
    wf_agg_joined a = some_joined();
    wf_agg_joined b[3] = {a, a, a};
    wf_secret first = wf_agg_derive(&key, group, &a);
    wf_secret again = wf_agg_derive(&key, group, &a);

    (void)state;
    assert_memory_equal(&first, &again, sizeof(first));
    assert_true(first.k[0] != first.k[1]);
    b[0].salt[1]++;
    b[1].job++;
    b[2].epoch++;
    for (unsigned i = 0; i < 3; i++) {
        wf_secret k = wf_agg_derive(&key, group, &b[i]);
        assert_true(k.k[0] != first.k[0] && k.k[1] != first.k[1]);
    }
    again = wf_agg_derive(&key, group2, &a);
    assert_true(again.k[0] != first.k[0]);
    again = wf_agg_derive(&other, group, &a);
    assert_true(again.k[0] != first.k[0]);
}

static void refusals_have_texts(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < WF_AGG_STATUSES; i++) {
        assert_string_not_equal(wf_agg_status_text(i), "?");
    }
    assert_string_equal(wf_agg_status_text(WF_AGG_STATUSES), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_join_is_proven_for_one_key_and_one_connection),
        cmocka_unit_test(every_altered_bit_of_a_message_is_noticed),
        cmocka_unit_test(joins_that_cannot_be_are_refused),
        cmocka_unit_test(answers_that_cannot_be_are_refused),
        cmocka_unit_test(each_registration_has_a_key_of_its_own),
        cmocka_unit_test(refusals_have_texts),
    };

    return cmocka_run_group_tests_name("agg_control", tests, NULL, NULL);
}
