/* SPDX-License-Identifier: Apache-2.0 */
/* The type RegionHandle: what is known of a region, and windows on its memory.
 * Other calls are in region_wait.c, region_files.c and region_share.c. */
#include "region.h"

#include "args.h"
#include "region_window.h"

static PyTypeObject *region_type;

PyObject *wfp_region_wrap(wfp_hold *hold)
{
    wfp_region *self = PyObject_New(wfp_region, region_type);

    if (self == NULL) {
        wfp_hold_release(hold);
        return NULL;
    }
    self->hold = hold;
    return (PyObject *)self;
}

wfp_hold *wfp_region_hold(PyObject *object)
{
    return Py_IS_TYPE(object, region_type) ? ((wfp_region *)object)->hold
                                           : NULL;
}

weft_region *wfp_region_get(PyObject *self)
{
    return wfp_hold_get(((wfp_region *)self)->hold);
}

static void region_dealloc(PyObject *object)
{
    wfp_hold_release(((wfp_region *)object)->hold);
    wfp_object_free(object);
}

static PyObject *region_describe(PyObject *object, PyObject *unused)
{
    const weft_region *region = wfp_region_get(object);
    weft_region_info info;

    (void)unused;
    if (region == NULL) {
        return NULL;
    }
    weft_region_describe(region, &info);
    return Py_BuildValue(
        "{s:N,s:s,s:K,s:K,s:K,s:i,s:i,s:i,s:i,s:K,s:I,s:I,s:K,s:N,s:N,s:N}",
        "shape", wfp_tuple_of(info.shape, info.dims), "type",
        weft_dtype_name(info.type), "row_bytes",
        (unsigned long long)info.row_bytes, "row_pitch",
        (unsigned long long)info.row_pitch, "max_rows",
        (unsigned long long)info.max_rows, "place", (int)info.place, "device",
        (int)info.device, "reach", (int)info.reach, "partition",
        (int)info.partition, "run", (unsigned long long)info.run, "rank",
        (unsigned)info.rank, "ranks", (unsigned)info.ranks, "page",
        (unsigned long long)info.page, "flat", PyBool_FromLong(info.flat),
        "mapped", PyBool_FromLong(weft_region_base(region) != NULL),
        "read_only", PyBool_FromLong(info.read_only));
}

int wfp_region_rank(const weft_region *region, PyObject *number, uint32_t *out)
{
    weft_region_info info;

    if (wfp_args_u32(number, "rank", out) < 0) {
        return -1;
    }
    weft_region_describe(region, &info);
    if (*out >= info.ranks) {
        return wfp_invalid("rank is %R; it must be 0 to %u", number,
                           info.ranks - 1);
    }
    return 0;
}

static PyObject *region_parts(PyObject *object, PyObject *number)
{
    const weft_region *region = wfp_region_get(object);
    uint32_t rank = 0;
    uint32_t n;
    PyObject *list;

    if (region == NULL || wfp_region_rank(region, number, &rank) < 0) {
        return NULL;
    }
    n = weft_region_parts(region, rank);
    list = PyList_New(n);
    for (uint32_t i = 0; list != NULL && i < n; i++) {
        weft_region_part part;
        weft_status status = weft_region_part_of(region, rank, i, &part);
        PyObject *row =
            status == WEFT_OK
                ? Py_BuildValue("(KKN)", (unsigned long long)part.row,
                                (unsigned long long)part.rows,
                                PyBool_FromLong(part.at != NULL))
                : wfp_raise(status);

        if (row == NULL || PyList_SetItem(list, i, row) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *region_locate(PyObject *object, PyObject *number)
{
    const weft_region *region = wfp_region_get(object);
    uint64_t row = 0;
    uint32_t owner;
    uint64_t local;
    weft_status status;

    if (region == NULL || wfp_args_u64(number, "row", &row) < 0) {
        return NULL;
    }
    status = weft_region_locate(region, row, &owner, &local);
    return status == WEFT_OK
               ? Py_BuildValue("(IK)", owner, (unsigned long long)local)
               : wfp_raise(status);
}

/* Which bytes: those of all rows, or of one part of one rank. */
static int region_range(const weft_region *region, PyObject *rank,
                        PyObject *index, char **at, size_t *bytes)
{
    weft_region_info info;
    weft_region_part part = {.at = weft_region_base(region)};
    uint32_t number[2] = {0, 0};
    weft_status status = WEFT_OK;

    weft_region_describe(region, &info);
    part.rows = info.shape[0];
    if (rank != NULL && rank != Py_None) {
        if (wfp_region_rank(region, rank, &number[0]) < 0 ||
            wfp_args_u32(index, "index", &number[1]) < 0) {
            return -1;
        }
        status = weft_region_part_of(region, number[0], number[1], &part);
    }
    if (status != WEFT_OK) {
        wfp_raise(status);
        return -1;
    }
    *bytes = info.row_bytes == 0 ? 0 : part.rows * info.row_pitch;
    *at = part.at;
    if (*at == NULL && *bytes != 0) {
        wfp_fail(WEFT_ERR_UNSUPPORTED,
                 "these rows are on another node and not mapped here; gather "
                 "and scatter reach them");
        return -1;
    }
    return 0;
}

/* The same bytes as they are seen by the CUDA device `id`. */
static int region_move_to_device(weft_region *region, int64_t id, char **at)
{
    const char *base = weft_region_base(region);
    char *there = weft_region_base_on(region, (int32_t)id);

    if (there == NULL) {
        wfp_raise(WEFT_ERR_UNSUPPORTED);
        return -1;
    }
    *at = there + (*at - base);
    return 0;
}

static int region_move_to_readonly(wfp_hold *hold, char **at)
{
    const char *base = weft_region_base(hold->region);
    char *view = NULL;
    weft_status status = wfp_hold_readonly(hold, &view);

    if (status != WEFT_OK) {
        wfp_raise(status);
        return -1;
    }
    *at = view + (*at - base);
    return 0;
}

/* All of the memory that this process attached to. */
static PyObject *region_attached_window(wfp_hold *hold)
{
    return wfp_window_new(hold, hold->at, hold->bytes, !hold->writable,
                          WFP_DL_CPU, 0);
}

static PyObject *region_window(PyObject *object, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "window", 0, {"rank", "index", "readonly", "device", NULL}};
    wfp_region *self = (wfp_region *)object;
    weft_region *region = self->hold->region;
    weft_region_info info;
    PyObject *given[4];
    char *at = NULL;
    size_t bytes = 0;
    int64_t device = -1; /* the host, or a CUDA device */
    bool readonly;

    if (region == NULL) {
        return region_attached_window(self->hold);
    }
    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        region_range(region, given[0], given[1], &at, &bytes) < 0 ||
        wfp_args_i64(given[3], "device", &device) < 0) {
        return NULL;
    }
    readonly = given[2] != NULL && PyObject_IsTrue(given[2]) == 1;
    weft_region_describe(region, &info);
    if (info.place == WEFT_CUDA && device < 0) {
        return wfp_fail(WEFT_ERR_UNSUPPORTED,
                        "GPU memory cannot be viewed by the CPU");
    }
    if (bytes != 0 && device >= 0 && !readonly &&
        region_move_to_device(region, device, &at) < 0) {
        return NULL;
    }
    if (bytes != 0 && readonly &&
        region_move_to_readonly(self->hold, &at) < 0) {
        return NULL;
    }
    return wfp_window_new(self->hold, at, bytes, readonly || info.read_only,
                          device < 0 ? WFP_DL_CPU : WFP_DL_CUDA,
                          device < 0 ? 0 : (int32_t)device);
}

static PyObject *region_count(PyObject *object, PyObject *unused)
{
    const weft_region *region = wfp_region_get(object);
    weft_region_stats s;

    (void)unused;
    if (region == NULL) {
        return NULL;
    }
    weft_region_count(region, &s);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K}", "bytes",
                         (unsigned long long)s.bytes, "own_bytes",
                         (unsigned long long)s.own_bytes, "huge_bytes",
                         (unsigned long long)s.huge_bytes, "gathers",
                         (unsigned long long)s.gathers, "scatters",
                         (unsigned long long)s.scatters, "rows_own",
                         (unsigned long long)s.rows_own, "rows_node",
                         (unsigned long long)s.rows_node, "rows_remote",
                         (unsigned long long)s.rows_remote, "bytes_remote",
                         (unsigned long long)s.bytes_remote);
}

static PyObject *region_get_facts(PyObject *object, void *unused)
{
    PyObject *facts = ((wfp_region *)object)->hold->facts;

    (void)unused;
    return Py_NewRef(facts == NULL ? Py_None : facts);
}

static int region_set_facts(PyObject *object, PyObject *value, void *unused)
{
    wfp_hold *hold = ((wfp_region *)object)->hold;
    PyObject *old = hold->facts;

    (void)unused;
    hold->facts = Py_XNewRef(value);
    Py_XDECREF(old);
    return 0;
}

static PyObject *region_get_attached(PyObject *object, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((wfp_region *)object)->hold->region == NULL);
}

static PyMethodDef region_methods[] = {
    {"describe", region_describe, METH_NOARGS,
     "describe($self, /)\n--\n\nWhat there is to know of it, by name."},
    {"parts", region_parts, METH_O,
     "parts($self, rank, /)\n--\n\n"
     "(first row, rows, is it mapped here) of each range of a rank."},
    {"locate", region_locate, METH_O,
     "locate($self, row, /)\n--\n\n"
     "The owner of a row, and where it is in the owner's storage."},
    WFP_METHOD("window", region_window,
               "window($self, /, rank=None, index=0, readonly=False, "
               "device=-1)\n--\n\n"
               "The memory of all rows, or of one part of a rank."),
    {"resize", wfp_region_resize, METH_O,
     "resize($self, rows, /)\n--\n\nChange the number of rows."},
    WFP_METHOD("barrier", wfp_region_barrier,
               "barrier($self, /, timeout=None)\n--\n\n"
               "Return when all ranks have called it."),
    WFP_METHOD("signal", wfp_region_signal,
               "signal($self, /, to, slot=0, by=1)\n--\n\n"
               "Add to a word of rank to."),
    WFP_METHOD("wait", wfp_region_wait,
               "wait($self, /, value, slot=0, timeout=None)\n--\n\n"
               "Return when the word of this rank is at least value."),
    WFP_METHOD("signalled", wfp_region_signalled,
               "signalled($self, /, rank, slot=0)\n--\n\n"
               "The word of a rank of this node."),
    {"count", region_count, METH_NOARGS,
     "count($self, /)\n--\n\nWhat this rank has counted, by name."},
    WFP_METHOD("save", wfp_region_save,
               "save($self, /, comm, path, threads=0, direct=False, "
               "progress=None)\n--\n\nWrite it to a file."),
    WFP_METHOD("load", wfp_region_load,
               "load($self, /, comm, path, threads=0, direct=False, "
               "verify=True, progress=None)\n--\n\nFill it from a file."),
    WFP_METHOD("load_raw", wfp_region_load_raw,
               "load_raw($self, /, comm, paths, threads=0, direct=False, "
               "row_bytes=0, skip=0)\n--\n\n"
               "Fill it from files that are nothing but rows."),
    {"sync", wfp_region_sync, METH_NOARGS,
     "sync($self, /)\n--\n\nWrite a mapped file's memory to the disk."},
    {"offset_of", wfp_region_offset_of, METH_O,
     "offset_of($self, address, /)\n--\n\n"
     "(offset in the mapping, whether it is writable)."},
    {"export", wfp_region_export, METH_NOARGS,
     "export($self, /)\n--\n\n"
     "(descriptor, offset, bytes) of its memory in a file; the descriptor is "
     "the caller's."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef region_getset[] = {
    {"facts", region_get_facts, region_set_facts,
     "What weft._region remembers of it.", NULL},
    {"attached", region_get_attached, NULL,
     "True if this process is none of its ranks.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot region_slots[] = {
    {Py_tp_doc, (void *)"A region of the C library; weft.Region is for use."},
    WFP_SLOT(Py_tp_dealloc, region_dealloc),
    {Py_tp_methods, region_methods},
    {Py_tp_getset, region_getset},
    {0, NULL},
};

int wfp_region_setup(PyObject *module)
{
    return wfp_type_add(module, "weft.RegionHandle", sizeof(wfp_region), 0,
                        region_slots, &region_type);
}
