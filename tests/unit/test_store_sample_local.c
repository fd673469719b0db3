/* SPDX-License-Identifier: Apache-2.0 */
/* The sampling scheme LOCAL: keys of this host only, and an end if there is
 * none. */
#include <string.h>

#include "base/alloc.h"
#include "store_rig.h"

static void local_steps_up_to_the_next_key_of_this_host(void **state)
{
    double share[KEYS] = {0};
    uint64_t counts[KEYS] = {0};
    weft_sample_options o = {.scheme = WEFT_SAMPLE_LOCAL, .min = 10, .max = 90};
    int64_t *keys = wf_alloc(50000 * sizeof(*keys));
    rig r;

    (void)state;
    assert_non_null(keys);
    rig_init(&r, &o, 1);
    r.fake.here[5] = true; /* out of range, as is 95 */
    r.fake.here[20] = true;
    r.fake.here[21] = true;
    r.fake.here[60] = true;
    r.fake.here[95] = true;
    share[20] = 11 + 29; /* 10 to 20, and from 61 around the end */
    share[21] = 1;
    share[60] = 39;
    rig_next(&r, rig_prepare(&r, 50000), 50000, keys);
    for (int i = 0; i < 50000; i++) {
        counts[keys[i]]++;
    }
    assert_true(rig_fits(counts, share, KEYS, 50000));
    rig_fini(&r);
    wf_free(keys);
}

static void local_ends_when_no_key_is_on_this_host(void **state)
{
    (void)state;
    for (int distinct = 0; distinct < 2; distinct++) {
        weft_sample_options o = {.scheme = WEFT_SAMPLE_LOCAL,
                                 .min = 10,
                                 .max = 90,
                                 .distinct = distinct};
        rig r;
        int64_t id;

        rig_init(&r, &o, 1);
        r.fake.here[9] = true;
        r.fake.here[90] = true;
        id = rig_prepare(&r, 3);
        rig_refuses(&r, id, 1, "from 10 to 89 is on this host");
        assert_true(r.fake.asked <= 2 * 80);
        assert_true(rig_left(&r, id) == 3);
        rig_fini(&r);
    }
}

/* As many as there are, then none: and the keys of a call that failed are not
 * used. */
static void distinct_local_samples_use_each_key_once(void **state)
{
    weft_sample_options o = {.scheme = WEFT_SAMPLE_LOCAL,
                             .distribution = WEFT_DRAW_LOG_UNIFORM,
                             .distinct = 1};
    rig r;
    int64_t keys[KEYS];
    int64_t id;

    (void)state;
    rig_init(&r, &o, 1);
    for (int i = 0; i < KEYS; i += 2) {
        r.fake.here[i] = true;
    }
    id = rig_prepare(&r, KEYS);
    rig_next(&r, id, 30, keys);
    rig_refuses(&r, id, 21, "on this host and not used yet");
    assert_true(rig_left(&r, id) == 70);
    rig_next(&r, id, 20, keys + 30);
    rig_check_distinct(keys, 50);
    for (int i = 0; i < 50; i++) {
        assert_true(keys[i] % 2 == 0);
    }
    rig_refuses(&r, id, 1, "sample 1");
    /* A key that comes later is found, though it was passed by before. */
    r.fake.here[51] = true;
    rig_next(&r, id, 1, keys);
    assert_true(keys[0] == 51);
    rig_refuses(&r, id, 1, "sample 1");
    /* Another sample may use them all again. */
    rig_next(&r, rig_prepare(&r, 51), 51, keys);
    rig_fini(&r);
}

static int64_t always_0(void *ctx)
{
    (void)ctx;
    return 0;
}

/* Drawn keys that are all the same would make each step as long as the run of
 * those that were used. */
static void long_runs_of_used_keys_are_not_walked_again(void **state)
{
    weft_sample_options o = {.scheme = WEFT_SAMPLE_LOCAL,
                             .distribution = WEFT_DRAW_GIVEN,
                             .draw = always_0,
                             .distinct = 1};
    rig r;
    int64_t keys[KEYS];
    int64_t id;

    (void)state;
    rig_init(&r, &o, 1);
    for (int i = 1; i < KEYS; i += 2) {
        r.fake.here[i] = true;
    }
    id = rig_prepare(&r, KEYS);
    rig_next(&r, id, 50, keys);
    rig_check_distinct(keys, 50);
    assert_true(r.fake.asked < 6 * KEYS); /* else 50 * 50 */
    /* One that comes later is found, though it was passed by. */
    r.fake.here[50] = true;
    rig_next(&r, id, 1, keys);
    assert_true(keys[0] == 50);
    rig_fini(&r);
}

static void local_never_takes_a_key_of_weight_0(void **state)
{
    double weights[KEYS] = {0};

    (void)state;
    weights[10] = 1;
    weights[50] = 1;
    for (int distinct = 0; distinct < 2; distinct++) {
        weft_sample_options o = {.scheme = WEFT_SAMPLE_LOCAL,
                                 .distribution = WEFT_DRAW_WEIGHTED,
                                 .weights = weights,
                                 .distinct = distinct};
        rig r;
        int64_t keys[2];
        int64_t id;

        rig_init(&r, &o, 1);
        rig_all_here(&r);
        r.fake.here[10] = false;
        id = rig_prepare(&r, 2);
        rig_next(&r, id, 1, keys);
        assert_true(keys[0] == 50);
        if (distinct) {
            rig_refuses(&r, id, 1, "sample 1");
        }
        r.fake.here[50] = false;
        rig_refuses(&r, id, 1, "that can be drawn from 0 to 99");
        rig_fini(&r);
    }
}

/* --- any number is a key -------------------------------------------------- */

static const int64_t corners[] = {INT64_MIN, -1, 0, INT64_MAX};

static bool corner_here(void *worker, int64_t first, int64_t last, int64_t *out)
{
    (void)worker;
    for (int i = 0; i < 4; i++) {
        if (corners[i] >= first && corners[i] <= last) {
            *out = corners[i];
            return true;
        }
    }
    return false;
}

static uint64_t corner_keys(void *worker)
{
    (void)worker;
    return 4;
}

static int64_t draw_corner(void *ctx)
{
    return *(int64_t *)ctx;
}

static void local_steps_around_the_end_of_all_numbers(void **state)
{
    static const wf_sample_env any = {.here = corner_here, .keys = corner_keys};
    static const int64_t want[] = {INT64_MAX, INT64_MIN, -1, 0};
    int64_t from = 1;
    weft_sample_options o = {.size = sizeof(o),
                             .scheme = WEFT_SAMPLE_LOCAL,
                             .distribution = WEFT_DRAW_GIVEN,
                             .draw = draw_corner,
                             .ctx = &from,
                             .distinct = 1};
    wf_sampler_store store = {.keys = 4, .hashed = true, .env = &any};
    fake_worker f = {.keys = 4};
    wf_sampler *sampler = NULL;
    wf_samples samples;
    int64_t keys[5];
    int64_t id;

    (void)state;
    assert_int_equal(wf_sampler_create(&o, &store, &sampler), WEFT_OK);
    wf_samples_init(&samples, &f, 0);
    assert_int_equal(wf_sample_prepare(&samples, sampler, 5, 0, 0, &id),
                     WEFT_OK);
    assert_int_equal(wf_sample_next(&samples, id, 4, keys), WEFT_OK);
    assert_memory_equal(keys, want, sizeof(want));
    assert_int_equal(wf_sample_next(&samples, id, 1, keys), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "no key on this host"));
    wf_samples_fini(&samples);
    wf_sampler_destroy(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(local_steps_up_to_the_next_key_of_this_host),
        cmocka_unit_test(local_ends_when_no_key_is_on_this_host),
        cmocka_unit_test(distinct_local_samples_use_each_key_once),
        cmocka_unit_test(long_runs_of_used_keys_are_not_walked_again),
        cmocka_unit_test(local_never_takes_a_key_of_weight_0),
        cmocka_unit_test(local_steps_around_the_end_of_all_numbers),
    };

    return cmocka_run_group_tests_name("store_sample_local", tests, NULL, NULL);
}
