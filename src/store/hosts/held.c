/* SPDX-License-Identifier: Apache-2.0 */
/* Events that wait for a row which somebody holds.
 *
 * The server handles an event under world->drive, so that while it waits for a
 * row nothing of this process goes on. A worker that is stopped in the middle
 * of a write could hold up a whole host that way. So before an event the server
 * looks whether the row of its key is free, and if it is not the event waits
 * instead, with all later messages about this key behind it. */
#include "base/alloc.h"
#include "store/hosts/hosts.h"

bool wf_held(const wf_store_hosts *h, const wf_key_state *k)
{
    const wf_slots *slots = h->store->slots;

    return (k->slot != WF_NO_SLOT && wf_slot_held(slots, k->slot)) ||
           (k->kept != WF_NO_SLOT && wf_slot_held(slots, k->kept));
}

bool wf_held_entry(wf_store_hosts *h, const wf_key_state *k, const wf_entry *e)
{
    wf_active *a = wf_actives_find(&h->active, k->key);
    uint32_t before = h->held.count;

    if ((a == NULL || a->held == 0) && !wf_held(h, k)) {
        return false;
    }
    a = wf_actives_get(&h->active, k->key);
    if (a != NULL) {
        wf_waiting_keep(&h->held, e, 0);
        a->held += h->held.count - before;
        wf_rounds_wake(h);
    }
    return h->held.count > before;
}

bool wf_held_tick(wf_store_hosts *h, const wf_key_state *k, bool force)
{
    wf_active *a = NULL;

    if (wf_held(h, k)) {
        a = wf_actives_get(&h->active, k->key);
    }
    if (a == NULL || !wf_serve_again(h, a)) {
        return false;
    }
    a->forced = a->forced || force;
    h->forced = h->forced || force;
    return true;
}

void wf_held_retry(wf_store_hosts *h, bool now)
{
    wf_waiting_list list;
    wf_waiting *w;

    wf_waiting_init(&list);
    wf_waiting_take(&h->held, &list);
    for (w = list.first; w != NULL; w = w->next) {
        wf_active *a = wf_actives_find(&h->active, w->entry->m.key);

        if (a != NULL) {
            a->held = 0;
        }
    }
    while ((w = wf_waiting_first(&list)) != NULL) {
        if (w->entry->m.key >= h->store->ids) {
            /* The store has become smaller meanwhile. */
        } else if (now) {
            wf_serve_entry_now(h, w->entry);
        } else {
            wf_serve_entry(h, w->entry);
        }
        wf_free(w);
    }
}
