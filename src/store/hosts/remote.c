/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's operations on keys whose rows are not here: messages to the
 * servers that may have them, and their answers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/time.h"
#include "region/rows/rows.h"
#include "store/hosts/bulk.h"

#define NOBODY UINT32_MAX
#define WORDS_AHEAD 16u /* that are asked for before they are needed */
/* More bytes of rows come in several messages, and who waits for them stays
 * awake between these. For fewer it may sleep: where hosts share cores, those
 * who answer need one. */
#define LONG_BYTES (128u << 10)

static const char *kind_name(wf_op_kind kind)
{
    static const char *const name[] = {[WF_OP_PULL] = "pull",
                                       [WF_OP_PUSH] = "push",
                                       [WF_OP_SET] = "set",
                                       [WF_OP_LOCALIZE] = "localize"};

    return name[kind];
}

/* --- sending -------------------------------------------------------------- */

void wf_remote_fail(wf_remote *r, weft_status st, const char *text)
{
    if (r->status == WF_PENDING) {
        r->status = st;
        r->text = wf_strdup(text);
    }
}

void wf_remote_send_key(wf_store_hosts *h, wf_remote *r, uint64_t i,
                        wf_op_kind kind)
{
    weft_store *store = h->store;
    uint64_t key = r->key[i];
    wf_entry e = {.rank = h->world->host->rank,
                  .token = r->token,
                  .position = (uint32_t)i,
                  .status = (int32_t)wf_worker_index(r->worker)};
    uint32_t to;
    char who[160];

    r->word[i] = wf_directory_get(store->slots, key);
    to = h->server[wf_protocol_op(&e.m, key, kind, store->number, r->word[i])];
    if (to == NOBODY) {
        to = h->server[store->number]; /* it knows better, or tells that not */
    }
    if (to == NOBODY) {
        wf_hosts_name(h, h->last_dead, who, sizeof(who));
        wf_remote_fail(r, WEFT_ERR_PEER, who);
        return;
    }
    wf_out_entry(
        h, to, &e, wf_op_has_values(kind) ? r->values + r->offset[i] : NULL,
        wf_op_has_values(kind) ? wf_store_row_bytes(h->store, key) : 0);
}

/* The keys that go the short way, host by host and in the order of the call. A
 * set names none twice here: access.c has dropped what it would overwrite. */
static void send_bulk(wf_store_hosts *h, wf_remote *r, const uint32_t *count)
{
    uint32_t share_of[WF_HOSTS_MAX];
    uint32_t sum = 0;

    for (uint32_t host = 0; host < h->store->hosts; host++) {
        if (count[host] > 0) {
            share_of[host] = r->shares;
            r->share[r->shares++] =
                (wf_share){.op = r, .host = host, .next = sum, .end = sum};
            sum += count[host];
        }
    }
    for (uint64_t i = 0; i < r->n; i++) {
        if (r->bulk[i]) {
            r->bulk[i] = false;
            r->order[r->share[share_of[wf_word_owner(r->word[i])]].end++] =
                (uint32_t)i;
        }
    }
    for (uint32_t i = 0; i < r->shares; i++) {
        wf_bulk_send(h, &r->share[i]);
    }
}

static void send_all(wf_store_hosts *h, wf_remote *r)
{
    uint32_t count[WF_HOSTS_MAX] = {0};

    r->deaths = h->deaths;
    r->agains = h->agains;
    r->since = wf_now_ns();
    for (uint64_t i = 0; i < r->n; i++) {
        if (i + WORDS_AHEAD < r->n) {
            wf_slots_ask_word(h->store->slots, r->key[i + WORDS_AHEAD]);
        }
        r->bulk[i] = false;
        if (r->answered[i]) {
            continue;
        }
        r->word[i] = wf_directory_get(h->store->slots, r->key[i]);
        if (wf_bulk_takes(h, r->kind, i, r->word[i])) {
            r->bulk[i] = true;
            count[wf_word_owner(r->word[i])]++;
        } else {
            wf_remote_send_key(h, r, i, r->kind);
        }
    }
    send_bulk(h, r, count);
    wf_out_flush(h);
}

/* --- answers -------------------------------------------------------------- */

static void learn(wf_store_hosts *h, const wf_remote *r, const wf_entry *e)
{
    wf_slots *slots = h->store->slots;
    uint32_t now = wf_directory_get(slots, e->m.key);

    if ((now & WF_KEY_HERE) == 0 && wf_word_owner(now) != h->store->number &&
        e->m.owner != h->store->number) {
        wf_directory_learn(
            slots, e->m.key, now,
            wf_word_learn(now, r->word[e->position], e->m.owner, e->m.epoch));
    }
}

/* Another host has done it, and this one may have a copy by now that lacks it:
 * the own server sees to that before the operation is over. */
static bool must_hold(const wf_store_hosts *h, const wf_remote *r, uint64_t key)
{
    uint32_t word =
        wf_op_has_values(r->kind) ? wf_directory_get(h->store->slots, key) : 0;

    return wf_op_has_values(r->kind) &&
           ((word & WF_KEY_HERE) != 0 ||
            wf_word_owner(word) == h->store->number);
}

static void fail_answer(wf_store_hosts *h, wf_remote *r, const wf_entry *e)
{
    weft_status st = wf_status_parse(e->status);
    char text[320];
    char who[160];

    if (st == WEFT_ERR_NOMEM) {
        snprintf(text, sizeof(text),
                 "%s: this host has no room for key %" PRId64
                 ": give the store a larger `cache`, or localize fewer keys",
                 kind_name(r->kind), wf_store_name(h->store, e->m.key));
    } else {
        wf_hosts_name(h,
                      e->rank < h->world->host->ranks ? e->rank : h->last_dead,
                      who, sizeof(who));
        snprintf(text, sizeof(text), "%s: key %" PRId64 " is gone: %s",
                 kind_name(r->kind), wf_store_name(h->store, e->m.key), who);
    }
    wf_remote_fail(r, st == WEFT_OK ? WEFT_ERR_PROTOCOL : st, text);
}

static void key_done(wf_remote *r, uint32_t position, const void *row,
                     uint64_t bytes)
{
    if (bytes > 0) {
        memcpy(r->values + r->offset[position], row, bytes);
    }
    r->answered[position] = true;
    if (--r->left == 0 && r->status == WF_PENDING) {
        r->status = WEFT_OK;
    }
}

void wf_remote_answer(wf_store_hosts *h, const wf_entry *e)
{
    wf_remote *r = wf_token_find(h, e->token);

    if (r == NULL || e->position >= r->n || r->key[e->position] != e->m.key ||
        r->answered[e->position] || e->m.owner >= h->store->hosts) {
        return; /* of an operation that is over */
    }
    r->since = h->heard_ns;
    r->op.moved++;
    wf_bulk_answered(h, r, e->position);
    learn(h, r, e);
    if (e->status != WEFT_OK) {
        fail_answer(h, r, e);
        return;
    }
    if (e->m.op != WF_OP_HELD && e->m.from != h->store->number &&
        must_hold(h, r, e->m.key)) {
        wf_remote_send_key(h, r, e->position, WF_OP_HELD);
        return;
    }
    if (r->kind == WF_OP_PULL &&
        e->bytes != wf_store_row_bytes(h->store, e->m.key)) {
        return;
    }
    key_done(r, e->position, wf_entry_blob(e)->at,
             r->kind == WF_OP_PULL ? e->bytes : 0);
}

void wf_remote_done(wf_store_hosts *h, wf_remote *r, uint32_t position,
                    const void *row, uint64_t bytes)
{
    if (r->answered[position]) {
        return;
    }
    r->since = h->heard_ns;
    r->op.moved++;
    if (must_hold(h, r, r->key[position])) {
        wf_remote_send_key(h, r, position, WF_OP_HELD);
    } else {
        key_done(r, position, row, bytes);
    }
}

/* --- as a request --------------------------------------------------------- */

static bool may_be_repeated(const wf_remote *r)
{
    return r->kind == WF_OP_PULL || r->kind == WF_OP_LOCALIZE;
}

/* A server died: what it may have had of this operation is asked for again, if
 * that does no harm. */
static void after_death(wf_store_hosts *h, wf_remote *r)
{
    char who[160];
    char text[320];

    if (may_be_repeated(r)) {
        wf_token_give(h, r);
        wf_bulk_drop(h, r);
        if (wf_token_take(h, r) == WEFT_OK) {
            send_all(h, r);
            /* What was under way to the dead one made room for others. */
            wf_bulk_go_on(h);
        } else {
            wf_remote_fail(r, WEFT_ERR_NOMEM, weft_error_detail());
        }
        return;
    }
    wf_hosts_name(h, h->last_dead, who, sizeof(who));
    snprintf(text, sizeof(text),
             "%s of %" PRIu64 " keys: %s; it may or may not have taken place "
             "for %" PRIu64 " of them",
             kind_name(r->kind), r->n, who, r->left);
    wf_remote_fail(r, WEFT_ERR_PEER, text);
}

/* Is it to be looked at after a death, or once more (wf_hosts_look)? What can
 * be asked for again is looked at once more when it gets stuck, however long
 * other keys of it go on to be answered: one key may have been lost. */
static bool is_death_news(const wf_store_hosts *h, wf_remote *r)
{
    bool stuck = r->agains != h->agains &&
                 wf_now_ns() - wf_bulk_heard(h, r) > WF_HEAR_AGAIN_NS;
    bool news = stuck || r->deaths != h->deaths;

    if (news || !may_be_repeated(r)) {
        r->agains = h->agains;
    }
    r->deaths = h->deaths;
    return news;
}

static void check_time(wf_store_hosts *h, wf_remote *r)
{
    uint64_t limit = atomic_load(&h->store->comm->timeout_ns);
    char text[256];

    if (wf_now_ns() - wf_bulk_heard(h, r) > limit) {
        snprintf(text, sizeof(text),
                 "%s: %" PRIu64 " of %" PRIu64 " keys were not answered for "
                 "%.1f s",
                 kind_name(r->kind), r->left, r->n, (double)limit * 1e-9);
        wf_remote_fail(r, WEFT_ERR_TIMEOUT, text);
    }
}

static void unlist(wf_remote *r)
{
    weft_worker *worker = r->worker;
    wf_remote **at = &worker->remotes;

    while (*at != r) {
        at = &(*at)->next;
    }
    *at = r->next;
    atomic_fetch_sub(&worker->under_way, 1);
}

static void end(wf_remote *r)
{
    wf_store_hosts *h = r->worker->store->remote;

    wf_token_give(h, r);
    unlist(r);
    wf_bulk_drop(h, r);
    wf_bulk_go_on(h);
    wf_free(r->key);
    r->key = NULL;
}

static weft_status remote_step(wf_op *op)
{
    wf_remote *r = (wf_remote *)(void *)op;
    wf_store_hosts *h = r->worker->store->remote;
    weft_status st;

    wf_hosts_look(h);
    if (r->status == WF_PENDING && is_death_news(h, r)) {
        after_death(h, r);
    }
    if (r->status == WF_PENDING) {
        check_time(h, r);
    }
    if (r->status == WF_PENDING) {
        return WF_PENDING;
    }
    st = r->status;
    if (st != WEFT_OK) {
        wf_fail(st, "%s", r->text != NULL ? r->text : weft_status_text(st));
    }
    wf_free(r->text);
    r->text = NULL;
    end(r);
    return st;
}

/* The communicator was closed under it. */
static void remote_drop(wf_op *op)
{
    wf_remote *r = (wf_remote *)(void *)op;

    if (r->key != NULL) {
        wf_free(r->text);
        end(r);
    }
}

/* --- beginning ------------------------------------------------------------ */

/* One allocation for all arrays, and for the values that are sent. */
static weft_status remote_alloc(wf_remote *r, const wf_batch *batch,
                                uint64_t values)
{
    uint64_t n = batch->absents;
    uint64_t shares = wf_least(n, r->worker->store->hosts);
    char *at = wf_alloc(
        n * (2 * sizeof(uint64_t) + 2 * sizeof(uint32_t) + 2 * sizeof(bool)) +
        shares * sizeof(*r->share) + values + 1);

    if (at == NULL) {
        return wf_fail_nomem("an operation on %" PRIu64 " keys", n);
    }
    r->n = r->left = n;
    r->key = (uint64_t *)(void *)at;
    r->offset = r->key + n;
    r->share = (wf_share *)(void *)(r->offset + n);
    r->word = (uint32_t *)(void *)(r->share + shares);
    r->order = r->word + n;
    r->answered = (bool *)(void *)(r->order + n);
    r->bulk = r->answered + n;
    r->values = (char *)(r->bulk + n);
    memset(r->answered, 0, 2 * n * sizeof(*r->answered)); /* and r->bulk */
    return WEFT_OK;
}

/* Keys and offsets of those that are absent; their values, if they are sent. */
static void remote_fill(wf_store_hosts *h, wf_remote *r, const wf_batch *batch)
{
    uint64_t offset = 0;
    uint64_t copied = 0;
    uint64_t next = 0;

    for (uint64_t i = 0; i < batch->keys.n && next < batch->absents; i++) {
        uint64_t key = (uint64_t)wf_id_at(&batch->keys, i);
        uint64_t bytes = wf_store_row_bytes(h->store, key);

        if (batch->absent[next] == i) {
            r->key[next] = key;
            r->offset[next++] = wf_op_has_values(r->kind) ? copied : offset;
            if (wf_op_has_values(r->kind)) {
                memcpy(r->values + copied, batch->values + offset, bytes);
                copied += bytes;
            }
        }
        offset += bytes;
    }
    if (!wf_op_has_values(r->kind)) {
        r->values = batch->values;
    }
}

static uint64_t absent_bytes(const wf_store_hosts *h, const wf_batch *batch)
{
    uint64_t bytes = 0;

    if (h->store->uniform) {
        return batch->absents * wf_store_row_bytes(h->store, 0);
    }
    for (uint64_t i = 0; i < batch->absents; i++) {
        bytes += wf_store_row_bytes(
            h->store, (uint64_t)wf_id_at(&batch->keys, batch->absent[i]));
    }
    return bytes;
}

weft_status wf_remote_wait(weft_store *store, weft_request *request)
{
    wf_board_rank *own = wf_host_own(store->comm->world->host);
    weft_status st;

    wf_board_stand_in(own);
    st = weft_request_wait(request, 0);
    wf_board_step_back(own);
    wf_world_drive_now(store->comm->world);
    wf_board_ring(own);
    return st;
}

static weft_status submit(weft_worker *worker, wf_remote *r,
                          weft_request *request)
{
    wf_store_hosts *h = worker->store->remote;
    weft_status st;

    pthread_mutex_lock(&h->world->drive);
    st = wf_token_take(h, r);
    if (st == WEFT_OK) {
        r->next = worker->remotes;
        worker->remotes = r;
        atomic_fetch_add(&worker->under_way, 1);
        wf_hosts_look(h);
        send_all(h, r);
    }
    pthread_mutex_unlock(&h->world->drive);
    if (st == WEFT_OK) {
        wf_request_submit(request, false);
    }
    return st;
}

weft_status wf_remote_begin(weft_worker *worker, wf_op_kind kind,
                            const wf_batch *batch, weft_request **request)
{
    weft_store *store = worker->store;
    wf_store_hosts *h = store->remote;
    uint64_t bytes = absent_bytes(h, batch);
    weft_request *own;
    wf_remote *r;
    weft_status st = wf_request_create(store->alone, sizeof(*r), &own);

    if (st != WEFT_OK) {
        return st;
    }
    r = (wf_remote *)(void *)own->op;
    wf_op_init(&r->op);
    r->op.comm = store->alone;
    r->op.step = remote_step;
    r->op.drop = remote_drop;
    r->op.private_failure = true;
    r->op.driven = true;
    r->op.lazy = true;
    r->op.far = bytes > LONG_BYTES;
    r->op.call = (wf_call){.kind = WF_CALL_STORE, .count = batch->absents};
    r->worker = worker;
    r->kind = kind;
    r->request = own;
    r->status = WF_PENDING;
    st = remote_alloc(r, batch, wf_op_has_values(kind) ? bytes : 0);
    if (st == WEFT_OK) {
        remote_fill(h, r, batch);
        st = submit(worker, r, own);
    }
    if (st != WEFT_OK) {
        wf_free(r->key);
        weft_request_release(own);
        return st;
    }
    if (request != NULL) {
        *request = own;
        return WEFT_OK;
    }
    st = wf_remote_wait(store, own);
    weft_request_release(own);
    return st;
}

/* Another rank serves this host: if it dies, the next one has to be told. */
static void remember_localized(weft_worker *worker, const weft_ids *keys)
{
    wf_store_hosts *h = worker->store->remote;

    pthread_mutex_lock(&h->world->drive);
    if (!h->serves) {
        wf_intent_remember(h, wf_worker_index(worker), keys);
    }
    pthread_mutex_unlock(&h->world->drive);
}

weft_status wf_remote_localize(weft_worker *worker, const weft_ids *keys,
                               weft_request **request)
{
    wf_batch batch = {.keys = *keys, .absents = keys->n};
    weft_status st;

    batch.absent = wf_alloc(keys->n * sizeof(*batch.absent));
    if (batch.absent == NULL) {
        return wf_fail_nomem("an operation on %" PRIu64 " keys", keys->n);
    }
    for (uint64_t i = 0; i < keys->n; i++) {
        batch.absent[i] = i;
    }
    remember_localized(worker, keys);
    st = wf_remote_begin(worker, WF_OP_LOCALIZE, &batch, request);
    wf_free(batch.absent);
    return st;
}

weft_request *wf_remote_newest(weft_worker *worker)
{
    wf_store_hosts *h = worker->store->remote;
    weft_request *found = NULL;

    pthread_mutex_lock(&h->world->drive);
    if (worker->remotes != NULL) {
        found = worker->remotes->request;
        atomic_fetch_add(&found->users, 1);
    }
    pthread_mutex_unlock(&h->world->drive);
    return found;
}
