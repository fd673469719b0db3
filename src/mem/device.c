/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"

#define LIBRARY "libcuda.so.1"

/* The loaded driver: one for the process, as the library itself is. */
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static wf_driver machine;
static int machine_pid;        /* who started it; 0: nobody has */
static char machine_name[256]; /* as WEFT_CUDA_DRIVER had it */
static const wf_driver *given;

typedef struct symbol {
    const char *name; /* as libcuda.so.1 exports it: the version we declare */
    size_t at;
} symbol;

#define AT(function) offsetof(wf_driver, function)

static const symbol symbols[] = {
    {"cuInit", AT(cuInit)},
    {"cuGetErrorName", AT(cuGetErrorName)},
    {"cuDeviceGetCount", AT(cuDeviceGetCount)},
    {"cuDeviceGet", AT(cuDeviceGet)},
    {"cuDeviceGetAttribute", AT(cuDeviceGetAttribute)},
    {"cuDeviceCanAccessPeer", AT(cuDeviceCanAccessPeer)},
    {"cuDevicePrimaryCtxRetain", AT(cuDevicePrimaryCtxRetain)},
    {"cuDevicePrimaryCtxRelease_v2", AT(cuDevicePrimaryCtxRelease)},
    {"cuCtxPushCurrent_v2", AT(cuCtxPushCurrent)},
    {"cuCtxPopCurrent_v2", AT(cuCtxPopCurrent)},
    {"cuCtxGetCurrent", AT(cuCtxGetCurrent)},
    {"cuCtxGetDevice", AT(cuCtxGetDevice)},
    {"cuCtxSynchronize", AT(cuCtxSynchronize)},
    {"cuThreadExchangeStreamCaptureMode",
     AT(cuThreadExchangeStreamCaptureMode)},
    {"cuMemGetInfo_v2", AT(cuMemGetInfo)},
    {"cuMemGetAllocationGranularity", AT(cuMemGetAllocationGranularity)},
    {"cuMemCreate", AT(cuMemCreate)},
    {"cuMemRelease", AT(cuMemRelease)},
    {"cuMemGetAllocationPropertiesFromHandle",
     AT(cuMemGetAllocationPropertiesFromHandle)},
    {"cuMemExportToShareableHandle", AT(cuMemExportToShareableHandle)},
    {"cuMemImportFromShareableHandle", AT(cuMemImportFromShareableHandle)},
    {"cuMemAddressReserve", AT(cuMemAddressReserve)},
    {"cuMemAddressFree", AT(cuMemAddressFree)},
    {"cuMemMap", AT(cuMemMap)},
    {"cuMemUnmap", AT(cuMemUnmap)},
    {"cuMemSetAccess", AT(cuMemSetAccess)},
    {"cuMemsetD8Async", AT(cuMemsetD8Async)},
    {"cuStreamSynchronize", AT(cuStreamSynchronize)},
    {"cuMemcpyHtoD_v2", AT(cuMemcpyHtoD)},
    {"cuMemcpyDtoH_v2", AT(cuMemcpyDtoH)},
    {"cuMemHostRegister_v2", AT(cuMemHostRegister)},
    {"cuMemHostUnregister", AT(cuMemHostUnregister)},
    {"cuMemHostGetDevicePointer_v2", AT(cuMemHostGetDevicePointer)},
};

static weft_status load_symbols(void *library, wf_driver *out)
{
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *function = dlsym(library, symbols[i].name);

        if (function == NULL) {
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "the CUDA driver of this machine has no %s: device "
                           "memory needs CUDA 11.2 or later",
                           symbols[i].name);
        }
        /* ISO C knows no cast from an object to a function; POSIX does. */
        memcpy((char *)out + symbols[i].at, &function, sizeof(function));
    }
    return WEFT_OK;
}

/* From a library that stands in for the driver. */
static weft_status load_table(void *library, const char *name, wf_driver *out)
{
    void *found = dlsym(library, WF_DRIVER_TABLE);
    wf_driver_table_fn *give;
    const wf_driver *table = NULL;

    if (found != NULL) {
        memcpy(&give, &found, sizeof(give));
        table = give();
    }
    if (table == NULL) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "setting WEFT_CUDA_DRIVER: %s provides no "
                       "weft_driver_table",
                       name);
    }
    *out = *table;
    return WEFT_OK;
}

static weft_status machine_load(const char *name, wf_driver *out)
{
    bool own = strcmp(name, "auto") == 0;
    void *library = dlopen(own ? LIBRARY : name, RTLD_NOW | RTLD_LOCAL);
    weft_status st;

    if (library == NULL) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "no CUDA driver on this machine: %s", dlerror());
    }
    st = own ? load_symbols(library, out) : load_table(library, name, out);
    if (st != WEFT_OK) {
        dlclose(library);
    }
    return st;
}

static weft_status forked_after_start(void)
{
    return wf_fail(WEFT_ERR_UNSUPPORTED,
                   "CUDA was in use before this process was forked, and cannot "
                   "be used in it: fork before CUDA starts, or use the spawn "
                   "method");
}

/* Was it started before? Then it is this process's, and the one asked for. */
static weft_status machine_check(const char *name)
{
    if (machine_pid != (int)getpid()) {
        return forked_after_start();
    }
    return strcmp(name, machine_name) == 0
               ? WEFT_OK
               : wf_fail(WEFT_ERR_INVALID,
                         "setting WEFT_CUDA_DRIVER: this process already uses "
                         "'%s' and cannot use '%s' as well",
                         machine_name, name);
}

/* The library stays loaded: it does not survive being unloaded. */
static weft_status machine_start(const char *name)
{
    weft_status st;
    int error;

    if (machine_pid != 0) {
        return machine_check(name);
    }
    st = machine_load(name, &machine);
    if (st != WEFT_OK) {
        return st;
    }
    error = machine.cuInit(0);
    if (error == WF_CU_NOT_STARTED) {
        return forked_after_start(); /* by another library than this one */
    }
    if (error != WF_CU_OK) {
        wf_driver_fail(&machine, error, "cuInit failed");
        return WEFT_ERR_UNSUPPORTED;
    }
    machine_pid = (int)getpid();
    snprintf(machine_name, sizeof(machine_name), "%s", name);
    return WEFT_OK;
}

weft_status wf_driver_open(const char *name, const wf_driver **out)
{
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&driver_lock);
    if (given == NULL) {
        st = machine_start(name);
    }
    if (st == WEFT_OK) {
        *out = given != NULL ? given : &machine;
    }
    pthread_mutex_unlock(&driver_lock);
    return st;
}

void wf_driver_use(const wf_driver *driver)
{
    pthread_mutex_lock(&driver_lock);
    given = driver;
    pthread_mutex_unlock(&driver_lock);
}

static weft_status status_of(int error)
{
    switch (error) {
    case WF_CU_NO_MEMORY:
        return WEFT_ERR_NOMEM;
    case WF_CU_INVALID:
    case WF_CU_BAD_DEVICE:
        return WEFT_ERR_INVALID;
    case WF_CU_NO_DEVICE:
    case WF_CU_NOT_SUPPORTED:
        return WEFT_ERR_UNSUPPORTED;
    case WF_CU_NOT_PERMITTED:
        return WEFT_ERR_DENIED;
    case WF_CU_ENDED:
        return WEFT_ERR_CLOSED;
    default:
        return WEFT_ERR_SYSTEM;
    }
}

weft_status wf_driver_fail(const wf_driver *driver, int error, const char *fmt,
                           ...)
{
    char what[WF_DETAIL_MAX / 2];
    const char *name = NULL;
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    if (driver->cuGetErrorName(error, &name) != WF_CU_OK || name == NULL) {
        name = "unknown error";
    }
    return wf_fail(status_of(error), "%s: %s (%d)", what, name, error);
}

/* --- devices -------------------------------------------------------------- */

weft_status wf_device_choose(const wf_driver *driver, int32_t wanted,
                             uint32_t local, int *out)
{
    wf_cu_context *current = NULL;
    int count = 0;
    int error = driver->cuDeviceGetCount(&count);

    if (error != WF_CU_OK) {
        return wf_driver_fail(driver, error, "counting CUDA devices");
    }
    if (count <= 0) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "the CUDA driver sees no device (CUDA_VISIBLE_DEVICES "
                       "may hide them)");
    }
    if (wanted < -1 || wanted >= count) {
        return wf_fail(WEFT_ERR_INVALID,
                       "CUDA device %d is out of range (%d devices)",
                       (int)wanted, count);
    }
    if (wanted >= 0) {
        *out = wanted;
        return WEFT_OK;
    }
    if (driver->cuCtxGetCurrent(&current) == WF_CU_OK && current != NULL &&
        driver->cuCtxGetDevice(out) == WF_CU_OK) {
        return WEFT_OK;
    }
    *out = (int)(local % (uint32_t)count);
    return WEFT_OK;
}

static weft_status check_shares(const wf_driver *driver, int number, int handle)
{
    static const int needed[] = {WF_CU_HAS_VMM, WF_CU_HAS_FD_HANDLE};

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        int has = 0;
        int error = driver->cuDeviceGetAttribute(&has, needed[i], handle);

        if (error != WF_CU_OK) {
            return wf_driver_fail(driver, error, "querying CUDA device %d",
                                  number);
        }
        if (!has) {
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "CUDA device %d cannot share memory by file "
                           "descriptor",
                           number);
        }
    }
    return WEFT_OK;
}

weft_status wf_device_open(const wf_driver *driver, int number, wf_device *out)
{
    wf_device d = {.driver = driver, .number = number, .pid = (int)getpid()};
    int error = driver->cuDeviceGet(&d.handle, number);
    weft_status st;

    if (error != WF_CU_OK) {
        return wf_driver_fail(driver, error, "CUDA device %d", number);
    }
    st = check_shares(driver, number, d.handle);
    if (st != WEFT_OK) {
        return st;
    }
    error = driver->cuDevicePrimaryCtxRetain(&d.context, d.handle);
    if (error != WF_CU_OK) {
        return wf_driver_fail(driver, error, "the context of CUDA device %d",
                              number);
    }
    *out = d;
    return WEFT_OK;
}

bool wf_device_ours(const wf_device *device)
{
    return device->driver != NULL && device->pid == (int)getpid();
}

void wf_device_close(wf_device *device)
{
    int error;

    if (wf_device_ours(device)) {
        error = device->driver->cuDevicePrimaryCtxRelease(device->handle);
        if (error != WF_CU_OK && !wf_driver_gone(error)) {
            wf_log(WEFT_LOG_WARN,
                   "CUDA device %d: its context is not released: error %d",
                   device->number, error);
        }
    }
    memset(device, 0, sizeof(*device));
}

weft_status wf_device_check(const wf_device *device)
{
    return wf_device_ours(device)
               ? WEFT_OK
               : wf_fail(WEFT_ERR_UNSUPPORTED,
                         "a forked child cannot use its parent's CUDA memory");
}

weft_status wf_device_enter(const wf_device *device)
{
    weft_status st = wf_device_check(device);
    int error;

    if (st != WEFT_OK) {
        return st;
    }
    error = device->driver->cuCtxPushCurrent(device->context);
    return error == WF_CU_OK
               ? WEFT_OK
               : wf_driver_fail(device->driver, error,
                                "entering CUDA device %d", device->number);
}

void wf_device_leave(const wf_device *device)
{
    wf_cu_context *left = NULL;
    int error = device->driver->cuCtxPopCurrent(&left);

    if (error != WF_CU_OK && !wf_driver_gone(error)) {
        wf_log(WEFT_LOG_WARN, "leaving CUDA device %d: error %d",
               device->number, error);
    }
}

void wf_device_wait(const wf_device *device)
{
    const wf_driver *driver = device->driver;
    wf_cu_context *left = NULL;
    int mode = WF_CU_CAPTURE_RELAXED;
    int error;

    if (!wf_device_ours(device) ||
        driver->cuCtxPushCurrent(device->context) != WF_CU_OK) {
        return;
    }
    error = driver->cuThreadExchangeStreamCaptureMode(&mode);
    (void)driver->cuCtxSynchronize();
    if (error == WF_CU_OK) {
        (void)driver->cuThreadExchangeStreamCaptureMode(&mode);
    }
    (void)driver->cuCtxPopCurrent(&left);
}
