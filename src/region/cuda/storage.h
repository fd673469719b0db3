/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA memory of a region: further functions of the storage wf_storage_cuda.
 *
 * Each rank that backs granules makes one allocation for them on its own
 * device, exports a descriptor, and maps all that it has, own and imported, at
 * the same offsets of one range of addresses. Access is granted to the rank's
 * own device, and to others of this process when they are asked for.
 *
 * The driver counts references to an allocation. When its maker dies the others
 * keep it, and it is freed with the last reference, in any order and however
 * the processes end. Before a rank unmaps addresses it waits for its own
 * devices, so that no kernel loses memory that it is working on. */
#ifndef WF_REGION_CUDA_STORAGE_H
#define WF_REGION_CUDA_STORAGE_H

#include "region/storage.h"

/* Devices of one process that can use a region. */
#define WF_CUDA_GUESTS 64

/* The number of the device that the storage is on. */
int wf_cuda_device_of(const void *state);

/* Let `device` (-1: the current one, else the storage's own) read and write
 * all of the range, now and after growth. WEFT_ERR_UNSUPPORTED names the
 * devices that cannot reach each other. */
weft_status wf_cuda_grant(void *state, int32_t device);

#endif
