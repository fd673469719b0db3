/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for lock words, and repairing what dead writers left. Whoever waits
 * polls, yields, sleeps, and looks now and then whether the writer is dead. */
#include <errno.h>
#include <sched.h>
#include <signal.h>

#include "base/num.h"
#include "base/patience.h"
#include "base/status.h"
#include "base/time.h"
#include "store/robust.h"
#include "store/table.h"

#define POLLS 64u
#define YIELDS 128u
#define NAP_LEAST 20000u /* ns */
#define NAP_MOST 1000000u

/* A wait for a word to change. */
typedef struct row_wait {
    uint64_t word;     /* that it waits to go */
    uint64_t since_ns; /* when that was first seen */
    uint64_t asked_ns;
    uint32_t looks;
    uint32_t nap_ns;
} row_wait;

/* Its rank in the job. */
static uint32_t holder_of(const wf_slots *slots, uint64_t word)
{
    uint32_t writer =
        (uint32_t)((word & WF_WORD_WRITER) >> WF_WORD_WRITER_AT) - 1;
    uint32_t rank = writer / WF_WRITERS;

    return slots->member[rank < slots->ranks ? rank : 0];
}

/* Will the holder of this word never write again? One that left the job in good
 * order may still be there. */
static bool holder_dead(const wf_slots *slots, uint64_t word)
{
    const wf_host *host = slots->world->host;
    uint32_t rank = holder_of(slots, word);
    uint32_t state = atomic_load_explicit(&wf_host_entry(host, rank)->state,
                                          memory_order_acquire);

    return state == WF_BOARD_DEAD ||
           (state == WF_BOARD_LEFT && kill(host->peer[rank].pid, 0) != 0 &&
            errno == ESRCH);
}

/* --- repair --------------------------------------------------------------- */

static weft_status repair_lock(wf_slots *slots)
{
    struct timespec until;
    int bad;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(slots->timeout_ns / WF_SEC) + 1;
    bad = pthread_mutex_timedlock(&slots->shared->repair, &until);
    /* What a dead one was putting back is there to be put back again. */
    bad = wf_robust_got(&slots->shared->repair, bad);
    if (bad == ETIMEDOUT) {
        return wf_fail(WEFT_ERR_TIMEOUT,
                       "another rank of this host has been repairing rows for "
                       "more than %.1f s: it may be stopped",
                       (double)slots->timeout_ns / 1e9);
    }
    errno = bad;
    return bad == 0 ? WEFT_OK : wf_fail_errno("lock for repairs of rows");
}

/* Put the row back, unless its writer had not saved it yet. The version counts
 * up even so: readers may have seen what is taken back. */
static void repair_row(wf_slots *slots, const wf_place *place, uint64_t word)
{
    const wf_undo *undo = wf_undo_of(slots, word);
    uint64_t marks = word & WF_WORD_MARKS;

    if (atomic_load_explicit(&undo->token, memory_order_acquire) ==
        wf_undo_token(place->slot, word)) {
        memcpy(wf_place_row(place), undo->row, place->class->bytes);
        marks = undo->marks;
    }
    atomic_fetch_add(&slots->shared->repaired, 1);
    wf_place_unlock(place, (word & ~WF_WORD_MARKS) | marks);
}

static weft_status repair(wf_slots *slots, const wf_place *place)
{
    weft_status st = repair_lock(slots);
    uint64_t word;

    if (st != WEFT_OK) {
        return st;
    }
    word = atomic_load_explicit(wf_place_word(place), memory_order_acquire);
    if ((word & WF_WORD_WRITER) != 0 && holder_dead(slots, word)) {
        repair_row(slots, place, word);
    }
    pthread_mutex_unlock(&slots->shared->repair);
    return WEFT_OK;
}

uint64_t wf_slots_repaired(const wf_slots *slots)
{
    return atomic_load(&slots->shared->repaired);
}

/* --- waiting -------------------------------------------------------------- */

static weft_status wait_fail(const wf_slots *slots, const wf_place *place,
                             const row_wait *w, uint64_t now)
{
    const wf_host *host = slots->world->host;
    uint32_t rank = holder_of(slots, w->word);
    const wf_peer *peer = &host->peer[rank];

    return wf_fail(WEFT_ERR_TIMEOUT,
                   "rank %u (pid %d on %s) has been writing the row of key "
                   "%llu for %.1f s%s",
                   rank, peer->pid, peer->host, (unsigned long long)place->key,
                   (double)(now - w->since_ns) / 1e9,
                   wf_host_stopped(host, rank) ? " and is stopped" : "");
}

static void wait_nap(row_wait *w)
{
    struct timespec nap = {0, (long)w->nap_ns};

    nanosleep(&nap, NULL);
    w->nap_ns = (uint32_t)wf_least(w->nap_ns * 2ull, NAP_MOST);
}

/* The word did not change in a while. */
static weft_status wait_slowly(wf_slots *slots, const wf_place *place,
                               row_wait *w)
{
    uint64_t now = wf_now_ns();
    weft_status st = WEFT_OK;

    if (holder_dead(slots, w->word)) {
        return repair(slots, place);
    }
    if (w->since_ns == 0) {
        w->since_ns = w->asked_ns = now;
    }
    if (now - w->since_ns >= slots->timeout_ns) {
        return wait_fail(slots, place, w, now);
    }
    if (now - w->asked_ns >= WF_SLICE_NS) {
        w->asked_ns = now;
        st = wf_interrupt_check(&slots->world->host->interrupt);
    }
    wait_nap(w);
    return st;
}

/* Somebody holds `word`: wait a little. The time counts from the last change of
 * the word, since a row that many write to is not stuck. */
static weft_status wait_step(wf_slots *slots, const wf_place *place,
                             row_wait *w, uint64_t word)
{
    if (word != w->word) {
        *w = (row_wait){.word = word, .nap_ns = NAP_LEAST};
    }
    w->looks++;
    if (w->looks < POLLS) {
        wf_cpu_relax();
        return WEFT_OK;
    }
    if (w->looks < POLLS + YIELDS) {
        sched_yield();
        return WEFT_OK;
    }
    return wait_slowly(slots, place, w);
}

weft_status wf_place_lock_slowly(wf_slots *slots, const wf_place *place,
                                 uint32_t writer, uint64_t *word)
{
    _Atomic uint64_t *at = wf_place_word(place);
    uint64_t mine = wf_writer_bits(slots, writer);
    row_wait w = {.nap_ns = NAP_LEAST};
    weft_status st = WEFT_OK;

    while (st == WEFT_OK) {
        uint64_t seen = atomic_load_explicit(at, memory_order_relaxed);

        if ((seen & WF_WORD_WRITER) != 0) {
            st = wait_step(slots, place, &w, seen);
        } else if (atomic_compare_exchange_weak_explicit(
                       at, &seen, seen | mine, memory_order_acquire,
                       memory_order_relaxed)) {
            *word = seen | mine;
            break;
        }
    }
    return st;
}

weft_status wf_place_await(wf_slots *slots, const wf_place *place)
{
    _Atomic uint64_t *at = wf_place_word(place);
    row_wait w = {.nap_ns = NAP_LEAST};
    weft_status st = WEFT_OK;
    uint64_t seen = atomic_load_explicit(at, memory_order_acquire);

    while (st == WEFT_OK && (seen & WF_WORD_WRITER) != 0) {
        st = wait_step(slots, place, &w, seen);
        seen = atomic_load_explicit(at, memory_order_acquire);
    }
    return st;
}

bool wf_slot_held(const wf_slots *slots, uint32_t slot)
{
    wf_place place = wf_place_at(slots, slot);
    uint64_t word = 0;

    for (unsigned i = 0; i < POLLS + YIELDS / 8; i++) {
        uint64_t now =
            atomic_load_explicit(wf_place_word(&place), memory_order_relaxed);

        if ((now & WF_WORD_WRITER) == 0 || (i > 0 && now != word)) {
            return false;
        }
        word = now;
        if (i < POLLS) {
            wf_cpu_relax();
        } else {
            sched_yield();
        }
    }
    return !holder_dead(slots, word);
}

/* --- one slot, for the server --------------------------------------------- */

weft_status wf_slot_lock(wf_slots *slots, uint64_t key, uint32_t slot,
                         uint32_t writer, void **row)
{
    wf_place place = wf_place_of(slots, key, slot);
    uint64_t word = 0;
    weft_status st = wf_place_lock(slots, &place, writer, &word);

    if (st == WEFT_OK) {
        wf_place_save(slots, &place, word);
        *row = wf_place_row(&place);
    }
    return st;
}

void wf_slot_unlock(wf_slots *slots, uint32_t slot, uint32_t writer)
{
    wf_place place = wf_place_at(slots, slot);

    (void)writer;
    wf_place_unlock(&place, atomic_load_explicit(wf_place_word(&place),
                                                 memory_order_relaxed));
}

void wf_slot_unlock_as_it_was(wf_slots *slots, uint32_t slot, uint32_t writer)
{
    wf_place place = wf_place_at(slots, slot);
    wf_undo *undo = wf_undo_of(slots, wf_writer_bits(slots, writer));

    /* The version stays, so that the next lock would find its row saved, with
     * marks that have changed since. */
    atomic_store_explicit(&undo->token, WF_UNDO_NONE, memory_order_release);
    wf_place_release(&place, atomic_load_explicit(wf_place_word(&place),
                                                  memory_order_relaxed));
}

wf_slot_marks wf_slot_marks_get(const wf_slots *slots, uint32_t slot)
{
    wf_place place = wf_place_at(slots, slot);
    uint64_t word =
        atomic_load_explicit(wf_place_word(&place), memory_order_relaxed);

    return (wf_slot_marks){.flags = (uint16_t)(word & WF_WORD_FLAGS),
                           .epoch = (uint16_t)(word >> WF_WORD_EPOCH_AT)};
}

void wf_slot_marks_set(wf_slots *slots, uint32_t slot, wf_slot_marks marks)
{
    wf_place place = wf_place_at(slots, slot);
    _Atomic uint64_t *at = wf_place_word(&place);
    uint64_t word = atomic_load_explicit(at, memory_order_relaxed);

    atomic_store_explicit(at,
                          (word & ~WF_WORD_MARKS) | marks.flags |
                              (uint64_t)marks.epoch << WF_WORD_EPOCH_AT,
                          memory_order_relaxed);
}
