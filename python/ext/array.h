/* SPDX-License-Identifier: Apache-2.0 */
/* Python's arrays as memory.
 *
 * What is plain is read in C: a torch.Tensor or Parameter through the DLPack
 * exchange table of its type, anything with the buffer protocol through that.
 * Everything else (strided, conjugated, a subclass, ...) goes through
 * weft._arrays.stage, in Python, which refuses it or gives a plain stand-in and
 * says how the result gets back. */
#ifndef WFP_ARRAY_H
#define WFP_ARRAY_H

#include "core.h"
#include "dlpack.h"

/* How the array is used, and for how long. */
enum {
    WFP_READ = 0,
    WFP_WRITE = 1, /* it may be read, too */
    WFP_KEEP = 2   /* the memory must outlive the call */
};

enum { WFP_NO_DTYPE = -1 };

/* What an attempt to open an array in C came to. */
typedef enum wfp_opened {
    WFP_OPENED,
    WFP_RARE,  /* not plain: stage it */
    WFP_RAISED /* refused, with an exception set */
} wfp_opened;

typedef struct wfp_array {
    void *data;
    size_t count;
    size_t item; /* bytes of one element */
    int dtype;   /* a weft_dtype, or WFP_NO_DTYPE: bytes without arithmetic */
    bool has_view;
    PyObject *owner; /* holds the memory; NULL while closed */
    PyObject *back;  /* copies the result to the caller's array */
    Py_buffer view;
} wfp_array;

/* Open `object`; 0, or -1 with an exception set and nothing to close. */
int wfp_array_open(wfp_array *array, PyObject *object, unsigned access);

/* Put the result into the caller's array, after it was written. */
int wfp_array_finish(wfp_array *array);

/* Let go of the memory. Does nothing for an array that is not open. */
void wfp_array_close(wfp_array *array);

static inline size_t wfp_array_bytes(const wfp_array *array)
{
    return array->count * array->item;
}

#endif
