/* SPDX-License-Identifier: Apache-2.0 */
/* Parcels: messages of any length between ranks of a store.
 *
 * A parcel goes as one active message, or as several that follow each other:
 * all are sent under world->drive, so that parcels from one rank to another are
 * never mixed and come in order. The reader of a parcel gets it whole. What
 * comes in is checked here as far as lengths go; its contents are for the
 * reader to check. */
#ifndef WF_STORE_PARCEL_H
#define WF_STORE_PARCEL_H

#include "comm/world.h"

#define WF_LAYER_STORE 3u /* see comm/layer.h */
extern const wf_layer wf_store_layer;

/* No parcel is longer: whoever has more to say writes several. A row may be
 * longer than usual parcels, so this is far above those. */
#define WF_PARCEL_MAX (1ull << 36)

typedef struct wf_parcel {
    uint64_t store; /* its id */
    uint64_t bytes; /* of the body */
    uint64_t at;    /* of this piece; 0 in the parcel that is read */
    uint32_t kind;
    uint32_t host;   /* of whoever wrote it first, where it was sent on */
    uint32_t origin; /* that one's rank in the job */
    uint32_t count;  /* what the kind says */
    uint64_t token;  /* what the kind says */
    uint64_t extra;  /* what the kind says */
} wf_parcel;
_Static_assert(sizeof(wf_parcel) == 56, "layout");
_Static_assert(sizeof(wf_parcel) <= WF_AM_HEADER_MAX, "fits a header");

struct weft_store;

/* Reads a parcel that came from rank `from` of the job; under world->drive. The
 * body is aligned to 16 bytes and valid during the call. */
typedef void wf_parcel_fn(struct weft_store *store, uint32_t from,
                          const wf_parcel *parcel, const void *body);

/* Where the parcels to a store go. On the world's list from open to close. */
typedef struct wf_parcel_box {
    struct wf_parcel_box *next;
    uint64_t store;
    wf_parcel_fn *read;
    struct weft_store *owner;
} wf_parcel_box;

/* Both take world->drive; after close no reader runs. */
weft_status wf_parcel_box_open(weft_world *world, wf_parcel_box *box);
void wf_parcel_box_close(weft_world *world, wf_parcel_box *box);

/* Send one to rank `to` of the job; `parcel->at` is not read. Everything is
 * copied before it returns. Under world->drive. WEFT_ERR_PEER if the rank is
 * gone. */
weft_status wf_parcel_send(weft_world *world, uint32_t to,
                           const wf_parcel *parcel, const void *body);

/* Like wf_parcel_send, but `fill` writes the body, in place. It must fit into
 * one active message. */
weft_status wf_parcel_send_filled(weft_world *world, uint32_t to,
                                  const wf_parcel *parcel, wf_am_fill_fn *fill,
                                  void *ctx);

/* For tests of what comes in: take one piece, as the transport hands it in. */
wf_am_fn wf_parcel_on_piece;

#endif
