/* SPDX-License-Identifier: Apache-2.0 */
#include "region_grid.h"

#include <string.h>

#include "buffer.h"
#include "lazy.h"
#include "tensor.h"

static int grid_dims(wfp_grid *grid, int32_t dims)
{
    if (dims > WFP_GRID_DIMS) {
        return wfp_invalid("%s has %d dimensions; the limit is %d", grid->name,
                           dims, WFP_GRID_DIMS);
    }
    grid->dims = dims;
    return 0;
}

static int grid_tensor_place(wfp_grid *grid, const wfp_dl_tensor *t)
{
    switch (t->device_type) {
    case WFP_DL_CPU:
    case WFP_DL_CUDA_HOST:
    case WFP_DL_ROCM_HOST:
        grid->place = WEFT_HOST;
        grid->device = -1;
        return 0;
    case WFP_DL_CUDA:
        grid->place = WEFT_CUDA;
        grid->device = t->device_id;
        return 0;
    default:
        return -1;
    }
}

static int grid_from_tensor(wfp_grid *grid, PyObject *object,
                            const wfp_dl_api *api, bool writable)
{
    wfp_dl_tensor t;
    int64_t compact = 1;

    if (api->borrow_from_object(object, &t) != 0) {
        PyErr_Clear();
        return -1;
    }
    if (grid_dims(grid, t.ndim) < 0 || grid_tensor_place(grid, &t) < 0) {
        return -1;
    }
    if (t.bits % 8 != 0) {
        wfp_fail(WEFT_ERR_UNSUPPORTED,
                 "%s has elements of %d bits, not whole bytes", grid->name,
                 t.bits);
        return -1;
    }
    grid->at = (char *)t.data + t.byte_offset;
    grid->item = (size_t)t.bits / 8 * t.lanes;
    grid->dtype = t.lanes == 1 ? wfp_tensor_dtype(&t) : WFP_NO_DTYPE;
    grid->code = t.code;
    grid->api = api;
    for (int32_t i = t.ndim; i-- > 0;) {
        grid->shape[i] = t.shape[i];
        grid->stride[i] =
            (t.strides == NULL ? compact : t.strides[i]) * (int64_t)grid->item;
        compact *= t.shape[i];
    }
    return wfp_lazy_is_rare(object, t.code, grid->at, writable) == 0 ? 0 : -1;
}

static int grid_from_view(wfp_grid *grid)
{
    const Py_buffer *view = &grid->view;

    if (grid_dims(grid, view->ndim) < 0) {
        return -1;
    }
    if (view->itemsize < 1 ||
        !wfp_buffer_dtype(view->format, view->itemsize, &grid->dtype)) {
        grid->dtype = WFP_NO_DTYPE;
    }
    grid->at = view->buf;
    grid->item = (size_t)view->itemsize;
    grid->place = WEFT_HOST;
    grid->device = -1;
    for (int32_t i = 0; i < view->ndim; i++) {
        grid->shape[i] = view->shape[i];
        grid->stride[i] = view->strides[i];
    }
    return 0;
}

int wfp_grid_open(wfp_grid *grid, PyObject *object, const char *name,
                  bool writable)
{
    const wfp_dl_api *api = wfp_tensor_api(Py_TYPE(object));

    grid->name = name;
    grid->has_view = false;
    grid->api = NULL;
    if (api == NULL && !PyObject_CheckBuffer(object)) {
        api = wfp_tensor_learn(Py_TYPE(object));
    }
    if (api != NULL) {
        return grid_from_tensor(grid, object, api, writable);
    }
    if (PyObject_GetBuffer(object, &grid->view,
                           writable ? PyBUF_RECORDS : PyBUF_RECORDS_RO) < 0) {
        PyErr_Clear();
        return -1;
    }
    if (grid_from_view(grid) < 0) {
        PyBuffer_Release(&grid->view);
        return -1;
    }
    grid->has_view = true;
    return 0;
}

void wfp_grid_close(wfp_grid *grid)
{
    if (grid->has_view) {
        PyBuffer_Release(&grid->view);
        grid->has_view = false;
    }
}

uint64_t wfp_grid_count(const wfp_grid *grid, int32_t from)
{
    uint64_t count = 1;

    for (int32_t i = from; i < grid->dims; i++) {
        count *= (uint64_t)grid->shape[i];
    }
    return count;
}

bool wfp_grid_is_compact(const wfp_grid *grid, int32_t from)
{
    int64_t expected = (int64_t)grid->item;

    for (int32_t i = grid->dims; i-- > from;) {
        if (grid->shape[i] != 1 && grid->stride[i] != expected) {
            return wfp_grid_count(grid, from) == 0;
        }
        expected *= grid->shape[i];
    }
    return true;
}

int64_t wfp_grid_pitch(const wfp_grid *grid, int32_t lead)
{
    int64_t row = (int64_t)(wfp_grid_count(grid, lead) * grid->item);
    int64_t pitch = -1; /* of the innermost dimension that has several */
    int64_t expected = 0;

    for (int32_t i = lead; i-- > 0;) {
        if (grid->shape[i] == 1) {
            continue;
        }
        if (grid->shape[i] == 0) {
            return row;
        }
        if (pitch < 0) {
            pitch = grid->stride[i];
            expected = pitch;
            if (pitch < row) {
                return -1;
            }
        } else if (grid->stride[i] != expected) {
            return -1;
        }
        expected *= grid->shape[i];
    }
    return pitch < 0 ? row : pitch;
}

bool wfp_grid_same_type(const wfp_grid *a, const wfp_grid *b)
{
    if (a->dtype != b->dtype || a->item != b->item) {
        return false;
    }
    if (a->dtype != WFP_NO_DTYPE) {
        return true;
    }
    if (a->api != NULL && b->api != NULL) {
        return a->code == b->code;
    }
    return a->has_view && b->has_view && a->view.format != NULL &&
           b->view.format != NULL &&
           strcmp(a->view.format, b->view.format) == 0;
}
