/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of workers in all schemes: portions, ids, intents, errors. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "store_rig.h"

static const weft_sample_scheme schemes[] = {
    WEFT_SAMPLE_NAIVE, WEFT_SAMPLE_PRELOC, WEFT_SAMPLE_POOL, WEFT_SAMPLE_LOCAL};
enum { SCHEMES = 4 };

/* --- all schemes ---------------------------------------------------------- */

static void samples_come_in_portions_until_they_are_used(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEMES; s++) {
        weft_sample_options o = {.scheme = schemes[s]};
        rig r;
        int64_t keys[KEYS];
        int64_t first;
        int64_t second;

        rig_init(&r, &o, 1);
        rig_all_here(&r);
        first = rig_prepare(&r, 7);
        second = rig_prepare(&r, 5);
        assert_true(first == 1 && second == 2);
        rig_next(&r, second, 5, keys);
        rig_next(&r, first, 3, keys);
        rig_next(&r, first, 0, keys);
        assert_true(rig_left(&r, first) == 4);
        rig_refuses(&r, first, 5, "5 samples are asked for");
        rig_refuses(&r, first, 5, "sample 1 has 4 left of the 7");
        rig_next(&r, first, 4, keys);
        assert_true(rig_left(&r, first) == 0);
        rig_refuses(&r, first, 1, "1 has 0 left of the 7");
        rig_fini(&r);
    }
}

static void the_same_seed_gives_the_same_samples(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEMES; s++) {
        for (int distinct = 0; distinct < 2; distinct++) {
            weft_sample_options o = {.scheme = schemes[s],
                                     .distribution = WEFT_DRAW_LOG_UNIFORM,
                                     .distinct = distinct};
            int64_t keys[3][40];

            for (int i = 0; i < 3; i++) {
                rig r;

                rig_init(&r, &o, i == 2 ? 8 : 7);
                rig_all_here(&r);
                rig_next(&r, rig_prepare(&r, 20), 20, keys[i]);
                rig_next(&r, rig_prepare(&r, 20), 20, keys[i] + 20);
                rig_fini(&r);
            }
            assert_memory_equal(keys[0], keys[1], sizeof(keys[0]));
            assert_memory_not_equal(keys[0], keys[2], sizeof(keys[0]));
        }
    }
}

static void workers_and_ranks_draw_different_samples(void **state)
{
    weft_sample_options o = {.size = sizeof(o)};
    int64_t keys[4][8];

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        wf_sampler_store store = {
            .keys = KEYS, .seed = 1, .rank = i / 2, .env = &fake_env};
        fake_worker f = {.keys = KEYS};
        wf_sampler *sampler = NULL;
        wf_samples samples;
        int64_t id;

        assert_int_equal(wf_sampler_create(&o, &store, &sampler), WEFT_OK);
        wf_samples_init(&samples, &f, i % 2);
        assert_int_equal(wf_sample_prepare(&samples, sampler, 8, 0, 0, &id),
                         WEFT_OK);
        assert_int_equal(wf_sample_next(&samples, id, 8, keys[i]), WEFT_OK);
        wf_sampler_destroy(sampler); /* before its samples, as a store may */
        wf_samples_fini(&samples);
        for (unsigned j = 0; j < i; j++) {
            assert_memory_not_equal(keys[i], keys[j], sizeof(keys[i]));
        }
    }
}

/* LOCAL with all keys here has nothing to change. */
static void each_scheme_keeps_the_distribution(void **state)
{
    double share[KEYS];
    enum { TOTAL = 200000, PART = 500 };

    (void)state;
    for (int i = 0; i < KEYS; i++) {
        share[i] = log((i + 2.0) / (i + 1.0));
    }
    for (int s = 0; s < SCHEMES; s++) {
        /* Of a pool, the keys that it has drawn: their uses are not
         * independent, so that each is used once here. */
        weft_sample_options o = {.scheme = schemes[s],
                                 .distribution = WEFT_DRAW_LOG_UNIFORM,
                                 .reuse = 1};
        uint64_t counts[KEYS] = {0};
        int64_t keys[PART];
        rig r;

        rig_init(&r, &o, 5);
        rig_all_here(&r);
        for (int i = 0; i < TOTAL / PART; i++) {
            rig_next(&r, rig_prepare(&r, PART), PART, keys);
            for (int j = 0; j < PART; j++) {
                counts[keys[j]]++;
            }
        }
        assert_true(rig_fits(counts, share, KEYS, TOTAL));
        rig_fini(&r);
    }
}

static void distinct_samples_are_distinct_within_one_id(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEMES; s++) {
        weft_sample_options o = {.scheme = schemes[s],
                                 .distribution = WEFT_DRAW_LOG_UNIFORM,
                                 .distinct = 1,
                                 .pool = KEYS};
        rig r;
        int64_t keys[KEYS];
        int64_t id;

        rig_init(&r, &o, 3);
        rig_all_here(&r);
        for (uint64_t n = 0; n <= KEYS; n += n < 90 ? 9 : 1) {
            id = rig_prepare(&r, n);
            rig_next(&r, id, n / 2, keys);
            rig_next(&r, id, n - n / 2, keys + n / 2);
            rig_check_distinct(keys, n);
        }
        id = 0;
        assert_int_equal(
            wf_sample_prepare(&r.samples, r.sampler, KEYS + 1, 0, 0, &id),
            WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_detail(), "101 distinct samples"));
        assert_non_null(strstr(weft_error_detail(), "100 keys"));
        assert_true(id == 0);
        rig_fini(&r);
    }
}

static void undo_gives_the_samples_back(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEMES; s++) {
        weft_sample_options o = {.scheme = schemes[s], .distinct = 1};
        rig r;
        int64_t keys[KEYS];
        int64_t again[KEYS];
        int64_t id;

        rig_init(&r, &o, 3);
        rig_all_here(&r);
        id = rig_prepare(&r, KEYS);
        rig_next(&r, id, 40, keys);
        rig_next(&r, id, 60, keys + 40);
        wf_sample_undo(&r.samples, id);
        wf_sample_undo(&r.samples, id); /* only the last one */
        wf_sample_undo(&r.samples, 99);
        assert_true(rig_left(&r, id) == 60);
        rig_next(&r, id, 60, again);
        if (schemes[s] == WEFT_SAMPLE_LOCAL) { /* draws others */
            memcpy(keys + 40, again, 60 * sizeof(*again));
        }
        assert_memory_equal(keys + 40, again, 60 * sizeof(*again));
        rig_check_distinct(keys, KEYS);
        assert_true(rig_left(&r, id) == 0 && r.samples.spent == 1);
        rig_fini(&r);
    }
}

/* --- ids ------------------------------------------------------------------ */

static void an_unknown_id_is_named(void **state)
{
    weft_sample_options o = {0};
    rig r;
    uint64_t left;
    int64_t key;

    (void)state;
    rig_init(&r, &o, 1);
    rig_prepare(&r, 1);
    rig_refuses(&r, 2, 0, "sample 2 is unknown");
    rig_refuses(&r, 0, 0, "sample 0 is unknown");
    rig_refuses(&r, -1, 0, "sample -1 is unknown");
    rig_refuses(&r, INT64_MAX, 0, "has prepared 1");
    assert_int_equal(wf_sample_left(&r.samples, 2, &left), WEFT_ERR_INVALID);
    assert_int_equal(wf_sample_finish(&r.samples, 2), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "sample 2"));
    assert_int_equal(wf_sample_finish(&r.samples, 1), WEFT_OK);
    rig_refuses(&r, 1, 1, "sample 1 was used up or finished");
    assert_int_equal(wf_sample_finish(&r.samples, 1), WEFT_OK);
    rig_next(&r, rig_prepare(&r, 1), 1, &key);
    rig_fini(&r);
}

/* Programs that never finish a sample must not fill the memory. */
static void samples_that_were_used_up_are_forgotten(void **state)
{
    weft_sample_options o = {0};
    rig r;
    int64_t key;

    (void)state;
    rig_init(&r, &o, 1);
    for (int i = 1; i <= 1000; i++) {
        int64_t id = rig_prepare(&r, (uint64_t)(i % 2));

        assert_true(id == i);
        rig_next(&r, id, (uint64_t)(i % 2), &key);
    }
    assert_true(r.samples.count < 4 && r.samples.room == 16);
    assert_int_equal(wf_sample_finish(&r.samples, 7), WEFT_OK);
    rig_fini(&r);
}

static void many_samples_can_be_open_and_used_in_any_order(void **state)
{
    enum { OPEN = 1000 };
    weft_sample_options o = {0};
    rig r;
    int64_t keys[2];

    (void)state;
    rig_init(&r, &o, 1);
    for (int i = 0; i < OPEN; i++) {
        rig_prepare(&r, 2);
    }
    for (int64_t i = 0; i < OPEN; i++) { /* 7 has no divisor of 1000 */
        int64_t id = i * 7 % OPEN + 1;

        rig_next(&r, id, 1 + (uint64_t)(i % 2), keys);
        if (i % 3 == 0) {
            assert_int_equal(wf_sample_finish(&r.samples, id), WEFT_OK);
        } else if (i % 7 == 0) {
            rig_prepare(&r, 0);
        }
    }
    for (int64_t id = 1; id <= r.samples.last_id; id++) {
        assert_int_equal(wf_sample_finish(&r.samples, id), WEFT_OK);
    }
    assert_true(r.samples.count == 0 && r.samples.spent == 0);
    rig_fini(&r);
}

/* --- intents -------------------------------------------------------------- */

static void preloc_and_pool_announce_their_keys(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEMES; s++) {
        weft_sample_options o = {.scheme = schemes[s]};
        bool announces =
            schemes[s] == WEFT_SAMPLE_PRELOC || schemes[s] == WEFT_SAMPLE_POOL;
        rig r;
        int64_t keys[50];

        rig_init(&r, &o, 1);
        rig_all_here(&r);
        rig_prepare(&r, 0);
        assert_true(r.fake.intents == 0);
        rig_next(&r, rig_prepare(&r, 50), 50, keys);
        assert_true(r.fake.intents == announces);
        assert_true(!announces || (r.fake.start == 3 && r.fake.end == 5));
        for (int i = 0; i < 50 && announces; i++) {
            assert_true(r.fake.intended[keys[i]]-- > 0);
        }
        rig_fini(&r);
    }
}

static void a_refused_intent_refuses_the_sample(void **state)
{
    weft_sample_options o = {.scheme = WEFT_SAMPLE_PRELOC};
    rig r;
    int64_t id = 0;

    (void)state;
    rig_init(&r, &o, 1);
    r.fake.refuse = WEFT_ERR_PEER;
    assert_int_equal(wf_sample_prepare(&r.samples, r.sampler, 3, 0, 0, &id),
                     WEFT_ERR_PEER);
    assert_true(id == 0);
    r.fake.refuse = WEFT_OK;
    assert_true(rig_prepare(&r, 3) == 1);
    rig_fini(&r);
}

/* --- errors --------------------------------------------------------------- */

static void options_that_do_not_fit_are_refused(void **state)
{
    weft_sample_options o = {.size = sizeof(o)};
    wf_sampler_store store = {.keys = KEYS, .env = &fake_env};
    wf_sampler *sampler = NULL;

    (void)state;
    for (int scheme = -1; scheme <= 4; scheme += 5) {
        o.scheme = (weft_sample_scheme)scheme;
        assert_int_equal(wf_sampler_create(&o, &store, &sampler),
                         WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_detail(), "scheme"));
    }
    o.scheme = WEFT_SAMPLE_POOL;
    o.max = KEYS + 1;
    assert_int_equal(wf_sampler_create(&o, &store, &sampler), WEFT_ERR_INVALID);
    o.max = 0;
    o.pool = UINT64_MAX;
    assert_int_equal(wf_sampler_create(&o, &store, &sampler), WEFT_ERR_NOMEM);
    o.size = 1;
    assert_int_equal(wf_sampler_create(&o, &store, &sampler), WEFT_ERR_INVALID);
    assert_null(sampler);
    wf_sampler_destroy(NULL);
    assert_int_equal(wf_sampler_create(NULL, &store, &sampler), WEFT_OK);
    assert_int_equal(wf_sampler_scheme(sampler), WEFT_SAMPLE_NAIVE);
    wf_sampler_destroy(sampler);
}

static void sampling_that_was_not_set_up_is_an_error(void **state)
{
    fake_worker f = {.keys = KEYS};
    wf_samples samples;
    int64_t id;

    (void)state;
    wf_samples_init(&samples, &f, 0);
    assert_int_equal(wf_sample_prepare(&samples, NULL, 1, 0, 0, &id),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "enable sampling first"));
    wf_samples_fini(&samples);
}

static void more_samples_than_memory_are_refused(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEMES; s++) {
        weft_sample_options o = {.scheme = schemes[s]};
        rig r;
        int64_t id;

        rig_init(&r, &o, 1);
        rig_all_here(&r);
        if (schemes[s] == WEFT_SAMPLE_LOCAL) { /* draws them when asked */
            assert_true(rig_left(&r, rig_prepare(&r, UINT64_MAX)) ==
                        UINT64_MAX);
        } else {
            assert_int_equal(
                wf_sample_prepare(&r.samples, r.sampler, UINT64_MAX, 0, 0, &id),
                WEFT_ERR_NOMEM);
        }
        rig_fini(&r);
    }
}

static void a_store_that_was_resized_is_noticed(void **state)
{
    weft_sample_options o = {.scheme = WEFT_SAMPLE_LOCAL, .max = 50};
    rig r;
    int64_t id;

    (void)state;
    rig_init(&r, &o, 1);
    rig_all_here(&r);
    id = rig_prepare(&r, 1);
    r.fake.keys = 40;
    rig_refuses(&r, id, 1, "0 to 49, but the store has 40 keys");
    rig_fini(&r);
}

static weft_status try_all(const weft_sample_options *o, unsigned nth)
{
    wf_sampler_store store = {.keys = KEYS, .env = &fake_env};
    fake_worker f = {.keys = KEYS};
    wf_sampler *sampler = NULL;
    wf_samples samples;
    int64_t keys[20];
    int64_t id;
    weft_status st;

    memset(f.here, 1, sizeof(f.here));
    wf_alloc_fail_nth(nth);
    st = wf_sampler_create(o, &store, &sampler);
    wf_samples_init(&samples, &f, 0);
    for (int i = 0; i < 3 && st == WEFT_OK; i++) {
        st = wf_sample_prepare(&samples, sampler, 20, 0, 0, &id);
        if (st == WEFT_OK) {
            st = wf_sample_next(&samples, id, 20, keys);
        }
    }
    wf_alloc_fail_nth(0);
    wf_samples_fini(&samples);
    wf_sampler_destroy(sampler);
    return st;
}

static void any_failed_allocation_is_told_of_and_leaks_nothing(void **state)
{
    (void)state;
    for (int s = 0; s < SCHEMES; s++) {
        weft_sample_options o = {
            .size = sizeof(o), .scheme = schemes[s], .distinct = 1, .pool = 30};
        unsigned nth = 0;
        weft_status st;

        do {
            st = try_all(&o, ++nth);
            assert_true(st == WEFT_OK || st == WEFT_ERR_NOMEM);
        } while (st != WEFT_OK);
        assert_true(nth > 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_come_in_portions_until_they_are_used),
        cmocka_unit_test(the_same_seed_gives_the_same_samples),
        cmocka_unit_test(workers_and_ranks_draw_different_samples),
        cmocka_unit_test(each_scheme_keeps_the_distribution),
        cmocka_unit_test(distinct_samples_are_distinct_within_one_id),
        cmocka_unit_test(undo_gives_the_samples_back),
        cmocka_unit_test(an_unknown_id_is_named),
        cmocka_unit_test(samples_that_were_used_up_are_forgotten),
        cmocka_unit_test(many_samples_can_be_open_and_used_in_any_order),
        cmocka_unit_test(preloc_and_pool_announce_their_keys),
        cmocka_unit_test(a_refused_intent_refuses_the_sample),
        cmocka_unit_test(options_that_do_not_fit_are_refused),
        cmocka_unit_test(sampling_that_was_not_set_up_is_an_error),
        cmocka_unit_test(more_samples_than_memory_are_refused),
        cmocka_unit_test(a_store_that_was_resized_is_noticed),
        cmocka_unit_test(any_failed_allocation_is_told_of_and_leaks_nothing),
    };

    return cmocka_run_group_tests_name("store_sample", tests, NULL, NULL);
}
