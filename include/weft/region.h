/* SPDX-License-Identifier: Apache-2.0 */
/* Regions: one tensor over all ranks, a part of its rows on each.
 *
 * Every rank of a host maps all parts of that host into one flat range, so row
 * `i` lies at weft_region_base + i * pitch (round-robin regions apart) and any
 * rank reads and writes it as its own memory. Ranks of other nodes reach rows
 * through the calls of <weft/rows.h>.
 *
 * Rows that no rank has written are zero. What one rank writes the others see
 * as threads of one process would: after a barrier, or a signal. A rank that
 * dies leaves its part readable and writable to the others of its host; only
 * rows that are not mapped here need their owner (in the two-hop hierarchy: a
 * rank of its node) alive and with the region.
 *
 * Calls on one region may be made by several threads at once, those that
 * change it (resize, destroy) apart. */
#ifndef WEFT_REGION_H
#define WEFT_REGION_H

#include <weft/comm.h>
#include <weft/types.h>

WEFT_BEGIN_DECLS

#define WEFT_REGION_DIMS_MAX 8

typedef struct weft_region weft_region;

/** Which memory data is in. */
typedef enum weft_place { WEFT_HOST = 0, WEFT_CUDA = 1 } weft_place;

/** Who owns which rows. */
typedef enum weft_partition {
    /** ceil(rows / size) each; the last ranks may have fewer, or none. */
    WEFT_PARTITION_EQUAL = 0,
    /** `part_rows` of each rank, which may be zero. */
    WEFT_PARTITION_GIVEN = 1,
    /** Block-cyclic: runs of `run` rows go to the ranks in turn. */
    WEFT_PARTITION_ROUND_ROBIN = 2
} weft_partition;

/** How rows of other ranks are reached. */
typedef enum weft_reach {
    /** Mapped on one node, by messages between nodes. */
    WEFT_REACH_AUTO = 0,
    /** Mapped, or WEFT_ERR_UNSUPPORTED. */
    WEFT_REACH_MAPPED = 1,
    /** Each rank maps its own part only; others by messages. */
    WEFT_REACH_DISTRIBUTED = 2,
    /** By messages in two hops: to the rank's partner on the other node, which
     * collects from its own node. */
    WEFT_REACH_HIERARCHY = 3
} weft_reach;

typedef enum weft_pages {
    WEFT_PAGES_DEFAULT = 0, /* as WEFT_HUGE says */
    WEFT_PAGES_SMALL = 1,
    WEFT_PAGES_HUGE = 2 /* reserved huge pages, else transparent ones */
} weft_pages;

typedef struct weft_region_options {
    size_t size; /* of this struct */
    weft_place place;
    int32_t device; /* CUDA: the caller's; -1: the current one */
    weft_reach reach;
    weft_partition partition;
    const uint64_t *part_rows; /* GIVEN: one for each rank, sum = rows */
    uint64_t run;              /* ROUND_ROBIN; 0 is 1 */
    uint64_t max_rows;         /* what resize may reach; less than rows: rows */
    uint64_t row_pitch; /* bytes from row to row; 0: no gap between rows */
    weft_pages pages;
    int32_t numa; /* 1 + the node for this rank's part; 0: the caller's */
    /** Begin each part on a page of its own. Then parts may have gaps between
     * them, and the region is flat only where there happen to be none. */
    int32_t aligned;
    /** Seconds to wait for the other ranks; 0: the communicator's timeout. */
    double timeout;
    /** What the elements are to the caller, where weft has no word for it and
     * `type` is only one of the same size: any number that stands for it. */
    uint64_t element;
} weft_region_options;

/**
 * Make a region of `shape[0]` rows, each of `shape[1] * ... ` elements of
 * `type`. 1 to WEFT_REGION_DIMS_MAX dimensions; any may be 0. All zero.
 *
 * Part i begins where part i - 1 ends. A page on such a border belongs to the
 * lower rank; each rank's other pages are on its own NUMA node or GPU, and all
 * are allocated before this returns: there is no bus error later.
 *
 * Collective over `comm`, the only call here that is, save resize. All options
 * but device, numa and timeout must be the same everywhere: WEFT_ERR_MISMATCH
 * names the rank that differs and the argument. Either all ranks get a region
 * or none. WEFT_ERR_NOMEM if host or device cannot hold it. The region keeps
 * what it needs of `comm`; that may be destroyed before it.
 */
WEFT_API weft_status weft_region_create(weft_comm *comm, uint32_t dims,
                                        const uint64_t *shape, weft_dtype type,
                                        const weft_region_options *options,
                                        weft_region **out);

/** Add a reference to this rank's mapping; each ends with weft_region_destroy.
 */
WEFT_API void weft_region_retain(weft_region *region);

/**
 * Release a reference of this rank; with the last one it is unmapped. Not
 * collective, in any order: the memory lasts until no rank has it. Rows that
 * others ask this rank for by messages then fail with WEFT_ERR_CLOSED.
 * Takes NULL.
 *
 * If GPUs can see the region, the last hold waits for all work on them that
 * this process has launched, on any stream, so that no kernel loses memory that
 * it is using; the end of a view and a shrinking resize do the same. No stream
 * of these GPUs may be capturing a graph meanwhile: CUDA ends a capture when
 * somebody waits for its device.
 */
WEFT_API void weft_region_destroy(weft_region *region);

/** The properties of a region. */
typedef struct weft_region_info {
    uint64_t id; /* the same on all its ranks, of no other region of the job */
    uint32_t dims;
    uint64_t shape[WEFT_REGION_DIMS_MAX];
    weft_dtype type;
    uint64_t row_bytes;
    uint64_t row_pitch;
    uint64_t max_rows;
    weft_place place;
    int32_t device;
    weft_reach reach; /* never AUTO: what was chosen */
    weft_partition partition;
    uint64_t run;
    uint32_t rank; /* the caller's, among `ranks` */
    uint32_t ranks;
    uint64_t page;     /* unit in which memory is owned */
    int32_t flat;      /* 1: row i lies at base + i * row_pitch, for all rows */
    int32_t read_only; /* 1: a file that was opened for reading */
} weft_region_info;
WEFT_API void weft_region_describe(const weft_region *region,
                                   weft_region_info *out);

/** Where the flat range begins here; NULL if parts are not mapped. For CUDA it
 * is a device address. */
WEFT_API void *weft_region_base(const weft_region *region);

/** The same for the CUDA device `device`, which sees a host region through the
 * driver: it is registered on first use. NULL with a detail if that fails. */
WEFT_API void *weft_region_base_on(weft_region *region, int32_t device);

/** A range of consecutive rows of one owner. */
typedef struct weft_region_part {
    uint64_t row;  /* the first; round-robin: the first of its storage */
    uint64_t rows; /* of its storage */
    void *at;      /* NULL where they are not mapped here */
} weft_region_part;

/**
 * The rows that `rank` owns: how many ranges (1, of no rows if it has none;
 * more only after a resize), and each of them. Round-robin: a range holds rows
 * of the rank in the order of its storage, range 0 all of them before a resize.
 * WEFT_ERR_INVALID if there is no such range.
 */
WEFT_API uint32_t weft_region_parts(const weft_region *region, uint32_t rank);
WEFT_API weft_status weft_region_part_of(const weft_region *region,
                                         uint32_t rank, uint32_t index,
                                         weft_region_part *out);

/** Owner of a row, and where it is in the owner's storage, counted in rows.
 * WEFT_ERR_INVALID past the end. */
WEFT_API weft_status weft_region_locate(const weft_region *region, uint64_t row,
                                        uint32_t *owner, uint64_t *local);

/**
 * A second mapping of the whole region that the processor (or the GPU) does not
 * let anybody write to; ends with the region or with weft_region_unview. It
 * shows the rows that there are when it is made; a view of more rows after a
 * resize is a new one. WEFT_ERR_UNSUPPORTED where not all parts are mapped.
 */
WEFT_API weft_status weft_region_view_readonly(weft_region *region, void **out);
WEFT_API void weft_region_unview(weft_region *region, void *view);

/**
 * Change the number of rows, up to max_rows, without moving any: the base
 * stays. New rows are zero and divided among the ranks as a region of their own
 * would be, equally where part_rows were given; but rows that an earlier call
 * cut off from among others that stayed come back to the rank that had them.
 * Memory of rows that go is freed, in whole pages.
 *
 * Collective over the ranks of the region; none may be in a call on the rows
 * that go. All get their new rows or none. WEFT_ERR_MISMATCH, WEFT_ERR_INVALID
 * beyond max_rows, WEFT_ERR_NOMEM, WEFT_ERR_PEER, WEFT_ERR_CLOSED; waits for
 * the others as long as the communicator would have. After one that not all
 * ranks came to there is no other: WEFT_ERR_ABORTED.
 */
WEFT_API weft_status weft_region_resize(weft_region *region, uint64_t rows);

/** Wait until all ranks of the region are here, for `timeout` seconds (0: as
 * long as the communicator would have). Through its own memory on one node.
 * WEFT_ERR_TIMEOUT, and then the next call takes the same barrier up again;
 * WEFT_ERR_PEER if one died, left the job or gave the region up;
 * WEFT_ERR_CLOSED after weft_world_destroy and in forked children. */
WEFT_API weft_status weft_region_barrier(weft_region *region, double timeout);

/** Words that ranks signal each other with: slot < WEFT_REGION_SIGNALS of rank
 * `to`. signal adds `by`; wait returns once the caller's own slot is at least
 * `value`. What was written to the region before a signal is seen after the
 * wait. Between ranks of one node; WEFT_ERR_UNSUPPORTED to others. Waiting
 * fails as a barrier does, with WEFT_ERR_PEER if any rank of the region died
 * before the value was reached; signalling, if `to` is gone. */
#define WEFT_REGION_SIGNALS 16
WEFT_API weft_status weft_region_signal(weft_region *region, uint32_t to,
                                        uint32_t slot, uint64_t by);
WEFT_API weft_status weft_region_wait(weft_region *region, uint32_t slot,
                                      uint64_t value, double timeout);
/** Its value now, on any rank of this node. */
WEFT_API weft_status weft_region_signalled(const weft_region *region,
                                           uint32_t rank, uint32_t slot,
                                           uint64_t *out);

/** Counted by this rank since creation. */
typedef struct weft_region_stats {
    uint64_t bytes;       /* of all parts on this node */
    uint64_t own_bytes;   /* of this rank's part */
    uint64_t huge_bytes;  /* of this rank's mapping in huge pages, now */
    uint64_t gathers;     /* calls */
    uint64_t scatters;    /* calls, adding ones included */
    uint64_t rows_own;    /* rows moved, by where they are */
    uint64_t rows_node;   /* other ranks' on this node */
    uint64_t rows_remote; /* by messages */
    uint64_t bytes_remote;
} weft_region_stats;
WEFT_API void weft_region_count(const weft_region *region,
                                weft_region_stats *out);

/**
 * A new descriptor of the memory of a host region, which the caller closes. The
 * flat range is its bytes from `offset` on, `bytes` of them; another process
 * that gets it (by SCM_RIGHTS) maps them, and is no rank for that.
 * WEFT_ERR_UNSUPPORTED for memory of a GPU and for rows on several nodes.
 */
WEFT_API weft_status weft_region_descriptor(weft_region *region, int *fd,
                                            uint64_t *offset, uint64_t *bytes);

/** The region of this process in whose flat range, or a read-only view of it,
 * `address` lies, retained; NULL if there is none. By its id: the same. Both
 * may be called by any thread at any time. */
WEFT_API weft_region *weft_region_find(const void *address);
WEFT_API weft_region *weft_region_find_id(uint64_t id);

WEFT_END_DECLS

#endif
