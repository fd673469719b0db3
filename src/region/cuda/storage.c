/* SPDX-License-Identifier: Apache-2.0 */
#include "region/cuda/storage.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "region/cuda/state.h"

static wf_cu_prop prop_on(int device)
{
    return (wf_cu_prop){.type = WF_CU_PINNED,
                        .handle_types = WF_CU_POSIX_FD,
                        .location = {WF_CU_LOCATION_DEVICE, device}};
}

void wf_cuda_gave_back(int error, const char *what)
{
    if (error != WF_CU_OK && !wf_driver_gone(error)) {
        wf_log(WEFT_LOG_WARN, "CUDA error %d in releasing %s", error, what);
    }
}

/* --- opening ------------------------------------------------------------- */

static weft_status find_device(const wf_storage_spec *spec,
                               const wf_driver **driver, int *number)
{
    weft_status st = wf_driver_open(spec->driver, driver);

    return st == WEFT_OK
               ? wf_device_choose(*driver, spec->device, spec->local, number)
               : st;
}

static weft_status cuda_granule(const wf_storage_spec *spec, uint64_t *out)
{
    const wf_driver *driver = NULL;
    wf_cu_prop prop;
    size_t unit = 0;
    int number = 0;
    int handle = 0;
    int error;
    weft_status st = find_device(spec, &driver, &number);

    if (st != WEFT_OK) {
        return st;
    }
    error = driver->cuDeviceGet(&handle, number);
    if (error == WF_CU_OK) {
        prop = prop_on(handle);
        error = driver->cuMemGetAllocationGranularity(&unit, &prop,
                                                      WF_CU_RECOMMENDED);
    }
    if (error != WF_CU_OK) {
        return wf_driver_fail(driver, error, "querying CUDA device %d", number);
    }
    if (unit == 0 || (unit & (unit - 1)) != 0) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "the allocation granularity of CUDA device %d, %zu "
                       "bytes, is not a power of two",
                       number, unit);
    }
    *out = unit;
    return WEFT_OK;
}

static weft_status cuda_open(const wf_storage_spec *spec, uint64_t reserve,
                             void **base, void **state)
{
    const wf_driver *driver = NULL;
    int number = 0;
    weft_status st = find_device(spec, &driver, &number);
    wf_cuda_state *s;
    int error;

    if (st != WEFT_OK) {
        return st;
    }
    s = wf_zalloc(sizeof(*s));
    if (s == NULL) {
        return wf_fail_nomem("%s", spec->what);
    }
    st = wf_device_open(driver, number, &s->device);
    if (st != WEFT_OK) {
        goto free_state;
    }
    error = driver->cuMemAddressReserve(&s->base, reserve, spec->granule, 0, 0);
    if (error != WF_CU_OK) {
        st = wf_driver_fail(driver, error,
                            "%s: reserving %llu MiB of addresses of CUDA "
                            "device %d",
                            spec->what, (unsigned long long)(reserve >> 20),
                            number);
        goto close_device;
    }
    pthread_mutex_init(&s->lock, NULL);
    s->driver = driver;
    s->reserve = reserve;
    s->granule = spec->granule;
    s->alone = spec->alone;
    *base = (void *)(uintptr_t)s->base;
    *state = s;
    return WEFT_OK;

close_device:
    wf_device_close(&s->device);
free_state:
    wf_free(s);
    return st;
}

int wf_cuda_device_of(const void *state)
{
    return ((const wf_cuda_state *)state)->device.number;
}

/* --- objects ------------------------------------------------------------- */

static void object_end(wf_cuda_state *s, wf_cuda_object *o)
{
    if (o->mapped) {
        wf_cuda_gave_back(s->driver->cuMemUnmap(s->base + o->at, o->bytes),
                          "a mapping");
    }
    wf_cuda_gave_back(s->driver->cuMemRelease(o->handle), "memory");
    wf_free(o);
}

void wf_cuda_wait(const wf_cuda_state *s)
{
    wf_device_wait(&s->device);
    for (uint32_t i = 0; i < s->guests; i++) {
        wf_device_wait(&s->guest[i]);
    }
}

static void object_list(wf_cuda_state *s, wf_cuda_object *o)
{
    wf_cuda_object **at = &s->objects;

    while (*at != NULL && (*at)->at < o->at) {
        at = &(*at)->next;
    }
    o->next = *at;
    *at = o;
}

/* Map it for this rank's devices. Takes the handle over, also on failure. */
static weft_status object_add(wf_cuda_state *s, wf_cuda_object o)
{
    wf_cuda_object *kept = wf_alloc(sizeof(*kept));
    weft_status st = WEFT_OK;
    int error;

    if (kept == NULL) {
        wf_cuda_gave_back(s->driver->cuMemRelease(o.handle), "memory");
        return wf_fail_nomem("a part of a region");
    }
    error = s->driver->cuMemMap(s->base + o.at, o.bytes, 0, o.handle, 0);
    if (error == WF_CU_OK) {
        o.mapped = true;
        st = wf_cuda_grant_all(s, s->base, &o, WF_CU_READWRITE);
    } else {
        st = wf_driver_fail(s->driver, error, "mapping %llu MiB of CUDA memory",
                            (unsigned long long)(o.bytes >> 20));
    }
    o.usable = true;
    *kept = o;
    if (st != WEFT_OK) {
        object_end(s, kept);
        return st;
    }
    object_list(s, kept);
    return WEFT_OK;
}

static weft_status check_range(const wf_cuda_state *s, uint64_t at,
                               uint64_t bytes)
{
    bool inside = bytes > 0 && bytes <= s->reserve &&
                  at <= s->reserve - bytes && at % s->granule == 0 &&
                  bytes % s->granule == 0;

    return inside ? WEFT_OK
                  : wf_fail(WEFT_ERR_INVALID,
                            "%llu bytes at %llu are not whole granules of a "
                            "CUDA range of %llu",
                            (unsigned long long)bytes, (unsigned long long)at,
                            (unsigned long long)s->reserve);
}

/* Asked on the device, whose context is current. */
static weft_status fail_to_allocate(const wf_cuda_state *s, int error,
                                    uint64_t bytes)
{
    size_t left = 0;
    size_t total = 0;

    if (error != WF_CU_NO_MEMORY ||
        s->driver->cuMemGetInfo(&left, &total) != WF_CU_OK) {
        return wf_driver_fail(
            s->driver, error, "allocating %llu MiB of CUDA device %d",
            (unsigned long long)(bytes >> 20), s->device.number);
    }
    return wf_fail(WEFT_ERR_NOMEM,
                   "this part of the region needs %.1f MiB of CUDA device %d, "
                   "of which %.1f of %.1f MiB are free",
                   (double)bytes / 1048576, s->device.number,
                   (double)left / 1048576, (double)total / 1048576);
}

/* Zero, whatever was there: the driver does not promise it. Returns when it is
 * so; on the calling thread's own stream, so as not to wait for the caller's
 * other work. */
static weft_status zero_locked(const wf_cuda_state *s, uint64_t at,
                               uint64_t bytes)
{
    int error = s->driver->cuMemsetD8Async(s->base + at, 0, bytes,
                                           WF_CU_STREAM_PER_THREAD);

    if (error == WF_CU_OK) {
        error = s->driver->cuStreamSynchronize(WF_CU_STREAM_PER_THREAD);
    }
    return error == WF_CU_OK
               ? WEFT_OK
               : wf_driver_fail(
                     s->driver, error, "clearing %llu MiB of CUDA device %d",
                     (unsigned long long)(bytes >> 20), s->device.number);
}

static weft_status export_locked(const wf_cuda_state *s, wf_cu_handle handle,
                                 int *fd)
{
    int error;

    *fd = -1;
    if (s->alone) {
        return WEFT_OK;
    }
    error =
        s->driver->cuMemExportToShareableHandle(fd, handle, WF_CU_POSIX_FD, 0);
    return error == WF_CU_OK
               ? WEFT_OK
               : wf_driver_fail(s->driver, error,
                                "a descriptor of memory of CUDA device %d",
                                s->device.number);
}

/* Unmap the objects that begin at or behind `at`. */
static void truncate_locked(wf_cuda_state *s, uint64_t at)
{
    wf_cuda_object **p = &s->objects;

    while (*p != NULL && (*p)->at < at) {
        p = &(*p)->next;
    }
    if (*p != NULL) {
        wf_cuda_wait(s);
    }
    while (*p != NULL) {
        wf_cuda_object *o = *p;

        *p = o->next;
        object_end(s, o);
    }
}

static void object_drop(wf_cuda_state *s, uint64_t at)
{
    for (wf_cuda_object **p = &s->objects; *p != NULL; p = &(*p)->next) {
        wf_cuda_object *o = *p;

        if (o->at == at) {
            *p = o->next;
            object_end(s, o);
            return;
        }
    }
}

static weft_status create_locked(wf_cuda_state *s, uint64_t at, uint64_t bytes,
                                 int *fd)
{
    wf_cu_prop prop = prop_on(s->device.handle);
    wf_cuda_object o = {.at = at, .bytes = bytes, .owner = s->device.handle};
    int error = s->driver->cuMemCreate(&o.handle, bytes, &prop, 0);
    weft_status st;

    if (error != WF_CU_OK) {
        return fail_to_allocate(s, error, bytes);
    }
    st = object_add(s, o);
    if (st != WEFT_OK) {
        return st;
    }
    st = zero_locked(s, at, bytes);
    if (st == WEFT_OK) {
        st = export_locked(s, o.handle, fd);
    }
    if (st != WEFT_OK) {
        object_drop(s, at);
    }
    return st;
}

static weft_status cuda_create(void *state, uint64_t at, uint64_t bytes,
                               int *fd)
{
    wf_cuda_state *s = state;
    weft_status st = check_range(s, at, bytes);

    if (st == WEFT_OK) {
        st = wf_device_enter(&s->device);
    }
    if (st != WEFT_OK) {
        return st;
    }
    pthread_mutex_lock(&s->lock);
    st = create_locked(s, at, bytes, fd);
    pthread_mutex_unlock(&s->lock);
    wf_device_leave(&s->device);
    return st;
}

/* The descriptor came from another process: that it is CUDA memory, and of this
 * size, is for the driver to find out in importing and mapping it. */
static weft_status attach_locked(wf_cuda_state *s, uint64_t at, uint64_t bytes,
                                 int fd)
{
    wf_cuda_object o = {.at = at, .bytes = bytes};
    wf_cu_prop prop;
    int error = s->driver->cuMemImportFromShareableHandle(
        &o.handle, (void *)(intptr_t)fd, WF_CU_POSIX_FD);

    if (error != WF_CU_OK) {
        weft_status st =
            wf_driver_fail(s->driver, error,
                           "importing %llu MiB of another rank's CUDA memory",
                           (unsigned long long)(bytes >> 20));

        return st == WEFT_ERR_INVALID ? WEFT_ERR_PROTOCOL : st;
    }
    error = s->driver->cuMemGetAllocationPropertiesFromHandle(&prop, o.handle);
    if (error != WF_CU_OK) {
        wf_cuda_gave_back(s->driver->cuMemRelease(o.handle), "memory");
        return wf_driver_fail(s->driver, error,
                              "querying another rank's CUDA memory");
    }
    o.owner = prop.location.id;
    return object_add(s, o);
}

static weft_status cuda_attach(void *state, uint64_t at, uint64_t bytes, int fd)
{
    wf_cuda_state *s = state;
    weft_status st = check_range(s, at, bytes);

    if (st == WEFT_OK) {
        st = wf_device_enter(&s->device);
    }
    if (st == WEFT_OK) {
        pthread_mutex_lock(&s->lock);
        st = attach_locked(s, at, bytes, fd);
        pthread_mutex_unlock(&s->lock);
        wf_device_leave(&s->device);
    }
    close(fd);
    return st;
}

/* create has allocated them, and discard has cleared those that come back. */
static weft_status cuda_commit(void *state, uint64_t at, uint64_t bytes)
{
    return check_range(state, at, bytes);
}

/* An object that was closed is opened for a moment: to touch what is not
 * granted would cost the process its context. */
static weft_status clear_in(wf_cuda_state *s, wf_cuda_object *o, uint64_t at,
                            uint64_t bytes)
{
    weft_status st = WEFT_OK;

    if (!o->usable) {
        st = wf_cuda_grant_all(s, s->base, o, WF_CU_READWRITE);
    }
    if (st == WEFT_OK) {
        st = zero_locked(s, at, bytes);
    }
    if (!o->usable && st == WEFT_OK) {
        st = wf_cuda_grant_all(s, s->base, o, 0);
    }
    return st;
}

static weft_status clear_range(wf_cuda_state *s, uint64_t at, uint64_t end)
{
    weft_status st = WEFT_OK;

    for (wf_cuda_object *o = s->objects; o != NULL && st == WEFT_OK;
         o = o->next) {
        uint64_t from = o->at > at ? o->at : at;
        uint64_t until = o->at + o->bytes < end ? o->at + o->bytes : end;

        if (from < until) {
            st = clear_in(s, o, from, until - from);
        }
    }
    return st;
}

static void cuda_discard(void *state, uint64_t at, uint64_t bytes)
{
    wf_cuda_state *s = state;
    weft_status st = wf_device_enter(&s->device);

    if (st == WEFT_OK) {
        pthread_mutex_lock(&s->lock);
        st = clear_range(s, at, at + bytes);
        pthread_mutex_unlock(&s->lock);
        wf_device_leave(&s->device);
    }
    if (st != WEFT_OK) {
        wf_log(WEFT_LOG_ERROR, "rows that were cut off are not cleared: %s",
               weft_error_detail());
    }
}

static void cuda_truncate(void *state, uint64_t at)
{
    wf_cuda_state *s = state;

    if (wf_device_ours(&s->device)) {
        pthread_mutex_lock(&s->lock);
        truncate_locked(s, at);
        pthread_mutex_unlock(&s->lock);
    }
}

/* --- the end ------------------------------------------------------------- */

/* A forked child has nothing of the driver's to give back, only our own. */
static void forget_objects(wf_cuda_state *s)
{
    while (s->objects != NULL) {
        wf_cuda_object *o = s->objects;

        s->objects = o->next;
        wf_free(o);
    }
}

static void cuda_close(void *state)
{
    wf_cuda_state *s = state;

    if (s == NULL) {
        return;
    }
    while (s->views != NULL) {
        wf_cuda_view_end(s, (void *)(uintptr_t)s->views->base, 0);
    }
    if (wf_device_ours(&s->device)) {
        truncate_locked(s, 0);
        wf_cuda_gave_back(s->driver->cuMemAddressFree(s->base, s->reserve),
                          "addresses");
    } else {
        forget_objects(s);
    }
    for (uint32_t i = 0; i < s->guests; i++) {
        wf_device_close(&s->guest[i]);
    }
    wf_device_close(&s->device);
    pthread_mutex_destroy(&s->lock);
    wf_free(s);
}

const wf_storage wf_storage_cuda = {
    .name = "cuda",
    .place = WEFT_CUDA,
    .whole = false,
    .granule = cuda_granule,
    .open = cuda_open,
    .create = cuda_create,
    .attach = cuda_attach,
    .commit = cuda_commit,
    .access = wf_cuda_access,
    .discard = cuda_discard,
    .truncate = cuda_truncate,
    .view = wf_cuda_view_make,
    .unview = wf_cuda_view_end,
    .close = cuda_close,
};
