/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's state of a region, and the control segment of the ranks of a node.
 *
 * The data lie in storage (storage.h), one range of addresses from `base` on,
 * laid out as partition.h says. Beside it all ranks of a node share a small
 * control segment: counts of barriers, signals, and slots in which they
 * exchange arguments. Ranks sleep on their bells of the board (mem/board.h),
 * which the region keeps alive by holding a reference to the world.
 *
 *   create.c     the steps of creation
 *   check.c      arguments: are they sound, are they the same on all ranks
 *   back.c       allocates, mails and maps memory: for creation and for growth
 *   control.c    the control segment: barrier and comparison
 *   wait.c       sleeping until a word in it changes
 *   storage_host.c  host memory, in memfds
 *   view.c       queries, parts, read-only mappings, holders
 *   resize.c     growing and shrinking in place
 *   signal.c     signal and wait
 *   stats.c      counters
 *   show.c       what others see of it on the board
 *   find.c       which region is at this address
 *
 *   rows/        gather, scatter and optimizer steps, on memory that is mapped
 *   file/        save and load
 *   remote/      the same rows of parts that other nodes hold, by messages
 *   cuda/        storage in device memory, and the kernels' library
 *
 * The part of a rank that dies stays mapped in the others. Its words in the
 * control segment stay as they were; whoever waits for one of them finds on the
 * board that the rank is dead. */
#ifndef WF_REGION_REGION_H
#define WF_REGION_REGION_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <weft/region.h>

#include "comm/comm.h"
#include "comm/wait.h"
#include "region/partition.h"
#include "region/storage.h"

#define WF_REGION_MAGIC 0x47524557u
#define WF_REGION_VERSION 1u
#define WF_REGION_SLOT 448

/* A rank's words in the control segment. It alone writes them, except that any
 * rank adds to its signals. */
typedef struct wf_region_rank {
    /* Barriers it has entered; internal ones are those of resize. */
    alignas(64) _Atomic uint64_t arrived;
    _Atomic uint64_t arrived_inside;
    _Atomic uint32_t gone; /* it has released the region */
    alignas(64) _Atomic uint64_t signal[WEFT_REGION_SIGNALS];
    /* Its contribution to a comparison, double-buffered: one slot is read while
     * the other is written. Published by `arrived_inside`. */
    alignas(64) unsigned char slot[2][WF_REGION_SLOT];
} wf_region_rank;
_Static_assert(sizeof(wf_region_rank) == 192 + 2 * WF_REGION_SLOT, "layout");

typedef struct wf_region_control {
    uint32_t magic;
    uint32_t version;
    uint32_t ranks;
    /* 1: a comparison was not finished by all, so that the ranks' counts may
     * differ, and no further one is possible. */
    _Atomic uint32_t stuck;
    uint64_t id;
    alignas(64) wf_region_rank rank[]; /* by rank of the region */
} wf_region_control;

/* State that another file attaches to a region, such as a registration with the
 * CUDA driver. The callbacks run on the calling thread, after a resize and
 * before the region is unmapped. */
typedef struct wf_region_extra wf_region_extra;
struct wf_region_extra {
    const void *kind; /* a unique address */
    void (*resized)(wf_region_extra *extra, weft_region *region); /* or NULL */
    void (*closing)(wf_region_extra *extra, weft_region *region); /* or NULL */
    wf_region_extra *next;
};

/* Rows on other nodes, for a region that has such; set by remote/remote.c. */
struct wf_region_remote;

struct weft_region {
    _Atomic uint32_t holders;
    uint64_t id; /* the same on all ranks; no two of a job are equal */

    /* Its ranks. */
    weft_world *world; /* held; may have been left, see wf_region_here */
    weft_comm *comm;   /* a duplicate of the caller's if there are several
                          nodes; NULL: the control segment does */
    uint32_t rank;
    uint32_t ranks;
    uint32_t *member;      /* rank here -> rank in the job */
    uint32_t *node;        /* rank here -> node */
    uint32_t *domain;      /* rank here -> who maps whose part */
    wf_cgroup_ids *groups; /* rank here -> control groups that limit it */
    wf_board_rank **entry; /* rank here -> entry on the board */
    wf_board_rank *own;
    bool one_node;
    bool mapped;                 /* the parts of all ranks are mapped here */
    _Atomic uint64_t timeout_ns; /* of resize, and where a call gives none */
    uint32_t mails; /* exchanges of descriptors so far; all count alike */

    /* What it is. */
    uint32_t dims;
    uint64_t shape[WEFT_REGION_DIMS_MAX]; /* [0] is as created, see part.rows */
    weft_dtype type;
    uint64_t row_bytes;
    uint64_t max_rows;
    weft_place place;
    weft_reach reach; /* never AUTO */
    bool read_only;   /* its storage cannot be written */

    /* Where it is. Row i: base + wf_partition_offset(&part, i); it is mapped
     * here if wf_region_maps(region, owner). Flat and mapped regions: base + i
     * * part.pitch. */
    wf_partition part;
    char *base;
    uint64_t reserve; /* bytes of addresses from base on */
    const wf_storage *storage;
    wf_storage_spec spec;
    char what[96]; /* spec.what */
    void *store;   /* the storage's state */
    bool made;     /* creation is over: whole storage has its object */

    wf_segment control_segment;
    wf_region_control *control;
    uint64_t *wanted;  /* rows that each rank asks for in a resize */
    uint64_t barriers; /* that this rank has finished */
    uint64_t barriers_inside;

    pthread_mutex_t barrier_lock; /* one thread at a time */
    pthread_mutex_t lock;         /* the two lists */
    struct wf_region_view *views;
    wf_region_extra *extras;
    struct wf_region_remote *remote;

    /* Its place on the board's shelf, or NULL; and where it counts: there, or
     * in memory of its own. */
    wf_shown_region *shown;
    wf_region_counts *count;
    wf_region_counts own_count;
};

/* --- for row operations, files, devices ---------------------------------- */

/* Is the part of `owner` mapped here? */
static inline bool wf_region_maps(const weft_region *region, uint32_t owner)
{
    return region->domain[owner] == region->domain[region->rank];
}

/* Are the rows of all ranks mapped here? */
static inline bool wf_region_maps_all(const weft_region *region)
{
    return region->mapped;
}

/* The arguments of a creation. Pointers are the caller's. */
typedef struct wf_region_plan {
    uint32_t dims;
    const uint64_t *shape;
    weft_dtype type;
    weft_region_options options; /* `size` does not matter */
    const wf_storage *storage;   /* NULL: the one of options.place */
    void *storage_arg;
    bool read_only;
    bool inside; /* it is a part of something else: nobody else sees it */
} wf_region_plan;

/* Create a region, for weft_region_create and weft_region_open. Collective. If
 * `bad` is an error that the caller found before (with its detail), creation
 * fails on all ranks with the rank and the reason. */
weft_status wf_region_form(weft_comm *comm, const wf_region_plan *plan,
                           weft_status bad, weft_region **out);

/* Attach state to the region; false if it has some of that kind already. Look
 * it up; NULL if there is none. It stays its maker's memory until `closing`. */
bool wf_region_keep(weft_region *region, wf_region_extra *extra);
wf_region_extra *wf_region_kept(weft_region *region, const void *kind);

/* WEFT_ERR_CLOSED after weft_world_destroy and in forked children, which cannot
 * communicate with the other ranks. */
weft_status wf_region_here(const weft_region *region);

/* --- among the files of this folder -------------------------------------- */

/* An allgather over the ranks of the region: `in` has n bytes (up to
 * WF_REGION_SLOT), `out` n bytes of each rank. It goes through `comm`, or
 * through the control segment if that is NULL. */
weft_status wf_region_tell(weft_region *region, weft_comm *comm, const void *in,
                           size_t n, void *out, uint64_t deadline_ns);

/* WEFT_OK if `own` is WEFT_OK on all ranks; else all get the failure of the
 * first rank that has one, which its text names. */
weft_status wf_region_verdict(weft_region *region, weft_comm *comm,
                              weft_status own, uint64_t deadline_ns);

/* A key for mail between the ranks of the region, the same on all. */
uint64_t wf_region_mail_key(weft_region *region);
/* Mail between ranks of the region, as between those of a communicator (see
 * comm/mail.h): a failure ends the collective call on all of them. `comm` is as
 * in wf_region_tell. */
weft_status wf_region_post(weft_region *region, weft_comm *comm, uint32_t to,
                           uint64_t key, const void *data, size_t n, int fd);
weft_status wf_region_take(weft_region *region, weft_comm *comm, uint32_t from,
                           uint64_t key, void *data, size_t *n, int *fd,
                           uint64_t deadline_ns);

/* Control segment: made by the first rank of a node, mailed to the others. */
weft_status wf_control_open(weft_region *region, weft_comm *comm,
                            uint64_t deadline_ns);
void wf_control_close(weft_region *region);

/* Words in the control segment that are waited for. */
typedef struct wf_region_wait {
    weft_region *region;
    bool (*done)(const struct wf_region_wait *w);
    /* Does `rank` still have to do something for it? Its end is an error. */
    bool (*needs)(const struct wf_region_wait *w, uint32_t rank);
    const char *what; /* "a barrier of a region" */
    uint64_t value;
    uint32_t slot;
    /* NULL, or: can it still end? WEFT_OK, or why not. */
    weft_status (*check)(struct wf_region_wait *w);
} wf_region_wait;
/* Wait until `done` says so; PEER, TIMEOUT, CLOSED, ABORTED. */
weft_status wf_region_await(wf_region_wait *w, uint64_t deadline_ns);
/* WEFT_ERR_PEER if one that is needed is gone. */
weft_status wf_region_check_peers(wf_region_wait *w);
/* What the ranks of the region take part in, as a goal of comm/wait.h. */
wf_goal wf_region_goal(weft_region *region, const wf_goal_kind *kind, void *ctx,
                       const char *what, const _Atomic uint64_t *timeout_ns);

/* The deadline of a timeout that begins now, see wf_timeout_ns. */
uint64_t wf_region_deadline(double seconds, uint64_t fallback_ns);

/* Arguments that must be equal on all ranks, as they are exchanged. */
enum { WF_REGION_FACTS = 22 };
typedef struct wf_region_facts {
    uint64_t value[WF_REGION_FACTS];
    uint64_t granule; /* that this rank's storage could have; not compared */
    wf_cgroup_ids groups; /* control groups that limit it; not compared */
    uint64_t number;      /* of the regions that it made; not compared */
} wf_region_facts;

/* Check a plan and fill in shape, pitch and options. WEFT_ERR_INVALID or
 * WEFT_ERR_NOMEM names the argument. */
weft_status wf_region_check(const wf_region_plan *plan, weft_region *region);
void wf_region_facts_of(const wf_region_plan *plan, const weft_region *region,
                        wf_region_facts *out);
/* WEFT_ERR_MISMATCH names the rank that differs, and the argument. */
weft_status wf_region_compare(const wf_region_facts *all, uint32_t ranks);

/* Is there memory for what `more` has over `now`? */
weft_status wf_region_room(const weft_region *region, const wf_partition *now,
                           const wf_partition *more);

/* Memory for `part`, on all ranks or on none; on none if `own` is a failure.
 * Objects are made for the stretch number `from` if there is one, and memory is
 * committed in stretches from number `commit` on. The region's own partition is
 * not looked at. After a failure the caller undoes what was done. */
weft_status wf_region_back(weft_region *region, weft_comm *comm,
                           weft_status own, const wf_partition *part,
                           uint32_t from, uint32_t commit,
                           uint64_t deadline_ns);
/* Undo it: release what this rank made for stretch number `from` of `part`. */
void wf_region_unback(weft_region *region, const wf_partition *part,
                      uint32_t from);

/* The process's table of addresses, for weft_region_find: add a range (a
 * region's, or a view's), take it out again. */
weft_status wf_find_add(weft_region *region, const void *at, uint64_t bytes);
void wf_find_remove(const weft_region *region, const void *at);
/* Drop a reference; true if it was the last: the table forgets the region. */
bool wf_find_release(weft_region *region);

/* Show it on the board, or its new number of rows; and not any more, as those
 * of which only weft itself knows. */
void wf_region_show(weft_region *region);
void wf_region_hide(weft_region *region);

/* Unmap all views. */
void wf_views_close(weft_region *region);

/* Free it, also if it is partially made. Takes NULL. */
void wf_region_free(weft_region *region);

#endif
