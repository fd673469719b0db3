/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that other processes can map.
 *
 * A segment is a memfd: it has no name that could be left behind, and it is
 * gone when the last process that holds it is. It is sealed against growing
 * and shrinking, so that nobody who mapped it can meet a bus error. Whoever
 * gets the descriptor from a peer checks size and seals before mapping it. */
#ifndef WF_MEM_SEGMENT_H
#define WF_MEM_SEGMENT_H

#include <stdbool.h>
#include <weft/status.h>

#include "base/num.h"
#include "base/settings.h"

typedef struct wf_segment {
    int fd;       /* -1 once nobody needs to be sent it */
    void *base;   /* where this process has it */
    size_t bytes; /* whole pages */
    bool writable;
} wf_segment;

/* Create and map a zeroed segment of at least `bytes`. No page is
 * allocated yet: each owner does that for its part with wf_segment_populate.
 * WEFT_ERR_NOMEM if the host or this control group has no room for it. */
weft_status wf_segment_create(const char *what, size_t bytes, wf_huge huge,
                              wf_segment *out);

/* A sealed memfd that is not mapped and has no pages, for callers that map it
 * themselves. It may be larger than there is memory: only pages that are
 * touched or populated take any. `huge`: of reserved huge pages, `bytes` being
 * a multiple of their size. */
weft_status wf_segment_make_fd(const char *what, size_t bytes, bool huge,
                               int *out);

/* Check that the memfd behind `fd` is sealed and has at least `bytes`. */
weft_status wf_segment_check_fd(const char *what, int fd, size_t bytes);

/* Map the segment behind `fd`, which must have at least `bytes` and the seals.
 * Takes `fd` over, also when it fails. A read-only mapping cannot be made
 * writable later if the descriptor is read-only too. */
weft_status wf_segment_attach(const char *what, int fd, size_t bytes,
                              bool writable, wf_segment *out);

/* A descriptor of the same memory that can only be mapped for reading. */
weft_status wf_segment_readonly_fd(const wf_segment *seg, int *out);

/* Back a range with huge pages before it is populated, as far as it has room
 * for whole ones and the kernel has them. Kernels do so by themselves only
 * where shmem_enabled allows it, which is rare; from Linux 6.1 on they do when
 * asked. */
void wf_segment_collapse(const wf_segment *seg, size_t offset, size_t bytes);

/* Allocate the pages of a range now, on the caller's NUMA node. Returns
 * WEFT_ERR_NOMEM where a later touch would have been a bus error. */
weft_status wf_segment_populate(const wf_segment *seg, size_t offset,
                                size_t bytes);

/* Close the descriptor and keep the mapping. */
void wf_segment_close_fd(wf_segment *seg);

/* Unmap and close. Takes a zeroed segment, too. */
void wf_segment_close(wf_segment *seg);

/* In a forked child: replace the segment by private memory at the same
 * addresses, zero but for the first `keep` bytes, which are copied. Takes a
 * zeroed segment, too. */
void wf_segment_part(wf_segment *seg, size_t keep);

size_t wf_segment_page(void);

#define WF_HUGE_PAGE ((size_t)2 << 20)

/* Bytes that can still be allocated on this host, by its free memory and by
 * the limits of this process's control groups (mem/cgroup.h); and by its free
 * memory alone. */
uint64_t wf_memory_available(void);
/* All memory that this host has; UINT64_MAX if unknown. */
uint64_t wf_memory_of_host(void);
uint64_t wf_memory_on_host(void);
/* WEFT_ERR_NOMEM, with numbers, unless `bytes` are available for `what`. */
weft_status wf_memory_check(const char *what, uint64_t bytes);
/* That error, where `where` has only `room` bytes. */
weft_status wf_memory_fail(const char *what, uint64_t needs, uint64_t room,
                           const char *where);
#define WF_MEMORY_GROUP "the control group of this process"
/* Bytes of reserved huge pages (of WF_HUGE_PAGE) that are free. */
uint64_t wf_memory_huge_free(void);

/* Prefer NUMA node `node` for pages of a shared mapping that are allocated from
 * now on. WEFT_ERR_INVALID if there is no such node. */
weft_status wf_memory_prefer_node(void *at, size_t bytes, uint32_t node);

#endif
