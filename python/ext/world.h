/* SPDX-License-Identifier: Apache-2.0 */
/* weft.World: this process as a rank of the job. */
#ifndef WFP_WORLD_H
#define WFP_WORLD_H

#include "core.h"

typedef struct wfp_world {
    PyObject_HEAD
    weft_world *world; /* NULL once closed, or in a forked child */
    PyObject *comm;    /* the Comm of all ranks */
    unsigned busy;     /* threads inside the library without the GIL */
    unsigned lent;     /* communicators lent to other modules, see lend.c */
    bool forked;       /* it is the parent's; nothing of it may be touched */
} wfp_world;

/* Raise why this world cannot be used; returns -1. */
int wfp_world_unusable(const wfp_world *world);

#endif
