/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries of our own that are loaded on demand, because they need foreign
 * ones: kernels for GPUs, transports of a network. */
#ifndef WF_BASE_LIBRARY_H
#define WF_BASE_LIBRARY_H

#include <weft/status.h>

/* Find `symbol` in the library `file`, which lies in the folder that libweft is
 * in, unless it is a path; or, if the user has named one (not NULL, "" or
 * "auto"), in `named`, wherever the loader finds that. The library stays open.
 * WEFT_ERR_UNSUPPORTED if it cannot be opened or has no such symbol. */
weft_status wf_library_find(const char *named, const char *file,
                            const char *symbol, const void **out);

#endif
