/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/layer.h"

#include "base/alloc.h"
#include "comm/comm.h"

/* Of one slot, NULL if nobody is in it. */
static const wf_layer *layer_in(const weft_world *world, uint32_t slot)
{
    return world->parts->layers[slot].layer;
}

static void handle(weft_world *world, uint32_t number, wf_am_fn *fn,
                   wf_am_early_fn *early)
{
    for (uint32_t i = 0; i < world->ports.count; i++) {
        const wf_route *r = &world->ports.route[i];

        r->transport->handle(r->port, number, fn, world);
        if (early != NULL && r->transport->handle_early != NULL) {
            r->transport->handle_early(r->port, number, early);
        }
    }
}

static weft_status open_one(weft_world *world, uint32_t slot)
{
    const wf_layer *layer = layer_in(world, slot);

    if (layer->world_bytes > 0) {
        world->layer[slot] = wf_zalloc(layer->world_bytes);
        if (world->layer[slot] == NULL) {
            return wf_fail_nomem("the layer %s of a world", layer->name);
        }
    }
    for (uint32_t i = 0; i < WF_LAYER_MESSAGES; i++) {
        if (layer->handler[i] != NULL) {
            handle(world, WF_LAYER_MESSAGE(slot, i), layer->handler[i],
                   layer->early[i]);
        }
    }
    return WEFT_OK;
}

weft_status wf_layers_open(weft_world *world)
{
    weft_status st = WEFT_OK;

    for (uint32_t i = 0; i < WF_LAYERS && st == WEFT_OK; i++) {
        if (layer_in(world, i) != NULL) {
            st = open_one(world, i);
        }
    }
    return st;
}

void wf_layers_fini(weft_world *world)
{
    for (uint32_t i = 0; i < WF_LAYERS; i++) {
        wf_free(world->layer[i]);
    }
}

static size_t area_of(const weft_comm *comm, uint32_t slot)
{
    const wf_layer *layer = layer_in(comm->world, slot);

    return layer != NULL && layer->area != NULL
               ? wf_round_up(layer->area(comm), WF_COMM_PAGE)
               : 0;
}

size_t wf_layers_area(const weft_comm *comm)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < WF_LAYERS; i++) {
        bytes += area_of(comm, i);
    }
    return bytes;
}

weft_status wf_layers_attach(weft_comm *comm, unsigned char *area)
{
    weft_status st = WEFT_OK;

    for (uint32_t i = 0; i < WF_LAYERS && st == WEFT_OK; i++) {
        const wf_layer *layer = layer_in(comm->world, i);

        if (layer != NULL && layer->attach != NULL) {
            st = layer->attach(comm, area, &comm->layer[i]);
        }
        if (area != NULL) {
            area += area_of(comm, i);
        }
    }
    return st;
}

void wf_layers_detach(weft_comm *comm)
{
    for (uint32_t i = WF_LAYERS; i-- > 0;) {
        if (comm->layer[i] != NULL) {
            layer_in(comm->world, i)->detach(comm, comm->layer[i]);
            comm->layer[i] = NULL;
        }
    }
}
