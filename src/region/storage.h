/* SPDX-License-Identifier: Apache-2.0 */
/* What a region's memory is made of: host memory (storage_host.c), CUDA memory
 * (cuda/storage.c), a file (file*.c). Each fills in the table of functions
 * below; create.c and resize.c call them, and do all that concerns other ranks.
 *
 * One rank's state covers one range of addresses, which is reserved once and
 * never moves. Into it go objects: pieces of memory that have a descriptor,
 * made by one rank and attached by the others of its domain (partition.h).
 *
 * Creation and growth are the same steps, on all ranks at once:
 *
 *   1. open      reserve the addresses (creation only)
 *   2. create    make the own object, mapped here        -- all or none --
 *   3.           its descriptor goes by mail to the ranks of the domain, and
 *                theirs come
 *   4. attach    map what came                           -- all or none --
 *   5. commit    memory for the own granules             -- all or none --
 *   6. access    let rows up to the new end be used
 *
 * Where a step fails on any rank, all undo: truncate, on growth; close, on
 * creation. Storage talks to no other rank and knows nothing of rows.
 *
 * There are two kinds of storage, by `whole`:
 *   - whole: one object for the whole range of a domain, made by its first
 *     rank; create and attach are called at creation only, with the bytes of
 *     the reserve, and each rank then commits its own granules. Host memory,
 *     files.
 *   - not whole: each rank that backs granules of a new stretch makes one
 *     object for them; create is what allocates, and commit may be empty. CUDA.
 *
 * Offsets (`at`) and sizes are in bytes from the base, whole granules. */
#ifndef WF_REGION_STORAGE_H
#define WF_REGION_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/region.h>

#include "base/settings.h"
#include "mem/cgroup.h"

/* The memory that the caller asked for. */
typedef struct wf_storage_spec {
    const char *what;   /* for messages: "a region of 10 x 4 f32" */
    int32_t device;     /* CUDA: as in the options */
    const char *driver; /* CUDA: WEFT_CUDA_DRIVER */
    uint32_t local;     /* this rank's number on its host */
    int32_t numa;       /* as in the options */
    wf_huge huge;       /* pages and WEFT_HUGE together */
    uint64_t bytes;     /* of all rows there are at first, on all ranks */
    uint64_t granule;   /* as agreed; 0 before that */
    bool alone;         /* no other rank needs a descriptor */
    void *arg;          /* of wf_region_form, for storage that needs more */
} wf_storage_spec;

/* Memory that ranks are about to commit: in total on this host, and in each of
 * the caller's control groups. */
typedef struct wf_storage_need {
    uint64_t bytes;
    wf_cgroups groups;
    uint64_t in_group[WF_CGROUPS];
} wf_storage_need;

typedef struct wf_storage {
    const char *name; /* "host" */
    weft_place place;
    bool whole;
    bool fixed; /* cannot be resized */

    /* The granularity of this rank's memory, a power of two. All ranks use the
     * largest. It is called first, and may initialise the storage. */
    weft_status (*granule)(const wf_storage_spec *spec, uint64_t *out);

    /* Is there memory for this? WEFT_ERR_NOMEM with numbers. Optional. */
    weft_status (*room)(const wf_storage_spec *spec,
                        const wf_storage_need *need);

    /* Reserve `reserve` bytes of addresses, a multiple of spec->granule and not
     * 0, aligned to it, and not accessible yet. The base stays until close.
     * `spec` lives as long as the state. */
    weft_status (*open)(const wf_storage_spec *spec, uint64_t reserve,
                        void **base, void **state);

    /* Make an object of `bytes` and map it at `at`. `*fd` becomes a descriptor
     * of it that others can attach, which the caller closes; -1 if no other
     * rank needs one. */
    weft_status (*create)(void *state, uint64_t at, uint64_t bytes, int *fd);

    /* Map an object that another rank made. It takes `fd` over, also when it
     * fails, and validates it: it came from another process. */
    weft_status (*attach)(void *state, uint64_t at, uint64_t bytes, int fd);

    /* Allocate the granules that this rank backs, zeroed, on its own NUMA node
     * or GPU. WEFT_ERR_NOMEM where a touch would have been a bus error. Called
     * again for rows that come back after they were cut off. */
    weft_status (*commit)(void *state, uint64_t at, uint64_t bytes);

    /* Make bytes before `end` accessible and those from `end` on inaccessible;
     * `end` may be more or less than before. */
    weft_status (*access)(void *state, uint64_t end);

    /* Make the bytes zero; memory of whole pages may go back to the system,
     * commit brings it back. Any offset and size. */
    void (*discard)(void *state, uint64_t at, uint64_t bytes);

    /* Unmap the objects that begin at or behind `at`: of a stretch that is
     * dropped, or of a growth that failed. Whole storage has none. */
    void (*truncate)(void *state, uint64_t at);

    /* A second, read-only mapping of the first `bytes`. */
    weft_status (*view)(void *state, uint64_t bytes, void **out);
    void (*unview)(void *state, void *view, uint64_t bytes);

    /* A new descriptor of the one object that backs the whole range, and the
     * offset of the range in it. Optional. */
    weft_status (*descriptor)(const void *state, int *fd, uint64_t *offset);

    /* Bytes of the mapping that are in huge pages now. Optional. */
    uint64_t (*huge_bytes)(const void *state);

    /* Unmap and free everything; views have been unmapped before. What other
     * ranks have of it stays theirs. Runs in a forked child, too. */
    void (*close)(void *state);
} wf_storage;

/* For storage on the CPU: its unview, and a descriptor as `descriptor` gives
 * it, of the object `fd` whose rows begin at `at`. */
void wf_storage_unview(void *state, void *view, uint64_t bytes);
weft_status wf_storage_dup(int fd, const char *what, uint64_t at, int *out,
                           uint64_t *offset);

extern const wf_storage wf_storage_host;
extern const wf_storage wf_storage_cuda;

#endif
