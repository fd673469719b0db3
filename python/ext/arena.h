/* SPDX-License-Identifier: Apache-2.0 */
/* Memory from arenas of this process's worlds for allocators of other
 * libraries: NumPy's (numpy.c) and torch's (torch/shared.cpp). They ask without
 * the GIL, on any thread, and free what they got also when its world is gone.
 */
#ifndef WFP_ARENA_H
#define WFP_ARENA_H

#include "core.h"

/* `bytes` in memory that the ranks of a world map, on a page boundary; all zero
 * if that is asked for. `world` is the number of a world in this process, or 0
 * for the first of those that are open. NULL if there is no such world, in a
 * forked child, and if there is no room. It is freed by weft_arena_free. */
typedef void *wfp_arena_take_fn(uint64_t world, size_t bytes, bool zero);
wfp_arena_take_fn wfp_arena_take;

/* The capsule "weft._core._arena" holds a pointer to this, for other modules.
 */
typedef struct wfp_arena_calls {
    wfp_arena_take_fn *take;
} wfp_arena_calls;

/* A world is open from now on, until it is left. The number that it has in
 * this process; 0 if there is no memory to remember it, and nothing is then
 * taken from it. */
uint64_t wfp_arena_enter(weft_world *world);
void wfp_arena_leave(const weft_world *world);

/* A weft.Arena that says what is in a world's arena; NULL on failure. */
PyObject *wfp_arena_describe(const weft_world *world);

#endif
