/* SPDX-License-Identifier: Apache-2.0 */
/* The server's side of operations on many keys: bulk.h. Rows are read without a
 * lock, to where they are sent from. */
#include <string.h>

#include "base/log.h"
#include "store/hosts/bulk.h"
#include "store/table.h"

/* Keys are anywhere in memory: their words and the words of their rows are
 * asked for so many keys before they are needed. */
enum { WORDS_AHEAD = 24, ROWS_AHEAD = 12 };

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
        if (i > from && *bytes + wf_done_head(i - from + 1) > o->most) {
            *bytes -= wf_store_row_bytes(o->h->store, o->key[i]);
            break;
        }
        i++;
    }
    return i;
}

/* An answer to the n keys from `from` on. */
typedef struct done_parcel {
    const ops *o;
    uint64_t from;
    uint64_t n;
    uint64_t absent[WF_BULK_KEYS]; /* those that could not be read */
    uint64_t absents;
} done_parcel;

/* Somebody who does not go on holds these rows by now. */
static void mark_absent(const done_parcel *d, uint32_t *position, char *rows)
{
    uint64_t next = 0;

    for (uint64_t i = 0; i < d->n && next < d->absents; i++) {
        uint64_t bytes =
            wf_store_row_bytes(d->o->h->store, d->o->key[d->from + i]);

        if (d->absent[next] == i) {
            position[i] |= WF_BULK_NOT_DONE;
            memset(rows, 0, bytes);
            next++;
        }
        rows += bytes;
    }
}

static void fill_done(void *ctx, void *payload)
{
    done_parcel *d = ctx;
    const ops *o = d->o;
    uint32_t *position = payload;
    wf_batch batch = {.keys = {.at = &o->key[d->from], .type = WEFT_I64},
                      .absent = d->absent,
                      .values = (char *)payload + wf_done_head(d->n)};

    batch.keys.n = d->n;
    memcpy(position, &o->position[d->from], d->n * sizeof(*position));
    if (d->n % 2 != 0) {
        position[d->n] = 0;
    }
    if (wf_slots_pull(o->h->store->slots, &batch) != WEFT_OK) {
        batch.absents = d->n;
        for (uint64_t i = 0; i < d->n; i++) {
            d->absent[i] = i;
        }
    }
    d->absents = batch.absents;
    mark_absent(d, position, batch.values);
}

/* Rows of the n keys from `from` on, which could all be read at once. */
static void send_rows(const ops *o, uint64_t from, uint64_t n, uint64_t bytes)
{
    done_parcel d = {.o = o, .from = from, .n = n};
    wf_parcel parcel = {.store = o->h->box.store,
                        .kind = WF_PARCEL_DONE,
                        .bytes = wf_done_head(n) + bytes,
                        .count = (uint32_t)n,
                        .token = o->parcel->token};

    wf_out_filled(o->h, o->from, &parcel, fill_done, &d);
    for (uint64_t i = 0; i < d.absents; i++) {
        do_apart(o, from + d.absent[i], NULL, 0);
    }
}

static void do_pulls(const ops *o)
{
    uint64_t i = 0;

    while (i < o->n) {
        uint64_t bytes;
        uint64_t end = pull_run(o, i, &bytes);

        if (end > i) {
            send_rows(o, i, end - i, bytes);
            i = end;
        } else {
            do_apart(o, i++, NULL, 0);
        }
    }
}

/* The positions in h->bulk are done. */
static void send_written(const ops *o, uint32_t count)
{
    static const uint32_t zero;
    wf_scratch *done = &o->h->bulk;
    wf_parcel parcel = {.store = o->h->box.store,
                        .kind = WF_PARCEL_DONE,
                        .bytes = wf_done_head(count),
                        .count = count,
                        .token = o->parcel->token};

    if (wf_scratch_add(done, &zero, sizeof(zero))) { /* to whole words */
        wf_out_parcel(o->h, o->from, &parcel, done->at);
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
    if (count > 0) {
        send_written(o, count);
    }
}

void wf_bulk_asked(wf_store_hosts *h, uint32_t from, const wf_parcel *parcel,
                   const void *body)
{
    uint64_t n = parcel->count;
    ops o = {.h = h, .from = from, .parcel = parcel, .n = n};
    uint64_t kind = parcel->extra;
    bool pull = kind == WF_OP_PULL;

    if (n == 0 || (!pull && !wf_op_has_values(kind)) ||
        parcel->bytes < wf_ops_head(n) ||
        (pull && parcel->bytes != wf_ops_head(n)) ||
        parcel->token > UINT32_MAX) {
        wf_log(WEFT_LOG_ERROR,
               "rank %u sent malformed operations of a store; dropped", from);
        return;
    }
    o.key = body;
    o.position = (const uint32_t *)(const void *)(o.key + n);
    o.epoch = (const uint16_t *)(const void *)(o.position + n);
    o.rows = (const unsigned char *)body + wf_ops_head(n);
    o.left = parcel->bytes - wf_ops_head(n);
    o.most = wf_ports_am_payload(h->world, from);
    if (pull) {
        do_pulls(&o);
    } else {
        do_writes(&o);
    }
}
