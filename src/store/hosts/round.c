/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds.
 *
 * Each rank has a thread for them, which works only on the host's server; on
 * the others it looks now and then whether the server is alive. A round acts on
 * the intents that are due, ends those that are over, and goes through the keys
 * that were written to. It is over when everything has come that was asked for
 * by it or before it; meanwhile intents are acted on. While nothing happens
 * rounds become rare, and without intents and copies there are none. */
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

/* --- a round -------------------------------------------------------------- */

/* All keys that have records; what is done with one changes no other's. */
static void tick_all(wf_store_hosts *h)
{
    uint32_t made = atomic_load(&h->book.head->made);

    for (uint32_t i = 0; i < made; i++) {
        const wf_record *r = &h->book.record[i];

        if (r->used != 0) {
            wf_serve_tick(h, r->state.key, true);
        }
    }
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
            bool force = a->forced;

            a->again = a->forced = false;
            wf_serve_tick(h, key[i], force);
        }
    }
    wf_free(list.at);
}

static void tick_dirty(wf_store_hosts *h)
{
    wf_slots *slots = h->store->slots;

    for (uint32_t s = wf_slots_dirty(slots, 0); s != WF_NO_SLOT;
         s = wf_slots_dirty(slots, s + 1)) {
        const wf_active *a = wf_actives_at(&h->active, s);

        h->idle = 0;
        if (a != NULL) {
            wf_serve_tick(h, a->key, false);
        }
    }
}

/* What is asked for so far is waited for by the round. */
static void turn(wf_store_hosts *h)
{
    h->turn++;
    h->asked += h->asked_later;
    h->asked_later = 0;
}

/* What has waited for rows that somebody held, or for room. */
static void retry(wf_store_hosts *h)
{
    if (h->held.count > 0) {
        wf_held_retry(h, false);
    }
    if (h->forced) {
        h->forced = false;
        tick_again(h);
        turn(h);
    }
    wf_room_retry(h);
    wf_out_flush(h);
}

static void round_begin(wf_store_hosts *h, bool force)
{
    h->rounding = true;
    h->round_ns = h->look_ns = wf_now_ns();
    h->looks = 1;
    h->idle++;
    atomic_fetch_add(&h->book.head->begun, 1);
    wf_count(&h->store->counts->rounds, 1);
    wf_store_show_owned(h->store);
    turn(h);
    wf_intents_look(h);
    tick_again(h);
    tick_dirty(h);
    if (force) {
        tick_all(h);
    }
    turn(h);
    wf_out_flush(h);
}

/* A round may have to wait for a host that is far or slow. Keys of others that
 * workers will use are asked for meanwhile. */
static void look_on(wf_store_hosts *h, uint64_t pause)
{
    uint64_t now = wf_now_ns();

    if (now - h->look_ns < (pause > WF_MS ? pause : WF_MS)) {
        return; /* the thread was woken early */
    }
    h->look_ns = now;
    h->looks++;
    wf_intents_look(h);
    wf_out_flush(h);
}

/* Whoever waits for rounds sleeps on the bell of its rank. */
static void round_end(wf_store_hosts *h)
{
    h->rounding = false;
    h->action = wf_window_learn(h->action, h->looks);
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

/* There is nothing to do: memory that was needed for it is given back. */
static void trim(wf_store_hosts *h)
{
    if (h->active.count == 0) {
        wf_book_trim(&h->book);
        wf_actives_fini(&h->active);
    }
    wf_out_trim(h);
}

/* What the thread does when it is awake; how long it may sleep then. */
static uint64_t step(wf_store_hosts *h)
{
    double rate = h->store->options.rounds;
    uint64_t pause = rate < 0 ? 0 : (uint64_t)(1e9 / (rate > 0 ? rate : 1000));

    if (wf_hosts_left(h)) {
        return NAP_NS;
    }
    wf_hosts_look(h);
    if (h->paused) {
        return NAP_NS;
    }
    if (!h->serves) {
        wf_intents_look(h);
        return NAP_NS;
    }
    retry(h);
    if (h->rounding && h->asked == 0 && !h->forced) {
        round_end(h);
    } else if (h->rounding) {
        look_on(h, pause);
    }
    if (!h->rounding &&
        (is_wanted(h) || h->active.count > 0 || h->intents > 0)) {
        round_begin(h, is_wanted(h));
        if (h->asked == 0 && !h->forced) {
            round_end(h);
        }
    } else if (!h->rounding && h->held.count == 0) {
        trim(h);
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
    weft_status st;

    h->action = 1;
    st = wf_thread_start("the thread of a store's rounds", rounds_main, h,
                         &h->thread);
    h->has_thread = st == WEFT_OK;
    return st;
}

void wf_rounds_stop(wf_store_hosts *h)
{
    if (h->has_thread) {
        pthread_mutex_lock(&h->world->drive);
        h->stop = true;
        pthread_cond_signal(&h->wake);
        pthread_mutex_unlock(&h->world->drive);
        pthread_join(h->thread, NULL);
    }
}
