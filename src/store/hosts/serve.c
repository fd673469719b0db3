/* SPDX-License-Identifier: Apache-2.0 */
/* The server of a host: what the protocol asks for (wf_protocol_env), done with
 * the rows, the directory and the book of the host, and with letters.
 *
 * A message that is being handled has `data` pointing to its wf_blob and `tag`
 * to its wf_entry. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "store/hosts/arith.h"
#include "store/hosts/hosts.h"
#include "store/patient.h"
#include "store/table.h"

static const wf_entry *entry_of(const wf_message *m)
{
    return (const wf_entry *)(uintptr_t)m->tag;
}

static const wf_blob *blob_of(const wf_message *m)
{
    return (const wf_blob *)(uintptr_t)m->data;
}

/* --- state ---------------------------------------------------------------- */

void wf_serve_load(wf_store_hosts *h, uint64_t key, wf_key_state *k)
{
    const wf_active *a = wf_actives_find(&h->active, key);

    if (a != NULL && a->record != WF_NO_RECORD) {
        *k = h->book.record[a->record].state;
    } else {
        wf_key_load(k, key, wf_directory_get(h->store->slots, key),
                    h->store->number);
    }
}

static uint32_t flags_of(const wf_key_state *k)
{
    return (k->role == WF_COPY ? WF_SLOT_COPY : 0u) |
           (k->role == WF_OWNER && wf_hosts_other(&k->wants, WF_HOSTS_MAX)
                ? WF_SLOT_SHARED
                : 0u);
}

/* A row that somebody writes is free soon, or its writer is dead; one that is
 * stopped is waited for, and that is logged. */
static void *lock_row(wf_store_hosts *h, uint64_t key, uint32_t slot)
{
    void *row = NULL;

    while (wf_slot_lock(h->store->slots, key, slot, h->writer, &row) !=
           WEFT_OK) {
        wf_log(WEFT_LOG_WARN, "%s; waiting for it", weft_error_detail());
    }
    return row;
}

static void save_record(wf_store_hosts *h, wf_active *a, const wf_key_state *k)
{
    if (a->record == WF_NO_RECORD) {
        a->record = wf_book_take(&h->book);
    }
    if (a->record == WF_NO_RECORD) {
        wf_log(WEFT_LOG_ERROR, "no memory for the state of key %llu",
               (unsigned long long)k->key);
        return;
    }
    wf_book_write(&h->book, a->record, k, a->base);
}

static void set_flags(wf_store_hosts *h, wf_active *a, const wf_key_state *k)
{
    a->flags = flags_of(k);
    lock_row(h, k->key, k->slot);
    wf_slot_flags(h->store->slots, k->slot, a->flags);
    wf_slot_unlock_as_it_was(h->store->slots, k->slot, h->writer);
}

/* Of a key that is or was here: its word, and the flags of its slot. */
static void save_word(wf_store_hosts *h, wf_active *a, const wf_key_state *k)
{
    wf_slots *slots = h->store->slots;
    uint32_t before = wf_directory_get(slots, k->key);
    uint32_t after = wf_key_word(k, h->store->number);
    bool was_here = (before & WF_KEY_HERE) != 0;

    if ((after & WF_KEY_HERE) != 0 &&
        (flags_of(k) != a->flags || after != before)) {
        set_flags(h, a, k);
    }
    if (after == before) {
        return;
    }
    if (was_here) {
        lock_row(h, k->key, before & ~WF_KEY_HERE);
        wf_directory_put(slots, k->key, after);
        wf_slot_unlock_as_it_was(slots, before & ~WF_KEY_HERE, h->writer);
    } else {
        wf_directory_put(slots, k->key, after);
    }
}

static void count_role(wf_store_hosts *h, const wf_key_state *before,
                       const wf_key_state *k)
{
    wf_book_head *head = h->book.head;

    if (before->role != k->role) {
        if (before->role == WF_OWNER || k->role == WF_OWNER) {
            atomic_fetch_add(&head->owned, k->role == WF_OWNER ? 1 : -1ull);
        }
        if (before->role == WF_COPY || k->role == WF_COPY) {
            atomic_fetch_add(&head->copies, k->role == WF_COPY ? 1 : -1ull);
        }
    }
}

/* Those that are asked for after the round has begun are not of it. */
static void count_asked(wf_store_hosts *h, wf_active *a,
                        const wf_key_state *before, const wf_key_state *k)
{
    bool was = (before->flags & WF_KEY_ASKED) != 0;
    bool is = (k->flags & WF_KEY_ASKED) != 0;

    if (is && !was) {
        a->asked = h->turn;
        h->asked_later++;
    } else if (was && !is) {
        *(a->asked == h->turn ? &h->asked_later : &h->asked) -= 1;
    }
}

static void env_save(void *ctx, const wf_key_state *k)
{
    wf_store_hosts *h = ctx;
    wf_active *a = wf_actives_get(&h->active, k->key);
    wf_key_state before;

    if (a == NULL) {
        wf_log(WEFT_LOG_ERROR, "no memory for the state of key %llu",
               (unsigned long long)k->key);
        return;
    }
    wf_serve_load(h, k->key, &before);
    count_role(h, &before, k);
    count_asked(h, a, &before, k);
    if (!wf_key_plain(k, h->store->number, wf_home_of(h->store, k->key))) {
        save_record(h, a, k);
        save_word(h, a, k);
        return;
    }
    /* A word without a record says everything: it must be there first. */
    save_word(h, a, k);
    if (a->record != WF_NO_RECORD) {
        wf_book_give(&h->book, a->record);
        a->record = WF_NO_RECORD;
    }
}

void wf_serve_adopt(wf_store_hosts *h, wf_active *a, const wf_key_state *k)
{
    uint32_t word = wf_key_word(k, h->store->number);

    a->base = h->book.record[a->record].base;
    if ((k->flags & WF_KEY_ASKED) != 0) {
        h->asked++;
    }
    if ((word & WF_KEY_HERE) != 0) {
        set_flags(h, a, k);
    } else {
        a->flags = UINT32_MAX; /* set again when it is here */
    }
    wf_directory_put(h->store->slots, k->key, word);
}

/* --- messages ------------------------------------------------------------- */

static void send_to(wf_store_hosts *h, uint32_t to, const wf_message *m)
{
    const wf_entry *from = entry_of(m);
    wf_entry e = from != NULL ? *from : (wf_entry){.status = 0};
    const wf_blob *blob = blob_of(m);
    uint64_t parts[2];

    e.m = *m;
    if (m->kind == WF_MSG_SYNC && blob == NULL) {
        /* Written here: the difference, then the operations. */
        parts[0] =
            (m->flags & WF_MSG_DIFFERENCE) != 0 ? h->difference.bytes : 0;
        parts[1] = (m->flags & WF_MSG_OPS) != 0 ? h->ops_packed.bytes : 0;
        h->row.bytes = 0;
        wf_scratch_add(&h->row, parts, sizeof(parts));
        wf_scratch_add(&h->row, h->difference.at, parts[0]);
        wf_scratch_add(&h->row, NULL, wf_round_up(parts[0], 8) - parts[0]);
        wf_scratch_add(&h->row, h->ops_packed.at, parts[1]);
        wf_out_entry(h, to, &e, h->row.at, h->row.bytes);
        return;
    }
    wf_out_entry(h, to, &e, blob != NULL ? blob->at : NULL,
                 blob != NULL ? blob->bytes : 0);
}

static void env_answer(void *ctx, const wf_key_state *k, const wf_message *op,
                       weft_status status)
{
    wf_store_hosts *h = ctx;
    const wf_entry *from = entry_of(op);
    wf_entry e = *from;
    bool row = op->op == WF_OP_PULL && status == WEFT_OK;

    e.m.kind = WF_MSG_ANSWER;
    e.m.from = (uint16_t)h->store->number;
    e.m.owner = k->owner;
    e.m.epoch = k->epoch;
    e.status = (int32_t)status;
    if (status == WEFT_ERR_PEER) {
        e.rank = wf_hosts_dead(h, k->owner);
    }
    wf_out_entry(h, from->rank, &e, h->row.at, row ? h->row.bytes : 0);
}

/* --- messages that wait --------------------------------------------------- */

static wf_waiting *waiting_of(const wf_message *m)
{
    const wf_entry *from = entry_of(m);
    const wf_blob *blob = blob_of(m);
    uint64_t bytes = blob != NULL ? blob->bytes : 0;
    wf_waiting *w =
        wf_patient_realloc(NULL, sizeof(*w) + wf_entry_bytes(bytes));

    if (w != NULL) {
        w->entry = (wf_entry *)(void *)(w + 1);
        if (from != NULL) {
            *w->entry = *from;
        } else {
            memset(w->entry, 0, sizeof(*w->entry));
        }
        w->entry->m = *m;
        w->entry->bytes = bytes;
        if (bytes > 0) {
            memcpy(w->entry + 1, blob->at, bytes);
        }
    }
    return w;
}

/* The message of an entry in memory that stays as long as it is handled. */
static wf_message message_of(const wf_entry *e)
{
    wf_message m = e->m;

    m.tag = (uintptr_t)e;
    m.data = (uintptr_t)&e->bytes;
    return m;
}

void wf_waiting_keep(wf_waiting_list *list, const wf_entry *e, uint64_t tag)
{
    wf_message m = message_of(e);
    wf_waiting *w = waiting_of(&m);

    if (w == NULL) {
        wf_log(WEFT_LOG_ERROR, "no memory to keep a message about key %llu",
               (unsigned long long)e->m.key);
        return;
    }
    w->entry->m.tag = tag;
    wf_waiting_append(list, w);
}

/* As if it came from this rank once more, when a death is known. */
static void keep_early(wf_store_hosts *h, const wf_message *m)
{
    wf_waiting *w = waiting_of(m);

    if (w != NULL) {
        w->entry->m.tag = h->world->host->rank;
        wf_waiting_append(&h->early, w);
    }
}

static void env_send(void *ctx, uint32_t to, const wf_message *m)
{
    wf_store_hosts *h = ctx;

    if ((m->kind == WF_MSG_OP || blob_of(m) != NULL) &&
        m->kind <= WF_MSG_SYNC && wf_hosts_dying(h, to)) {
        /* Whoever sent it may know of the death, and not repeat it. */
        keep_early(h, m);
        return;
    }
    send_to(h, h->server[to], m);
}

static void env_park(void *ctx, const wf_message *m)
{
    wf_store_hosts *h = ctx;
    wf_active *a = wf_actives_get(&h->active, m->key);
    wf_waiting *w = a != NULL ? waiting_of(m) : NULL;

    if (w == NULL) {
        wf_log(WEFT_LOG_ERROR, "no memory to keep a message about key %llu",
               (unsigned long long)m->key);
        return;
    }
    wf_waiting_append(&a->parked, w);
}

static bool env_unpark(void *ctx, uint64_t key, wf_message *out)
{
    wf_store_hosts *h = ctx;
    wf_active *a = wf_actives_find(&h->active, key);
    wf_waiting *w = a != NULL ? wf_waiting_first(&a->parked) : NULL;

    if (w == NULL) {
        return false;
    }
    wf_waiting_append(&h->limbo, w);
    *out = message_of(w->entry);
    return true;
}

static unsigned env_parked(void *ctx, uint64_t key)
{
    const wf_store_hosts *h = ctx;
    const wf_active *a = wf_actives_find(&h->active, key);

    return a != NULL ? a->parked.count : 0;
}

static bool is_packed(const wf_store_hosts *h, const wf_message *m)
{
    return m->kind == WF_MSG_OP && m->origin == h->store->number &&
           (m->op == WF_OP_SET || m->op == WF_OP_HELD || m->op == WF_OP_PUSH);
}

static bool env_pack(void *ctx, wf_message *sync)
{
    wf_store_hosts *h = ctx;
    wf_active *a = wf_actives_find(&h->active, sync->key);
    wf_waiting_list rest;
    wf_waiting *w;

    h->ops_packed.bytes = 0;
    if (a == NULL) {
        return false;
    }
    wf_waiting_init(&rest);
    while ((w = wf_waiting_first(&a->parked)) != NULL) {
        if (is_packed(h, &w->entry->m)) {
            wf_scratch_add(&h->ops_packed, w->entry,
                           wf_entry_bytes(w->entry->bytes));
            wf_waiting_append(&a->packed, w);
        } else {
            wf_waiting_append(&rest, w);
        }
    }
    wf_waiting_take(&rest, &a->parked);
    return h->ops_packed.bytes > 0;
}

static void env_unpack(void *ctx, const wf_key_state *k, weft_status status)
{
    wf_store_hosts *h = ctx;
    wf_active *a = wf_actives_find(&h->active, k->key);
    wf_waiting *w;

    while (a != NULL && (w = wf_waiting_first(&a->packed)) != NULL) {
        wf_message m = message_of(w->entry);

        env_answer(h, k, &m, status);
        wf_free(w);
    }
}

/* --- rows ----------------------------------------------------------------- */

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

static void env_apply(void *ctx, const wf_key_state *k, const wf_message *op)
{
    wf_store_hosts *h = ctx;
    const wf_blob *blob = blob_of(op);
    uint64_t bytes = wf_store_row_bytes(h->store, k->key);
    int64_t key = (int64_t)k->key;
    uint64_t absent;
    wf_batch batch = {.keys = {.at = &key, .type = WEFT_I64, .n = 1},
                      .absent = &absent};
    weft_status st;

    if (op->op == WF_OP_PULL) {
        void *row = lock_row(h, k->key, k->slot);

        h->row.bytes = 0;
        wf_scratch_add(&h->row, row, bytes);
        wf_slot_unlock_as_it_was(h->store->slots, k->slot, h->writer);
        return;
    }
    batch.values = (char *)blob->at;
    do {
        st = op->op == WF_OP_SET
                 ? wf_slots_set(h->store->slots, &batch, h->writer)
                 : wf_slots_push(h->store->slots, &batch, h->writer);
    } while (st == WEFT_ERR_TIMEOUT);
    if (st != WEFT_OK || batch.absents > 0) {
        wf_log(WEFT_LOG_ERROR, "an operation on key %llu could not be done: %s",
               (unsigned long long)k->key,
               st != WEFT_OK ? weft_error_detail() : "its row is not here");
    }
}

static void add_difference(wf_store_hosts *h, const wf_key_state *k,
                           const void *difference)
{
    uint64_t n = wf_slots_length(h->store->slots, k->key);
    void *row = lock_row(h, k->key, k->slot);

    wf_arith_add(h->store->options.type, row, difference, n);
    wf_slot_unlock(h->store->slots, k->slot, h->writer);
}

static void env_merge(void *ctx, const wf_key_state *k, const wf_message *sync)
{
    wf_store_hosts *h = ctx;
    const wf_blob *blob = blob_of(sync);
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
        wf_message m = message_of(e);

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
    const void *row = lock_row(h, k->key, k->slot);
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
    void *row = lock_row(h, k->key, k->slot);

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
    const void *row = lock_row(h, k->key, slot);

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
    const wf_blob *blob = blob_of(grant);
    weft_dtype type = h->store->options.type;
    uint64_t n = wf_slots_length(h->store->slots, k->key);
    uint64_t bytes = wf_store_row_bytes(h->store, k->key);
    void *base = base_row(h, k->key);
    char *row = lock_row(h, k->key, k->slot);

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
void wf_serve_mend(wf_store_hosts *h)
{
    uint64_t key = atomic_load(&h->book.head->basing) - 1;
    const wf_active *a;
    wf_key_state k;

    base_end(h);
    if (key >= h->store->options.keys) {
        return;
    }
    a = wf_actives_find(&h->active, key);
    wf_serve_load(h, key, &k);
    if (a != NULL && a->base != WF_NO_SLOT && k.role == WF_COPY) {
        memcpy(base_row(h, key), lock_row(h, key, k.slot),
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

static uint64_t env_version(void *ctx, const wf_key_state *k)
{
    wf_store_hosts *h = ctx;
    wf_place place = wf_place_of(h->store->slots, k->key, k->slot);

    return atomic_load_explicit(wf_place_word(&place), memory_order_acquire) /
           WF_WORD_VERSION;
}

static uint32_t env_home(void *ctx, uint64_t key)
{
    const wf_store_hosts *h = ctx;

    return wf_home_of(h->store, key);
}

static void env_happened(void *ctx, const wf_key_state *k, wf_happened what)
{
    wf_store_hosts *h = ctx;

    h->idle = 0;
    if (what == WF_LOST) {
        atomic_fetch_add(&h->book.head->lost, 1);
        atomic_store(&h->book.head->lost_with, h->last_dead + 1);
    }
    wf_store_happened(h->store, k, what);
}

void wf_serve_init(wf_store_hosts *h)
{
    weft_store *store = h->store;

    wf_waiting_init(&h->limbo);
    wf_waiting_init(&h->early);
    h->env = (wf_protocol_env){.ctx = h,
                               .host = store->number,
                               .hosts = store->hosts,
                               .techniques = store->options.techniques,
                               .optimizer = store->optimizes,
                               .home = env_home,
                               .save = env_save,
                               .send = env_send,
                               .answer = env_answer,
                               .park = env_park,
                               .unpark = env_unpark,
                               .parked = env_parked,
                               .pack = env_pack,
                               .unpack = env_unpack,
                               .reserve = env_reserve,
                               .release = env_release,
                               .apply = env_apply,
                               .merge = env_merge,
                               .differs = env_differs,
                               .put_difference = env_put_difference,
                               .put_row = env_put_row,
                               .land_copy = env_land_copy,
                               .land_owner = env_land_owner,
                               .version = env_version,
                               .happened = env_happened};
}

void wf_serve_fini(wf_store_hosts *h)
{
    wf_actives_fini(&h->active);
    wf_waiting_free(&h->limbo);
    wf_waiting_free(&h->early);
    wf_free(h->row.at);
    wf_free(h->difference.at);
    wf_free(h->ops_packed.at);
    wf_free(h->again.at);
}

/* --- events --------------------------------------------------------------- */

/* Does the key need a further round by itself? Keys that are written to are
 * found by their marks. */
static bool has_more(const wf_key_state *k)
{
    return (k->flags & (WF_KEY_ASKED | WF_KEY_REFRESH | WF_KEY_LEAVING |
                        WF_KEY_CLOSING | WF_KEY_UNSETTLED)) != 0 ||
           (k->role == WF_ABSENT && (k->flags & WF_KEY_WANTED) != 0) ||
           (k->role == WF_COPY && (k->flags & WF_KEY_WANTED) == 0) ||
           (k->role == WF_OWNER && wf_hosts_other(&k->behind, WF_HOSTS_MAX));
}

static void event_end(wf_store_hosts *h, uint64_t key)
{
    wf_active *a = wf_actives_find(&h->active, key);
    wf_key_state k;

    wf_waiting_free(&h->limbo);
    wf_waiting_init(&h->limbo);
    if (a == NULL) {
        return;
    }
    wf_serve_load(h, key, &k);
    if (!a->again && has_more(&k)) {
        a->again = wf_scratch_add(&h->again, &key, sizeof(key));
    }
    if (!a->again && a->record == WF_NO_RECORD && a->intents == 0 &&
        a->base == WF_NO_SLOT && a->flags == 0 && a->parked.count == 0 &&
        a->packed.count == 0) {
        wf_actives_remove(&h->active, key);
    }
}

void wf_serve_entry(wf_store_hosts *h, const wf_entry *e)
{
    wf_message m = message_of(e);
    wf_key_state k;

    wf_serve_load(h, m.key, &k);
    wf_protocol_receive(&h->env, &k, &m);
    event_end(h, m.key);
}

void wf_serve_intent(wf_store_hosts *h, uint64_t key, bool wanted)
{
    wf_key_state k;

    wf_serve_load(h, key, &k);
    wf_protocol_intent(&h->env, &k, wanted);
    event_end(h, key);
}

void wf_serve_tick(wf_store_hosts *h, uint64_t key, bool force)
{
    wf_key_state k;

    wf_serve_load(h, key, &k);
    wf_protocol_tick(&h->env, &k, force);
    event_end(h, key);
}

void wf_serve_death(wf_store_hosts *h, uint64_t key, uint32_t host, bool whole)
{
    wf_key_state k;

    wf_serve_load(h, key, &k);
    if (whole) {
        wf_protocol_host_died(&h->env, &k, host);
    } else {
        wf_protocol_server_died(&h->env, &k, host);
    }
    event_end(h, key);
}
