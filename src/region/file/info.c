/* SPDX-License-Identifier: Apache-2.0 */
/* What one process can ask of a file alone. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "region/file/io.h"

static weft_status describe_npy(const wf_file *file, uint64_t bytes,
                                weft_file_info *out)
{
    wf_npy npy;
    weft_status st = wf_file_read_npy(file, bytes, &npy);

    if (st == WEFT_OK) {
        *out = (weft_file_info){.dims = npy.dims,
                                .type = npy.type,
                                .row_pitch = npy.row_bytes,
                                .partition = WEFT_PARTITION_EQUAL,
                                .parts = 1,
                                .data_at = npy.data_at,
                                .bytes = bytes};
        memcpy(out->shape, npy.shape, sizeof(out->shape));
    }
    return st;
}

static weft_status describe_ours(const wf_file *file, uint64_t bytes,
                                 weft_file_info *out)
{
    wf_file_header h;
    weft_status st = wf_file_read_header(file, bytes, &h);

    if (st == WEFT_OK) {
        *out = (weft_file_info){.dims = h.dims,
                                .type = wf_file_type(&h),
                                .row_pitch = h.row_bytes,
                                .partition = (weft_partition)h.partition,
                                .run = h.run,
                                .parts = h.parts,
                                .data_at = h.data_at,
                                .bytes = bytes,
                                .stale = (h.flags & WF_FILE_DIRTY) != 0};
        memcpy(out->shape, h.shape, sizeof(out->shape));
    }
    return st;
}

weft_status weft_file_describe(const char *path, weft_file_info *out)
{
    unsigned char start[WF_NPY_PREFIX] = {0};
    wf_file file;
    uint64_t bytes;
    weft_status st;

    if (path == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "path or out is NULL");
    }
    st = wf_file_open(path, false, &file, &bytes);
    if (st != WEFT_OK) {
        return st;
    }
    if (bytes >= sizeof(start)) {
        st = wf_file_read(&file, 0, start, sizeof(start));
    }
    if (st == WEFT_OK) {
        st = wf_npy_is(start, sizeof(start)) ? describe_npy(&file, bytes, out)
                                             : describe_ours(&file, bytes, out);
    }
    wf_file_close(&file);
    return st;
}

/* --- the rows of each rank ----------------------------------------------- */

static weft_status read_parts(const wf_file *file, uint64_t bytes,
                              uint64_t *rows, uint32_t count)
{
    wf_file_header h;
    weft_status st = wf_file_read_header(file, bytes, &h);

    if (st == WEFT_OK && count != h.parts) {
        st = wf_fail(WEFT_ERR_INVALID, "%s has %" PRIu32 " parts, not %" PRIu32,
                     file->name, h.parts, count);
    }
    return st == WEFT_OK ? wf_file_read_parts(file, &h, rows) : st;
}

weft_status weft_file_parts(const char *path, uint64_t *rows, uint32_t count)
{
    wf_file file;
    uint64_t bytes;
    weft_status st;

    if (path == NULL || rows == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "path or rows is NULL");
    }
    st = wf_file_open(path, false, &file, &bytes);
    if (st == WEFT_OK) {
        st = read_parts(&file, bytes, rows, count);
        wf_file_close(&file);
    }
    return st;
}

/* --- all checksums ------------------------------------------------------- */

static weft_status verify_blocks(const wf_file *file, const wf_file_header *h,
                                 const uint32_t *table, void *block)
{
    weft_status st = WEFT_OK;

    for (uint64_t i = 0; st == WEFT_OK && i < h->blocks; i++) {
        size_t n = (size_t)wf_file_block_bytes(h, i);
        uint32_t got;

        st = wf_file_read(file, h->data_at + i * h->block_bytes, block, n);
        if (st == WEFT_OK && (got = wf_crc32c(0, block, n)) != table[i]) {
            st = wf_file_bad_block(file->name, h, i, got, table[i]);
        }
    }
    return st;
}

static weft_status verify_all(const wf_file *file, const wf_file_header *h)
{
    uint64_t *parts = wf_alloc((size_t)h->parts * sizeof(*parts));
    uint32_t *table = wf_alloc((size_t)h->blocks * sizeof(*table));
    void *block = wf_alloc((size_t)h->block_bytes);
    weft_status st = WEFT_OK;

    if (parts == NULL || table == NULL || block == NULL) {
        st = wf_fail_nomem("checksums of %" PRIu64 " blocks", h->blocks);
    }
    if (st == WEFT_OK) {
        st = wf_file_read_parts(file, h, parts);
    }
    if (st == WEFT_OK) {
        st = wf_file_read_table(file, h, table);
    }
    if (st == WEFT_OK) {
        st = verify_blocks(file, h, table, block);
    }
    wf_free(block);
    wf_free(table);
    wf_free(parts);
    return st;
}

weft_status weft_file_verify(const char *path)
{
    wf_file file;
    wf_file_header h;
    uint64_t bytes;
    weft_status st;

    if (path == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "path is NULL");
    }
    st = wf_file_open(path, false, &file, &bytes);
    if (st != WEFT_OK) {
        return st;
    }
    st = wf_file_read_header(&file, bytes, &h);
    if (st == WEFT_OK) {
        st = wf_file_check_clean(path, &h);
    }
    if (st == WEFT_OK) {
        st = verify_all(&file, &h);
    }
    wf_file_close(&file);
    return st;
}
