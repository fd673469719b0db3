/* SPDX-License-Identifier: Apache-2.0 */
/* The arena of a world. */
#include "mem/arena.h"

#include "comm/world.h"

static weft_status take(weft_world *world, size_t bytes, bool zero, void **out)
{
    if (world == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "world or out is NULL");
    }
    if (world->host->arena == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "this rank has no arena");
    }
    return wf_arena_take(world->host->arena, bytes, zero, out);
}

weft_status weft_arena_alloc(weft_world *world, size_t bytes, void **out)
{
    return take(world, bytes, false, out);
}

weft_status weft_arena_zalloc(weft_world *world, size_t bytes, void **out)
{
    return take(world, bytes, true, out);
}

weft_status weft_arena_get(const weft_world *world, weft_arena_info *out)
{
    if (world == NULL || out == NULL || out->size < sizeof(*out)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "world or out is NULL, or out->size is too small");
    }
    *out = (weft_arena_info){.size = out->size};
    if (world->host->arena != NULL) {
        wf_arena_ask(world->host->arena, out);
    }
    return WEFT_OK;
}
