/* SPDX-License-Identifier: Apache-2.0 */
/* The file format of a saved region.
 *
 *     0          header, 512 bytes, with its own CRC
 *     parts_at   rows of each rank that wrote it, u64 each
 *     table_at   CRC32C of each block of the data, u32 each
 *     data_at    the rows in global order, without gaps, to the end
 *
 * The data do not depend on the partition, and begin on a multiple of 64 KiB,
 * which is a multiple of every page size: any number of ranks can read them,
 * and the file can be mapped from there as the tensor. A block is a range of
 * bytes, independent of rows; the last one may be shorter.
 *
 * All numbers are in the byte order of the machine that wrote it, which
 * `order` tells. Everything is checked before it is used. */
#ifndef WF_REGION_FILE_FORMAT_H
#define WF_REGION_FILE_FORMAT_H

#include <stdbool.h>
#include <weft/file.h>

#define WF_FILE_VERSION 1u
#define WF_FILE_ORDER 0x01020304u
#define WF_FILE_DATA_UNIT 65536u
#define WF_FILE_BLOCK ((uint64_t)1 << 20)
/* Of other writers: */
#define WF_FILE_BLOCK_MIN ((uint64_t)1 << 12)
#define WF_FILE_BLOCK_MAX ((uint64_t)1 << 26)
#define WF_FILE_PARTS_MAX ((uint32_t)1 << 24)

/* Flags. DIRTY: the file has been mapped for writing, and the table has not
 * been updated since. WRITTEN: it was dirty once; rows may have been written
 * after the table, too, which leaves no other trace. */
#define WF_FILE_DIRTY 1u
#define WF_FILE_WRITTEN 2u

typedef struct wf_file_header {
    unsigned char magic[8];
    uint32_t order;
    uint32_t version;
    uint32_t flags;
    uint32_t dims;
    uint64_t shape[WEFT_REGION_DIMS_MAX]; /* 0 beyond dims */
    char type[16];                        /* "f32"; filled up with zeros */
    uint64_t row_bytes;
    uint32_t partition;
    uint32_t parts;
    uint64_t run; /* of a round-robin partition, else 0 */
    uint64_t block_bytes;
    uint64_t blocks;
    uint64_t parts_at;
    uint64_t table_at;
    uint64_t data_at;
    uint64_t data_bytes;
    uint32_t parts_crc;
    uint32_t table_crc;
    unsigned char zero[324];
    uint32_t crc; /* of all before it */
} wf_file_header;
_Static_assert(sizeof(wf_file_header) == 512, "the format");

/* The region to write. */
typedef struct wf_file_shape {
    uint32_t dims;
    const uint64_t *shape;
    weft_dtype type;
    weft_partition partition;
    uint64_t run;
    uint32_t parts;
} wf_file_shape;

/* Fill in a header except its CRCs. WEFT_ERR_INVALID if it is too large. */
weft_status wf_file_layout(const wf_file_shape *what, wf_file_header *out);

/* Fill in the CRC of the header, which nothing may change afterwards. */
void wf_file_seal(wf_file_header *header);

/* Validate the header of a file of `file_bytes`. `name` is for the error. No
 * field may be used before this returns WEFT_OK. */
weft_status wf_file_check(const char *name, const wf_file_header *header,
                          uint64_t file_bytes);

/* Of a checked header. */
weft_dtype wf_file_type(const wf_file_header *header);
uint64_t wf_file_bytes(const wf_file_header *header);
/* Bytes of block `index`. */
uint64_t wf_file_block_bytes(const wf_file_header *header, uint64_t index);

/* Elements of a row, that is of shape[1] * ...; false if it overflows. */
bool wf_file_row_elements(uint32_t dims, const uint64_t *shape, uint64_t *out);

/* Compare the rows of each rank with their CRC and their sum. */
weft_status wf_file_check_parts(const char *name, const wf_file_header *header,
                                const uint64_t *rows);
/* Compare the table with its CRC. */
weft_status wf_file_check_table(const char *name, const wf_file_header *header,
                                const uint32_t *table);
/* WEFT_ERR_PROTOCOL if its checksums are out of date. */
weft_status wf_file_check_clean(const char *name, const wf_file_header *header);
/* The error about a block whose CRC is not that of the table. */
weft_status wf_file_bad_block(const char *name, const wf_file_header *header,
                              uint64_t index, uint32_t got, uint32_t want);

#endif
