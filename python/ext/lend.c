/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator lent to C or C++ code of another module, as a capsule named
 * "weft_comm" that holds the weft_comm. Until the capsule is gone neither the
 * communicator nor its world can be closed. */
#include "comm.h"

static const char lend_name[] = "weft_comm";

static void lend_end(PyObject *capsule)
{
    wfp_comm *comm = PyCapsule_GetContext(capsule);

    comm->lent--;
    comm->world->lent--;
    Py_DECREF((PyObject *)comm);
}

PyObject *wfp_comm_lend(PyObject *self, PyObject *unused)
{
    wfp_comm *comm = (wfp_comm *)self;
    PyObject *capsule;

    (void)unused;
    if (wfp_comm_check(comm) < 0) {
        return NULL;
    }
    capsule = PyCapsule_New(comm->comm, lend_name, NULL);
    if (capsule == NULL) {
        return NULL;
    }
    PyCapsule_SetContext(capsule, Py_NewRef(self));
    PyCapsule_SetDestructor(capsule, lend_end);
    comm->lent++;
    comm->world->lent++;
    return capsule;
}
