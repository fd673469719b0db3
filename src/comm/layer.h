/* SPDX-License-Identifier: Apache-2.0 */
/* What the layers above src/comm keep with worlds and communicators.
 *
 * A layer fills in this table, and src/weft.c puts it into its slot of
 * wf_parts. src/comm walks the slots and knows nothing more of who is in them.
 * The number of a slot stands in the header of its layer; no two are equal,
 * since src/weft.c would then not compile. It is part of the numbers of active
 * messages, so it is the same on all ranks. */
#ifndef WF_COMM_LAYER_H
#define WF_COMM_LAYER_H

#include <weft/comm.h>

#include "transport/transport.h"

/* Slot 0 is for src/comm itself. */
#define WF_LAYERS 4u

/* Active messages that a layer may have, and their numbers. */
#define WF_LAYER_MESSAGES 4u
#define WF_LAYER_MESSAGE(slot, i) ((slot)*WF_LAYER_MESSAGES + (i))
_Static_assert(WF_LAYER_MESSAGE(WF_LAYERS, 0) <= WF_AM_IDS, "numbers");

typedef struct wf_layer {
    const char *name;
    /* Bytes that it keeps with each world: world->layer[slot], zeroed. */
    size_t world_bytes;
    /* Called with the world, under world->drive. Optional; `early` only beside
     * a handler, and for transports that have it. */
    wf_am_fn *handler[WF_LAYER_MESSAGES];
    wf_am_early_fn *early[WF_LAYER_MESSAGES];
    /* With each communicator; all optional. `area` says how many bytes are
     * wanted of the segment that the members of a node share, the same on all
     * of them; they are zero at first, and there are none (NULL) on a node with
     * one member. `*state` is kept as comm->layer[slot]; what has none is not
     * detached. */
    size_t (*area)(const weft_comm *comm);
    weft_status (*attach)(weft_comm *comm, void *area, void **state);
    void (*detach)(weft_comm *comm, void *state);
} wf_layer;

/* A slot: who is in it, and what it is given from above. */
typedef struct wf_layer_slot {
    const wf_layer *layer; /* NULL: nobody */
    const void *given;     /* its header says what it is */
} wf_layer_slot;

/* What the slots keep with a world: once its ports are open, and until its
 * memory is freed. */
weft_status wf_layers_open(weft_world *world);
void wf_layers_fini(weft_world *world);

/* What they keep with a communicator. */
size_t wf_layers_area(const weft_comm *comm);
weft_status wf_layers_attach(weft_comm *comm, unsigned char *area);
void wf_layers_detach(weft_comm *comm);

#endif
