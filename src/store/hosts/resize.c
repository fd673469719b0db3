/* SPDX-License-Identifier: Apache-2.0 */
/* Another number of keys in a store over several hosts. The home of a key does
 * not depend on how many there are, so that rows stay where they are: keys that
 * are new begin at their homes, and those that go are forgotten by all hosts.
 *
 * What is said about keys that go may still be on its way: it is dropped on
 * arrival, and no rank returns before all of it has arrived, so that the next
 * resize does not take it for something about a new key of the same number. */
#include <string.h>

#include "base/time.h"
#include "region/region.h"
#include "store/hosts/bulk.h"

/* When a rank dies some may have been told that all went well, others not. So
 * the ranks of a host agree before they do something together. One that has
 * given up before that (wf_hosts_give_up) ends it for the others. If they fail,
 * those of other hosts are told in the next agreement, for which these wait. */
static weft_status agree_here(weft_store *store)
{
    weft_status st = wf_region_verdict(NULL, store->host, WEFT_OK,
                                       wf_now_ns() + store->comm->timeout_ns);

    return st == WEFT_OK ? st : wf_store_agree(store, st);
}

void wf_hosts_give_up(weft_store *store, weft_status st)
{
    char why[WF_DETAIL_MAX];

    if (st == WEFT_ERR_PEER || st == WEFT_ERR_TIMEOUT ||
        st == WEFT_ERR_ABORTED) {
        memcpy(why, weft_error_detail(), sizeof(why));
        weft_comm_abort(store->host, why);
        wf_fail(st, "%s", why);
    }
}

/* The memory of slots is resized by all ranks of a host together, without
 * world->drive: the server must not look at it meanwhile. */
static void pause_server(wf_store_hosts *h, bool pause)
{
    pthread_mutex_lock(&h->world->drive);
    h->paused = pause;
    if (!pause) {
        wf_hosts_read_early(h);
        wf_bulk_go_on(h);
        wf_out_flush(h);
        wf_rounds_wake(h);
    }
    pthread_mutex_unlock(&h->world->drive);
}

/* The server takes no slot from here on. */
static weft_status pause_here(weft_store *store)
{
    weft_status st;

    pause_server(store->remote, true);
    st = agree_here(store);
    if (st != WEFT_OK) {
        pause_server(store->remote, false);
    }
    return st;
}

/* Keys from `ids` on, of those below `until`, are gone. */
void wf_hosts_cut(weft_store *store, uint64_t ids, uint64_t until)
{
    wf_store_hosts *h = store->remote;

    pthread_mutex_lock(&h->world->drive);
    store->ids = ids;
    wf_intents_cut(h);
    for (uint64_t key = ids; h->serves && key < until; key++) {
        wf_serve_forget(h, key);
    }
    pthread_mutex_unlock(&h->world->drive);
}

/* --- more ----------------------------------------------------------------- */

static weft_status settle(weft_store *store, uint64_t from, uint64_t to)
{
    wf_store_hosts *h = store->remote;
    weft_status st;

    pthread_mutex_lock(&h->world->drive);
    st = wf_hosts_settle(store, from, to);
    pthread_mutex_unlock(&h->world->drive);
    return st;
}

/* New keys get their slots before the server goes on, and with it intents that
 * had found no room. */
static weft_status grow(weft_store *store, uint64_t ids)
{
    wf_store_hosts *h = store->remote;
    uint64_t before = store->ids;
    uint64_t begin = wf_keys_at(store, store->number, ids) -
                     wf_keys_at(store, store->number, before);
    weft_status st = pause_here(store);
    weft_status own;

    if (st != WEFT_OK) {
        return st;
    }
    own = wf_slots_resize(store->slots, ids, begin);
    /* Hosts do not know of each other's failures. */
    st = wf_store_agree(store,
                        own == WEFT_OK ? settle(store, before, ids) : own);
    if (st == WEFT_OK) {
        pthread_mutex_lock(&h->world->drive);
        store->ids = ids;
        pthread_mutex_unlock(&h->world->drive);
    } else if (own == WEFT_OK) {
        wf_hosts_cut(store, before, ids);
    }
    pause_server(h, false);
    return st;
}

/* --- fewer ---------------------------------------------------------------- */

/* Operations of this rank that nobody has waited for. */
static void finish_operations(wf_store_hosts *h)
{
    weft_request *request;

    do {
        request = NULL;
        pthread_mutex_lock(&h->world->drive);
        for (uint32_t i = 0; i < h->ops && request == NULL; i++) {
            if (h->op[i].op != NULL) {
                request = h->op[i].op->request;
                atomic_fetch_add(&request->users, 1);
            }
        }
        pthread_mutex_unlock(&h->world->drive);
        if (request != NULL) {
            /* Its failure is told to whoever waits for it. */
            (void)wf_remote_wait(h->store, request);
            weft_request_release(request);
        }
    } while (request != NULL);
}

/* From the first agreement on others may have forgotten the keys, whatever it
 * says here. */
static weft_status shrink(weft_store *store, uint64_t ids)
{
    weft_status st;

    finish_operations(store->remote);
    st = wf_store_agree(store, WEFT_OK);
    wf_hosts_cut(store, ids, store->ids);
    if (st == WEFT_OK) {
        st = wf_store_agree(store, wf_hosts_flush(store, "resize"));
    }
    if (st == WEFT_OK) {
        st = pause_here(store);
    }
    if (st == WEFT_OK) {
        st = wf_store_agree(store, wf_slots_resize(store->slots, ids, 0));
        pause_server(store->remote, false);
    }
    return st;
}

static void resizing(wf_store_hosts *h, bool is)
{
    pthread_mutex_lock(&h->world->drive);
    h->resizing = is;
    pthread_mutex_unlock(&h->world->drive);
}

weft_status wf_hosts_resize(weft_store *store, uint64_t ids)
{
    weft_status st;

    resizing(store->remote, true);
    st = ids > store->ids ? grow(store, ids) : shrink(store, ids);
    resizing(store->remote, false);
    return st;
}
