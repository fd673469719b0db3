/* SPDX-License-Identifier: Apache-2.0 */
/* Read-only views of CUDA memory: the same objects in a second range, which is
 * granted for reading only. */
#include "base/alloc.h"
#include "base/status.h"
#include "region/cuda/state.h"

/* A forked child has nothing of the driver's to give back, only our own. */
static void view_free(const wf_cuda_state *s, wf_cuda_view *v)
{
    bool ours = wf_device_ours(&s->device);

    wf_cuda_wait(s);
    while (v->objects != NULL) {
        wf_cuda_object *o = v->objects;

        v->objects = o->next;
        if (ours) {
            wf_cuda_gave_back(s->driver->cuMemUnmap(v->base + o->at, o->bytes),
                              "a mapping of a view");
        }
        wf_free(o);
    }
    if (ours) {
        wf_cuda_gave_back(s->driver->cuMemAddressFree(v->base, v->bytes),
                          "addresses of a view");
    }
    wf_free(v);
}

static weft_status view_map(wf_cuda_state *s, wf_cuda_view *v,
                            const wf_cuda_object *o)
{
    wf_cuda_object *copy = wf_alloc(sizeof(*copy));
    int error;

    if (copy == NULL) {
        return wf_fail_nomem("a view of a region");
    }
    error = s->driver->cuMemMap(v->base + o->at, o->bytes, 0, o->handle, 0);
    if (error != WF_CU_OK) {
        wf_free(copy);
        return wf_driver_fail(s->driver, error, "mapping CUDA memory again");
    }
    *copy = *o;
    copy->next = v->objects;
    v->objects = copy;
    return wf_cuda_grant_all(s, v->base, o, WF_CU_READ);
}

/* Where the last object that has one of the first `bytes` ends. */
static uint64_t view_extent(const wf_cuda_state *s, uint64_t bytes)
{
    uint64_t end = 0;

    for (const wf_cuda_object *o = s->objects; o != NULL && o->at < bytes;
         o = o->next) {
        end = o->at + o->bytes;
    }
    return end;
}

static weft_status view_map_all(wf_cuda_state *s, uint64_t bytes,
                                wf_cuda_view **out)
{
    wf_cuda_view *v = wf_zalloc(sizeof(*v));
    weft_status st = WEFT_OK;
    int error;

    if (v == NULL) {
        return wf_fail_nomem("a view of a region");
    }
    v->bytes = bytes;
    error = s->driver->cuMemAddressReserve(&v->base, bytes, s->granule, 0, 0);
    if (error != WF_CU_OK) {
        wf_free(v);
        return wf_driver_fail(s->driver, error,
                              "reserving addresses for a view");
    }
    for (const wf_cuda_object *o = s->objects;
         o != NULL && o->at < bytes && st == WEFT_OK; o = o->next) {
        st = view_map(s, v, o);
    }
    if (st != WEFT_OK) {
        view_free(s, v);
        return st;
    }
    *out = v;
    return WEFT_OK;
}

weft_status wf_cuda_view_make(void *state, uint64_t bytes, void **out)
{
    wf_cuda_state *s = state;
    weft_status st = wf_device_enter(&s->device);
    wf_cuda_view *v = NULL;

    if (st != WEFT_OK) {
        return st;
    }
    pthread_mutex_lock(&s->lock);
    bytes = view_extent(s, bytes);
    st = bytes > 0 ? view_map_all(s, bytes, &v)
                   : wf_fail(WEFT_ERR_INVALID, "the view is empty");
    if (v != NULL) {
        v->next = s->views;
        s->views = v;
        *out = (void *)(uintptr_t)v->base;
    }
    pthread_mutex_unlock(&s->lock);
    wf_device_leave(&s->device);
    return st;
}

void wf_cuda_view_end(void *state, void *address, uint64_t bytes)
{
    wf_cuda_state *s = state;
    wf_cuda_view **p = &s->views;
    wf_cuda_view *v;

    (void)bytes;
    pthread_mutex_lock(&s->lock);
    while (*p != NULL && (*p)->base != (uintptr_t)address) {
        p = &(*p)->next;
    }
    v = *p;
    if (v != NULL) {
        *p = v->next;
        view_free(s, v);
    }
    pthread_mutex_unlock(&s->lock);
}
