/* SPDX-License-Identifier: Apache-2.0 */
/* Intents and rounds.
 *
 * Each rank has a thread for them, which works only on the host's server; on
 * the others it looks now and then whether the server is alive. A round acts on
 * the intents that are due, ends those that are over, and goes through the keys
 * that were written to. It is over when everything that it asked for has come.
 * While nothing happens rounds become rare, and without intents and copies
 * there are none. */
#include <errno.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/time.h"
#include "store/hosts/hosts.h"

/* A thread with nothing to do looks around so often. */
#define NAP_NS (50 * WF_MS)
/* After so many rounds in which nothing happened they become rare. */
#define IDLE_ROUNDS 64u
#define IDLE_NS (10 * WF_MS)

/* --- intents -------------------------------------------------------------- */

void wf_intent_add(wf_store_hosts *h, uint32_t worker, int64_t start,
                   int64_t end, const uint64_t *keys, uint64_t n)
{
    wf_worker_view *v = &h->view[worker];
    wf_intent *intent = wf_alloc(sizeof(*intent) + n * sizeof(*keys));
    wf_intent **at = &v->later;

    if (intent == NULL) {
        wf_log(WEFT_LOG_ERROR, "no memory for an intent of %llu keys",
               (unsigned long long)n);
        return;
    }
    *intent = (wf_intent){.start = start, .end = end, .n = n};
    for (uint64_t i = 0; i < n; i++) {
        intent->key[i] = keys[i];
    }
    while (*at != NULL && (*at)->start <= start) {
        at = &(*at)->next;
    }
    intent->next = *at;
    *at = intent;
    h->intents++;
    h->idle = 0;
    wf_rounds_wake(h);
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

/* Act on what is due. */
static void begin_due(wf_store_hosts *h, wf_worker_view *v, int64_t clock,
                      int64_t horizon)
{
    wf_intent *i;

    while ((i = v->later) != NULL && i->start <= horizon) {
        v->later = i->next;
        if (i->end <= clock) { /* it has ended already */
            h->intents--;
            wf_free(i);
            continue;
        }
        i->next = v->due;
        v->due = i;
        for (uint64_t j = 0; j < i->n; j++) {
            want(h, i->key[j]);
        }
    }
}

static void end_over(wf_store_hosts *h, wf_worker_view *v, int64_t clock)
{
    for (wf_intent **at = &v->due; *at != NULL;) {
        wf_intent *i = *at;

        if (i->end > clock) {
            at = &i->next;
            continue;
        }
        *at = i->next;
        for (uint64_t j = 0; j < i->n; j++) {
            unwant(h, i->key[j]);
        }
        h->intents--;
        wf_free(i);
    }
}

static void look_at_worker(wf_store_hosts *h, uint32_t worker)
{
    wf_worker_view *v = &h->view[worker];
    int64_t clock =
        atomic_load_explicit(&h->book.clock[worker], memory_order_relaxed);
    int64_t ahead;

    if (v->later == NULL && v->due == NULL) {
        return;
    }
    ahead = wf_window_round(&v->window, clock);
    if (h->store->options.eager != 0 || ahead > WEFT_CLOCK_MAX - clock) {
        begin_due(h, v, clock, WEFT_CLOCK_MAX);
    } else {
        begin_due(h, v, clock, clock + ahead);
    }
    end_over(h, v, clock);
}

/* --- a round -------------------------------------------------------------- */

/* All keys of the set: a tick may remove its key from it. */
static void tick_all(wf_store_hosts *h)
{
    uint64_t n = 0;
    uint64_t *key = wf_alloc((h->active.count + 1) * sizeof(*key));

    if (key == NULL) {
        return; /* in the next round */
    }
    for (uint64_t i = 0; i < h->active.room; i++) {
        if (h->active.at[i] != NULL) {
            key[n++] = h->active.at[i]->key;
        }
    }
    for (uint64_t i = 0; i < n; i++) {
        wf_serve_tick(h, key[i], true);
    }
    wf_free(key);
}

/* Those that an event has left something to do with. */
static void tick_again(wf_store_hosts *h)
{
    wf_scratch list = h->again;
    const uint64_t *key = (const uint64_t *)(const void *)list.at;

    h->again = (wf_scratch){0};
    for (size_t i = 0; i < list.bytes / sizeof(*key); i++) {
        wf_active *a = wf_actives_find(&h->active, key[i]);

        if (a != NULL) {
            a->again = false;
            wf_serve_tick(h, key[i], false);
        }
    }
    wf_free(list.at);
}

static void tick_dirty(wf_store_hosts *h)
{
    wf_slots *slots = h->store->slots;

    for (uint32_t s = wf_slots_dirty(slots, 0); s != WF_NO_SLOT;
         s = wf_slots_dirty(slots, s + 1)) {
        h->idle = 0;
        wf_serve_tick(h, wf_slot_key(slots, s), false);
    }
}

static void round_begin(wf_store_hosts *h, bool force)
{
    uint32_t workers = h->store->host->size * WF_BOOK_WORKERS;

    h->rounding = true;
    h->idle++;
    atomic_fetch_add(&h->book.head->begun, 1);
    wf_count(&h->store->counts.rounds, 1);
    for (uint32_t i = 0; i < workers; i++) {
        look_at_worker(h, i);
    }
    tick_again(h);
    tick_dirty(h);
    if (force) {
        tick_all(h);
    }
    wf_out_flush(h);
}

/* Whoever waits for rounds sleeps on the bell of its rank. */
static void round_end(wf_store_hosts *h)
{
    h->rounding = false;
    atomic_fetch_add(&h->book.head->over, 1);
    if (atomic_load(&h->book.head->wanted) > 0) {
        for (uint32_t r = 0; r < h->store->host->size; r++) {
            wf_board_ring(h->store->host->entry[r]);
        }
    }
}

static bool is_wanted(const wf_store_hosts *h)
{
    return atomic_load(&h->book.head->over) <
           atomic_load(&h->book.head->wanted);
}

/* What the thread does when it is awake; how long it may sleep then. */
static uint64_t step(wf_store_hosts *h)
{
    double rate = h->store->options.rounds;
    uint64_t pause = rate < 0 ? 0 : (uint64_t)(1e9 / (rate > 0 ? rate : 1000));

    wf_hosts_look(h);
    if (!h->serves) {
        return NAP_NS;
    }
    if (h->rounding && h->asked == 0) {
        round_end(h);
    }
    if (!h->rounding &&
        (is_wanted(h) || h->active.count > 0 || h->intents > 0)) {
        round_begin(h, is_wanted(h));
        if (h->asked == 0) {
            round_end(h);
        }
    } else if (!h->rounding) {
        return NAP_NS;
    }
    return is_wanted(h)            ? wf_least(pause, WF_MS / 4)
           : h->idle > IDLE_ROUNDS ? IDLE_NS
                                   : pause;
}

static void nap(wf_store_hosts *h, uint64_t ns)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)((ns + (uint64_t)until.tv_nsec) / WF_SEC);
    until.tv_nsec = (long)((ns + (uint64_t)until.tv_nsec) % WF_SEC);
    pthread_cond_timedwait(&h->wake, &h->world->drive, &until);
}

static void *rounds_main(void *arg)
{
    wf_store_hosts *h = arg;

    pthread_mutex_lock(&h->world->drive);
    while (!h->stop) {
        nap(h, step(h));
    }
    pthread_mutex_unlock(&h->world->drive);
    return NULL;
}

void wf_rounds_wake(wf_store_hosts *h)
{
    pthread_cond_signal(&h->wake);
}

weft_status wf_rounds_start(wf_store_hosts *h)
{
    weft_status st = wf_thread_start("the thread of a store's rounds",
                                     rounds_main, h, &h->thread);

    h->has_thread = st == WEFT_OK;
    return st;
}

void wf_rounds_stop(wf_store_hosts *h)
{
    uint32_t workers = h->store->host->size * WF_BOOK_WORKERS;

    if (h->has_thread) {
        pthread_mutex_lock(&h->world->drive);
        h->stop = true;
        pthread_cond_signal(&h->wake);
        pthread_mutex_unlock(&h->world->drive);
        pthread_join(h->thread, NULL);
    }
    for (uint32_t i = 0; h->view != NULL && i < workers; i++) {
        wf_intent *lists[2] = {h->view[i].later, h->view[i].due};

        for (int l = 0; l < 2; l++) {
            for (wf_intent *x = lists[l], *next; x != NULL; x = next) {
                next = x->next;
                wf_free(x);
            }
        }
    }
}
