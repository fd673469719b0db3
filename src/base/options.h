/* SPDX-License-Identifier: Apache-2.0 */
/* Structs that callers fill in and that grow from version to version. Each
 * begins with its own size, as the caller's compiler saw it:
 *
 *   shorter   the program is older: the fields that it lacks are zero (default)
 *   longer    the program is newer: the fields that we lack must be zero */
#ifndef WF_BASE_OPTIONS_H
#define WF_BASE_OPTIONS_H

#include <stddef.h>
#include <weft/status.h>

/* Copy the caller's struct into `out`, of `bytes`, as this version knows it.
 * NULL gives all defaults. WEFT_ERR_INVALID if the size cannot be right,
 * WEFT_ERR_UNSUPPORTED if something is set that this version does not know;
 * `name` is the struct's. `out` is always written. */
weft_status wf_options_read(const void *given, const char *name, void *out,
                            size_t bytes);

#endif
