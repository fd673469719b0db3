/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a .npy file is text from outside. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "region/file/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

static void try_parse(const uint8_t *data, size_t n)
{
    wf_npy npy;
    uint64_t rows;

    if (wf_npy_parse("input", data, n, &npy) != WEFT_OK) {
        must(weft_error_detail()[0] != '\0');
        return;
    }
    must(npy.dims >= 1 && npy.dims <= WEFT_REGION_DIMS_MAX);
    must(weft_dtype_size(npy.type) > 0 && npy.data_at == n);
    must(!__builtin_mul_overflow(npy.row_bytes, npy.shape[0], &rows));
    must(rows == npy.data_bytes && rows <= INT64_MAX - npy.data_at);
}

/* As it is, and with a length that is right. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t *copy;

    try_parse(data, n);
    if (n < WF_NPY_PREFIX || n > UINT16_MAX) {
        return 0;
    }
    copy = malloc(n);
    must(copy != NULL);
    memcpy(copy, data, n);
    copy[6] = 1;
    copy[8] = (uint8_t)(n - 10);
    copy[9] = (uint8_t)((n - 10) >> 8);
    try_parse(copy, n);
    free(copy);
    return 0;
}
