/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the double share. */
#ifndef WT_CUDA_DOUBLE_STATE_H
#define WT_CUDA_DOUBLE_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "cuda_double/double.h"

#define WF_DOUBLE_STACK 16

struct wf_cu_context {
    int device;
    unsigned users;
    bool busy; /* a kernel is running */
};

/* Physical memory that this process has a handle of. */
typedef struct wf_physical {
    struct wf_physical *next;
    wf_cu_handle handle;
    int device;
    size_t bytes;
    int fd;
} wf_physical;

/* Addresses: a reserved range, a mapping in one, or registered host memory. */
typedef struct wf_span {
    struct wf_span *next;
    uintptr_t at;
    size_t bytes;
    int device;                    /* where the memory of a mapping is */
    int access[WF_DOUBLE_DEVICES]; /* what each may do with it */
} wf_span;

/* Lists under `lock`. */
typedef struct wf_double_state {
    pthread_mutex_t lock;
    wf_double_options machine;
    _Atomic bool ended;
    wf_cu_context contexts[WF_DOUBLE_DEVICES];
    wf_cu_handle last_handle;
    wf_physical *physicals;
    wf_span *ranges;
    wf_span *mappings;
    wf_span *registered;
    unsigned torn;
} wf_double_state;
extern wf_double_state wf_double;

typedef struct wf_double_own {
    wf_cu_context *stack[WF_DOUBLE_STACK];
    unsigned depth;
    int capture_mode; /* 0: global, as threads begin */
    unsigned fail_in;
    int fail_with;
} wf_double_own;
extern _Thread_local wf_double_own wf_double_thread;

/* WF_CU_OK if a call that asks for something may go on. */
int wf_double_refuse(void);
bool wf_double_bad_device(int device);

/* Count memory that is taken while a device that may use it is busy: all of
 * them where `span` is NULL. Under the lock. */
void wf_double_take(const wf_span *span);

/* The span that holds all of [at, at + bytes). */
wf_span *wf_span_around(wf_span *list, uintptr_t at, size_t bytes);
bool wf_span_overlaps(const wf_span *list, uintptr_t at, size_t bytes);
/* NULL: no memory. */
wf_span *wf_span_add(wf_span **list, uintptr_t at, size_t bytes);
/* Take the span that begins at `at` off; bytes of 0 are any. */
bool wf_span_drop(wf_span **list, uintptr_t at, size_t bytes);

/* Fill their functions in: memory.c, copy.c. */
void wf_double_memory(wf_driver *table);
void wf_double_copies(wf_driver *table);

#endif
