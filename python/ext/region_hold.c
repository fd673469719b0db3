/* SPDX-License-Identifier: Apache-2.0 */
#include "region_hold.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static wfp_hold *holds; /* changed under the GIL only */

/* The mappings themselves have gone with the region. */
static void hold_free_views(wfp_hold *hold)
{
    while (hold->views != NULL) {
        wfp_view *next = hold->views->next;

        PyMem_Free(hold->views);
        hold->views = next;
    }
}

/* Free what is left of holds whose memory is gone. */
static void hold_sweep(void)
{
    wfp_hold **link = &holds;
    wfp_hold *over = NULL;

    while (*link != NULL) {
        wfp_hold *hold = *link;

        if (atomic_load_explicit(&hold->gone, memory_order_acquire)) {
            *link = hold->next;
            hold->next = over;
            over = hold;
        } else {
            link = &hold->next;
        }
    }
    /* Dropping an object runs its destructor, which may come back here, so the
     * list is whole again before the first. */
    while (over != NULL) {
        wfp_hold *next = over->next;

        hold_free_views(over);
        Py_XDECREF(over->facts);
        Py_XDECREF((PyObject *)over->world);
        PyMem_Free(over);
        over = next;
    }
}

static wfp_hold *hold_new(void)
{
    wfp_hold *hold;

    hold_sweep();
    hold = PyMem_Calloc(1, sizeof(*hold));
    if (hold == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    atomic_init(&hold->count, 1);
    atomic_init(&hold->gone, false);
    hold->next = holds;
    holds = hold;
    return hold;
}

wfp_hold *wfp_hold_region(weft_region *region, wfp_world *world)
{
    wfp_hold *hold = hold_new();

    if (hold == NULL) {
        weft_region_destroy(region);
        return NULL;
    }
    hold->region = region;
    hold->world = (wfp_world *)Py_XNewRef((PyObject *)world);
    return hold;
}

/* Map it, if there is that much of it: memory beyond the end of a file would be
 * a bus error later. */
static void *hold_map(int fd, uint64_t offset, size_t bytes, bool writable)
{
    struct stat stat;
    void *at;

    if (fstat(fd, &stat) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return NULL;
    }
    if (stat.st_size < 0 || offset > (uint64_t)stat.st_size ||
        bytes > (uint64_t)stat.st_size - offset) {
        wfp_fail(WEFT_ERR_INVALID,
                 "the shared memory has %lld bytes, too few for %zu from byte "
                 "%llu on",
                 (long long)stat.st_size, bytes, (unsigned long long)offset);
        return NULL;
    }
    at = mmap(NULL, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED,
              fd, (off_t)offset);
    if (at == MAP_FAILED) {
        PyErr_SetFromErrno(PyExc_OSError);
        return NULL;
    }
    return at;
}

wfp_hold *wfp_hold_attach(int fd, uint64_t offset, size_t bytes, bool writable)
{
    void *at = hold_map(fd, offset, bytes, writable);
    wfp_hold *hold = at == NULL ? NULL : hold_new();

    if (hold == NULL) {
        if (at != NULL) {
            munmap(at, bytes);
        }
        close(fd);
        return NULL;
    }
    hold->at = at;
    hold->bytes = bytes;
    hold->fd = fd;
    hold->offset = offset;
    hold->writable = writable;
    return hold;
}

/* Count once more what nobody may be letting go of at this moment. */
static bool hold_try_retain(wfp_hold *hold)
{
    size_t count = atomic_load_explicit(&hold->count, memory_order_relaxed);

    while (count != 0) {
        if (atomic_compare_exchange_weak_explicit(
                &hold->count, &count, count + 1, memory_order_relaxed,
                memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

static wfp_hold *hold_of_region(const weft_region *region)
{
    for (wfp_hold *hold = holds; hold != NULL; hold = hold->next) {
        if (hold->region == region && hold_try_retain(hold)) {
            return hold;
        }
    }
    return NULL;
}

/* Attached memory: the library does not know it. */
static wfp_hold *hold_of_mapping(uintptr_t address)
{
    for (wfp_hold *hold = holds; hold != NULL; hold = hold->next) {
        if (hold->region == NULL &&
            address - (uintptr_t)hold->at < hold->bytes &&
            hold_try_retain(hold)) {
            return hold;
        }
    }
    return NULL;
}

wfp_hold *wfp_hold_find(const void *address)
{
    weft_region *region = weft_region_find(address);
    wfp_hold *hold;

    if (region == NULL) {
        return hold_of_mapping((uintptr_t)address);
    }
    hold = hold_of_region(region);
    if (hold == NULL) { /* made by C code of somebody else */
        return wfp_hold_region(region, NULL);
    }
    weft_region_destroy(region); /* the hold has it already */
    return hold;
}

void wfp_hold_retain(wfp_hold *hold)
{
    atomic_fetch_add_explicit(&hold->count, 1, memory_order_relaxed);
}

void wfp_hold_release(wfp_hold *hold)
{
    weft_region *region = hold->region;
    void *at = hold->at;
    size_t bytes = hold->bytes;
    int fd = hold->fd;

    if (atomic_fetch_sub_explicit(&hold->count, 1, memory_order_acq_rel) != 1) {
        return;
    }
    /* From here on a sweep may free it. The pointer to the region can be that
     * of a new one only later, so no look-up takes one for the other. */
    atomic_store_explicit(&hold->gone, true, memory_order_release);
    if (region != NULL) {
        weft_region_destroy(region);
    } else {
        munmap(at, bytes);
        close(fd);
    }
}

weft_region *wfp_hold_get(const wfp_hold *hold)
{
    if (hold->region == NULL) {
        wfp_fail(WEFT_ERR_UNSUPPORTED,
                 "this process only attached to the memory and is no rank of "
                 "the region");
    }
    return hold->region;
}

int wfp_hold_enter(wfp_hold *hold)
{
    if (wfp_hold_get(hold) == NULL) {
        return -1;
    }
    if (hold->world != NULL) {
        if (hold->world->world == NULL) {
            return wfp_world_unusable(hold->world);
        }
        hold->world->busy++;
    }
    return 0;
}

void wfp_hold_leave(wfp_hold *hold)
{
    if (hold->world != NULL) {
        hold->world->busy--;
    }
}

weft_status wfp_hold_readonly(wfp_hold *hold, char **out)
{
    weft_region_info info;
    void *at = NULL;
    wfp_view *view = hold->views;
    weft_status status;

    weft_region_describe(hold->region, &info);
    if (view == NULL || view->rows != info.shape[0]) {
        view = PyMem_Malloc(sizeof(*view));
        if (view == NULL) {
            return WEFT_ERR_NOMEM;
        }
        status = weft_region_view_readonly(hold->region, &at);
        if (status != WEFT_OK) {
            PyMem_Free(view);
            return status;
        }
        *view = (wfp_view){at, info.shape[0], info.shape[0] * info.row_pitch,
                           hold->views};
        hold->views = view;
    }
    *out = view->at;
    return WEFT_OK;
}

const wfp_view *wfp_hold_view(const wfp_hold *hold, const void *address)
{
    for (const wfp_view *v = hold->views; v != NULL; v = v->next) {
        if ((uintptr_t)address - (uintptr_t)v->at < v->bytes) {
            return v;
        }
    }
    return NULL;
}
