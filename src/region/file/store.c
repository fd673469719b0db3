/* SPDX-License-Identifier: Apache-2.0 */
#include "region/file/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/status.h"

typedef struct file_state {
    const wf_storage_spec *spec;
    wf_file_store_arg arg; /* its fd is the one below */
    char *base;
    uint64_t reserve;
    int fd; /* -1: nothing is mapped yet */
} file_state;

static int protection(const file_state *f)
{
    return f->arg.writable ? PROT_READ | PROT_WRITE : PROT_READ;
}

static weft_status file_granule(const wf_storage_spec *spec, uint64_t *out)
{
    (void)spec;
    *out = wf_segment_page();
    return WEFT_OK;
}

static weft_status file_open(const wf_storage_spec *spec, uint64_t reserve,
                             void **base, void **state)
{
    file_state *f = wf_zalloc(sizeof(*f));

    if (f == NULL) {
        return wf_fail_nomem("%s", spec->what);
    }
    f->base = mmap(NULL, reserve, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->base == MAP_FAILED) {
        wf_free(f);
        return wf_fail_errno("%s: cannot reserve %llu MiB of addresses",
                             spec->what, (unsigned long long)(reserve >> 20));
    }
    f->spec = spec;
    f->reserve = reserve;
    f->fd = -1;
    memcpy(&f->arg, spec->arg, sizeof(f->arg));
    *base = f->base;
    *state = f;
    return WEFT_OK;
}

/* Takes `fd` over if it succeeds. The last page may reach behind the end of the
 * file, which can be touched up to the page's end. */
static weft_status map_file(file_state *f, uint64_t bytes, int fd)
{
    if (mmap(f->base, bytes, protection(f), MAP_SHARED | MAP_FIXED, fd,
             (off_t)f->arg.header.data_at) == MAP_FAILED) {
        return wf_fail_errno("mapping %s", f->spec->what);
    }
    f->fd = fd;
    return WEFT_OK;
}

static weft_status file_create(void *state, uint64_t at, uint64_t bytes,
                               int *out)
{
    file_state *f = state;
    int own = fcntl(f->arg.fd, F_DUPFD_CLOEXEC, 0);
    int sent = f->spec->alone ? -1 : fcntl(f->arg.fd, F_DUPFD_CLOEXEC, 0);
    weft_status st = WEFT_OK;

    (void)at;
    if (own < 0 || (sent < 0 && !f->spec->alone)) {
        st = wf_fail_errno("a second descriptor of %s", f->spec->what);
    }
    if (st == WEFT_OK) {
        st = map_file(f, bytes, own);
    }
    if (st == WEFT_OK) {
        *out = sent;
        return WEFT_OK;
    }
    wf_close(own);
    wf_close(sent);
    return st;
}

/* Is it the file that rank 0 told of? */
static weft_status check_file(const file_state *f, int fd)
{
    wf_file file = {fd, -1, f->spec->what};
    wf_file_header header;
    struct stat st;
    int flags = fcntl(fd, F_GETFL);

    if (fstat(fd, &st) != 0 || flags < 0) {
        return wf_fail_errno("%s: fstat of the received file", f->spec->what);
    }
    if (!S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size != wf_file_bytes(&f->arg.header) ||
        (f->arg.writable && (flags & O_ACCMODE) != O_RDWR)) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "%s: received the descriptor of another file",
                       f->spec->what);
    }
    if (wf_file_read(&file, 0, &header, sizeof(header)) != WEFT_OK ||
        memcmp(&header, &f->arg.header, sizeof(header)) != 0) {
        return wf_fail(WEFT_ERR_PROTOCOL, "%s: received another header",
                       f->spec->what);
    }
    return WEFT_OK;
}

static weft_status file_attach(void *state, uint64_t at, uint64_t bytes, int fd)
{
    file_state *f = state;
    weft_status st = check_file(f, fd);

    (void)at;
    if (st == WEFT_OK) {
        st = map_file(f, bytes, fd);
    }
    if (st != WEFT_OK) {
        close(fd);
    }
    return st;
}

/* A file may have holes: fill them now, while it can still be told that the
 * disk is full. Not all file systems can. */
static weft_status file_commit(void *state, uint64_t at, uint64_t bytes)
{
    const file_state *f = state;
    const wf_file_header *h = &f->arg.header;

    if (!f->arg.writable || at >= h->data_bytes) {
        return WEFT_OK;
    }
    if (bytes > h->data_bytes - at) {
        bytes = h->data_bytes - at;
    }
    while (bytes > 0 &&
           fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)(h->data_at + at),
                     (off_t)bytes) != 0) {
        if (errno == EOPNOTSUPP || errno == ENOSYS) {
            break;
        }
        if (errno != EINTR) {
            return wf_fail_errno("no room on the disk for %s", f->spec->what);
        }
    }
    return WEFT_OK;
}

static weft_status file_access(void *state, uint64_t end)
{
    file_state *f = state;

    if ((end > 0 && mprotect(f->base, end, protection(f)) != 0) ||
        (end < f->reserve &&
         mprotect(f->base + end, f->reserve - end, PROT_NONE) != 0)) {
        return wf_fail_errno("protecting %s", f->spec->what);
    }
    return WEFT_OK;
}

/* Rows never go: the file stays as long as it is. */
static void file_discard(void *state, uint64_t at, uint64_t bytes)
{
    (void)state;
    (void)at;
    (void)bytes;
}

static weft_status file_view(void *state, uint64_t bytes, void **out)
{
    const file_state *f = state;
    void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, f->fd,
                   (off_t)f->arg.header.data_at);

    if (p == MAP_FAILED) {
        return wf_fail_errno("mapping %s for reading", f->spec->what);
    }
    *out = p;
    return WEFT_OK;
}

static weft_status file_descriptor(const void *state, int *out,
                                   uint64_t *offset)
{
    const file_state *f = state;

    return wf_storage_dup(f->fd, f->spec->what, f->arg.header.data_at, out,
                          offset);
}

static void file_close(void *state)
{
    file_state *f = state;

    munmap(f->base, f->reserve);
    wf_close(f->fd);
    wf_free(f);
}

wf_file wf_file_store_file(const weft_region *region)
{
    const file_state *f = region->store;

    return (wf_file){f->fd, -1, f->spec->what};
}

const wf_file_header *wf_file_store_header(const weft_region *region)
{
    const file_state *f = region->store;

    return &f->arg.header;
}

const wf_storage wf_storage_file = {
    .name = "file",
    .place = WEFT_HOST,
    .whole = true,
    .fixed = true,
    .granule = file_granule,
    .open = file_open,
    .create = file_create,
    .attach = file_attach,
    .commit = file_commit,
    .access = file_access,
    .discard = file_discard,
    .view = file_view,
    .unview = wf_storage_unview,
    .descriptor = file_descriptor,
    .close = file_close,
};
