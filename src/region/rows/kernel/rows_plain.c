/* SPDX-License-Identifier: Apache-2.0 */
/* The row kernels for every CPU of the kind that we are compiled for. */
#include "region/rows/kernel/rows.h"

#define WF_VEC_BYTES 16
#define WF_ROW_KERNELS wf_row_kernels_plain

#include "region/rows/kernel/level.h"
