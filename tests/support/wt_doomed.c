/* SPDX-License-Identifier: Apache-2.0 */
#include "wt_doomed.h"

#include <stdio.h>
#include <string.h>

wt_doomed_job wt_doomed;

const char *wt_doomed_settings(unsigned rank)
{
    static _Thread_local char text[64];

    snprintf(text, sizeof(text), "NODE=%c TIMEOUT=60s", wt_doomed.nodes[rank]);
    return text;
}

void wt_run_doomed(const char *nodes, unsigned victim, wt_body *body)
{
    wt_doomed = (wt_doomed_job){.nodes = nodes, .victim = victim};
    wt_run_job(&(wt_job){.ranks = (unsigned)strlen(nodes),
                         .settings_of = wt_doomed_settings,
                         .body = body,
                         .doomed = 1u << victim,
                         .deadline = 60});
}

bool wt_is_victim(void)
{
    return wt_rank() == wt_doomed.victim;
}

bool wt_survives(weft_status st)
{
    if (st != WEFT_OK &&
        (st != WEFT_ERR_PEER ||
         !wt_names_rank(weft_error_detail(), wt_doomed.victim))) {
        WT_FAIL("nodes %s, rank %u dies: %s: %s", wt_doomed.nodes,
                wt_doomed.victim, weft_status_name(st), weft_error_detail());
    }
    return st == WEFT_OK;
}

bool wt_victims_node_lives(void)
{
    char node = wt_doomed.nodes[wt_doomed.victim];

    return strchr(wt_doomed.nodes, node) != strrchr(wt_doomed.nodes, node);
}

void wt_survivors_meet(unsigned word, unsigned nth)
{
    wt_word_add(word, 1);
    wt_word_await(word, nth * (wt_ranks() - 1));
}
