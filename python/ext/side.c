/* SPDX-License-Identifier: Apache-2.0 */
#include "side.h"

#include "args.h"

int wfp_side_open(wfp_side *side, PyObject *object, unsigned access)
{
    side->given = object;
    if (wfp_array_open(&side->one, object, access) < 0) {
        return -1;
    }
    side->count = side->one.count;
    side->item = side->one.item;
    side->dtype = side->one.dtype;
    return 0;
}

PyObject *wfp_side_type_name(PyObject *given)
{
    PyObject *first = PyList_Check(given) || PyTuple_Check(given)
                          ? PySequence_GetItem(given, 0)
                          : Py_NewRef(given);
    PyObject *dtype =
        first == NULL ? NULL : PyObject_GetAttrString(first, "dtype");
    PyObject *view = NULL;

    PyErr_Clear();
    if (dtype == NULL && first != NULL) { /* a buffer has a format instead */
        view = PyMemoryView_FromObject(first);
        dtype = view == NULL ? NULL : PyObject_GetAttrString(view, "format");
        PyErr_Clear();
    }
    Py_XDECREF(view);
    Py_XDECREF(first);
    return dtype != NULL ? dtype : Py_NewRef((PyObject *)Py_TYPE(given));
}

int wfp_side_same_type(const wfp_side *a, const wfp_side *b)
{
    PyObject *one;
    PyObject *other;

    if (a->dtype == b->dtype && a->item == b->item) {
        return 0;
    }
    one = wfp_side_type_name(a->given);
    other = wfp_side_type_name(b->given);
    if (one != NULL && other != NULL) {
        wfp_fail(WEFT_ERR_INVALID, "%s has elements of type %S, but %s has %S",
                 a->name, one, b->name, other);
    }
    Py_XDECREF(one);
    Py_XDECREF(other);
    return -1;
}

int wfp_side_not_reducible(const wfp_side *side)
{
    PyObject *dtype = wfp_side_type_name(side->given);

    if (dtype != NULL) {
        PyErr_Format(PyExc_TypeError,
                     "elements of type %S cannot be reduced, only moved "
                     "(broadcast, allgather, send, ...)",
                     dtype);
        Py_DECREF(dtype);
    }
    return -1;
}

static int side_room_for_parts(wfp_side *side, uint32_t ranks)
{
    side->part = PyMem_Malloc(ranks * sizeof(*side->part));
    if (side->part == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* The next array of a list: it must have the elements that the first has. */
static int side_add(wfp_side *side, PyObject *object, unsigned access)
{
    wfp_array *a = &side->many[side->arrays];

    if (wfp_array_open(a, object, access) < 0) {
        return -1;
    }
    if (side->arrays == 0) {
        side->item = a->item;
        side->dtype = a->dtype;
    }
    side->arrays++;
    if (a->item != side->item || a->dtype != side->dtype) {
        return wfp_invalid(
            "the arrays in %s have elements of different types (number %u "
            "is the first that differs)",
            side->name, side->arrays - 1);
    }
    side->part[side->arrays - 1] =
        (weft_part){a->data, a->count * wfp_side_unit(side)};
    side->count += a->count;
    return 0;
}

static int side_add_all(wfp_side *side, PyObject *tuple, uint32_t ranks,
                        unsigned access)
{
    if (side_room_for_parts(side, ranks) < 0) {
        return -1;
    }
    side->many = PyMem_Malloc(ranks * sizeof(*side->many));
    if (side->many == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        if (side_add(side, PyTuple_GetItem(tuple, r), access) < 0) {
            return -1;
        }
    }
    return 0;
}

static int side_open_list(wfp_side *side, PyObject *list, uint32_t ranks,
                          unsigned access)
{
    /* Opening may run Python, which could change the list meanwhile. */
    PyObject *tuple = PySequence_Tuple(list);
    Py_ssize_t n = tuple == NULL ? 0 : PyTuple_Size(tuple);
    int result = -1;

    side->given = list;
    side->count = 0;
    if (tuple == NULL) {
        return -1;
    }
    if (n != (Py_ssize_t)ranks) {
        wfp_fail(WEFT_ERR_INVALID,
                 "%s has %zd arrays, but there are %u ranks; pass one for each",
                 side->name, n, ranks);
    } else {
        result = side_add_all(side, tuple, ranks, access);
    }
    Py_DECREF(tuple);
    return result;
}

/* Cut the array as `counts` says, which was seen to have a number for each
 * rank. */
static int side_cut(wfp_side *side, PyObject *counts, uint32_t ranks)
{
    size_t unit = wfp_side_unit(side);
    size_t at = 0;

    if (side_room_for_parts(side, ranks) < 0) {
        return -1;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        int64_t n = 0;

        if (wfp_args_i64(PyTuple_GetItem(counts, r), "a count", &n) < 0) {
            return -1;
        }
        if (n < 0 || (size_t)n > side->count - at) {
            return wfp_invalid(
                "counts ask for %lld elements of %s for rank %u, but %zu "
                "of its %zu are left",
                (long long)n, side->name, r, side->count - at, side->count);
        }
        side->part[r] = (weft_part){(char *)side->one.data + at * side->item,
                                    (size_t)n * unit};
        at += (size_t)n;
    }
    if (at != side->count) {
        return wfp_invalid("counts add up to %zu, but %s has %zu elements", at,
                           side->name, side->count);
    }
    return 0;
}

static int side_open_counts(wfp_side *side, PyObject *counts, uint32_t ranks)
{
    PyObject *tuple = PySequence_Tuple(counts);
    int result = -1;

    if (tuple == NULL) {
        PyErr_Format(PyExc_TypeError,
                     "counts must be a sequence of whole numbers, not %R",
                     counts);
        return -1;
    }
    if (PyTuple_Size(tuple) != (Py_ssize_t)ranks) {
        wfp_fail(WEFT_ERR_INVALID,
                 "counts has %zd numbers, but there are %u ranks",
                 PyTuple_Size(tuple), ranks);
    } else {
        result = side_cut(side, tuple, ranks);
    }
    Py_DECREF(tuple);
    return result;
}

int wfp_side_open_parts(wfp_side *side, PyObject *object, PyObject *counts,
                        uint32_t ranks, unsigned access)
{
    bool with_counts = counts != NULL && counts != Py_None;

    if (PyList_Check(object) || PyTuple_Check(object)) {
        if (with_counts) {
            return wfp_invalid(
                "%s is a list of arrays, which have lengths of their own; "
                "counts go with one array",
                side->name);
        }
        return side_open_list(side, object, ranks, access);
    }
    if (wfp_side_open(side, object, access) < 0) {
        return -1;
    }
    return with_counts ? side_open_counts(side, counts, ranks) : 0;
}

int wfp_side_divide(wfp_side *side, uint32_t ranks)
{
    size_t n = side->count / ranks;

    if (side->part != NULL) {
        return 0;
    }
    if (side->count % ranks != 0) {
        return wfp_invalid(
            "%s has %zu elements, not a multiple of %u ranks; pass a list "
            "of arrays, or counts",
            side->name, side->count, ranks);
    }
    if (side_room_for_parts(side, ranks) < 0) {
        return -1;
    }
    for (uint32_t r = 0; r < ranks; r++) {
        side->part[r] = (weft_part){(char *)side->one.data + r * n * side->item,
                                    n * wfp_side_unit(side)};
    }
    return 0;
}

int wfp_side_finish_copies(wfp_side *side)
{
    if (side->one.owner != NULL && wfp_array_finish(&side->one) < 0) {
        return -1;
    }
    for (uint32_t i = 0; i < side->arrays; i++) {
        if (wfp_array_finish(&side->many[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

void wfp_side_close_parts(wfp_side *side)
{
    /* Closing runs other people's destructors: count down first. */
    while (side->arrays > 0) {
        side->arrays--;
        wfp_array_close(&side->many[side->arrays]);
    }
    PyMem_Free(side->many);
    PyMem_Free(side->part);
    side->many = NULL;
    side->part = NULL;
}
