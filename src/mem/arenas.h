/* SPDX-License-Identifier: Apache-2.0 */
/* The arenas of this process: a block is found by its address, and all are
 * there when it forks. */
#ifndef WF_MEM_ARENAS_H
#define WF_MEM_ARENAS_H

#include "mem/arena.h"

void wf_arenas_add(wf_arena *a);
void wf_arenas_remove(wf_arena *a);
/* The one in whose own range the address lies, or NULL. */
wf_arena *wf_arenas_find(const void *at);

/* Forget forks whose children are gone, and release what was held for them;
 * with the arena's lock. */
void wf_arena_release(wf_arena *a);

#endif
