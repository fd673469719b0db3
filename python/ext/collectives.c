/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of Comm in which each rank has one block: barrier, broadcast and
 * the reductions. The blocking forms are the hot path of the module: no Python
 * frame, no allocation. */
#include "call.h"
#include "observe.h"
#include "op.h"
#include "request.h"

PyObject *wfp_comm_barrier(PyObject *object, PyObject *unused)
{
    wfp_comm *self = (wfp_comm *)object;
    weft_status status;
    uint64_t since;

    (void)unused;
    if (wfp_comm_enter(self) < 0) {
        return NULL;
    }
    since = wfp_observe_begin();
    Py_BEGIN_ALLOW_THREADS
    status = weft_barrier(self->comm);
    Py_END_ALLOW_THREADS
    if (since != 0) {
        wfp_observe_end("barrier", self, NULL, since);
    }
    wfp_comm_leave(self);
    if (status != WEFT_OK) {
        return wfp_raise(status);
    }
    Py_RETURN_NONE;
}

PyObject *wfp_comm_ibarrier(PyObject *object, PyObject *unused)
{
    wfp_comm *self = (wfp_comm *)object;
    wfp_operation *operation = wfp_operation_new(self, "barrier");
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

/* Only the root's array may be read-only. */
static int broadcast_open(wfp_call *call, const wfp_comm *comm,
                          PyObject *const *given, unsigned access)
{
    if (wfp_args_u32(given[1], "root", &call->root) < 0) {
        return -1;
    }
    if (weft_comm_rank(comm->comm) != call->root) {
        access |= WFP_WRITE;
    }
    if (wfp_side_open(&call->x, given[0], access) < 0) {
        return -1;
    }
    call->dst = call->x.one.data;
    call->n = call->x.count * wfp_side_unit(&call->x);
    call->type = wfp_side_type(&call->x);
    call->result = given[0];
    return 0;
}

static weft_status broadcast_make(weft_comm *comm, wfp_call *c,
                                  weft_request **out)
{
    return WFP_MAKE(out, weft_broadcast, weft_ibroadcast, comm, c->dst, c->n,
                    c->type, c->root);
}

const wfp_kind wfp_broadcast = {
    .signature = {"broadcast", 1, {"x", "root", NULL}},
    .open = broadcast_open,
    .make = broadcast_make,
};

/* Open what is reduced: x, and out if it is another array. */
static int reduction_open(wfp_call *call, PyObject *x, PyObject *op,
                          PyObject *out, unsigned access)
{
    bool in_place = out == NULL || out == Py_None || out == x;
    wfp_side *dst = in_place ? &call->x : &call->out;

    if (wfp_op_from(op, &call->op) < 0) {
        return -1;
    }
    if (!in_place && wfp_side_open(&call->x, x, access) < 0) {
        return -1;
    }
    if (wfp_side_open(dst, in_place ? x : out, access | WFP_WRITE) < 0 ||
        wfp_side_check_reducible(dst) < 0 ||
        (!in_place && wfp_side_same_type(&call->x, dst) < 0)) {
        return -1;
    }
    if (call->x.count != dst->count) {
        return wfp_invalid("x has %zu elements, but out has %zu", call->x.count,
                           dst->count);
    }
    call->src = call->x.one.data;
    call->dst = dst->one.data;
    call->n = dst->count;
    call->type = (weft_dtype)dst->dtype;
    call->result = in_place ? x : out;
    return 0;
}

/* x, op, out */
static int allreduce_open(wfp_call *call, const wfp_comm *comm,
                          PyObject *const *given, unsigned access)
{
    (void)comm;
    return reduction_open(call, given[0], given[1], given[2], access);
}

static weft_status allreduce_make(weft_comm *comm, wfp_call *c,
                                  weft_request **out)
{
    return WFP_MAKE(out, weft_allreduce, weft_iallreduce, comm, c->src, c->dst,
                    c->n, c->type, c->op);
}

const wfp_kind wfp_allreduce = {
    .signature = {"allreduce", 1, {"x", "op", "out", NULL}},
    .open = allreduce_open,
    .make = allreduce_make,
};

static weft_status scan_make(weft_comm *comm, wfp_call *c, weft_request **out)
{
    return WFP_MAKE(out, weft_scan, weft_iscan, comm, c->src, c->dst, c->n,
                    c->type, c->op);
}

const wfp_kind wfp_scan = {
    .signature = {"scan", 1, {"x", "op", "out", NULL}},
    .open = allreduce_open,
    .make = scan_make,
};

static weft_status exscan_make(weft_comm *comm, wfp_call *c, weft_request **out)
{
    return WFP_MAKE(out, weft_exscan, weft_iexscan, comm, c->src, c->dst, c->n,
                    c->type, c->op);
}

const wfp_kind wfp_exscan = {
    .signature = {"exscan", 1, {"x", "op", "out", NULL}},
    .open = allreduce_open,
    .make = exscan_make,
};

/* x, op, root, out. Ranks that get no result only read x. */
static int reduce_open(wfp_call *call, const wfp_comm *comm,
                       PyObject *const *given, unsigned access)
{
    if (wfp_args_u32(given[2], "root", &call->root) < 0) {
        return -1;
    }
    if (weft_comm_rank(comm->comm) == call->root) {
        return reduction_open(call, given[0], given[1], given[3], access);
    }
    if (wfp_op_from(given[1], &call->op) < 0 ||
        wfp_side_open(&call->x, given[0], access) < 0 ||
        wfp_side_check_reducible(&call->x) < 0) {
        return -1;
    }
    call->src = call->x.one.data;
    call->n = call->x.count;
    call->type = (weft_dtype)call->x.dtype;
    return 0;
}

static weft_status reduce_make(weft_comm *comm, wfp_call *c, weft_request **out)
{
    return WFP_MAKE(out, weft_reduce, weft_ireduce, comm, c->src, c->dst, c->n,
                    c->type, c->op, c->root);
}

const wfp_kind wfp_reduce = {
    .signature = {"reduce", 1, {"x", "op", "root", "out", NULL}},
    .open = reduce_open,
    .make = reduce_make,
};
