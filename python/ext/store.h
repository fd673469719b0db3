/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter store in Python: StoreHandle and WorkerHandle, which weft.Store
 * and its workers are made of.
 *
 *   store.c         the type StoreHandle: its life, files, statistics
 *   store_create.c  store_create: options
 *   store_worker.c  the type WorkerHandle: its life, clock, intents
 *   store_access.c  pull, push, set, localize, with or without a Request
 *   store_sample.c  sampling */
#ifndef WFP_STORE_H
#define WFP_STORE_H

#include <pthread.h>
#include <weft/store.h>

#include "array.h"
#include "comm.h"

typedef struct wfp_store {
    PyObject_HEAD
    weft_store *store;    /* NULL once closed */
    wfp_comm *comm;       /* it was made over; only its world is used */
    weft_store_info info; /* as it was made: resize changes the keys */
    PyObject *draw;       /* the user's distribution, or NULL */
    unsigned busy;        /* calls inside the library without the GIL */
    bool finalized;       /* closed when all ranks had met */
} wfp_store;

typedef struct wfp_worker {
    PyObject_HEAD
    weft_worker *worker; /* NULL once closed */
    wfp_store *store;
    unsigned busy;
    /* A worker is for one thread at a time. Threads that share one wait for
     * each other here, without the GIL. */
    pthread_mutex_t mutex;
} wfp_worker;

/* A StoreHandle over `store`, which it takes over; NULL on failure. */
PyObject *wfp_store_wrap(wfp_comm *comm, weft_store *store);

/* Say that a store which is NULL by now cannot be used; -1. */
int wfp_store_over(const wfp_store *store);

/* A new WorkerHandle; `unused` is for METH_NOARGS. */
PyObject *wfp_worker_new(PyObject *store, PyObject *unused);

/* Before the GIL is given up, and after: 0, or -1 with the reason raised why it
 * cannot be used. Until they leave nobody can close it, nor its world. */
int wfp_store_enter(wfp_store *store);
void wfp_store_leave(wfp_store *store);
int wfp_worker_enter(wfp_worker *worker);
void wfp_worker_leave(wfp_worker *worker);

/* Without the GIL: WEFT_OK when the worker is this thread's, until unlocked. */
weft_status wfp_worker_lock(wfp_worker *worker);
void wfp_worker_unlock(wfp_worker *worker);

/* Elements of the rows of several keys. */
weft_status wfp_store_sum(const wfp_store *store, const weft_ids *keys,
                          uint64_t *out);

/* Keys as int32 or int64; what is neither goes through weft._store.as_keys,
 * which converts it or says why not. As wfp_array_open. */
int wfp_keys_open(wfp_array *array, PyObject *object, unsigned access);

static inline weft_ids wfp_keys_ids(const wfp_array *keys)
{
    return (weft_ids){.at = keys->data,
                      .type = (weft_dtype)keys->dtype,
                      .n = keys->count,
                      .place = WEFT_HOST};
}

/* Methods that are called with an array of arguments, all by position. */
typedef PyObject *wfp_fast_method(PyObject *self, PyObject *const *args,
                                  Py_ssize_t nargs);

#define WFP_FAST_METHOD(name, function, doc)                                   \
    {                                                                          \
        name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, doc      \
    }

/* 0, or -1 with TypeError set unless there are `n` of them. */
int wfp_fast_count(const char *function, Py_ssize_t nargs, Py_ssize_t n);

wfp_fast_method wfp_worker_pull;
wfp_fast_method wfp_worker_push;
wfp_fast_method wfp_worker_set;
wfp_fast_method wfp_worker_pull_local;
wfp_fast_method wfp_worker_ipull;
wfp_fast_method wfp_worker_ipush;
wfp_fast_method wfp_worker_iset;
wfp_fast_method wfp_worker_sample_pull;
wfp_fast_method wfp_worker_isample_pull;
wfp_fast_method wfp_worker_sample_prepare;
PyObject *wfp_worker_localize(PyObject *self, PyObject *keys);
PyObject *wfp_worker_ilocalize(PyObject *self, PyObject *keys);
PyObject *wfp_worker_sample_finish(PyObject *self, PyObject *id);
PyObject *wfp_store_sampling(PyObject *self, PyObject *args,
                             PyObject *keywords);

#endif
