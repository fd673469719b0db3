/* SPDX-License-Identifier: Apache-2.0 */
#include "region/file/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/fd.h"
#include "base/status.h"

static weft_status size_of(const wf_file *file, uint64_t *out)
{
    struct stat st;

    if (fstat(file->fd, &st) != 0) {
        return wf_fail_errno("fstat %s", file->name);
    }
    if (!S_ISREG(st.st_mode)) {
        return wf_fail(WEFT_ERR_INVALID, "%s is no regular file", file->name);
    }
    *out = (uint64_t)st.st_size;
    return WEFT_OK;
}

weft_status wf_file_open(const char *name, bool writable, wf_file *out,
                         uint64_t *bytes)
{
    wf_file file = {-1, -1, name};
    uint64_t size = 0;
    weft_status st;

    /* A pipe must not keep us waiting for its other end. */
    file.fd =
        open(name, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    if (file.fd < 0) {
        return errno == ENOENT || errno == ENOTDIR || errno == EISDIR
                   ? wf_fail(WEFT_ERR_INVALID, "cannot open %s: %s", name,
                             errno == EISDIR ? "it is a directory"
                                             : "there is no such file")
                   : wf_fail_errno("cannot open %s", name);
    }
    st = size_of(&file, &size);
    if (st != WEFT_OK) {
        close(file.fd);
        return st;
    }
    if (bytes != NULL) {
        *bytes = size;
    }
    *out = file;
    return WEFT_OK;
}

void wf_file_go_direct(wf_file *file, bool writable)
{
    char path[64];

    /* By descriptor, because the file may have no name yet. */
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file->fd);
    file->direct =
        open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_DIRECT);
}

void wf_file_close(wf_file *file)
{
    wf_close(file->direct);
    wf_close(file->fd);
    file->fd = -1;
    file->direct = -1;
}

/* The descriptor for a transfer: the edges of a rank's rows are no multiples,
 * and go through the page cache. */
static int pick(const wf_file *file, uint64_t at, const void *buf, size_t n)
{
    bool even = (at | n | (uintptr_t)buf) % WF_FILE_DIRECT_UNIT == 0;

    return file->direct >= 0 && even ? file->direct : file->fd;
}

/* Transfer as much as there is of `*n` bytes; `*at` and `*n` become where the
 * rest begins and how long it is. Returns what the last call did, 1 if it moved
 * something. */
static int transfer(const wf_file *file, bool writes, char *p, uint64_t *at,
                    size_t *n)
{
    int fd = pick(file, *at, p, *n);
    ssize_t moved = 1;

    while (*n > 0 && moved > 0) {
        moved = writes ? pwrite(fd, p, *n, (off_t)*at)
                       : pread(fd, p, *n, (off_t)*at);
        if (moved < 0 && errno == EINTR) {
            moved = 1;
        } else if (fd != file->fd &&
                   (moved < 0 || moved % WF_FILE_DIRECT_UNIT != 0)) {
            /* It wants larger multiples than we use, or it ends here. */
            fd = file->fd;
            moved = 1;
        } else if (moved > 0) {
            p += moved;
            *at += (uint64_t)moved;
            *n -= (size_t)moved;
        }
    }
    return moved > 0 ? 1 : (int)moved;
}

weft_status wf_file_read(const wf_file *file, uint64_t at, void *to, size_t n)
{
    int moved = transfer(file, false, to, &at, &n);

    if (moved < 0) {
        return wf_fail_errno("cannot read %s at byte %" PRIu64, file->name, at);
    }
    return moved > 0 ? WEFT_OK
                     : wf_fail(WEFT_ERR_PROTOCOL,
                               "%s ends at byte %" PRIu64
                               ", where %zu more should follow",
                               file->name, at, n);
}

/* A write past this limit would be a signal that ends the process. */
weft_status wf_file_check_limit(const char *name, uint64_t bytes)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes) {
        return wf_fail(WEFT_ERR_SYSTEM,
                       "%s would have %" PRIu64
                       " bytes, and this process may write files of %" PRIu64
                       " (ulimit -f)",
                       name, bytes, (uint64_t)limit.rlim_cur);
    }
    return WEFT_OK;
}

weft_status wf_file_write(const wf_file *file, uint64_t at, const void *from,
                          size_t n)
{
    weft_status st = wf_file_check_limit(file->name, at + n);

    if (st == WEFT_OK &&
        transfer(file, true, (char *)(uintptr_t)from, &at, &n) <= 0) {
        st = wf_fail_errno("cannot write %s at byte %" PRIu64, file->name, at);
    }
    return st;
}

weft_status wf_file_flush(const wf_file *file)
{
    while (fsync(file->fd) != 0) {
        if (errno != EINTR) {
            return wf_fail_errno("cannot bring %s to the disk", file->name);
        }
    }
    return WEFT_OK;
}

weft_status wf_file_write_header(const wf_file *file, wf_file_header *header)
{
    weft_status st;

    wf_file_seal(header);
    st = wf_file_write(file, 0, header, sizeof(*header));
    return st == WEFT_OK ? wf_file_flush(file) : st;
}

weft_status wf_file_write_parts(const wf_file *file, wf_file_header *header,
                                const wf_partition *part)
{
    size_t bytes = (size_t)header->parts * sizeof(uint64_t);
    uint64_t *rows = wf_alloc(bytes);
    weft_status st;

    if (rows == NULL) {
        return wf_fail_nomem("the list of %" PRIu32 " parts", header->parts);
    }
    for (uint32_t r = 0; r < header->parts; r++) {
        rows[r] = wf_partition_rows_of(part, r);
    }
    header->parts_crc = wf_crc32c(0, rows, bytes);
    st = wf_file_write(file, header->parts_at, rows, bytes);
    wf_free(rows);
    return st;
}

weft_status wf_file_mark_dirty(const wf_file *file,
                               const wf_file_header *header)
{
    wf_file_header marked = *header;

    marked.flags |= WF_FILE_DIRTY | WF_FILE_WRITTEN;
    return wf_file_write_header(file, &marked);
}

weft_status wf_file_read_header(const wf_file *file, uint64_t bytes,
                                wf_file_header *out)
{
    wf_file_header header;
    weft_status st;

    if (bytes < sizeof(header)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s has %" PRIu64
                       " bytes, too few for a file of a saved region",
                       file->name, bytes);
    }
    st = wf_file_read(file, 0, &header, sizeof(header));
    if (st == WEFT_OK) {
        st = wf_file_check(file->name, &header, bytes);
    }
    if (st == WEFT_OK) {
        *out = header;
    }
    return st;
}

weft_status wf_file_read_parts(const wf_file *file,
                               const wf_file_header *header, uint64_t *rows)
{
    weft_status st =
        wf_file_read(file, header->parts_at, rows, 8 * (size_t)header->parts);

    return st == WEFT_OK ? wf_file_check_parts(file->name, header, rows) : st;
}

weft_status wf_file_read_table(const wf_file *file,
                               const wf_file_header *header, uint32_t *table)
{
    weft_status st =
        wf_file_read(file, header->table_at, table, 4 * (size_t)header->blocks);

    return st == WEFT_OK ? wf_file_check_table(file->name, header, table) : st;
}

static weft_status read_npy_text(const wf_file *file, size_t n, wf_npy *out)
{
    void *text = wf_alloc(n);
    weft_status st;

    if (text == NULL) {
        return wf_fail_nomem("the header of %s", file->name);
    }
    st = wf_file_read(file, 0, text, n);
    if (st == WEFT_OK) {
        st = wf_npy_parse(file->name, text, n, out);
    }
    wf_free(text);
    return st;
}

weft_status wf_file_read_npy(const wf_file *file, uint64_t bytes, wf_npy *out)
{
    unsigned char prefix[WF_NPY_PREFIX];
    wf_npy npy;
    size_t header;
    weft_status st;

    if (bytes < sizeof(prefix)) {
        return wf_fail(WEFT_ERR_INVALID, "%s is too short for a .npy file",
                       file->name);
    }
    st = wf_file_read(file, 0, prefix, sizeof(prefix));
    if (st == WEFT_OK) {
        st = wf_npy_header_bytes(file->name, prefix, sizeof(prefix), &header);
    }
    if (st == WEFT_OK) {
        st = read_npy_text(file, header, &npy);
    }
    if (st != WEFT_OK) {
        return st;
    }
    if (bytes < npy.data_at + npy.data_bytes) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "%s is cut off: it has %" PRIu64
                       " bytes and should have %" PRIu64,
                       file->name, bytes, npy.data_at + npy.data_bytes);
    }
    *out = npy;
    return WEFT_OK;
}
