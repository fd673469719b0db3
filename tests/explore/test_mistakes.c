/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes that were built into the protocol are found, each by a short
 * history. */
#include <stdio.h>

#include "walk.h"
#include "wt_cmocka.h"

typedef struct seeded {
    int mistake;
    const char *what;
    const char *text;
    unsigned rounds;
    unsigned deaths;
    unsigned host_deaths;
    unsigned moves;
} seeded;

static const seeded mistakes[] = {
    {WF_PARKS_AT_STALE_HINT, "parks where the key was", "1:IUPE", 1, 0, 0, 0},
    {WF_NEWS_WITHOUT_EPOCH, "believes old news", "0:IE 1:IE 2:IE", 2, 0, 0, 0},
    {WF_FREES_BEFORE_NEWS, "frees a row that is moving", "1:I", 1, 1, 0, 0},
    {WF_TWO_SYNCS, "two exchanges at once", "1:IUPE", 2, 0, 0, 0},
    {WF_SETS_COPY_ONLY, "sets the copy only", "0:IS 1:IUSP", 1, 0, 0, 0},
    {WF_WANTS_NOT_CLEARED, "wants for ever", "0:I 1:IUPE", 1, 0, 0, 0},
    {WF_REFRESH_WHILE_ASKED, "takes an older row", "0:IU 1:IUP", 2, 0, 0, 0},
    {WF_MOVES_DESPITE_COPIES, "moves under copies", "0:IE 1:IE 2:IE", 1, 0, 0,
     0},
    {WF_DROPS_UNSENT_PUSHES, "drops late pushes", "0:I 1:IUUE", 2, 0, 0, 0},
    {WF_MOVES_ON_UNSETTLED, "moves on too early", "1:IE 2:I", 1, 0, 1, 0},
    {WF_LANDS_TWICE, "takes a repeated row", "1:IU", 1, 1, 0, 0},
    {WF_KEPT_NOT_SENT_AGAIN, "forgets a row it keeps", "1:I", 1, 1, 0, 0},
    {WF_ANSWERS_BEFORE_COPY_HAS_IT, "answers before a copy has it",
     "0:I 1:ISEP 1:I", 1, 0, 0, 0},
    {WF_MOVES_TO_OUTDATED, "moves to an outdated host", "1:I", 1, 0, 0, 0x9000},
    {MISTAKE_SENT_STAYS, "sends differences twice", "0:I 1:IUPE", 1, 0, 0, 0},
    {MISTAKE_SERIAL_AGAIN, "takes an old answer", "0:I 1:IE", 1, 1, 0, 0},
    {MISTAKE_NO_HELD, "reads an older copy", "0:I 1:IUPE", 1, 0, 0, 0},
};
enum { SEEDED = sizeof(mistakes) / sizeof(mistakes[0]) };

static bool is_found(const seeded *m, walk_stats *stats)
{
    plan p;
    bool good;

    plan_read(&p, m->text);
    p.rounds = m->rounds;
    p.deaths = m->deaths;
    p.host_deaths = m->host_deaths;
    p.moves = m->moves;
    wf_mistake_made = m->mistake;
    good = walk(&p, 2000000, true, stats);
    wf_mistake_made = WF_NO_MISTAKE;
    return !good;
}

static void every_mistake_is_found(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SEEDED; i++) {
        walk_stats stats = {0};
        bool found = is_found(&mistakes[i], &stats);
        printf("%s: %s after %llu states: %s\n", mistakes[i].what,
               found ? "found" : "not found", (unsigned long long)stats.states,
               found ? world_fault : "");
        assert_true(found);
    }
}

static void every_mistake_is_in_the_list(void **state)
{
    (void)state;
    for (int mistake = 1; mistake < MISTAKES; mistake++) {
        unsigned times = 0;
        for (unsigned i = 0; i < SEEDED; i++) {
            times += mistakes[i].mistake == mistake;
        }
        assert_int_equal(times, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mistake_is_found),
        cmocka_unit_test(every_mistake_is_in_the_list),
    };

    return cmocka_run_group_tests_name("mistakes", tests, NULL, NULL);
}
