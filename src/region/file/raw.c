/* SPDX-License-Identifier: Apache-2.0 */
/* Loading files that say nothing about themselves: several of them, read as one
 * stream of rows, or one .npy. Rank 0 finds out how long each one is; the
 * others open only those that hold rows of theirs. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "region/file/agree.h"
#include "region/file/io.h"
#include "region/file/move.h"
#include <weft/coll.h>

/* One file: which bytes of the stream it has. */
typedef struct raw_file {
    uint64_t first;
    uint64_t bytes;
    uint64_t data_at; /* where in the file they begin */
    uint64_t size;    /* of the file */
} raw_file;

/* What rank 0 finds out. */
typedef struct raw_sizes {
    uint64_t width; /* bytes of a row in the files */
    uint64_t rows;
} raw_sizes;

typedef struct raw {
    weft_region *region;
    weft_comm *comm;
    weft_file_options options;
    const char *const *paths;
    uint64_t count;
    raw_file *file;
    raw_sizes sizes;
} raw;

/* --- rank 0 -------------------------------------------------------------- */

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t e = strlen(end);

    return n >= e && strcmp(text + n - e, end) == 0;
}

static weft_status measure_npy(raw *r, const wf_file *file, uint64_t bytes)
{
    wf_npy npy;
    weft_status st = wf_file_read_npy(file, bytes, &npy);

    if (st != WEFT_OK) {
        return st;
    }
    if (npy.type != r->region->type) {
        return wf_fail(WEFT_ERR_INVALID, "%s is of type %s, the region of %s",
                       file->name, weft_dtype_name(npy.type),
                       weft_dtype_name(r->region->type));
    }
    if (npy.row_bytes != r->sizes.width) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s has rows of %" PRIu64 " bytes and not of %" PRIu64,
                       file->name, npy.row_bytes, r->sizes.width);
    }
    r->file[0] = (raw_file){
        .bytes = npy.data_bytes, .data_at = npy.data_at, .size = bytes};
    return WEFT_OK;
}

static weft_status measure_plain(const raw *r, uint64_t i, const wf_file *file,
                                 uint64_t bytes)
{
    uint64_t first = i == 0 ? 0 : r->file[i - 1].first + r->file[i - 1].bytes;

    if (r->sizes.width == 0 ? bytes != 0 : bytes % r->sizes.width != 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s has %" PRIu64
                       " bytes, not a multiple of a row's %" PRIu64,
                       file->name, bytes, r->sizes.width);
    }
    if (bytes > INT64_MAX - first) {
        return wf_fail(WEFT_ERR_INVALID, "the files up to %s are too long",
                       file->name);
    }
    r->file[i] = (raw_file){.first = first, .bytes = bytes, .size = bytes};
    return WEFT_OK;
}

static weft_status measure_file(raw *r, uint64_t i)
{
    wf_file file;
    uint64_t bytes;
    weft_status st;

    if (r->paths[i] == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "path number %" PRIu64 " is NULL", i);
    }
    st = wf_file_open(r->paths[i], false, &file, &bytes);
    if (st != WEFT_OK) {
        return st;
    }
    st = r->count == 1 && ends_in(r->paths[i], ".npy")
             ? measure_npy(r, &file, bytes)
             : measure_plain(r, i, &file, bytes);
    wf_file_close(&file);
    return st;
}

static weft_status check_width(const raw *r)
{
    uint64_t row = r->region->row_bytes;

    if (r->options.skip > row || r->sizes.width > row - r->options.skip) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rows of %" PRIu64 " bytes from byte %" PRIu64
                       " on do not fit into the region's of %" PRIu64,
                       r->sizes.width, r->options.skip, row);
    }
    return r->region->read_only
               ? wf_fail(WEFT_ERR_DENIED, "the region is read-only")
               : WEFT_OK;
}

static weft_status measure(raw *r)
{
    const raw_file *last = &r->file[r->count - 1];
    weft_status st = check_width(r);

    for (uint64_t i = 0; st == WEFT_OK && i < r->count; i++) {
        st = measure_file(r, i);
    }
    if (st != WEFT_OK || r->sizes.width == 0) {
        return st;
    }
    r->sizes.rows = (last->first + last->bytes) / r->sizes.width;
    if (r->sizes.rows > r->region->part.rows) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s has %" PRIu64 " rows, the region %" PRIu64,
                       r->count == 1 ? r->paths[0] : "the list of files",
                       r->sizes.rows, r->region->part.rows);
    }
    return WEFT_OK;
}

/* --- all ranks ----------------------------------------------------------- */

/* The file that holds byte `at` of the stream. */
static uint64_t find_file(const raw *r, uint64_t at)
{
    uint64_t low = 0;
    uint64_t high = r->count - 1;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (at < r->file[middle].first + r->file[middle].bytes) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static weft_status read_from(const raw *r, uint64_t i, uint64_t at,
                             unsigned char *bytes, size_t n)
{
    const raw_file *f = &r->file[i];
    wf_file file;
    uint64_t size;
    weft_status st = wf_file_open(r->paths[i], false, &file, &size);

    if (st != WEFT_OK) {
        return st;
    }
    if (size != f->size) {
        st = wf_fail(WEFT_ERR_MISMATCH,
                     "%s has %" PRIu64 " bytes here and had %" PRIu64
                     " on rank 0",
                     r->paths[i], size, f->size);
    } else {
        if (r->options.direct) {
            wf_file_go_direct(&file, false);
        }
        st = wf_file_read(&file, f->data_at + (at - f->first), bytes, n);
    }
    wf_file_close(&file);
    return st;
}

/* A piece may lie in several files. */
static weft_status read_piece(void *ctx, uint64_t at, unsigned char *bytes,
                              size_t n)
{
    const raw *r = ctx;
    weft_status st = WEFT_OK;

    while (st == WEFT_OK && n > 0) {
        uint64_t i = find_file(r, at);
        uint64_t left = r->file[i].first + r->file[i].bytes - at;
        size_t now = left < n ? (size_t)left : n;

        st = read_from(r, i, at, bytes, now);
        at += now;
        bytes += now;
        n -= now;
    }
    return st;
}

static weft_status read_rows(raw *r)
{
    wf_file_move move = {.region = r->region,
                         .load = true,
                         .rows = r->sizes.rows,
                         .width = r->sizes.width,
                         .skip = r->options.skip,
                         .block = WF_FILE_BLOCK,
                         .piece = read_piece,
                         .ctx = r,
                         .options = &r->options};

    return wf_file_move_run(&move);
}

static weft_status load_files(raw *r)
{
    bool first = r->comm->rank == 0;
    weft_status st = wf_file_tell(r->comm, first ? measure(r) : WEFT_OK,
                                  &r->sizes, sizeof(r->sizes));

    if (st == WEFT_OK) {
        st = weft_broadcast(r->comm, r->file, r->count * sizeof(*r->file),
                            WEFT_U8, 0);
    }
    return st == WEFT_OK ? wf_file_agree(r->comm, read_rows(r)) : st;
}

/* All ranks must speak of the same number of files, or what follows would not
 * have the same size on all. */
static weft_status check_count(raw *r)
{
    uint64_t count = r->count;
    weft_status st = weft_broadcast(r->comm, &count, sizeof(count), WEFT_U8, 0);

    if (st != WEFT_OK) {
        return st;
    }
    if (count != r->count) {
        return wf_file_agree(r->comm, wf_fail(WEFT_ERR_MISMATCH,
                                              "%" PRIu64
                                              " files, but rank 0 has %" PRIu64,
                                              r->count, count));
    }
    r->file = wf_zalloc(r->count * sizeof(*r->file));
    return wf_file_agree(
        r->comm, r->file != NULL
                     ? WEFT_OK
                     : wf_fail_nomem("a list of %" PRIu64 " files", r->count));
}

weft_status weft_region_load_raw(weft_region *region, weft_comm *comm,
                                 const char *const *paths, size_t count,
                                 const weft_file_options *options)
{
    raw r = {.region = region, .comm = comm, .paths = paths, .count = count};
    weft_status st = wf_file_begin(region, comm,
                                   count > 0 && paths != NULL ? paths[0] : NULL,
                                   options, &r.options);

    if (st != WEFT_OK) {
        return st;
    }
    r.sizes.width = r.options.file_row_bytes != 0 ? r.options.file_row_bytes
                                                  : region->row_bytes;
    st = check_count(&r);
    if (st == WEFT_OK) {
        st = load_files(&r);
    }
    wf_free(r.file);
    return st;
}
