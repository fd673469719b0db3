/* SPDX-License-Identifier: Apache-2.0 */
/* gather, scatter and scatter_add: arrays become the descriptions of
 * <weft/rows.h>. Where one is not plain the functions return False and have
 * done nothing: weft._rows then makes it so, or says why not.
 *
 * Elements that the library has no type for move as bytes, if both sides have
 * the same. */
#include "args.h"
#include "region.h"
#include "region_grid.h"

typedef weft_status rows_function(const weft_table *table, const weft_ids *ids,
                                  const weft_rows *rows,
                                  const weft_rows_options *options);

typedef struct rows_call {
    wfp_hold *hold; /* of the table's memory, if it is shared; counted */
    wfp_grid table; /* of a RegionHandle: its shape and type only */
    wfp_grid ids;
    wfp_grid rows;
    weft_table t;
    weft_ids i;
    weft_rows r;
    weft_rows_options options;
    bool by_messages; /* needs other ranks */
} rows_call;

/* A whole region, mapped or not. */
static int rows_open_region(rows_call *call, wfp_hold *hold)
{
    weft_region_info info;
    int64_t stride;

    if (hold->region == NULL) {
        wfp_fail(WEFT_ERR_UNSUPPORTED,
                 "this process only attached to the memory; pass the tensor");
        return -1;
    }
    weft_region_describe(hold->region, &info);
    wfp_hold_retain(hold);
    call->hold = hold;
    call->by_messages = info.reach != WEFT_REACH_MAPPED;
    call->table.name = "table";
    call->table.dims = (int32_t)info.dims;
    call->table.dtype = (int)info.type;
    call->table.item = weft_dtype_size(info.type);
    call->table.place = info.place;
    call->table.device = info.device;
    stride = (int64_t)call->table.item;
    for (uint32_t i = info.dims; i-- > 0;) {
        call->table.shape[i] = (int64_t)info.shape[i];
        call->table.stride[i] = i == 0 ? (int64_t)info.row_pitch : stride;
        stride *= call->table.shape[i];
    }
    call->t = (weft_table){.region = hold->region, .place = info.place};
    return 0;
}

/* Is the table a range of rows and columns of a region? Then it is passed as
 * such, which counts the rows for its statistics and finds a host region's
 * addresses on a GPU. Else it is as any other memory. */
static void rows_use_region(rows_call *call, weft_region *region,
                            uint64_t pitch)
{
    const wfp_grid *table = &call->table;
    uint64_t row_bytes = wfp_grid_count(table, 1) * table->item;
    uint64_t rows = (uint64_t)table->shape[0];
    const char *base = weft_region_base(region);
    weft_region_info info;
    uint64_t offset;

    weft_region_describe(region, &info);
    if (base == NULL || !info.flat || pitch != info.row_pitch ||
        info.place != table->place) {
        return;
    }
    offset = (uint64_t)((uintptr_t)table->at - (uintptr_t)base);
    if (offset / pitch + rows > info.shape[0] ||
        offset % pitch + row_bytes > info.row_bytes) {
        return; /* a read-only mapping, or rows across the region's own */
    }
    call->t.region = region;
    call->t.first = offset / pitch;
    call->t.limit = rows;
    call->t.skip = offset % pitch;
}

/* May the table be written to, whatever its array says of itself? */
static int rows_check_writable(const rows_call *call)
{
    const wfp_hold *hold = call->hold;
    bool readonly = !hold->writable;
    weft_region_info info;

    if (hold->region != NULL) {
        weft_region_describe(hold->region, &info);
        readonly =
            info.read_only || wfp_hold_view(hold, call->table.at) != NULL;
    }
    if (readonly) {
        return wfp_invalid(
            "the table is a read-only view of shared memory, and would be "
            "written to");
    }
    return 0;
}

/* Shared memory, if it is such. */
static int rows_find_hold(rows_call *call, uint64_t pitch, bool writable)
{
    call->hold = wfp_hold_find(call->table.at);
    if (call->hold == NULL) {
        PyErr_Clear();
        return 0;
    }
    if (writable && rows_check_writable(call) < 0) {
        return -1;
    }
    if (call->hold->region != NULL) {
        rows_use_region(call, call->hold->region, pitch);
    }
    return 0;
}

static int rows_open_array(rows_call *call, PyObject *object, bool writable)
{
    wfp_grid *table = &call->table;
    int64_t pitch;

    if (wfp_grid_open(table, object, "table", writable) < 0) {
        return -1;
    }
    if (table->dims == 0) {
        return wfp_invalid("the table must have at least one dimension");
    }
    pitch = wfp_grid_pitch(table, 1);
    if (pitch < 0 || !wfp_grid_is_compact(table, 1)) {
        return wfp_invalid(
            "the rows of the table must be contiguous and not overlap; "
            "pass it in another order, or a copy");
    }
    call->t = (weft_table){.at = table->at,
                           .rows = (uint64_t)table->shape[0],
                           .pitch = (uint64_t)pitch,
                           .place = table->place};
    return wfp_grid_count(table, 0) == 0
               ? 0
               : rows_find_hold(call, (uint64_t)pitch, writable);
}

static int rows_open_ids(rows_call *call, PyObject *object)
{
    wfp_grid *ids = &call->ids;

    if (wfp_grid_open(ids, object, "ids", false) < 0) {
        return -1;
    }
    if ((ids->dtype != WEFT_I32 && ids->dtype != WEFT_I64) ||
        !wfp_grid_is_compact(ids, 0)) {
        return -1; /* weft._rows converts them */
    }
    call->i = (weft_ids){.at = ids->at,
                         .type = (weft_dtype)ids->dtype,
                         .n = wfp_grid_count(ids, 0),
                         .place = ids->place};
    return 0;
}

/* Has it a row for each id? */
static bool rows_shape_fits(const rows_call *call)
{
    const wfp_grid *rows = &call->rows;
    int32_t lead = call->ids.dims;

    if (rows->dims != lead + call->table.dims - 1) {
        return false;
    }
    for (int32_t i = 0; i < rows->dims; i++) {
        int64_t wanted =
            i < lead ? call->ids.shape[i] : call->table.shape[i - lead + 1];

        if (rows->shape[i] != wanted) {
            return false;
        }
    }
    return true;
}

static int rows_wrong_shape(const rows_call *call)
{
    PyObject *rows = wfp_grid_shape(&call->rows);
    PyObject *ids = wfp_grid_shape(&call->ids);
    PyObject *table = wfp_grid_shape(&call->table);

    if (rows != NULL && ids != NULL && table != NULL) {
        wfp_fail(WEFT_ERR_INVALID,
                 "%s has shape %R; ids have shape %R and the table %R, so it "
                 "needs a row for each id",
                 call->rows.name, rows, ids, table);
    }
    Py_XDECREF(rows);
    Py_XDECREF(ids);
    Py_XDECREF(table);
    return -1;
}

static int rows_open_rows(rows_call *call, PyObject *object, const char *name,
                          bool writable)
{
    wfp_grid *rows = &call->rows;
    int64_t pitch;

    if (wfp_grid_open(rows, object, name, writable) < 0) {
        return -1;
    }
    if (!rows_shape_fits(call)) {
        return rows_wrong_shape(call);
    }
    pitch = wfp_grid_pitch(rows, call->ids.dims);
    if (pitch < 0 || !wfp_grid_is_compact(rows, call->ids.dims)) {
        return wfp_invalid(
            "the rows of %s must be contiguous and at equal distances", name);
    }
    call->r = (weft_rows){
        .at = rows->at, .pitch = (uint64_t)pitch, .place = rows->place};
    return 0;
}

/* The types of both sides, as the library sees them. */
static int rows_set_types(rows_call *call, bool adds)
{
    const wfp_grid *table = &call->table;
    uint64_t width = wfp_grid_count(table, 1);

    if (table->dtype != WFP_NO_DTYPE && call->rows.dtype != WFP_NO_DTYPE) {
        call->t.width = width;
        call->t.type = (weft_dtype)table->dtype;
        call->r.type = (weft_dtype)call->rows.dtype;
        return 0;
    }
    if (adds) {
        PyErr_SetString(PyExc_TypeError,
                        "elements of this type can be moved, not added");
        return -1;
    }
    if (!wfp_grid_same_type(table, &call->rows)) {
        PyErr_Format(PyExc_TypeError,
                     "%s and the table have elements of different types, of "
                     "which one cannot be converted",
                     call->rows.name);
        return -1;
    }
    call->t.width = width * table->item;
    call->t.type = WEFT_U8;
    call->r.type = WEFT_U8;
    return 0;
}

/* All on the host, or ids and rows on one GPU, whose stream is torch's. */
static int rows_set_place(rows_call *call)
{
    const wfp_grid *rows = &call->rows;

    if (rows->place != call->ids.place || rows->device != call->ids.device ||
        (rows->place == WEFT_HOST && call->table.place != WEFT_HOST)) {
        return wfp_invalid(
            "ids and %s must be on the same device, and on a GPU if the "
            "table is",
            rows->name);
    }
    if (rows->place == WEFT_HOST || rows->api->current_work_stream == NULL) {
        return 0;
    }
    return rows->api->current_work_stream(WFP_DL_CUDA, rows->device,
                                          &call->options.stream);
}

static PyObject *rows_run(rows_call *call, rows_function *function)
{
    weft_status status;

    if (call->by_messages && wfp_hold_enter(call->hold) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = function(&call->t, &call->i, &call->r, &call->options);
    Py_END_ALLOW_THREADS
    if (call->by_messages) {
        wfp_hold_leave(call->hold);
    }
    return status == WEFT_OK ? Py_NewRef(Py_True) : wfp_raise(status);
}

static int rows_open(rows_call *call, PyObject *const *args, const char *name,
                     bool writes_table)
{
    wfp_hold *hold = wfp_region_hold(args[0]);
    int opened = hold != NULL ? rows_open_region(call, hold)
                              : rows_open_array(call, args[0], writes_table);
    int64_t bounds = 0;
    int64_t deterministic = 0;
    int64_t sort = 0;
    int64_t clear = 0;

    if (opened < 0 || rows_open_ids(call, args[1]) < 0 ||
        rows_open_rows(call, args[2], name, !writes_table) < 0 ||
        wfp_args_i64(args[3], "bounds", &bounds) < 0 ||
        wfp_args_u32(args[4], "threads", &call->options.threads) < 0 ||
        wfp_args_i64(args[5], "deterministic", &deterministic) < 0 ||
        wfp_args_i64(args[6], "sort", &sort) < 0 ||
        wfp_args_i64(args[7], "clear", &clear) < 0) {
        return -1;
    }
    call->options.size = sizeof(call->options);
    call->options.bounds = (weft_bounds)bounds;
    call->options.deterministic = (int32_t)deterministic;
    call->options.sort = (int32_t)sort;
    call->options.clear = (int32_t)clear;
    return rows_set_place(call);
}

static PyObject *rows_call_with(PyObject *const *args, Py_ssize_t nargs,
                                rows_function *function, const char *name,
                                bool writes_table, bool adds)
{
    rows_call call = {0};
    PyObject *result = NULL;

    if (nargs != 8) {
        PyErr_SetString(PyExc_TypeError, "8 arguments are needed");
        return NULL;
    }
    if (rows_open(&call, args, name, writes_table) == 0 &&
        rows_set_types(&call, adds) == 0) {
        result = rows_run(&call, function);
    }
    wfp_grid_close(&call.rows);
    wfp_grid_close(&call.ids);
    wfp_grid_close(&call.table);
    if (call.hold != NULL) {
        wfp_hold_release(call.hold);
    }
    if (result == NULL && !PyErr_Occurred()) {
        return Py_NewRef(Py_False);
    }
    return result;
}

static PyObject *rows_gather(PyObject *module, PyObject *const *args,
                             Py_ssize_t nargs)
{
    (void)module;
    return rows_call_with(args, nargs, weft_rows_gather, "out", false, false);
}

static PyObject *rows_scatter(PyObject *module, PyObject *const *args,
                              Py_ssize_t nargs)
{
    (void)module;
    return rows_call_with(args, nargs, weft_rows_scatter, "rows", true, false);
}

static PyObject *rows_scatter_add(PyObject *module, PyObject *const *args,
                                  Py_ssize_t nargs)
{
    (void)module;
    return rows_call_with(args, nargs, weft_rows_scatter_add, "rows", true,
                          true);
}

static PyObject *rows_check(PyObject *module, PyObject *stream)
{
    void *at = PyLong_AsVoidPtr(stream);
    weft_status status;

    (void)module;
    if (at == NULL && PyErr_Occurred()) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_rows_check(at);
    Py_END_ALLOW_THREADS
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

#define ROWS_METHOD(name, function, doc)                                       \
    {                                                                          \
        name, (PyCFunction)(void (*)(void))(function), METH_FASTCALL, doc      \
    }

PyMethodDef wfp_region_rows_functions[] = {
    ROWS_METHOD("rows_gather", rows_gather,
                "rows_gather($module, table, ids, out, bounds, threads, "
                "deterministic, sort, clear, /)\n--\n\nTrue, if it was done."),
    ROWS_METHOD("rows_scatter", rows_scatter,
                "rows_scatter($module, table, ids, rows, bounds, threads, "
                "deterministic, sort, clear, /)\n--\n\nTrue, if it was done."),
    ROWS_METHOD("rows_scatter_add", rows_scatter_add,
                "rows_scatter_add($module, table, ids, rows, bounds, threads, "
                "deterministic, sort, clear, /)\n--\n\nTrue, if it was done."),
    {"rows_check", rows_check, METH_O,
     "rows_check($module, stream, /)\n--\n\nweft_rows_check."},
    {NULL, NULL, 0, NULL},
};
