/* SPDX-License-Identifier: Apache-2.0 */
/* Breadth first, see wt_states.h. */
#include "walk.h"

#include <stdio.h>
#include <string.h>

#include "wt.h"
#include "wt_states.h"

static uint64_t happened[WF_LOST + 1];

void walk_happened(wf_happened what)
{
    happened[what]++;
}

static size_t world_bytes(const world *w)
{
    return offsetof(world, flight) + w->flights * sizeof(w->flight[0]);
}

/* Go there once more and tell what happens. */
static void tell(const plan *p, const wt_states *s, uint64_t state,
                 unsigned last)
{
    unsigned path[1024] = {last};
    unsigned n = 1 + wt_states_path(s, state, path + 1, 1023);
    world w;

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
static bool expand(const plan *p, wt_states *s, const world *w, uint64_t number,
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
        wt_states_add(s, &next, world_bytes(&next), number, a);
    }
    return true;
}

static bool take(wt_states *s, world *w)
{
    memset(w, 0, sizeof(*w));
    return wt_states_take(s, w);
}

static bool search_level(const plan *p, wt_states *s, uint64_t *number,
                         bool silent, walk_stats *stats)
{
    static world w;

    while (!(*number % 1024 == 0 && wt_states_late()) && take(s, &w)) {
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
    wt_states s = {0};
    uint64_t number = 0;
    bool good = true;
    world w;

    world_fault = NULL;
    memset(happened, 0, sizeof(happened));
    world_init(p, &w);
    wt_states_add(&s, &w, world_bytes(&w), 0, 0);
    while (good && s.count < limit && !wt_states_late() &&
           wt_states_go_on(&s)) {
        good = search_level(p, &s, &number, silent, stats);
    }
    stats->cut += good && wt_states_left(&s);
    stats->plans++;
    stats->states += s.count;
    for (unsigned i = 0; i <= WF_LOST; i++) {
        stats->happened[i] += happened[i];
    }
    wt_states_fini(&s);
    return good;
}
