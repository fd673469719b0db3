/* SPDX-License-Identifier: Apache-2.0 */
/* The sampling scheme POOL: few draws, each key used as often as it should be.
 */
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "store_rig.h"

static int64_t count_and_draw(void *ctx)
{
    return (int64_t)((*(uint64_t *)ctx)++ * 37 % KEYS);
}

static void a_pool_is_drawn_once_for_each_reuse(void **state)
{
    uint64_t draws = 0;
    weft_sample_options o = {.scheme = WEFT_SAMPLE_POOL,
                             .distribution = WEFT_DRAW_GIVEN,
                             .draw = count_and_draw,
                             .ctx = &draws,
                             .pool = 10,
                             .reuse = 100};
    rig r;

    (void)state;
    rig_init(&r, &o, 1);
    assert_true(draws == 0);
    for (int i = 0; i < 1000; i++) {
        int64_t keys[100];

        rig_next(&r, rig_prepare(&r, 100), 100, keys);
    }
    assert_true(draws == 1000); /* of 100000 samples */
    rig_fini(&r);
}

static void the_default_pool_has_250_keys_that_are_used_16_times(void **state)
{
    uint64_t draws = 0;
    weft_sample_options o = {.scheme = WEFT_SAMPLE_POOL,
                             .distribution = WEFT_DRAW_GIVEN,
                             .draw = count_and_draw,
                             .ctx = &draws};
    rig r;
    int64_t *keys = wf_alloc(4000 * sizeof(*keys));

    (void)state;
    assert_non_null(keys);
    rig_init(&r, &o, 1);
    rig_next(&r, rig_prepare(&r, 4000), 4000, keys);
    assert_true(draws == 250);
    rig_next(&r, rig_prepare(&r, 1), 1, keys);
    assert_true(draws == 500);
    rig_fini(&r);
    wf_free(keys);
}

/* Each pass has each key once, in another order. */
static void check_passes(const int64_t *keys, int passes, int size)
{
    for (int i = 0; i < passes; i++) {
        rig_check_distinct(keys + i * size, (uint64_t)size);
        assert_true(i == 0 || memcmp(keys + i * size, keys + (i - 1) * size,
                                     (size_t)size * sizeof(*keys)) != 0);
    }
}

static void each_pass_goes_through_the_pool_in_another_order(void **state)
{
    enum { SIZE = 30, REUSE = 5 };
    weft_sample_options o = {.scheme = WEFT_SAMPLE_POOL,
                             .distinct = 1,
                             .pool = SIZE,
                             .reuse = REUSE};
    uint64_t counts[KEYS] = {0};
    int64_t keys[2 * REUSE * SIZE];
    rig r;

    (void)state;
    rig_init(&r, &o, 1);
    for (int i = 0; i < 2 * REUSE; i++) {
        rig_next(&r, rig_prepare(&r, SIZE), SIZE, keys + i * SIZE);
    }
    check_passes(keys, 2 * REUSE, SIZE);
    for (int i = 0; i < REUSE * SIZE; i++) {
        counts[keys[i]]++;
    }
    for (int i = 0; i < KEYS; i++) {
        assert_true(counts[i] == 0 || counts[i] == REUSE);
    }
    rig_fini(&r);
}

/* Samples that do not divide the pool begin in one pass and end in the next,
 * and still have no key twice; and no key is used more often than it should. */
static void distinct_samples_reach_over_the_end_of_a_pass(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 20; n++) {
        weft_sample_options o = {
            .scheme = WEFT_SAMPLE_POOL, .distinct = 1, .pool = 20, .reuse = 4};
        uint64_t counts[KEYS] = {0};
        int64_t keys[20];
        rig r;

        rig_init(&r, &o, n);
        for (uint64_t got = 0; got + n <= 80; got += n) {
            rig_next(&r, rig_prepare(&r, n), n, keys);
            rig_check_distinct(keys, n);
            for (uint64_t i = 0; i < n; i++) {
                assert_true(++counts[keys[i]] <= 4);
            }
        }
        for (int i = 0; i < 100; i++) { /* over new pools as well */
            rig_next(&r, rig_prepare(&r, n), n, keys);
            rig_check_distinct(keys, n);
        }
        rig_fini(&r);
    }
}

static void distinct_samples_that_the_pool_has_not_are_an_error(void **state)
{
    weft_sample_options o = {
        .scheme = WEFT_SAMPLE_POOL, .distinct = 1, .pool = 20};
    rig r;
    int64_t id;

    (void)state;
    rig_init(&r, &o, 1);
    assert_int_equal(wf_sample_prepare(&r.samples, r.sampler, 21, 0, 0, &id),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "21 distinct samples"));
    assert_non_null(strstr(weft_error_detail(), "pool has 20 keys"));
    rig_fini(&r);
}

static void a_pool_is_drawn_anew_when_the_store_is_resized(void **state)
{
    weft_sample_options o = {.scheme = WEFT_SAMPLE_POOL, .pool = 50};
    rig r;
    int64_t keys[50];

    (void)state;
    rig_init(&r, &o, 1);
    rig_next(&r, rig_prepare(&r, 10), 10, keys);
    r.fake.keys = 5;
    rig_next(&r, rig_prepare(&r, 50), 50, keys);
    for (int i = 0; i < 50; i++) {
        assert_true(keys[i] < 5);
    }
    rig_fini(&r);
}

enum { THREADS = 3, ROUNDS = 200 };

typedef struct sharer {
    rig *rig;
    uint64_t number;
    uint64_t counts[KEYS];
} sharer;

static void *share_pool(void *arg)
{
    sharer *s = arg;
    fake_worker f = {.keys = KEYS};
    wf_samples samples;

    wf_samples_init(&samples, &f, s->number);
    for (int i = 0; i < ROUNDS; i++) {
        int64_t keys[7];
        int64_t id;

        if (wf_sample_prepare(&samples, s->rig->sampler, 7, 0, 0, &id) ==
                WEFT_OK &&
            wf_sample_next(&samples, id, 7, keys) == WEFT_OK) {
            for (int j = 0; j < 7; j++) {
                s->counts[keys[j]]++;
            }
        }
    }
    wf_samples_fini(&samples);
    return NULL;
}

/* 4200 samples of one pool of 60 keys: 70 passes. */
static void the_workers_of_a_rank_share_one_pool(void **state)
{
    weft_sample_options o = {
        .scheme = WEFT_SAMPLE_POOL, .distinct = 1, .pool = 60, .reuse = 1000};
    static sharer sharers[THREADS];
    pthread_t threads[THREADS];
    rig r;
    int used = 0;

    (void)state;
    rig_init(&r, &o, 1);
    for (uint64_t i = 0; i < THREADS; i++) {
        sharers[i] = (sharer){.rig = &r, .number = i};
        assert_int_equal(
            pthread_create(&threads[i], NULL, share_pool, &sharers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int key = 0; key < KEYS; key++) {
        uint64_t n = sharers[0].counts[key] + sharers[1].counts[key] +
                     sharers[2].counts[key];

        assert_true(n == 0 || n == THREADS * ROUNDS * 7 / 60);
        used += n > 0;
    }
    assert_int_equal(used, 60);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_is_drawn_once_for_each_reuse),
        cmocka_unit_test(the_default_pool_has_250_keys_that_are_used_16_times),
        cmocka_unit_test(each_pass_goes_through_the_pool_in_another_order),
        cmocka_unit_test(distinct_samples_reach_over_the_end_of_a_pass),
        cmocka_unit_test(distinct_samples_that_the_pool_has_not_are_an_error),
        cmocka_unit_test(a_pool_is_drawn_anew_when_the_store_is_resized),
        cmocka_unit_test(the_workers_of_a_rank_share_one_pool),
    };

    return cmocka_run_group_tests_name("store_sample_pool", tests, NULL, NULL);
}
