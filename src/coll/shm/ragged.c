/* SPDX-License-Identifier: Apache-2.0 */
/* gatherv, scatterv and alltoallv, where each member knows only its own
 * lengths: with its call a member announces them and, if the data is small,
 * brings it inline. The rest goes through exchange.c; where all of it lies in
 * the member's arena, the call says where. */
#include <string.h>

#include "base/status.h"
#include "coll/shm/area.h"

/* How the data of a member comes. */
typedef enum ragged_way {
    RAGGED_CHUNKS,
    RAGGED_INLINED,  /* it follows the lengths */
    RAGGED_IN_ARENA, /* its place, for each taker, follows the lengths */
    RAGGED_WAYS
} ragged_way;

/* The announcement in a cell. */
typedef struct ragged_head {
    uint64_t largest; /* bytes of the largest part that is not inlined */
    uint64_t way;     /* ragged_way */
    uint64_t bytes[]; /* for each taker */
} ragged_head;

static ragged_head *head_of(const wf_coll_op *op, uint32_t member)
{
    const shm_state *s = op->state;

    return (ragged_head *)(void *)shm_cell_of(s, member, op->op.sequence)
        ->payload;
}

bool shm_ragged_inlined(const wf_coll_op *op, uint32_t member)
{
    return head_of(op, member)->way == RAGGED_INLINED;
}

/* The number of lengths that a member announces: one for each member, or one
 * where only the root takes. */
static uint32_t lengths(const wf_coll_op *op)
{
    return wf_call_is(op->op.call.kind, WF_SRC_BLOCKS) ? op->op.comm->size : 1;
}

/* The index of `to` among these lengths. */
static uint32_t index_of(const wf_coll_op *op, uint32_t to)
{
    return wf_call_is(op->op.call.kind, WF_SRC_BLOCKS) ? to : 0;
}

static unsigned char *data_of(const wf_coll_op *op, uint32_t member)
{
    return (unsigned char *)&head_of(op, member)->bytes[lengths(op)];
}

static uint64_t *places_of(const wf_coll_op *op, uint32_t member)
{
    return &head_of(op, member)->bytes[lengths(op)];
}

uint64_t shm_ragged_place(const wf_coll_op *op, uint32_t from)
{
    return head_of(op, from)->way == RAGGED_IN_ARENA
               ? places_of(op, from)[index_of(op, op->op.comm->rank)]
               : 0;
}

/* Bytes that we bring for `to`. */
static size_t for_member(const wf_coll_op *op, uint32_t to)
{
    uint32_t rank = op->op.comm->rank;

    return to != rank && shm_brings(op, rank) && shm_takes(op, to)
               ? shm_length(op, rank, to)
               : 0;
}

static void put_data(const wf_coll_op *op)
{
    unsigned char *to = data_of(op, op->op.comm->rank);

    for (uint32_t r = 0; r < op->op.comm->size; r++) {
        size_t bytes = for_member(op, r);

        if (bytes > 0) {
            memcpy(to, shm_source(op, r), bytes);
            to += bytes;
        }
    }
}

/* False if a part does not lie in our arena. */
static bool put_places(const wf_coll_op *op)
{
    uint64_t *place = places_of(op, op->op.comm->rank);
    bool all = true;

    for (uint32_t r = 0; r < op->op.comm->size && all; r++) {
        if (for_member(op, r) > 0) {
            place[index_of(op, r)] = shm_own_place(op, r);
            all = place[index_of(op, r)] != 0;
        }
    }
    return all;
}

/* Put what is announced, and what follows it, into our cell. */
static void fill(wf_coll_op *op)
{
    const shm_state *s = op->state;
    ragged_head *head = head_of(op, op->op.comm->rank);
    size_t left = s->payload - sizeof(*head) - lengths(op) * sizeof(uint64_t);
    size_t largest = 0;
    bool fits = true;

    for (uint32_t r = 0; r < lengths(op); r++) {
        head->bytes[r] = 0;
    }
    for (uint32_t r = 0; r < op->op.comm->size; r++) {
        size_t bytes = for_member(op, r);

        if (bytes > 0) {
            head->bytes[index_of(op, r)] = bytes;
        }
        largest = bytes > largest ? bytes : largest;
        fits = fits && bytes <= left;
        left -= fits ? bytes : 0;
    }
    head->largest = fits ? 0 : largest;
    if (fits) {
        head->way = RAGGED_INLINED;
        put_data(op);
    } else {
        shm_of(op)->direct_src = put_places(op);
        head->way = shm_of(op)->direct_src ? RAGGED_IN_ARENA : RAGGED_CHUNKS;
    }
}

void shm_ragged_early(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    shm_cell *cell = shm_cell_begin(op);

    if (cell != NULL) {
        fill(op);
        shm_cell_post(op, cell);
    }
}

/* An announcement, read once because its member can still write it. */
typedef struct announced {
    uint64_t largest;
    bool inlined;
    uint64_t bytes; /* for us */
    uint64_t at;    /* their offset in its data */
} announced;

/* Are the announced lengths consistent, and do they fit into the cell? */
static bool read_head(const wf_coll_op *op, uint32_t from, announced *out)
{
    const shm_state *s = op->state;
    const ragged_head *head = head_of(op, from);
    uint32_t ours = index_of(op, op->op.comm->rank);
    uint64_t way = head->way;
    uint64_t largest = 0;
    uint64_t sum = 0;

    *out =
        (announced){.largest = head->largest, .inlined = way == RAGGED_INLINED};
    for (uint32_t r = 0; r < lengths(op); r++) {
        uint64_t bytes = head->bytes[r];

        if (r == ours) {
            out->bytes = bytes;
            out->at = sum;
        }
        if (bytes > PTRDIFF_MAX || __builtin_add_overflow(sum, bytes, &sum)) {
            return false;
        }
        largest = bytes > largest ? bytes : largest;
    }
    return out->inlined
               ? out->largest == 0 && sum <= s->payload - sizeof(*head) -
                                                 lengths(op) * sizeof(sum)
               : out->largest == largest && way < RAGGED_WAYS;
}

/* Check the length that `from` announced, and take inlined data. */
static weft_status take_inlined(const wf_coll_op *op, uint32_t from,
                                const announced *t)
{
    uint32_t rank = op->op.comm->rank;
    size_t bytes = shm_length(op, from, rank);

    if (t->bytes != bytes) {
        return wf_coll_uneven(op, from, t->bytes, rank, bytes);
    }
    if (t->inlined && bytes > 0) {
        memcpy(shm_target(op, from), data_of(op, from) + t->at, bytes);
    }
    return WEFT_OK;
}

/* Take the announcement and inlined data of `from`; `*largest` grows to the
 * largest part that is not inlined. */
static weft_status hear(const wf_coll_op *op, uint32_t from, uint64_t *largest)
{
    weft_comm *comm = op->op.comm;
    announced t;

    if (!read_head(op, from, &t)) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "operation number %u on communicator %u, %s: rank %u "
                       "sent inconsistent lengths",
                       op->op.sequence, comm->id,
                       wf_call_name(op->op.call.kind), from);
    }
    *largest = t.largest > *largest ? t.largest : *largest;
    return from != comm->rank && shm_takes(op, comm->rank) &&
                   shm_brings(op, from)
               ? take_inlined(op, from, &t)
               : WEFT_OK;
}

/* After all calls were read: is there data that was not inlined? */
static weft_status settle(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    uint64_t largest = 0;
    weft_status st;

    for (uint32_t r = 0; r < comm->size; r++) {
        st = hear(op, r, &largest);
        if (st != WEFT_OK) {
            return st;
        }
    }
    if (largest == 0) {
        shm_copy_own(op, 0, SIZE_MAX);
        return WEFT_OK;
    }
    st = shm_start_chunks(op, shm_chunk_for(op, largest), largest);
    if (st == WEFT_OK) {
        shm_pull_begin(op, largest);
    }
    return st;
}

weft_status shm_ragged_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    weft_status st;

    if (!shm_of(op)->posted) {
        shm_ragged_early(base);
        if (!shm_of(op)->posted) {
            return WF_PENDING;
        }
    }
    st = shm_check(op);
    if (st == WEFT_OK) {
        st = settle(op);
    }
    if (st != WEFT_OK || shm_of(op)->chunks == 0) {
        return st;
    }
    base->step = shm_exchange_step;
    return shm_exchange_step(base);
}
