/* SPDX-License-Identifier: Apache-2.0 */
/* Messages in parcels: what goes to one rank is collected and sent as one
 * parcel when an event is over, or when there is much of it. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "store/hosts/hosts.h"
#include "store/patient.h"

#define PARCEL_BYTES (64u << 10)

bool wf_scratch_add(wf_scratch *s, const void *data, size_t n)
{
    if (s->bytes + n > s->room) {
        size_t room = 2 * (s->bytes + n) + 256;
        unsigned char *more = wf_patient_realloc(s->at, room);

        if (more == NULL) {
            return false;
        }
        s->at = more;
        s->room = room;
    }
    if (data != NULL && n > 0) {
        memcpy(s->at + s->bytes, data, n);
    }
    s->bytes += n;
    return true;
}

static weft_status send_patiently(wf_store_hosts *h, uint32_t rank,
                                  const wf_parcel *parcel, const void *body)
{
    weft_status st = wf_parcel_send(h->world, rank, parcel, body);
    unsigned tries = 0;

    while (st == WEFT_ERR_NOMEM && wf_patient_again(&tries)) {
        st = wf_parcel_send(h->world, rank, parcel, body);
    }
    return st;
}

static void count_parcel(const wf_store_hosts *h, uint32_t rank,
                         const wf_parcel *parcel)
{
    if (h->host_of[rank] != h->store->number) {
        wf_count(&h->store->counts->messages, 1);
        wf_count(&h->store->counts->bytes, parcel->bytes);
    }
}

/* Its death is noticed by death.c. */
static bool was_sent(weft_status st, uint32_t rank)
{
    if (st != WEFT_OK) {
        wf_log(WEFT_LOG_DEBUG, "a parcel to rank %u was not sent: %s", rank,
               weft_error_detail());
    }
    return st != WEFT_ERR_NOMEM;
}

bool wf_out_parcel(wf_store_hosts *h, uint32_t rank, const wf_parcel *parcel,
                   const void *body)
{
    count_parcel(h, rank, parcel);
    return was_sent(send_patiently(h, rank, parcel, body), rank);
}

static weft_status send_filled(wf_store_hosts *h, uint32_t rank,
                               const wf_parcel *parcel, wf_am_fill_fn *fill,
                               void *ctx)
{
    unsigned tries = 0;
    weft_status st;

    do {
        st = wf_parcel_send_filled(h->world, rank, parcel, fill, ctx);
    } while (st == WEFT_ERR_NOMEM && wf_patient_again(&tries));
    return st;
}

bool wf_out_filled(wf_store_hosts *h, uint32_t rank, const wf_parcel *parcel,
                   wf_am_fill_fn *fill, void *ctx)
{
    if (parcel->bytes > wf_ports_am_payload(h->world, rank)) {
        h->bulk.bytes = 0;
        if (!wf_scratch_add(&h->bulk, NULL, parcel->bytes)) {
            return false;
        }
        fill(ctx, h->bulk.at);
        return wf_out_parcel(h, rank, parcel, h->bulk.at);
    }
    count_parcel(h, rank, parcel);
    return was_sent(send_filled(h, rank, parcel, fill, ctx), rank);
}

static void flush_one(wf_store_hosts *h, uint32_t rank)
{
    wf_outbox *out = &h->out[rank];
    wf_parcel parcel = {.store = h->box.store,
                        .kind = WF_PARCEL_ENTRIES,
                        .bytes = out->bytes,
                        .count = out->count};

    if (out->count > 0 && h->host_of[rank] != h->store->number) {
        wf_count(&h->store->counts->messages, out->count);
        wf_count(&h->store->counts->bytes, out->bytes);
    }
    if (out->count > 0 &&
        send_patiently(h, rank, &parcel, out->at) != WEFT_OK) {
        /* Its death is noticed by death.c. */
        wf_log(WEFT_LOG_DEBUG, "%u messages to rank %u were not sent: %s",
               out->count, rank, weft_error_detail());
    }
    out->bytes = 0;
    out->count = 0;
}

void wf_out_flush(wf_store_hosts *h)
{
    while (h->unsents > 0) {
        uint32_t rank = h->unsent[--h->unsents];

        h->out[rank].listed = false;
        flush_one(h, rank);
    }
}

void wf_out_trim(wf_store_hosts *h)
{
    for (uint32_t rank = 0; rank < h->world->host->ranks; rank++) {
        wf_outbox *out = &h->out[rank];

        if (out->bytes == 0) {
            wf_free(out->at);
            out->at = NULL;
            out->room = 0;
        }
    }
}

static bool out_room(wf_outbox *out, size_t n)
{
    unsigned char *more;
    size_t room = 2 * (out->bytes + n);

    if (out->bytes + n <= out->room) {
        return true;
    }
    more = wf_patient_realloc(out->at, room);
    if (more != NULL) {
        out->at = more;
        out->room = room;
    }
    return more != NULL;
}

void wf_out_entry(wf_store_hosts *h, uint32_t rank, const wf_entry *entry,
                  const void *data, uint64_t bytes)
{
    wf_outbox *out;
    size_t n = wf_entry_bytes(bytes);
    wf_entry head = *entry;

    if (rank >= h->world->host->ranks || h->host_of[rank] == UINT32_MAX) {
        return; /* of its host nobody is left */
    }
    out = &h->out[rank];
    if (!out_room(out, n)) {
        wf_log(WEFT_LOG_ERROR, "no memory for a message to rank %u", rank);
        return;
    }
    head.m.data = 0;
    head.m.tag = 0;
    head.bytes = bytes;
    memcpy(out->at + out->bytes, &head, sizeof(head));
    if (bytes > 0) {
        memcpy(out->at + out->bytes + sizeof(head), data, bytes);
    }
    memset(out->at + out->bytes + sizeof(head) + bytes, 0,
           n - sizeof(head) - bytes);
    out->bytes += n;
    out->count++;
    if (!out->listed) {
        out->listed = true;
        h->unsent[h->unsents++] = rank;
    }
    if (out->bytes >= PARCEL_BYTES) {
        flush_one(h, rank);
    }
}

const wf_entry *wf_entry_next(const unsigned char **at, size_t *left)
{
    const wf_entry *e = (const wf_entry *)(const void *)*at;

    if (*left < sizeof(*e) || e->bytes > *left ||
        wf_entry_bytes(e->bytes) > *left) {
        return NULL;
    }
    *at += wf_entry_bytes(e->bytes);
    *left -= wf_entry_bytes(e->bytes);
    return e;
}
