/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank shows of its memory to those who look from outside (comm/view.h):
 * a shelf on the board (mem/board.h) for each rank of the node, with a few
 * places for regions and for stores, and one for its arena.
 *
 * The counters themselves lie there, so that showing them costs nothing: a
 * region or a store that got a place counts in it, one that got none counts in
 * memory of its own and is not shown.
 *
 * A place is taken by exchanging `taken`, filled, and then shown by storing its
 * id, which is not 0. Only the rank whose shelf it is writes there. A process
 * that dies leaves its places as they were: they are those of a dead rank. */
#ifndef WF_MEM_SHELF_H
#define WF_MEM_SHELF_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#define WF_SHELF_REGIONS 16u
#define WF_SHELF_STORES 4u
#define WF_SHELF_DIMS 8u
#define WF_SHELF_WORKERS 8u
#define WF_SHELF_HOT 16u

/* Counters of weft_region_stats, bumped by the row operations. */
typedef struct wf_region_counts {
    _Atomic uint64_t gathers;
    _Atomic uint64_t scatters;
    _Atomic uint64_t rows_own;
    _Atomic uint64_t rows_node;
    _Atomic uint64_t rows_remote;
    _Atomic uint64_t bytes_remote;
} wf_region_counts;

typedef struct wf_shown_region {
    alignas(64) _Atomic uint32_t taken;
    uint32_t ranks;
    _Atomic uint64_t id; /* 0: there is nothing to see */
    uint32_t dims;
    uint32_t type;  /* weft_dtype */
    uint32_t place; /* weft_place */
    uint32_t reach; /* weft_reach */
    /* [0] changes with resize. */
    _Atomic uint64_t shape[WF_SHELF_DIMS];
    _Atomic uint64_t bytes;     /* of all ranks together */
    _Atomic uint64_t own_bytes; /* of this rank's part */
    alignas(64) wf_region_counts count;
} wf_shown_region;
_Static_assert(sizeof(wf_shown_region) == 192, "layout");

/* What a rank counts, see weft_store_stats; its workers count their keys. */
typedef struct wf_store_counts {
    _Atomic uint64_t away_pulls; /* of the keys, not local */
    _Atomic uint64_t away_pushes;
    _Atomic uint64_t copy_pulls;
    _Atomic uint64_t copy_pushes;
    _Atomic uint64_t messages; /* to other hosts */
    _Atomic uint64_t bytes;
    /* By the server of a host. */
    _Atomic uint64_t happened[8]; /* by wf_happened */
    _Atomic uint64_t rounds;
    _Atomic uint64_t stale_ns;
} wf_store_counts;

/* Keys that a worker has pulled and pushed. It is used by one thread at a time,
 * so that counting takes no locked instruction, which would keep a processor
 * from reading the rows of later calls ahead. */
typedef struct wf_worker_counts {
    _Atomic uint64_t pulls;
    _Atomic uint64_t pushes;
} wf_worker_counts;

typedef struct wf_shown_worker {
    alignas(64) wf_worker_counts count;
    _Atomic uint32_t taken;
} wf_shown_worker;

/* A key that was met often among those that were sampled. */
typedef struct wf_hot_key {
    _Atomic int64_t key;
    _Atomic uint64_t count; /* 0: no key */
} wf_hot_key;

/* Which keys are met most: 1 in WF_HOT_EVERY keys of each worker, counted as
 * "space saving" does: a key that has no counter takes over the least one, and
 * goes on from there. All are halved now and then, so that what was hot long
 * ago is forgotten. */
#define WF_HOT_EVERY 64u
typedef struct wf_hot_keys {
    _Atomic uint64_t samples; /* halved together with the counters */
    wf_hot_key key[WF_SHELF_HOT];
} wf_hot_keys;

/* Count by the only thread that counts there. */
static inline void wf_count_alone(_Atomic uint64_t *counter, uint64_t by)
{
    uint64_t n = atomic_load_explicit(counter, memory_order_relaxed);

    atomic_store_explicit(counter, n + by, memory_order_relaxed);
}

/* Meet a key; by one thread at a time. */
void wf_hot_meet(wf_hot_keys *hot, int64_t key);

typedef struct wf_shown_store {
    alignas(64) _Atomic uint32_t taken;
    uint32_t type;       /* weft_dtype */
    _Atomic uint64_t id; /* 0: there is nothing to see */
    _Atomic uint64_t keys;
    uint64_t length; /* 0: they differ */
    uint32_t hosts;
    uint32_t host;
    _Atomic uint64_t owned; /* keys that this host owns */
    _Atomic uint64_t copies;
    /* What workers had counted that ended, less what all had counted when
     * counting began anew; it may wrap. */
    alignas(64) _Atomic uint64_t ended_pulls;
    _Atomic uint64_t ended_pushes;
    _Atomic uint32_t unseen; /* workers that count elsewhere */
    alignas(64) wf_store_counts count;
    wf_shown_worker worker[WF_SHELF_WORKERS];
    alignas(64) wf_hot_keys hot;
} wf_shown_store;
_Static_assert(sizeof(wf_shown_store) == 256 + 64 * WF_SHELF_WORKERS + 320,
               "layout");

/* The arena of the rank, in bytes; all 0: it has none. */
typedef struct wf_shown_arena {
    alignas(64) _Atomic uint64_t room;
    _Atomic uint64_t in_use;
    _Atomic uint64_t kept; /* free, with memory */
    _Atomic uint64_t blocks;
    /* What the rank is about to allocate (rule A5 in mem/arena.h), and when, on
     * the monotonic clock, that is void. */
    _Atomic uint64_t promised;
    _Atomic uint64_t promised_until;
} wf_shown_arena;
_Static_assert(sizeof(wf_shown_arena) == 64, "layout");

typedef struct wf_shelf {
    wf_shown_arena arena;
    wf_shown_region region[WF_SHELF_REGIONS];
    wf_shown_store store[WF_SHELF_STORES];
} wf_shelf;

/* A place that is free and zero, or NULL. `shelf` may be NULL. */
wf_shown_region *wf_shelf_take_region(wf_shelf *shelf);
wf_shown_store *wf_shelf_take_store(wf_shelf *shelf);
wf_shown_worker *wf_shelf_take_worker(wf_shown_store *store);
/* Give it back; these take NULL. */
void wf_shelf_give_region(wf_shown_region *region);
void wf_shelf_give_store(wf_shown_store *store);
void wf_shelf_give_worker(wf_shown_worker *worker);

/* All stores of a shelf together. */
typedef struct wf_shelf_sum {
    uint64_t keys; /* that were pulled and pushed */
    uint64_t keys_away;
    uint64_t copies;
    uint64_t stale_ns; /* the most of any */
} wf_shelf_sum;
wf_shelf_sum wf_shelf_add_up(const wf_shelf *shelf);
/* What all workers of a store have pulled and pushed since counting began. */
wf_worker_counts wf_shelf_keys(const wf_shown_store *store);

/* Show what was filled in. */
static inline void wf_shelf_show(_Atomic uint64_t *id, uint64_t value)
{
    /* Publishes the place; pairs with the acquire in comm/view.c. */
    atomic_store_explicit(id, value, memory_order_release);
}

#endif
