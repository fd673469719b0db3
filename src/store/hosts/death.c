/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank serves which host, and what happens when one that did is gone. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/log.h"
#include "store/hosts/hosts.h"

#define NOBODY UINT32_MAX

static bool is_gone(const wf_store_hosts *h, uint32_t rank)
{
    return wf_host_check(h->world->host, rank) != WEFT_OK;
}

/* Nothing more comes from it: all that it had sent was read. On this host that
 * need not be waited for, since what the server did is in shared memory. */
static bool is_silent(const wf_store_hosts *h, uint32_t host)
{
    return host == h->store->number ||
           h->world->ports.lost[h->server[host]] != WEFT_OK;
}

static uint32_t next_server(const wf_store_hosts *h, uint32_t host)
{
    const weft_comm *comm = h->store->comm;

    for (uint32_t r = 0; r < comm->size; r++) {
        if (h->host_of[r] == host && !is_gone(h, comm->member[r])) {
            return comm->member[r];
        }
    }
    return NOBODY;
}

/* --- keys that a death concerns ------------------------------------------- */

/* All keys that have records, and, after the death of a whole host, those that
 * it owned. Events may remove keys from the set. */
static void tell_keys(wf_store_hosts *h, uint32_t host, bool whole)
{
    const weft_store *store = h->store;
    uint64_t n = 0;
    uint64_t *key = wf_alloc((h->active.count + 1) * sizeof(*key));

    if (key == NULL) {
        wf_log(WEFT_LOG_ERROR, "no memory to handle the death of rank %u",
               h->last_dead);
        return;
    }
    for (uint64_t i = 0; i < h->active.room; i++) {
        if (h->active.at[i] != NULL) {
            key[n++] = h->active.at[i]->key;
        }
    }
    for (uint64_t i = 0; i < n; i++) {
        wf_serve_death(h, key[i], host, whole);
    }
    wf_free(key);
    for (uint64_t k = 0; whole && k < store->options.keys; k++) {
        uint32_t word = wf_directory_get(store->slots, k);

        if ((word & WF_KEY_HERE) == 0 && wf_word_owner(word) == host) {
            wf_serve_death(h, k, host, true);
        }
    }
}

/* --- taking over ---------------------------------------------------------- */

static weft_status list_used(wf_store_hosts *h, uint32_t *used)
{
    uint32_t made = atomic_load(&h->book.head->made);
    uint32_t slots = wf_slots_count(h->store->slots);

    for (uint32_t i = 0; i < made; i++) {
        const wf_record *r = &h->book.record[i];
        const uint32_t named[3] = {r->state.slot, r->state.kept, r->base};
        wf_active *a;

        if (r->used == 0) {
            continue;
        }
        a = wf_actives_get(&h->active, r->state.key);
        if (a == NULL) {
            return wf_fail_nomem("the keys of a store");
        }
        a->record = i;
        a->base = r->base;
        a->flags = UINT32_MAX; /* unknown: set again when it is saved */
        h->asked += (r->state.flags & WF_KEY_ASKED) != 0;
        for (int j = 0; j < 3; j++) {
            if (named[j] < slots) {
                used[named[j]] = (uint32_t)r->state.key + 1;
            }
        }
        /* The last server may have died between record and word. */
        wf_directory_put(h->store->slots, r->state.key,
                         wf_key_word(&r->state, h->store->number));
    }
    return WEFT_OK;
}

static void take_over(wf_store_hosts *h)
{
    uint32_t slots = wf_slots_count(h->store->slots);
    uint32_t *used = wf_zalloc((slots + 1ull) * sizeof(*used));
    weft_status st = used != NULL ? wf_book_take_over(&h->book)
                                  : wf_fail_nomem("the slots of a store");

    if (st == WEFT_OK) {
        st = list_used(h, used);
    }
    if (st == WEFT_OK) {
        st = wf_slots_recover(h->store->slots, used);
    }
    wf_free(used);
    if (st != WEFT_OK) {
        wf_log(WEFT_LOG_ERROR, "this rank cannot serve its host's store: %s",
               weft_error_detail());
        return;
    }
    h->serves = true;
    wf_log(WEFT_LOG_INFO, "serves the store of its host in place of rank %u",
           h->last_dead);
}

static void server_died(wf_store_hosts *h, uint32_t host)
{
    uint32_t next = next_server(h, host);
    bool own = host == h->store->number;

    h->last_dead = h->server[host];
    h->server[host] = next;
    h->deaths++;
    if (next == NOBODY) {
        wf_hosts_add(&h->env.gone, host);
    } else if (own && next == h->world->host->rank) {
        take_over(h);
    }
    if (h->serves) {
        tell_keys(h, host, next == NOBODY);
        wf_out_flush(h);
    }
}

void wf_hosts_look(wf_store_hosts *h)
{
    uint32_t alarm = atomic_load_explicit(&h->world->host->board->alarm,
                                          memory_order_acquire);
    bool all = true;

    if (alarm == h->alarm) {
        return;
    }
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

void wf_hosts_name_dead(const wf_store_hosts *h, char *text, size_t room)
{
    const wf_peer *who = &h->world->host->peer[h->last_dead];

    snprintf(text, room, "rank %u (pid %d on %s) died", h->last_dead, who->pid,
             who->host);
}
