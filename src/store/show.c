/* SPDX-License-Identifier: Apache-2.0 */
/* A store on the board's shelf, for those who look from outside; and which keys
 * its workers use most. */
#include "region/rows/rows.h"
#include "store/hosts/hosts.h"
#include "store/random.h"

void wf_store_show(weft_store *store)
{
    wf_shown_store *shown =
        wf_shelf_take_store(wf_host_shelf(store->comm->world->host));

    if (shown == NULL) {
        return;
    }
    shown->type = (uint32_t)store->options.type;
    shown->length = store->uniform ? store->options.length : 0;
    shown->hosts = store->hosts;
    shown->host = store->number;
    store->shown = shown;
    store->counts = &shown->count;
    wf_store_show_keys(store);
    wf_shelf_show(&shown->id, (uint64_t)store->comm->id + 1);
}

void wf_store_show_keys(weft_store *store)
{
    wf_shown_store *shown = store->shown;

    if (shown != NULL) {
        atomic_store(&shown->keys, store->options.keys);
    }
    if (shown != NULL && store->hosts == 1) {
        atomic_store(&shown->owned, store->options.keys);
    }
}

void wf_store_show_owned(weft_store *store)
{
    wf_shown_store *shown = store->shown;
    const wf_book_head *head = store->remote->book.head;

    if (shown != NULL) {
        atomic_store(&shown->owned, atomic_load(&head->owned));
        atomic_store(&shown->copies, atomic_load(&head->copies));
    }
}

void wf_store_hide(weft_store *store)
{
    wf_shown_store *shown = store->shown;

    if (shown != NULL) {
        store->shown = NULL;
        store->counts = &store->own_counts;
        wf_shelf_give_store(shown);
    }
}

void wf_store_show_ended(weft_store *store)
{
    wf_shown_store *shown = store->shown;
    uint32_t unseen = 0;

    if (shown == NULL) {
        return;
    }
    for (const weft_worker *w = store->first; w != NULL; w = w->next) {
        unseen += w->shown == NULL;
    }
    atomic_store(&shown->unseen, unseen);
    atomic_store(&shown->ended_pulls, store->ended.pulls - store->start.pulls);
    atomic_store(&shown->ended_pushes,
                 store->ended.pushes - store->start.pushes);
}

/* From 1 to twice WF_HOT_EVERY less 1, so that loops over keys are not met at
 * the same step each time. */
static int64_t hot_step(weft_worker *worker)
{
    uint64_t x = wf_random_mix(++worker->hot_random);

    return 1 + (int64_t)(x % (2 * WF_HOT_EVERY - 1));
}

void wf_worker_sample(weft_worker *worker, const weft_ids *keys)
{
    weft_store *store = worker->store;
    bool busy = store->shown == NULL || atomic_exchange(&store->meeting, true);

    /* It is -1 at the last of the keys. */
    while (worker->until_hot < 0) {
        uint64_t at = keys->n + (uint64_t)worker->until_hot;

        if (!busy && at < keys->n) {
            wf_hot_meet(&store->shown->hot, wf_id_at(keys, at));
        }
        worker->until_hot += hot_step(worker);
    }
    if (!busy) {
        atomic_store(&store->meeting, false);
    }
}
