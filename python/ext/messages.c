/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks as methods of Comm, and the type Message. They are
 * bytes: any element type can travel. */
#include "call.h"
#include "message.h"

static PyTypeObject *message_type;

PyObject *wfp_message_new(const weft_message_info *info, size_t item)
{
    PyObject *row;

    if (info->n % item != 0) {
        return wfp_fail(WEFT_ERR_INVALID,
                        "received %zu bytes, which is not a whole number of "
                        "elements of %zu bytes",
                        info->n, item);
    }
    row = PyStructSequence_New(message_type);
    if (row == NULL) {
        return NULL;
    }
    PyStructSequence_SetItem(row, 0, PyLong_FromUnsignedLong(info->from));
    PyStructSequence_SetItem(row, 1, PyLong_FromUnsignedLong(info->tag));
    PyStructSequence_SetItem(row, 2, PyLong_FromSize_t(info->n / item));
    if (PyErr_Occurred()) {
        Py_CLEAR(row);
    }
    return row;
}

/* x, peer, tag */
static int send_open(wfp_call *call, const wfp_comm *comm,
                     PyObject *const *given, unsigned access)
{
    (void)comm;
    call->tag = 0;
    if (wfp_args_u32(given[1], "peer", &call->peer) < 0 ||
        wfp_args_u32(given[2], "tag", &call->tag) < 0) {
        return -1;
    }
    return wfp_side_open(&call->x, given[0], access);
}

static weft_status send_make(weft_comm *comm, wfp_call *c, weft_request **out)
{
    size_t n = wfp_array_bytes(&c->x.one);

    return WFP_MAKE(out, weft_send, weft_isend, comm, c->x.one.data, n, c->peer,
                    c->tag);
}

const wfp_kind wfp_send = {
    .signature = {"send", 2, {"x", "peer", "tag", NULL}},
    .open = send_open,
    .make = send_make,
};

static int recv_open(wfp_call *call, const wfp_comm *comm,
                     PyObject *const *given, unsigned access)
{
    call->received = &call->x;
    return send_open(call, comm, given, access | WFP_WRITE);
}

static weft_status recv_make(weft_comm *comm, wfp_call *c, weft_request **out)
{
    size_t room = wfp_array_bytes(&c->x.one);

    return WFP_MAKE(out, weft_recv, weft_irecv, comm, c->x.one.data, room,
                    c->peer, c->tag, &c->info);
}

const wfp_kind wfp_recv = {
    .signature = {"recv", 2, {"x", "peer", "tag", NULL}},
    .open = recv_open,
    .make = recv_make,
};

/* x, peer, out, source, tag, source_tag */
static int sendrecv_open(wfp_call *call, const wfp_comm *comm,
                         PyObject *const *given, unsigned access)
{
    PyObject *source = given[3] == Py_None ? NULL : given[3];
    PyObject *source_tag = given[5] == Py_None ? NULL : given[5];

    (void)comm;
    call->tag = 0;
    if (wfp_args_u32(given[1], "peer", &call->peer) < 0 ||
        wfp_args_u32(given[4], "tag", &call->tag) < 0) {
        return -1;
    }
    call->source = call->peer;
    call->source_tag = call->tag;
    if (wfp_args_u32(source, "source", &call->source) < 0 ||
        wfp_args_u32(source_tag, "source_tag", &call->source_tag) < 0 ||
        wfp_side_open(&call->x, given[0], access) < 0 ||
        wfp_side_open(&call->out, given[2], access | WFP_WRITE) < 0) {
        return -1;
    }
    call->received = &call->out;
    return 0;
}

static weft_status sendrecv_make(weft_comm *comm, wfp_call *c,
                                 weft_request **out)
{
    const void *src = c->x.one.data;
    void *dst = c->out.one.data;
    size_t n = wfp_array_bytes(&c->x.one);
    size_t room = wfp_array_bytes(&c->out.one);

    return WFP_MAKE(out, weft_sendrecv, weft_isendrecv, comm, src, n, c->peer,
                    c->tag, dst, room, c->source, c->source_tag, &c->info);
}

const wfp_kind wfp_sendrecv = {
    .signature = {"sendrecv",
                  3,
                  {"x", "peer", "out", "source", "tag", "source_tag", NULL}},
    .open = sendrecv_open,
    .make = sendrecv_make,
};

/* probe() waits until there is a message, iprobe() does not. */
static PyObject *probe_run(const wfp_signature *signature, bool waits,
                           PyObject *object, PyObject *const *args,
                           Py_ssize_t nargs, PyObject *kwnames)
{
    wfp_comm *self = (wfp_comm *)object;
    PyObject *given[2];
    weft_message_info info;
    weft_status status;
    uint32_t peer;
    uint32_t tag = 0;
    int found = 1;

    if (wfp_args_sort(signature, args, nargs, kwnames, given) < 0 ||
        wfp_args_u32(given[0], "peer", &peer) < 0 ||
        wfp_args_u32(given[1], "tag", &tag) < 0 || wfp_comm_enter(self) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = waits ? weft_probe(self->comm, peer, tag, &info)
                   : weft_iprobe(self->comm, peer, tag, &found, &info);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(self);
    if (status != WEFT_OK) {
        return wfp_raise(status);
    }
    return found ? wfp_message_new(&info, 1) : Py_NewRef(Py_None);
}

PyObject *wfp_comm_probe(PyObject *self, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {"probe", 1, {"peer", "tag", NULL}};

    return probe_run(&signature, true, self, args, nargs, kwnames);
}

PyObject *wfp_comm_iprobe(PyObject *self, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {"iprobe", 1, {"peer", "tag", NULL}};

    return probe_run(&signature, false, self, args, nargs, kwnames);
}

static PyStructSequence_Field message_fields[] = {
    {"peer", "the rank that sent it"},
    {"tag", "the tag it was sent with"},
    {"length", "in elements of the array; in bytes, of a probe"},
    {NULL, NULL},
};

static PyStructSequence_Desc message_desc = {
    .name = "weft.Message",
    .doc = "What is known of a message.",
    .fields = message_fields,
    .n_in_sequence = 3,
};

int wfp_message_setup(PyObject *module)
{
    message_type = PyStructSequence_NewType(&message_desc);
    if (message_type == NULL || PyModule_AddType(module, message_type) < 0 ||
        PyModule_AddIntConstant(module, "ANY_SOURCE", (long)WEFT_ANY_SOURCE) <
            0) {
        return -1;
    }
    return PyModule_AddIntConstant(module, "ANY_TAG", (long)WEFT_ANY_TAG);
}
