/* SPDX-License-Identifier: Apache-2.0 */
/* The explorer with more room, for as long as asked, or one plan. Each bound
 * has an equal part of the time that is left:
 *
 *     soak [seconds]
 *     soak "0:I 1:IUE" [techniques [rounds [deaths [deaths of hosts [room]]]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plans.h"
#include "wt.h"
#include "wt_states.h"

static const struct {
    const char *hosts; /* of the workers */
    unsigned length;
    chosen like;
} bounds[] = {
    {"012", 5, {.techniques = "012", .rounds = 1, .room = 2}},
    {"011", 5, {.techniques = "012", .rounds = 1, .room = 2}},
    {"012", 4, {.techniques = "012", .rounds = 2, .room = 2}},
    {"0112", 4, {.techniques = "012", .rounds = 2, .room = 2}},
    {"012",
     4,
     {.techniques = "012", .rounds = 2, .room = 1, .optimizer = true}},
    {"012", 3, {.techniques = "012", .rounds = 1, .deaths = 1, .room = 2}},
    {"011", 3, {.techniques = "012", .rounds = 1, .deaths = 1, .room = 2}},
    {"012", 3, {.techniques = "012", .rounds = 1, .host_deaths = 1, .room = 2}},
    {"011", 6, {.techniques = "01", .rounds = 1, .room = 2}},
    {"012", 5, {.techniques = "012", .rounds = 2, .room = 2}},
    {"012", 4, {.techniques = "012", .rounds = 1, .host_deaths = 1, .room = 2}},
};

static int one_plan(int argc, char **argv)
{
    unsigned given[5] = {0, 1, 0, 0, 2};
    char techniques[2] = "0";
    walk_stats stats = {0};
    chosen c;

    for (int i = 2; i < argc && i < 7; i++) {
        given[i - 2] = (unsigned)atoi(argv[i]);
    }
    techniques[0] = (char)('0' + given[0] % 3);
    c = (chosen){argv[1],  techniques, given[1], given[2],
                 given[3], given[4],   false,    0};
    if (!plans_chosen(&c, 1, &stats)) {
        return 1;
    }
    plans_print(argv[1], &stats);
    return 0;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 60;
    double end = wt_now() + seconds;
    unsigned n = sizeof(bounds) / sizeof(bounds[0]);

    if (argc > 1 && strchr(argv[1], ':') != NULL) {
        return one_plan(argc, argv);
    }
    for (unsigned i = 0; i < n && wt_now() < end; i++) {
        walk_stats stats = {0};

        wt_states_deadline = wt_now() + (end - wt_now()) / (n - i);
        if (!plans_all(bounds[i].hosts, &bounds[i].like, bounds[i].length,
                       &stats)) {
            return 1;
        }
        plans_print(wt_states_late() ? "larger bound, in part" : "larger bound",
                    &stats);
    }
    return 0;
}
