/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/figures.h"

#include <string.h>

#include "base/time.h"

/* Of these, so many at most are of the own node where there are others, too. */
#define OWN_MAX (WF_FIGURES_MAX * 3 / 4)

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void save(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

static wf_figures figures_of(const wf_host *host, uint32_t rank, uint64_t now)
{
    const wf_board_rank *e = wf_host_entry(host, rank);
    const wf_shelf *shelf = wf_board_shelf(host->board, rank);
    uint64_t since = load(&e->since_ns);
    bool near = shelf != NULL;
    wf_shelf_sum sum =
        near ? wf_shelf_add_up(shelf)
             : (wf_shelf_sum){load(&e->keys), load(&e->keys_away),
                              load(&e->copies), load(&e->stale_ns)};

    return (wf_figures){
        .rank = rank,
        .root = atomic_load_explicit(&e->root, memory_order_relaxed),
        .age_ns = near ? 0 : now - load(&e->heard_ns),
        .act = load(&e->act),
        .sequence = load(&e->sequence),
        .count = load(&e->count),
        .waiting = load(&e->waiting),
        .waits_ns = since != 0 && since < now ? now - since : 0,
        .operations = load(&e->operations),
        .bytes = load(&e->bytes),
        .waited_ns = load(&e->waited_ns),
        .awaited_ns = load(near ? &e->awaited_ns : &e->awaited_there_ns),
        .waits_for = atomic_load_explicit(&e->waits_for, memory_order_relaxed),
        .keys = sum.keys,
        .keys_away = sum.keys_away,
        .copies = sum.copies,
        .stale_ns = sum.stale_ns};
}

/* Is there something to tell of it? */
static bool is_known(const wf_host *host, uint32_t rank, bool own)
{
    const wf_board_rank *e = wf_host_entry(host, rank);

    return atomic_load_explicit(&e->state, memory_order_relaxed) ==
               WF_BOARD_HERE &&
           wf_host_same_node(host, rank) == own &&
           (own || load(&e->heard_ns) != 0);
}

/* Ranks of this node, or others, from `turn` on. */
static size_t add_some(const wf_host *host, uint32_t turn, bool own,
                       wf_figures *out, size_t n, size_t room)
{
    uint64_t now = wf_now_ns();

    for (uint32_t i = 0; i < host->ranks && n < room; i++) {
        uint32_t rank = (turn + i) % host->ranks;

        if (is_known(host, rank, own)) {
            out[n++] = figures_of(host, rank, now);
        }
    }
    return n;
}

size_t wf_figures_tell(const wf_host *host, uint32_t *turn,
                       wf_figures out[WF_FIGURES_MAX])
{
    size_t n = add_some(host, *turn, true, out, 0, OWN_MAX);

    n = add_some(host, *turn, false, out, n, WF_FIGURES_MAX);
    *turn = (*turn + WF_FIGURES_MAX / 4) % host->ranks;
    return n;
}

static void take(const wf_host *host, const wf_figures *f, uint64_t now)
{
    wf_board_rank *e = wf_host_entry(host, f->rank);
    uint64_t heard = f->age_ns < now ? now - f->age_ns : 0;

    if (wf_host_same_node(host, f->rank) || heard <= load(&e->heard_ns)) {
        return; /* this node knows better */
    }
    save(&e->act, f->act);
    save(&e->sequence, f->sequence);
    save(&e->count, f->count);
    atomic_store_explicit(&e->root, f->root, memory_order_relaxed);
    save(&e->waiting, f->waiting);
    save(&e->since_ns,
         f->waits_ns != 0 && f->waits_ns < heard ? heard - f->waits_ns : 0);
    save(&e->operations, f->operations);
    save(&e->bytes, f->bytes);
    save(&e->waited_ns, f->waited_ns);
    save(&e->awaited_there_ns, f->awaited_ns);
    atomic_store_explicit(&e->waits_for, f->waits_for, memory_order_relaxed);
    save(&e->keys, f->keys);
    save(&e->keys_away, f->keys_away);
    save(&e->copies, f->copies);
    save(&e->stale_ns, f->stale_ns);
    save(&e->heard_ns, heard);
}

bool wf_figures_hear(const wf_host *host, const void *payload, size_t n)
{
    const char *at = payload;
    uint64_t now = wf_now_ns();
    wf_figures f;

    if (n % sizeof(f) != 0 || n > WF_FIGURES_MAX * sizeof(f)) {
        return false;
    }
    for (size_t i = 0; i < n; i += sizeof(f)) {
        memcpy(&f, at + i, sizeof(f));
        if (f.rank >= host->ranks) {
            return false;
        }
        take(host, &f, now);
    }
    return true;
}
