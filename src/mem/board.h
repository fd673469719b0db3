/* SPDX-License-Identifier: Apache-2.0 */
/* The board: what all ranks of a node share. Each rank of the job has an entry,
 * by its number there, with its state, its current operation, its counters, and
 * its bell: the futex word on which it sleeps. Behind the entries each rank of
 * the node has a shelf (mem/shelf.h).
 *
 * A rank writes its own entry only, except that any rank may ring a bell and
 * may set the state of a rank that died to DEAD. A process that dies leaves its
 * entry in state HERE; whoever detects the death sets it to DEAD. Entries of
 * ranks of other nodes have a state only, written by whoever hears of a change
 * (comm/control.h); nobody sleeps on their bells, so ringing them does nothing.
 * Their operation and counters are copies, as old as `heard_ns` says, or there
 * are none.
 *
 * Others may look, too: every rank keeps a descriptor of the board that is open
 * for reading, by which processes of the same user find and map it
 * (docs/design/0018-top.md). So what lies here is a format: whoever changes it
 * changes WF_BOARD_VERSION. Magic and version stay where they are.
 *
 * Sleeping without losing a wake-up, and without a fence on the fast path:
 *
 *   sleeper                                 poster
 *   asleep += 1                             store what the sleeper waits for
 *   full barrier in all ranks (membarrier)  (compiler barrier only)
 *   look again at what it waits for         load asleep; if it is not 0:
 *   futex_wait(bell, value read before)         bell += 1, futex_wake
 *
 * Either the poster's store is seen by the second look, or the sleeper's
 * `asleep` is seen by the poster: the barrier in the kernel orders the
 * poster's store and load as a fence between them would. Where the kernel has
 * no such barrier, `unfenced` is set and sleepers wake up by themselves every
 * millisecond.
 *
 * Where ranks outnumber cores, or wait for other hosts, they sleep often, and a
 * fence costs little compared with a context switch or a network: there the
 * poster fences (`fence`), and the sleeper does not need the kernel's barrier,
 * which interrupts all other cores.
 *
 * Active messages have a second bell, for the thread that answers them while
 * its rank computes (comm/serve.h): that thread sleeps nearly always, and must
 * not cost a system call whenever something else is posted. `listening` is more
 * than 0 while it sleeps. A caller that waits for answers itself stands in for
 * the thread and subtracts WF_BOARD_STAND_IN: then, and while nobody listens,
 * active messages ring the first bell. Their posters always fence. */
#ifndef WF_MEM_BOARD_H
#define WF_MEM_BOARD_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/export.h"
#include "mem/shelf.h"

#define WF_BOARD_MAGIC 0x54464557u /* "WEFT" */
#define WF_BOARD_VERSION 6u
#define WF_BOARD_STAND_IN 0x10000
/* How the segment is called in /proc/PID/fd. */
#define WF_BOARD_NAME "the weft board"
#define WF_BOARD_NO_SHELF UINT32_MAX
#define WF_BOARD_RANKS_MAX (1u << 20)

enum wf_board_state {
    WF_BOARD_EMPTY = 0,
    WF_BOARD_HERE = 1,
    WF_BOARD_LEFT = 2, /* it called weft_world_destroy */
    WF_BOARD_DEAD = 3  /* it died, or exited without weft_world_destroy */
};

typedef struct wf_board_rank {
    alignas(64) _Atomic uint32_t bell;
    _Atomic uint32_t asleep; /* threads of this rank that sleep on the bell */
    uint32_t fence; /* 1: posters fence, this rank needs no barrier to sleep */
    alignas(64) _Atomic uint32_t state;
    uint32_t rank; /* in the job */
    int32_t pid;
    _Atomic uint32_t second_bell;
    _Atomic int32_t listening;
    uint32_t node;
    uint32_t shelf; /* number of its shelf, or WF_BOARD_NO_SHELF */
    /* Its current operation: written on every call, read by weft_dump. */
    alignas(64) _Atomic uint64_t act; /* communicator and call, by src/comm */
    _Atomic uint64_t sequence;        /* number there, or tag of a message */
    _Atomic uint64_t count;           /* elements */
    _Atomic uint32_t root;            /* or the other rank of a message */
    _Atomic uint64_t waiting;         /* 1 while it waits in that operation */
    _Atomic uint64_t since_ns;        /* when it began to wait for long */
    /* Counted by its rank alone, without a locked instruction: of two threads
     * that call at the same instant one may be forgotten. */
    _Atomic uint64_t operations; /* that were begun */
    _Atomic uint64_t bytes;      /* that it passed in them */
    /* Written while it waits. */
    alignas(64) _Atomic uint64_t waited_ns; /* in all */
    _Atomic uint32_t waits_for; /* 1 + a rank that it waits for; 0: none */
    uint32_t zero;
    _Atomic uint64_t heard_ns; /* another node's: when this was known; or 0 */
    /* Another node's: keys of its stores, and those of them that were not
     * local; of its host: copies, and how old one has been. */
    _Atomic uint64_t keys;
    _Atomic uint64_t keys_away;
    _Atomic uint64_t copies;
    _Atomic uint64_t stale_ns;
    /* How long others of this node have waited for it; they add to it. */
    alignas(64) _Atomic uint64_t awaited_ns;
    _Atomic uint64_t awaited_there_ns; /* and those of its own node */
    alignas(64) char host[64];
} wf_board_rank;
_Static_assert(sizeof(wf_board_rank) == 384, "layout");

typedef struct wf_board {
    uint32_t magic;
    uint32_t version;
    uint32_t ranks;
    _Atomic uint32_t unfenced; /* 1: somebody here has no membarrier */
    /* Counts up whenever a rank dies or leaves, or gives something up that it
     * shares with others; waits look at it. */
    alignas(64) _Atomic uint32_t alarm;
    _Atomic uint32_t gone; /* ranks that are not HERE any more */
    /* Of all ranks of a host the boards lie in one segment; more than one where
     * WEFT_NODE pretends that there are several nodes. */
    alignas(64) uint64_t size; /* bytes of a board, with its shelves */
    uint32_t boards;
    uint32_t number; /* of this one among them */
    uint32_t node;
    uint32_t nodes;
    uint32_t shelves;
    uint32_t zero;
    uint64_t job;              /* random, the same on all ranks */
    uint64_t began_ns;         /* since the epoch */
    _Atomic uint64_t wary_ns;  /* wf_vigil_wary_until, of who speaks for it */
    alignas(64) char name[64]; /* what the launcher calls the job, or "" */
    alignas(64) wf_board_rank rank[];
} wf_board;
_Static_assert(sizeof(wf_board) == 256, "layout");

/* Bytes of a board of so many ranks, `shelves` of them of this node. */
static inline uint64_t wf_board_size(uint32_t ranks, uint32_t shelves)
{
    return sizeof(wf_board) + (uint64_t)ranks * sizeof(wf_board_rank) +
           (uint64_t)shelves * sizeof(wf_shelf);
}

/* The shelf of a rank; NULL if it is another node's. Of our own board only:
 * nothing is checked. */
static inline wf_shelf *wf_board_shelf(wf_board *b, uint32_t rank)
{
    wf_shelf *first = (wf_shelf *)(void *)&b->rank[b->ranks];
    uint32_t number = b->rank[rank].shelf;

    return number == WF_BOARD_NO_SHELF ? NULL : &first[number];
}

/* Orders the store of what `r` may wait for before the load of `asleep`. The
 * compiler must not swap them; the sleeper's barrier orders them in the
 * processor, see above. */
static inline void wf_board_fence(const wf_board_rank *r)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(r->fence != 0, 0)) {
        atomic_thread_fence(memory_order_seq_cst);
    }
}

/* Wake a rank if it sleeps; called after storing what it waits for. */
WF_API void wf_board_wake(wf_board_rank *r);
static inline void wf_board_ring(wf_board_rank *r)
{
    wf_board_fence(r);
    if (__builtin_expect(
            atomic_load_explicit(&r->asleep, memory_order_relaxed) != 0, 0)) {
        wf_board_wake(r);
    }
}

/* Announce that the caller is about to sleep; returns the bell's value to pass
 * to wf_board_sleep after a second look. Ends with wf_board_awake. */
uint32_t wf_board_drowse(wf_board *board, wf_board_rank *self);
/* Sleep until the bell rings or `until_ns` (monotonic) passes. */
void wf_board_sleep(wf_board *board, wf_board_rank *self, uint32_t bell,
                    uint64_t until_ns);
void wf_board_awake(wf_board_rank *self);

/* Like wf_board_wake, after posting an active message. */
WF_API void wf_board_wake_listener(wf_board_rank *r);
static inline bool wf_board_listens(const wf_board_rank *r)
{
    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load_explicit(&r->listening, memory_order_relaxed) > 0;
}
static inline void wf_board_ring_listener(wf_board_rank *r)
{
    if (wf_board_listens(r)) {
        wf_board_wake_listener(r);
    } else {
        wf_board_ring(r);
    }
}

/* Wake a rank for whatever it sleeps, on either bell. */
void wf_board_ring_all(wf_board_rank *r);

/* Like drowse, sleep and awake, but for the second bell. */
uint32_t wf_board_listen(wf_board_rank *self);
void wf_board_sleep_listening(wf_board_rank *self, uint32_t bell,
                              uint64_t until_ns);
void wf_board_unlisten(wf_board_rank *self);
/* From wf_board_stand_in to wf_board_step_back the caller polls for active
 * messages itself, and once more after that. */
void wf_board_stand_in(wf_board_rank *self);
void wf_board_step_back(wf_board_rank *self);

/* The rank died or left (`state`): true if that was news. Followed by
 * wf_host_alarm. */
bool wf_board_end(wf_board *board, uint32_t rank, uint32_t state);

/* Register this process for membarrier; false if the kernel has none. */
bool wf_board_register_barrier(void);

#endif
