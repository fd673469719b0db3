/* SPDX-License-Identifier: Apache-2.0 */
/* The server of a host: what the protocol asks for (wf_protocol_env), done with
 * the rows, the directory and the book of the host, and with parcels.
 *
 * rows.c has the functions that touch rows. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "store/hosts/hosts.h"
#include "store/patient.h"
#include "store/protocol_parts.h"

/* --- state ---------------------------------------------------------------- */

void wf_serve_load(wf_store_hosts *h, uint64_t key, wf_key_state *k)
{
    const wf_slots *slots = h->store->slots;
    const wf_active *a = wf_actives_find(&h->active, key);
    uint32_t word;
    uint16_t epoch = 0;

    if (a != NULL && a->record != WF_NO_RECORD) {
        *k = h->book.record[a->record].state;
        return;
    }
    word = wf_directory_get(slots, key);
    if ((word & WF_KEY_HERE) != 0) {
        epoch = wf_slot_marks_get(slots, word & ~WF_KEY_HERE).epoch;
    }
    wf_key_load(k, key, word, epoch, h->store->number);
}

static wf_slot_marks marks_of(const wf_key_state *k)
{
    bool shared =
        k->role == WF_OWNER && wf_hosts_other(&k->wants, WF_HOSTS_MAX);

    return (wf_slot_marks){.flags = k->role == WF_COPY ? WF_SLOT_COPY
                                    : shared           ? WF_SLOT_SHARED
                                                       : 0,
                           .epoch = k->epoch};
}

/* Is the slot of a key that is here marked as it has to be? */
static bool is_marked(const wf_store_hosts *h, const wf_key_state *k)
{
    wf_slot_marks now = wf_slot_marks_get(h->store->slots, k->slot);
    wf_slot_marks due = marks_of(k);

    return now.flags == due.flags && now.epoch == due.epoch;
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

static void mark_slot(wf_store_hosts *h, const wf_key_state *k)
{
    wf_row_lock(h, k->key, k->slot);
    wf_slot_marks_set(h->store->slots, k->slot, marks_of(k));
    wf_slot_unlock_as_it_was(h->store->slots, k->slot, h->writer);
}

/* Of a key that is or was here: its word, and the marks of its slot. */
static void save_word(wf_store_hosts *h, const wf_key_state *k)
{
    wf_slots *slots = h->store->slots;
    uint32_t before = wf_directory_get(slots, k->key);
    uint32_t after = wf_key_word(k, h->store->number);
    bool was_here = (before & WF_KEY_HERE) != 0;

    if ((after & WF_KEY_HERE) != 0 && !is_marked(h, k)) {
        mark_slot(h, k);
    }
    if (after == before) {
        return;
    }
    if (was_here) {
        wf_row_lock(h, k->key, before & ~WF_KEY_HERE);
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

/* Writes to rows with a mark concern others: the key of such a slot has to be
 * found. */
static void watch(wf_store_hosts *h, wf_active *a, const wf_key_state *k)
{
    uint32_t slot = marks_of(k).flags != 0 ? k->slot : WF_NO_SLOT;

    if (a->slot != slot) {
        wf_actives_watch(&h->active, a, slot);
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
    wf_room_count(h, &before, k);
    watch(h, a, k);
    if (!wf_key_plain(k)) {
        save_record(h, a, k);
        save_word(h, k);
        return;
    }
    /* Words without a record say everything: they must be there first. */
    save_word(h, k);
    if (a->record != WF_NO_RECORD) {
        wf_book_give(&h->book, a->record);
        a->record = WF_NO_RECORD;
    }
}

void wf_serve_adopt(wf_store_hosts *h, wf_active *a, const wf_key_state *k)
{
    const wf_key_state none = {.slot = WF_NO_SLOT, .kept = WF_NO_SLOT};
    uint32_t word = wf_key_word(k, h->store->number);

    a->base = h->book.record[a->record].base;
    watch(h, a, k);
    if ((k->flags & WF_KEY_ASKED) != 0) {
        h->asked++;
    }
    wf_room_count(h, &none, k);
    if ((word & WF_KEY_HERE) != 0) {
        mark_slot(h, k);
    }
    wf_directory_put(h->store->slots, k->key, word);
}

/* --- messages ------------------------------------------------------------- */

static uint32_t env_serial(void *ctx)
{
    wf_store_hosts *h = ctx;
    uint32_t serial = atomic_fetch_add(&h->book.head->serial, 1) + 1;

    return serial != 0 ? serial : env_serial(ctx);
}

static void send_to(wf_store_hosts *h, uint32_t to, const wf_message *m)
{
    const wf_entry *from = wf_message_entry(m);
    wf_entry e = from != NULL ? *from : (wf_entry){.status = 0};
    const wf_blob *blob = wf_message_blob(m);
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
    const wf_entry *from = wf_message_entry(op);
    wf_entry e = *from;
    bool row = op->op == WF_OP_PULL && status == WEFT_OK;

    if (status == WEFT_ERR_NOMEM && wf_room_wait(h, op)) {
        return;
    }
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
    const wf_entry *from = wf_message_entry(m);
    const wf_blob *blob = wf_message_blob(m);
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

void wf_waiting_keep(wf_waiting_list *list, const wf_entry *e, uint64_t tag)
{
    wf_message m = wf_entry_message(e);
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

    if ((m->kind == WF_MSG_OP || wf_message_blob(m) != NULL) &&
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
    *out = wf_entry_message(w->entry);
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
        wf_message m = wf_entry_message(w->entry);

        env_answer(h, k, &m, status);
        wf_free(w);
    }
}

static uint32_t env_home(void *ctx, uint64_t key)
{
    const wf_store_hosts *h = ctx;

    return wf_home_of(h->store, key);
}

/* An intent is tried again in every round, and counted once; so is a key that
 * is localized, for which there was no room: as an intent, which it is then. */
static bool was_refused(wf_store_hosts *h, uint64_t key)
{
    wf_active *a = wf_actives_find(&h->active, key);
    bool before = a != NULL && a->refused;

    if (h->localizing) {
        return true;
    }
    if (a != NULL) {
        a->refused = a->intents > 0;
    }
    return before;
}

static void env_happened(void *ctx, const wf_key_state *k, wf_happened what)
{
    wf_store_hosts *h = ctx;

    if (what == WF_REFUSED && was_refused(h, k->key)) {
        return;
    }
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
    wf_waiting_init(&h->held);
    wf_waiting_init(&h->roomless);
    h->env = (wf_protocol_env){.ctx = h,
                               .host = store->number,
                               .hosts = store->hosts,
                               .techniques = store->options.techniques,
                               .optimizer = store->optimizes,
                               .home = env_home,
                               .save = env_save,
                               .serial = env_serial,
                               .send = env_send,
                               .answer = env_answer,
                               .park = env_park,
                               .unpark = env_unpark,
                               .parked = env_parked,
                               .pack = env_pack,
                               .unpack = env_unpack,
                               .happened = env_happened};
    wf_rows_serve(&h->env);
}

void wf_serve_fini(wf_store_hosts *h)
{
    wf_actives_fini(&h->active);
    wf_waiting_free(&h->limbo);
    wf_waiting_free(&h->early);
    wf_waiting_free(&h->held);
    wf_waiting_free(&h->roomless);
    wf_free(h->row.at);
    wf_free(h->bulk.at);
    wf_free(h->apart.at);
    wf_free(h->difference.at);
    wf_free(h->ops_packed.at);
    wf_free(h->again.at);
}

/* --- keys that are gone --------------------------------------------------- */

void wf_serve_forget(wf_store_hosts *h, uint64_t key)
{
    wf_slots *slots = h->store->slots;
    wf_active *a = wf_actives_find(&h->active, key);
    uint32_t word = wf_directory_get(slots, key);
    wf_key_state none = {.slot = WF_NO_SLOT, .kept = WF_NO_SLOT};
    wf_key_state k;

    wf_serve_load(h, key, &k);
    count_role(h, &k, &none);
    wf_room_count(h, &k, &none);
    if ((word & WF_KEY_HERE) != 0) {
        wf_row_lock(h, key, word & ~WF_KEY_HERE);
    }
    wf_directory_put(slots, key, 0);
    if ((word & WF_KEY_HERE) != 0) {
        wf_slot_unlock_as_it_was(slots, word & ~WF_KEY_HERE, h->writer);
    }
    if (k.slot != WF_NO_SLOT) {
        wf_slot_give(slots, key, k.slot);
    }
    if (k.kept != WF_NO_SLOT) {
        wf_slot_give(slots, key, k.kept);
    }
    if (a != NULL) {
        count_asked(h, a, &k, &none);
        if (a->base != WF_NO_SLOT) {
            wf_slot_give(slots, key, a->base);
        }
        if (a->record != WF_NO_RECORD) {
            wf_book_give(&h->book, a->record);
        }
        wf_actives_remove(&h->active, key);
    }
}

void wf_serve_refuse(wf_store_hosts *h, const wf_entry *e)
{
    wf_message m = wf_entry_message(e);
    wf_message gone;
    wf_key_state k;

    wf_key_init(&k, m.key, h->store->number, wf_home_of(h->store, m.key),
                WF_NO_SLOT);
    if (m.kind == WF_MSG_OP) {
        env_answer(h, &k, &m, WEFT_ERR_PEER);
    } else if (m.kind == WF_MSG_SYNC && m.origin != h->store->number) {
        gone = wf_message_new(&h->env, &k, WF_MSG_GRANT);
        gone.grant = WF_GRANT_GONE;
        gone.serial = m.serial;
        env_send(h, m.origin, &gone);
    }
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

bool wf_serve_again(wf_store_hosts *h, wf_active *a)
{
    a->again = a->again || wf_scratch_add(&h->again, &a->key, sizeof(a->key));
    return a->again;
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
    if (has_more(&k)) {
        (void)wf_serve_again(h, a);
    }
    if (!a->again && a->held == 0 && a->record == WF_NO_RECORD &&
        a->intents == 0 && a->base == WF_NO_SLOT && a->parked.count == 0 &&
        a->packed.count == 0) {
        wf_actives_remove(&h->active, key);
    }
}

static void receive(wf_store_hosts *h, wf_key_state *k, const wf_entry *e)
{
    wf_message m = wf_entry_message(e);

    if (wf_protocol_possible(k, &m)) {
        wf_protocol_receive(&h->env, k, &m);
    } else {
        wf_log(WEFT_LOG_ERROR,
               "host %u sent an impossible message about key %llu; dropped",
               m.from, (unsigned long long)m.key);
    }
    event_end(h, m.key);
}

void wf_serve_entry(wf_store_hosts *h, const wf_entry *e)
{
    wf_key_state k;

    wf_serve_load(h, e->m.key, &k);
    if (!wf_held_entry(h, &k, e)) {
        receive(h, &k, e);
    }
}

void wf_serve_entry_now(wf_store_hosts *h, const wf_entry *e)
{
    wf_key_state k;

    wf_serve_load(h, e->m.key, &k);
    receive(h, &k, e);
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
    if (!wf_held_tick(h, &k, force)) {
        wf_protocol_tick(&h->env, &k, force);
        event_end(h, key);
    }
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
