/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "store/store.h"

static uint64_t read_count(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void weft_store_count(weft_store *store, weft_store_stats *out)
{
    const wf_store_counts *c = &store->counts;

    *out = (weft_store_stats){.pulls = read_count(&c->pulls),
                              .pushes = read_count(&c->pushes),
                              .local_pulls = read_count(&c->local_pulls),
                              .local_pushes = read_count(&c->local_pushes),
                              .copy_pulls = read_count(&c->copy_pulls),
                              .copy_pushes = read_count(&c->copy_pushes),
                              .owned = store->options.keys,
                              .repaired = wf_slots_repaired(store->slots)};
}

void weft_store_reset_count(weft_store *store)
{
    wf_store_counts *c = &store->counts;

    atomic_store_explicit(&c->pulls, 0, memory_order_relaxed);
    atomic_store_explicit(&c->pushes, 0, memory_order_relaxed);
    atomic_store_explicit(&c->local_pulls, 0, memory_order_relaxed);
    atomic_store_explicit(&c->local_pushes, 0, memory_order_relaxed);
    atomic_store_explicit(&c->copy_pulls, 0, memory_order_relaxed);
    atomic_store_explicit(&c->copy_pushes, 0, memory_order_relaxed);
}
