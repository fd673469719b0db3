/* SPDX-License-Identifier: Apache-2.0 */
/* Breadth first, with a table of the states that were seen. Of a state that was
 * seen only a hash of 64 bits is kept, and how it was reached; the states that
 * are still to be looked at are kept whole. */
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct table {
    uint64_t *hash; /* 0: free */
    uint64_t size;  /* a power of two */
    uint64_t used;
} table;

typedef struct bytes {
    unsigned char *at;
    size_t used;
    size_t size;
    size_t read;
} bytes;

/* How a state was reached. */
typedef struct step {
    uint32_t before;
    uint16_t action;
} step;

typedef struct search {
    const plan *plan;
    bool silent;
    table seen;
    bytes now;
    bytes next;
    step *steps;
    uint64_t steps_size;
    uint64_t states;
} search;

static void *grown(void *at, size_t size)
{
    at = realloc(at, size);
    if (at == NULL) {
        fprintf(stderr, "explorer: out of memory\n");
        abort();
    }
    return at;
}

static size_t world_bytes(const world *w)
{
    return offsetof(world, flight) + w->flights * sizeof(w->flight[0]);
}

static uint64_t world_hash(const world *w)
{
    size_t words = world_bytes(w) / 4;
    uint64_t h = 0x9e3779b97f4a7c15ull;

    for (size_t i = 0; i < words; i++) {
        uint32_t x;
        memcpy(&x, (const unsigned char *)w + 4 * i, 4);
        h = (h ^ x) * 0xff51afd7ed558ccdull;
        h ^= h >> 29;
    }
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53ull;
    return (h ^ h >> 33) | 1;
}

static bool table_add(table *t, uint64_t hash);

static void table_grow(table *t)
{
    table old = *t;

    t->size = old.size == 0 ? 1u << 12 : old.size * 4;
    t->hash = grown(NULL, t->size * sizeof(uint64_t));
    memset(t->hash, 0, t->size * sizeof(uint64_t));
    t->used = 0;
    for (uint64_t i = 0; i < old.size; i++) {
        if (old.hash[i] != 0) {
            table_add(t, old.hash[i]);
        }
    }
    free(old.hash);
}

/* False if it was there. */
static bool table_add(table *t, uint64_t hash)
{
    if (2 * t->used >= t->size) {
        table_grow(t);
    }
    for (uint64_t i = hash & (t->size - 1);; i = (i + 1) & (t->size - 1)) {
        if (t->hash[i] == hash) {
            return false;
        }
        if (t->hash[i] == 0) {
            t->hash[i] = hash;
            t->used++;
            return true;
        }
    }
}

static void bytes_put(bytes *b, const world *w)
{
    size_t n = world_bytes(w);

    if (b->used + n > b->size) {
        b->size = 2 * b->size + (1u << 16);
        b->at = grown(b->at, b->size);
    }
    memcpy(b->at + b->used, w, n);
    b->used += n;
}

static bool bytes_get(bytes *b, world *w)
{
    if (b->read == b->used) {
        return false;
    }
    memset(w, 0, sizeof(*w));
    memcpy(w, b->at + b->read, offsetof(world, flight));
    memcpy(w, b->at + b->read, world_bytes(w));
    b->read += world_bytes(w);
    return true;
}

static void search_note(search *s, const world *w, uint64_t before,
                        unsigned action)
{
    if (s->states == s->steps_size) {
        s->steps_size = 2 * s->steps_size + 1024;
        s->steps = grown(s->steps, s->steps_size * sizeof(step));
    }
    s->steps[s->states++] =
        (step){.before = (uint32_t)before, .action = (uint16_t)action};
    bytes_put(&s->next, w);
}

/* Go there once more and tell what happens. */
static void tell(const search *s, uint64_t state, unsigned last)
{
    const plan *p = s->plan;
    unsigned path[512];
    unsigned n = 0;
    const char *fault = world_fault;
    world w;

    if (s->silent) {
        return;
    }
    path[n++] = last;
    for (; state != 0 && n < 512; state = s->steps[state].before) {
        path[n++] = s->steps[state].action;
    }
    printf("%u ranks, %u slots, calls of %u %u %u chunks:\n", p->ranks,
           p->slots, p->calls[0], p->calls[1], p->calls[2]);
    world_init(p, &w);
    for (unsigned i = 1; n-- > 0; i++) {
        if (path[n] < ACTIONS) {
            printf("%4u. ", i);
            world_say_action(&w, path[n]);
            world_act(p, &w, path[n]);
        }
    }
    printf("      and then: %s\n", fault);
}

/* All successors of a state; false if one is wrong. */
static bool expand(search *s, const world *w, uint64_t number)
{
    static world next;

    for (unsigned a = 0; a < ACTIONS; a++) {
        if (a >= ACT_DELIVER && (a - ACT_DELIVER) % FLIGHT >= w->flights) {
            continue;
        }
        next = *w;
        if (!world_act(s->plan, &next, a)) {
            continue;
        }
        if (world_fault != NULL) {
            tell(s, number, a);
            return false;
        }
        if (table_add(&s->seen, world_hash(&next))) {
            search_note(s, &next, number, a);
        }
    }
    return true;
}

static bool search_level(search *s, uint64_t *number, walk_stats *stats)
{
    static world w;

    while (bytes_get(&s->now, &w)) {
        if (w.flights == 0) {
            stats->quiet++;
            stats->done += world_is_done(s->plan, &w);
            world_finish(s->plan, &w);
            if (world_fault != NULL) {
                tell(s, *number, ACTIONS);
                return false;
            }
        }
        if (!expand(s, &w, *number)) {
            return false;
        }
        (*number)++;
    }
    return true;
}

bool walk(const plan *p, uint64_t limit, bool silent, walk_stats *stats)
{
    search s = {.plan = p, .silent = silent};
    uint64_t number = 0;
    bool good = true;
    world w;

    world_fault = NULL;
    world_init(p, &w);
    table_add(&s.seen, world_hash(&w));
    search_note(&s, &w, 0, ACTIONS);
    while (good && s.next.used > 0 && s.states < limit) {
        bytes empty = s.now;
        s.now = s.next;
        s.next = empty;
        s.next.used = 0;
        s.now.read = 0;
        good = search_level(&s, &number, stats);
    }
    stats->cut += good && s.next.used > 0;
    stats->plans++;
    stats->states += s.states;
    free(s.seen.hash);
    free(s.now.at);
    free(s.next.at);
    free(s.steps);
    return good;
}

void walk_print(const char *what, const walk_stats *stats)
{
    printf("%s: %llu plans, %llu states, %llu without packets under way, "
           "%llu of these at the end\n",
           what, (unsigned long long)stats->plans,
           (unsigned long long)stats->states, (unsigned long long)stats->quiet,
           (unsigned long long)stats->done);
}
