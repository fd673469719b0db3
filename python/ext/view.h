/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WFP_VIEW_H
#define WFP_VIEW_H

#include "core.h"

/* A text of any length as a str: `fn` writes at most `room` bytes of it and
 * returns how long it is, which may change between two calls. */
PyObject *wfp_text_of(size_t (*fn)(void *ctx, char *text, size_t room),
                      void *ctx);

extern PyMethodDef wfp_view_functions[];

#endif
