/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/num.h"
#include "store/hosts/hosts.h"

static uint64_t read_count(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void add_keys(wf_keys_done *sum, const weft_worker *worker)
{
    sum->pulls += read_count(&worker->count->pulls);
    sum->pushes += read_count(&worker->count->pushes);
}

void wf_worker_enroll(weft_worker *worker)
{
    weft_store *store = worker->store;

    pthread_mutex_lock(&store->roll);
    worker->shown = wf_shelf_take_worker(store->shown);
    worker->count =
        worker->shown != NULL ? &worker->shown->count : &worker->own_count;
    worker->next = store->first;
    store->first = worker;
    wf_store_show_ended(store);
    pthread_mutex_unlock(&store->roll);
}

void wf_worker_leave(weft_worker *worker)
{
    weft_store *store = worker->store;
    weft_worker **at = &store->first;

    pthread_mutex_lock(&store->roll);
    while (*at != NULL && *at != worker) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = worker->next;
        add_keys(&store->ended, worker);
        wf_shelf_give_worker(worker->shown);
        wf_store_show_ended(store);
    }
    pthread_mutex_unlock(&store->roll);
}

/* Since the store was made; under store->roll. */
static wf_keys_done count_keys(const weft_store *store)
{
    wf_keys_done sum = store->ended;

    for (const weft_worker *w = store->first; w != NULL; w = w->next) {
        add_keys(&sum, w);
    }
    return sum;
}

/* Since counting began; with `anew` it begins now. */
static wf_keys_done keys_done(weft_store *store, bool anew)
{
    wf_keys_done sum;

    pthread_mutex_lock(&store->roll);
    sum = count_keys(store);
    sum.pulls -= store->start.pulls;
    sum.pushes -= store->start.pushes;
    if (anew) {
        store->start.pulls += sum.pulls;
        store->start.pushes += sum.pushes;
        wf_store_show_ended(store);
    }
    pthread_mutex_unlock(&store->roll);
    return sum;
}

void weft_store_count(weft_store *store, weft_store_stats *out)
{
    const wf_store_counts *c = store->counts;
    /* Before all of them: others count meanwhile. */
    uint64_t away_pulls = read_count(&c->away_pulls);
    uint64_t away_pushes = read_count(&c->away_pushes);
    wf_keys_done keys = keys_done(store, false);

    *out = (weft_store_stats){
        .pulls = keys.pulls,
        .pushes = keys.pushes,
        .copy_pulls = read_count(&c->copy_pulls),
        .copy_pushes = read_count(&c->copy_pushes),
        .owned = store->options.keys,
        .repaired = wf_slots_repaired(store->slots),
        .moved_in = read_count(&c->happened[WF_MOVED_IN]),
        .moved_out = read_count(&c->happened[WF_MOVED_OUT]),
        .copied_in = read_count(&c->happened[WF_COPIED_IN]),
        .expired = read_count(&c->happened[WF_EXPIRED]),
        .parked = read_count(&c->happened[WF_PARKED]),
        .forwarded = read_count(&c->happened[WF_FORWARDED]),
        .refused = read_count(&c->happened[WF_REFUSED]),
        .rounds = read_count(&c->rounds),
        .messages = read_count(&c->messages),
        .bytes = read_count(&c->bytes),
        .staleness = (double)read_count(&c->stale_ns) * 1e-9};
    out->local_pulls = out->pulls - wf_least(away_pulls, out->pulls);
    out->local_pushes = out->pushes - wf_least(away_pushes, out->pushes);
    if (store->remote != NULL) {
        out->owned = atomic_load(&store->remote->book.head->owned);
        out->copies = atomic_load(&store->remote->book.head->copies);
    }
}

void wf_store_happened(weft_store *store, const struct wf_key_state *k,
                       int what)
{
    static const char *const name[] = {
        [WF_MOVED_IN] = "moved in",   [WF_MOVED_OUT] = "moved out",
        [WF_COPIED_IN] = "copied in", [WF_EXPIRED] = "copy ended",
        [WF_PARKED] = "parked",       [WF_FORWARDED] = "forwarded",
        [WF_REFUSED] = "no room",     [WF_LOST] = "difference lost"};

    wf_count(&store->counts->happened[what], 1);
    wf_trace_event(store, k->key, name[what]);
}

void wf_store_stale(weft_store *store, uint64_t ns)
{
    if (ns > read_count(&store->counts->stale_ns)) {
        atomic_store(&store->counts->stale_ns, ns);
    }
}

void weft_store_reset_count(weft_store *store)
{
    /* All of them are counters. */
    _Atomic uint64_t *c = (_Atomic uint64_t *)(void *)store->counts;

    (void)keys_done(store, true);
    for (size_t i = 0; i < sizeof(*store->counts) / sizeof(*c); i++) {
        atomic_store_explicit(&c[i], 0, memory_order_relaxed);
    }
}
