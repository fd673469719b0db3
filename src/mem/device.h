/* SPDX-License-Identifier: Apache-2.0 */
/* The few functions of the CUDA driver that device memory needs.
 *
 * They are reached through a table, so that libweft links no CUDA library and
 * loads libcuda.so.1 only when a GPU is used, and so that another library can
 * replace it where there is none. The types are declared here and not taken
 * from cuda.h, which only machines with a CUDA toolkit have; the driver never
 * changes these layouts and numbers.
 *
 * Functions carry the names of the driver's manual, without the _v2 that some
 * of their symbols end in. All return 0 or a CUDA error number. */
#ifndef WF_MEM_DEVICE_H
#define WF_MEM_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/api.h>
#include <weft/status.h>

/* The CUDA error numbers that weft handles. */
enum wf_cu_error {
    WF_CU_OK = 0,
    WF_CU_INVALID = 1,
    WF_CU_NO_MEMORY = 2,
    WF_CU_NOT_STARTED = 3, /* no cuInit; or a child forked after it */
    WF_CU_ENDED = 4,       /* the process is exiting: the driver is gone */
    WF_CU_NO_DEVICE = 100,
    WF_CU_BAD_DEVICE = 101,
    WF_CU_BAD_CONTEXT = 201,
    WF_CU_ILLEGAL_ADDRESS = 700,
    WF_CU_REGISTERED = 712,
    WF_CU_NOT_REGISTERED = 713,
    WF_CU_NOT_PERMITTED = 800,
    WF_CU_NOT_SUPPORTED = 801
};

enum wf_cu_attribute {
    WF_CU_HAS_VMM = 102,      /* addresses and memory can be had apart */
    WF_CU_HAS_FD_HANDLE = 103 /* memory can be exported as a descriptor */
};

enum wf_cu_access { WF_CU_READ = 1, WF_CU_READWRITE = 3 };

#define WF_CU_LOCATION_DEVICE 1    /* wf_cu_location.type */
#define WF_CU_PINNED 1             /* wf_cu_prop.type: the only one there is */
#define WF_CU_POSIX_FD 1           /* wf_cu_prop.handle_types */
#define WF_CU_RECOMMENDED 1        /* of cuMemGetAllocationGranularity */
#define WF_CU_REGISTER_PORTABLE 1  /* for all contexts of the process */
#define WF_CU_REGISTER_MAPPED 2    /* and at an address for the device */
#define WF_CU_REGISTER_READ_ONLY 8 /* the mapping cannot be written to */
#define WF_CU_ALL_CONTEXTS (WF_CU_REGISTER_PORTABLE | WF_CU_REGISTER_MAPPED)
#define WF_CU_CAPTURE_RELAXED 2 /* of cuThreadExchangeStreamCaptureMode */
/* The calling thread's own stream: waiting for it does not wait for others'. */
#define WF_CU_STREAM_PER_THREAD ((void *)2)

typedef struct wf_cu_location {
    int type;
    int id; /* the device */
} wf_cu_location;

/* CUmemAllocationProp */
typedef struct wf_cu_prop {
    int type;
    int handle_types;
    wf_cu_location location;
    void *unused; /* of another operating system */
    unsigned char compression;
    unsigned char rdma;
    unsigned short usage;
    unsigned char zero[4];
} wf_cu_prop;
_Static_assert(sizeof(wf_cu_prop) == 32, "layout");

/* CUmemAccessDesc */
typedef struct wf_cu_grant {
    wf_cu_location location;
    int access;
} wf_cu_grant;
_Static_assert(sizeof(wf_cu_grant) == 12, "layout");

typedef uint64_t wf_cu_address;
typedef uint64_t wf_cu_handle; /* physical memory */
typedef struct wf_cu_context wf_cu_context;

typedef struct wf_driver {
    /* Device addresses are host addresses, which any code may touch: never
     * true of the machine's own driver. */
    bool in_host_memory;

    /* Start the driver; flags are 0. */
    int (*cuInit)(unsigned flags);
    int (*cuGetErrorName)(int error, const char **out);

    /* Devices: how many, number -> handle, what one can do, and whether one
     * can reach another's memory. */
    int (*cuDeviceGetCount)(int *out);
    int (*cuDeviceGet)(int *out, int ordinal);
    int (*cuDeviceGetAttribute)(int *out, int attribute, int device);
    int (*cuDeviceCanAccessPeer)(int *out, int device, int peer);

    /* The context that the runtime and torch use for a device; counted. */
    int (*cuDevicePrimaryCtxRetain)(wf_cu_context **out, int device);
    int (*cuDevicePrimaryCtxRelease)(int device);

    /* Each thread has a stack of contexts; calls below use the top one. */
    int (*cuCtxPushCurrent)(wf_cu_context *context);
    int (*cuCtxPopCurrent)(wf_cu_context **out);
    int (*cuCtxGetCurrent)(wf_cu_context **out);
    int (*cuCtxGetDevice)(int *out);
    /* Wait for all work on its device. */
    int (*cuCtxSynchronize)(void);
    /* What this thread may do while some stream is being captured: the new
     * mode goes in, the old one comes out. */
    int (*cuThreadExchangeStreamCaptureMode)(int *mode);

    /* Memory of the current device: free and total bytes. */
    int (*cuMemGetInfo)(size_t *free_bytes, size_t *total_bytes);

    /* Physical memory: the unit it comes in, made and released, and on which
     * device it is. It lasts while any process has a handle or a mapping. */
    int (*cuMemGetAllocationGranularity)(size_t *out, const wf_cu_prop *prop,
                                         int option);
    int (*cuMemCreate)(wf_cu_handle *out, size_t bytes, const wf_cu_prop *prop,
                       uint64_t flags);
    int (*cuMemRelease)(wf_cu_handle handle);
    int (*cuMemGetAllocationPropertiesFromHandle)(wf_cu_prop *out,
                                                  wf_cu_handle handle);

    /* To and from a descriptor. `out` points to an int; `os_handle` is the
     * descriptor itself, cast, which stays the caller's. */
    int (*cuMemExportToShareableHandle)(void *out, wf_cu_handle handle,
                                        int type, uint64_t flags);
    int (*cuMemImportFromShareableHandle)(wf_cu_handle *out, void *os_handle,
                                          int type);

    /* Addresses: a range, whole handles mapped into it, and access rights. */
    int (*cuMemAddressReserve)(wf_cu_address *out, size_t bytes, size_t align,
                               wf_cu_address wish, uint64_t flags);
    int (*cuMemAddressFree)(wf_cu_address at, size_t bytes);
    int (*cuMemMap)(wf_cu_address at, size_t bytes, size_t offset,
                    wf_cu_handle handle, uint64_t flags);
    int (*cuMemUnmap)(wf_cu_address at, size_t bytes);
    int (*cuMemSetAccess)(wf_cu_address at, size_t bytes,
                          const wf_cu_grant *grants, size_t count);

    /* Filling and copying. */
    int (*cuMemsetD8Async)(wf_cu_address at, unsigned char value, size_t bytes,
                           void *stream);
    int (*cuStreamSynchronize)(void *stream);
    int (*cuMemcpyHtoD)(wf_cu_address to, const void *from, size_t bytes);
    int (*cuMemcpyDtoH)(void *to, wf_cu_address from, size_t bytes);

    /* Host memory that devices may read and write. */
    int (*cuMemHostRegister)(void *at, size_t bytes, unsigned flags);
    int (*cuMemHostUnregister)(void *at);
    int (*cuMemHostGetDevicePointer)(wf_cu_address *out, void *at,
                                     unsigned flags);
} wf_driver;

/* The symbol that a library which replaces the driver exports. It returns the
 * library's table, which stays valid as long as the process runs, or NULL. It
 * is called once. */
typedef const wf_driver *wf_driver_table_fn(void);
#define WF_DRIVER_TABLE "weft_driver_table"
WEFT_API wf_driver_table_fn weft_driver_table;

/* The driver that WEFT_CUDA_DRIVER names: "auto" is the machine's own, any
 * other name is a library that replaces it. It is loaded and initialised on
 * first use; there is one for the whole process, and it is never unloaded.
 * WEFT_ERR_UNSUPPORTED says what is missing, WEFT_ERR_INVALID that another one
 * is in use. */
weft_status wf_driver_open(const char *name, const wf_driver **out);

/* For tests: what wf_driver_open gives from now on, whatever the name; NULL
 * undoes it. */
void wf_driver_use(const wf_driver *driver);

/* Record that a call of the driver failed, with the name of its error. */
weft_status wf_driver_fail(const wf_driver *driver, int error, const char *fmt,
                           ...) WEFT_PRINTF(3, 4);

/* Does this error of a release mean that there is nothing left to release: the
 * driver has shut down with the process, or this is a forked child, which has
 * nothing of its parent's? */
static inline bool wf_driver_gone(int error)
{
    return error == WF_CU_ENDED || error == WF_CU_NOT_STARTED;
}

/* A device and its primary context, held. */
typedef struct wf_device {
    const wf_driver *driver;
    int number; /* as the caller counts: 0, 1, ... */
    int handle; /* as the driver calls it */
    wf_cu_context *context;
    int pid; /* a forked child must not call the driver */
} wf_device;

/* Which device is meant: `wanted`, or for -1 that of the calling thread's
 * current context, or else `local` modulo the number of devices, so that the
 * ranks of a host spread over its devices. */
weft_status wf_device_choose(const wf_driver *driver, int32_t wanted,
                             uint32_t local, int *out);

/* Hold a device. WEFT_ERR_UNSUPPORTED if its memory cannot be shared by
 * descriptor. */
weft_status wf_device_open(const wf_driver *driver, int number, wf_device *out);
/* Takes a zeroed device, too. */
void wf_device_close(wf_device *device);

/* Make the device's context current. Each enter that succeeds is followed by a
 * leave, after which the caller's own context is current again. */
weft_status wf_device_enter(const wf_device *device);
void wf_device_leave(const wf_device *device);

/* Wait until the device is idle: what a kernel still uses must not be taken
 * from it, and unlike cuMemFree neither unmapping nor unregistering waits.
 * Failures are ignored. A context that an earlier error has broken, and a
 * driver that has shut down, run nothing; a stream that is being captured
 * forbids the wait, and what it has captured does not run yet. Forked children
 * do not wait. */
void wf_device_wait(const wf_device *device);

/* Is this process the one that opened the device? A child that it forked is
 * not, and must not call the driver; wf_device_check then fails. */
bool wf_device_ours(const wf_device *device);
weft_status wf_device_check(const wf_device *device);

#endif
