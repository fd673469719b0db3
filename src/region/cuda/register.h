/* SPDX-License-Identifier: Apache-2.0 */
/* Host regions as CUDA devices see them: weft_region_base_on.
 *
 * The mapping of this process is registered with the driver on first use, for
 * all devices at once, until the region is freed; it then has one address for
 * CPU and devices, which is checked. Pages are pinned only then, so a region
 * that no GPU reads costs nothing more.
 *
 * Growth registers the new rows only. Shrinking registers the remaining rows
 * again: no device may be working on the region then. */
#ifndef WF_REGION_CUDA_REGISTER_H
#define WF_REGION_CUDA_REGISTER_H

#include "region/region.h"

/* Let `device` (-1: as in the options) use a mapped host region. */
weft_status wf_region_register(weft_region *region, int32_t device);

#endif
