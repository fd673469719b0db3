/* SPDX-License-Identifier: Apache-2.0 */
#include "region/file/format.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/num.h"
#include "base/status.h"
#include "base/types.h"

/* No text file and nothing that went through a change of line ends begins like
 * this. */
static const unsigned char magic[8] = {0x89, 'W',  'E',  'F',
                                       'T',  '\r', '\n', 0x1a};

static bool multiply(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static bool add(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

bool wf_file_row_elements(uint32_t dims, const uint64_t *shape, uint64_t *out)
{
    uint64_t n = 1;

    for (uint32_t d = 1; d < dims; d++) {
        if (!multiply(n, shape[d], &n)) {
            return false;
        }
    }
    *out = n;
    return true;
}

static uint64_t blocks_of(uint64_t bytes, uint64_t block)
{
    return bytes / block + (bytes % block != 0);
}

/* --- writing ------------------------------------------------------------- */

/* The end of the file must be a file offset. */
static bool place_data(wf_file_header *h)
{
    uint64_t end;

    h->parts_at = sizeof(*h);
    h->table_at = h->parts_at + 8 * (uint64_t)h->parts;
    end = h->table_at + 4 * h->blocks; /* fewer than 2^44 blocks */
    h->data_at =
        (end + WF_FILE_DATA_UNIT - 1) / WF_FILE_DATA_UNIT * WF_FILE_DATA_UNIT;
    return add(h->data_at, h->data_bytes, &end) && end <= INT64_MAX;
}

static bool lay_out(const wf_file_shape *what, wf_file_header *h)
{
    if (!wf_file_row_elements(what->dims, what->shape, &h->row_bytes) ||
        !multiply(h->row_bytes, wf_dtype_bytes(what->type), &h->row_bytes) ||
        !multiply(h->row_bytes, what->shape[0], &h->data_bytes)) {
        return false;
    }
    h->block_bytes = WF_FILE_BLOCK;
    h->blocks = blocks_of(h->data_bytes, h->block_bytes);
    return place_data(h);
}

weft_status wf_file_layout(const wf_file_shape *what, wf_file_header *out)
{
    wf_file_header h = {.order = WF_FILE_ORDER,
                        .version = WF_FILE_VERSION,
                        .dims = what->dims,
                        .partition = (uint32_t)what->partition,
                        .parts = what->parts};

    if (what->dims < 1 || what->dims > WEFT_REGION_DIMS_MAX ||
        wf_dtype_bytes(what->type) == 0 || what->parts < 1 ||
        what->parts > WF_FILE_PARTS_MAX) {
        return wf_fail(WEFT_ERR_INVALID,
                       "a file cannot hold %" PRIu32
                       " dimensions of type number %d from %" PRIu32 " ranks",
                       what->dims, (int)what->type, what->parts);
    }
    memcpy(h.magic, magic, sizeof(magic));
    memcpy(h.shape, what->shape, what->dims * sizeof(h.shape[0]));
    strncpy(h.type, weft_dtype_name(what->type), sizeof(h.type) - 1);
    if (what->partition == WEFT_PARTITION_ROUND_ROBIN) {
        h.run = what->run;
    }
    if (!lay_out(what, &h)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%" PRIu64 " rows of this shape are too many for a file",
                       what->shape[0]);
    }
    *out = h;
    return WEFT_OK;
}

void wf_file_seal(wf_file_header *header)
{
    header->crc = wf_crc32c(0, header, offsetof(wf_file_header, crc));
}

/* --- reading ------------------------------------------------------------- */

/* Is it ours, of a kind that this library can read, and undamaged? */
static weft_status check_identity(const char *name, const wf_file_header *h)
{
    if (memcmp(h->magic, magic, sizeof(magic)) != 0) {
        return wf_fail(WEFT_ERR_INVALID, "%s is not a file of a saved region",
                       name);
    }
    if (h->order == __builtin_bswap32(WF_FILE_ORDER)) {
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s has the other byte order",
                       name);
    }
    if (wf_crc32c(0, h, offsetof(wf_file_header, crc)) != h->crc) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "%s: its header is damaged (checksum)", name);
    }
    if (h->order != WF_FILE_ORDER || h->version != WF_FILE_VERSION) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s has version %" PRIu32
                       " of the format; this library reads version %u",
                       name, h->version, WF_FILE_VERSION);
    }
    return WEFT_OK;
}

static bool type_of(const char *text, size_t room, weft_dtype *out)
{
    if (memchr(text, '\0', room) == NULL) {
        return false;
    }
    for (int t = 0; t < WF_DTYPE_COUNT; t++) {
        if (strcmp(text, weft_dtype_name((weft_dtype)t)) == 0) {
            *out = (weft_dtype)t;
            return true;
        }
    }
    return false;
}

/* Do shape, type and sizes fit together? */
static bool shape_is_sound(const wf_file_header *h)
{
    weft_dtype type;
    uint64_t row;
    uint64_t all;

    return h->dims >= 1 && h->dims <= WEFT_REGION_DIMS_MAX &&
           type_of(h->type, sizeof(h->type), &type) &&
           wf_file_row_elements(h->dims, h->shape, &row) &&
           multiply(row, wf_dtype_bytes(type), &row) && row == h->row_bytes &&
           multiply(row, h->shape[0], &all) && all == h->data_bytes;
}

static bool partition_is_sound(const wf_file_header *h)
{
    bool dealt = h->partition == WEFT_PARTITION_ROUND_ROBIN;

    return h->partition <= WEFT_PARTITION_ROUND_ROBIN && h->parts >= 1 &&
           h->parts <= WF_FILE_PARTS_MAX && (dealt ? h->run >= 1 : h->run == 0);
}

/* Do header, parts, table and data follow each other without overlapping, and
 * end where the file may end? */
static bool places_are_sound(const wf_file_header *h)
{
    uint64_t block = h->block_bytes;
    uint64_t end;

    return block >= WF_FILE_BLOCK_MIN && block <= WF_FILE_BLOCK_MAX &&
           (block & (block - 1)) == 0 &&
           h->blocks == blocks_of(h->data_bytes, block) &&
           h->parts_at >= sizeof(*h) && h->parts_at % 8 == 0 &&
           add(h->parts_at, 8 * (uint64_t)h->parts, &end) &&
           end <= h->table_at && h->table_at % 4 == 0 &&
           multiply(h->blocks, 4, &end) && add(h->table_at, end, &end) &&
           end <= h->data_at && h->data_at % WF_FILE_DATA_UNIT == 0 &&
           add(h->data_at, h->data_bytes, &end) && end <= INT64_MAX;
}

weft_status wf_file_check(const char *name, const wf_file_header *header,
                          uint64_t file_bytes)
{
    weft_status st = check_identity(name, header);

    if (st != WEFT_OK) {
        return st;
    }
    if (!shape_is_sound(header) || !partition_is_sound(header) ||
        !places_are_sound(header)) {
        return wf_fail(WEFT_ERR_PROTOCOL, "%s: its header is inconsistent",
                       name);
    }
    if (file_bytes != wf_file_bytes(header)) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "%s has %" PRIu64 " bytes where its header says %" PRIu64
                       ": it was %s",
                       name, file_bytes, wf_file_bytes(header),
                       file_bytes < wf_file_bytes(header) ? "cut off"
                                                          : "added to");
    }
    return WEFT_OK;
}

weft_dtype wf_file_type(const wf_file_header *header)
{
    weft_dtype type = WEFT_U8;

    (void)type_of(header->type, sizeof(header->type), &type);
    return type;
}

uint64_t wf_file_bytes(const wf_file_header *header)
{
    return header->data_at + header->data_bytes;
}

uint64_t wf_file_block_bytes(const wf_file_header *header, uint64_t index)
{
    uint64_t left = header->data_bytes - index * header->block_bytes;

    return wf_least(left, header->block_bytes);
}

weft_status wf_file_check_parts(const char *name, const wf_file_header *header,
                                const uint64_t *rows)
{
    uint64_t sum = 0;
    bool sound =
        wf_crc32c(0, rows, 8 * (size_t)header->parts) == header->parts_crc;

    for (uint32_t i = 0; sound && i < header->parts; i++) {
        sound = add(sum, rows[i], &sum);
    }
    if (!sound || sum != header->shape[0]) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "%s: its list of parts is damaged (checksum)", name);
    }
    return WEFT_OK;
}

weft_status wf_file_check_table(const char *name, const wf_file_header *header,
                                const uint32_t *table)
{
    if (wf_crc32c(0, table, 4 * (size_t)header->blocks) != header->table_crc) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "%s: its table of checksums is damaged (checksum)",
                       name);
    }
    return WEFT_OK;
}

weft_status wf_file_check_clean(const char *name, const wf_file_header *header)
{
    if ((header->flags & WF_FILE_DIRTY) != 0) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "%s was opened for writing and not synced since, so its "
                       "checksums are out of date; load it with no_verify, or "
                       "open it for writing and call weft_region_sync",
                       name);
    }
    return WEFT_OK;
}

weft_status wf_file_bad_block(const char *name, const wf_file_header *header,
                              uint64_t index, uint32_t got, uint32_t want)
{
    uint64_t at = header->data_at + index * header->block_bytes;
    bool written = (header->flags & WF_FILE_WRITTEN) != 0;

    return wf_fail(WEFT_ERR_PROTOCOL,
                   "%s: block %" PRIu64 " (bytes %" PRIu64 " to %" PRIu64
                   ") is damaged%s: its checksum is %08" PRIx32
                   " and should be %08" PRIx32,
                   name, index, at, at + wf_file_block_bytes(header, index) - 1,
                   written ? ", or was written to after weft_region_sync" : "",
                   got, want);
}
