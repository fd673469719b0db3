/* SPDX-License-Identifier: Apache-2.0 */
/* weft.RegionHandle: a region of the C library; weft._region makes of it what
 * people use. */
#ifndef WFP_REGION_H
#define WFP_REGION_H

#include "region_hold.h"

typedef struct wfp_region {
    PyObject_HEAD
    wfp_hold *hold;
} wfp_region;

/* A handle that takes one count of `hold` over, also where it fails. */
PyObject *wfp_region_wrap(wfp_hold *hold);

/* The hold of a handle; NULL, and no exception, for any other object. */
wfp_hold *wfp_region_hold(PyObject *object);

/* Fails for memory that was only attached: NULL with an exception set. */
weft_region *wfp_region_get(PyObject *self);

/* A rank of the region given as an argument: 0, or -1 with an exception set. */
int wfp_region_rank(const weft_region *region, PyObject *number, uint32_t *out);

/* Methods from region_wait.c, region_files.c and region_share.c. */
PyObject *wfp_region_resize(PyObject *self, PyObject *rows);
wfp_method wfp_region_barrier;
wfp_method wfp_region_signal;
wfp_method wfp_region_wait;
wfp_method wfp_region_signalled;
wfp_method wfp_region_save;
wfp_method wfp_region_load;
wfp_method wfp_region_load_raw;
PyObject *wfp_region_sync(PyObject *self, PyObject *unused);
PyObject *wfp_region_export(PyObject *self, PyObject *unused);
PyObject *wfp_region_offset_of(PyObject *self, PyObject *address);

#endif
