/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on many keys, the short way: one head for all keys of a call that
 * one host has, and one for their answers.
 *
 *   OPS    of a worker, to a server: keys, 8 bytes each, positions, 4, and
 *          epochs, 2; then, for push and set, the rows
 *   DONE   the answer: positions, 4 bytes each; then, for a pull, the rows
 *
 * A server does so what it can do at once: pull, push and set of a key that it
 * owns at the epoch that the worker knows, whose row nobody holds. That is what
 * the protocol does with such a message, and it changes no state of the key.
 * All others become messages of their own (wf_entry) here, as if the worker had
 * sent those, and are answered so. Rows are read without a lock, straight to
 * the parcel. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/num.h"
#include "store/hosts/hosts.h"
#include "store/patient.h"
#include "store/table.h"

/* Keys are anywhere in memory: their words and the words of their rows are
 * asked for so many keys before they are needed. */
enum { WORDS_AHEAD = 24, ROWS_AHEAD = 12 };

#define OP_BYTES                                                               \
    (sizeof(uint64_t) + sizeof(uint32_t) + sizeof(uint16_t)) /* of a key */

static bool has_values(uint64_t kind)
{
    return kind == WF_OP_PUSH || kind == WF_OP_SET;
}

/* Where the rows begin behind n keys. */
static uint64_t ops_head(uint64_t n)
{
    return wf_round_up(n * OP_BYTES, 8);
}

static uint64_t done_head(uint64_t n)
{
    return wf_round_up(n * sizeof(uint32_t), 8);
}

/* --- the worker asks ------------------------------------------------------ */

bool wf_bulk_takes(const wf_store_hosts *h, wf_op_kind kind, uint32_t word)
{
    uint32_t owner = wf_word_owner(word);

    return (kind == WF_OP_PULL || has_values(kind)) &&
           (word & WF_KEY_HERE) == 0 && owner != h->store->number &&
           owner < h->store->hosts && h->server[owner] != UINT32_MAX;
}

/* One parcel with n keys of an operation, `at` which of them. */
static void send_ops(wf_store_hosts *h, const wf_remote *r, uint32_t rank,
                     const uint32_t *at, uint32_t n)
{
    bool values = has_values(r->kind);
    wf_parcel parcel = {.store = h->box.store,
                        .kind = WF_PARCEL_OPS,
                        .count = n,
                        .token = r->token,
                        .extra = (uint64_t)r->kind};
    uint64_t *key;
    uint32_t *position;
    uint16_t *epoch;

    h->bulk.bytes = 0;
    if (!wf_scratch_add(&h->bulk, NULL, ops_head(n))) {
        wf_log(WEFT_LOG_ERROR, "no memory for a message to rank %u", rank);
        return;
    }
    memset(h->bulk.at, 0, ops_head(n));
    key = (uint64_t *)(void *)h->bulk.at;
    position = (uint32_t *)(void *)(key + n);
    epoch = (uint16_t *)(void *)(position + n);
    for (uint32_t i = 0; i < n; i++) {
        key[i] = r->key[at[i]];
        position[i] = at[i];
        epoch[i] = wf_word_epoch(r->word[at[i]]);
    }
    for (uint32_t i = 0; values && i < n; i++) {
        uint64_t row = wf_store_row_bytes(h->store, r->key[at[i]]);

        if (!wf_scratch_add(&h->bulk, r->values + r->offset[at[i]], row)) {
            wf_log(WEFT_LOG_ERROR, "no memory for a message to rank %u", rank);
            return;
        }
    }
    parcel.bytes = h->bulk.bytes;
    wf_out_parcel(h, rank, &parcel, h->bulk.at);
}

/* How many of the n keys from `at` on fit into one parcel: one at least. */
static uint32_t ops_fit(const wf_store_hosts *h, const wf_remote *r,
                        const uint32_t *at, uint32_t n, size_t most)
{
    uint64_t bytes = 0;
    uint32_t i = 0;

    while (i < n) {
        bytes += OP_BYTES;
        if (has_values(r->kind)) {
            bytes += wf_store_row_bytes(h->store, r->key[at[i]]);
        }
        if (i > 0 && bytes + 8 > most) {
            break;
        }
        i++;
    }
    return i;
}

void wf_bulk_send(wf_store_hosts *h, const wf_remote *r, uint32_t host,
                  const uint32_t *at, uint32_t n)
{
    uint32_t rank = h->server[host];
    size_t most = wf_ports_am_payload(h->world, rank);

    while (n > 0) {
        uint32_t some = ops_fit(h, r, at, n, most);

        send_ops(h, r, rank, at, some);
        at += some;
        n -= some;
    }
}

/* --- the server does it --------------------------------------------------- */

/* A parcel of operations that is being read. */
typedef struct ops {
    wf_store_hosts *h;
    uint32_t from;
    const wf_parcel *parcel;
    uint64_t n;
    const uint64_t *key;
    const uint32_t *position;
    const uint16_t *epoch;
    const unsigned char *rows; /* that come next */
    uint64_t left;             /* bytes of these */
    size_t most;               /* bytes of an answer */
} ops;

/* Can it be done here and now? */
static bool is_plain(const ops *o, uint64_t i)
{
    const wf_store_hosts *h = o->h;
    const wf_slots *slots = h->store->slots;
    uint64_t key = o->key[i];
    wf_slot_marks marks;
    uint32_t word;

    if (!h->serves || h->paused || h->held.count > 0 || key >= h->store->ids) {
        return false;
    }
    word = wf_directory_get(slots, key);
    if ((word & WF_KEY_HERE) == 0) {
        return false;
    }
    marks = wf_slot_marks_get(slots, word & ~WF_KEY_HERE);
    return (marks.flags & WF_SLOT_COPY) == 0 && marks.epoch == o->epoch[i] &&
           !wf_slot_held(slots, word & ~WF_KEY_HERE);
}

/* As a message of its own, as the worker would have sent it. */
static void do_apart(const ops *o, uint64_t i, const void *row, uint64_t bytes)
{
    wf_store_hosts *h = o->h;
    wf_op_kind kind = (wf_op_kind)o->parcel->extra;
    wf_entry e = {.m = {.key = o->key[i],
                        .flags = WF_MSG_MARKED,
                        .from = (uint16_t)h->host_of[o->from],
                        .origin = (uint16_t)h->host_of[o->from],
                        .epoch = o->epoch[i],
                        .kind = WF_MSG_OP,
                        .op = (uint8_t)kind},
                  .rank = o->from,
                  .token = (uint32_t)o->parcel->token,
                  .position = o->position[i],
                  .bytes = bytes};

    h->apart.bytes = 0;
    if (wf_scratch_add(&h->apart, &e, sizeof(e)) &&
        wf_scratch_add(&h->apart, row, bytes)) {
        wf_entry_arrived(h, o->from, (const wf_entry *)(void *)h->apart.at);
    }
}

static void send_done(const ops *o, uint32_t n, const wf_scratch *body)
{
    wf_parcel parcel = {.store = o->h->box.store,
                        .kind = WF_PARCEL_DONE,
                        .bytes = body->bytes,
                        .count = n,
                        .token = o->parcel->token};

    wf_out_parcel(o->h, o->from, &parcel, body->at);
}

static void ask_ahead(const ops *o, uint64_t i)
{
    const weft_store *store = o->h->store;

    if (i + WORDS_AHEAD < o->n && o->key[i + WORDS_AHEAD] < store->ids) {
        wf_slots_ask_word(store->slots, o->key[i + WORDS_AHEAD]);
    }
    if (i + ROWS_AHEAD < o->n && o->key[i + ROWS_AHEAD] < store->ids) {
        if (o->parcel->extra == WF_OP_PULL) {
            wf_slots_ask_lock(store->slots, o->key[i + ROWS_AHEAD]);
        } else {
            wf_slots_ask_row(store->slots, o->key[i + ROWS_AHEAD]);
        }
    }
}

/* Rows of the keys [from, to), which can all be read at once. False without
 * memory, or if somebody who does not go on holds one by now. */
static bool pull_rows(const ops *o, uint64_t from, uint64_t to, uint64_t bytes)
{
    wf_store_hosts *h = o->h;
    uint64_t n = to - from;
    uint64_t absent[WF_BULK_KEYS];
    wf_batch batch = {.keys = {.at = &o->key[from], .type = WEFT_I64, .n = n},
                      .absent = absent};

    h->bulk.bytes = 0;
    if (!wf_scratch_add(&h->bulk, NULL, done_head(n) + bytes)) {
        return false;
    }
    memset(h->bulk.at, 0, done_head(n));
    memcpy(h->bulk.at, &o->position[from], n * sizeof(*o->position));
    batch.values = (char *)h->bulk.at + done_head(n);
    return wf_slots_pull(h->store->slots, &batch) == WEFT_OK &&
           batch.absents == 0;
}

/* The keys from `from` on that can be read at once and fit into one answer. */
static uint64_t pull_run(const ops *o, uint64_t from, uint64_t *bytes)
{
    uint64_t i = from;

    *bytes = 0;
    while (i < o->n && i - from < WF_BULK_KEYS) {
        ask_ahead(o, i);
        if (!is_plain(o, i)) {
            break;
        }
        *bytes += wf_store_row_bytes(o->h->store, o->key[i]);
        if (i > from && *bytes + done_head(i - from + 1) > o->most) {
            *bytes -= wf_store_row_bytes(o->h->store, o->key[i]);
            break;
        }
        i++;
    }
    return i;
}

static void do_pulls(const ops *o)
{
    uint64_t i = 0;

    while (i < o->n) {
        uint64_t bytes;
        uint64_t end = pull_run(o, i, &bytes);

        if (end > i && pull_rows(o, i, end, bytes)) {
            send_done(o, (uint32_t)(end - i), &o->h->bulk);
            i = end;
            continue;
        }
        do { /* the one that is not plain, or those that could not be read */
            do_apart(o, i++, NULL, 0);
        } while (i < end);
    }
}

/* One key after the other: a write that has to wait for a row would not say
 * which of many were done. */
static void do_writes(ops *o)
{
    wf_store_hosts *h = o->h;
    wf_op_kind kind = (wf_op_kind)o->parcel->extra;
    wf_scratch *done = &h->bulk;
    uint32_t count = 0;

    done->bytes = 0;
    for (uint64_t i = 0; i < o->n; i++) {
        uint64_t row = o->key[i] < h->store->options.max_keys
                           ? wf_store_row_bytes(h->store, o->key[i])
                           : UINT64_MAX;

        ask_ahead(o, i);
        if (row > o->left) {
            wf_log(WEFT_LOG_ERROR,
                   "rank %u sent malformed operations of a store; dropped",
                   o->from);
            break;
        }
        if (is_plain(o, i) &&
            wf_scratch_add(done, &o->position[i], sizeof(o->position[i]))) {
            wf_row_write(h, o->key[i], kind, o->rows);
            count++;
        } else {
            do_apart(o, i, o->rows, row);
        }
        o->rows += row;
        o->left -= row;
    }
    if (count > 0 &&
        wf_scratch_add(done, NULL, done_head(count) - done->bytes)) {
        memset(done->at + count * sizeof(uint32_t), 0,
               done_head(count) - count * sizeof(uint32_t));
        send_done(o, count, done);
    }
}

void wf_bulk_asked(wf_store_hosts *h, uint32_t from, const wf_parcel *parcel,
                   const void *body)
{
    uint64_t n = parcel->count;
    ops o = {.h = h, .from = from, .parcel = parcel, .n = n};
    uint64_t kind = parcel->extra;
    bool pull = kind == WF_OP_PULL;

    if (n == 0 || (!pull && !has_values(kind)) || parcel->bytes < ops_head(n) ||
        (pull && parcel->bytes != ops_head(n)) || parcel->token > UINT32_MAX) {
        wf_log(WEFT_LOG_ERROR,
               "rank %u sent malformed operations of a store; dropped", from);
        return;
    }
    o.key = body;
    o.position = (const uint32_t *)(const void *)(o.key + n);
    o.epoch = (const uint16_t *)(const void *)(o.position + n);
    o.rows = (const unsigned char *)body + ops_head(n);
    o.left = parcel->bytes - ops_head(n);
    o.most = wf_ports_am_payload(h->world, from);
    if (pull) {
        do_pulls(&o);
    } else {
        do_writes(&o);
    }
}

/* --- and the worker hears of it ------------------------------------------- */

void wf_bulk_done(wf_store_hosts *h, uint32_t from, const wf_parcel *parcel,
                  const void *body)
{
    wf_remote *r = parcel->token <= UINT32_MAX
                       ? wf_token_find(h, (uint32_t)parcel->token)
                       : NULL;
    uint64_t n = parcel->count;
    const uint32_t *position = body;
    const unsigned char *row = (const unsigned char *)body + done_head(n);
    uint64_t left;

    if (r == NULL) {
        return; /* of an operation that is over */
    }
    if (parcel->bytes < done_head(n) || h->host_of[from] == h->store->number) {
        wf_log(WEFT_LOG_ERROR,
               "rank %u sent malformed answers of a store; dropped", from);
        return;
    }
    left = parcel->bytes - done_head(n);
    for (uint64_t i = 0; i < n && position[i] < r->n; i++) {
        uint64_t bytes = r->kind == WF_OP_PULL
                             ? wf_store_row_bytes(h->store, r->key[position[i]])
                             : 0;

        if (bytes > left) {
            break;
        }
        wf_remote_done(h, r, position[i], row, bytes);
        row += bytes;
        left -= bytes;
    }
}
