/* SPDX-License-Identifier: Apache-2.0 */
/* The explorer with more room, for as long as asked, or one plan. Each plan has
 * an equal part of the time that is left:
 *
 *     soak [seconds]
 *     soak ranks slots chunks losses repeats timeouts
 */
#include <stdlib.h>

#include "walk.h"
#include "wt.h"
#include "wt_states.h"

static const plan larger[] = {
    {3, 1, {2}, 1, 1, 1, false, false}, {2, 2, {3}, 1, 1, 1, false, false},
    {3, 2, {2}, 0, 0, 1, false, false}, {3, 2, {4}, 1, 1, 0, false, false},
    {2, 2, {5}, 1, 0, 1, false, false}, {2, 1, {4}, 2, 1, 2, false, false},
    {3, 3, {3}, 1, 1, 0, false, false}, {2, 3, {4}, 1, 0, 1, false, false},
};

static bool walk_one(const plan *p)
{
    walk_stats stats = {0};
    bool good = walk(p, UINT32_MAX, false, &stats);

    walk_print(stats.cut > 0 ? "larger bound, in part" : "larger bound",
               &stats);
    return good;
}

int main(int argc, char **argv)
{
    double end = wt_now() + (argc > 1 ? atof(argv[1]) : 60);
    unsigned n = sizeof(larger) / sizeof(larger[0]);
    bool good = true;

    if (argc == 7) {
        unsigned given[6];

        for (unsigned i = 0; i < 6; i++) {
            given[i] = (unsigned)atoi(argv[i + 1]);
        }
        return !walk_one(&(plan){given[0],
                                 given[1],
                                 {given[2]},
                                 given[3],
                                 given[4],
                                 given[5],
                                 false,
                                 false});
    }
    for (unsigned i = 0; good && i < n && wt_now() < end; i++) {
        wt_states_deadline = wt_now() + (end - wt_now()) / (n - i);
        good = walk_one(&larger[i]);
    }
    return !good;
}
