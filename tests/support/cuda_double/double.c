/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the double, its devices and contexts, and counting what is held. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cuda_double/state.h"

wf_double_state wf_double = {.lock = PTHREAD_MUTEX_INITIALIZER};
_Thread_local wf_double_own wf_double_thread;

static wf_driver table;

int wf_double_refuse(void)
{
    if (wf_double.ended) {
        return WF_CU_ENDED;
    }
    if (wf_double_thread.fail_in > 0 && --wf_double_thread.fail_in == 0) {
        if (wf_double_thread.fail_with == WF_DOUBLE_KILL) {
            raise(SIGKILL);
        }
        return wf_double_thread.fail_with;
    }
    return WF_CU_OK;
}

bool wf_double_bad_device(int device)
{
    return device < 0 || device >= wf_double.machine.devices;
}

/* --- spans ---------------------------------------------------------------- */

wf_span *wf_span_around(wf_span *list, uintptr_t at, size_t bytes)
{
    for (wf_span *s = list; s != NULL; s = s->next) {
        if (at >= s->at && at - s->at <= s->bytes &&
            bytes <= s->bytes - (at - s->at)) {
            return s;
        }
    }
    return NULL;
}

bool wf_span_overlaps(const wf_span *list, uintptr_t at, size_t bytes)
{
    for (const wf_span *s = list; s != NULL; s = s->next) {
        if (at < s->at + s->bytes && s->at < at + bytes) {
            return true;
        }
    }
    return false;
}

wf_span *wf_span_add(wf_span **list, uintptr_t at, size_t bytes)
{
    wf_span *s = wf_zalloc(sizeof(*s));

    if (s != NULL) {
        s->at = at;
        s->bytes = bytes;
        s->next = *list;
        *list = s;
    }
    return s;
}

bool wf_span_drop(wf_span **list, uintptr_t at, size_t bytes)
{
    for (wf_span **p = list; *p != NULL; p = &(*p)->next) {
        wf_span *s = *p;

        if (s->at == at && (bytes == 0 || s->bytes == bytes)) {
            *p = s->next;
            wf_free(s);
            return true;
        }
    }
    return false;
}

static unsigned wf_span_count(const wf_span *list)
{
    unsigned n = 0;

    for (; list != NULL; list = list->next) {
        n++;
    }
    return n;
}

static void wf_span_free_all(wf_span **list)
{
    while (*list != NULL) {
        wf_span_drop(list, (*list)->at, 0);
    }
}

/* --- devices -------------------------------------------------------------- */

static int double_init(unsigned flags)
{
    return flags == 0 ? wf_double_refuse() : WF_CU_INVALID;
}

static int double_error_name(int error, const char **out)
{
    switch (error) {
    case WF_CU_INVALID:
        *out = "CUDA_ERROR_INVALID_VALUE";
        return WF_CU_OK;
    case WF_CU_NO_MEMORY:
        *out = "CUDA_ERROR_OUT_OF_MEMORY";
        return WF_CU_OK;
    case WF_CU_ENDED:
        *out = "CUDA_ERROR_DEINITIALIZED";
        return WF_CU_OK;
    default:
        return WF_CU_INVALID;
    }
}

static int double_device_count(int *out)
{
    int error = wf_double_refuse();

    if (error == WF_CU_OK) {
        *out = wf_double.machine.devices;
    }
    return error;
}

static int double_device_get(int *out, int ordinal)
{
    int error =
        wf_double_bad_device(ordinal) ? WF_CU_BAD_DEVICE : wf_double_refuse();

    if (error == WF_CU_OK) {
        *out = ordinal;
    }
    return error;
}

static int double_attribute(int *out, int attribute, int device)
{
    int error =
        wf_double_bad_device(device) ? WF_CU_BAD_DEVICE : wf_double_refuse();

    if (error == WF_CU_OK) {
        *out = attribute == WF_CU_HAS_VMM || attribute == WF_CU_HAS_FD_HANDLE;
    }
    return error;
}

static int double_can_access_peer(int *out, int device, int peer)
{
    int error = wf_double_bad_device(device) || wf_double_bad_device(peer)
                    ? WF_CU_BAD_DEVICE
                    : wf_double_refuse();

    if (error == WF_CU_OK) {
        *out = device != peer && !wf_double.machine.no_peers;
    }
    return error;
}

static int double_retain(wf_cu_context **out, int device)
{
    int error =
        wf_double_bad_device(device) ? WF_CU_BAD_DEVICE : wf_double_refuse();

    if (error == WF_CU_OK) {
        pthread_mutex_lock(&wf_double.lock);
        wf_double.contexts[device].device = device;
        wf_double.contexts[device].users++;
        *out = &wf_double.contexts[device];
        pthread_mutex_unlock(&wf_double.lock);
    }
    return error;
}

static int double_release(int device)
{
    int error = WF_CU_BAD_CONTEXT;

    if (wf_double.ended) {
        return WF_CU_ENDED;
    }
    pthread_mutex_lock(&wf_double.lock);
    if (!wf_double_bad_device(device) && wf_double.contexts[device].users > 0) {
        wf_double.contexts[device].users--;
        error = WF_CU_OK;
    }
    pthread_mutex_unlock(&wf_double.lock);
    return error;
}

static int double_push(wf_cu_context *context)
{
    int error = wf_double_refuse();

    if (error == WF_CU_OK &&
        (context == NULL || wf_double_thread.depth == WF_DOUBLE_STACK)) {
        error = WF_CU_BAD_CONTEXT;
    }
    if (error == WF_CU_OK) {
        wf_double_thread.stack[wf_double_thread.depth++] = context;
    }
    return error;
}

static int double_pop(wf_cu_context **out)
{
    if (wf_double_thread.depth == 0) {
        return WF_CU_BAD_CONTEXT;
    }
    *out = wf_double_thread.stack[--wf_double_thread.depth];
    return wf_double.ended ? WF_CU_ENDED : WF_CU_OK;
}

static int double_current(wf_cu_context **out)
{
    int error = wf_double_refuse();

    if (error == WF_CU_OK) {
        *out = wf_double_thread.depth > 0
                   ? wf_double_thread.stack[wf_double_thread.depth - 1]
                   : NULL;
    }
    return error;
}

static int double_current_device(int *out)
{
    int error =
        wf_double_thread.depth > 0 ? wf_double_refuse() : WF_CU_BAD_CONTEXT;

    if (error == WF_CU_OK) {
        *out = wf_double_thread.stack[wf_double_thread.depth - 1]->device;
    }
    return error;
}

static int double_context_synchronize(void)
{
    int error =
        wf_double_thread.depth > 0 ? wf_double_refuse() : WF_CU_BAD_CONTEXT;

    if (error == WF_CU_OK) {
        pthread_mutex_lock(&wf_double.lock);
        wf_double_thread.stack[wf_double_thread.depth - 1]->busy = false;
        pthread_mutex_unlock(&wf_double.lock);
    }
    return error;
}

static int double_capture_mode(int *mode)
{
    int error = wf_double_refuse();
    int before = wf_double_thread.capture_mode;

    if (error == WF_CU_OK) {
        wf_double_thread.capture_mode = *mode;
        *mode = before;
    }
    return error;
}

static void double_devices(wf_driver *t)
{
    t->in_host_memory = true;
    t->cuInit = double_init;
    t->cuGetErrorName = double_error_name;
    t->cuDeviceGetCount = double_device_count;
    t->cuDeviceGet = double_device_get;
    t->cuDeviceGetAttribute = double_attribute;
    t->cuDeviceCanAccessPeer = double_can_access_peer;
    t->cuDevicePrimaryCtxRetain = double_retain;
    t->cuDevicePrimaryCtxRelease = double_release;
    t->cuCtxPushCurrent = double_push;
    t->cuCtxPopCurrent = double_pop;
    t->cuCtxGetCurrent = double_current;
    t->cuCtxGetDevice = double_current_device;
    t->cuCtxSynchronize = double_context_synchronize;
    t->cuThreadExchangeStreamCaptureMode = double_capture_mode;
}

/* --- starting, counting --------------------------------------------------- */

const wf_driver *wf_double_start(const wf_double_options *options)
{
    pthread_mutex_lock(&wf_double.lock);
    double_devices(&table);
    wf_double_memory(&table);
    wf_double_copies(&table);
    wf_double.machine = *options;
    wf_double.machine.devices =
        wf_double.machine.devices > 0 ? wf_double.machine.devices : 1;
    wf_double.machine.granule =
        wf_double.machine.granule > 0 ? wf_double.machine.granule : 2u << 20;
    wf_double.ended = false;
    wf_double_thread.depth = 0;
    wf_double_thread.fail_in = 0;
    wf_double_thread.capture_mode = 0;
    wf_double.torn = 0;
    memset(wf_double.contexts, 0, sizeof(wf_double.contexts));
    wf_span_free_all(&wf_double.mappings);
    wf_span_free_all(&wf_double.ranges);
    wf_span_free_all(&wf_double.registered);
    while (wf_double.physicals != NULL) {
        wf_physical *p = wf_double.physicals;

        wf_double.physicals = p->next;
        close(p->fd);
        wf_free(p);
    }
    pthread_mutex_unlock(&wf_double.lock);
    return &table;
}

unsigned wf_double_fail_nth(unsigned nth, int error)
{
    unsigned left = wf_double_thread.fail_in;

    wf_double_thread.fail_in = nth;
    wf_double_thread.fail_with = error;
    return left;
}

void wf_double_end(void)
{
    wf_double.ended = true;
}

wf_double_counts wf_double_count(void)
{
    wf_double_counts c = {.depth = wf_double_thread.depth,
                          .capture_mode = wf_double_thread.capture_mode};

    pthread_mutex_lock(&wf_double.lock);
    for (int d = 0; d < WF_DOUBLE_DEVICES; d++) {
        c.contexts += wf_double.contexts[d].users;
    }
    for (const wf_physical *p = wf_double.physicals; p != NULL; p = p->next) {
        c.handles++;
    }
    c.ranges = wf_span_count(wf_double.ranges);
    c.mappings = wf_span_count(wf_double.mappings);
    c.registered = wf_span_count(wf_double.registered);
    c.torn = wf_double.torn;
    pthread_mutex_unlock(&wf_double.lock);
    return c;
}

int wf_double_access(const void *at, int device)
{
    const wf_span *s;
    int access = 0;

    pthread_mutex_lock(&wf_double.lock);
    s = wf_span_around(wf_double.mappings, (uintptr_t)at, 1);
    if (s != NULL && !wf_double_bad_device(device)) {
        access = s->access[device];
    }
    pthread_mutex_unlock(&wf_double.lock);
    return access;
}

/* --- kernels -------------------------------------------------------------- */

void wf_double_launch(int device)
{
    pthread_mutex_lock(&wf_double.lock);
    wf_double.contexts[device].busy = true;
    pthread_mutex_unlock(&wf_double.lock);
}

bool wf_double_busy(int device)
{
    bool busy;

    pthread_mutex_lock(&wf_double.lock);
    busy = wf_double.contexts[device].busy;
    pthread_mutex_unlock(&wf_double.lock);
    return busy;
}

void wf_double_take(const wf_span *span)
{
    for (int d = 0; d < WF_DOUBLE_DEVICES; d++) {
        bool usable = span == NULL || span->access[d] != 0;

        wf_double.torn += usable && wf_double.contexts[d].busy;
    }
}
