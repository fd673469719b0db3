/* SPDX-License-Identifier: Apache-2.0 */
/* weft.Comm: an ordered group of ranks. */
#ifndef WFP_COMM_H
#define WFP_COMM_H

#include "core.h"
#include "world.h"

typedef struct wfp_comm {
    PyObject_HEAD
    weft_comm *comm; /* NULL once closed */
    wfp_world *world;
    bool owned;           /* the world's own communicator is not ours to end */
    unsigned busy;        /* calls inside the library without the GIL */
    unsigned long thread; /* of them: a callback may come back in */
    unsigned lent;        /* to other modules, see lend.c */
    struct wfp_shared *unused; /* shared memory that waits to be freed */
} wfp_comm;

/* A Comm over `comm`, which it takes over if `owned`; NULL on failure. */
PyObject *wfp_comm_wrap(wfp_world *world, weft_comm *comm, bool owned);

/* A converter for PyArg_Parse: stores a Comm, borrowed, at `out`. 1, or 0 with
 * TypeError set if it is none. */
int wfp_comm_convert(PyObject *object, void *out);

/* 0, or -1 with the reason raised why it cannot be used. */
int wfp_comm_check(const wfp_comm *comm);

/* Mark the communicator as in use by this thread before the GIL is given up,
 * and undo it after: 0, or -1 with the reason raised. Only these two let other
 * threads in, so that none can close it, or call it too, meanwhile. */
int wfp_comm_enter(wfp_comm *comm);
void wfp_comm_leave(wfp_comm *comm);

/* The methods that communicate, from collectives.c, blocks.c, messages.c,
 * memory.c and groups.c. */
typedef PyObject *wfp_method(PyObject *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames);

PyObject *wfp_comm_barrier(PyObject *self, PyObject *unused);
PyObject *wfp_comm_ibarrier(PyObject *self, PyObject *unused);
PyObject *wfp_comm_lend(PyObject *self, PyObject *unused);
wfp_method wfp_comm_probe;
wfp_method wfp_comm_iprobe;
wfp_method wfp_comm_split;
wfp_method wfp_comm_create_group;
wfp_method wfp_comm_empty;
PyObject *wfp_comm_alloc(PyObject *self, PyObject *bytes);
PyObject *wfp_comm_dup(PyObject *self, PyObject *unused);
PyObject *wfp_comm_subset(PyObject *self, PyObject *ranks);
PyObject *wfp_comm_shrink(PyObject *self, PyObject *exclude);

#endif
