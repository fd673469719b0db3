/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/gossip.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "mem/board.h"

weft_status wf_gossip_init(wf_gossip *g, const uint32_t *node_of,
                           uint32_t ranks, uint32_t nodes, uint32_t node)
{
    *g = (wf_gossip){.ranks = ranks, .nodes = nodes, .node = node};
    g->node_of = wf_alloc(ranks * sizeof(*g->node_of));
    g->member = wf_alloc(ranks * sizeof(*g->member));
    g->start = wf_zalloc((nodes + 1) * sizeof(*g->start));
    g->living = wf_zalloc(nodes * sizeof(*g->living));
    g->state = wf_alloc(ranks);
    g->told = wf_zalloc(ranks * sizeof(*g->told));
    if (g->node_of == NULL || g->member == NULL || g->start == NULL ||
        g->living == NULL || g->state == NULL || g->told == NULL) {
        wf_gossip_fini(g);
        return wf_fail_nomem("what is known of %u ranks", ranks);
    }
    memcpy(g->node_of, node_of, ranks * sizeof(*node_of));
    memset(g->state, WF_BOARD_HERE, ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        g->living[node_of[r]]++;
    }
    for (uint32_t n = 0; n < nodes; n++) {
        g->start[n + 1] = g->start[n] + g->living[n];
        g->living[n] = 0;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t n = node_of[r];

        g->member[g->start[n] + g->living[n]++] = r;
    }
    return WEFT_OK;
}

void wf_gossip_fini(wf_gossip *g)
{
    wf_free(g->node_of);
    wf_free(g->member);
    wf_free(g->start);
    wf_free(g->living);
    wf_free(g->state);
    wf_free(g->told);
}

/* Sums of these tell sets of ranks apart, in whatever order they are added. */
static uint64_t mix(uint32_t rank)
{
    uint64_t x = rank + 0x9e3779b97f4a7c15ull;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

bool wf_gossip_note(wf_gossip *g, uint32_t rank, uint32_t state)
{
    if (g->state[rank] != WF_BOARD_HERE) {
        return false;
    }
    g->state[rank] = (uint8_t)state;
    g->living[g->node_of[rank]]--;
    g->gone++;
    g->untold++;
    g->hash += mix(rank);
    return true;
}

/* Add the living node that is `distance` living ones away, up or down. */
static void add_at(const wf_gossip *g, uint32_t distance, bool up,
                   uint32_t *out, uint32_t *count)
{
    uint32_t at = g->node;

    while (distance > 0) {
        at = up ? (at + 1) % g->nodes : (at + g->nodes - 1) % g->nodes;
        if (at == g->node) {
            return; /* there are not so many */
        }
        distance -= g->living[at] > 0;
    }
    for (uint32_t i = 0; i < *count; i++) {
        if (out[i] == at) {
            return;
        }
    }
    out[(*count)++] = at;
}

uint32_t wf_gossip_neighbours(const wf_gossip *g, uint32_t *out)
{
    uint32_t living = 0;
    uint32_t count = 0;

    for (uint32_t n = 0; n < g->nodes; n++) {
        living += n != g->node && g->living[n] > 0;
    }
    for (uint32_t d = 1; d != 0 && d <= living; d *= 2) {
        add_at(g, d, true, out, &count);
        add_at(g, d, false, out, &count);
    }
    return count;
}

uint32_t wf_gossip_beside(const wf_gossip *g, uint32_t *out)
{
    uint32_t count = 0;

    add_at(g, 1, true, out, &count);
    add_at(g, 1, false, out, &count);
    return count;
}

uint32_t wf_gossip_living(const wf_gossip *g, uint32_t node, uint32_t number)
{
    for (uint32_t i = g->start[node]; i < g->start[node + 1]; i++) {
        if (g->state[g->member[i]] == WF_BOARD_HERE && number-- == 0) {
            return g->member[i];
        }
    }
    return WF_GOSSIP_NOBODY;
}

wf_digest wf_gossip_digest(const wf_gossip *g)
{
    return (wf_digest){.hash = g->hash, .gone = g->gone};
}

bool wf_gossip_agrees(const wf_gossip *g, const wf_digest *theirs)
{
    return g->gone == theirs->gone && g->hash == theirs->hash;
}

static bool listed(const wf_gossip *g, bool untold, uint32_t rank)
{
    return g->state[rank] != WF_BOARD_HERE && !(untold && g->told[rank]);
}

size_t wf_gossip_list(const wf_gossip *g, bool untold, uint32_t *from,
                      wf_gone *out, size_t room)
{
    size_t n = 0;
    uint32_t r = *from;

    while (r < g->ranks) {
        if (!listed(g, untold, r)) {
            r++;
            continue;
        }
        if (n == room) {
            break;
        }
        out[n] = (wf_gone){.first = r, .state = g->state[r]};
        while (r < g->ranks && listed(g, untold, r) &&
               g->state[r] == out[n].state) {
            out[n].count++;
            r++;
        }
        n++;
    }
    *from = r;
    return n;
}

bool wf_gossip_deaths(const wf_gossip *g)
{
    bool found = false;

    for (uint32_t r = 0; r < g->ranks && !found; r++) {
        found = g->state[r] == WF_BOARD_DEAD && !g->told[r];
    }
    return found;
}

void wf_gossip_told(wf_gossip *g)
{
    for (uint32_t r = 0; r < g->ranks && g->untold > 0; r++) {
        if (listed(g, true, r)) {
            g->told[r] = true;
            g->untold--;
        }
    }
}

bool wf_gossip_check(const wf_gossip *g, const wf_gone *part)
{
    return part->first < g->ranks && part->count > 0 &&
           part->count <= g->ranks - part->first &&
           (part->state == WF_BOARD_LEFT || part->state == WF_BOARD_DEAD);
}
