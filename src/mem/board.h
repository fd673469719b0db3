/* SPDX-License-Identifier: Apache-2.0 */
/* The board: what all ranks of a node share. Each rank of the job has an entry,
 * by its number there, with its state, its current operation, and its bell: the
 * futex word on which it sleeps.
 *
 * A rank writes its own entry only, except that any rank may ring a bell and
 * may set the state of a rank that died to DEAD. A process that dies leaves its
 * entry in state HERE; whoever detects the death sets it to DEAD. Entries of
 * ranks of other nodes have a state only, written by whoever hears of a change
 * (comm/control.h); nobody sleeps on their bells, so ringing them does nothing.
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
#include <stdint.h>

#include "base/export.h"

#define WF_BOARD_MAGIC 0x54464557u /* "WEFT" */
#define WF_BOARD_VERSION 3u
#define WF_BOARD_STAND_IN 0x10000

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
    /* Its current operation: written on every call, read by weft_dump. */
    alignas(64) _Atomic uint64_t act; /* communicator and call, by src/comm */
    _Atomic uint64_t sequence;        /* number there, or tag of a message */
    _Atomic uint64_t count;           /* elements */
    _Atomic uint32_t root;            /* or the other rank of a message */
    _Atomic uint64_t waiting;         /* 1 while it waits in that operation */
    _Atomic uint64_t since_ns;        /* when it began to wait for long */
} wf_board_rank;
_Static_assert(sizeof(wf_board_rank) == 192, "layout");

typedef struct wf_board {
    uint32_t magic;
    uint32_t version;
    uint32_t ranks;
    _Atomic uint32_t unfenced; /* 1: somebody here has no membarrier */
    /* Counts up whenever a rank dies or leaves, or gives something up that it
     * shares with others; waits look at it. */
    alignas(64) _Atomic uint32_t alarm;
    _Atomic uint32_t gone; /* ranks that are not HERE any more */
    alignas(64) wf_board_rank rank[];
} wf_board;
_Static_assert(sizeof(wf_board) == 128, "layout");

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
