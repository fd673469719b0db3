/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory: one memfd for the whole range of a domain, made by its first
 * rank and mapped by all.
 *
 * The memfd is as long as the region may ever become, and sealed at that
 * length. It has no pages at first. Each rank allocates those it backs, from
 * its own NUMA node, before the region is handed out; growing allocates more of
 * them. So nobody meets a bus error, and the reserve costs addresses only. Rows
 * behind the end are protected: touching one is a fault, not silent memory.
 *
 * Each rank keeps one descriptor, for read-only mappings. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"
#include "base/status.h"
#include "mem/segment.h"
#include "region/storage.h"

typedef struct host_state {
    const wf_storage_spec *spec;
    char *base;
    uint64_t reserve;
    int fd; /* -1: nothing is mapped yet */
} host_state;

static bool is_huge(const wf_storage_spec *spec)
{
    return spec->granule >= WF_HUGE_PAGE;
}

/* Reserved huge pages if there are enough for all of it, else plain pages,
 * which the kernel may join to transparent huge ones. */
static weft_status host_granule(const wf_storage_spec *spec, uint64_t *out)
{
    bool huge = spec->huge == WF_HUGE_HUGETLB &&
                spec->bytes + WF_HUGE_PAGE <= wf_memory_huge_free();

    if (spec->huge == WF_HUGE_HUGETLB && !huge) {
        wf_log(WEFT_LOG_INFO,
               "%s: not enough reserved huge pages, asking for transparent "
               "ones",
               spec->what);
    }
    *out = huge ? WF_HUGE_PAGE : wf_segment_page();
    return WEFT_OK;
}

static weft_status host_room(const wf_storage_spec *spec,
                             const wf_storage_need *need)
{
    bool huge = is_huge(spec);
    uint64_t host = huge ? wf_memory_huge_free() : wf_memory_on_host();

    if (need->bytes > host) {
        return wf_memory_fail(spec->what, need->bytes, host,
                              huge ? "the pool of huge pages" : "this host");
    }
    for (unsigned i = 0; i < need->groups.count && !huge; i++) {
        if (need->in_group[i] > need->groups.group[i].room) {
            return wf_memory_fail(spec->what, need->in_group[i],
                                  need->groups.group[i].room, WF_MEMORY_GROUP);
        }
    }
    return WEFT_OK;
}

/* Addresses that nobody can touch, aligned so that huge pages fit. */
static void *reserve_range(uint64_t bytes, uint64_t align)
{
    char *p = mmap(NULL, bytes + align, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (p == MAP_FAILED) {
        return NULL;
    }
    before = (align - (uintptr_t)p % align) % align;
    if (before > 0) {
        munmap(p, before);
    }
    munmap(p + before + bytes, align - before);
    return p + before;
}

static weft_status host_open(const wf_storage_spec *spec, uint64_t reserve,
                             void **base, void **state)
{
    host_state *h = wf_zalloc(sizeof(*h));
    uint64_t align = reserve >= WF_HUGE_PAGE ? WF_HUGE_PAGE : spec->granule;

    if (h == NULL) {
        return wf_fail_nomem("%s", spec->what);
    }
    h->base = reserve_range(reserve, align);
    if (h->base == NULL) {
        wf_free(h);
        return wf_fail(WEFT_ERR_NOMEM,
                       "%s: cannot reserve %llu MiB of addresses", spec->what,
                       (unsigned long long)(reserve >> 20));
    }
    h->spec = spec;
    h->reserve = reserve;
    h->fd = -1;
    *base = h->base;
    *state = h;
    return WEFT_OK;
}

/* Takes `fd` over if it succeeds. */
static weft_status host_map(host_state *h, int fd)
{
    if (mmap(h->base, h->reserve, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED) {
        return wf_fail_errno("mapping %s", h->spec->what);
    }
    h->fd = fd;
    if (h->spec->huge != WF_HUGE_OFF && !is_huge(h->spec) &&
        h->reserve >= WF_HUGE_PAGE) {
        /* Only advice: a kernel without huge pages for shmem refuses. */
        (void)madvise(h->base, h->reserve, MADV_HUGEPAGE);
    }
    return WEFT_OK;
}

static weft_status host_create(void *state, uint64_t at, uint64_t bytes,
                               int *out)
{
    host_state *h = state;
    int own = -1;
    int sent = -1;
    weft_status st =
        wf_segment_make_fd("a weft region", bytes, is_huge(h->spec), &own);

    (void)at;
    if (st != WEFT_OK) {
        return st;
    }
    if (!h->spec->alone) {
        sent = fcntl(own, F_DUPFD_CLOEXEC, 0);
        if (sent < 0) {
            st = wf_fail_errno("a second descriptor of %s", h->spec->what);
        }
    }
    if (st == WEFT_OK) {
        st = host_map(h, own);
    }
    if (st != WEFT_OK) {
        close(own);
        wf_close(sent);
        return st;
    }
    *out = sent;
    return WEFT_OK;
}

static weft_status host_attach(void *state, uint64_t at, uint64_t bytes, int fd)
{
    host_state *h = state;
    weft_status st = wf_segment_check_fd(h->spec->what, fd, bytes);

    (void)at;
    if (st == WEFT_OK) {
        st = host_map(h, fd);
    }
    if (st != WEFT_OK) {
        close(fd);
    }
    return st;
}

static weft_status host_commit(void *state, uint64_t at, uint64_t bytes)
{
    host_state *h = state;
    wf_segment all = {h->fd, h->base, h->reserve, true};
    weft_status st = WEFT_OK;

    if (bytes == 0) {
        return WEFT_OK;
    }
    if (mprotect(h->base + at, bytes, PROT_READ | PROT_WRITE) != 0) {
        return wf_fail_errno("%s: opening %llu bytes", h->spec->what,
                             (unsigned long long)bytes);
    }
    if (h->spec->numa > 0) {
        st = wf_memory_prefer_node(h->base + at, bytes,
                                   (uint32_t)h->spec->numa - 1);
    }
    if (st == WEFT_OK && h->spec->huge != WF_HUGE_OFF && !is_huge(h->spec)) {
        wf_segment_collapse(&all, at, bytes);
    }
    return st == WEFT_OK ? wf_segment_populate(&all, at, bytes) : st;
}

static weft_status host_access(void *state, uint64_t end)
{
    host_state *h = state;

    if ((end > 0 && mprotect(h->base, end, PROT_READ | PROT_WRITE) != 0) ||
        (end < h->reserve &&
         mprotect(h->base + end, h->reserve - end, PROT_NONE) != 0)) {
        return wf_fail_errno("protecting %s", h->spec->what);
    }
    return WEFT_OK;
}

/* Whole pages go back to the system, which gives zeros in their place; what is
 * left at both ends is cleared by hand. */
static void host_discard(void *state, uint64_t at, uint64_t bytes)
{
    host_state *h = state;
    uint64_t page = is_huge(h->spec) ? WF_HUGE_PAGE : wf_segment_page();
    uint64_t from = wf_round_up(at, page);
    uint64_t until = (at + bytes) / page * page;

    if (from >= until ||
        madvise(h->base + from, until - from, MADV_REMOVE) != 0) {
        memset(h->base + at, 0, bytes);
        return;
    }
    memset(h->base + at, 0, from - at);
    memset(h->base + until, 0, at + bytes - until);
}

static weft_status host_view(void *state, uint64_t bytes, void **out)
{
    const host_state *h = state;
    wf_segment all = {h->fd, h->base, h->reserve, true};
    void *p;
    int fd = -1;
    weft_status st = wf_segment_readonly_fd(&all, &fd);

    if (st != WEFT_OK) {
        return st;
    }
    p = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED) {
        st = wf_fail_errno("mapping %s for reading", h->spec->what);
    } else {
        *out = p;
    }
    close(fd);
    return st;
}

void wf_storage_unview(void *state, void *view, uint64_t bytes)
{
    (void)state;
    munmap(view, bytes);
}

weft_status wf_storage_dup(int fd, const char *what, uint64_t at, int *out,
                           uint64_t *offset)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (own < 0) {
        return wf_fail_errno("another descriptor of %s", what);
    }
    *out = own;
    *offset = at;
    return WEFT_OK;
}

static weft_status host_descriptor(const void *state, int *out,
                                   uint64_t *offset)
{
    const host_state *h = state;

    return wf_storage_dup(h->fd, h->spec->what, 0, out, offset);
}

/* "7f12...-7f34..." begins a mapping in smaps, "Name: 17 kB" is a line of it.
 */
static uint64_t host_huge_bytes(const void *state)
{
    static const char *const names[] = {"ShmemPmdMapped:", "FilePmdMapped:",
                                        "Shared_Hugetlb:", "Private_Hugetlb:"};
    const host_state *h = state;
    FILE *f = fopen("/proc/self/smaps", "re");
    unsigned long from;
    unsigned long until;
    unsigned long long kib;
    uint64_t bytes = 0;
    bool ours = false;
    char line[512];

    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "%lx-%lx ", &from, &until) == 2) {
            ours = from >= (uintptr_t)h->base &&
                   until <= (uintptr_t)h->base + h->reserve;
        }
        for (size_t i = 0; ours && i < sizeof(names) / sizeof(*names); i++) {
            size_t n = strlen(names[i]);

            if (strncmp(line, names[i], n) == 0 &&
                sscanf(line + n, "%llu", &kib) == 1) {
                bytes += kib * 1024;
            }
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return bytes;
}

static void host_close(void *state)
{
    host_state *h = state;

    munmap(h->base, h->reserve);
    wf_close(h->fd);
    wf_free(h);
}

const wf_storage wf_storage_host = {
    .name = "host",
    .place = WEFT_HOST,
    .whole = true,
    .granule = host_granule,
    .room = host_room,
    .open = host_open,
    .create = host_create,
    .attach = host_attach,
    .commit = host_commit,
    .access = host_access,
    .discard = host_discard,
    .view = host_view,
    .unview = wf_storage_unview,
    .descriptor = host_descriptor,
    .huge_bytes = host_huge_bytes,
    .close = host_close,
};
