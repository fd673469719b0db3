/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the keys that a server handles: room for them, operations and
 * differences that are done on them, copies and their bases. */
#include <string.h>

#include "base/log.h"
#include "base/time.h"
#include "store/hosts/arith.h"
#include "store/hosts/hosts.h"
#include "store/table.h"

/* A row that somebody writes is free soon, or its writer is dead; one that is
 * stopped is waited for, and that is logged. */
void *wf_row_lock(wf_store_hosts *h, uint64_t key, uint32_t slot)
{
    void *row = NULL;

    while (wf_slot_lock(h->store->slots, key, slot, h->writer, &row) !=
           WEFT_OK) {
        wf_log(WEFT_LOG_WARN, "%s; waiting for it", weft_error_detail());
    }
    return row;
}

static uint32_t env_reserve(void *ctx, uint64_t key)
{
    wf_store_hosts *h = ctx;
    wf_active *a = wf_actives_get(&h->active, key);
    uint32_t slot = a != NULL ? wf_slot_take(h->store->slots, key) : WF_NO_SLOT;
    uint32_t base =
        slot != WF_NO_SLOT ? wf_slot_take(h->store->slots, key) : WF_NO_SLOT;

    if (base == WF_NO_SLOT) {
        if (slot != WF_NO_SLOT) {
            wf_slot_give(h->store->slots, key, slot);
        }
        return WF_NO_SLOT;
    }
    a->base = base;
    return slot;
}

static void drop_base(wf_store_hosts *h, uint64_t key)
{
    wf_active *a = wf_actives_find(&h->active, key);

    if (a != NULL && a->base != WF_NO_SLOT) {
        wf_slot_give(h->store->slots, key, a->base);
        a->base = WF_NO_SLOT;
    }
}

static void env_release(void *ctx, uint64_t key, uint32_t slot)
{
    wf_store_hosts *h = ctx;
    wf_key_state k;

    wf_serve_load(h, key, &k);
    /* A row that is kept after a move has no base; the key may be back here
     * as a copy that has one. */
    if (k.slot == WF_NO_SLOT || k.slot == slot) {
        drop_base(h, key);
    }
    wf_slot_give(h->store->slots, key, slot);
}

static void *base_row(wf_store_hosts *h, uint64_t key)
{
    const wf_active *a = wf_actives_find(&h->active, key);
    wf_place place = wf_place_of(h->store->slots, key, a->base);

    return wf_place_row(&place);
}

void wf_row_write(wf_store_hosts *h, uint64_t row, wf_op_kind kind,
                  const void *values)
{
    int64_t key = (int64_t)row;
    uint64_t absent;
    wf_batch batch = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                      .values = (char *)(uintptr_t)values,
                      .absent = &absent};
    weft_status st;

    do {
        st = kind == WF_OP_SET
                 ? wf_slots_set(h->store->slots, &batch, h->writer)
                 : wf_slots_push(h->store->slots, &batch, h->writer);
    } while (st == WEFT_ERR_TIMEOUT);
    if (st != WEFT_OK || batch.absents > 0) {
        wf_log(WEFT_LOG_ERROR, "an operation on key %llu could not be done: %s",
               (unsigned long long)row,
               st != WEFT_OK ? weft_error_detail() : "its row is not here");
    }
}

static void env_apply(void *ctx, const wf_key_state *k, const wf_message *op)
{
    wf_store_hosts *h = ctx;
    void *row;

    if (op->op != WF_OP_PULL) {
        wf_row_write(h, k->key, (wf_op_kind)op->op, wf_message_blob(op)->at);
        return;
    }
    row = wf_row_lock(h, k->key, k->slot);
    h->row.bytes = 0;
    wf_scratch_add(&h->row, row, wf_store_row_bytes(h->store, k->key));
    wf_slot_unlock_as_it_was(h->store->slots, k->slot, h->writer);
}

static void add_difference(wf_store_hosts *h, const wf_key_state *k,
                           const void *difference)
{
    uint64_t n = wf_slots_length(h->store->slots, k->key);
    void *row = wf_row_lock(h, k->key, k->slot);

    wf_arith_add(h->store->options.type, row, difference, n);
    wf_slot_unlock(h->store->slots, k->slot, h->writer);
}

static void env_merge(void *ctx, const wf_key_state *k, const wf_message *sync)
{
    wf_store_hosts *h = ctx;
    const wf_blob *blob = wf_message_blob(sync);
    const unsigned char *at = blob->at;
    size_t left = blob->bytes;
    uint64_t parts[2] = {0, 0};
    const wf_entry *e;

    if (left < sizeof(parts)) {
        return;
    }
    memcpy(parts, at, sizeof(parts));
    at += sizeof(parts);
    left -= sizeof(parts);
    if (parts[0] > left || wf_round_up(parts[0], 8) > left) {
        return;
    }
    if (parts[0] == wf_store_row_bytes(h->store, k->key) && parts[0] > 0) {
        add_difference(h, k, at);
    }
    at += wf_round_up(parts[0], 8);
    left -= wf_round_up(parts[0], 8);
    while ((e = wf_entry_next(&at, &left)) != NULL) {
        wf_message m = wf_entry_message(e);

        if ((e->m.op == WF_OP_PUSH || e->m.op == WF_OP_SET) &&
            e->bytes == wf_store_row_bytes(h->store, k->key)) {
            env_apply(h, k, &m);
        }
    }
}

/* Rows can be put back if their writer dies, bases cannot: so whoever takes
 * over is told that one is being written. */
static void base_begin(wf_store_hosts *h, uint64_t key)
{
    atomic_store(&h->book.head->basing, key + 1);
}

static void base_end(wf_store_hosts *h)
{
    atomic_store(&h->book.head->basing, 0);
}

static bool env_differs(void *ctx, const wf_key_state *k)
{
    wf_store_hosts *h = ctx;
    const void *row = wf_row_lock(h, k->key, k->slot);
    bool differs = memcmp(row, base_row(h, k->key),
                          wf_store_row_bytes(h->store, k->key)) != 0;

    wf_slot_unlock_as_it_was(h->store->slots, k->slot, h->writer);
    return differs;
}

static void env_put_difference(void *ctx, const wf_key_state *k,
                               wf_message *sync)
{
    wf_store_hosts *h = ctx;
    weft_dtype type = h->store->options.type;
    uint64_t n = wf_slots_length(h->store->slots, k->key);
    uint64_t bytes = wf_store_row_bytes(h->store, k->key);
    void *base = base_row(h, k->key);
    void *row = wf_row_lock(h, k->key, k->slot);

    (void)sync;
    h->difference.bytes = 0;
    if (wf_scratch_add(&h->difference, row, bytes)) {
        wf_arith_subtract(type, h->difference.at, base, n);
        base_begin(h, k->key);
        wf_arith_add(type, base, h->difference.at, n);
        memcpy(row, base, bytes);
    }
    wf_slot_unlock(h->store->slots, k->slot, h->writer);
    base_end(h);
}

static void env_put_row(void *ctx, const wf_key_state *k, uint32_t slot,
                        wf_message *grant)
{
    wf_store_hosts *h = ctx;
    uint64_t bytes = grant->grant == WF_GRANT_OWN
                         ? wf_slots_bytes(h->store->slots, k->key)
                         : wf_store_row_bytes(h->store, k->key);
    const void *row = wf_row_lock(h, k->key, slot);

    h->row.bytes = 0;
    wf_scratch_add(&h->row, &bytes, sizeof(bytes));
    wf_scratch_add(&h->row, row, bytes);
    wf_slot_unlock_as_it_was(h->store->slots, slot, h->writer);
    grant->data = (uintptr_t)h->row.at;
}

/* row = received + (row - base), or received if there was no copy. */
static void land(wf_store_hosts *h, const wf_key_state *k,
                 const wf_message *grant, bool fresh)
{
    const wf_blob *blob = wf_message_blob(grant);
    weft_dtype type = h->store->options.type;
    uint64_t n = wf_slots_length(h->store->slots, k->key);
    uint64_t bytes = wf_store_row_bytes(h->store, k->key);
    void *base = base_row(h, k->key);
    char *row = wf_row_lock(h, k->key, k->slot);

    base_begin(h, k->key);
    if (!fresh) {
        wf_arith_subtract(type, row, base, n);
        wf_arith_add(type, row, blob->at, n);
    } else {
        memcpy(row, blob->at, bytes);
    }
    memcpy(base, blob->at, bytes);
    if (blob->bytes > bytes) { /* the optimizer's state */
        memcpy(row + bytes, blob->at + bytes, blob->bytes - bytes);
    }
    wf_slot_unlock(h->store->slots, k->slot, h->writer);
    base_end(h);
}

/* What was pushed since the last SYNC cannot be told from what the base lacks:
 * it is lost. */
void wf_rows_mend(wf_store_hosts *h)
{
    uint64_t key = atomic_load(&h->book.head->basing) - 1;
    const wf_active *a;
    wf_key_state k;

    base_end(h);
    if (key >= h->store->ids) {
        return;
    }
    a = wf_actives_find(&h->active, key);
    wf_serve_load(h, key, &k);
    if (a != NULL && a->base != WF_NO_SLOT && k.role == WF_COPY) {
        memcpy(base_row(h, key), wf_row_lock(h, key, k.slot),
               wf_store_row_bytes(h->store, key));
        wf_slot_unlock_as_it_was(h->store->slots, k.slot, h->writer);
        h->env.happened(h, &k, WF_LOST);
    }
}

static void env_land_copy(void *ctx, const wf_key_state *k,
                          const wf_message *grant, bool fresh)
{
    wf_store_hosts *h = ctx;
    wf_active *a = wf_actives_find(&h->active, k->key);
    uint64_t now = wf_now_ns();

    land(h, k, grant, fresh);
    if (a != NULL) {
        if (!fresh) {
            wf_store_stale(h->store, now - a->fresh_ns);
        }
        a->fresh_ns = now;
    }
}

static void env_land_owner(void *ctx, const wf_key_state *k,
                           const wf_message *grant, bool fresh)
{
    wf_store_hosts *h = ctx;

    land(h, k, grant, fresh);
    drop_base(h, k->key);
}

static uint32_t env_version(void *ctx, const wf_key_state *k)
{
    wf_store_hosts *h = ctx;
    wf_place place = wf_place_of(h->store->slots, k->key, k->slot);

    return (uint32_t)(atomic_load_explicit(wf_place_word(&place),
                                           memory_order_acquire) /
                      WF_WORD_VERSION);
}

void wf_rows_serve(wf_protocol_env *env)
{
    env->reserve = env_reserve;
    env->release = env_release;
    env->apply = env_apply;
    env->merge = env_merge;
    env->differs = env_differs;
    env->put_difference = env_put_difference;
    env->put_row = env_put_row;
    env->land_copy = env_land_copy;
    env->land_owner = env_land_owner;
    env->version = env_version;
}
