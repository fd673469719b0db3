/* SPDX-License-Identifier: Apache-2.0 */
#include "wt_states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"

typedef struct wt_state_step {
    uint32_t before;
    uint16_t action;
} step;

static void *grown(void *at, size_t size)
{
    at = realloc(at, size);
    if (at == NULL) {
        fprintf(stderr, "no memory for more states\n");
        abort();
    }
    return at;
}

static uint64_t state_hash(const unsigned char *at, size_t n)
{
    uint64_t h = 0x9e3779b97f4a7c15ull ^ n;

    for (; n > 0; n -= n < 8 ? n : 8, at += 8) {
        uint64_t x = 0;

        memcpy(&x, at, n < 8 ? n : 8);
        h = (h ^ x) * 0xff51afd7ed558ccdull;
        h ^= h >> 29;
    }
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53ull;
    return h ^ h >> 33 ? h ^ h >> 33 : 1;
}

/* --- those that were seen --------------------------------------------------
 */

/* False if it was there. */
static bool seen_put(wt_states *s, uint64_t hash)
{
    uint64_t i = hash & (s->size - 1);

    while (s->hash[i] != 0 && s->hash[i] != hash) {
        i = (i + 1) & (s->size - 1);
    }
    if (s->hash[i] == hash) {
        return false;
    }
    s->hash[i] = hash;
    return true;
}

static void seen_grow(wt_states *s)
{
    uint64_t *old = s->hash;
    uint64_t size = s->size;

    s->size = size == 0 ? 1u << 12 : size * 4;
    s->hash = grown(NULL, s->size * sizeof(uint64_t));
    memset(s->hash, 0, s->size * sizeof(uint64_t));
    for (uint64_t i = 0; i < size; i++) {
        if (old[i] != 0) {
            seen_put(s, old[i]);
        }
    }
    free(old);
}

/* --- those to be looked at, each behind its length -------------------------
 */

static void queue_put(wt_state_queue *q, const void *state, size_t n)
{
    if (q->used + sizeof(n) + n > q->size) {
        q->size = 2 * q->size + sizeof(n) + n + (1u << 16);
        q->at = grown(q->at, q->size);
    }
    memcpy(q->at + q->used, &n, sizeof(n));
    memcpy(q->at + q->used + sizeof(n), state, n);
    q->used += sizeof(n) + n;
}

bool wt_states_take(wt_states *s, void *state)
{
    wt_state_queue *q = &s->now;
    size_t n;

    if (q->read == q->used) {
        return false;
    }
    memcpy(&n, q->at + q->read, sizeof(n));
    memcpy(state, q->at + q->read + sizeof(n), n);
    q->read += sizeof(n) + n;
    return true;
}

bool wt_states_go_on(wt_states *s)
{
    wt_state_queue empty = s->now;

    s->now = s->next;
    s->next = empty;
    s->next.used = s->next.read = 0;
    return s->now.used > 0;
}

bool wt_states_left(const wt_states *s)
{
    return s->now.read < s->now.used || s->next.used > 0;
}

/* --- ways ------------------------------------------------------------------
 */

void wt_states_add(wt_states *s, const void *state, size_t n, uint64_t before,
                   unsigned action)
{
    if (2 * s->count >= s->size) {
        seen_grow(s);
    }
    if (!seen_put(s, state_hash(state, n))) {
        return;
    }
    if (s->count == s->steps_size) {
        s->steps_size = 2 * s->steps_size + 1024;
        s->steps = grown(s->steps, s->steps_size * sizeof(step));
    }
    s->steps[s->count++] =
        (step){.before = (uint32_t)before, .action = (uint16_t)action};
    queue_put(&s->next, state, n);
}

unsigned wt_states_path(const wt_states *s, uint64_t number, unsigned *path,
                        unsigned room)
{
    unsigned n = 0;

    for (; number != 0 && n < room; number = s->steps[number].before) {
        path[n++] = s->steps[number].action;
    }
    return n;
}

void wt_states_fini(wt_states *s)
{
    free(s->hash);
    free(s->now.at);
    free(s->next.at);
    free(s->steps);
    *s = (wt_states){0};
}

/* --- time ----------------------------------------------------------------- */

double wt_states_deadline;

bool wt_states_late(void)
{
    return wt_states_deadline > 0 && wt_now() > wt_states_deadline;
}
