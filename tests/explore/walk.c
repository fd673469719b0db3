/* SPDX-License-Identifier: Apache-2.0 */
/* Breadth first, with a table of the states that were seen. Of a state that was
 * seen only a hash of 64 bits is kept, and how it was reached; the states that
 * are still to be looked at are kept whole. */
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"

double walk_deadline;

bool walk_late(void)
{
    return walk_deadline > 0 && wt_now() > walk_deadline;
}

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
    table seen;
    bytes now;
    bytes next;
    step *steps;
    uint64_t steps_size;
    uint64_t states;
} search;

static uint64_t happened[WF_LOST + 1];

void walk_happened(wf_happened what)
{
    happened[what]++;
}

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
    size_t words = world_bytes(w) / 8;
    uint64_t h = 0x9e3779b97f4a7c15ull;

    for (size_t i = 0; i < words; i++) {
        uint64_t x;
        memcpy(&x, (const unsigned char *)w + 8 * i, 8);
        h = (h ^ x) * 0xff51afd7ed558ccdull;
        h ^= h >> 29;
    }
    h ^= w->flights;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53ull;
    return h ^ h >> 33 ? h ^ h >> 33 : 1;
}

static bool table_add(table *t, uint64_t hash);

static void table_grow(table *t)
{
    table old = *t;

    t->size = old.size == 0 ? 1u << 12 : old.size * 4;
    t->hash = calloc(t->size, sizeof(uint64_t));
    t->used = 0;
    if (t->hash == NULL) {
        fprintf(stderr, "explorer: out of memory\n");
        abort();
    }
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
    size_t n;

    if (b->read == b->used) {
        return false;
    }
    memset(w, 0, sizeof(*w));
    memcpy(w, b->at + b->read, offsetof(world, flight));
    n = world_bytes(w);
    memcpy(w, b->at + b->read, n);
    b->read += n;
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
static void tell(const plan *p, const search *s, uint64_t state, unsigned last)
{
    unsigned path[1024];
    unsigned n = 0;
    world w;

    path[n++] = last;
    for (; state != 0 && n < 1024; state = s->steps[state].before) {
        path[n++] = s->steps[state].action;
    }
    printf("plan %s (techniques %d rounds %u deaths %u+%u room %u%s): %s\n",
           p->text, (int)p->techniques, p->rounds, p->deaths, p->host_deaths,
           p->room, p->optimizer ? " optimizer" : "", world_fault);
    world_init(p, &w);
    for (unsigned i = 1; n-- > 0; i++) {
        if (path[n] < ACTIONS) {
            printf("%4u. ", i);
            world_say_action(p, &w, path[n]);
            world_act(p, &w, path[n]);
        }
    }
    printf("      and then: %s\n", world_fault);
}

/* All successors of a state; false if one is wrong. */
static bool expand(const plan *p, search *s, const world *w, uint64_t number,
                   bool silent)
{
    static world next;
    static unsigned char possible[ACTIONS];

    memset(possible, 0, sizeof(possible));
    memset(possible, 1, ACT_DELIVER);
    for (unsigned i = 0; i < w->flights && w->flight[i].where < PARKED; i++) {
        possible[ACT_DELIVER + w->flight[i].where] = 1;
    }
    for (unsigned a = 0; a < ACTIONS; a++) {
        if (!possible[a]) {
            continue;
        }
        memcpy(&next, w, world_bytes(w));
        memset(&next.flight[w->flights], 0,
               (FLIGHT - w->flights) * sizeof(flight));
        if (!world_act(p, &next, a)) {
            continue;
        }
        check_state(p, &next);
        if (world_fault != NULL) {
            if (!silent) {
                tell(p, s, number, a);
            }
            return false;
        }
        if (table_add(&s->seen, world_hash(&next))) {
            search_note(s, &next, number, a);
        }
    }
    return true;
}

static bool search_level(const plan *p, search *s, uint64_t *number,
                         bool silent, walk_stats *stats)
{
    static world w;

    while (!(*number % 1024 == 0 && walk_late()) && bytes_get(&s->now, &w)) {
        if (world_is_quiet(p, &w)) {
            stats->ends++;
            check_end(p, &w);
            if (world_fault != NULL) {
                if (!silent) {
                    tell(p, s, *number, ACTIONS);
                }
                return false;
            }
        }
        if (!expand(p, s, &w, *number, silent)) {
            return false;
        }
        (*number)++;
    }
    return true;
}

bool walk(const plan *p, uint64_t limit, bool silent, walk_stats *stats)
{
    search s = {0};
    uint64_t number = 0;
    bool good = true;
    world w;

    world_fault = NULL;
    memset(happened, 0, sizeof(happened));
    world_init(p, &w);
    table_add(&s.seen, world_hash(&w));
    search_note(&s, &w, 0, 0);
    while (good && s.next.used > 0 && s.states < limit && !walk_late()) {
        bytes empty = s.now;
        s.now = s.next;
        s.next = empty;
        s.next.used = 0;
        s.now.read = 0;
        good = search_level(p, &s, &number, silent, stats);
    }
    stats->cut += good && (s.next.used > 0 || s.now.read < s.now.used);
    stats->plans++;
    stats->states += s.states;
    for (unsigned i = 0; i <= WF_LOST; i++) {
        stats->happened[i] += happened[i];
    }
    free(s.seen.hash);
    free(s.now.at);
    free(s.next.at);
    free(s.steps);
    return good;
}
