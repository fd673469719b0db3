/* SPDX-License-Identifier: Apache-2.0 */
#include "store/parcel.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/num.h"
#include "base/status.h"
#include "comm/serve.h"
#include "store/patient.h"

enum { AM_PIECE = WF_LAYER_MESSAGE(WF_LAYER_STORE, 0) };

/* A parcel of which not all pieces have come. */
typedef struct partial {
    wf_parcel parcel;
    unsigned char *body; /* NULL: none is begun */
    uint64_t got;
    uint64_t room; /* of the body: what has come, and as much again */
} partial;

/* What the store keeps with a world. Under world->drive. */
typedef struct parcel_world {
    wf_parcel_box *boxes;
    partial *partial; /* by rank in the job, once a parcel has two pieces */
} parcel_world;

static parcel_world *world_of(const weft_world *world)
{
    return world->layer[WF_LAYER_STORE];
}

/* --- sending -------------------------------------------------------------- */

static weft_status send_pieces(weft_world *world, uint32_t to, wf_parcel piece,
                               const void *body)
{
    size_t most = wf_ports_am_payload(world, to);
    weft_status st = wf_host_check(world->host, to);

    piece.at = 0;
    while (st == WEFT_OK) {
        size_t n = wf_least(piece.bytes - piece.at, most);

        st = wf_ports_am(world, to, AM_PIECE, &piece, sizeof(piece),
                         n > 0 ? (const char *)body + piece.at : NULL, n);
        piece.at += n;
        if (piece.at == piece.bytes) {
            return st;
        }
    }
    return st;
}

/* Parcels are sent by threads that do not wait for them to leave, and the
 * server's may sleep until a parcel comes. If the receiver has no room,
 * somebody must listen for it to make some. */
static void wake_listener(const weft_world *world)
{
    wf_board_rank *own = wf_host_own(world->host);

    if (wf_ports_stuck(world) && wf_board_listens(own)) {
        wf_board_wake_listener(own);
    }
}

weft_status wf_parcel_send(weft_world *world, uint32_t to,
                           const wf_parcel *parcel, const void *body)
{
    weft_status st = send_pieces(world, to, *parcel, body);

    wake_listener(world);
    return st;
}

weft_status wf_parcel_send_filled(weft_world *world, uint32_t to,
                                  const wf_parcel *parcel, wf_am_fill_fn *fill,
                                  void *ctx)
{
    wf_parcel whole = *parcel;
    weft_status st = wf_host_check(world->host, to);

    whole.at = 0;
    if (st == WEFT_OK) {
        st = wf_ports_am_fill(world, to, AM_PIECE, &whole, sizeof(whole),
                              parcel->bytes, fill, ctx);
    }
    wake_listener(world);
    return st;
}

/* --- reading -------------------------------------------------------------- */

static const wf_parcel_box *box_of(const weft_world *world, uint64_t store)
{
    const wf_parcel_box *box = world_of(world)->boxes;

    while (box != NULL && box->store != store) {
        box = box->next;
    }
    return box;
}

static void deliver(weft_world *world, uint32_t from, const wf_parcel *parcel,
                    const void *body)
{
    const wf_parcel_box *box = box_of(world, parcel->store);

    if (box == NULL) {
        wf_log(WEFT_LOG_DEBUG,
               "rank %u wrote to a store that is closed here; dropped", from);
        return;
    }
    box->read(box->owner, from, parcel, body);
}

static partial *partial_of(weft_world *world, uint32_t from)
{
    parcel_world *own = world_of(world);

    if (own->partial == NULL) {
        own->partial = wf_patient_realloc(NULL, world->host->ranks *
                                                    sizeof(*own->partial));
        if (own->partial != NULL) {
            memset(own->partial, 0, world->host->ranks * sizeof(*own->partial));
        }
    }
    return own->partial != NULL ? &own->partial[from] : NULL;
}

/* Room for n more bytes. Lengths that others say are not believed before so
 * much has come. */
static bool partial_room(partial *p, uint64_t n)
{
    uint64_t room = wf_least(p->parcel.bytes, 2 * (p->got + n));
    unsigned char *more;

    if (p->got + n <= p->room) {
        return true;
    }
    more = wf_patient_realloc(p->body, room);
    if (more != NULL) {
        p->body = more;
        p->room = room;
    }
    return more != NULL;
}

static void partial_drop(partial *p)
{
    wf_free(p->body);
    *p = (partial){.body = NULL};
}

/* One of several pieces. Of those to a store that is closed none is kept: with
 * the last store went what frees them. */
static void gather(weft_world *world, uint32_t from, const wf_parcel *piece,
                   const void *payload, size_t n)
{
    bool open = box_of(world, piece->store) != NULL;
    partial *p = open ? partial_of(world, from) : NULL;
    partial whole;

    if (p == NULL) {
        return;
    }
    if (piece->at == 0) {
        partial_drop(p);
        p->parcel = *piece;
    }
    if (piece->at != p->got || piece->bytes != p->parcel.bytes) {
        return; /* its beginning was dropped */
    }
    if (!partial_room(p, n)) {
        wf_log(WEFT_LOG_ERROR,
               "no memory for a parcel of %llu bytes from rank %u; dropped",
               (unsigned long long)piece->bytes, from);
        partial_drop(p);
        return;
    }
    memcpy(p->body + p->got, payload, n);
    p->got += n;
    if (p->got == p->parcel.bytes) {
        whole = *p;
        *p = (partial){.body = NULL};
        deliver(world, from, &whole.parcel, whole.body);
        wf_free(whole.body);
    }
}

void wf_parcel_on_piece(void *ctx, uint32_t from, const void *header,
                        size_t header_bytes, const void *payload,
                        size_t payload_bytes)
{
    weft_world *world = ctx;
    wf_parcel piece;

    if (header_bytes != sizeof(piece)) {
        wf_log(WEFT_LOG_ERROR, "rank %u sent a malformed parcel; dropped",
               from);
        return;
    }
    memcpy(&piece, header, sizeof(piece));
    if (piece.bytes > WF_PARCEL_MAX || piece.at > piece.bytes ||
        payload_bytes > piece.bytes - piece.at ||
        (payload_bytes == 0 && piece.bytes > 0)) {
        wf_log(WEFT_LOG_ERROR, "rank %u sent a malformed parcel; dropped",
               from);
        return;
    }
    if (payload_bytes == piece.bytes) {
        deliver(world, from, &piece, payload);
    } else {
        gather(world, from, &piece, payload, payload_bytes);
    }
}

/* --- boxes ---------------------------------------------------------- */

weft_status wf_parcel_box_open(weft_world *world, wf_parcel_box *box)
{
    parcel_world *own = world_of(world);
    weft_status st;

    pthread_mutex_lock(&world->drive);
    st = wf_serve(world);
    if (st == WEFT_OK) {
        box->next = own->boxes;
        own->boxes = box;
    }
    pthread_mutex_unlock(&world->drive);
    return st;
}

static void drop_partials(weft_world *world)
{
    parcel_world *own = world_of(world);

    for (uint32_t r = 0; own->partial != NULL && r < world->host->ranks; r++) {
        wf_free(own->partial[r].body);
    }
    wf_free(own->partial);
    own->partial = NULL;
}

void wf_parcel_box_close(weft_world *world, wf_parcel_box *box)
{
    wf_parcel_box **at;

    pthread_mutex_lock(&world->drive);
    at = &world_of(world)->boxes;
    while (*at != NULL && *at != box) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = box->next;
    }
    if (world_of(world)->boxes == NULL) {
        drop_partials(world);
    }
    pthread_mutex_unlock(&world->drive);
}

const wf_layer wf_store_layer = {.name = "store",
                                 .world_bytes = sizeof(parcel_world),
                                 .handler = {wf_parcel_on_piece}};
