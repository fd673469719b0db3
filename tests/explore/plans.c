/* SPDX-License-Identifier: Apache-2.0 */
#include "plans.h"

#include <stdio.h>
#include <string.h>

#include "wt_states.h"

enum { LIMIT = 30000000 }; /* states of a plan: none has so many */

static const char *const programs[] = {
    "",    "U",  "P",  "S",   "IU", "IE",  "UP",  "IUE",
    "IUP", "LU", "IS", "ISU", "US", "IPE", "UIU", "ISEP",
};
enum { PROGRAMS = sizeof(programs) / sizeof(programs[0]) };
_Static_assert((PROGRAMS & (PROGRAMS - 1)) == 0,
               "plans_all needs a power of 2");

static bool walk_one(const chosen *c, const char *text, char techniques,
                     walk_stats *stats)
{
    plan p;

    plan_read(&p, text);
    p.techniques = (weft_techniques)(techniques - '0');
    p.rounds = c->rounds;
    p.deaths = c->deaths;
    p.host_deaths = c->host_deaths;
    p.room = c->room;
    p.optimizer = c->optimizer;
    p.moves = c->moves;
    return walk(&p, LIMIT, false, stats);
}

bool plans_chosen(const chosen *list, unsigned n, walk_stats *stats)
{
    for (unsigned i = 0; i < n; i++) {
        for (const char *t = list[i].techniques; *t != 0; t++) {
            if (!walk_one(&list[i], list[i].text, *t, stats)) {
                return false;
            }
        }
    }
    return true;
}

/* Of plans that differ only in the order of workers that are alike, one is
 * walked: workers of one host, and hosts 1 and 2 with one worker each. */
static bool plan_is_first(const char *hosts, const unsigned *program)
{
    for (unsigned i = 0; hosts[i + 1] != 0; i++) {
        bool alike = hosts[i] == hosts[i + 1] ||
                     (strcmp(hosts, "012") == 0 && hosts[i] == '1');
        if (alike && program[i] > program[i + 1]) {
            return false;
        }
    }
    return true;
}

/* The nth plan; false if it has more steps than `length`. */
static bool plan_write(char *text, size_t room, const char *hosts,
                       unsigned length, unsigned nth)
{
    unsigned program[WORKERS] = {0};
    size_t steps = 0;
    size_t used = 0;

    for (unsigned i = 0; hosts[i] != 0; i++, nth /= PROGRAMS) {
        program[i] = nth % PROGRAMS;
        steps += strlen(programs[program[i]]);
        used +=
            (size_t)snprintf(text + used, room - used, "%s%c:%s",
                             i > 0 ? " " : "", hosts[i], programs[program[i]]);
    }
    return steps <= length && plan_is_first(hosts, program);
}

bool plans_all(const char *hosts, const chosen *like, unsigned length,
               walk_stats *stats)
{
    unsigned plans = 1;
    char text[64];

    for (unsigned i = 0; hosts[i] != 0; i++) {
        plans *= PROGRAMS;
    }
    for (unsigned n = 1; n < plans && !wt_states_late(); n++) {
        /* In an order in which those of the first minute are of all kinds: as
         * there are 2^k plans, an odd number leads through all of them. */
        unsigned nth = n * 0x9e3779b1u % plans;

        if (!plan_write(text, sizeof(text), hosts, length, nth)) {
            continue;
        }
        for (const char *t = like->techniques; *t != 0 && !wt_states_late();
             t++) {
            if (!walk_one(like, text, *t, stats)) {
                return false;
            }
        }
    }
    return true;
}

void plans_print(const char *what, const walk_stats *stats)
{
    const uint64_t *h = stats->happened;

    printf("%s: %llu plans, %llu states, %llu ends; %llu moves, %llu copies, "
           "%llu expired, %llu parked, %llu forwarded, %llu refused, %llu "
           "lost\n",
           what, (unsigned long long)stats->plans,
           (unsigned long long)stats->states, (unsigned long long)stats->ends,
           (unsigned long long)h[WF_MOVED_IN],
           (unsigned long long)h[WF_COPIED_IN],
           (unsigned long long)h[WF_EXPIRED], (unsigned long long)h[WF_PARKED],
           (unsigned long long)h[WF_FORWARDED],
           (unsigned long long)h[WF_REFUSED], (unsigned long long)h[WF_LOST]);
    fflush(stdout);
}
