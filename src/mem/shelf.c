/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/shelf.h"

#include <stdbool.h>
#include <stddef.h>

/* After so many samples all counters are halved. */
#define HOT_SPAN 4096u

static bool take(_Atomic uint32_t *taken)
{
    uint32_t nobody = 0;

    return atomic_compare_exchange_strong(taken, &nobody, 1);
}

/* Whoever takes the place next finds only zeros. Those who look meanwhile may
 * see some counters of it gone already, but no id. */
static void wipe(_Atomic uint64_t *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / sizeof(*from); i++) {
        atomic_store_explicit(&from[i], 0, memory_order_relaxed);
    }
}

wf_shown_region *wf_shelf_take_region(wf_shelf *shelf)
{
    for (uint32_t i = 0; shelf != NULL && i < WF_SHELF_REGIONS; i++) {
        if (take(&shelf->region[i].taken)) {
            return &shelf->region[i];
        }
    }
    return NULL;
}

void wf_shelf_give_region(wf_shown_region *region)
{
    if (region != NULL) {
        atomic_store(&region->id, 0);
        wipe(&region->count.gathers, sizeof(region->count));
        atomic_store(&region->taken, 0);
    }
}

wf_shown_store *wf_shelf_take_store(wf_shelf *shelf)
{
    for (uint32_t i = 0; shelf != NULL && i < WF_SHELF_STORES; i++) {
        if (take(&shelf->store[i].taken)) {
            return &shelf->store[i];
        }
    }
    return NULL;
}

void wf_shelf_give_store(wf_shown_store *store)
{
    if (store == NULL) {
        return;
    }
    atomic_store(&store->id, 0);
    wipe(&store->owned, sizeof(store->owned));
    wipe(&store->copies, sizeof(store->copies));
    wipe(&store->ended_pulls, sizeof(store->ended_pulls));
    wipe(&store->ended_pushes, sizeof(store->ended_pushes));
    atomic_store(&store->unseen, 0);
    wipe(&store->count.away_pulls, sizeof(store->count));
    wipe(&store->hot.samples, sizeof(store->hot.samples));
    for (uint32_t i = 0; i < WF_SHELF_HOT; i++) {
        atomic_store(&store->hot.key[i].count, 0);
    }
    atomic_store(&store->taken, 0);
}

wf_shown_worker *wf_shelf_take_worker(wf_shown_store *store)
{
    for (uint32_t i = 0; store != NULL && i < WF_SHELF_WORKERS; i++) {
        if (take(&store->worker[i].taken)) {
            return &store->worker[i];
        }
    }
    return NULL;
}

void wf_shelf_give_worker(wf_shown_worker *worker)
{
    if (worker != NULL) {
        atomic_store(&worker->count.pulls, 0);
        atomic_store(&worker->count.pushes, 0);
        atomic_store(&worker->taken, 0);
    }
}

/* --- reading -------------------------------------------------------------- */

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

wf_worker_counts wf_shelf_keys(const wf_shown_store *store)
{
    uint64_t pulls = load(&store->ended_pulls);
    uint64_t pushes = load(&store->ended_pushes);

    for (uint32_t i = 0; i < WF_SHELF_WORKERS; i++) {
        pulls += load(&store->worker[i].count.pulls);
        pushes += load(&store->worker[i].count.pushes);
    }
    return (wf_worker_counts){pulls, pushes};
}

wf_shelf_sum wf_shelf_add_up(const wf_shelf *shelf)
{
    wf_shelf_sum sum = {0};

    for (uint32_t i = 0; i < WF_SHELF_STORES; i++) {
        const wf_shown_store *s = &shelf->store[i];
        wf_worker_counts keys = wf_shelf_keys(s);

        if (load(&s->id) != 0) {
            uint64_t stale = load(&s->count.stale_ns);

            sum.keys += keys.pulls + keys.pushes;
            sum.keys_away +=
                load(&s->count.away_pulls) + load(&s->count.away_pushes);
            sum.copies += load(&s->copies);
            sum.stale_ns = stale > sum.stale_ns ? stale : sum.stale_ns;
        }
    }
    return sum;
}

/* --- hot keys ------------------------------------------------------------- */

static uint64_t count_of(const wf_hot_key *k)
{
    return atomic_load_explicit(&k->count, memory_order_relaxed);
}

/* The counter of a key, or the least one. */
static wf_hot_key *hot_find(wf_hot_keys *hot, int64_t key)
{
    wf_hot_key *least = &hot->key[0];

    for (uint32_t i = 0; i < WF_SHELF_HOT; i++) {
        wf_hot_key *k = &hot->key[i];

        if (count_of(k) != 0 &&
            atomic_load_explicit(&k->key, memory_order_relaxed) == key) {
            return k;
        }
        if (count_of(k) < count_of(least)) {
            least = k;
        }
    }
    return least;
}

static void hot_halve(wf_hot_keys *hot)
{
    for (uint32_t i = 0; i < WF_SHELF_HOT; i++) {
        atomic_store_explicit(&hot->key[i].count, count_of(&hot->key[i]) / 2,
                              memory_order_relaxed);
    }
    atomic_store_explicit(
        &hot->samples,
        atomic_load_explicit(&hot->samples, memory_order_relaxed) / 2,
        memory_order_relaxed);
}

void wf_hot_meet(wf_hot_keys *hot, int64_t key)
{
    uint64_t samples =
        atomic_load_explicit(&hot->samples, memory_order_relaxed) + 1;
    wf_hot_key *k = hot_find(hot, key);
    uint64_t count = count_of(k);

    if (atomic_load_explicit(&k->key, memory_order_relaxed) != key) {
        /* A key is never seen with the counter of another one: without any
         * while it changes. Pairs with the fences in comm/view.c. */
        atomic_store_explicit(&k->count, 0, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        atomic_store_explicit(&k->key, key, memory_order_relaxed);
    }
    atomic_store_explicit(&k->count, count + 1, memory_order_release);
    atomic_store_explicit(&hot->samples, samples, memory_order_relaxed);
    if (samples >= HOT_SPAN) {
        hot_halve(hot);
    }
}
