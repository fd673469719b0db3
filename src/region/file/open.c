/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are regions: opened, made, and brought to the disk.
 *
 * Rank 0 has the file and does all that concerns its header. A header says that
 * the checksums are out of date from before the first rank can write until
 * weft_region_sync has new ones on the disk. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/status.h"
#include "region/file/agree.h"
#include "region/file/store.h"
#include "region/file/temp.h"

/* What rank 0 tells the others. */
typedef struct opened {
    wf_file_header header;
    int32_t writable;
} opened;

static weft_status check_open(weft_comm *comm, const char *path,
                              weft_region **out)
{
    if (comm == NULL || path == NULL || *path == '\0' || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm, path or out is missing");
    }
    return WEFT_OK;
}

/* The region over a file that rank 0 has open and all know the header of. `bad`
 * is what this rank wants otherwise than rank 0. */
static weft_status form(weft_comm *comm, int fd, const opened *o,
                        weft_status bad, weft_region **out)
{
    wf_file_store_arg arg = {fd, o->header, o->writable != 0};
    wf_region_plan plan = {
        .dims = o->header.dims,
        .shape = o->header.shape,
        .type = wf_file_type(&o->header),
        .options = {.size = sizeof(plan.options), .reach = WEFT_REACH_MAPPED},
        .storage = &wf_storage_file,
        .storage_arg = &arg,
        .read_only = o->writable == 0};

    return wf_region_form(comm, &plan, bad, out);
}

/* --- a file that is there ------------------------------------------------ */

/* Two jobs that write to one file would each put an end to the other's
 * checksums. The lock goes with the descriptors of all ranks. */
static weft_status lock_file(const wf_file *file)
{
    if (flock(file->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return wf_fail(WEFT_ERR_DENIED, "%s is open for writing in another job",
                       file->name);
    }
    return WEFT_OK;
}

static weft_status open_first(const char *path, int32_t writable, wf_file *file,
                              opened *out)
{
    uint64_t bytes;
    weft_status st = wf_file_open(path, writable != 0, file, &bytes);

    if (st == WEFT_OK && writable != 0) {
        st = lock_file(file);
    }
    if (st == WEFT_OK) {
        st = wf_file_read_header(file, bytes, &out->header);
    }
    out->writable = writable != 0;
    return st;
}

static weft_status check_writable(int32_t writable, const opened *o)
{
    if ((writable != 0) != (o->writable != 0)) {
        return wf_fail(WEFT_ERR_MISMATCH,
                       "writable is %d here and %d on rank 0", writable != 0,
                       o->writable);
    }
    return WEFT_OK;
}

weft_status weft_region_open(weft_comm *comm, const char *path,
                             int32_t writable, weft_region **out)
{
    wf_file file = {-1, -1, path};
    weft_region *region = NULL;
    opened o = {.writable = 0};
    weft_status st = check_open(comm, path, out);

    if (st != WEFT_OK) {
        return st;
    }
    if (comm->rank == 0) {
        st = open_first(path, writable, &file, &o);
    }
    st = wf_file_tell(comm, st, &o, sizeof(o));
    if (st == WEFT_OK) {
        st = form(comm, file.fd, &o, check_writable(writable, &o), &region);
    }
    if (st == WEFT_OK && o.writable != 0) {
        st = wf_file_agree(comm, comm->rank == 0
                                     ? wf_file_mark_dirty(&file, &o.header)
                                     : WEFT_OK);
    }
    wf_file_close(&file);
    if (st != WEFT_OK) {
        weft_region_destroy(region);
        return st;
    }
    *out = region;
    return WEFT_OK;
}

/* --- a new file ---------------------------------------------------------- */

static weft_status check_shape(uint32_t dims, const uint64_t *shape)
{
    if (shape == NULL || dims < 1 || dims > WEFT_REGION_DIMS_MAX) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%" PRIu32 " dimensions; a region has 1 to %d", dims,
                       WEFT_REGION_DIMS_MAX);
    }
    return WEFT_OK;
}

/* Does this rank want the file that rank 0 has made? */
static weft_status check_same(const wf_file_shape *what, const opened *o)
{
    const wf_file_header *h = &o->header;

    if (what->dims != h->dims || what->type != wf_file_type(h) ||
        memcmp(what->shape, h->shape, h->dims * sizeof(h->shape[0])) != 0) {
        return wf_fail(WEFT_ERR_MISMATCH,
                       "shape or type is another than on rank 0");
    }
    return WEFT_OK;
}

/* A header without the rest: what comes after it is written once it is known
 * who has which rows. */
static weft_status new_first(const char *path, const wf_file_shape *what,
                             wf_temp *temp, opened *out)
{
    weft_status st = wf_file_layout(what, &out->header);

    out->writable = 1;
    if (st == WEFT_OK) {
        out->header.flags = WF_FILE_DIRTY | WF_FILE_WRITTEN;
        wf_file_seal(&out->header);
        st = wf_temp_create(path, wf_file_bytes(&out->header), false, temp);
    }
    if (st == WEFT_OK) {
        st = lock_file(&temp->file);
    }
    if (st == WEFT_OK) {
        st = wf_file_write(&temp->file, 0, &out->header, sizeof(out->header));
    }
    return st;
}

static uint32_t crc_of_zeros(uint64_t n)
{
    static const unsigned char zeros[4096];
    uint32_t crc = 0;

    for (; n > sizeof(zeros); n -= sizeof(zeros)) {
        crc = wf_crc32c(crc, zeros, sizeof(zeros));
    }
    return wf_crc32c(crc, zeros, (size_t)n);
}

/* Rows of each rank, an empty table, and the name. */
static weft_status publish(const weft_region *region, wf_temp *temp, opened *o)
{
    wf_file_header *h = &o->header;
    weft_status st = wf_file_write_parts(&temp->file, h, &region->part);

    h->table_crc = crc_of_zeros(4 * h->blocks);
    if (st == WEFT_OK) {
        st = wf_file_write_header(&temp->file, h);
    }
    return st == WEFT_OK ? wf_temp_publish(temp) : st;
}

weft_status weft_region_open_new(weft_comm *comm, const char *path,
                                 uint32_t dims, const uint64_t *shape,
                                 weft_dtype type, weft_region **out)
{
    wf_temp temp = {.file = {-1, -1, path}};
    weft_region *region = NULL;
    opened o = {.writable = 1};
    wf_file_shape what = {.dims = dims, .shape = shape, .type = type};
    weft_status st = check_open(comm, path, out);

    if (st == WEFT_OK) {
        st = check_shape(dims, shape);
    }
    if (st != WEFT_OK) {
        return st;
    }
    what.parts = comm->size;
    if (comm->rank == 0) {
        st = new_first(path, &what, &temp, &o);
    }
    st = wf_file_tell(comm, st, &o, sizeof(o));
    if (st == WEFT_OK) {
        st = form(comm, temp.file.fd, &o, check_same(&what, &o), &region);
    }
    if (st == WEFT_OK) {
        st = wf_file_agree(comm, comm->rank == 0 ? publish(region, &temp, &o)
                                                 : WEFT_OK);
    }
    wf_temp_close(&temp);
    if (st != WEFT_OK) {
        weft_region_destroy(region);
        return st;
    }
    *out = region;
    return WEFT_OK;
}
