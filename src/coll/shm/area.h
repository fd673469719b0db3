/* SPDX-License-Identifier: Apache-2.0 */
/* What the members of a communicator share for collectives.
 *
 *   block of rank 0 | block of rank 1 | ...
 *
 *   block: in, red, out   counters of chunks, each on lines of its own
 *          cma            who may read whose memory
 *          cell 0 .. 3    a call and up to `payload` bytes of data
 *          address        of this member's blocks, for those who may read them
 *          slot 0 .. 1    a chunk of large data
 *
 * Rules, cited by the code:
 *
 *  C1  Every collective starts by each member putting its call, with small data
 *      behind it, into its cell number (sequence mod 4), and by comparing it
 *      with everybody else's. So no member gets past an operation before all
 *      have come to it, and a mismatch is found on every member. Where a root
 *      sends, its call alone says what there is to take: a member may take it
 *      before it has seen the calls of others, and is over after it has.
 *  C2  A member writes a cell again only when all members have finished the
 *      operation that used it last. It knows from `finished`, which each call
 *      carries, or else from the counts that comm keeps.
 *  C3  Counters only grow, over the life of the communicator; each member's
 *      are equal at the end of every operation, whatever it used. A member's
 *      are written by itself alone, save `red` of the taker in joint.c.
 *  C4  Slot (chunk mod 2) of a member is written by that member when it brings
 *      a chunk; then, in a reduction, by each other member in that one's share.
 *      An operation in which others only take out of slots may be over on
 *      their owner before that (lend.c): it has lent them, and brings nothing
 *      into a slot before those who take have counted, in `out`, what was in
 *      it. Any other operation is over on a member when nobody needs its slots
 *      any more. Nobody else writes into a slot before all members have come to
 *      that operation and finished those before (reductions post no call
 *      early), and then nothing of an earlier one is lent.
 *      Data that lies in an arena needs no slot, and its owner is not over, nor
 *      may it write there, before all have read it; the counters are the same.
 *  C5  A member that has invited others to read its memory is not over before
 *      all have read it, or have taken from its slots what they could not read
 *      (pull.c).
 *
 * A line that moves between two caches moves cheaply only if the reader has
 * written it, too (docs/design/0004-shared-memory.md): hence C4, where results
 * come back in the very lines that brought the data, and hence shm_claim.
 *
 * A member that dies leaves counters that stand still; what it had published
 * is whole. Nobody has to clean up: the memory goes with the last member. */
#ifndef WF_COLL_SHM_AREA_H
#define WF_COLL_SHM_AREA_H

#include "base/time.h"
#include "coll/engine.h"
#include "coll/kernel/table.h"
#include "mem/arena.h"

#define SHM_CELLS 4u
#define SHM_SLOTS 2u
#define SHM_ALL UINT32_MAX /* all other members */

typedef struct shm_counter {
    alignas(128) _Atomic uint64_t value;
} shm_counter;

typedef struct shm_cell {
    alignas(64) _Atomic uint32_t sequence; /* its number + 1; publishes it */
    uint32_t finished; /* operations its writer had finished when it wrote */
    wf_call call;
    unsigned char payload[];
} shm_cell;
_Static_assert(offsetof(shm_cell, payload) == 32, "half a line for data");

/* For reading each other's memory (pull.c). The first two hold the first chunk
 * of an operation, plus 1, and only grow. */
typedef struct shm_cma {
    alignas(128) _Atomic uint64_t invited; /* by us, to read ours */
    _Atomic uint64_t refused; /* by us, to read; UINT64_MAX: all from now on */
    uint64_t proof_at;        /* the address of a random number of ours, */
    uint64_t proof;           /* and its value */
} shm_cma;

typedef struct shm_head {
    shm_counter in;
    shm_counter red;
    shm_counter out;
    shm_cma cma;
} shm_head;

/* A part of some data, in bytes from its start. */
typedef struct shm_share {
    size_t from;
    size_t until;
} shm_share;

/* Where a member's buffers lie, if that is in its arena: offsets, plus 1, in
 * its range; 0 means elsewhere. Goes with a call whose data does not. */
typedef struct shm_where {
    uint64_t src;
    uint64_t dst;
} shm_where;
_Static_assert(sizeof(shm_where) == 16, "goes with a call");

/* State of an operation. */
typedef struct shm_progress {
    bool posted;       /* our call is in its cell */
    bool checked;      /* everybody's call is the same as ours */
    bool agreed;       /* a root sends, and its call is the same as ours */
    uint32_t at;       /* members before this one have been checked */
    uint32_t finished; /* operations that all of those had finished */
    uint32_t in_at;    /* members before it have brought the chunk we need */
    uint32_t red_at;   /* members before it have reduced the chunk `out` */
    uint64_t base;     /* chunks that went through before this operation */
    uint64_t chunks;
    uint64_t in;     /* chunks that we have put into our slot */
    uint64_t red;    /* chunks of which we have reduced our share, or copied */
    uint64_t out;    /* chunks that we have taken out */
    uint64_t freed;  /* of `in`, those that all others have taken */
    size_t chunk;    /* bytes, a multiple of the element size and of 64 */
    size_t share_of; /* bytes of the chunk that `share` was worked out for */
    shm_share share; /* our share of such a chunk */
    shm_where where;
    bool direct_src;  /* our source lies in our arena: we bring nothing */
    bool read_direct; /* we have read in memory of others */
    bool first_in;    /* seeing all calls meant seeing all first chunks */
    bool pulls;       /* takers may be invited to read the memory of others */
    bool invites;     /* we have invited them to read ours, nobody refused */
    bool by_slots;    /* a chunk came through a slot, or out of an arena */
    bool stream;      /* the result is too large for the caches */
    /* Bytes of our share that we have folded, or of a block that we have read,
     * where they lie. */
    size_t direct_at;
    size_t own_at; /* bytes of our block for ourselves that are copied */
    /* Of the members that invited us, in the order in which we take, we have
     * read or will read those before this one. */
    uint32_t refused_at;
} shm_progress;

_Static_assert(sizeof(shm_progress) <= WF_COLL_ROOM, "room");

static inline shm_progress *shm_of(const wf_coll_op *op)
{
    return (shm_progress *)(uintptr_t)op->room;
}

/* A slot that a member has lent (C4, lend.c). */
typedef struct shm_lent {
    uint64_t until; /* `out` of those who take, once it is free; 0: it is */
    uint32_t by;    /* an operation */
    uint32_t to;    /* a member, or SHM_ALL */
} shm_lent;

/* What a member keeps for itself. */
typedef struct shm_state {
    unsigned char *area;
    size_t block;        /* bytes of a block */
    size_t cell;         /* bytes of a cell */
    size_t slot;         /* bytes of a slot */
    size_t payload;      /* most bytes of data in a cell */
    size_t flat;         /* the same, where everybody reads everybody's */
    size_t pair_bytes;   /* most bytes of an allreduce by pair.c */
    size_t addresses_at; /* where in a block the addresses begin */
    size_t slots_at;     /* and where the slots do */
    uint32_t free_until; /* cells may be written for operations before this */
    uint64_t chunks;     /* that all operations so far have used, see C3 */
    bool populated;      /* our slots have pages */
    shm_lent lent[SHM_SLOTS];
    const wf_arena *arena; /* of all members, or NULL */
    unsigned char **range; /* by rank: where that one's lies */
    uint64_t proof;        /* a random number that those who read us look for */
    bool *proven;          /* by rank: we have found that one's */
    const wf_kernels *kernels; /* of this CPU */
    const void **src;          /* by rank, for folding */
    void **dst;
} shm_state;

static inline shm_head *shm_head_of(const shm_state *s, uint32_t rank)
{
    return (shm_head *)(void *)(s->area + rank * s->block);
}

static inline shm_cell *shm_cell_of(const shm_state *s, uint32_t rank,
                                    uint32_t sequence)
{
    return (shm_cell *)(void *)(s->area + rank * s->block + sizeof(shm_head) +
                                sequence % SHM_CELLS * s->cell);
}

static inline unsigned char *shm_slot_of(const shm_state *s, uint32_t rank,
                                         uint64_t chunk)
{
    return s->area + rank * s->block + s->slots_at +
           chunk % SHM_SLOTS * s->slot;
}

/* The addresses of the blocks of `rank`, by taker. */
static inline uint64_t *shm_addresses_of(const shm_state *s, uint32_t rank)
{
    return (uint64_t *)(void *)(s->area + rank * s->block + s->addresses_at);
}

/* Bytes of a chunk; the last one may be shorter. */
static inline size_t shm_chunk_bytes(const wf_coll_op *op, uint64_t chunk)
{
    size_t left = op->bytes - chunk * shm_of(op)->chunk;

    return left < shm_of(op)->chunk ? left : shm_of(op)->chunk;
}

/* Looking a few times in a tight loop notices a hand-over of 50 ns in time,
 * where the way around the general wait would not. */
#define SHM_LOOKS 8u

/* Has a counter come this far? Its chunk may be used then. */
static inline bool shm_reached(const shm_counter *c, uint64_t value)
{
    for (unsigned i = 0; i < SHM_LOOKS; i++) {
        if (atomic_load_explicit(&c->value, memory_order_acquire) >= value) {
            return true;
        }
        wf_cpu_relax();
    }
    return false;
}

/* Has the call number `sequence` - 1 come? It may be read then. */
static inline bool shm_has(const shm_cell *cell, uint32_t sequence)
{
    for (unsigned i = 0; i < SHM_LOOKS; i++) {
        if (atomic_load_explicit(&cell->sequence, memory_order_acquire) ==
            sequence) {
            return true;
        }
        wf_cpu_relax();
    }
    return false;
}

/* Show the cell, whose data is in it, with our call to the others; of all
 * operations we had finished those before `finished`. */
static inline void shm_cell_publish(const wf_coll_op *op, shm_cell *cell,
                                    uint32_t finished)
{
    cell->finished = finished;
    cell->call = op->op.call;
    /* Publishes call and data; pairs with the acquire in shm_has. */
    atomic_store_explicit(&cell->sequence, op->op.sequence + 1,
                          memory_order_release);
}

/* All calls are there, and said what each member had finished (C2). */
static inline void shm_learn_finished(shm_state *s, uint32_t finished)
{
    if ((int32_t)(finished + SHM_CELLS - s->free_until) > 0) {
        s->free_until = finished + SHM_CELLS;
    }
}

/* Our cell for the operation, to be filled in, or NULL if it is not free yet
 * (C2); and then, with our call, show it to the others. */
shm_cell *shm_cell_begin(wf_coll_op *op);
void shm_cell_post(wf_coll_op *op, shm_cell *cell);

/* Fill the cell with `bytes` of data and publish it; false if it is in use. */
bool shm_post(wf_coll_op *op, const void *data, size_t bytes);

/* WEFT_OK once everybody's call is there and the same as ours (C1). */
weft_status shm_check(wf_coll_op *op);
/* Does a root send, and is its call there and the same as ours? What it has for
 * us may be taken then. */
bool shm_root_agrees(wf_coll_op *op);

/* Take over the lines of a buffer that we have just read and nobody else
 * reads, so that its owner's next write is cheap. */
void shm_claim(unsigned char *at, size_t bytes);

/* Copy what we alone read out of a slot, and claim it. */
void shm_take(const shm_state *s, unsigned char *to, unsigned char *from,
              size_t bytes, bool stream);

/* Slots that are lent (C4, lend.c). May we bring a chunk, of this number since
 * the communicator was made, into its slot? Into all slots? */
bool shm_slot_free(const wf_coll_op *op, uint64_t chunk);
bool shm_all_slots_free(const wf_coll_op *op);
/* The operation, whose calls are compared, is over here: lend what is in the
 * slots to those who still take it, slot by slot where that pays, or all slots
 * together. */
void shm_lend_chunks(const wf_coll_op *op);
void shm_lend_all(const wf_coll_op *op);
/* Does this member still take what is in a slot that the next chunk needs? */
bool shm_keeps_slot(const wf_coll_op *op, uint32_t member);

/* Is it this member's call, or chunk, that is missing? */
bool shm_awaits(const wf_op *op, uint32_t member);

weft_status shm_quick(wf_coll_op *op);
void shm_begin(wf_coll_op *op);

/* Chunks of `chunk` bytes each for the largest part of an operation: the slots
 * have pages, and the operation its place in the row of all chunks. */
weft_status shm_start_chunks(wf_coll_op *op, size_t chunk, size_t largest);
/* We are through: our counters say so (C3), which gives slots and buffers of
 * others back. */
void shm_end_chunks(const wf_coll_op *op);

/* Bytes of a chunk (of one subslot of it, where there are subslots) of an
 * operation whose largest part has `bytes`: whole lines, so that neither shares
 * nor subslots cut one. All members come to the same number. */
size_t shm_chunk_for(const wf_coll_op *op, size_t bytes);

/* What `rank` reduces: whole lines, so that no line has two writers. */
shm_share shm_share_of(size_t bytes, uint32_t rank, uint32_t size);

/* Fold s->src into s->dst, both by rank: what the operation is to give. */
void shm_fold_ranks(const wf_coll_op *op, const shm_state *s, size_t bytes);

/* Fill in where our buffers lie. */
void shm_locate(wf_coll_op *op);
/* Publish our call and where the buffers lie; false if the cell is in use. */
bool shm_post_where(wf_coll_op *op);
/* Where those of `rank` lie, once all calls are checked or, of a root that
 * sends, once it agrees; as it says now, which is not to be trusted: use it
 * once. */
shm_where shm_where_of(const wf_coll_op *op, uint32_t rank);
/* The place of our block of the source of `from`, likewise; 0: it comes through
 * slots. */
uint64_t shm_place_of(const wf_coll_op *op, uint32_t from);
/* The place of our block for `to`; 0: it does not lie in our arena. */
uint64_t shm_own_place(const wf_coll_op *op, uint32_t to);
/* Do the buffers of all members lie in arenas? All get the same answer. */
bool shm_all_direct(const wf_coll_op *op);
/* Asked after reading and before saying so: a member that failed meanwhile has
 * its buffers back and may have written them, so what was read in an arena is
 * valid only if the communicator is not broken. Members that have not failed
 * wait for us. */
weft_status shm_was_whole(const wf_coll_op *op);
/* The error for a member that says its buffers lie where there is nothing. */
weft_status shm_misplaced(const wf_coll_op *op, uint32_t rank);

/* Operations in which members bring blocks that others take: who does what
 * (exchange.c). */
bool shm_brings(const wf_coll_op *op, uint32_t member);
bool shm_takes(const wf_coll_op *op, uint32_t member);
/* Into how many subslots a slot is cut: where members bring blocks, one for
 * each other member. */
uint32_t shm_subslots(const wf_coll_op *op);
/* Bytes that `from` brings for `to`; one of the two is this member. */
size_t shm_length(const wf_coll_op *op, uint32_t from, uint32_t to);
/* Where they come from, if `from` is this member, and where they go. */
const unsigned char *shm_source(const wf_coll_op *op, uint32_t to);
unsigned char *shm_target(const wf_coll_op *op, uint32_t from);
/* Our block for ourselves, if the operation has one: up to `most` bytes of it
 * from `at` on. */
void shm_copy_own(const wf_coll_op *op, size_t at, size_t most);
/* Does `member` bring its blocks by chunks instead of with its call? */
bool shm_by_chunks(const wf_coll_op *op, uint32_t member);
bool shm_exchange_awaits(const wf_coll_op *op, uint32_t member);
/* What `from` has for us at `place`, which it told (shm_place_of), of its
 * range; NULL if that is not in it. */
unsigned char *shm_arena_block(const wf_coll_op *op, uint32_t from,
                               uint64_t place);

/* A scatter whose blocks fit into the slots of the root, all at once
 * (scatter.c). Blocks of `bytes`: does it, and which chunks are these? */
bool shm_scatter_fits(const wf_coll_op *op, size_t bytes);
weft_status shm_scatter_start(wf_coll_op *op, size_t bytes);
bool shm_scatter_awaits(const wf_coll_op *op, uint32_t member);

/* gatherv, scatterv, alltoallv: members tell each other how much there is.
 * Did this one's data come with its call? Does it lie in its arena, and where,
 * as in shm_place_of? */
bool shm_ragged_inlined(const wf_coll_op *op, uint32_t member);
uint64_t shm_ragged_place(const wf_coll_op *op, uint32_t from);

/* Operations in which the takers read the memory of those who bring (pull.c).
 * May this be one, where `largest` is what one member has for another? All come
 * to the same answer. */
weft_status shm_pull_attach(const weft_comm *comm, shm_state *s);
bool shm_may_pull(const wf_coll_op *op, size_t largest);
/* If it may (progress.pulls, once its chunks are known), invite the others to
 * read ours. */
void shm_pull_begin(wf_coll_op *op, size_t largest);
/* Has `from` invited us? Final once its call and its first chunk, if there is
 * any, have been seen. */
bool shm_invited(const wf_coll_op *op, const shm_state *s, uint32_t from);
/* Has a taker refused to read ours? */
bool shm_pull_refused(const wf_coll_op *op, const shm_state *s);

/* Read the next slice of our block, of `bytes`, out of the memory of `from`;
 * true if that was the last. If we cannot, it is told so and will bring chunks
 * (progress.refused_at). */
bool shm_pull(wf_coll_op *op, shm_state *s, uint32_t from, size_t bytes);

/* A broadcast in which both of two members copy (joint.c): is this one, once
 * all calls are checked? Both get the same answer. */
bool shm_is_joint(const wf_coll_op *op);
bool shm_joint_awaits(const wf_coll_op *op, uint32_t member);

/* The algorithms: what they do early, and steps. */
void shm_flat_early(wf_op *op);
weft_status shm_flat_step(wf_op *op);
void shm_ragged_early(wf_op *op);
weft_status shm_ragged_step(wf_op *op);
weft_status shm_reduce_step(wf_op *op);
weft_status shm_direct_step(wf_op *op);
weft_status shm_exchange_step(wf_op *op);
weft_status shm_scatter_step(wf_op *op);
weft_status shm_joint_step(wf_op *op);

#endif
