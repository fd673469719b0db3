/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "mem/share_maps.h"

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

size_t wf_segment_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Reserved huge pages exist only where the administrator set them aside, and
 * a mapping of them is backed or refused at once, never later. */
static int memfd_hugetlb(const char *what, size_t bytes)
{
    int fd = memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

    if (fd < 0) {
        return -1;
    }
    if (ftruncate(fd, (off_t)wf_round_up(bytes, WF_HUGE_PAGE)) == 0) {
        void *p = mmap(NULL, wf_round_up(bytes, WF_HUGE_PAGE),
                       PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        if (p != MAP_FAILED) {
            munmap(p, wf_round_up(bytes, WF_HUGE_PAGE));
            return fd;
        }
    }
    close(fd);
    return -1;
}

static weft_status memfd_sized(const char *what, size_t bytes, unsigned more,
                               int *out)
{
    int fd = memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING | more);

    if (fd < 0) {
        return wf_fail_errno("memfd_create for %s", what);
    }
    if (ftruncate(fd, (off_t)bytes) != 0) {
        weft_status st = wf_fail_errno("%zu bytes for %s", bytes, what);

        close(fd);
        return st;
    }
    *out = fd;
    return WEFT_OK;
}

static weft_status memfd_seal(const char *what, int fd)
{
    return fcntl(fd, F_ADD_SEALS, SIZE_SEALS) == 0
               ? WEFT_OK
               : wf_fail_errno("sealing %s", what);
}

weft_status wf_segment_make_fd(const char *what, size_t bytes, bool huge,
                               int *out)
{
    int fd = -1;
    weft_status st = memfd_sized(what, bytes, huge ? MFD_HUGETLB : 0, &fd);

    if (st == WEFT_OK) {
        st = memfd_seal(what, fd);
        if (st != WEFT_OK) {
            close(fd);
            return st;
        }
        *out = fd;
    }
    return st;
}

weft_status wf_segment_create(const char *what, size_t bytes, wf_huge huge,
                              wf_segment *out)
{
    size_t whole = wf_round_up(bytes, wf_segment_page());
    weft_status st = wf_memory_check(what, whole < bytes ? bytes : whole);
    int fd = -1;

    if (st != WEFT_OK) {
        return st;
    }
    if (huge == WF_HUGE_HUGETLB) {
        fd = memfd_hugetlb(what, bytes);
        if (fd < 0) {
            wf_log(WEFT_LOG_INFO,
                   "%s: no reserved huge pages, asking for "
                   "transparent ones",
                   what);
        } else {
            whole = wf_round_up(bytes, WF_HUGE_PAGE);
        }
    }
    if (fd < 0) {
        st = memfd_sized(what, whole, 0, &fd);
        if (st != WEFT_OK) {
            return st;
        }
    }
    st = memfd_seal(what, fd);
    if (st != WEFT_OK) {
        close(fd);
        return st;
    }
    st = wf_segment_attach(what, fd, whole, true, out);
    if (st == WEFT_OK && huge != WF_HUGE_OFF) {
        /* Only advice: a kernel without huge pages for shmem refuses. */
        (void)madvise(out->base, out->bytes, MADV_HUGEPAGE);
    }
    return st;
}

/* What a peer sent us is not to be trusted with our address space. */
weft_status wf_segment_check_fd(const char *what, int fd, size_t bytes)
{
    struct stat s;
    int seals = fcntl(fd, F_GET_SEALS);

    if (fstat(fd, &s) != 0) {
        return wf_fail_errno("fstat of %s", what);
    }
    if (seals < 0 || (seals & SIZE_SEALS) != SIZE_SEALS) {
        return wf_fail(WEFT_ERR_PROTOCOL, "%s is not sealed", what);
    }
    if (s.st_size < 0 || (uint64_t)s.st_size < bytes) {
        return wf_fail(WEFT_ERR_PROTOCOL, "%s has %lld bytes instead of %zu",
                       what, (long long)s.st_size, bytes);
    }
    return WEFT_OK;
}

weft_status wf_segment_attach(const char *what, int fd, size_t bytes,
                              bool writable, wf_segment *out)
{
    size_t whole = wf_round_up(bytes, wf_segment_page());
    weft_status st =
        wf_segment_check_fd(what, fd, whole < bytes ? bytes : whole);
    void *base;

    if (st == WEFT_OK) {
        base = wf_map_shared(fd, whole,
                             writable ? PROT_READ | PROT_WRITE : PROT_READ);
        if (base != MAP_FAILED) {
            *out = (wf_segment){fd, base, whole, writable};
            return WEFT_OK;
        }
        st = wf_fail_errno("mapping %zu bytes of %s", whole, what);
    }
    close(fd);
    return st;
}

weft_status wf_segment_readonly_fd(const wf_segment *seg, int *out)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", seg->fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return wf_fail_errno("opening a segment for reading");
    }
    *out = fd;
    return WEFT_OK;
}

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* A huge page is made where one of its pages is there. One call for all of
 * them: each has every core empty its lists of pages first. */
void wf_segment_collapse(const wf_segment *seg, size_t offset, size_t bytes)
{
    size_t from = wf_round_up(offset, WF_HUGE_PAGE);
    size_t until = (offset + bytes) / WF_HUGE_PAGE * WF_HUGE_PAGE;
    weft_status st = WEFT_OK;

    for (size_t at = from; at < until && st == WEFT_OK; at += WF_HUGE_PAGE) {
        st = wf_segment_populate(seg, at, 1);
    }
    if (from < until && st == WEFT_OK) {
        (void)madvise((char *)seg->base + from, until - from, MADV_COLLAPSE);
    }
}

weft_status wf_segment_populate(const wf_segment *seg, size_t offset,
                                size_t bytes)
{
    size_t page = wf_segment_page();
    size_t from = offset / page * page;
    size_t until = wf_round_up(offset + bytes, page);
    char *at = (char *)seg->base + from;

    if (bytes == 0) {
        return WEFT_OK;
    }
    if (bytes > seg->bytes || offset > seg->bytes - bytes) {
        return wf_fail(WEFT_ERR_INVALID,
                       "the range lies outside of the segment");
    }
    if (!seg->writable) {
        return wf_fail(WEFT_ERR_INVALID, "the segment is read-only");
    }
#ifdef MADV_POPULATE_WRITE
    if (madvise(at, until - from, MADV_POPULATE_WRITE) == 0) {
        return WEFT_OK;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return wf_fail_nomem("%zu bytes of a shared segment: %s", until - from,
                             strerror(errno));
    }
#endif
    /* Older kernels: allocate, then touch so that the tables are filled. */
    if (seg->fd >= 0 &&
        fallocate(seg->fd, 0, (off_t)from, (off_t)(until - from)) != 0) {
        return wf_fail_errno("allocating %zu bytes of a shared segment",
                             until - from);
    }
    for (size_t i = 0; i < until - from; i += page) {
        __atomic_fetch_add(at + i, 0, __ATOMIC_RELAXED);
    }
    return WEFT_OK;
}

void wf_segment_close_fd(wf_segment *seg)
{
    if (seg->base != NULL && seg->fd >= 0) {
        close(seg->fd);
        seg->fd = -1;
    }
}

void wf_segment_close(wf_segment *seg)
{
    if (seg->base == NULL) {
        return;
    }
    wf_segment_close_fd(seg);
    wf_unmap_shared(seg->base, seg->bytes);
    memset(seg, 0, sizeof(*seg));
    seg->fd = -1;
}

void wf_segment_part(wf_segment *seg, size_t keep)
{
    void *kept = seg->base != NULL && keep > 0 ? wf_alloc(keep) : NULL;

    if (kept != NULL) {
        memcpy(kept, seg->base, keep);
    }
    if (seg->base != NULL &&
        mmap(seg->base, seg->bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
             0) == MAP_FAILED) {
        wf_log(WEFT_LOG_ERROR,
               "a forked child still shares %zu bytes with its parent",
               seg->bytes);
    } else if (kept != NULL) {
        memcpy(seg->base, kept, keep);
    }
    wf_free(kept);
}
