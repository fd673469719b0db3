/* SPDX-License-Identifier: Apache-2.0 */
/* The memory and the addresses of doubled devices. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cuda_double/state.h"

static int double_mem_info(size_t *free_bytes, size_t *total_bytes)
{
    uint64_t limit =
        wf_double.machine.bytes != 0 ? wf_double.machine.bytes : UINT64_MAX;
    uint64_t used;
    int error =
        wf_double_thread.depth > 0 ? wf_double_refuse() : WF_CU_BAD_CONTEXT;

    if (error == WF_CU_OK) {
        used = wf_double_used(
            wf_double.machine.tag,
            wf_double_thread.stack[wf_double_thread.depth - 1]->device);
        *free_bytes = used < limit ? limit - used : 0;
        *total_bytes = limit;
    }
    return error;
}

static bool prop_bad(const wf_cu_prop *prop)
{
    return prop->type != WF_CU_PINNED || prop->handle_types != WF_CU_POSIX_FD ||
           prop->location.type != WF_CU_LOCATION_DEVICE ||
           wf_double_bad_device(prop->location.id);
}

static int double_granularity(size_t *out, const wf_cu_prop *prop, int option)
{
    int error = prop_bad(prop) || option > WF_CU_RECOMMENDED
                    ? WF_CU_INVALID
                    : wf_double_refuse();

    if (error == WF_CU_OK) {
        *out = wf_double.machine.granule;
    }
    return error;
}

/* Fill it: memory of a device may hold anything when it is fresh. */
static bool fill_junk(int fd, size_t bytes)
{
    void *p;

    if (fallocate(fd, 0, 0, (off_t)bytes) != 0) {
        return false;
    }
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) {
        return false;
    }
    memset(p, WF_DOUBLE_JUNK, bytes);
    munmap(p, bytes);
    return true;
}

static int physical_add(int device, size_t bytes, int fd, wf_cu_handle *out)
{
    wf_physical *p = wf_zalloc(sizeof(*p));

    if (p == NULL) {
        close(fd);
        return WF_CU_NO_MEMORY;
    }
    p->device = device;
    p->bytes = bytes;
    p->fd = fd;
    pthread_mutex_lock(&wf_double.lock);
    p->handle = ++wf_double.last_handle;
    p->next = wf_double.physicals;
    wf_double.physicals = p;
    pthread_mutex_unlock(&wf_double.lock);
    *out = p->handle;
    return WF_CU_OK;
}

static wf_physical *physical_find(wf_cu_handle handle)
{
    wf_physical *p = wf_double.physicals;

    while (p != NULL && p->handle != handle) {
        p = p->next;
    }
    return p;
}

/* Whether there is room is asked after the memory was made, under its name, so
 * that two processes cannot both have the last of it. */
static int double_create(wf_cu_handle *out, size_t bytes,
                         const wf_cu_prop *prop, uint64_t flags)
{
    char name[WF_DOUBLE_NAME_MAX];
    int device = prop->location.id;
    int error = wf_double_refuse();
    int fd;

    if (error != WF_CU_OK) {
        return error;
    }
    if (prop_bad(prop) || flags != 0 || bytes == 0 ||
        bytes % wf_double.machine.granule != 0) {
        return WF_CU_INVALID;
    }
    wf_double_name(wf_double.machine.tag, device, bytes, name);
    fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0) {
        return WF_CU_NO_MEMORY;
    }
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        (wf_double.machine.bytes != 0 &&
         wf_double_used(wf_double.machine.tag, device) >
             wf_double.machine.bytes) ||
        !fill_junk(fd, bytes)) {
        close(fd);
        return WF_CU_NO_MEMORY;
    }
    return physical_add(device, bytes, fd, out);
}

static int double_mem_release(wf_cu_handle handle)
{
    wf_physical *gone = NULL;

    if (wf_double.ended) {
        return WF_CU_ENDED;
    }
    pthread_mutex_lock(&wf_double.lock);
    for (wf_physical **p = &wf_double.physicals; *p != NULL; p = &(*p)->next) {
        if ((*p)->handle == handle) {
            gone = *p;
            *p = gone->next;
            break;
        }
    }
    pthread_mutex_unlock(&wf_double.lock);
    if (gone == NULL) {
        return WF_CU_INVALID;
    }
    close(gone->fd);
    wf_free(gone);
    return WF_CU_OK;
}

static int double_export(void *out, wf_cu_handle handle, int type,
                         uint64_t flags)
{
    int error = type == WF_CU_POSIX_FD && flags == 0 ? wf_double_refuse()
                                                     : WF_CU_INVALID;
    int fd = -1;
    wf_physical *p;

    if (error != WF_CU_OK) {
        return error;
    }
    pthread_mutex_lock(&wf_double.lock);
    p = physical_find(handle);
    if (p != NULL) {
        fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0);
    }
    pthread_mutex_unlock(&wf_double.lock);
    if (fd < 0) {
        return WF_CU_INVALID;
    }
    *(int *)out = fd;
    return WF_CU_OK;
}

static int double_import(wf_cu_handle *out, void *os_handle, int type)
{
    int error = type == WF_CU_POSIX_FD ? wf_double_refuse() : WF_CU_INVALID;
    char path[64];
    char name[128];
    uint64_t bytes = 0;
    ssize_t n;
    int device;
    int fd;

    if (error != WF_CU_OK) {
        return error;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", (int)(intptr_t)os_handle);
    n = readlink(path, name, sizeof(name) - 1);
    name[n > 0 ? n : 0] = '\0';
    device = wf_double_name_read(name, wf_double.machine.tag, &bytes);
    if (wf_double_bad_device(device)) {
        return WF_CU_INVALID;
    }
    fd = fcntl((int)(intptr_t)os_handle, F_DUPFD_CLOEXEC, 0);
    return fd < 0 ? WF_CU_NO_MEMORY : physical_add(device, bytes, fd, out);
}

static int double_properties(wf_cu_prop *out, wf_cu_handle handle)
{
    int error = wf_double_refuse();
    const wf_physical *p;

    pthread_mutex_lock(&wf_double.lock);
    p = physical_find(handle);
    if (error == WF_CU_OK && p == NULL) {
        error = WF_CU_INVALID;
    }
    if (error == WF_CU_OK) {
        *out = (wf_cu_prop){.type = WF_CU_PINNED,
                            .handle_types = WF_CU_POSIX_FD,
                            .location = {WF_CU_LOCATION_DEVICE, p->device}};
    }
    pthread_mutex_unlock(&wf_double.lock);
    return error;
}

/* --- addresses ------------------------------------------------------------ */

static int double_reserve(wf_cu_address *out, size_t bytes, size_t align,
                          wf_cu_address wish, uint64_t flags)
{
    size_t unit =
        align > wf_double.machine.granule ? align : wf_double.machine.granule;
    int error = wf_double_refuse();
    uintptr_t at;
    uintptr_t start;
    wf_span *s;
    char *p;

    if (error != WF_CU_OK) {
        return error;
    }
    if (bytes == 0 || bytes % wf_double.machine.granule != 0 || wish != 0 ||
        flags != 0 || bytes > SIZE_MAX - unit) {
        return WF_CU_INVALID;
    }
    p = mmap(NULL, bytes + unit, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        return WF_CU_NO_MEMORY;
    }
    start = (uintptr_t)p;
    at = (start + unit - 1) / unit * unit;
    if (at > start) {
        munmap(p, at - start);
    }
    munmap(p + (at - start) + bytes, start + unit - at);
    pthread_mutex_lock(&wf_double.lock);
    s = wf_span_add(&wf_double.ranges, at, bytes);
    pthread_mutex_unlock(&wf_double.lock);
    if (s == NULL) {
        munmap(p + (at - start), bytes);
        return WF_CU_NO_MEMORY;
    }
    *out = at;
    return WF_CU_OK;
}

static int double_address_free(wf_cu_address at, size_t bytes)
{
    bool ok;

    if (wf_double.ended) {
        return WF_CU_ENDED;
    }
    pthread_mutex_lock(&wf_double.lock);
    ok = !wf_span_overlaps(wf_double.mappings, at, bytes) &&
         wf_span_drop(&wf_double.ranges, at, bytes);
    if (ok) {
        munmap((void *)(uintptr_t)at, bytes);
    }
    pthread_mutex_unlock(&wf_double.lock);
    return ok ? WF_CU_OK : WF_CU_INVALID;
}

static int map_locked(uintptr_t at, size_t bytes, wf_cu_handle handle)
{
    wf_physical *p = physical_find(handle);
    wf_span *s;

    if (p == NULL || p->bytes != bytes || at % wf_double.machine.granule != 0 ||
        wf_span_around(wf_double.ranges, at, bytes) == NULL ||
        wf_span_overlaps(wf_double.mappings, at, bytes)) {
        return WF_CU_INVALID;
    }
    s = wf_span_add(&wf_double.mappings, at, bytes);
    if (s == NULL) {
        return WF_CU_NO_MEMORY;
    }
    if (mmap((void *)at, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, p->fd, 0) ==
        MAP_FAILED) {
        wf_span_drop(&wf_double.mappings, at, bytes);
        return WF_CU_NO_MEMORY;
    }
    s->device = p->device;
    return WF_CU_OK;
}

static int double_map(wf_cu_address at, size_t bytes, size_t offset,
                      wf_cu_handle handle, uint64_t flags)
{
    int error = offset == 0 && flags == 0 ? wf_double_refuse() : WF_CU_INVALID;

    if (error == WF_CU_OK) {
        pthread_mutex_lock(&wf_double.lock);
        error = map_locked(at, bytes, handle);
        pthread_mutex_unlock(&wf_double.lock);
    }
    return error;
}

static int double_unmap(wf_cu_address at, size_t bytes)
{
    const wf_span *s;
    bool ok;

    if (wf_double.ended) {
        return WF_CU_ENDED;
    }
    pthread_mutex_lock(&wf_double.lock);
    s = wf_span_around(wf_double.mappings, at, 1);
    if (s != NULL) {
        wf_double_take(s);
    }
    ok = bytes != 0 && wf_span_drop(&wf_double.mappings, at, bytes);
    if (ok) {
        /* Back to addresses that are only reserved. */
        (void)mmap((void *)(uintptr_t)at, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
                   0);
    }
    pthread_mutex_unlock(&wf_double.lock);
    return ok ? WF_CU_OK : WF_CU_INVALID;
}

/* A page has one protection for the whole process: what any device may do. */
static int protect(const wf_span *s)
{
    int all = 0;

    for (int d = 0; d < WF_DOUBLE_DEVICES; d++) {
        all |= s->access[d];
    }
    return mprotect((void *)s->at, s->bytes,
                    all == WF_CU_READWRITE ? PROT_READ | PROT_WRITE
                    : all == WF_CU_READ    ? PROT_READ
                                           : PROT_NONE) == 0
               ? WF_CU_OK
               : WF_CU_NO_MEMORY;
}

static int grant_locked(wf_span *s, const wf_cu_grant *grant)
{
    int device = grant->location.id;

    if (grant->location.type != WF_CU_LOCATION_DEVICE ||
        wf_double_bad_device(device) ||
        (grant->access != 0 && grant->access != WF_CU_READ &&
         grant->access != WF_CU_READWRITE)) {
        return WF_CU_INVALID;
    }
    if (device != s->device && wf_double.machine.no_peers) {
        return WF_CU_NOT_SUPPORTED;
    }
    if (grant->access == 0 && s->access[device] != 0) {
        wf_double_take(s);
    }
    s->access[device] = grant->access;
    return protect(s);
}

/* The range is made of whole wf_double.mappings without a gap. */
static int double_set_access(wf_cu_address at, size_t bytes,
                             const wf_cu_grant *grants, size_t count)
{
    int error = bytes > 0 ? wf_double_refuse() : WF_CU_INVALID;
    wf_cu_address end = at + bytes;

    pthread_mutex_lock(&wf_double.lock);
    while (error == WF_CU_OK && at < end) {
        wf_span *s = wf_span_around(wf_double.mappings, at, 1);

        if (s == NULL || s->at != at || s->bytes > end - at) {
            error = WF_CU_INVALID;
            break;
        }
        for (size_t i = 0; i < count && error == WF_CU_OK; i++) {
            error = grant_locked(s, &grants[i]);
        }
        at += s->bytes;
    }
    pthread_mutex_unlock(&wf_double.lock);
    return error;
}

void wf_double_memory(wf_driver *table)
{
    table->cuMemGetInfo = double_mem_info;
    table->cuMemGetAllocationGranularity = double_granularity;
    table->cuMemCreate = double_create;
    table->cuMemRelease = double_mem_release;
    table->cuMemGetAllocationPropertiesFromHandle = double_properties;
    table->cuMemExportToShareableHandle = double_export;
    table->cuMemImportFromShareableHandle = double_import;
    table->cuMemAddressReserve = double_reserve;
    table->cuMemAddressFree = double_address_free;
    table->cuMemMap = double_map;
    table->cuMemUnmap = double_unmap;
    table->cuMemSetAccess = double_set_access;
}
