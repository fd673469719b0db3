/* SPDX-License-Identifier: Apache-2.0 */
/* What keeps shared memory mapped here: one hold for each region, or attached
 * mapping, that Python knows.
 *
 * Tensors, arrays and handles count on a hold. Their last one may go on any
 * thread and without the GIL, so the memory is given back at once, but the
 * Python objects that belong to it wait for the next call of this file. */
#ifndef WFP_REGION_HOLD_H
#define WFP_REGION_HOLD_H

#include <stdatomic.h>
#include <weft/region.h>

#include "comm.h"

/* A mapping of a region that nobody can write to. */
typedef struct wfp_view {
    char *at;
    uint64_t rows;
    uint64_t bytes;
    struct wfp_view *next;
} wfp_view;

typedef struct wfp_hold {
    atomic_size_t count;
    atomic_bool gone;    /* the memory was given back, this struct may follow */
    weft_region *region; /* or NULL, for a mapping of our own: */
    void *at;
    size_t bytes;
    int fd;
    uint64_t offset; /* of the mapping in that */
    bool writable;
    /* The newest first; changed under the GIL. Older ones, of another number of
     * rows, stay: tensors may lie in them. */
    wfp_view *views;
    wfp_world *world; /* NULL where it is not known */
    PyObject *facts;  /* what weft._region wants to remember; NULL: nothing */
    struct wfp_hold *next;
} wfp_hold;

/* A hold on `region`, counted once. It takes it over, also where it fails: NULL
 * with an exception set. */
wfp_hold *wfp_hold_region(weft_region *region, wfp_world *world);

/* A hold on memory that another process shared: `bytes` of `fd` from `offset`
 * on, mapped here. It takes the descriptor over, also where it fails. */
wfp_hold *wfp_hold_attach(int fd, uint64_t offset, size_t bytes, bool writable);

/* The hold of the memory in which `address` lies, counted once more; NULL, and
 * no exception, if there is none. */
wfp_hold *wfp_hold_find(const void *address);

/* Neither needs the GIL. */
void wfp_hold_retain(wfp_hold *hold);
void wfp_hold_release(wfp_hold *hold);

/* Its region; NULL with an exception set for memory that was only attached. */
weft_region *wfp_hold_get(const wfp_hold *hold);

/* Calls that need other ranks: is its world still there? 0, or -1 with the
 * reason raised. Until wfp_hold_leave it cannot be closed. */
int wfp_hold_enter(wfp_hold *hold);
void wfp_hold_leave(wfp_hold *hold);

/* The mapping that nobody can write to, of all rows there are now. */
weft_status wfp_hold_readonly(wfp_hold *hold, char **out);

/* The read-only mapping of a region that `address` lies in; NULL if it is in
 * none of them. */
const wfp_view *wfp_hold_view(const wfp_hold *hold, const void *address);

#endif
