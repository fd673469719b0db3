/* SPDX-License-Identifier: Apache-2.0 */
/* weft.World: this process as a rank of the job. */
#ifndef WFP_WORLD_H
#define WFP_WORLD_H

#include <weft/store.h>

#include "core.h"

/* Stores that nobody uses any more on this rank. */
typedef struct wfp_kept {
    struct wfp_kept *next;
    weft_store *store;
} wfp_kept;

typedef struct wfp_world {
    PyObject_HEAD
    weft_world *world; /* NULL once closed, or in a forked child */
    uint64_t number;   /* for allocators, see arena.h */
    PyObject *comm;    /* the Comm of all ranks */
    unsigned busy;     /* threads inside the library without the GIL */
    unsigned lent;     /* communicators lent to other modules, see lend.c */
    wfp_kept *kept;    /* stores that are destroyed when the world was */
    bool forked;       /* it is the parent's; nothing of it may be touched */
} wfp_world;

/* Raise why this world cannot be used; returns -1. */
int wfp_world_unusable(const wfp_world *world);

/* Take over a store that other hosts may still need: it serves them until the
 * world is closed, and is destroyed then, without waiting for anybody. */
void wfp_world_keep(wfp_world *world, weft_store *store);

#endif
