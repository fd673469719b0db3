/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that are localized and wait for room.
 *
 * A key on its way takes two slots, and one when it has come. So of many keys
 * that fit only some can be on their way at a time. The others wait here, at
 * the server, until slots become free. Only while none is going to become free
 * is a key refused: then those that were on their way have come, and there is
 * no room for it.
 *
 * What waits here is lost with the server, and asked for again by its worker.
 */
#include "base/alloc.h"
#include "store/hosts/hosts.h"

/* Of one key that comes: for its row and its base. */
#define SLOTS_ON_WAY 2u

/* Is a slot of this key going to be free, whatever others do? */
static bool is_ending(const wf_key_state *k)
{
    bool on_way = k->role == WF_ABSENT && k->slot != WF_NO_SLOT;
    bool leaves = k->role == WF_COPY && (k->flags & WF_KEY_WANTED) == 0;

    return on_way || leaves || k->kept != WF_NO_SLOT;
}

void wf_room_count(wf_store_hosts *h, const wf_key_state *before,
                   const wf_key_state *after)
{
    h->ending += is_ending(after);
    h->ending -= is_ending(before);
}

bool wf_room_wait(wf_store_hosts *h, const wf_message *op)
{
    uint32_t before = h->roomless.count;

    if (op->op == WF_OP_LOCALIZE && h->ending > 0) {
        wf_waiting_keep(&h->roomless, wf_message_entry(op), 0);
    }
    return h->roomless.count > before;
}

void wf_room_localize(wf_store_hosts *h, const wf_entry *e)
{
    uint32_t workers = h->store->host->size * WF_BOOK_WORKERS;
    uint32_t before = h->roomless.count;

    h->localizing = true;
    wf_serve_entry(h, e);
    h->localizing = false;
    if (h->roomless.count == before && (uint32_t)e->status < workers) {
        wf_intent_now(h, (uint32_t)e->status, e->m.key);
    }
}

static bool has_room(const wf_store_hosts *h, uint64_t key)
{
    return h->ending == 0 ||
           wf_slots_spare(h->store->slots, key) >= SLOTS_ON_WAY;
}

void wf_room_retry(wf_store_hosts *h)
{
    bool one_length = h->store->uniform;
    uint32_t n = h->serves && !h->paused ? h->roomless.count : 0;

    for (; n > 0; n--) {
        uint64_t key = h->roomless.first->entry->m.key;
        bool gone = key >= h->store->ids;
        wf_waiting *w;

        if (one_length && !gone && !has_room(h, key)) {
            return; /* nor is there for the others */
        }
        w = wf_waiting_first(&h->roomless);
        if (!gone && !has_room(h, key)) {
            wf_waiting_append(&h->roomless, w);
            continue;
        }
        if (gone) {
            wf_serve_refuse(h, w->entry);
        } else {
            wf_room_localize(h, w->entry);
        }
        wf_free(w);
    }
}
