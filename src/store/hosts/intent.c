/* SPDX-License-Identifier: Apache-2.0 */
/* What workers will use. The server knows the intents of all workers of its
 * host; those that are not due lie in a heap by their starts, the others in one
 * by their ends. A rank that does not serve keeps those of its own workers, and
 * tells them to the next server when one dies. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "region/rows/rows.h"
#include "store/hosts/hosts.h"

/* --- heaps ---------------------------------------------------------------- */

static bool heap_add(wf_intent_heap *heap, int64_t order, wf_intent *intent)
{
    uint64_t i = heap->n;

    if (heap->n == heap->room) {
        uint64_t room = heap->room > 0 ? 2 * heap->room : 16;
        void *more = wf_realloc(heap->at, room * sizeof(*heap->at));

        if (more == NULL) {
            return false;
        }
        heap->at = more;
        heap->room = room;
    }
    for (heap->n++; i > 0 && heap->at[(i - 1) / 2].order > order;
         i = (i - 1) / 2) {
        heap->at[i] = heap->at[(i - 1) / 2];
    }
    heap->at[i] = (struct wf_intent_place){order, intent};
    return true;
}

/* Take the first one out; there is one. */
static wf_intent *heap_first(wf_intent_heap *heap)
{
    wf_intent *first = heap->at[0].intent;
    struct wf_intent_place last = heap->at[--heap->n];
    uint64_t i = 0;

    for (uint64_t c; (c = 2 * i + 1) < heap->n; i = c) {
        c += c + 1 < heap->n && heap->at[c + 1].order < heap->at[c].order;
        if (heap->at[c].order >= last.order) {
            break;
        }
        heap->at[i] = heap->at[c];
    }
    heap->at[i] = last;
    return first;
}

static bool heap_until(const wf_intent_heap *heap, int64_t order)
{
    return heap->n > 0 && heap->at[0].order <= order;
}

static void heap_free(wf_intent_heap *heap)
{
    for (uint64_t i = 0; i < heap->n; i++) {
        wf_free(heap->at[i].intent);
    }
    wf_free(heap->at);
    *heap = (wf_intent_heap){0};
}

/* --- intents that come ---------------------------------------------------- */

/* Keys that are gone are not wanted any more. */
static void intent_cut(const wf_store_hosts *h, wf_intent *intent)
{
    uint64_t left = 0;

    for (uint64_t i = 0; i < intent->n; i++) {
        if (intent->key[i] < h->store->ids) {
            intent->key[left++] = intent->key[i];
        }
    }
    intent->n = left;
}

static void heap_cut(const wf_store_hosts *h, const wf_intent_heap *heap)
{
    for (uint64_t i = 0; i < heap->n; i++) {
        intent_cut(h, heap->at[i].intent);
    }
}

void wf_intents_cut(wf_store_hosts *h)
{
    uint32_t workers = h->store->host->size * WF_BOOK_WORKERS;

    for (uint32_t i = 0; i < workers; i++) {
        heap_cut(h, &h->view[i].later);
        heap_cut(h, &h->view[i].due);
    }
}

static wf_intent *intent_of(int64_t start, int64_t end, const uint64_t *keys,
                            uint64_t n)
{
    wf_intent *intent = wf_alloc(sizeof(*intent) + n * sizeof(*keys));

    if (intent != NULL) {
        *intent = (wf_intent){.start = start, .end = end, .n = n};
        memcpy(intent->key, keys, n * sizeof(*keys));
    }
    return intent;
}

/* A hint that is not taken, for want of memory. */
static void intent_lost(wf_intent *intent, uint64_t n)
{
    wf_log(WEFT_LOG_ERROR, "no memory for an intent of %llu keys",
           (unsigned long long)n);
    wf_free(intent);
}

static void keep(wf_store_hosts *h, uint32_t worker, wf_intent *intent)
{
    wf_worker_view *v = &h->view[worker];

    if (!(h->serves ? heap_add(&v->later, intent->start, intent)
                    : heap_add(&v->due, intent->end, intent))) {
        intent_lost(intent, intent->n);
        return;
    }
    h->intents++;
    if (h->serves) {
        h->idle = 0;
        wf_rounds_wake(h);
    }
}

void wf_intent_add(wf_store_hosts *h, uint32_t worker, int64_t start,
                   int64_t end, const uint64_t *keys, uint64_t n)
{
    wf_intent *intent = intent_of(start, end, keys, n);

    if (intent != NULL) {
        intent_cut(h, intent);
        keep(h, worker, intent);
    } else {
        intent_lost(NULL, n);
    }
}

/* To the server of the host. */
static weft_status intent_send(wf_store_hosts *h, uint32_t worker,
                               const wf_intent *intent)
{
    uint64_t *body = wf_alloc((intent->n + 1) * sizeof(*body));
    wf_parcel parcel = {.store = h->box.store,
                        .kind = WF_PARCEL_INTENT,
                        .bytes = (intent->n + 1) * sizeof(*body),
                        .count = (uint32_t)intent->n,
                        .token = worker,
                        .extra = (uint64_t)intent->start};
    weft_status st;

    if (body == NULL) {
        return wf_fail_nomem("an intent of %llu keys",
                             (unsigned long long)intent->n);
    }
    body[0] = (uint64_t)intent->end;
    memcpy(body + 1, intent->key, intent->n * sizeof(*body));
    st = wf_parcel_send(h->world, h->server[h->store->number], &parcel, body);
    wf_free(body);
    return st;
}

static wf_intent *intent_of_ids(int64_t start, int64_t end,
                                const weft_ids *keys)
{
    wf_intent *intent = wf_alloc(sizeof(*intent) + keys->n * sizeof(uint64_t));

    if (intent != NULL) {
        *intent = (wf_intent){.start = start, .end = end, .n = keys->n};
        for (uint64_t i = 0; i < keys->n; i++) {
            intent->key[i] = (uint64_t)wf_id_at(keys, i);
        }
    }
    return intent;
}

void wf_intent_remember(wf_store_hosts *h, uint32_t worker,
                        const weft_ids *keys)
{
    wf_intent *intent = intent_of_ids(
        0, wf_clock_end(atomic_load(&h->book.clock[worker])), keys);

    if (intent != NULL) {
        keep(h, worker, intent);
    } else {
        intent_lost(NULL, keys->n);
    }
}

weft_status wf_intent_tell(wf_store_hosts *h, uint32_t worker, int64_t start,
                           int64_t end, const weft_ids *keys)
{
    int64_t zero = wf_clock_first(atomic_load(&h->book.clock[worker]));
    int64_t last = wf_clock_end(zero);
    wf_intent *intent =
        intent_of_ids(start < last - zero ? zero + start : last,
                      end < last - zero ? zero + end : last, keys);
    weft_status st = WEFT_OK;

    if (intent == NULL) {
        return wf_fail_nomem("an intent of %llu keys",
                             (unsigned long long)keys->n);
    }
    if (h->server[h->store->number] != h->world->host->rank) {
        st = intent_send(h, worker, intent);
    }
    if (st != WEFT_OK && st != WEFT_ERR_PEER) { /* the next server is told */
        wf_free(intent);
        return st;
    }
    keep(h, worker, intent);
    return WEFT_OK;
}

static void want(wf_store_hosts *h, uint64_t key)
{
    wf_active *a = wf_actives_get(&h->active, key);

    if (a == NULL) {
        return; /* a hint that is not taken */
    }
    if (a->intents++ == 0) {
        wf_trace_event(h->store, key, "intent begins");
        wf_serve_intent(h, key, true);
    }
    a->refused = false;
    wf_serve_tick(h, key, false);
}

static void unwant(wf_store_hosts *h, uint64_t key)
{
    wf_active *a = wf_actives_find(&h->active, key);

    if (a != NULL && a->intents > 0 && --a->intents == 0) {
        wf_trace_event(h->store, key, "intent ends");
        wf_serve_intent(h, key, false);
        wf_serve_tick(h, key, false);
    }
}

/* Act on an intent that is due. */
static void begin(wf_store_hosts *h, wf_worker_view *v, wf_intent *intent)
{
    if (!heap_add(&v->due, intent->end, intent)) {
        h->intents--;
        intent_lost(intent, intent->n);
        return;
    }
    for (uint64_t i = 0; i < intent->n; i++) {
        want(h, intent->key[i]);
    }
}

void wf_intent_now(wf_store_hosts *h, uint32_t worker, uint64_t key)
{
    wf_intent *intent = intent_of(
        0, wf_clock_end(atomic_load(&h->book.clock[worker])), &key, 1);

    if (intent == NULL) {
        intent_lost(intent, 1);
        return;
    }
    h->intents++;
    begin(h, &h->view[worker], intent);
}

/* --- looking at the clocks ------------------------------------------------ */

static void begin_due(wf_store_hosts *h, wf_worker_view *v, int64_t clock,
                      int64_t horizon)
{
    while (heap_until(&v->later, horizon)) {
        wf_intent *intent = heap_first(&v->later);

        if (intent->end <= clock) { /* it has ended already */
            h->intents--;
            wf_free(intent);
        } else {
            begin(h, v, intent);
        }
    }
}

static void end_over(wf_store_hosts *h, wf_worker_view *v, int64_t clock)
{
    while (heap_until(&v->due, clock)) {
        wf_intent *intent = heap_first(&v->due);

        for (uint64_t i = 0; h->serves && i < intent->n; i++) {
            unwant(h, intent->key[i]);
        }
        h->intents--;
        wf_free(intent);
    }
}

static void look_at_worker(wf_store_hosts *h, uint32_t worker)
{
    wf_worker_view *v = &h->view[worker];
    int64_t clock =
        atomic_load_explicit(&h->book.clock[worker], memory_order_relaxed);

    if (v->later.n == 0 && v->due.n == 0) {
        return;
    }
    if (v->first != wf_clock_first(clock)) {
        v->first = wf_clock_first(clock);
        wf_window_init(&v->window, 0);
    }
    if (h->serves) {
        int64_t ahead = wf_window_look(&v->window, clock - v->first, h->action);
        bool all =
            h->store->options.eager != 0 || ahead > WEFT_CLOCK_MAX - clock;

        begin_due(h, v, clock, all ? WEFT_CLOCK_MAX : clock + ahead);
    }
    end_over(h, v, clock);
}

void wf_intents_look(wf_store_hosts *h)
{
    uint32_t workers = h->store->host->size * WF_BOOK_WORKERS;

    for (uint32_t i = 0; h->intents > 0 && i < workers; i++) {
        look_at_worker(h, i);
    }
}

/* --- after the death of a server ------------------------------------------ */

void wf_intents_serve(wf_store_hosts *h)
{
    uint32_t workers = h->store->host->size * WF_BOOK_WORKERS;

    for (uint32_t w = 0; w < workers; w++) {
        wf_intent_heap *due = &h->view[w].due;

        for (uint64_t i = 0; i < due->n; i++) {
            wf_intent *intent = due->at[i].intent;

            if (!heap_add(&h->view[w].later, intent->start, intent)) {
                h->intents--;
                intent_lost(intent, intent->n);
            }
        }
        due->n = 0;
    }
}

void wf_intents_repeat(wf_store_hosts *h)
{
    uint32_t first = h->store->host->rank * WF_BOOK_WORKERS;

    for (uint32_t w = first; w < first + WF_BOOK_WORKERS; w++) {
        const wf_intent_heap *due = &h->view[w].due;

        for (uint64_t i = 0; i < due->n; i++) {
            const wf_intent *intent = due->at[i].intent;

            (void)intent_send(h, w, intent);
        }
    }
}

void wf_intents_fini(wf_store_hosts *h)
{
    uint32_t workers = h->store->host->size * WF_BOOK_WORKERS;

    for (uint32_t i = 0; h->view != NULL && i < workers; i++) {
        heap_free(&h->view[i].later);
        heap_free(&h->view[i].due);
    }
}
