/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a host: read, added to and set by any rank and thread, at any
 * time, whole. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <weft/coll.h>

#include "store/slots.h"
#include "wt.h"
#include "wt_cmocka.h"

#define THREADS 3u

static const unsigned ranks_of[] = {1, 2, 3};
static const weft_dtype types[] = {WEFT_F32,  WEFT_F64, WEFT_F16,
                                   WEFT_BF16, WEFT_I32, WEFT_I64};
static const uint64_t lengths[] = {0, 1, 3, 16, 33, 130};

static void run_all(wt_body *body)
{
    for (unsigned i = 0; i < 3; i++) {
        wt_run_both(ranks_of[i], "TIMEOUT=1800s", body);
    }
}

static uint64_t as_many(void *ctx, uint64_t length, uint64_t keys)
{
    (void)ctx;
    (void)length;
    return keys + 3;
}

static wf_slots *make(weft_world *world, wf_slots_options options)
{
    wf_slots *slots = NULL;

    options.room = as_many;
    WT_OK(wf_slots_create(weft_world_comm(world), &options, &slots));
    return slots;
}

/* All keys get slots, in an order of their own. */
static void place_all(weft_world *world, wf_slots *slots, uint64_t keys)
{
    if (weft_comm_rank(weft_world_comm(world)) == 0) {
        for (uint64_t i = 0; i < keys; i++) {
            uint64_t key = keys - 1 - i;
            uint32_t slot = wf_slot_take(slots, key);

            WT_CHECK(slot != UINT32_MAX);
            wf_directory_put(slots, key, WF_KEY_HERE | slot);
        }
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
}

/* Keys that are all here. */
static void do_batch(wf_slots *slots, char what, const int64_t *keys,
                     uint64_t n, void *values, uint32_t writer)
{
    uint64_t *absent = malloc((n + 1) * sizeof(*absent));
    wf_batch b = {.keys = {keys, WEFT_I64, n, WEFT_HOST},
                  .values = values,
                  .absent = absent};

    WT_CHECK(absent != NULL);
    if (what == '=') {
        WT_OK(wf_slots_set(slots, &b, writer));
    } else if (what == '+') {
        WT_OK(wf_slots_push(slots, &b, writer));
    } else {
        WT_OK(wf_slots_pull(slots, &b));
    }
    WT_CHECK(b.absents == 0 && b.copies == 0);
    free(absent);
}

/* --- one writer ----------------------------------------------------------- */

/* A small whole number in any type. */
static void put_number(weft_dtype type, char *at, int number)
{
    float f = (float)number;
    double d = number;
    int32_t i = number;
    int64_t l = number;
    uint32_t bits;
    uint16_t half;

    switch (type) {
    case WEFT_F32:
        memcpy(at, &f, 4);
        break;
    case WEFT_F64:
        memcpy(at, &d, 8);
        break;
    case WEFT_I32:
        memcpy(at, &i, 4);
        break;
    case WEFT_I64:
        memcpy(at, &l, 8);
        break;
    default:
        memcpy(&bits, &f, 4);
        half = (uint16_t)(bits >> 16);
        if (type == WEFT_F16 && number != 0) {
            half = (uint16_t)((((bits >> 23 & 0xff) - 112) << 10) |
                              (bits >> 13 & 0x3ff));
        }
        memcpy(at, &half, 2);
        break;
    }
}

/* Three keys of which two are equal, at odd addresses: set, add, read. */
static void check_key(wf_slots *slots, weft_dtype type, uint64_t length,
                      int64_t key, int64_t other)
{
    size_t element = weft_dtype_size(type);
    size_t bytes = length * element;
    int64_t keys[3] = {key, other, key};
    char *room = malloc(6 * bytes + 2);
    char *given = room + 1;
    char *want = room + 1 + 3 * bytes;

    WT_CHECK(room != NULL);
    for (uint64_t k = 0; k < 3 * length; k++) {
        put_number(type, given + k * element, (int)(k % 50));
    }
    do_batch(slots, '=', keys, 3, given, 5);
    do_batch(slots, '+', keys, 3, given, WF_WRITERS - 1);
    for (uint64_t k = 0; k < length; k++) {
        int first = (int)(k % 50);
        int second = (int)((k + length) % 50);
        int third = (int)((k + 2 * length) % 50);

        put_number(type, want + k * element, first + 2 * third);
        put_number(type, want + bytes + k * element, 2 * second);
        put_number(type, want + 2 * bytes + k * element, first + 2 * third);
    }
    do_batch(slots, '?', keys, 3, given, 0);
    WT_CHECK(memcmp(given, want, 3 * bytes) == 0);
    free(room);
}

static void types_body(weft_world *world)
{
    int64_t rank = (int64_t)wt_rank();
    int64_t ranks = (int64_t)wt_ranks();

    for (unsigned t = 0; t < 6; t++) {
        for (unsigned l = 0; l < 6; l++) {
            wf_slots_options o = {.type = types[t],
                                  .keys = 41,
                                  .length = lengths[l],
                                  .direct = (t + l) % 2 == 0};
            wf_slots *slots = make(world, o);

            if (!o.direct) {
                place_all(world, slots, o.keys);
            }
            WT_CHECK(wf_slots_length(slots, 7) == lengths[l]);
            check_key(slots, types[t], lengths[l], rank, rank + ranks);
            check_key(slots, types[t], lengths[l], 40 - rank, rank);
            wf_slots_destroy(slots);
        }
    }
}

static void
rows_of_every_type_and_length_are_set_added_to_and_read(void **state)
{
    (void)state;
    run_all(types_body);
}

static void lengths_body(weft_world *world)
{
    enum { KEYS = 60 };
    int64_t of[KEYS];
    wf_slots_options o = {.type = WEFT_I32, .keys = KEYS, .lengths = of};
    wf_slots *slots;
    int64_t keys[KEYS];
    int32_t values[KEYS * 40];
    int32_t back[KEYS * 40];
    uint64_t total = 0;

    for (int i = 0; i < KEYS; i++) {
        of[i] = i * 7 % 40;
        keys[i] = i * 11 % KEYS;
        total += (uint64_t)(keys[i] * 7 % 40);
    }
    slots = make(world, o);
    place_all(world, slots, KEYS);
    for (uint64_t k = 0; k < total; k++) {
        values[k] = (int32_t)k;
    }
    do_batch(slots, '+', keys, KEYS, values, 0);
    WT_OK(weft_barrier(weft_world_comm(world)));
    do_batch(slots, '?', keys, KEYS, back, 0);
    for (uint64_t k = 0; k < total; k++) {
        WT_CHECK(back[k] == (int32_t)(k * wt_ranks()));
    }
    for (uint64_t key = 0; key < KEYS; key++) {
        WT_CHECK(wf_slots_bytes(slots, key) == (uint64_t)of[key] * 4);
    }
    wf_slots_destroy(slots);
}

static void every_key_may_have_a_length_of_its_own(void **state)
{
    (void)state;
    run_all(lengths_body);
}

/* --- many writers --------------------------------------------------------- */

#define HOT 5u
#define WIDTH 37u
#define ROUNDS (WT_TSAN ? 60 : 400)

typedef struct crowd {
    wf_slots *slots;
    unsigned rank;
    unsigned number; /* of the thread */
    pthread_t thread;
} crowd;

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 33;
}

static bool is_even(const int64_t *row)
{
    for (unsigned k = 1; k < WIDTH; k++) {
        if (row[k] != row[0]) {
            return false;
        }
    }
    return true;
}

/* Rows of equal elements: keys below HOT are added to, HOT to 2 * HOT set, and
 * the last one is the thread's own. */
static void *crowd_run(void *ctx)
{
    crowd *c = ctx;
    int64_t own = (int64_t)(2 * HOT + c->rank * THREADS + c->number);
    int64_t *row = malloc(3 * WIDTH * sizeof(*row));
    uint64_t seed = (uint64_t)own;

    wt_speak_for(c->rank);
    WT_CHECK(row != NULL);
    for (int64_t i = 1; i <= ROUNDS; i++) {
        int64_t keys[3] = {(int64_t)(next(&seed) % HOT),
                           (int64_t)(next(&seed) % HOT), own};
        int64_t set = (int64_t)(HOT + next(&seed) % HOT);
        int64_t hot = (int64_t)(next(&seed) % (2 * HOT));

        for (unsigned k = 0; k < 3 * WIDTH; k++) {
            row[k] = 1;
        }
        do_batch(c->slots, '+', keys, 3, row, c->number);
        do_batch(c->slots, '?', &own, 1, row, 0);
        WT_CHECK(is_even(row) && row[0] == i);
        for (unsigned k = 0; k < WIDTH; k++) {
            row[k] = own * 1000 + i;
        }
        do_batch(c->slots, '=', &set, 1, row, c->number);
        do_batch(c->slots, '?', &hot, 1, row, 0);
        WT_CHECK(is_even(row));
    }
    free(row);
    return NULL;
}

static void crowd_all(weft_world *world, bool direct)
{
    wf_slots_options o = {.type = WEFT_I64,
                          .keys = 2 * HOT + THREADS * wt_ranks(),
                          .length = WIDTH,
                          .direct = direct};
    wf_slots *slots = make(world, o);
    crowd c[THREADS];
    int64_t rounds = ROUNDS;
    int64_t row[WIDTH];
    int64_t sum = 0;

    if (!direct) {
        place_all(world, slots, o.keys);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        c[i] = (crowd){.slots = slots, .rank = wt_rank(), .number = i};
        WT_CHECK(pthread_create(&c[i].thread, NULL, crowd_run, &c[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(c[i].thread, NULL);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    for (int64_t key = 0; key < (int64_t)HOT; key++) {
        do_batch(slots, '?', &key, 1, row, 0);
        WT_CHECK(is_even(row));
        sum += row[0];
    }
    WT_CHECK(sum == 2 * rounds * THREADS * wt_ranks());
    WT_CHECK(wf_slots_repaired(slots) == 0);
    wf_slots_destroy(slots);
}

static void crowd_body(weft_world *world)
{
    crowd_all(world, true);
    crowd_all(world, false);
}

static void no_push_is_lost_and_no_row_is_torn_under_a_crowd(void **state)
{
    (void)state;
    run_all(crowd_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            rows_of_every_type_and_length_are_set_added_to_and_read),
        cmocka_unit_test(every_key_may_have_a_length_of_its_own),
        cmocka_unit_test(no_push_is_lost_and_no_row_is_torn_under_a_crowd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
