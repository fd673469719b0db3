/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy arrays, bytearray, memoryview, array.array: the buffer protocol. */
#ifndef WFP_BUFFER_H
#define WFP_BUFFER_H

#include "array.h"

/* The weft_dtype of elements of `item` bytes with this format, or WFP_NO_DTYPE;
 * false for a format that only weft._arrays may know. */
bool wfp_buffer_dtype(const char *format, Py_ssize_t item, int *dtype);

/* Open an object that has the buffer protocol. */
wfp_opened wfp_buffer_open(wfp_array *array, PyObject *object, unsigned access);

#endif
