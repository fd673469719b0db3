/* SPDX-License-Identifier: Apache-2.0 */
/* What regions keep with a world. */
#ifndef WF_REGION_LAYER_H
#define WF_REGION_LAYER_H

#include "comm/world.h"

#define WF_LAYER_REGION 2u
extern const wf_layer wf_region_layer;

/* Active messages, see remote/remote.h. */
enum {
    WF_AM_ROWS_ASK = WF_LAYER_MESSAGE(WF_LAYER_REGION, 0),
    WF_AM_ROWS_ANSWER = WF_LAYER_MESSAGE(WF_LAYER_REGION, 1)
};

typedef struct wf_region_world {
    _Atomic uint64_t made; /* number of the next region */
    /* Under world->drive: what other nodes may ask for, and what this rank asks
     * them for. */
    struct wf_region_remote *remotes;
    struct wf_rows_block *blocks;
    uint64_t tokens;
} wf_region_world;

static inline wf_region_world *wf_region_world_of(const weft_world *world)
{
    return world->layer[WF_LAYER_REGION];
}

#endif
