/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/window.h"

#include <string.h>

#include "agg/mistakes.h"
#include "base/num.h"

/* Doublings of the timeout at most; its upper bound is reached before. */
#define BACKOFF_MAX 16u
/* Times the lower bound, until a round trip was measured. */
#define FIRST_TIMEOUT 8u

void wf_agg_window_init(wf_agg_window *w, const wf_agg_window_config *config,
                        wf_agg_window_chunk *entries)
{
    memset(entries, 0, config->slots * sizeof(*entries));
    *w = (wf_agg_window){.config = *config,
                         .entry = entries,
                         .stop = UINT64_MAX,
                         .floor_ns = config->least_ns,
                         .cwnd = config->limit};
}

void wf_agg_window_call(wf_agg_window *w, uint64_t chunks, uint64_t now)
{
    w->begin = w->end;
    w->next = w->end;
    w->first = w->end;
    w->end += chunks;
    w->stop = UINT64_MAX;
    w->heard_ns = now;
    w->progress_ns = now;
    w->check_ns = UINT64_MAX;
    w->backoff = 0;
    w->quiet = true;
}

static wf_agg_window_chunk *entry_of(const wf_agg_window *w, uint64_t chunk)
{
    return &w->entry[chunk % w->config.slots];
}

/* --- round trips ---------------------------------------------------------- */

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Jacobson's estimate, with gains of 1/8 and 1/4. */
static void measured(wf_agg_window *w, uint64_t ns)
{
    if (w->mean_ns == 0) {
        w->mean_ns = ns + 1;
        w->deviation_ns = ns / 2;
        return;
    }
    w->deviation_ns -= w->deviation_ns / 4;
    w->deviation_ns += distance(ns, w->mean_ns) / 4;
    w->mean_ns -= w->mean_ns / 8;
    w->mean_ns += ns / 8 + 1;
}

uint64_t wf_agg_window_timeout(const wf_agg_window *w)
{
    uint64_t ns = w->mean_ns == 0 ? FIRST_TIMEOUT * w->config.least_ns
                                  : w->mean_ns + 4 * w->deviation_ns;

    ns = ns < w->floor_ns ? w->floor_ns : ns;
    return wf_least(wf_least(ns, w->config.most_ns) << w->backoff,
                    w->config.most_ns);
}

/* When a chunk is sent again though nothing comes. */
static uint64_t expires_at(const wf_agg_window *w, const wf_agg_window_chunk *c)
{
    uint64_t since = c->sent_ns > w->progress_ns ? c->sent_ns : w->progress_ns;

    return since + wf_agg_window_timeout(w);
}

/* --- congestion ----------------------------------------------------------- */

static void halve(wf_agg_window *w)
{
    w->cwnd = w->cwnd > 1 ? w->cwnd / 2 : 1;
    w->round = 0;
    w->lost = 0;
}

/* A round was good: the lower bound comes down. */
static void calm_down(wf_agg_window *w)
{
    w->floor_ns -= (w->floor_ns - w->config.least_ns) / 32;
}

static void grow(wf_agg_window *w)
{
    calm_down(w);
    w->cwnd = (uint32_t)wf_least(w->cwnd + w->cwnd / 4 + 1, w->config.limit);
    w->round = 0;
    w->lost = 0;
}

static void count_result(wf_agg_window *w)
{
    if (++w->round < w->cwnd) {
        return;
    }
    if (8 * w->lost > w->round) {
        halve(w);
    } else {
        grow(w);
    }
}

/* --- sending -------------------------------------------------------------- */

static void sent(wf_agg_window *w, wf_agg_window_chunk *c, uint64_t now)
{
    c->sent_ns = now;
    c->order = w->packets++;
    c->later = 0;
    c->sends = (uint8_t)(c->sends < UINT8_MAX ? c->sends + 1 : c->sends);
    w->check_ns = wf_least(w->check_ns, expires_at(w, c));
}

static void want_again(wf_agg_window *w, wf_agg_window_chunk *c)
{
    w->overdue += !c->again;
    c->again = true;
}

/* One timeout, of this many chunks that are not known to be held. */
static void timed_out(wf_agg_window *w, uint32_t lost)
{
    w->timeouts++;
    w->doubtful = lost > 1;
    w->backoff = (uint32_t)wf_least(w->backoff + 1, BACKOFF_MAX);
    w->quiet = true;
    if (lost > 0) {
        w->undo = w->cwnd > w->undo ? w->cwnd : w->undo;
        halve(w);
    }
}

/* Rule 3. Chunks that expire at one time are one timeout. */
static void expire(wf_agg_window *w, uint64_t now)
{
    uint32_t most = w->quiet ? 1 : UINT32_MAX;
    uint32_t expired = 0;
    uint32_t held = 0;

    w->check_ns = UINT64_MAX;
    for (uint64_t i = w->first; i < w->next; i++) {
        wf_agg_window_chunk *c = entry_of(w, i);

        if (c->sends == 0 || WF_AGG_MISTAKE(WF_AGG_NEVER_EXPIRES) ||
            (c->held && WF_AGG_MISTAKE(WF_AGG_HELD_NOT_RESENT))) {
            continue;
        }
        if (now < expires_at(w, c)) {
            w->check_ns = wf_least(w->check_ns, expires_at(w, c));
        } else if (expired < most) {
            want_again(w, c);
            expired++;
            held += c->held;
        }
    }
    if (expired > 0) {
        timed_out(w, expired - held);
    }
}

/* The first chunk that is to be sent again; there is one. */
static uint64_t first_overdue(const wf_agg_window *w)
{
    uint64_t chunk = w->first;

    while (entry_of(w, chunk)->sends == 0 || !entry_of(w, chunk)->again) {
        chunk++;
    }
    return chunk;
}

/* Rule 1: a slot is taken until its chunk is over. */
static bool may_send_next(const wf_agg_window *w)
{
    return w->next < wf_least(w->end, w->stop) && w->under_way < w->cwnd &&
           (entry_of(w, w->next)->sends == 0 ||
            WF_AGG_MISTAKE(WF_AGG_SENDS_AHEAD));
}

bool wf_agg_window_send(wf_agg_window *w, uint64_t now, uint64_t *chunk,
                        bool *again)
{
    if (w->overdue == 0 && now >= w->check_ns) {
        expire(w, now);
    }
    *again = w->overdue > 0;
    if (*again) {
        *chunk = first_overdue(w);
        entry_of(w, *chunk)->again = false;
        w->overdue--;
        w->resent++;
        w->lost++;
    } else if (may_send_next(w)) {
        *chunk = w->next++;
        *entry_of(w, *chunk) = (wf_agg_window_chunk){.sends = 0};
        w->under_way++;
    } else {
        return false;
    }
    sent(w, entry_of(w, *chunk), now);
    return true;
}

/* --- what comes ----------------------------------------------------------- */

/* Rule 4: the result of a chunk that was sent once has come. Those sent before
 * it have lower numbers. */
static void show_gaps(wf_agg_window *w, uint64_t chunk, uint64_t order)
{
    for (uint64_t i = w->first; i < chunk; i++) {
        wf_agg_window_chunk *c = entry_of(w, i);

        if (c->sends != 0 && c->order < order &&
            ++c->later == WF_AGG_WINDOW_GAP) {
            want_again(w, c);
        }
    }
}

/* The last timeout has sent again what was not lost. */
static void was_wrong(wf_agg_window *w)
{
    uint64_t most =
        wf_least(WF_AGG_WINDOW_CALM * w->config.least_ns, w->config.most_ns);

    if (w->doubtful) {
        w->doubtful = false;
        w->wrong++;
        w->floor_ns = wf_least(2 * w->floor_ns, most);
    }
}

static bool is_under_way(const wf_agg_window *w, uint64_t chunk)
{
    return (chunk >= w->first || WF_AGG_MISTAKE(WF_AGG_RESULT_BY_SLOT)) &&
           chunk < w->next && entry_of(w, chunk)->sends != 0;
}

/* The chunk needs its slot no more. */
static void release(wf_agg_window *w, wf_agg_window_chunk *c)
{
    w->overdue -= c->again;
    w->under_way--;
    *c = (wf_agg_window_chunk){.sends = 0};
    while (w->first < w->next && entry_of(w, w->first)->sends == 0) {
        w->first++;
    }
}

wf_agg_window_event wf_agg_window_result(wf_agg_window *w, uint64_t chunk,
                                         uint64_t now)
{
    wf_agg_window_chunk *c = entry_of(w, chunk);

    if (chunk >= w->next) {
        return WF_AGG_WINDOW_STRANGE;
    }
    w->heard_ns = now;
    if (!is_under_way(w, chunk)) {
        was_wrong(w);
        return WF_AGG_WINDOW_OLD;
    }
    if (c->sends == 1) {
        measured(w, now - c->sent_ns);
        show_gaps(w, chunk, c->order);
    }
    release(w, c);
    w->progress_ns = now;
    w->backoff = 0;
    w->quiet = false;
    w->undo = 0;
    w->check_ns = now + wf_agg_window_timeout(w);
    count_result(w);
    return WF_AGG_WINDOW_NEW;
}

void wf_agg_window_held(wf_agg_window *w, uint64_t chunk, uint64_t now)
{
    wf_agg_window_chunk *c = entry_of(w, chunk);

    if (!is_under_way(w, chunk)) {
        return;
    }
    w->heard_ns = now;
    if (c->sends == 2 && !c->held) {
        measured(w, now - c->sent_ns);
    }
    was_wrong(w);
    w->cwnd = w->undo > w->cwnd ? w->undo : w->cwnd;
    w->undo = 0;
    w->lost -= w->lost > 0 && !c->held;
    w->overdue -= c->again;
    c->again = false;
    c->held = true;
    if (WF_AGG_MISTAKE(WF_AGG_HELD_IS_OVER)) {
        release(w, c);
    }
}

/* --- time ----------------------------------------------------------------- */

/* Rule 7: may it give up at all? */
static bool has_asked(const wf_agg_window *w)
{
    return w->config.patience_ns != 0 && w->backoff >= WF_AGG_WINDOW_ASKS;
}

uint64_t wf_agg_window_due(const wf_agg_window *w)
{
    if (wf_agg_window_is_over(w) || w->given_up) {
        return UINT64_MAX;
    }
    if (w->overdue > 0 || may_send_next(w)) {
        return 0;
    }
    return has_asked(w)
               ? wf_least(w->check_ns, w->heard_ns + w->config.patience_ns)
               : w->check_ns;
}

bool wf_agg_window_gives_up(wf_agg_window *w, uint64_t now)
{
    if (has_asked(w) && !wf_agg_window_is_over(w) &&
        now >= w->heard_ns + w->config.patience_ns) {
        w->given_up = true;
    }
    return w->given_up;
}
