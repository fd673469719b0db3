/* SPDX-License-Identifier: Apache-2.0 */
/* Breadth first, see wt_states.h. */
#include "walk.h"

#include <stdio.h>
#include <string.h>

#include "wt_states.h"

typedef struct search {
    const plan *plan;
    bool silent;
    wt_states states;
} search;

static size_t world_bytes(const world *w)
{
    return offsetof(world, flight) + w->flights * sizeof(w->flight[0]);
}

/* Go there once more and tell what happens. */
static void tell(const search *s, uint64_t state, unsigned last)
{
    const plan *p = s->plan;
    unsigned path[512] = {last};
    unsigned n = 1 + wt_states_path(&s->states, state, path + 1, 511);
    const char *fault = world_fault;
    world w;

    if (s->silent) {
        return;
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
        wt_states_add(&s->states, &next, world_bytes(&next), number, a);
    }
    return true;
}

static bool take(search *s, world *w)
{
    memset(w, 0, sizeof(*w));
    return wt_states_take(&s->states, w);
}

static bool search_level(search *s, uint64_t *number, walk_stats *stats)
{
    static world w;

    while (!(*number % 1024 == 0 && wt_states_late()) && take(s, &w)) {
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
    wt_states_add(&s.states, &w, world_bytes(&w), 0, ACTIONS);
    while (good && s.states.count < limit && !wt_states_late() &&
           wt_states_go_on(&s.states)) {
        good = search_level(&s, &number, stats);
    }
    stats->cut += good && wt_states_left(&s.states);
    stats->plans++;
    stats->states += s.states.count;
    wt_states_fini(&s.states);
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
