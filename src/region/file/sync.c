/* SPDX-License-Identifier: Apache-2.0 */
/* New checksums for a file that is a region. Blocks are shared out to the ranks
 * without regard to rows: all of them see the whole file. */
#include <inttypes.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "region/file/store.h"

static weft_status agree(weft_region *region, weft_status own)
{
    return wf_region_verdict(region, region->comm, own,
                             wf_region_deadline(0, region->timeout_ns));
}

/* Read and not looked at through the mapping: if the file was cut off, this is
 * an error and no signal. */
static weft_status sum_block(const wf_file *file, const wf_file_header *h,
                             uint64_t index, void *block)
{
    size_t n = (size_t)wf_file_block_bytes(h, index);
    uint32_t crc;
    weft_status st =
        wf_file_read(file, h->data_at + index * h->block_bytes, block, n);

    if (st != WEFT_OK) {
        return st;
    }
    crc = wf_crc32c(0, block, n);
    return wf_file_write(file, h->table_at + index * sizeof(crc), &crc,
                         sizeof(crc));
}

static weft_status sum_share(const weft_region *region)
{
    const wf_file_header *h = wf_file_store_header(region);
    wf_file file = wf_file_store_file(region);
    uint64_t each = h->blocks / region->ranks + 1;
    uint64_t first = each * region->rank;
    void *block = wf_alloc((size_t)h->block_bytes);
    weft_status st = WEFT_OK;

    if (block == NULL) {
        return wf_fail_nomem("a buffer of %" PRIu64 " bytes", h->block_bytes);
    }
    for (uint64_t i = first; st == WEFT_OK && i < h->blocks && i < first + each;
         i++) {
        st = sum_block(&file, h, i, block);
    }
    wf_free(block);
    return st;
}

static weft_status sum_table(const wf_file *file, wf_file_header *h)
{
    size_t bytes = (size_t)h->blocks * sizeof(uint32_t);
    void *table = wf_alloc(bytes);
    weft_status st;

    if (table == NULL) {
        return wf_fail_nomem("checksums of %" PRIu64 " blocks", h->blocks);
    }
    st = wf_file_read(file, h->table_at, table, bytes);
    if (st == WEFT_OK) {
        h->table_crc = wf_crc32c(0, table, bytes);
    }
    wf_free(table);
    return st;
}

static weft_status read_header(const weft_region *region, const wf_file *file,
                               wf_file_header *out)
{
    return wf_file_read_header(
        file, wf_file_bytes(wf_file_store_header(region)), out);
}

/* Rank 0: take back the word of an earlier sync, before the first checksum of
 * the table is another. Who dies from here on leaves a file that is known to be
 * out of date, and not one that looks damaged. */
static weft_status begin(const weft_region *region)
{
    wf_file file = wf_file_store_file(region);
    wf_file_header h;
    weft_status st = read_header(region, &file, &h);

    if (st != WEFT_OK || (h.flags & WF_FILE_DIRTY) != 0) {
        return st;
    }
    return wf_file_mark_dirty(&file, &h);
}

/* Rank 0: rows and table first, and only then the word that they are right. */
static weft_status finish(const weft_region *region)
{
    wf_file file = wf_file_store_file(region);
    wf_file_header h;
    weft_status st = wf_file_flush(&file);

    if (st == WEFT_OK) {
        st = read_header(region, &file, &h);
    }
    if (st == WEFT_OK) {
        st = sum_table(&file, &h);
    }
    if (st == WEFT_OK) {
        h.flags &= ~WF_FILE_DIRTY;
        st = wf_file_write_header(&file, &h);
    }
    return st;
}

weft_status weft_region_sync(weft_region *region)
{
    weft_status st;

    if (region == NULL || region->storage != &wf_storage_file ||
        region->read_only) {
        return wf_fail(WEFT_ERR_INVALID,
                       "only a region that was opened from a file for writing "
                       "can be synced");
    }
    st = wf_region_here(region);
    if (st == WEFT_OK) {
        st = agree(region, WEFT_OK); /* nobody writes any more */
    }
    if (st == WEFT_OK) {
        st = agree(region, region->rank == 0 ? begin(region) : WEFT_OK);
    }
    if (st == WEFT_OK) {
        st = agree(region, sum_share(region));
    }
    if (st == WEFT_OK) {
        st = agree(region, region->rank == 0 ? finish(region) : WEFT_OK);
    }
    return st;
}
