/* SPDX-License-Identifier: Apache-2.0 */
/* A question for the dense numbers of hashed keys: one parcel to each home,
 * with all of its keys; then to the hosts behind those that have no numbers
 * left. An answer that is lost with a rank is asked for again. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/time.h"
#include "store/hosts/hosts.h"

#define NOBODY UINT32_MAX
#define LATER (1u << 31)

/* A question to other hosts. What is learnt goes to the table. */
struct wf_ask {
    wf_op op;            /* behind a request: the first member */
    struct wf_ask *next; /* of this rank */
    weft_store *store;
    const char *who;
    uint64_t token; /* of what was sent last */
    uint64_t n;
    int64_t *key;   /* n of each of these */
    uint32_t *at;   /* the host that is asked for it, or LATER + the one that is
                     * asked next; NOBODY: it is known */
    bool *waiting;  /* by host: it has not answered */
    uint64_t since; /* when something last came */
    uint32_t deaths;
    weft_status status;
    char *text;
};

static void fail(wf_ask *ask, weft_status st, const char *text)
{
    if (ask->status == WF_PENDING) {
        ask->status = st;
        ask->text = wf_strdup(text);
    }
}

/* --- asking --------------------------------------------------------------- */

/* A host has no number for a key: the next one may, unless it was the first
 * that was asked. */
static void ask_next(wf_ask *ask, uint64_t i)
{
    const weft_store *store = ask->store;
    uint32_t next = (ask->at[i] + 1) % store->hosts;
    char text[256];

    ask->at[i] = LATER + next;
    if (next == wf_hash_home(store->hash, ask->key[i])) {
        snprintf(text, sizeof(text),
                 "%s: key %" PRId64 " is new, but the store has its %" PRIu64
                 " keys already",
                 ask->who, ask->key[i], store->options.keys);
        fail(ask, WEFT_ERR_NOMEM, text);
    }
}

/* Keys for which this host is next. */
static void ask_here(wf_ask *ask)
{
    const weft_store *store = ask->store;

    for (uint64_t i = 0; i < ask->n && ask->status == WF_PENDING; i++) {
        weft_ids one = {.at = &ask->key[i], .type = WEFT_I64, .n = 1};
        int64_t dense;

        if (ask->at[i] != store->number) {
            continue;
        }
        if (wf_hash_enter(store->hash, &one, &dense) != WEFT_OK) {
            fail(ask, WEFT_ERR_SYSTEM, weft_error_detail());
        } else if (dense >= 0) {
            ask->at[i] = NOBODY;
        } else {
            ask_next(ask, i);
        }
    }
}

/* The keys for which a host is asked, to `out`. */
static uint64_t keys_at(const wf_ask *ask, uint32_t host, int64_t *out)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < ask->n; i++) {
        if (ask->at[i] == host) {
            out[n++] = ask->key[i];
        }
    }
    return n;
}

static void ask_host(wf_store_hosts *h, wf_ask *ask, uint32_t host,
                     int64_t *keys)
{
    uint64_t n = keys_at(ask, host, keys);
    wf_parcel parcel = {.store = h->box.store,
                        .kind = WF_PARCEL_ASK,
                        .bytes = n * sizeof(*keys),
                        .count = (uint32_t)n,
                        .token = ask->token};
    char who[160];
    char text[320];

    if (h->server[host] == NOBODY) {
        wf_hosts_name(h, wf_hosts_dead(h, host), who, sizeof(who));
        snprintf(text, sizeof(text),
                 n > 0 ? "%s: %s, and with it the home of key %" PRId64
                       : "%s: %s",
                 ask->who, who, n > 0 ? keys[0] : 0);
        fail(ask, WEFT_ERR_PEER, text);
        return;
    }
    wf_out_parcel(h, h->server[host], &parcel, keys);
}

/* Ask those that have not answered. An older answer does no harm, but the order
 * of the keys in it would. */
static void ask_all(wf_store_hosts *h, wf_ask *ask)
{
    int64_t *keys = wf_alloc((ask->n + 1) * sizeof(*keys));

    ask->token = ++h->asked_names;
    ask->deaths = h->deaths;
    ask->since = wf_now_ns();
    if (keys == NULL) {
        fail(ask, WEFT_ERR_NOMEM, "no memory to ask for hashed keys");
        return;
    }
    for (uint32_t host = 0; host < h->store->hosts; host++) {
        if (ask->waiting[host] && ask->status == WF_PENDING) {
            ask_host(h, ask, host, keys);
        }
    }
    wf_free(keys);
}

/* Keys that were LATER are asked for now. */
static void begin_later(wf_ask *ask)
{
    for (uint64_t i = 0; i < ask->n; i++) {
        if (ask->at[i] != NOBODY) {
            ask->at[i] &= ~LATER;
        }
    }
}

/* All that were asked have answered, or none was. */
static void ask_on(wf_store_hosts *h, wf_ask *ask)
{
    bool more = false;

    begin_later(ask);
    ask_here(ask);
    begin_later(ask);
    for (uint64_t i = 0; i < ask->n && ask->status == WF_PENDING; i++) {
        if (ask->at[i] != NOBODY) {
            ask->waiting[ask->at[i]] = true;
            more = true;
        }
    }
    if (more) {
        ask_all(h, ask);
    } else if (ask->status == WF_PENDING) {
        ask->status = WEFT_OK;
    }
}

/* --- answers ----------------------------------------------------------------
 */

/* What host `from` says: as many numbers as it was asked for. */
static void take_answer(wf_ask *ask, uint32_t host, const int64_t *dense)
{
    const weft_store *store = ask->store;
    int64_t *keys = wf_alloc((ask->n + 1) * sizeof(*keys));
    uint64_t n = 0;
    weft_status st;

    for (uint64_t i = 0; keys != NULL && i < ask->n; i++) {
        if (ask->at[i] != host) {
            continue;
        }
        if (dense[n] >= (int64_t)store->ids) {
            fail(ask, WEFT_ERR_PROTOCOL, "a hashed key got a wrong number");
            break;
        }
        if (dense[n] < 0) {
            ask_next(ask, i);
        } else {
            ask->at[i] = NOBODY;
        }
        keys[n++] = ask->key[i];
    }
    st = keys == NULL ? wf_fail_nomem("hashed keys")
         : n == 0     ? WEFT_OK
                      : wf_hash_learn(store->hash, keys, dense, n);
    if (st != WEFT_OK) {
        fail(ask, st, weft_error_detail());
    }
    wf_free(keys);
}

static wf_ask *ask_find(const wf_store_hosts *h, uint64_t token)
{
    wf_ask *ask = h->asks;

    while (ask != NULL && ask->token != token) {
        ask = ask->next;
    }
    return ask;
}

static uint64_t asked_of(const wf_ask *ask, uint32_t host)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < ask->n; i++) {
        n += ask->at[i] == host;
    }
    return n;
}

static bool all_answered(const wf_ask *ask)
{
    for (uint32_t host = 0; host < ask->store->hosts; host++) {
        if (ask->waiting[host]) {
            return false;
        }
    }
    return true;
}

void wf_ask_told(wf_store_hosts *h, uint32_t from, const wf_parcel *parcel,
                 const int64_t *dense)
{
    wf_ask *ask = ask_find(h, parcel->token);
    uint32_t host = h->host_of[from];

    if (ask == NULL || ask->status != WF_PENDING || !ask->waiting[host]) {
        return; /* of one that is over */
    }
    ask->since = wf_now_ns();
    ask->op.moved++;
    if (parcel->extra != 0 ||
        parcel->bytes != asked_of(ask, host) * sizeof(*dense)) {
        fail(ask, WEFT_ERR_NOMEM, "the home of a hashed key has no memory");
        return;
    }
    take_answer(ask, host, dense);
    ask->waiting[host] = false;
    if (ask->status == WF_PENDING && all_answered(ask)) {
        ask_on(h, ask);
    }
}

/* --- as a request --------------------------------------------------------- */

static void check_time(wf_store_hosts *h, wf_ask *ask)
{
    uint64_t limit = atomic_load(&h->store->comm->timeout_ns);
    uint32_t host = 0;
    char text[256];

    if (wf_now_ns() - ask->since > limit) {
        while (host + 1 < h->store->hosts && !ask->waiting[host]) {
            host++;
        }
        snprintf(text, sizeof(text),
                 "%s: rank %" PRIu32 " did not answer for %.1f s what "
                 "numbers hashed keys have",
                 ask->who, h->server[host], (double)limit * 1e-9);
        fail(ask, WEFT_ERR_TIMEOUT, text);
    }
}

static void end(wf_ask *ask)
{
    wf_ask **at = &ask->store->remote->asks;

    while (*at != ask) {
        at = &(*at)->next;
    }
    *at = ask->next;
    wf_free(ask->text);
    wf_free(ask->key);
    ask->key = NULL;
}

static weft_status ask_step(wf_op *op)
{
    wf_ask *ask = (wf_ask *)(void *)op;
    wf_store_hosts *h = ask->store->remote;
    weft_status st;

    wf_hosts_look(h);
    if (ask->status == WF_PENDING && ask->deaths != h->deaths) {
        ask_all(h, ask);
    }
    if (ask->status == WF_PENDING) {
        check_time(h, ask);
    }
    st = ask->status;
    if (st == WF_PENDING) {
        return st;
    }
    if (st != WEFT_OK) {
        wf_fail(st, "%s", ask->text != NULL ? ask->text : weft_status_text(st));
    }
    end(ask);
    return st;
}

/* The communicator was closed under it. */
static void ask_drop(wf_op *op)
{
    wf_ask *ask = (wf_ask *)(void *)op;

    if (ask->key != NULL) {
        end(ask);
    }
}

static weft_status ask_alloc(wf_ask *ask, uint64_t n)
{
    uint32_t hosts = ask->store->hosts;
    char *at = wf_zalloc(n * (sizeof(*ask->key) + sizeof(*ask->at)) +
                         hosts * sizeof(*ask->waiting));

    if (at == NULL) {
        return wf_fail_nomem("%" PRIu64 " hashed keys", n);
    }
    ask->key = (int64_t *)(void *)at;
    ask->at = (uint32_t *)(void *)(ask->key + n);
    ask->waiting = (bool *)(void *)(ask->at + n);
    return WEFT_OK;
}

weft_status wf_ask_make(weft_store *store, const char *who, uint64_t n,
                        weft_request **request)
{
    wf_ask *ask;
    weft_status st = wf_request_create(store->alone, sizeof(*ask), request);

    if (st != WEFT_OK) {
        return st;
    }
    ask = (wf_ask *)(void *)(*request)->op;
    wf_op_init(&ask->op);
    ask->op.comm = store->alone;
    ask->op.step = ask_step;
    ask->op.drop = ask_drop;
    ask->op.private_failure = true;
    ask->op.driven = true;
    ask->op.lazy = true;
    ask->op.call = (wf_call){.kind = WF_CALL_STORE, .count = n};
    ask->store = store;
    ask->who = who;
    ask->status = WF_PENDING;
    st = ask_alloc(ask, n);
    if (st != WEFT_OK) {
        weft_request_release(*request);
    }
    return st;
}

void wf_ask_for(weft_request *request, int64_t key)
{
    wf_ask *ask = (wf_ask *)(void *)request->op;

    ask->key[ask->n] = key;
    ask->at[ask->n++] = wf_hash_home(ask->store->hash, key);
}

void wf_ask_every(weft_request *request)
{
    wf_ask *ask = (wf_ask *)(void *)request->op;

    memset(ask->waiting, true, ask->store->hosts * sizeof(*ask->waiting));
}

weft_status wf_ask_wait(weft_store *store, weft_request *request)
{
    wf_store_hosts *h = store->remote;
    wf_ask *ask = (wf_ask *)(void *)request->op;
    weft_status st;

    pthread_mutex_lock(&h->world->drive);
    ask->next = h->asks;
    h->asks = ask;
    wf_hosts_look(h);
    if (all_answered(ask)) {
        ask_on(h, ask);
    } else {
        ask_all(h, ask);
    }
    pthread_mutex_unlock(&h->world->drive);
    wf_request_submit(request, false);
    st = wf_remote_wait(store, request);
    weft_request_release(request);
    return st;
}
