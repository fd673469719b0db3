/* SPDX-License-Identifier: Apache-2.0 */
/* The state of CUDA storage, for the files of this folder. */
#ifndef WF_REGION_CUDA_STATE_H
#define WF_REGION_CUDA_STATE_H

#include <pthread.h>

#include "mem/device.h"
#include "region/cuda/storage.h"

/* One allocation, ours or imported. Its handle is kept so that it can be
 * mapped once more, for a view. */
typedef struct wf_cuda_object {
    struct wf_cuda_object *next; /* by rising offset */
    uint64_t at;
    uint64_t bytes;
    wf_cu_handle handle;
    int owner; /* the device that it is on */
    bool mapped;
    bool usable; /* the devices may touch it */
} wf_cuda_object;

typedef struct wf_cuda_view {
    struct wf_cuda_view *next;
    wf_cu_address base;
    uint64_t bytes;
    wf_cuda_object *objects; /* copies, whose handles are not theirs */
} wf_cuda_view;

typedef struct wf_cuda_state {
    pthread_mutex_t lock; /* guests, objects, views */
    const wf_driver *driver;
    wf_device device;                /* where the own objects are */
    wf_device guest[WF_CUDA_GUESTS]; /* others that may use the range */
    uint32_t guests;
    wf_cu_address base;
    uint64_t reserve;
    uint64_t granule;
    bool alone;
    wf_cuda_object *objects;
    wf_cuda_view *views;
} wf_cuda_state;

/* Log an error of a release, except that the driver has shut down. */
void wf_cuda_gave_back(int error, const char *what);

/* Wait until no device of this process uses the range. Under the lock. */
void wf_cuda_wait(const wf_cuda_state *s);

/* Let the own device and all guests do `access` with an object that is mapped
 * at `base` + its offset. Under the lock. */
weft_status wf_cuda_grant_all(const wf_cuda_state *s, wf_cu_address base,
                              const wf_cuda_object *o, int access);

/* Functions of the storage that have a file of their own. */
weft_status wf_cuda_access(void *state, uint64_t end);
weft_status wf_cuda_view_make(void *state, uint64_t bytes, void **out);
void wf_cuda_view_end(void *state, void *view, uint64_t bytes);

#endif
