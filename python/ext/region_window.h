/* SPDX-License-Identifier: Apache-2.0 */
/* weft.Window: a range of shared memory that other libraries make arrays on. */
#ifndef WFP_REGION_WINDOW_H
#define WFP_REGION_WINDOW_H

#include "dlpack.h"
#include "region_hold.h"

/* `bytes` at `at`, as a device of DLPack (WFP_DL_CPU or WFP_DL_CUDA) sees them.
 * Counts on the hold for itself. NULL with an exception set. */
PyObject *wfp_window_new(wfp_hold *hold, void *at, size_t bytes, bool readonly,
                         int32_t device_type, int32_t device_id);

#endif
