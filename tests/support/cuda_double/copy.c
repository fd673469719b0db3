/* SPDX-License-Identifier: Apache-2.0 */
/* What a doubled device does with memory, and host memory that it may touch. */
#include <string.h>

#include "cuda_double/state.h"

/* May the current device do this with all of the range? */
static int check_touch(wf_cu_address at, size_t bytes, int access)
{
    int error =
        wf_double_thread.depth > 0 ? wf_double_refuse() : WF_CU_BAD_CONTEXT;
    wf_cu_address end = at + bytes;

    if (error != WF_CU_OK) {
        return error;
    }
    pthread_mutex_lock(&wf_double.lock);
    if (wf_span_around(wf_double.registered, at, bytes) == NULL) {
        while (at < end) {
            const wf_span *s = wf_span_around(wf_double.mappings, at, 1);

            if (s == NULL ||
                (s->access[wf_double_thread.stack[wf_double_thread.depth - 1]
                               ->device] &
                 access) != access) {
                error = WF_CU_ILLEGAL_ADDRESS;
                break;
            }
            at = s->at + s->bytes;
        }
    }
    pthread_mutex_unlock(&wf_double.lock);
    return error;
}

static int double_memset(wf_cu_address at, unsigned char value, size_t bytes,
                         void *stream)
{
    int error = check_touch(at, bytes, WF_CU_READWRITE);

    (void)stream;
    if (error == WF_CU_OK) {
        memset((void *)(uintptr_t)at, value, bytes);
    }
    return error;
}

static int double_synchronize(void *stream)
{
    (void)stream;
    return wf_double_thread.depth > 0 ? wf_double_refuse() : WF_CU_BAD_CONTEXT;
}

static int double_copy_in(wf_cu_address to, const void *from, size_t bytes)
{
    int error = check_touch(to, bytes, WF_CU_READWRITE);

    if (error == WF_CU_OK) {
        memcpy((void *)(uintptr_t)to, from, bytes);
    }
    return error;
}

static int double_copy_out(void *to, wf_cu_address from, size_t bytes)
{
    int error = check_touch(from, bytes, WF_CU_READ);

    if (error == WF_CU_OK) {
        memcpy(to, (const void *)(uintptr_t)from, bytes);
    }
    return error;
}

/* --- registered host memory ----------------------------------------------- */

static int double_register(void *at, size_t bytes, unsigned flags)
{
    int error =
        wf_double_thread.depth > 0 ? wf_double_refuse() : WF_CU_BAD_CONTEXT;

    if (error != WF_CU_OK) {
        return error;
    }
    if (at == NULL || bytes == 0 ||
        (flags & ~(WF_CU_ALL_CONTEXTS | WF_CU_REGISTER_READ_ONLY)) != 0) {
        return WF_CU_INVALID;
    }
    pthread_mutex_lock(&wf_double.lock);
    if (wf_span_overlaps(wf_double.registered, (uintptr_t)at, bytes)) {
        error = WF_CU_REGISTERED;
    } else if (wf_span_add(&wf_double.registered, (uintptr_t)at, bytes) ==
               NULL) {
        error = WF_CU_NO_MEMORY;
    }
    pthread_mutex_unlock(&wf_double.lock);
    return error;
}

static int double_unregister(void *at)
{
    bool ok;

    if (wf_double.ended) {
        return WF_CU_ENDED;
    }
    pthread_mutex_lock(&wf_double.lock);
    wf_double_take(NULL);
    ok = wf_span_drop(&wf_double.registered, (uintptr_t)at, 0);
    pthread_mutex_unlock(&wf_double.lock);
    return ok ? WF_CU_OK : WF_CU_NOT_REGISTERED;
}

static int double_device_pointer(wf_cu_address *out, void *at, unsigned flags)
{
    int error = flags == 0 && wf_double_thread.depth > 0 ? wf_double_refuse()
                                                         : WF_CU_INVALID;

    if (error != WF_CU_OK) {
        return error;
    }
    pthread_mutex_lock(&wf_double.lock);
    if (wf_span_around(wf_double.registered, (uintptr_t)at, 1) == NULL) {
        error = WF_CU_INVALID;
    } else {
        *out = (uintptr_t)at +
               (wf_double.machine.moves_host ? wf_double.machine.granule : 0);
    }
    pthread_mutex_unlock(&wf_double.lock);
    return error;
}

void wf_double_copies(wf_driver *table)
{
    table->cuMemsetD8Async = double_memset;
    table->cuStreamSynchronize = double_synchronize;
    table->cuMemcpyHtoD = double_copy_in;
    table->cuMemcpyDtoH = double_copy_out;
    table->cuMemHostRegister = double_register;
    table->cuMemHostUnregister = double_unregister;
    table->cuMemHostGetDevicePointer = double_device_pointer;
}
