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

/* So much tells how long the header is. */
#define WF_NPY_PREFIX 12u
/* No array of ours needs a longer one. */
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

/* Bytes of the header with all before it, from the first WF_NPY_PREFIX bytes
 * of a file; at most WF_NPY_HEADER_MAX. */
weft_status wf_npy_header_bytes(const char *name, const void *prefix, size_t n,
                                size_t *out);

/* Read a header of `n` bytes, as that says. `name` is for errors:
 * WEFT_ERR_PROTOCOL, or WEFT_ERR_UNSUPPORTED for arrays in Fortran's order, in
 * the other byte order, or of types that regions do not have. */
weft_status wf_npy_parse(const char *name, const void *bytes, size_t n,
                         wf_npy *out);

#endif
