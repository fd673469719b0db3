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
#include "base/alloc.h"
#include "base/log.h"
#include "base/num.h"
#include "base/status.h"
#include "mem/device.h"
#include "region/cuda/storage.h"
#include "region/region.h"

/* The driver takes back only what it was given, so each call is remembered. */
typedef struct piece {
    struct piece *next; /* the one before it in memory */
    uint64_t at;
    uint64_t bytes;
} piece;

typedef struct registration {
    wf_region_extra extra;
    pthread_mutex_t lock;
    char *base;
    bool read_only;
    wf_device device;                /* holds a context, so that it lasts */
    wf_device guest[WF_CUDA_GUESTS]; /* others that were told the address */
    uint32_t guests;
    piece *pieces; /* the last one first */
} registration;

static const char registration_kind;

static uint64_t registered_end(const registration *r)
{
    return r->pieces != NULL ? r->pieces->at + r->pieces->bytes : 0;
}

/* Bytes from the base on that can be touched: up to the end of the last row,
 * whole pages. */
static uint64_t usable_end(const weft_region *region)
{
    const wf_partition *part = &region->part;
    uint64_t end = 0;
    wf_range range;

    for (uint32_t rank = 0; rank < part->ranks; rank++) {
        uint32_t count = wf_partition_ranges(part, rank);

        for (uint32_t i = 0; i < count; i++) {
            if (wf_partition_range(part, rank, i, &range) && range.rows > 0) {
                uint64_t until = range.at + range.rows * part->pitch;

                end = until > end ? until : end;
            }
        }
    }
    return wf_round_up(end, part->granule);
}

/* No device of this process uses the region any more. */
static void wait_for_devices(const registration *r)
{
    wf_device_wait(&r->device);
    for (uint32_t i = 0; i < r->guests; i++) {
        wf_device_wait(&r->guest[i]);
    }
}

/* The functions below run in the context of r->device, under the lock. */

static weft_status piece_add(registration *r, uint64_t at, uint64_t bytes)
{
    const wf_driver *driver = r->device.driver;
    unsigned flags =
        WF_CU_ALL_CONTEXTS | (r->read_only ? WF_CU_REGISTER_READ_ONLY : 0);
    piece *p = wf_alloc(sizeof(*p));
    int error;

    if (p == NULL) {
        return wf_fail_nomem("registering a region");
    }
    error = driver->cuMemHostRegister(r->base + at, bytes, flags);
    if (error != WF_CU_OK) {
        wf_free(p);
        return wf_driver_fail(driver, error,
                              "registering %llu MiB of a host region with CUDA "
                              "device %d%s",
                              (unsigned long long)(bytes >> 20),
                              r->device.number,
                              error == WF_CU_REGISTERED
                                  ? " (it is registered already, not by weft)"
                                  : "");
    }
    *p = (piece){r->pieces, at, bytes};
    r->pieces = p;
    return WEFT_OK;
}

static void piece_drop(registration *r)
{
    piece *p = r->pieces;
    int error = r->device.driver->cuMemHostUnregister(r->base + p->at);

    if (error != WF_CU_OK && !wf_driver_gone(error)) {
        wf_log(WEFT_LOG_WARN, "CUDA error %d in unregistering a region", error);
    }
    r->pieces = p->next;
    wf_free(p);
}

/* Register exactly the bytes before `end`. */
static weft_status register_until(registration *r, uint64_t end)
{
    uint64_t from;

    if (registered_end(r) > end) {
        wait_for_devices(r);
    }
    while (registered_end(r) > end) {
        piece_drop(r);
    }
    from = registered_end(r);
    return from < end ? piece_add(r, from, end - from) : WEFT_OK;
}

/* --- with the region ----------------------------------------------------- */

static void registration_resized(wf_region_extra *extra, weft_region *region)
{
    registration *r = (registration *)extra;
    weft_status st;

    pthread_mutex_lock(&r->lock);
    st = wf_device_enter(&r->device);
    if (st == WEFT_OK) {
        st = register_until(r, usable_end(region));
        wf_device_leave(&r->device);
    }
    if (st != WEFT_OK) {
        wf_log(WEFT_LOG_WARN,
               "CUDA devices cannot access all of a region after its resize, "
               "until weft_region_base_on succeeds: %s",
               weft_error_detail());
    }
    pthread_mutex_unlock(&r->lock);
}

static void registration_free(registration *r)
{
    for (uint32_t i = 0; i < r->guests; i++) {
        wf_device_close(&r->guest[i]);
    }
    wf_device_close(&r->device);
    pthread_mutex_destroy(&r->lock);
    wf_free(r);
}

/* A forked child has no registrations; it forgets its parent's. */
static void registration_closing(wf_region_extra *extra, weft_region *region)
{
    registration *r = (registration *)extra;
    bool entered =
        wf_device_ours(&r->device) && wf_device_enter(&r->device) == WEFT_OK;

    (void)region;
    if (r->pieces != NULL) {
        wait_for_devices(r);
    }
    while (r->pieces != NULL) {
        piece *p = r->pieces;

        if (entered) {
            piece_drop(r);
        } else {
            r->pieces = p->next;
            wf_free(p);
        }
    }
    if (entered) {
        wf_device_leave(&r->device);
    }
    registration_free(r);
}

static weft_status registration_make(weft_region *region,
                                     const wf_driver *driver, int number,
                                     registration **out)
{
    registration *r = wf_zalloc(sizeof(*r));
    weft_status st;

    if (r == NULL) {
        return wf_fail_nomem("registering a region");
    }
    st = wf_device_open(driver, number, &r->device);
    if (st != WEFT_OK) {
        wf_free(r);
        return st;
    }
    r->extra = (wf_region_extra){.kind = &registration_kind,
                                 .resized = registration_resized,
                                 .closing = registration_closing};
    pthread_mutex_init(&r->lock, NULL);
    r->base = region->base;
    r->read_only = region->read_only;
    if (!wf_region_keep(region, &r->extra)) {
        /* Another thread was faster. */
        registration_free(r);
        r = (registration *)wf_region_kept(region, &registration_kind);
    }
    *out = r;
    return WEFT_OK;
}

static weft_status ensure_registered(registration *r, uint64_t end)
{
    weft_status st;

    pthread_mutex_lock(&r->lock);
    st = wf_device_enter(&r->device);
    if (st == WEFT_OK) {
        st = register_until(r, end);
        wf_device_leave(&r->device);
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* Tensors on both sides are to have one address. */
static weft_status check_address(const registration *r, const wf_device *device)
{
    const wf_driver *driver = r->device.driver;
    wf_cu_address seen = 0;
    weft_status st = wf_device_enter(device);
    int error;

    if (st != WEFT_OK) {
        return st;
    }
    error = driver->cuMemHostGetDevicePointer(&seen, r->base, 0);
    wf_device_leave(device);
    if (error != WF_CU_OK) {
        return wf_driver_fail(driver, error,
                              "the address of a host region on CUDA device %d",
                              device->number);
    }
    return seen == (uintptr_t)r->base
               ? WEFT_OK
               : wf_fail(WEFT_ERR_UNSUPPORTED,
                         "CUDA device %d maps a host region at another address "
                         "than the CPU",
                         device->number);
}

static const wf_device *find_user(const registration *r, int number)
{
    for (uint32_t i = 0; i < r->guests; i++) {
        if (r->guest[i].number == number) {
            return &r->guest[i];
        }
    }
    return number == r->device.number ? &r->device : NULL;
}

static weft_status admit_guest(registration *r, int number)
{
    wf_device guest = {0};
    weft_status st;

    if (r->guests == WF_CUDA_GUESTS) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "more than %d CUDA devices use a region",
                       WF_CUDA_GUESTS);
    }
    st = wf_device_open(r->device.driver, number, &guest);
    if (st == WEFT_OK) {
        st = check_address(r, &guest);
        if (st == WEFT_OK) {
            r->guest[r->guests++] = guest;
        } else {
            wf_device_close(&guest);
        }
    }
    return st;
}

/* Who is told the address is kept, so as to be waited for at the end. */
static weft_status admit(registration *r, int number)
{
    const wf_device *user;
    weft_status st;

    pthread_mutex_lock(&r->lock);
    user = find_user(r, number);
    st = user != NULL ? check_address(r, user) : admit_guest(r, number);
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* Let `device` (-1: as in the options) use a mapped host region. */
static weft_status register_for(weft_region *region, int32_t device)
{
    registration *r =
        (registration *)wf_region_kept(region, &registration_kind);
    uint64_t end = usable_end(region);
    const wf_driver *driver = NULL;
    int number = 0;
    weft_status st =
        wf_driver_open(region->world->settings.cuda_driver, &driver);

    if (st == WEFT_OK) {
        st = wf_device_choose(driver, device, region->spec.local, &number);
    }
    if (st == WEFT_OK && r == NULL) {
        st = registration_make(region, driver, number, &r);
    }
    if (st == WEFT_OK && end > 0) {
        st = ensure_registered(r, end);
        st = st == WEFT_OK ? admit(r, number) : st;
    }
    return st;
}

void *weft_region_base_on(weft_region *region, int32_t device)
{
    weft_status st;

    if (region == NULL) {
        wf_fail(WEFT_ERR_INVALID, "the region is NULL");
        return NULL;
    }
    if (!region->mapped) {
        wf_fail(WEFT_ERR_UNSUPPORTED,
                "parts of the region are not mapped here: it has no base");
        return NULL;
    }
    st = region->place == WEFT_CUDA ? wf_cuda_grant(region->store, device)
                                    : register_for(region, device);
    return st == WEFT_OK ? region->base : NULL;
}
