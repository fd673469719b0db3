/* SPDX-License-Identifier: Apache-2.0 */
#include "plans.h"

#include <stdio.h>
#include <string.h>

enum { LIMIT = 30000000 }; /* states of a plan: none has so many */

static const char *const programs[] = {
    "",    "U",  "P",  "S",   "IU", "IE",  "UP",  "IUE",
    "IUP", "LU", "IS", "ISU", "US", "IPE", "UIU",
};
enum { PROGRAMS = sizeof(programs) / sizeof(programs[0]) };

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

/* Hosts 1 and 2 are alike: of two plans that differ in their order only, one is
 * walked. */
bool plans_all(const chosen *like, unsigned length, walk_stats *stats)
{
    char text[64];

    for (unsigned n = 1; n < PROGRAMS * PROGRAMS * PROGRAMS; n++) {
        const char *a = programs[n / PROGRAMS / PROGRAMS];
        unsigned b = n / PROGRAMS % PROGRAMS;
        unsigned c = n % PROGRAMS;
        size_t steps = strlen(a) + strlen(programs[b]) + strlen(programs[c]);
        if (b > c || steps > length) {
            continue;
        }
        snprintf(text, sizeof(text), "0:%s 1:%s 2:%s", a, programs[b],
                 programs[c]);
        for (const char *t = like->techniques; *t != 0; t++) {
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
