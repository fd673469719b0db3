/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank serves which host, and what happens when one that did is gone. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "store/hosts/bulk.h"

#define NOBODY UINT32_MAX
/* The longest pause before a death is heard of again: by then all hosts have
 * heard of it. */
#define LAST_PAUSE_NS (8 * WF_SEC)

static bool is_gone(const wf_store_hosts *h, uint32_t rank)
{
    return wf_host_check(h->world->host, rank) != WEFT_OK;
}

bool wf_hosts_left(const wf_store_hosts *h)
{
    return is_gone(h, h->world->host->rank);
}

/* Nothing more comes from it: all that it had sent was read. On this host that
 * need not be waited for, since what the server did is in shared memory. */
static bool is_silent(const wf_store_hosts *h, uint32_t host)
{
    return host == h->store->number ||
           h->world->ports.lost[h->server[host]] != WEFT_OK;
}

bool wf_hosts_dying(const wf_store_hosts *h, uint32_t host)
{
    return h->server[host] != NOBODY && is_gone(h, h->server[host]);
}

static uint32_t next_server(const wf_store_hosts *h, uint32_t host)
{
    const weft_comm *comm = h->store->comm;

    for (uint32_t r = 0; r < comm->size; r++) {
        uint32_t rank = comm->member[r];

        if (h->host_of[rank] == host && !is_gone(h, rank)) {
            return rank;
        }
    }
    return NOBODY;
}

/* --- keys that a death concerns ------------------------------------------- */

/* Of a key without a record: one that is here has a home which may not have
 * heard so, if that one's server died or the own one; one that is not may have
 * been owned by a host that died. */
static bool concerns(const wf_store_hosts *h, uint64_t key, uint32_t host,
                     bool whole)
{
    uint32_t word = wf_directory_get(h->store->slots, key);
    uint32_t home = wf_home_of(h->store, key);
    uint32_t own = h->store->number;

    return (word & WF_KEY_HERE) != 0
               ? home != own && (host == home || host == own)
               : whole && wf_word_owner(word) == host;
}

/* All keys that have records, and others that the death may concern. What is
 * done with a key changes no other one's record. */
static void tell_keys(wf_store_hosts *h, uint32_t host, bool whole)
{
    uint32_t made = atomic_load(&h->book.head->made);

    for (uint32_t i = 0; i < made; i++) {
        const wf_record *r = &h->book.record[i];

        if (r->used != 0) {
            wf_serve_death(h, r->state.key, host, whole);
        }
    }
    for (uint64_t key = 0; key < h->store->ids; key++) {
        const wf_active *a;

        if (concerns(h, key, host, whole)) {
            a = wf_actives_find(&h->active, key);
            if (a == NULL || a->record == WF_NO_RECORD) {
                wf_serve_death(h, key, host, whole);
            }
        }
    }
}

/* --- keys whose home is gone ---------------------------------------------- */

/* Who owns a key that is not at its home only the home knows, beside the owner.
 * When the home is gone owners tell all hosts of such keys; until all of them
 * have, a key that nobody seems to have may be somewhere. */
static void tell_homeless(wf_store_hosts *h, uint32_t gone)
{
    wf_entry told = {.m = {.kind = WF_MSG_TOLD,
                           .from = (uint16_t)h->store->number,
                           .owner = (uint16_t)gone}};

    for (uint32_t host = 0; host < h->store->hosts; host++) {
        if (host != h->store->number) {
            wf_out_entry(h, h->server[host], &told, NULL, 0);
        }
    }
    wf_hosts_add(&h->told[gone], h->store->number);
}

bool wf_hosts_untold(const wf_store_hosts *h, uint64_t key)
{
    uint32_t home = wf_home_of(h->store, key);
    uint32_t word = wf_directory_get(h->store->slots, key);

    if (!wf_hosts_has(&h->env.gone, home) || (word & WF_KEY_HERE) != 0 ||
        !wf_hosts_has(&h->env.gone, wf_word_owner(word))) {
        return false;
    }
    for (uint32_t host = 0; host < h->store->hosts; host++) {
        if (!wf_hosts_has(&h->env.gone, host) &&
            !wf_hosts_has(&h->told[home], host)) {
            return true;
        }
    }
    return false;
}

/* --- taking over ---------------------------------------------------------- */

static weft_status adopt_keys(wf_store_hosts *h, uint64_t *used)
{
    uint32_t made = atomic_load(&h->book.head->made);
    uint32_t slots = wf_slots_count(h->store->slots);
    uint64_t now = wf_now_ns();

    for (uint32_t i = 0; i < made; i++) {
        const wf_record *r = &h->book.record[i];
        const uint32_t named[3] = {r->state.slot, r->state.kept, r->base};
        wf_active *a;

        if (r->used != 0 && r->state.key >= h->store->ids) {
            wf_book_give(&h->book, i); /* that was to be forgotten */
        }
        if (r->used == 0) {
            continue;
        }
        a = wf_actives_get(&h->active, r->state.key);
        if (a == NULL) {
            return wf_fail_nomem("the keys of a store");
        }
        a->record = i;
        a->fresh_ns = now; /* when it was, the last server knew */
        for (int j = 0; j < 3; j++) {
            if (named[j] < slots) {
                used[named[j] / 64] |= 1ull << named[j] % 64;
            }
        }
        /* The last server may have died between record and word. */
        wf_serve_adopt(h, a, &r->state);
    }
    return WEFT_OK;
}

/* The last server may have died between a key's change and its counting. */
static void count_again(wf_store_hosts *h)
{
    uint32_t made = atomic_load(&h->book.head->made);
    const wf_slots *slots = h->store->slots;
    uint64_t owned = 0;
    uint64_t copies = 0;

    /* Without a record, a key that is here is owned. */
    for (uint64_t key = 0; key < h->store->ids; key++) {
        owned += (wf_directory_get(slots, key) & WF_KEY_HERE) != 0;
    }
    for (uint32_t i = 0; i < made; i++) {
        const wf_record *r = &h->book.record[i];

        if (r->used != 0) {
            owned -= (wf_directory_get(slots, r->state.key) & WF_KEY_HERE) != 0;
            owned += r->state.role == WF_OWNER;
            copies += r->state.role == WF_COPY;
        }
    }
    atomic_store(&h->book.head->owned, owned);
    atomic_store(&h->book.head->copies, copies);
}

/* The last server's intents are gone with it. Workers repeat theirs. */
static void forget_intents(wf_store_hosts *h)
{
    uint32_t made = atomic_load(&h->book.head->made);

    for (uint32_t i = 0; i < made; i++) {
        const wf_record *r = &h->book.record[i];

        if (r->used != 0 && (r->state.flags & WF_KEY_WANTED) != 0) {
            wf_serve_intent(h, r->state.key, false);
        }
    }
}

static bool take_over(wf_store_hosts *h)
{
    uint32_t slots = wf_slots_count(h->store->slots);
    uint64_t *used = wf_zalloc((slots / 64 + 1ull) * sizeof(*used));
    weft_status st = used != NULL ? wf_book_take_over(&h->book)
                                  : wf_fail_nomem("the slots of a store");

    wf_actives_fini(&h->active);
    h->asked = h->asked_later = h->ending = 0;
    if (st == WEFT_OK) {
        st = adopt_keys(h, used);
    }
    if (st == WEFT_OK) {
        wf_slots_recover(h->store->slots, used);
    }
    wf_free(used);
    if (st != WEFT_OK) {
        wf_log(WEFT_LOG_ERROR,
               "this rank cannot serve its host's store yet: %s",
               weft_error_detail());
        return false;
    }
    wf_rows_mend(h);
    count_again(h);
    h->serves = true;
    wf_log(WEFT_LOG_INFO, "serves the store of its host in place of rank %u",
           h->last_dead);
    return true;
}

/* --- deaths --------------------------------------------------------------- */

/* What came before the death of a server was known here. */
void wf_hosts_read_early(wf_store_hosts *h)
{
    wf_waiting_list early;
    wf_waiting *w;

    wf_waiting_init(&early);
    wf_waiting_take(&h->early, &early);
    while ((w = wf_waiting_first(&early)) != NULL) {
        wf_entry_arrived(h, (uint32_t)w->entry->m.tag, w->entry);
        wf_free(w);
    }
}

/* This rank is to serve its host from now on. */
static bool begin_to_serve(wf_store_hosts *h)
{
    uint32_t own = h->store->number;

    if (!take_over(h)) {
        return false;
    }
    for (uint32_t host = 0; host < h->store->hosts; host++) {
        if (h->server[host] == NOBODY) {
            tell_keys(h, host, true);
            tell_homeless(h, host);
        }
    }
    forget_intents(h);
    wf_intents_serve(h);
    tell_keys(h, own, false);
    return true;
}

static void server_died(wf_store_hosts *h, uint32_t host)
{
    uint32_t next = next_server(h, host);
    bool own = host == h->store->number;

    wf_held_retry(h, true); /* they were before the death */
    wf_bulk_lost(h, host);  /* by the flow to it, not to the next one */
    h->last_dead = h->dead[host] = h->server[host];
    h->server[host] = next;
    h->deaths++;
    h->again_pause = WF_HEAR_AGAIN_NS;
    h->again_ns = wf_now_ns() + h->again_pause;
    if (next == NOBODY) {
        wf_hosts_add(&h->env.gone, host);
    }
    if (own && next == h->world->host->rank) {
        begin_to_serve(h);
    } else if (own) {
        wf_intents_repeat(h);
    } else if (h->serves) {
        tell_keys(h, host, next == NOBODY);
    }
    if (h->serves && next == NOBODY) {
        tell_homeless(h, host);
    }
    wf_hosts_read_early(h);
    wf_out_flush(h);
}

/* A rank that had no memory to take over tries again. */
static void serve_at_last(wf_store_hosts *h)
{
    if (!h->serves && h->server[h->store->number] == h->world->host->rank &&
        begin_to_serve(h)) {
        wf_hosts_read_early(h);
        wf_out_flush(h);
    }
}

/* Other hosts hear of a death at other times. A message that went through one
 * which had not, or its answer, was sent to the dead rank. So while a round is
 * not over what it waits for is begun anew, as when the death was heard of;
 * operations of workers see to themselves. */
static void hear_again(wf_store_hosts *h)
{
    uint64_t now = h->again_ns != 0 ? wf_now_ns() : 0;

    if (now == 0 || now < h->again_ns) {
        return;
    }
    h->again_pause *= 2;
    h->again_ns = h->again_pause <= LAST_PAUSE_NS ? now + h->again_pause : 0;
    h->agains++;
    if (!h->serves || !h->rounding || now - h->round_ns < WF_HEAR_AGAIN_NS) {
        return;
    }
    for (uint32_t host = 0; host < h->store->hosts; host++) {
        if (h->dead[host] != NOBODY) {
            tell_keys(h, host, h->server[host] == NOBODY);
        }
    }
    wf_out_flush(h);
}

void wf_hosts_told(wf_store_hosts *h, uint32_t host, uint32_t by)
{
    wf_hosts_add(&h->told[host], by);
    wf_hosts_read_early(h);
}

/* Workers of ranks of this host that are gone use nothing any more. */
static void end_clocks(wf_store_hosts *h)
{
    const weft_comm *host = h->store->host;

    for (uint32_t r = 0; r < host->size; r++) {
        for (uint32_t w = 0; w < WF_BOOK_WORKERS && is_gone(h, host->member[r]);
             w++) {
            atomic_store(wf_book_clock(&h->book, r, w), WEFT_CLOCK_MAX);
        }
    }
}

void wf_hosts_look(wf_store_hosts *h)
{
    uint32_t alarm = atomic_load_explicit(&h->world->host->board->alarm,
                                          memory_order_acquire);
    bool all = true;

    if (h->paused || wf_hosts_left(h)) {
        return;
    }
    hear_again(h);
    if (alarm == h->alarm) {
        serve_at_last(h);
        return;
    }
    end_clocks(h);
    for (uint32_t host = 0; host < h->store->hosts; host++) {
        if (h->server[host] != NOBODY && is_gone(h, h->server[host])) {
            if (is_silent(h, host)) {
                server_died(h, host);
            } else {
                all = false;
            }
        }
    }
    if (all) {
        h->alarm = alarm;
    }
}

uint32_t wf_hosts_dead(const wf_store_hosts *h, uint32_t host)
{
    return h->dead[host] != NOBODY ? h->dead[host] : h->last_dead;
}

void wf_hosts_name(const wf_store_hosts *h, uint32_t rank, char *text,
                   size_t room)
{
    const wf_host *host = h->world->host;
    const wf_peer *who = &host->peer[rank];
    bool left = atomic_load(&wf_host_entry(host, rank)->state) == WF_BOARD_LEFT;

    snprintf(text, room, "rank %u (pid %d on %s) %s", rank, who->pid, who->host,
             left ? "has left the job" : "died");
}
