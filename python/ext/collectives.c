/* SPDX-License-Identifier: Apache-2.0 */
/* barrier, broadcast and allreduce of Comm. The blocking forms are the hot path
 * of the module: no Python frame, no allocation. */
#include "args.h"
#include "array.h"
#include "comm.h"
#include "op.h"
#include "request.h"

PyObject *wfp_comm_barrier(PyObject *object, PyObject *unused)
{
    wfp_comm *self = (wfp_comm *)object;
    weft_status status;

    (void)unused;
    if (wfp_comm_enter(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_barrier(self->comm);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(self);
    if (status != WEFT_OK) {
        return wfp_raise(status);
    }
    Py_RETURN_NONE;
}

PyObject *wfp_comm_ibarrier(PyObject *object, PyObject *unused)
{
    wfp_comm *self = (wfp_comm *)object;
    wfp_operation *operation = wfp_operation_new(self);
    weft_status status;

    (void)unused;
    if (operation == NULL) {
        return NULL;
    }
    if (wfp_comm_enter(self) < 0) {
        wfp_operation_free(operation);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_ibarrier(self->comm, &operation->request);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(self);
    return wfp_request_started(operation, status);
}

typedef struct broadcast {
    PyObject *x;
    size_t n;
    weft_dtype type;
    uint32_t root;
} broadcast;

/* Read the arguments and open x: only the root's may be read-only. Types that
 * cannot be reduced travel as bytes. */
static int broadcast_open(wfp_comm *self, const wfp_signature *signature,
                          PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames, unsigned access, wfp_array *array,
                          broadcast *out)
{
    PyObject *given[2];

    out->root = 0;
    if (wfp_args_sort(signature, args, nargs, kwnames, given) < 0 ||
        wfp_args_u32(given[1], "root", &out->root) < 0 ||
        wfp_comm_check(self) < 0) {
        return -1;
    }
    if (weft_comm_rank(self->comm) != out->root) {
        access |= WFP_WRITE;
    }
    if (wfp_array_open(array, given[0], access) < 0) {
        return -1;
    }
    out->x = given[0];
    out->type = WEFT_U8;
    out->n = wfp_array_bytes(array);
    if (array->dtype != WFP_NO_DTYPE) {
        out->type = (weft_dtype)array->dtype;
        out->n = array->count;
    }
    return 0;
}

PyObject *wfp_comm_broadcast(PyObject *object, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "broadcast", 1, {"x", "root", NULL}};
    wfp_comm *self = (wfp_comm *)object;
    wfp_array array;
    broadcast b;
    weft_status status;
    PyObject *result = NULL;

    if (broadcast_open(self, &signature, args, nargs, kwnames, WFP_READ, &array,
                       &b) < 0) {
        return NULL;
    }
    if (wfp_comm_enter(self) == 0) {
        Py_BEGIN_ALLOW_THREADS
        status = weft_broadcast(self->comm, array.data, b.n, b.type, b.root);
        Py_END_ALLOW_THREADS
        wfp_comm_leave(self);
        if (status != WEFT_OK) {
            wfp_raise(status);
        } else if (wfp_array_finish(&array) == 0) {
            result = Py_NewRef(b.x);
        }
    }
    wfp_array_close(&array);
    return result;
}

PyObject *wfp_comm_ibroadcast(PyObject *object, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "ibroadcast", 1, {"x", "root", NULL}};
    wfp_comm *self = (wfp_comm *)object;
    wfp_operation *operation = wfp_operation_new(self);
    weft_status status;
    broadcast b;

    if (operation == NULL) {
        return NULL;
    }
    if (broadcast_open(self, &signature, args, nargs, kwnames, WFP_KEEP,
                       &operation->array[0], &b) < 0 ||
        wfp_comm_enter(self) < 0) {
        wfp_operation_free(operation);
        return NULL;
    }
    operation->result = Py_NewRef(b.x);
    Py_BEGIN_ALLOW_THREADS
    status = weft_ibroadcast(self->comm, operation->array[0].data, b.n, b.type,
                             b.root, &operation->request);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(self);
    return wfp_request_started(operation, status);
}

typedef struct reduction {
    PyObject *result; /* borrowed: the array that gets it */
    const void *src;
    void *dst;
    size_t n;
    weft_dtype type;
    weft_op op;
} reduction;

static int reduction_no_type(PyObject *x)
{
    PyObject *dtype = PyObject_GetAttrString(x, "dtype");

    PyErr_Clear();
    wfp_fail(WEFT_ERR_UNSUPPORTED,
             "elements of type %S cannot be reduced; broadcast, send and recv "
             "can move them",
             dtype == NULL ? (PyObject *)Py_TYPE(x) : dtype);
    Py_XDECREF(dtype);
    return -1;
}

static int reduction_check_pair(const wfp_array *src, const wfp_array *dst)
{
    const char *a = src->data;
    const char *b = dst->data;
    size_t bytes = wfp_array_bytes(src);

    if (src->dtype != dst->dtype) {
        wfp_fail(WEFT_ERR_INVALID, "x has elements of %s, but out has %s",
                 weft_dtype_name((weft_dtype)src->dtype),
                 weft_dtype_name((weft_dtype)dst->dtype));
        return -1;
    }
    if (src->count != dst->count) {
        wfp_fail(WEFT_ERR_INVALID, "x has %zu elements, but out has %zu",
                 src->count, dst->count);
        return -1;
    }
    if (a != b && a < b + bytes && b < a + bytes) {
        wfp_fail(WEFT_ERR_INVALID, "x and out overlap in part");
        return -1;
    }
    return 0;
}

static int reduction_open_pair(PyObject *x, PyObject *out, unsigned access,
                               wfp_array *src, wfp_array *dst)
{
    if (wfp_array_open(src, x, access) < 0) {
        return -1;
    }
    if (wfp_array_open(dst, out, access | WFP_WRITE) < 0) {
        wfp_array_close(src);
        return -1;
    }
    if (reduction_check_pair(src, dst) < 0) {
        wfp_array_close(src);
        wfp_array_close(dst);
        return -1;
    }
    return 0;
}

/* Read the arguments of allreduce and open x and, if given, out. In place, only
 * array[0] is opened. */
static int reduction_open(const wfp_signature *signature, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames, unsigned access,
                          wfp_array array[2], reduction *r)
{
    PyObject *given[3];
    wfp_array *dst = &array[0];

    if (wfp_args_sort(signature, args, nargs, kwnames, given) < 0 ||
        wfp_op_from(given[1], &r->op) < 0) {
        return -1;
    }
    r->result = given[0];
    array[1].owner = NULL;
    if (given[2] == NULL || given[2] == Py_None || given[2] == given[0]) {
        if (wfp_array_open(&array[0], given[0], access | WFP_WRITE) < 0) {
            return -1;
        }
    } else {
        if (reduction_open_pair(given[0], given[2], access, &array[0],
                                &array[1]) < 0) {
            return -1;
        }
        r->result = given[2];
        dst = &array[1];
    }
    r->src = array[0].data;
    r->dst = dst->data;
    r->n = dst->count;
    r->type = (weft_dtype)dst->dtype;
    if (dst->dtype == WFP_NO_DTYPE) {
        reduction_no_type(given[0]);
        wfp_array_close(&array[0]);
        wfp_array_close(&array[1]);
        return -1;
    }
    return 0;
}

static int reduction_finish(wfp_array array[2])
{
    return array[1].owner == NULL ? wfp_array_finish(&array[0])
                                  : wfp_array_finish(&array[1]);
}

PyObject *wfp_comm_allreduce(PyObject *object, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "allreduce", 1, {"x", "op", "out", NULL}};
    wfp_comm *self = (wfp_comm *)object;
    wfp_array array[2];
    reduction r;
    weft_status status;
    PyObject *result = NULL;

    if (reduction_open(&signature, args, nargs, kwnames, WFP_READ, array, &r) <
        0) {
        return NULL;
    }
    if (wfp_comm_enter(self) == 0) {
        Py_BEGIN_ALLOW_THREADS
        status = weft_allreduce(self->comm, r.src, r.dst, r.n, r.type, r.op);
        Py_END_ALLOW_THREADS
        wfp_comm_leave(self);
        if (status != WEFT_OK) {
            wfp_raise(status);
        } else if (reduction_finish(array) == 0) {
            result = Py_NewRef(r.result);
        }
    }
    wfp_array_close(&array[0]);
    wfp_array_close(&array[1]);
    return result;
}

PyObject *wfp_comm_iallreduce(PyObject *object, PyObject *const *args,
                              Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "iallreduce", 1, {"x", "op", "out", NULL}};
    wfp_comm *self = (wfp_comm *)object;
    wfp_operation *operation = wfp_operation_new(self);
    weft_status status;
    reduction r;

    if (operation == NULL) {
        return NULL;
    }
    if (reduction_open(&signature, args, nargs, kwnames, WFP_KEEP,
                       operation->array, &r) < 0 ||
        wfp_comm_enter(self) < 0) {
        wfp_operation_free(operation);
        return NULL;
    }
    operation->result = Py_NewRef(r.result);
    Py_BEGIN_ALLOW_THREADS
    status = weft_iallreduce(self->comm, r.src, r.dst, r.n, r.type, r.op,
                             &operation->request);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(self);
    return wfp_request_started(operation, status);
}
