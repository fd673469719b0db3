/* SPDX-License-Identifier: Apache-2.0 */
/* Back to the switch. While there is no epoch each rank looks, in its calls,
 * whether the switch can be reached, or each of several, one after the other,
 * and tells member 0 when it can. When all
 * can, member 0 says with which call the next epoch begins: the one after the
 * next. A call cannot end before all have begun it, so nobody is that far; who
 * begins that call all the same before it hears of it has given up in it, with
 * nothing (rule 1 of settle.h). */
#include <unistd.h>

#include "agg/switch.h"
#include "base/log.h"
#include "base/num.h"
#include "base/time.h"

#define PROBE_PAUSE_NS (500 * WF_MS)
#define PROBE_PATIENCE_NS (2 * WF_SEC)
#define REFUSALS_MOST 7u /* the pause doubles with each, up to a minute */

void switch_epoch_begin(switch_state *s)
{
    s->epoch++;
    s->open = true;
    s->go_at = SWITCH_NEVER;
    s->kept_op = SWITCH_NEVER;
    switch_stop_looking(s);
    wf_settle_init(&s->settle, s->comm->rank, s->comm->size, s->words);
    if (s->shares) {
        switch_hosts_epoch(s);
    }
    if (s->epoch > 1) {
        wf_log(s->refusals > 0 ? WEFT_LOG_INFO : WEFT_LOG_WARN,
               "rank %u: communicator %u goes back to its switch",
               s->comm->rank, s->comm->id);
    }
}

void switch_epoch_end(switch_state *s)
{
    s->open = false;
    s->go_at = SWITCH_NEVER;
    s->reached = 0;
    s->probe_ns =
        wf_now_ns() + (PROBE_PAUSE_NS << wf_least(s->refusals, REFUSALS_MOST));
    memset(s->back, 0, s->comm->size * sizeof(*s->back));
    switch_close_client(s);
}

/* --- looking -------------------------------------------------------------- */

void switch_stop_looking(switch_state *s)
{
    if (s->probe >= 0) {
        close(s->probe);
    }
    s->probe = -1;
}

static void probe_again_later(switch_state *s, uint64_t now)
{
    switch_stop_looking(s);
    s->probe_ns = now + PROBE_PAUSE_NS;
}

static void probe_begin(switch_state *s, uint64_t now)
{
    s->probe_ns = now;
    if (wf_agg_connect(&s->at[s->reached], &s->probe) != WEFT_OK) {
        probe_again_later(s, now);
    }
}

static void probe_step(switch_state *s, uint64_t now)
{
    bool done;
    weft_status st = wf_agg_connected(s->probe, &done);

    if (st == WEFT_OK && done) {
        switch_stop_looking(s);
        s->reached++;
        s->probe_ns = now;
    } else if (done || now - s->probe_ns > PROBE_PATIENCE_NS) {
        s->reached = 0;
        probe_again_later(s, now);
    }
}

static bool all_are_back(const switch_state *s)
{
    for (uint32_t m = 0; m < s->comm->size; m++) {
        if (!s->back[m]) {
            return false;
        }
    }
    return true;
}

void switch_on_back(switch_state *s, uint32_t from)
{
    s->back[from] = !s->open;
}

void switch_look_for(switch_state *s, uint64_t number, uint64_t now)
{
    bool before = s->reached == s->switches;

    if (!before && s->probe >= 0) {
        probe_step(s, now);
    }
    if (s->reached < s->switches && s->probe < 0 && now >= s->probe_ns) {
        probe_begin(s, now);
    }
    if (s->reached == s->switches && !before && s->comm->rank == 0) {
        switch_on_back(s, 0);
    } else if (s->reached == s->switches && !before) {
        switch_say(s, 0, SWITCH_BACK, 0, 0);
    }
    if (s->comm->rank != 0 || s->go_at != SWITCH_NEVER || !all_are_back(s)) {
        return;
    }
    s->go_at = number + 2;
    for (uint32_t m = 1; m < s->comm->size; m++) {
        switch_say(s, m, SWITCH_GO, s->go_at, 0);
    }
}

/* --- the word to go ------------------------------------------------------- */

void switch_on_go(switch_state *s, uint32_t epoch, uint64_t number)
{
    wf_settle_word word;

    if (s->open || epoch != s->epoch + 1) {
        return;
    }
    if (number >= s->calls) {
        s->go_at = number;
        return;
    }
    switch_epoch_begin(s);
    (void)wf_settle_begin(&s->settle);
    word = wf_settle_say(&s->settle, 0);
    wf_settle_end(&s->settle, WF_SETTLE_REDO);
    switch_epoch_end(s);
    switch_say_word(s, &word);
}
