/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy arrays, bytearray, memoryview, array.array: the buffer protocol. */
#ifndef WFP_BUFFER_H
#define WFP_BUFFER_H

#include "array.h"

/* Open an object that has the buffer protocol. */
wfp_opened wfp_buffer_open(wfp_array *array, PyObject *object, unsigned access);

#endif
