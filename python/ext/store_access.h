/* SPDX-License-Identifier: Apache-2.0 */
/* What pulling rows and pulling samples have in common. */
#ifndef WFP_STORE_ACCESS_H
#define WFP_STORE_ACCESS_H

#include "request.h"
#include "store.h"

/* Values of the store's type, in any shape, as wfp_array_open. */
int wfp_values_open(wfp_array *values, PyObject *object, const char *name,
                    weft_dtype type, unsigned access);

/* The library was asked to start it: a Request, which is over if the library
 * gave none, or NULL with the reason raised. Takes the operation over. */
PyObject *wfp_access_started(wfp_operation *operation, weft_status status);

#endif
