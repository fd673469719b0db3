/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a .npy file: versions 1 to 3, arrays that a region can hold.
 *
 *     0   \x93NUMPY, major, minor
 *     8   length of the text: u16 in version 1, u32 in 2 and 3, little-endian
 *     10  or 12: the text, a Python dict; behind it the data
 */
#ifndef WF_REGION_FILE_NPY_H
#define WF_REGION_FILE_NPY_H

#include <stdbool.h>
#include <weft/file.h>

/* The bytes from which the length of the header is known. */
#define WF_NPY_PREFIX 12u
/* A longer header is refused. */
#define WF_NPY_HEADER_MAX 65536u

typedef struct wf_npy {
    uint32_t dims;
    uint64_t shape[WEFT_REGION_DIMS_MAX];
    weft_dtype type;
    uint64_t row_bytes;
    uint64_t data_at;
    uint64_t data_bytes;
} wf_npy;

bool wf_npy_is(const void *bytes, size_t n);

/* The offset of the data, from the first WF_NPY_PREFIX bytes of a file; at most
 * WF_NPY_HEADER_MAX. */
weft_status wf_npy_header_bytes(const char *name, const void *prefix, size_t n,
                                size_t *out);

/* Parse a header of that many bytes. `name` is for errors: WEFT_ERR_PROTOCOL,
 * or WEFT_ERR_UNSUPPORTED for arrays in Fortran order, in the other byte order,
 * or of types that regions do not support. */
weft_status wf_npy_parse(const char *name, const void *bytes, size_t n,
                         wf_npy *out);

#endif
