/* SPDX-License-Identifier: Apache-2.0 */
/* The explorer with more room, for as long as asked, or one plan:
 *
 *     soak [seconds]
 *     soak ranks slots chunks losses repeats timeouts
 */
#include <stdlib.h>
#include <time.h>

#include "walk.h"

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

    walk_print("larger bound", &stats);
    return good;
}

int main(int argc, char **argv)
{
    time_t end = time(NULL) + (argc == 2 ? atoi(argv[1]) : 60);
    bool good = true;

    if (argc == 7) {
        unsigned n[6];

        for (unsigned i = 0; i < 6; i++) {
            n[i] = (unsigned)atoi(argv[i + 1]);
        }
        return !walk_one(
            &(plan){n[0], n[1], {n[2]}, n[3], n[4], n[5], false, false});
    }
    for (unsigned i = 0;
         good && i < sizeof(larger) / sizeof(larger[0]) && time(NULL) < end;
         i++) {
        good = walk_one(&larger[i]);
    }
    return !good;
}
