/* SPDX-License-Identifier: Apache-2.0 */
/* Questions and answers that make no sense do no harm: rows stay as they are,
 * memory beside them, too, and sound calls go on. */
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "distributed_rows.h"
#include "region/remote/remote.h"

enum { ROWS = 30, WIDTH = 6, DONE = 0, FUZZ = 3000 };

static const dr_shape shape = {.rows = ROWS,
                               .width = WIDTH,
                               .type = WEFT_F32,
                               .reach = WEFT_REACH_DISTRIBUTED};

static void post(weft_world *world, uint32_t to, uint32_t number,
                 const void *header, size_t header_bytes, const void *payload,
                 size_t payload_bytes)
{
    const wf_route *r = wf_world_route(world, to);

    pthread_mutex_lock(&world->drive);
    WT_OK(r->transport->am(r->port, to, number, header, header_bytes, payload,
                           payload_bytes));
    pthread_mutex_unlock(&world->drive);
}

static uint64_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 20;
}

/* Rank 1 asks rank 0, which owns rows 0 to 9. */
static void ask_nonsense(weft_world *world, weft_region *region)
{
    int64_t payload[512] = {0};
    wf_rows_ask good = {.region = region->id,
                        .token = 1ull << 60,
                        .bytes = WIDTH * sizeof(float),
                        .rows = 2,
                        .op = WF_ROWS_SCATTER,
                        .type = WEFT_F32};
    size_t length = 16 + 2 * good.bytes;
    wf_rows_ask one = good;
    wf_rows_ask bad[16];
    int64_t rows[] = {-1, INT64_MIN, INT64_MAX, ROWS, 10, 1ll << 62};
    unsigned n = 0;

    one.rows = 1;
    for (unsigned i = 0; i < 16; i++) {
        bad[i] = good;
    }
    bad[n++].region ^= 1;
    bad[n++].op = 3;
    bad[n++].op = UINT32_MAX;
    bad[n++].rows = 0;
    bad[n++].rows = 3;
    bad[n++].rows = UINT32_MAX;
    bad[n++].bytes = 0;
    bad[n++].bytes = UINT64_MAX;
    bad[n++].bytes = 1ull << 63;
    bad[n++].skip = 1;
    bad[n++].skip = UINT64_MAX;
    bad[n].op = WF_ROWS_ADD;
    bad[n++].type = 16;
    bad[n].op = WF_ROWS_ADD;
    bad[n++].type = WEFT_PAIR_F32;
    bad[n++].op = WF_ROWS_GATHER; /* with rows behind the numbers */
    payload[0] = 3;
    payload[1] = 4;
    for (unsigned i = 0; i < n; i++) {
        post(world, 0, WF_AM_ROWS_ASK, &bad[i], sizeof(bad[i]), payload,
             length);
    }
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        payload[1] = rows[i];
        post(world, 0, WF_AM_ROWS_ASK, &good, sizeof(good), payload, length);
        post(world, 0, WF_AM_ROWS_ASK, &good, sizeof(good), payload, i);
        post(world, 0, WF_AM_ROWS_ASK, &good, 8 * i, payload, length);
        one.row = rows[i];
        post(world, 0, WF_AM_ROWS_ASK, &one, sizeof(one), payload, one.bytes);
    }
}

/* Random bytes, and sound headers with one random field. */
static void ask_at_random(weft_world *world, weft_region *region)
{
    uint64_t seed = 99;
    uint64_t field[7];
    unsigned which[] = {1, 2, 3, 4, 6}; /* all but the region and op */
    int64_t payload[512];

    for (unsigned i = 0; i < FUZZ; i++) {
        wf_rows_ask ask = {.region = region->id, .bytes = 4, .rows = 1};

        for (unsigned k = 0; k < 512; k++) {
            payload[k] = (int64_t)(random_next(&seed) % 12) - 1;
        }
        memcpy(field, &ask, sizeof(ask));
        field[which[random_next(&seed) % 5]] = random_next(&seed)
                                               << random_next(&seed) % 24;
        memcpy(&ask, field, sizeof(ask));
        ask.op = WF_ROWS_GATHER;
        post(world, 0, WF_AM_ROWS_ASK, &ask, sizeof(ask), payload,
             random_next(&seed) % 2 == 0 ? 0 : random_next(&seed) % 4096);
    }
}

static void ask_body(weft_world *world)
{
    weft_region *region = dr_create(world, &shape);

    if (wt_rank() == 1) {
        ask_nonsense(world, region);
        ask_at_random(world, region);
        wt_word_set(DONE, 1);
    } else if (wt_rank() == 2) {
        while (atomic_load(wt_word(DONE)) == 0) {
            dr_check_all(region);
        }
    } else {
        wt_word_await(DONE, 1);
    }
    dr_check_all(region);
    WT_OK(weft_region_barrier(region, 0));
    dr_check_all(region);
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

static void questions_that_make_no_sense_do_no_harm(void **state)
{
    (void)state;
    dr_run("aaa", ask_body);
}

/* Rank 1 answers calls of rank 0 that it was asked by, or was not. */
static void answer_at_random(weft_world *world)
{
    uint64_t seed = 5;
    char payload[4096] = {0};

    for (unsigned i = 0; i < FUZZ; i++) {
        wf_rows_answer a = {.token = random_next(&seed) % 400,
                            .bytes = WIDTH * sizeof(float),
                            .first = (uint32_t)(random_next(&seed) % 40),
                            .rows = (uint32_t)(random_next(&seed) % 40)};

        if (random_next(&seed) % 4 == 0) {
            a.skip = random_next(&seed) << random_next(&seed) % 24;
        }
        if (random_next(&seed) % 4 == 0) {
            a.bytes = random_next(&seed) << random_next(&seed) % 24;
        }
        a.status = random_next(&seed) % 4 == 0 ? (int)random_next(&seed) : 0;
        post(world, 0, WF_AM_ROWS_ANSWER, &a,
             random_next(&seed) % 8 == 0 ? 24 : sizeof(a), payload,
             random_next(&seed) % 2 == 0 ? a.rows * 24 % 4096
                                         : random_next(&seed) % 4096);
    }
}

static void ask_a_liar(weft_region *region)
{
    struct {
        unsigned char before[256];
        float rows[ROWS][WIDTH];
        unsigned char after[256];
    } out;
    weft_table table = dr_table(region);
    int64_t ids[ROWS];
    unsigned char zero[sizeof(out.before)] = {0};

    for (int i = 0; i < ROWS; i++) {
        ids[i] = i;
    }
    memset(&out, 0, sizeof(out));
    for (unsigned i = 0; i < 100 || atomic_load(wt_word(DONE)) == 0; i++) {
        weft_status st = weft_rows_gather(
            &table, &(weft_ids){.at = ids, .type = WEFT_I64, .n = ROWS},
            &(weft_rows){.at = out.rows, .type = WEFT_F32}, NULL);

        WT_CHECK(st == WEFT_OK || wt_names_rank(weft_error_detail(), 1));
        WT_CHECK(memcmp(out.before, zero, sizeof(zero)) == 0 &&
                 memcmp(out.after, zero, sizeof(zero)) == 0);
    }
}

static void answer_body(weft_world *world)
{
    weft_region *region = dr_create(world, &shape);

    if (wt_rank() == 0) {
        ask_a_liar(region);
    } else if (wt_rank() == 1) {
        answer_at_random(world);
        wt_word_set(DONE, 1);
    }
    wt_meet();
    dr_check_all(region);
    WT_OK(weft_region_barrier(region, 0));
    weft_region_destroy(region);
}

static void answers_that_make_no_sense_do_no_harm(void **state)
{
    (void)state;
    dr_run("aaa", answer_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_that_make_no_sense_do_no_harm),
        cmocka_unit_test(answers_that_make_no_sense_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
