/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a saved region comes from a file that anybody may have written:
 * what is accepted must hold together, whatever the checksum says. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "region/file/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

/* What readers rely on without looking again. */
static void check_accepted(const wf_file_header *h, uint64_t bytes)
{
    uint64_t elements = 1;

    must(wf_file_bytes(h) == bytes && bytes <= INT64_MAX);
    must(h->dims >= 1 && h->dims <= WEFT_REGION_DIMS_MAX);
    must(weft_dtype_size(wf_file_type(h)) > 0);
    must(strcmp(weft_dtype_name(wf_file_type(h)), h->type) == 0);
    must(wf_file_row_elements(h->dims, h->shape, &elements));
    must(elements * weft_dtype_size(wf_file_type(h)) == h->row_bytes);
    must(h->row_bytes * h->shape[0] == h->data_bytes);
    must(h->parts >= 1 && h->parts_at >= sizeof(*h));
    must(h->parts_at + 8 * (uint64_t)h->parts <= h->table_at);
    must(h->table_at + 4 * h->blocks <= h->data_at);
    must(h->data_at <= bytes);
    for (uint64_t i = 0; i < h->blocks && i < 4; i++) {
        uint64_t block = wf_file_block_bytes(h, i);

        must(block > 0 && block <= WF_FILE_BLOCK_MAX);
        must(i * h->block_bytes + block <= h->data_bytes);
    }
}

static void try_header(const wf_file_header *h, uint64_t bytes)
{
    if (wf_file_check("input", h, bytes) == WEFT_OK) {
        check_accepted(h, bytes);
    } else {
        must(weft_error_detail()[0] != '\0');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    wf_file_header h;

    memset(&h, 0, sizeof(h));
    memcpy(&h, data, n < sizeof(h) ? n : sizeof(h));
    try_header(&h, n);
    /* As a file of just the right length, with a checksum that is right. */
    wf_file_seal(&h);
    try_header(&h, h.data_at + h.data_bytes);
    return 0;
}
