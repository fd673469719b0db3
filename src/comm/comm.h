/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: what a member keeps, and what the members share.
 *
 * Members that may map each other's memory have a segment: a page in which the
 * communicator is broken for all at once, counts of what each has finished, and
 * behind them whatever the layers above asked for (layer.h). A communicator
 * over several nodes has such a segment on each node where it has two members
 * and more; nothing is broken there, but by mail. */
#ifndef WF_COMM_COMM_H
#define WF_COMM_COMM_H

#include <stdatomic.h>
#include <weft/comm.h>
#include <weft/request.h>

#include "base/status.h"
#include "comm/drive.h"
#include "comm/node_tree.h"
#include "comm/op.h"
#include "comm/world.h"
#include "mem/segment.h"

#define WF_COMM_MAGIC 0x43464557u
#define WF_COMM_VERSION 2u
#define WF_COMM_PAGE 4096

/* The first page of the segment. Whoever breaks the communicator first writes
 * why into its own wf_comm_done, and then says in `broken` where it is: so one
 * who dies or sleeps half way through has broken nothing. */
typedef struct wf_comm_shared {
    uint32_t magic;
    uint32_t version;
    uint32_t members;
    uint32_t zero;
    uint64_t bytes;                      /* of the whole segment */
    alignas(64) _Atomic uint32_t broken; /* 0: no; else by member number - 1 */
} wf_comm_shared;
_Static_assert(sizeof(wf_comm_shared) <= WF_COMM_PAGE, "one page");

/* One for each member of the node behind that page: the number of collectives
 * it has finished here. A member that died after it finished an operation does
 * not keep the others from finishing it, too. */
typedef struct wf_comm_done {
    alignas(64) _Atomic uint32_t count;
    _Atomic uint32_t closed; /* it takes part in no further ones */
    /* Why it broke the communicator; written once, before `broken`. */
    int32_t status;
    char text[WF_DETAIL_MAX];
} wf_comm_done;

struct weft_comm {
    weft_world *world;
    _Atomic uint32_t users; /* the caller, and each request that exists */
    uint32_t rank;
    uint32_t size;
    uint32_t *member;      /* rank here -> rank in the job */
    wf_board_rank **entry; /* rank here -> entry on the board */
    wf_board_rank *own;    /* ours */
    uint32_t id;           /* unique among the communicators of a rank; even */
    bool one_node;
    /* Rank here -> number among the members on this rank's node, in their
     * order; or WF_NOT_HERE. */
    uint32_t *local;
    uint32_t mates;    /* members on this rank's node, itself among them */
    wf_node_tree tree; /* along which it makes others */
    _Atomic uint64_t timeout_ns; /* may change while somebody waits */
    uint32_t sequence;           /* number of the next collective operation */
    uint64_t mark;               /* that collective operations carry */
    void *layer[WF_LAYERS];      /* what those above keep here, see layer.h */

    wf_segment segment;
    wf_comm_shared *shared; /* NULL: it is broken by mail */
    wf_comm_done *done;     /* by `local`; NULL: no segment */
    wf_comm_done *own_done; /* ours among them */

    /* Without a segment: a member, by its rank in the job, less 1, that has
     * closed the communicator; 0: none is known. */
    _Atomic uint32_t closed_by;
    /* Which members were last asked for operations that wait for anybody, see
     * op.c, and when; 0: none. */
    _Atomic uint32_t ask_turn;
    _Atomic uint64_t ask_turn_ns;

    /* Set once, under `lock`: this rank knows that it is broken. */
    _Atomic bool failed;
    pthread_mutex_t lock;
    weft_status status;
    char text[WF_DETAIL_MAX];

    /* Non-blocking operations, under world->drive. Ordered ones are stepped
     * one after the other, loose ones (messages) all at once. */
    wf_request_queue ordered;
    wf_request_queue loose;
    _Atomic uint32_t queued; /* ordered ones */
    /* A blocking collective is under way on a caller's stack; ordered ones that
     * a callback starts meanwhile wait for it. */
    _Atomic bool running;
    bool listed;  /* its id is taken, see ids.h */
    bool is_open; /* messages for it are kept */
    weft_comm *next_open;
    bool busy; /* on the list below */
    weft_comm *next_busy;

    /* Receives that are posted on no port, under world->drive; see receive.h.
     */
    struct wf_receive *receive_queue;
    uint64_t queue_news; /* world->news when it was last served */
    uint32_t turn;       /* the port that is looked at first */

    weft_comm *next; /* of world->comms */
};

/* May a new operation start? WEFT_OK, or why not. The first part is all that
 * the fast path needs. */
weft_status wf_comm_refuse(weft_comm *comm);
static inline weft_status wf_comm_check(weft_comm *comm)
{
    bool bad = atomic_load_explicit(&comm->failed, memory_order_relaxed) ||
               atomic_load_explicit(&comm->world->host->orphan,
                                    memory_order_relaxed) ||
               (comm->shared != NULL &&
                atomic_load_explicit(&comm->shared->broken,
                                     memory_order_relaxed) != 0);

    return __builtin_expect(bad, 0) ? wf_comm_refuse(comm) : WEFT_OK;
}

/* Is there such a member? WEFT_ERR_INVALID if not. */
static inline weft_status wf_comm_check_rank(const weft_comm *comm,
                                             uint32_t rank)
{
    return rank < comm->size
               ? WEFT_OK
               : wf_fail(WEFT_ERR_INVALID, "rank %u is out of range (size %u)",
                         rank, comm->size);
}

/* Break it here and on all other members. Returns the first reason. */
weft_status wf_comm_break(weft_comm *comm, weft_status status,
                          const char *text);

/* Break it because this rank's wait failed, for this reason, which is the
 * detail; WEFT_ERR_ABORTED means that the caller was interrupted. */
weft_status wf_comm_give_up(weft_comm *comm, weft_status why);

/* Show on the board what this rank does: call number `sequence` here. */
static inline void wf_comm_show_call(weft_comm *comm, const wf_call *call,
                                     uint32_t sequence)
{
    wf_board_rank *own = comm->own;

    atomic_store_explicit(&own->act,
                          wf_call_packed(call) | (uint64_t)comm->id << 32,
                          memory_order_relaxed);
    atomic_store_explicit(&own->sequence, sequence, memory_order_relaxed);
    atomic_store_explicit(&own->count, call->count, memory_order_relaxed);
    atomic_store_explicit(&own->root, call->root, memory_order_relaxed);
}

static inline void wf_comm_show(weft_comm *comm, const wf_op *op)
{
    wf_comm_show_call(comm, &op->call, op->sequence);
}

/* Count an operation in which this rank passes so many bytes. They lie beside
 * what was just shown, so that it takes no further cache line. */
static inline void wf_comm_count(weft_comm *comm, uint64_t bytes)
{
    wf_board_rank *own = comm->own;

    wf_count_alone(&own->operations, 1);
    wf_count_alone(&own->bytes, bytes);
}

/* The operation that a rank shows: "allreduce of 4 f32, sum, number 7 on
 * communicator 2". False, and "nothing yet", if it has called nothing. */
bool wf_comm_shown_text(const wf_board_rank *e, char *text, size_t room);
/* "here", "left", "dead", "joining". */
const char *wf_board_state_name(uint32_t state);

/* It waits in the operation it has shown, or does so no more. */
static inline void wf_comm_show_waiting(weft_comm *comm, bool waiting)
{
    atomic_store_explicit(&comm->own->waiting, waiting, memory_order_relaxed);
}

/* It is over on this rank. */
static inline void wf_comm_end(weft_comm *comm, const wf_op *op)
{
    if (comm->own_done != NULL) {
        /* Tells those who wait after our death that we had our part. */
        atomic_store_explicit(&comm->own_done->count, op->sequence + 1,
                              memory_order_release);
    }
}

/* What a member has finished; NULL if it shares no memory with this one. */
static inline const wf_comm_done *wf_comm_done_of(const weft_comm *comm,
                                                  uint32_t member)
{
    return comm->done != NULL && comm->local[member] != WF_NOT_HERE
               ? &comm->done[comm->local[member]]
               : NULL;
}

/* Wake all other members that sleep. */
static inline void wf_comm_ring(weft_comm *comm)
{
    for (uint32_t r = 0; r < comm->size; r++) {
        if (r != comm->rank) {
            wf_board_ring(comm->entry[r]);
        }
    }
}

/* Make the communicator of `members` (ranks in the job, this rank among them);
 * collective over them. `salt` tells creations apart that could be under way
 * between the same two ranks at once.
 *
 * What fails on one member fails on all, and each gets the reason. `parent`,
 * unless it is NULL, stays good after that; but it is broken if members cannot
 * tell each other any more: one dies, does not answer or is interrupted. */
weft_status wf_comm_build(weft_world *world, weft_comm *parent,
                          const uint32_t *members, uint32_t size, uint64_t salt,
                          uint64_t timeout_ns, weft_comm **out);

/* For wf_comm_build: the memory of one, not yet anything else; and put it among
 * the world's, where others may break it by mail. */
weft_status wf_comm_alloc(weft_world *world, const uint32_t *members,
                          uint32_t size, weft_comm **out);
void wf_comm_free(weft_comm *comm);
void wf_comm_list(weft_comm *comm);
void wf_comm_unlist(weft_comm *comm); /* if it is there */

/* End it, whatever is pending. Its memory stays while requests exist: a thread
 * may be waiting for one. */
void wf_comm_close(weft_comm *comm);
/* End what this rank has under way on it, as closed because of `why`, and
 * break it for the others if there was something: this rank `how`. */
void wf_comm_abandon(weft_comm *comm, const char *how, const char *why);
void wf_comm_acquire(weft_comm *comm);
void wf_comm_release(weft_comm *comm);

#endif
