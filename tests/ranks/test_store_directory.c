/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a host when keys come and go, are copies, take steps of an
 * optimizer, and when their number changes. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/coll.h>

#include "store/slots.h"
#include "wt.h"
#include "wt_cmocka.h"

static const unsigned ranks_of[] = {1, 2, 3};

static void run_all(wt_body *body)
{
    for (unsigned i = 0; i < 3; i++) {
        wt_run_both(ranks_of[i], "TIMEOUT=1800s", body);
    }
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 33;
}

static uint64_t as_many(void *ctx, uint64_t length, uint64_t keys)
{
    (void)ctx;
    (void)length;
    return keys;
}

static wf_slots *make(weft_world *world, wf_slots_options options)
{
    wf_slots *slots = NULL;

    options.room = as_many;
    WT_OK(wf_slots_create(weft_world_comm(world), &options, &slots));
    return slots;
}

static uint32_t enter(wf_slots *slots, uint64_t key)
{
    uint32_t slot = wf_slot_take(slots, key);

    WT_CHECK(slot != UINT32_MAX);
    wf_directory_put(slots, key, WF_KEY_HERE | slot);
    return slot;
}

/* Rank 0 gives all keys slots. */
static void enter_all(weft_world *world, wf_slots *slots, uint64_t keys)
{
    for (uint64_t key = 0; wt_rank() == 0 && key < keys; key++) {
        (void)enter(slots, key);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static wf_batch batch_of(const int64_t *keys, uint64_t n, void *values,
                         uint64_t *absent)
{
    return (wf_batch){.keys = {keys, WEFT_I64, n, WEFT_HOST},
                      .values = values,
                      .absent = absent};
}

/* --- keys that come and go ------------------------------------------------ */

#define KEYS 6u
#define WIDTH 19u
#define ROUNDS (WT_TSAN ? 300 : 3000)

typedef struct mover {
    weft_world *world;
    wf_slots *slots;
    pthread_t thread;
} mover;

static bool is_even(const int64_t *row)
{
    for (unsigned k = 1; k < WIDTH; k++) {
        if (row[k] != row[0]) {
            return false;
        }
    }
    return true;
}

/* Let a key go, keeping its row, and bring it back to another slot. */
static void move_key(wf_slots *slots, uint64_t key)
{
    int64_t kept[WIDTH];
    uint32_t slot = wf_directory_get(slots, key) & ~WF_KEY_HERE;
    uint32_t other;
    void *row = NULL;

    WT_OK(wf_slot_lock(slots, key, slot, WF_WRITERS - 1, &row));
    memcpy(kept, row, sizeof(kept));
    wf_directory_put(slots, key, 7);
    if (key % 2 == 0) {
        memset(row, 0xee, sizeof(kept) / 2);
        wf_slot_unlock(slots, slot, WF_WRITERS - 1);
    } else {
        wf_slot_unlock_as_it_was(slots, slot, WF_WRITERS - 1);
    }
    /* There are two, but whoever came for a key that has left one may be off
     * its core while it holds that slot. */
    do {
        other = wf_slot_take(slots, key);
    } while (other == UINT32_MAX);
    WT_CHECK(other != slot);
    wf_slot_give(slots, key, slot);
    WT_OK(wf_slot_lock(slots, key, other, WF_WRITERS - 1, &row));
    for (unsigned k = 0; k < WIDTH; k++) {
        WT_CHECK(((int64_t *)row)[k] == 0);
    }
    memcpy(row, kept, sizeof(kept));
    wf_slot_unlock(slots, other, WF_WRITERS - 1);
    wf_directory_put(slots, key, WF_KEY_HERE | other);
}

static void *mover_run(void *ctx)
{
    const mover *m = ctx;
    uint64_t seed = 5;

    wt_speak_for(0);
    while (atomic_load(wt_word(0)) < wt_ranks()) {
        move_key(m->slots, next(&seed) % KEYS);
        if (WT_TSAN) {
            usleep(100);
        }
    }
    return NULL;
}

/* Push 1 to a key until it was here; returns what is read of another. */
static void push_and_pull(wf_slots *slots, uint64_t *seed)
{
    int64_t keys[2] = {(int64_t)(next(seed) % KEYS),
                       (int64_t)(next(seed) % KEYS)};
    int64_t rows[2][WIDTH];
    uint64_t absent[2];
    wf_batch b = batch_of(keys, 1, rows, absent);

    do {
        for (unsigned k = 0; k < WIDTH; k++) {
            rows[0][k] = 1;
        }
        WT_OK(wf_slots_push(slots, &b, 0));
    } while (b.absents != 0);
    b.keys.n = 2;
    WT_OK(wf_slots_pull(slots, &b));
    for (unsigned i = 0; i < 2; i++) {
        bool gone = b.absents > 0 &&
                    (absent[0] == i || (b.absents > 1 && absent[1] == i));

        WT_CHECK(gone || (is_even(rows[i]) && rows[i][0] <= ROUNDS * 3));
    }
}

static uint64_t two_more(void *ctx, uint64_t length, uint64_t keys)
{
    (void)ctx;
    (void)length;
    return keys + 2;
}

static void moving_body(weft_world *world)
{
    wf_slots_options o = {
        .type = WEFT_I64, .keys = KEYS, .length = WIDTH, .room = two_more};
    mover m = {.world = world};
    uint64_t seed = wt_rank() + 1;
    int64_t total = 0;

    WT_OK(wf_slots_create(weft_world_comm(world), &o, &m.slots));
    enter_all(world, m.slots, KEYS);
    if (wt_rank() == 0) {
        WT_CHECK(pthread_create(&m.thread, NULL, mover_run, &m) == 0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        push_and_pull(m.slots, &seed);
    }
    wt_word_add(0, 1);
    if (wt_rank() == 0) {
        pthread_join(m.thread, NULL);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    for (int64_t key = 0; key < (int64_t)KEYS; key++) {
        int64_t row[WIDTH];
        uint64_t absent[1];
        wf_batch b = batch_of(&key, 1, row, absent);

        WT_OK(wf_slots_pull(m.slots, &b));
        WT_CHECK(b.absents == 0 && is_even(row));
        total += row[0];
    }
    WT_CHECK(total == (int64_t)wt_ranks() * ROUNDS);
    wf_slots_destroy(m.slots);
}

static void no_push_is_lost_and_no_row_torn_while_keys_move(void **state)
{
    (void)state;
    run_all(moving_body);
}

/* --- absent keys, copies, lost slots -------------------------------------- */

static void copies_body(weft_world *world)
{
    enum { N = 130, LENGTH = 3 };
    wf_slots_options o = {.type = WEFT_I32, .keys = N, .length = LENGTH};
    wf_slots *slots = make(world, o);
    int64_t keys[4] = {N - 1, 5, 70, 5};
    int32_t rows[4 * LENGTH] = {0};
    uint64_t absent[4];
    uint64_t used[N / 64 + 1] = {0};
    wf_batch b = batch_of(keys, 4, rows, absent);
    uint32_t slot;

    WT_CHECK(wf_directory_get(slots, 5) == 0);
    WT_OK(wf_slots_pull(slots, &b));
    WT_CHECK(b.absents == 4 && absent[3] == 3);
    WT_OK(weft_barrier(weft_world_comm(world)));
    enter_all(world, slots, N);
    if (wt_rank() == 0) {
        void *row = NULL;

        slot = wf_directory_get(slots, 70) & ~WF_KEY_HERE;
        WT_OK(wf_slot_lock(slots, 70, slot, 0, &row));
        wf_slot_marks_set(slots, slot, (wf_slot_marks){.flags = WF_SLOT_COPY});
        wf_slot_unlock(slots, slot, 0);
        WT_CHECK(wf_slots_dirty(slots, 0) == UINT32_MAX);
        WT_OK(wf_slots_push(slots, &b, 0));
        WT_CHECK(b.absents == 0 && b.copies == 1);
        WT_OK(wf_slots_pull(slots, &b));
        WT_CHECK(b.absents == 0 && b.copies == 1);
        WT_OK(wf_slots_set(slots, &b, 0));
        WT_CHECK(b.absents == 1 && absent[0] == 2 && b.copies == 0);
        WT_CHECK(wf_slots_dirty(slots, slot + 1) == UINT32_MAX);
        WT_CHECK(wf_slots_dirty(slots, 0) == slot);
        WT_CHECK(wf_slots_dirty(slots, 0) == UINT32_MAX);
        /* All slots are in use; one is lost, and found again. */
        WT_CHECK(wf_slot_take(slots, 3) == UINT32_MAX);
        wf_directory_put(slots, 70, 0);
        WT_CHECK(wf_slot_take(slots, 70) == UINT32_MAX);
        wf_slots_recover(slots, used);
        WT_CHECK(enter(slots, 70) == slot);
        WT_CHECK(wf_slot_take(slots, 70) == UINT32_MAX);
        b.keys.n = 3;
        WT_OK(wf_slots_pull(slots, &b));
        WT_CHECK(b.absents == 0 && b.copies == 0);
    }
    wf_slots_destroy(slots);
}

static void copies_are_told_from_other_rows(void **state)
{
    (void)state;
    run_all(copies_body);
}

/* Note the dirty slots, which come in order; how many there were. */
static unsigned take_dirty(wf_slots *slots, bool *found)
{
    unsigned n = 0;
    uint32_t last = 0;

    for (uint32_t s = wf_slots_dirty(slots, 0); s != UINT32_MAX;
         s = wf_slots_dirty(slots, s + 1), n++) {
        WT_CHECK(n == 0 || s > last);
        last = s;
        found[s] = true;
    }
    return n;
}

/* Some copies far apart are pushed to while the first rank looks for them. */
static void dirty_body(weft_world *world)
{
    enum { N = 3 * 4096 + 70, STEP = 501 };
    wf_slots_options o = {.type = WEFT_I32, .keys = N, .length = 1};
    wf_slots *slots = make(world, o);
    bool *found = calloc(N, sizeof(*found));
    int32_t one = 1;
    uint64_t absent[1];
    unsigned n = 0;

    WT_CHECK(found != NULL);
    enter_all(world, slots, N);
    for (uint32_t s = 0; wt_rank() == 0 && s < N; s += STEP) {
        void *row = NULL;

        WT_OK(wf_slot_lock(slots, s, s, 0, &row));
        wf_slot_marks_set(slots, s, (wf_slot_marks){.flags = WF_SLOT_COPY});
        wf_slot_unlock(slots, s, 0);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    for (int64_t key = 0; key < N; key++) {
        wf_batch b = batch_of(&key, 1, &one, absent);

        WT_OK(wf_slots_push(slots, &b, 0));
        if (wt_rank() == 0 && key % 64 == 0) {
            n += take_dirty(slots, found);
        }
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    if (wt_rank() == 0) {
        n += take_dirty(slots, found);
        WT_CHECK(n >= (N + STEP - 1) / STEP);
        for (uint32_t s = 0; s < N; s++) {
            WT_CHECK(found[s] == (s % STEP == 0));
        }
        WT_CHECK(wf_slots_dirty(slots, 0) == UINT32_MAX);
    }
    free(found);
    wf_slots_destroy(slots);
}

static void copies_that_were_written_to_are_found(void **state)
{
    (void)state;
    run_all(dirty_body);
}

/* --- optimizers ----------------------------------------------------------- */

enum { ROWS = 11, BATCH = 23, MOST = 600 };

typedef struct reference {
    weft_update rule;
    weft_dtype type;
    uint64_t length;
    char weights[ROWS * MOST * 4];
    float state[2][ROWS * MOST];
    int32_t steps[ROWS];
} reference;

static weft_table table_of(void *at, weft_dtype type, uint64_t width)
{
    return (weft_table){.at = at,
                        .rows = ROWS,
                        .pitch = width * weft_dtype_size(type),
                        .width = width,
                        .type = type};
}

/* A push as the rows' own calls make it. */
static void reference_push(reference *r, const int64_t *keys, uint64_t n,
                           void *grads)
{
    bool narrow = r->rule.kind == WEFT_ROWWISE_ADAGRAD;
    weft_table weights = table_of(r->weights, r->type, r->length);
    weft_table states[3] = {
        table_of(r->state[0], WEFT_F32, narrow ? 1 : r->length),
        table_of(r->state[1], WEFT_F32, r->length),
        table_of(r->steps, WEFT_I32, 1)};
    const weft_table *has[3] = {NULL, NULL, NULL};
    int64_t *unique = calloc(n, sizeof(*unique));
    float *sums = calloc(n * r->length + 1, sizeof(*sums));
    weft_ids ids = {keys, WEFT_I64, n, WEFT_HOST};
    weft_rows from = {grads, 0, r->type, WEFT_HOST};
    weft_rows to = {sums, 0, WEFT_F32, WEFT_HOST};
    uint64_t count = 0;

    WT_CHECK(unique != NULL && sums != NULL);
    for (int i = 0; i < 3; i++) {
        bool needed = r->rule.kind == WEFT_LAZY_ADAM ||
                      (i == 0 && r->rule.kind != WEFT_SGD);

        has[i] = needed ? &states[i] : NULL;
    }
    WT_OK(weft_rows_unique(&ids, &from, r->length, ROWS, unique, &to, &count,
                           NULL));
    ids.at = unique;
    WT_OK(weft_rows_update(&weights, has, &ids, &to, &r->rule, NULL));
    free(unique);
    free(sums);
}

static void fill_grads(weft_dtype type, char *grads, uint64_t n, uint64_t *seed)
{
    for (uint64_t i = 0; i < n; i++) {
        float f = (float)((int)(next(seed) % 2001) - 1000) / 512.0f;
        uint32_t bits;
        uint16_t half;

        memcpy(&bits, &f, 4);
        /* For f16 these are other numbers, which are as good. */
        half = (uint16_t)(type == WEFT_F16 ? bits >> 16 & 0xb7ff : bits >> 16);
        if (type == WEFT_F32) {
            memcpy(grads + i * 4, &f, 4);
        } else {
            memcpy(grads + i * 2, &half, 2);
        }
    }
}

static void optimizer_case(weft_world *world, weft_optimizer kind,
                           weft_dtype type, uint64_t length, bool direct)
{
    weft_update rule = {.size = sizeof(rule),
                        .kind = kind,
                        .lr = 0.1,
                        .weight_decay = 0.01,
                        .eps = 1e-8,
                        .alpha = 0.99,
                        .beta1 = 0.9,
                        .beta2 = 0.999,
                        .step = 1};
    wf_slots_options o = {.type = type,
                          .keys = ROWS,
                          .length = length,
                          .optimizer = &rule,
                          .direct = direct};
    wf_slots *slots = make(world, o);
    reference *r = calloc(1, sizeof(*r));
    char *grads = malloc(BATCH * MOST * 4 + 1);
    uint64_t seed = 9;
    int64_t keys[BATCH];
    uint64_t absent[BATCH];
    wf_batch b = batch_of(keys, BATCH, grads + 1, absent);

    WT_CHECK(r != NULL && grads != NULL);
    r->rule = rule;
    r->rule.kind = kind == WEFT_ADAM ? WEFT_LAZY_ADAM : kind;
    r->type = type;
    r->length = length;
    if (!direct) {
        enter_all(world, slots, ROWS);
    }
    for (int round = 0; wt_rank() == 0 && round < 4; round++) {
        for (int i = 0; i < BATCH; i++) {
            keys[i] = (int64_t)(next(&seed) % ROWS);
        }
        fill_grads(type, grads, BATCH * length, &seed);
        reference_push(r, keys, BATCH, grads);
        memmove(grads + 1, grads, BATCH * length * weft_dtype_size(type));
        WT_OK(wf_slots_push(slots, &b, 3));
        WT_CHECK(b.absents == 0);
    }
    for (int i = 0; i < ROWS; i++) {
        keys[i] = i;
    }
    b.keys.n = ROWS;
    WT_OK(wf_slots_pull(slots, &b));
    WT_CHECK(wt_rank() != 0 ||
             memcmp(grads + 1, r->weights,
                    ROWS * length * weft_dtype_size(type)) == 0);
    wf_slots_destroy(slots);
    free(grads);
    free(r);
}

static void optimizer_body(weft_world *world)
{
    static const weft_dtype of[] = {WEFT_F32, WEFT_BF16, WEFT_F16};
    static const uint64_t lengths[] = {1, 5, 600};

    for (int kind = WEFT_SGD; kind <= (int)WEFT_LAZY_ADAM; kind++) {
        for (int i = 0; i < 9; i++) {
            optimizer_case(world, (weft_optimizer)kind, of[i / 3],
                           lengths[i % 3], i % 2 == 0);
        }
    }
}

static void steps_have_the_bits_of_rows_update(void **state)
{
    (void)state;
    wt_run_both(1, "TIMEOUT=1800s", optimizer_body);
    wt_run_both(2, "TIMEOUT=1800s", optimizer_body);
}

/* Rows of several lengths, of which some are copies or not here. */
static void mixed_steps_body(weft_world *world)
{
    enum { N = 6 };
    const int64_t lengths[N] = {2, 0, 3, 2, 3, 1};
    weft_update rule = {.size = sizeof(rule), .kind = WEFT_SGD, .lr = 1};
    wf_slots_options o = {
        .type = WEFT_F32, .keys = N, .lengths = lengths, .optimizer = &rule};
    wf_slots *slots = make(world, o);
    int64_t keys[8] = {0, 5, 4, 1, 0, 2, 4, 3};
    float rows[2 + 1 + 3 + 0 + 2 + 3 + 3 + 2] = {1, 1, 1, 1, 1, 1, 2, 2,
                                                 1, 1, 1, 2, 2, 2, 1, 1};
    uint64_t absent[8];
    wf_batch b = batch_of(keys, 8, rows, absent);
    void *row = NULL;

    if (wt_rank() == 0) {
        for (uint64_t key = 0; key < N; key++) {
            if (key != 4) {
                uint32_t slot = enter(slots, key);

                WT_OK(wf_slot_lock(slots, key, slot, 0, &row));
                wf_slot_marks_set(
                    slots, slot,
                    (wf_slot_marks){.flags = key == 3 ? WF_SLOT_COPY : 0});
                wf_slot_unlock(slots, slot, 0);
            }
        }
        WT_OK(wf_slots_push(slots, &b, 0));
        WT_CHECK(b.absents == 3 && absent[0] == 2 && absent[1] == 6 &&
                 absent[2] == 7);
        memset(rows, 0, sizeof(rows));
        WT_OK(wf_slots_pull(slots, &b));
        WT_CHECK(b.absents == 2 && b.copies == 1);
        WT_CHECK(rows[0] == -3 && rows[2] == -1 && rows[6] == -3 &&
                 rows[8] == -1 && rows[14] == 0);
    }
    wf_slots_destroy(slots);
}

static void steps_of_rows_that_are_not_here_are_left_to_others(void **state)
{
    (void)state;
    run_all(mixed_steps_body);
}

/* --- another number of keys, and the end ---------------------------------- */

static void resize_case(weft_world *world, bool direct)
{
    wf_slots_options o = {.type = WEFT_I64,
                          .keys = 10,
                          .max_keys = 5000,
                          .length = 9,
                          .direct = direct};
    wf_slots *slots = make(world, o);
    int64_t keys[2] = {9, 4999};
    int64_t rows[18];
    uint64_t absent[2];
    wf_batch b = batch_of(keys, 1, rows, absent);

    if (!direct) {
        enter_all(world, slots, 10);
    }
    for (int k = 0; k < 18; k++) {
        rows[k] = 1;
    }
    WT_OK(wf_slots_push(slots, &b, 0));
    WT_STATUS(wf_slots_resize(slots, 5001, 0), WEFT_ERR_INVALID);
    WT_OK(wf_slots_resize(slots, 5000, 1));
    if (!direct && wt_rank() == 0) {
        WT_CHECK(wf_directory_get(slots, 4999) == 0);
        (void)enter(slots, 4999);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    b.keys.n = 2;
    WT_OK(wf_slots_push(slots, &b, 0));
    WT_OK(weft_barrier(weft_world_comm(world)));
    WT_OK(wf_slots_pull(slots, &b));
    WT_CHECK(b.absents == 0 && rows[0] == 2 * wt_ranks() &&
             rows[17] == wt_ranks());
    if (direct) {
        WT_OK(wf_slots_resize(slots, 9, 0));
        WT_OK(wf_slots_resize(slots, 5000, 1));
        WT_OK(wf_slots_pull(slots, &b));
        WT_CHECK(rows[0] == 0 && rows[17] == 0);
    }
    wf_slots_destroy(slots);
}

static void resize_body(weft_world *world)
{
    resize_case(world, true);
    resize_case(world, false);
}

static void the_number_of_keys_changes_and_rows_stay(void **state)
{
    (void)state;
    run_all(resize_body);
}

/* --- rows that are locked and not written to ------------------------------ */

#define READ_KEYS 64u

typedef struct holder {
    wf_slots *slots;
    atomic_bool over;
} holder;

/* Lock one row after the other and leave it as it was. */
static void *hold_rows(void *ctx)
{
    holder *h = ctx;

    for (uint64_t key = 0; !atomic_load(&h->over);
         key = (key + 1) % READ_KEYS) {
        uint32_t slot = wf_directory_get(h->slots, key) & ~WF_KEY_HERE;
        void *row = NULL;

        WT_OK(wf_slot_lock(h->slots, key, slot, WF_WRITERS - 1, &row));
        wf_slot_unlock_as_it_was(h->slots, slot, WF_WRITERS - 1);
    }
    return NULL;
}

static void held_body(weft_world *world)
{
    wf_slots_options o = {.type = WEFT_I64, .keys = READ_KEYS, .length = 1};
    holder h = {.slots = make(world, o)};
    int64_t keys[READ_KEYS];
    int64_t values[READ_KEYS];
    uint64_t absent[READ_KEYS];
    pthread_t thread;

    enter_all(world, h.slots, READ_KEYS);
    for (unsigned i = 0; i < READ_KEYS; i++) {
        keys[i] = i;
    }
    WT_CHECK(pthread_create(&thread, NULL, hold_rows, &h) == 0);
    for (unsigned round = 0; round < (WT_TSAN ? 2000 : 400000); round++) {
        wf_batch batch = batch_of(keys, READ_KEYS, values, absent);

        memset(values, 0xff, sizeof(values));
        WT_OK(wf_slots_pull(h.slots, &batch));
        for (unsigned i = 0; i < READ_KEYS; i++) {
            WT_CHECK(values[i] == 0);
        }
    }
    atomic_store(&h.over, true);
    pthread_join(thread, NULL);
    WT_OK(weft_barrier(weft_world_comm(world)));
    wf_slots_destroy(h.slots);
}

static void
a_row_that_somebody_holds_for_a_moment_is_read_all_the_same(void **state)
{
    (void)state;
    wt_run_both(1, NULL, held_body);
}

static void closed_body(weft_world *world)
{
    wf_slots_options o = {
        .type = WEFT_F32, .keys = 4, .length = 4, .direct = true};
    wf_slots *slots = make(world, o);
    int status = 0;
    pid_t child;

    WT_OK(wf_slots_here(slots));
    child = fork();
    if (child == 0) {
        weft_status st = wf_slots_here(slots);

        wf_slots_destroy(slots);
        _exit(st == WEFT_ERR_CLOSED ? 0 : 1);
    }
    WT_CHECK(waitpid(child, &status, 0) == child && status == 0);
    wf_slots_destroy(slots);
}

static void a_forked_child_is_told_that_the_store_is_closed(void **state)
{
    (void)state;
    wt_run(2, NULL, closed_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_push_is_lost_and_no_row_torn_while_keys_move),
        cmocka_unit_test(
            a_row_that_somebody_holds_for_a_moment_is_read_all_the_same),
        cmocka_unit_test(copies_are_told_from_other_rows),
        cmocka_unit_test(copies_that_were_written_to_are_found),
        cmocka_unit_test(steps_have_the_bits_of_rows_update),
        cmocka_unit_test(steps_of_rows_that_are_not_here_are_left_to_others),
        cmocka_unit_test(the_number_of_keys_changes_and_rows_stay),
        cmocka_unit_test(a_forked_child_is_told_that_the_store_is_closed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
