/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays with their shape and strides, for the row operations. */
#ifndef WFP_REGION_GRID_H
#define WFP_REGION_GRID_H

#include <weft/rows.h>

#include "array.h"

#define WFP_GRID_DIMS 16

typedef struct wfp_grid {
    const char *name; /* of the argument, for errors */
    char *at;
    int32_t dims;
    int64_t shape[WFP_GRID_DIMS];
    int64_t stride[WFP_GRID_DIMS]; /* bytes */
    size_t item;
    int dtype;    /* a weft_dtype, or WFP_NO_DTYPE */
    uint8_t code; /* DLPack's kind of the elements of a tensor */
    weft_place place;
    int32_t device;
    const wfp_dl_api *api; /* of a tensor; NULL for a buffer */
    bool has_view;
    Py_buffer view;
} wfp_grid;

/* Open a torch.Tensor or Parameter, or whatever has the buffer protocol. The
 * object keeps the memory: the caller holds it for as long. 0, or -1 and
 * nothing to close: with an exception set, or without one for what weft._rows
 * must look at (subclasses, lazy values, what autograd would mind, ...). */
int wfp_grid_open(wfp_grid *grid, PyObject *object, const char *name,
                  bool writable);
void wfp_grid_close(wfp_grid *grid);

/* Elements of dimensions `from` to the last. */
uint64_t wfp_grid_count(const wfp_grid *grid, int32_t from);

/* Do the elements of dimensions `from` to the last lie side by side? */
bool wfp_grid_is_compact(const wfp_grid *grid, int32_t from);

/* Bytes from one row to the next, where a row is dimensions `lead` to the last
 * and rows are counted over all before. -1 if they are not equally far apart,
 * or overlap. */
int64_t wfp_grid_pitch(const wfp_grid *grid, int32_t lead);

/* Are the elements of both of one type, whether weft has a word for it or not?
 */
bool wfp_grid_same_type(const wfp_grid *a, const wfp_grid *b);

/* Its shape as a tuple; a new reference. */
static inline PyObject *wfp_grid_shape(const wfp_grid *grid)
{
    return wfp_tuple_of((const uint64_t *)grid->shape, (uint32_t)grid->dims);
}

#endif
