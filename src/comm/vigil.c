/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/vigil.h"

#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"

/* Whether a node is watched, and whether something came from it since; CHOSEN
 * beside that while it is found out who is to be watched. */
enum { UNWATCHED = 0, UNHEARD = 1, HEARD = 2, CHOSEN = 4 };

weft_status wf_vigil_init(wf_vigil *v, uint32_t nodes, uint64_t timeout_ns,
                          uint64_t every_ns)
{
    *v = (wf_vigil){
        .nodes = nodes, .timeout_ns = timeout_ns, .every_ns = every_ns};
    v->heard_ns = wf_zalloc(nodes * sizeof(*v->heard_ns));
    v->watched = wf_zalloc(nodes * sizeof(*v->watched));
    v->seen = wf_alloc(nodes * sizeof(*v->seen));
    if (v->heard_ns == NULL || v->watched == NULL || v->seen == NULL) {
        wf_vigil_fini(v);
        return wf_fail_nomem("signs of life of %u nodes", nodes);
    }
    return WEFT_OK;
}

void wf_vigil_fini(wf_vigil *v)
{
    wf_free(v->heard_ns);
    wf_free(v->watched);
    wf_free(v->seen);
}

void wf_vigil_begin(wf_vigil *v, uint64_t now)
{
    for (uint32_t n = 0; n < v->nodes; n++) {
        v->heard_ns[n] = now;
    }
    v->looked_ns = now;
    v->hastens = true;
}

void wf_vigil_hear(wf_vigil *v, uint32_t node, uint64_t now)
{
    v->heard_ns[node] = now;
    if (v->watched[node] == UNHEARD) {
        v->watched[node] = HEARD;
    }
}

bool wf_vigil_heard_since(const wf_vigil *v, uint32_t node, uint64_t then)
{
    /* Where it is watched and unheard, that is when watching began. */
    return v->watched[node] != UNHEARD && v->heard_ns[node] > then;
}

/* --- alert ---------------------------------------------------------------- */

static uint64_t late_after(const wf_vigil *v)
{
    return wf_most(v->timeout_ns / 8, 3 * v->every_ns);
}

static uint64_t alert_lasts(const wf_vigil *v)
{
    return wf_most(v->timeout_ns / 2, 2 * late_after(v));
}

/* The most time that a heartbeat is thought to be under way, in which what it
 * says about an alert becomes too much: nodes that believed each other without
 * this would never be calm again. */
static uint64_t under_way(const wf_vigil *v)
{
    return alert_lasts(v) / 32;
}

uint64_t wf_vigil_alert_left(const wf_vigil *v, uint64_t now)
{
    return v->alert_ns > now ? v->alert_ns - now : 0;
}

static void alert_for(wf_vigil *v, uint64_t left, uint64_t now)
{
    v->hastens = v->hastens || v->alert_ns <= now;
    v->alert_ns = now + left;
}

void wf_vigil_hear_alert(wf_vigil *v, uint64_t left_ns, uint64_t now)
{
    uint64_t left = wf_least(left_ns, alert_lasts(v));

    if (left > wf_vigil_alert_left(v, now) + under_way(v)) {
        alert_for(v, left, now);
    }
}

void wf_vigil_alert(wf_vigil *v, uint64_t now)
{
    alert_for(v, alert_lasts(v), now);
}

void wf_vigil_death(wf_vigil *v, uint64_t now)
{
    wf_vigil_alert(v, now);
    v->open_ns = v->alert_ns;
}

uint64_t wf_vigil_wary_until(const wf_vigil *v, uint64_t now)
{
    return now < v->open_ns ? 0 : v->alert_ns;
}

/* --- looking -------------------------------------------------------------- */

bool wf_vigil_is_due(const wf_vigil *v, uint64_t now)
{
    return v->hastens || now - v->looked_ns >= v->every_ns;
}

/* While this process was stopped nobody listened: that counts for nobody's
 * silence. */
static void forgive_gap(wf_vigil *v, uint64_t now)
{
    uint64_t gap = now - v->looked_ns;

    for (uint32_t n = 0; n < v->nodes && gap > 2 * v->every_ns; n++) {
        v->heard_ns[n] = wf_least(now, v->heard_ns[n] + gap - v->every_ns);
    }
}

/* The second half of rule 4. */
static bool may_be_watched(const wf_vigil *v, uint32_t node, uint64_t now)
{
    return wf_vigil_wary_until(v, now) <= now || v->connected == NULL ||
           v->connected(v->ctx, node);
}

/* Rules 1 and 4. Those beside are the first of the neighbours. */
static uint32_t choose(const wf_vigil *v, const wf_gossip *g, uint64_t now,
                       uint32_t *out)
{
    uint32_t neighbour[WF_GOSSIP_NEIGHBOURS];
    uint32_t count = wf_gossip_beside(g, out);
    uint32_t all = count;

    if (wf_vigil_alert_left(v, now) > 0) {
        all = wf_gossip_neighbours(g, neighbour);
    }
    for (uint32_t i = count; i < all; i++) {
        if (may_be_watched(v, neighbour[i], now)) {
            out[count++] = neighbour[i];
        }
    }
    return count;
}

/* Rules 2 and 5. */
static wf_vigil_state judge(const wf_vigil *v, uint32_t node, uint64_t now)
{
    uint64_t heard = v->heard_ns[node];
    uint64_t silent = heard < now ? now - heard : 0;

    if (silent > v->timeout_ns) {
        return WF_VIGIL_DEAD;
    }
    return silent > wf_most(v->timeout_ns / 4, late_after(v)) ? WF_VIGIL_SILENT
                                                              : WF_VIGIL_WELL;
}

/* Rule 3. */
static bool is_late(const wf_vigil *v, uint32_t node, uint64_t now)
{
    return now > v->heard_ns[node] && now - v->heard_ns[node] > late_after(v);
}

/* The last part of rule 4. */
static bool is_doubtful(const wf_vigil *v, const wf_gossip *g, uint32_t node,
                        uint64_t now)
{
    return g->living[node] > 0 && (v->watched[node] == UNHEARD ||
                                   (v->watched[node] == HEARD &&
                                    judge(v, node, now) != WF_VIGIL_WELL));
}

/* Watch the chosen nodes, and no others but the doubtful. What happened to a
 * node before it was watched does not count. */
static void watch(wf_vigil *v, const wf_gossip *g, uint64_t now)
{
    uint32_t chosen[WF_GOSSIP_NEIGHBOURS];
    uint32_t count = choose(v, g, now, chosen);

    for (uint32_t i = 0; i < count; i++) {
        if (v->watched[chosen[i]] == UNWATCHED) {
            v->watched[chosen[i]] = UNHEARD;
            v->heard_ns[chosen[i]] = now;
        }
        v->watched[chosen[i]] |= CHOSEN;
    }
    for (uint32_t n = 0; n < v->nodes; n++) {
        if ((v->watched[n] & CHOSEN) != 0) {
            v->watched[n] &= (uint8_t)~CHOSEN;
        } else if (!is_doubtful(v, g, n, now)) {
            v->watched[n] = UNWATCHED;
        }
    }
}

/* True if there is a reason for an alert. */
static bool look_at_watched(wf_vigil *v, uint64_t now, uint32_t *count)
{
    bool alerting = false;

    *count = 0;
    for (uint32_t n = 0; n < v->nodes; n++) {
        if (v->watched[n] != UNWATCHED) {
            wf_vigil_state state = judge(v, n, now);

            v->seen[(*count)++] = (wf_vigil_node){n, state};
            alerting = alerting || is_late(v, n, now);
        }
    }
    return alerting;
}

uint32_t wf_vigil_look(wf_vigil *v, const wf_gossip *g, uint64_t now)
{
    bool calm = wf_vigil_alert_left(v, now) == 0;
    uint32_t count;

    forgive_gap(v, now);
    watch(v, g, now);
    if (look_at_watched(v, now, &count)) {
        wf_vigil_alert(v, now);
    }
    if (calm && wf_vigil_alert_left(v, now) > 0) {
        watch(v, g, now);
        look_at_watched(v, now, &count);
    }
    v->looked_ns = now;
    v->hastens = false;
    return count;
}
