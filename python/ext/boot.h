/* SPDX-License-Identifier: Apache-2.0 */
/* A bootstrap table over a Python object.
 *
 * The object has rank and size, set(key: str, value: bytes) and
 * get(key: str, timeout: float) -> bytes, which raises TimeoutError when the
 * key was not set in time. torch's Store and MPI are adapted to this in
 * weft._boot. */
#ifndef WFP_BOOT_H
#define WFP_BOOT_H

#include "core.h"

typedef struct wfp_boot {
    weft_boot table;
    PyObject *object; /* borrowed from the caller */
    /* The exception that a method raised, to be the cause of ours. */
    PyObject *type;
    PyObject *value;
    PyObject *trace;
} wfp_boot;

int wfp_boot_init(wfp_boot *boot, PyObject *object);

/* Raise `status`, with what a method of the object raised as its cause; a
 * KeyboardInterrupt and its like come through as they are. Returns NULL. */
PyObject *wfp_boot_raise(wfp_boot *boot, weft_status status);

void wfp_boot_fini(wfp_boot *boot);

#endif
