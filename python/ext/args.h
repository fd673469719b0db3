/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of functions that Python calls with an array. */
#ifndef WFP_ARGS_H
#define WFP_ARGS_H

#include "core.h"

#define WFP_ARGS_MAX 6

typedef struct wfp_signature {
    const char *function;
    int required;
    const char *names[WFP_ARGS_MAX + 1]; /* ends with NULL */
} wfp_signature;

/* Sort positional and keyword arguments into `out`, one borrowed reference for
 * each name and NULL for what was not given. 0, or -1 with TypeError set. */
int wfp_args_sort(const wfp_signature *signature, PyObject *const *args,
                  Py_ssize_t nargs, PyObject *kwnames, PyObject **out);

/* Whole numbers and durations, with an error that names the argument. A NULL
 * object leaves `*out` as it is. */
int wfp_args_u32(PyObject *object, const char *name, uint32_t *out);
int wfp_args_i64(PyObject *object, const char *name, int64_t *out);
int wfp_args_u64(PyObject *object, const char *name, uint64_t *out);

/* Seconds; None is 0, anything else must be more than that. */
int wfp_args_seconds(PyObject *object, const char *name, double *out);

/* The number of one of the library's types, such as "f32". */
int wfp_args_type(const char *name, weft_dtype *out);

#endif
