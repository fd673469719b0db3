/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the module that make regions or find them. weft._create gives
 * them their arguments. */
#include <weft/file.h>

#include "args.h"
#include "region.h"

static int create_shape(PyObject *tuple, uint32_t *dims, uint64_t *shape)
{
    Py_ssize_t n = PyTuple_Size(tuple);

    if (n < 1 || n > WEFT_REGION_DIMS_MAX) {
        return wfp_invalid(
            "the shape %R has %zd dimensions; it must have 1 to %d, the "
            "rows first",
            tuple, n, WEFT_REGION_DIMS_MAX);
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        if (wfp_args_u64(PyTuple_GetItem(tuple, i), "a size", &shape[i]) < 0) {
            return -1;
        }
    }
    *dims = (uint32_t)n;
    return 0;
}

/* One number for each rank of `comm`, to be freed; NULL if `object` is None. */
static int create_part_rows(PyObject *object, const wfp_comm *comm,
                            uint64_t **out)
{
    uint32_t ranks = weft_comm_size(comm->comm);
    uint64_t *rows;

    *out = NULL;
    if (object == Py_None) {
        return 0;
    }
    if (!PyTuple_Check(object) || PyTuple_Size(object) != (Py_ssize_t)ranks) {
        return wfp_invalid(
            "the partition is %R; give the rows of each of the %u ranks",
            object, ranks);
    }
    rows = PyMem_Malloc(ranks * sizeof(*rows));
    if (rows == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        if (wfp_args_u64(PyTuple_GetItem(object, r), "rows of a rank",
                         &rows[r]) < 0) {
            PyMem_Free(rows);
            return -1;
        }
    }
    *out = rows;
    return 0;
}

/* The arguments of one creation, or of one opening of a file. */
typedef struct create_call {
    wfp_comm *comm;
    uint32_t dims;
    uint64_t shape[WEFT_REGION_DIMS_MAX];
    weft_dtype type;
    weft_region_options options;
    const char *path;
    int writable;
} create_call;

typedef weft_status create_function(const create_call *call, weft_region **out);

static PyObject *create_run(const create_call *call, create_function *make)
{
    weft_region *region = NULL;
    weft_status status;
    wfp_hold *hold;

    if (wfp_comm_enter(call->comm) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = make(call, &region);
    Py_END_ALLOW_THREADS
    wfp_comm_leave(call->comm);
    if (status != WEFT_OK) {
        return wfp_raise(status);
    }
    hold = wfp_hold_region(region, call->comm->world);
    return hold == NULL ? NULL : wfp_region_wrap(hold);
}

static weft_status create_memory(const create_call *call, weft_region **out)
{
    return weft_region_create(call->comm->comm, call->dims, call->shape,
                              call->type, &call->options, out);
}

static weft_status create_open(const create_call *call, weft_region **out)
{
    return weft_region_open(call->comm->comm, call->path, call->writable, out);
}

static weft_status create_open_new(const create_call *call, weft_region **out)
{
    return weft_region_open_new(call->comm->comm, call->path, call->dims,
                                call->shape, call->type, out);
}

static PyObject *region_create(PyObject *module, PyObject *args,
                               PyObject *keywords)
{
    static const char *const names[] = {
        "comm", "shape",     "type",    "place",    "device", "reach",
        "kind", "part_rows", "run",     "max_rows", "pitch",  "pages",
        "numa", "aligned",   "timeout", "element",  NULL};
    create_call call = {.options = {.size = sizeof(call.options)}};
    weft_region_options *o = &call.options;
    PyObject *shape;
    PyObject *part_rows;
    PyObject *counts[4];
    PyObject *timeout;
    const char *type;
    uint64_t *given = NULL;
    int place;
    int reach;
    int kind;
    int pages;
    PyObject *made = NULL;

    (void)module;
    if (!PyArg_ParseTupleAndKeywords(
            args, keywords, "O&O!siiiiOOOOiiiOO", (char **)names,
            wfp_comm_convert, &call.comm, &PyTuple_Type, &shape, &type, &place,
            &o->device, &reach, &kind, &part_rows, &counts[0], &counts[1],
            &counts[2], &pages, &o->numa, &o->aligned, &timeout, &counts[3])) {
        return NULL;
    }
    if (wfp_comm_check(call.comm) < 0 || wfp_args_type(type, &call.type) < 0 ||
        create_shape(shape, &call.dims, call.shape) < 0 ||
        wfp_args_u64(counts[0], "run", &o->run) < 0 ||
        wfp_args_u64(counts[1], "max_rows", &o->max_rows) < 0 ||
        wfp_args_u64(counts[2], "row_pitch", &o->row_pitch) < 0 ||
        wfp_args_u64(counts[3], "element", &o->element) < 0 ||
        wfp_args_seconds(timeout, "timeout", &o->timeout) < 0 ||
        create_part_rows(part_rows, call.comm, &given) < 0) {
        return NULL;
    }
    o->place = (weft_place)place;
    o->reach = (weft_reach)reach;
    o->partition = (weft_partition)kind;
    o->pages = (weft_pages)pages;
    o->part_rows = given;
    made = create_run(&call, create_memory);
    PyMem_Free(given);
    return made;
}

static PyObject *region_open(PyObject *module, PyObject *args)
{
    create_call call = {0};
    PyObject *path = NULL;
    PyObject *made;

    (void)module;
    if (!PyArg_ParseTuple(args, "O&O&p", wfp_comm_convert, &call.comm,
                          PyUnicode_FSConverter, &path, &call.writable)) {
        return NULL;
    }
    call.path = PyBytes_AsString(path);
    made = create_run(&call, create_open);
    Py_DECREF(path);
    return made;
}

static PyObject *region_open_new(PyObject *module, PyObject *args)
{
    create_call call = {0};
    PyObject *shape;
    const char *type;
    PyObject *path = NULL;
    PyObject *made = NULL;

    (void)module;
    if (!PyArg_ParseTuple(args, "O&O&O!s", wfp_comm_convert, &call.comm,
                          PyUnicode_FSConverter, &path, &PyTuple_Type, &shape,
                          &type)) {
        return NULL;
    }
    call.path = PyBytes_AsString(path);
    if (wfp_args_type(type, &call.type) == 0 &&
        create_shape(shape, &call.dims, call.shape) == 0) {
        made = create_run(&call, create_open_new);
    }
    Py_DECREF(path);
    return made;
}

static PyObject *region_find(PyObject *module, PyObject *address)
{
    void *at = PyLong_AsVoidPtr(address);
    wfp_hold *hold;

    (void)module;
    if (at == NULL && PyErr_Occurred()) {
        return NULL;
    }
    hold = wfp_hold_find(at);
    if (hold == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    return wfp_region_wrap(hold);
}

PyMethodDef wfp_region_create_functions[] = {
    {"region_create", (PyCFunction)(void (*)(void))region_create,
     METH_VARARGS | METH_KEYWORDS,
     "region_create($module, /, comm, shape, type, place, device, reach, kind, "
     "part_rows, run, max_rows, pitch, pages, numa, aligned, timeout, element)"
     "\n--\n\n"
     "weft_region_create as a RegionHandle."},
    {"region_open", region_open, METH_VARARGS,
     "region_open($module, comm, path, writable, /)\n--\n\n"
     "A file as a region."},
    {"region_open_new", region_open_new, METH_VARARGS,
     "region_open_new($module, comm, path, shape, type, /)\n--\n\n"
     "A new file as a region."},
    {"region_find", region_find, METH_O,
     "region_find($module, address, /)\n--\n\n"
     "The RegionHandle of the memory at an address, or None."},
    {NULL, NULL, 0, NULL},
};
