/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/settle.h"

#include <string.h>

#include "agg/mistakes.h"

void wf_settle_init(wf_settle *s, uint32_t rank, uint32_t ranks,
                    wf_settle_word *words)
{
    memset(words, 0, 2 * ranks * sizeof(*words));
    *s = (wf_settle){.rank = rank, .ranks = ranks, .word = words};
}

wf_settle_word *wf_settle_word_of(const wf_settle *s, uint32_t rank,
                                  uint64_t op)
{
    return &s->word[2 * rank + op % 2];
}

bool wf_settle_has_said(const wf_settle *s, uint32_t rank)
{
    const wf_settle_word *w = wf_settle_word_of(s, rank, s->op);

    return w->heard && w->op == s->op;
}

wf_settle_act wf_settle_begin(wf_settle *s)
{
    s->inside = true;
    s->said = false;
    return s->dead && !s->over ? WF_SETTLE_SAY : WF_SETTLE_NOTHING;
}

wf_settle_word wf_settle_say(wf_settle *s, uint64_t first)
{
    const wf_settle_word word = {.op = s->op, .first = first, .heard = true};

    s->said = true;
    s->dead = true;
    *wf_settle_word_of(s, s->rank, s->op) = word;
    return word;
}

/* A word of an operation that this rank has finished is a question, or says
 * that its sender has all: that needs no answer. */
wf_settle_act wf_settle_hear(wf_settle *s, uint32_t from,
                             const wf_settle_word *word)
{
    wf_settle_word *kept = wf_settle_word_of(s, from, word->op);

    s->dead = true;
    *kept = *word;
    kept->heard = true;
    if (word->op < s->op) {
        return word->first != WF_SETTLE_ALL &&
                       !WF_AGG_MISTAKE(WF_AGG_NEVER_ANSWERS)
                   ? WF_SETTLE_ANSWER
                   : WF_SETTLE_NOTHING;
    }
    return s->inside && !s->said && !WF_AGG_MISTAKE(WF_AGG_GOES_ON)
               ? WF_SETTLE_SAY
               : WF_SETTLE_NOTHING;
}

/* Rules 5 and 6, when all have said their words. */
static wf_settled decide_by_words(const wf_settle *s)
{
    wf_settled d = {.way = WF_SETTLE_REDO, .first = WF_SETTLE_ALL};

    for (uint32_t r = s->ranks; r-- > 0;) {
        uint64_t first = wf_settle_word_of(s, r, s->op)->first;

        if (first == WF_SETTLE_ALL && !WF_AGG_MISTAKE(WF_AGG_REDOES_ALONE)) {
            d.way = WF_SETTLE_FETCH;
            d.rank = r;
        }
        d.first = first < d.first ? first : d.first;
    }
    if (WF_AGG_MISTAKE(WF_AGG_OWN_FIRST)) {
        d.first = wf_settle_word_of(s, s->rank, s->op)->first;
    }
    return d;
}

wf_settled wf_settle_decide(const wf_settle *s)
{
    if (wf_settle_word_of(s, s->rank, s->op)->first == WF_SETTLE_ALL) {
        return (wf_settled){.way = WF_SETTLE_DONE};
    }
    for (uint32_t r = 0; r < s->ranks; r++) {
        if (!wf_settle_has_said(s, r)) {
            return (wf_settled){.way = WF_SETTLE_WAITS};
        }
    }
    return decide_by_words(s);
}

void wf_settle_end(wf_settle *s, wf_settle_way way)
{
    s->over = s->over || way == WF_SETTLE_REDO;
    s->inside = false;
    s->said = false;
    s->op++;
}
