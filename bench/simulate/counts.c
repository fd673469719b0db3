/* SPDX-License-Identifier: Apache-2.0 */
#include "counts.h"

#include <stdlib.h>

/* --- pairs ---------------------------------------------------------------- */

static size_t place_of(const sim_pairs *pairs, uint64_t key)
{
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (pairs->room - 1);

    while (pairs->pair[at].key != 0 && pairs->pair[at].key != key) {
        at = (at + 1) & (pairs->room - 1);
    }
    return at;
}

static void grow(sim_pairs *pairs)
{
    sim_pairs old = *pairs;

    pairs->room = old.room > 0 ? 2 * old.room : 1024;
    pairs->pair = sim_alloc(pairs->room, sizeof(*pairs->pair));
    for (size_t i = 0; i < old.room; i++) {
        if (old.pair[i].key != 0) {
            pairs->pair[place_of(pairs, old.pair[i].key)] = old.pair[i];
        }
    }
    free(old.pair);
}

/* Found, or made. */
static sim_pair *pair_of(sim_pairs *pairs, uint32_t a, uint32_t b)
{
    uint64_t low = a < b ? a : b;
    uint64_t high = a < b ? b : a;
    uint64_t key = (low << 32 | high) + 1;
    sim_pair *p;

    if (2 * pairs->count >= pairs->room) {
        grow(pairs);
    }
    p = &pairs->pair[place_of(pairs, key)];
    pairs->count += p->key == 0;
    p->key = key;
    return p;
}

bool sim_pairs_add(sim_pairs *pairs, uint32_t a, uint32_t b)
{
    sim_pair *p = pair_of(pairs, a, b);
    bool added = !p->counted;

    p->counted = true;
    return added;
}

void sim_pairs_said(sim_pairs *pairs, uint32_t from, uint32_t to)
{
    pair_of(pairs, from, to)->answered[from > to] = true;
}

bool sim_pairs_heard(sim_pairs *pairs, uint32_t rank, uint32_t from)
{
    bool *answered = &pair_of(pairs, rank, from)->answered[rank > from];
    bool was = *answered;

    *answered = false;
    return was;
}

void sim_pairs_fini(sim_pairs *pairs)
{
    free(pairs->pair);
    *pairs = (sim_pairs){0};
}

/* --- over all ranks ------------------------------------------------------- */

static void spread_add(sim_spread *s, double value, uint32_t nth)
{
    s->least = nth == 0 || value < s->least ? value : s->least;
    s->most = nth == 0 || value > s->most ? value : s->most;
    s->mean += (value - s->mean) / (nth + 1);
}

sim_summary sim_summarize(const sim_count *count, uint32_t ranks)
{
    sim_summary s = {.ranks = ranks};

    for (uint32_t r = 0; r < ranks; r++) {
        const sim_count *c = &count[r];

        spread_add(&s.messages, (double)c->sent, r);
        spread_add(&s.bytes, (double)c->sent_bytes, r);
        spread_add(&s.inflow, (double)c->received_bytes, r);
        spread_add(&s.far, (double)c->far_bytes, r);
        spread_add(&s.memory, (double)c->memory, r);
        spread_add(&s.endpoints, (double)c->endpoints, r);
        spread_add(&s.seconds, (double)c->ended * 1e-12, r);
        s.all_messages += (double)c->sent;
        s.all_bytes += (double)c->sent_bytes;
        s.all_received += (double)c->received_bytes;
    }
    return s;
}
