/* SPDX-License-Identifier: Apache-2.0 */
/* Parcels that come in. What is in them is checked before it is used: keys,
 * hosts and lengths. */
#include <string.h>

#include "base/log.h"
#include "base/time.h"
#include "store/hosts/bulk.h"

/* Does the data that an entry carries have the right length? */
static bool fits(const wf_store_hosts *h, const wf_entry *e)
{
    uint64_t row = wf_store_row_bytes(h->store, e->m.key);
    uint64_t whole = wf_slots_bytes(h->store->slots, e->m.key);

    switch (e->m.kind) {
    case WF_MSG_OP:
        return e->m.op == WF_OP_PUSH || e->m.op == WF_OP_SET ? e->bytes == row
                                                             : e->bytes == 0;
    case WF_MSG_SYNC:
        return e->bytes >= 2 * sizeof(uint64_t);
    case WF_MSG_GRANT:
        return e->m.grant == WF_GRANT_OWN
                   ? (e->m.flags & WF_MSG_ROW) != 0 && e->bytes == whole
                   : e->bytes == ((e->m.flags & WF_MSG_ROW) != 0 ? row : 0);
    case WF_MSG_RETURN:
        return e->bytes == 0 || e->bytes == whole;
    case WF_MSG_NEWS:
    case WF_MSG_TOLD:
    case WF_MSG_SETTLED:
        return e->bytes == 0;
    default:
        return false;
    }
}

static bool is_sound(const wf_store_hosts *h, uint32_t from, const wf_entry *e)
{
    const weft_store *store = h->store;

    return e->m.key < store->ids && e->m.from == h->host_of[from] &&
           e->m.origin < store->hosts && e->m.owner < store->hosts &&
           e->m.op <= WF_OP_HELD && e->m.grant <= WF_GRANT_GONE &&
           (e->m.kind != WF_MSG_OP || e->rank < h->world->host->ranks) &&
           fits(h, e);
}

/* Has something to be known here first: that a server is dead in whose place
 * this one, or the sender, or the one that is to be answered, now serves; or
 * who owns a key whose home is gone? */
static bool is_early(const wf_store_hosts *h, uint32_t from, const wf_entry *e)
{
    return !h->serves || h->paused ||
           (e->m.kind != WF_MSG_OP && h->server[h->host_of[from]] != from) ||
           (e->m.kind == WF_MSG_SYNC && wf_hosts_dying(h, e->m.origin)) ||
           (e->m.kind == WF_MSG_OP && wf_hosts_untold(h, e->m.key));
}

static bool is_localize(const wf_store_hosts *h, const wf_entry *e)
{
    return e->m.kind == WF_MSG_OP && e->m.op == WF_OP_LOCALIZE &&
           e->m.origin == h->store->number;
}

void wf_entry_arrived(wf_store_hosts *h, uint32_t from, const wf_entry *e)
{
    if (e->m.kind == WF_MSG_ANSWER) {
        wf_remote_answer(h, e);
    } else if (e->m.key < h->store->options.max_keys &&
               e->m.key >= h->store->ids) {
        wf_log(WEFT_LOG_DEBUG, "rank %u wrote about a key that is gone", from);
        if (e->m.origin < h->store->hosts && h->serves && !h->resizing) {
            wf_serve_refuse(h, e);
        }
    } else if (!is_sound(h, from, e)) {
        wf_log(WEFT_LOG_ERROR,
               "rank %u sent a malformed message of a store; dropped", from);
    } else if (is_early(h, from, e)) {
        wf_waiting_keep(&h->early, e, from);
    } else if (e->m.kind == WF_MSG_TOLD) {
        wf_hosts_told(h, e->m.owner, e->m.from);
    } else if (is_localize(h, e)) {
        wf_room_localize(h, e);
    } else {
        wf_serve_entry(h, e);
    }
}

/* A place in the body of a parcel. */
typedef struct reader {
    const unsigned char *at;
    size_t left;
} reader;

/* Keys of a parcel are anywhere in memory: their words and rows are asked for
 * so many entries before they are needed. */
enum { WORDS_AHEAD = 16, ROWS_AHEAD = 8 };

static void ask_ahead(const wf_store_hosts *h, reader *r, bool row)
{
    const wf_entry *e = wf_entry_next(&r->at, &r->left);

    if (e == NULL || e->m.key >= h->store->ids) {
        return;
    }
    if (!row) {
        wf_slots_ask_word(h->store->slots, e->m.key);
    } else if (e->m.kind != WF_MSG_ANSWER) {
        wf_slots_ask_row(h->store->slots, e->m.key);
    }
}

static void read_entries(wf_store_hosts *h, uint32_t from,
                         const wf_parcel *parcel, const unsigned char *at)
{
    reader now = {at, parcel->bytes};
    reader rows = now;
    reader words = now;
    const wf_entry *e;

    for (int i = 0; i < WORDS_AHEAD; i++) {
        ask_ahead(h, &words, false);
    }
    for (int i = 0; i < ROWS_AHEAD; i++) {
        ask_ahead(h, &rows, true);
    }
    while ((e = wf_entry_next(&now.at, &now.left)) != NULL) {
        ask_ahead(h, &words, false);
        ask_ahead(h, &rows, true);
        wf_entry_arrived(h, from, e);
    }
}

static void read_intent(wf_store_hosts *h, uint32_t from,
                        const wf_parcel *parcel, const uint64_t *body)
{
    uint32_t workers = h->store->host->size * WF_BOOK_WORKERS;
    uint64_t n = parcel->bytes / sizeof(*body);

    if (parcel->token >= workers || n == 0 || parcel->count != n - 1) {
        wf_log(WEFT_LOG_ERROR, "rank %u sent a malformed intent; dropped",
               from);
        return;
    }
    wf_intent_add(h, (uint32_t)parcel->token, (int64_t)parcel->extra,
                  (int64_t)body[0], body + 1, n - 1);
}

void wf_parcel_arrived(weft_store *store, uint32_t from,
                       const wf_parcel *parcel, const void *body)
{
    wf_store_hosts *h = store->remote;

    if (h->host_of[from] == UINT32_MAX) {
        return; /* not a rank of this store */
    }
    wf_hosts_look(h);
    h->heard_ns = wf_now_ns();
    if (parcel->kind == WF_PARCEL_ENTRIES) {
        read_entries(h, from, parcel, body);
    } else if (parcel->kind == WF_PARCEL_INTENT) {
        read_intent(h, from, parcel, body);
    } else if (parcel->kind == WF_PARCEL_ASK) {
        wf_names_asked(h, from, parcel, body);
    } else if (parcel->kind == WF_PARCEL_TELL) {
        wf_ask_told(h, from, parcel, body);
    } else if (parcel->kind == WF_PARCEL_OPS) {
        wf_bulk_asked(h, from, parcel, body);
    } else if (parcel->kind == WF_PARCEL_DONE) {
        wf_bulk_done(h, from, parcel, body);
    }
    wf_bulk_go_on(h);
    wf_room_retry(h);
    wf_out_flush(h);
}
