/* SPDX-License-Identifier: Apache-2.0 */
/* This rank's part of a store over several hosts: making and ending it. */
#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "region/region.h"
#include "store/hosts/hosts.h"
#include <weft/coll.h>

/* --- keys at their homes -------------------------------------------------- */

/* The host's own keys get their slots; of the others the home is the owner. */
weft_status wf_hosts_settle(weft_store *store, uint64_t from, uint64_t to)
{
    for (uint64_t key = from; store->remote->serves && key < to; key++) {
        uint32_t home = wf_home_of(store, key);
        wf_key_state k;
        uint32_t slot = WF_NO_SLOT;

        if (home == store->number) {
            slot = wf_slot_begin(store->slots, key);
            if (slot == WF_NO_SLOT) {
                return wf_fail(WEFT_ERR_NOMEM,
                               "host %u has no room for key %llu: a rank that "
                               "is stopped holds a row that is free",
                               store->number, (unsigned long long)key);
            }
            atomic_fetch_add(&store->remote->book.head->owned, 1);
        }
        wf_key_init(&k, key, store->number, home, slot);
        wf_directory_put(store->slots, key, wf_key_word(&k, store->number));
    }
    return WEFT_OK;
}

/* --- making --------------------------------------------------------------- */

static weft_status allocate(wf_store_hosts *h)
{
    const weft_store *store = h->store;
    uint32_t ranks = h->world->host->ranks;
    uint64_t workers = (uint64_t)store->host->size * WF_BOOK_WORKERS;
    weft_status st;

    h->server = wf_alloc(store->hosts * sizeof(*h->server));
    h->dead = wf_alloc(store->hosts * sizeof(*h->dead));
    h->told = wf_zalloc(store->hosts * sizeof(*h->told));
    h->host_of = wf_alloc(ranks * sizeof(*h->host_of));
    h->out = wf_zalloc(ranks * sizeof(*h->out));
    h->unsent = wf_alloc(ranks * sizeof(*h->unsent));
    h->view = wf_zalloc(workers * sizeof(*h->view));
    h->line = wf_zalloc(store->hosts * sizeof(*h->line));
    if (h->server == NULL || h->dead == NULL || h->told == NULL ||
        h->host_of == NULL || h->out == NULL || h->unsent == NULL ||
        h->view == NULL || h->line == NULL) {
        return wf_fail_nomem("a store over %u hosts", store->hosts);
    }
    for (uint64_t i = 0; i < workers; i++) {
        wf_window_init(&h->view[i].window, 0);
    }
    pthread_mutex_lock(&h->world->drive);
    st = wf_ports_flows(h->world);
    pthread_mutex_unlock(&h->world->drive);
    return st;
}

/* Hosts are numbered in the order of their first ranks, which serve them. */
static void find_servers(wf_store_hosts *h)
{
    const weft_comm *comm = h->store->comm;
    uint32_t hosts = 0;

    for (uint32_t r = 0; r < h->world->host->ranks; r++) {
        h->host_of[r] = UINT32_MAX;
    }
    for (uint32_t r = 0; r < comm->size; r++) {
        uint32_t before = wf_first_on_node(comm, r);

        if (before == r) {
            h->server[hosts] = comm->member[r];
            h->dead[hosts] = UINT32_MAX;
            h->host_of[comm->member[r]] = hosts++;
        } else {
            h->host_of[comm->member[r]] = h->host_of[comm->member[before]];
        }
    }
    h->serves = h->server[h->store->number] == h->world->host->rank;
}

static wf_store_hosts *hosts_alloc(weft_store *store)
{
    wf_store_hosts *h = wf_zalloc(sizeof(*h));
    pthread_condattr_t attr;

    if (h == NULL) {
        return NULL;
    }
    h->store = store;
    h->world = store->comm->world;
    h->writer = WF_WRITERS - 1; /* workers have the others */
    h->book.segment.fd = -1;
    h->alarm = atomic_load(&h->world->host->board->alarm);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->wake, &attr);
    pthread_condattr_destroy(&attr);
    return h;
}

static void hosts_free(wf_store_hosts *h)
{
    uint32_t ranks = h->world->host->ranks;

    wf_serve_fini(h);
    wf_intents_fini(h);
    for (uint32_t r = 0; h->out != NULL && r < ranks; r++) {
        wf_free(h->out[r].at);
    }
    wf_free(h->out);
    wf_free(h->unsent);
    wf_free(h->server);
    wf_free(h->dead);
    wf_free(h->told);
    wf_free(h->host_of);
    wf_free(h->view);
    wf_free(h->line);
    wf_free(h->op);
    wf_book_close(&h->book);
    pthread_cond_destroy(&h->wake);
    wf_free(h);
}

/* The same number on all ranks, and of no other store of the job. */
static weft_status agree_id(weft_store *store, uint64_t *id)
{
    static _Atomic uint32_t made;
    uint64_t mine = wf_now_ns() << 8 | (atomic_fetch_add(&made, 1) & 0xff);
    weft_status st =
        weft_broadcast(store->comm, &mine, sizeof(mine), WEFT_U8, 0);

    *id = mine;
    return st;
}

/* Steps after which all ranks agree, so that nobody waits for one that has
 * failed. */
static weft_status open_parts(weft_store *store, wf_store_hosts *h)
{
    uint64_t deadline = wf_now_ns() + store->comm->timeout_ns;
    weft_status st =
        h != NULL ? allocate(h) : wf_fail_nomem("a store over several hosts");

    if (st == WEFT_OK) {
        find_servers(h);
        wf_serve_init(h);
        st = wf_book_make(&h->book, store->host, store->options.max_keys);
    }
    st = wf_region_verdict(NULL, store->comm, st, deadline);
    if (st == WEFT_OK) {
        st = wf_region_verdict(NULL, store->comm,
                               wf_book_open(&h->book, store->host), deadline);
    }
    return st;
}

weft_status wf_hosts_open(weft_store *store)
{
    wf_store_hosts *h = hosts_alloc(store);
    uint64_t deadline = wf_now_ns() + store->comm->timeout_ns;
    uint64_t id = 0;
    weft_status st;

    store->remote = h;
    st = open_parts(store, h);
    if (st == WEFT_OK) {
        st = agree_id(store, &id);
    }
    if (st != WEFT_OK) {
        return st;
    }
    h->box =
        (wf_parcel_box){.store = id, .read = wf_parcel_arrived, .owner = store};
    st = wf_hosts_settle(store, 0, store->ids);
    if (st == WEFT_OK) {
        st = wf_parcel_box_open(h->world, &h->box);
    }
    if (st == WEFT_OK) {
        st = wf_rounds_start(h);
    }
    return wf_region_verdict(NULL, store->comm, st, deadline);
}

/* --- ending --------------------------------------------------------------- */

void wf_hosts_close(weft_store *store)
{
    wf_store_hosts *h = store->remote;

    if (h == NULL) {
        return;
    }
    if (atomic_load(&h->world->host->orphan)) {
        h->has_thread = false; /* it is the parent's */
    }
    wf_rounds_stop(h);
    wf_parcel_box_close(h->world, &h->box);
    hosts_free(h);
    store->remote = NULL;
}
