/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of a region do together: resize, barrier, signals. */
#include "args.h"
#include "region.h"

PyObject *wfp_region_resize(PyObject *object, PyObject *number)
{
    wfp_hold *hold = ((wfp_region *)object)->hold;
    uint64_t rows = 0;
    weft_status status;

    if (wfp_args_u64(number, "rows", &rows) < 0 || wfp_hold_enter(hold) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_region_resize(hold->region, rows);
    Py_END_ALLOW_THREADS
    wfp_hold_leave(hold);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

PyObject *wfp_region_barrier(PyObject *object, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {"barrier", 0, {"timeout", NULL}};
    wfp_hold *hold = ((wfp_region *)object)->hold;
    PyObject *given;
    double timeout = 0;
    weft_status status;

    if (wfp_args_sort(&signature, args, nargs, kwnames, &given) < 0 ||
        wfp_args_seconds(given, "timeout", &timeout) < 0 ||
        wfp_hold_enter(hold) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_region_barrier(hold->region, timeout);
    Py_END_ALLOW_THREADS
    wfp_hold_leave(hold);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

PyObject *wfp_region_signal(PyObject *object, PyObject *const *args,
                            Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "signal", 1, {"to", "slot", "by", NULL}};
    wfp_hold *hold = ((wfp_region *)object)->hold;
    PyObject *given[3];
    uint32_t to = 0;
    uint32_t slot = 0;
    int64_t by = 1;
    weft_status status;

    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        wfp_args_u32(given[0], "to", &to) < 0 ||
        wfp_args_u32(given[1], "slot", &slot) < 0 ||
        wfp_args_i64(given[2], "by", &by) < 0 || wfp_hold_enter(hold) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_region_signal(hold->region, to, slot, (uint64_t)by);
    Py_END_ALLOW_THREADS
    wfp_hold_leave(hold);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

PyObject *wfp_region_wait(PyObject *object, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "wait", 1, {"value", "slot", "timeout", NULL}};
    wfp_hold *hold = ((wfp_region *)object)->hold;
    PyObject *given[3];
    uint64_t value = 0;
    uint32_t slot = 0;
    double timeout = 0;
    weft_status status;

    if (wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        wfp_args_u64(given[0], "value", &value) < 0 ||
        wfp_args_u32(given[1], "slot", &slot) < 0 ||
        wfp_args_seconds(given[2], "timeout", &timeout) < 0 ||
        wfp_hold_enter(hold) < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = weft_region_wait(hold->region, slot, value, timeout);
    Py_END_ALLOW_THREADS
    wfp_hold_leave(hold);
    return status == WEFT_OK ? Py_NewRef(Py_None) : wfp_raise(status);
}

PyObject *wfp_region_signalled(PyObject *object, PyObject *const *args,
                               Py_ssize_t nargs, PyObject *kwnames)
{
    static const wfp_signature signature = {
        "signalled", 1, {"rank", "slot", NULL}};
    const weft_region *region = wfp_region_get(object);
    PyObject *given[2];
    uint32_t rank = 0;
    uint32_t slot = 0;
    uint64_t value;
    weft_status status;

    if (region == NULL ||
        wfp_args_sort(&signature, args, nargs, kwnames, given) < 0 ||
        wfp_region_rank(region, given[0], &rank) < 0 ||
        wfp_args_u32(given[1], "slot", &slot) < 0) {
        return NULL;
    }
    status = weft_region_signalled(region, rank, slot, &value);
    return status == WEFT_OK ? PyLong_FromUnsignedLongLong(value)
                             : wfp_raise(status);
}
