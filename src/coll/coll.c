/* SPDX-License-Identifier: Apache-2.0 */
/* The runner: hands a collective, whose arguments are checked (calls_*.c), to
 * the communicator's engine, and runs it now or behind a request. */
#include <string.h>

#include "coll/choose.h"
#include "comm/request.h"
#include "comm/wait.h"

/* Set the kernel of this call; the checks have shown that there is one. */
static void set_reducer(wf_coll_op *op)
{
    const wf_call *call = &op->op.call;
    weft_op how = {(weft_op_kind)call->op, call->factor};

    (void)wf_reducer_init(&op->reducer, (weft_dtype)call->type, how,
                          op->op.comm->size);
}

/* Copy the caller's parts, which may be freed before a request is stepped. */
static const weft_part *keep_parts(const weft_part *part, uint32_t size,
                                   weft_part **room)
{
    const weft_part *kept = *room;

    if (part == NULL) {
        return NULL;
    }
    memcpy(*room, part, size * sizeof(*part));
    *room += size;
    return kept;
}

static void hand_to(wf_coll_op *op, const wf_coll_seat *seat)
{
    wf_op_hand_on(&op->op);
    op->state = seat->state;
    seat->engine->begin(op);
}

/* The first step on an engine that goes on with an operation. */
static weft_status step_anew(wf_coll_op *op, uint64_t moved)
{
    op->op.moved = moved + 1;
    op->op.driven = true; /* restored: callers rely on it */
    return op->op.step(&op->op);
}

/* The step until calls are compared, see engine.h. */
static weft_status compare_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    const wf_coll_seat *next = op->next;
    uint64_t moved;
    weft_status st = op->compare(base);

    base->lazy = false; /* data moves after the comparison */
    if (st != WEFT_OK) {
        return st;
    }
    moved = base->moved;
    op->next = NULL;
    hand_to(op, next);
    return step_anew(op, moved);
}

static void begin_on(wf_coll_op *op, const wf_coll_seat *seat)
{
    const wf_coll_seat *meets = wf_coll_meets(wf_coll_of(op->op.comm));

    op->next = seat == meets || seat->engine->hands_on ? NULL : seat;
    hand_to(op, op->next != NULL ? meets : seat);
    if (op->next != NULL) {
        op->compare = op->op.step;
        op->op.step = compare_step;
        op->op.early = NULL;
        op->op.driven = true; /* either engine may use ports */
    }
}

static void begin(wf_coll_op *op)
{
    op->op.far = false;
    begin_on(op, wf_coll_choose(wf_coll_of(op->op.comm), &op->op.call));
}

weft_status wf_coll_hand_on(wf_coll_op *op)
{
    uint64_t moved = op->op.moved;

    begin_on(op, wf_coll_choose_else(wf_coll_of(op->op.comm), &op->op.call));
    return step_anew(op, moved);
}

uint64_t wf_coll_block_bytes(const wf_coll_op *op)
{
    const weft_comm *comm = op->op.comm;
    uint64_t sum = 0;

    if (!wf_call_blocks_at(&op->op.call, WF_SRC_BLOCKS, comm->rank)) {
        return op->bytes;
    }
    if (op->src_part == NULL) {
        return (uint64_t)op->bytes * comm->size;
    }
    for (uint32_t r = 0; r < comm->size; r++) {
        sum += op->src_part[r].n;
    }
    return sum * wf_dtype_bytes((weft_dtype)op->op.call.type);
}

static weft_status submit(const wf_coll_op *op, weft_request **out)
{
    weft_comm *comm = op->op.comm;
    size_t parts = (op->src_part != NULL) + (size_t)(op->dst_part != NULL);
    wf_coll_op *kept;
    weft_part *room;
    weft_request *r;
    weft_status st = wf_comm_check(comm);

    if (st == WEFT_OK) {
        st = wf_request_create(
            comm, sizeof(*op) + parts * comm->size * sizeof(weft_part), &r);
    }
    if (st != WEFT_OK) {
        return st;
    }
    kept = (wf_coll_op *)(void *)r->op;
    *kept = *op;
    room = (weft_part *)(void *)(kept + 1);
    kept->src_part = keep_parts(op->src_part, comm->size, &room);
    kept->dst_part = keep_parts(op->dst_part, comm->size, &room);
    r->op->sequence = comm->sequence++;
    wf_coll_show(kept);
    begin(kept);
    if (wf_call_is(op->op.call.kind, WF_REDUCES)) {
        set_reducer(kept);
    }
    wf_request_submit(r, true);
    *out = r;
    return WEFT_OK;
}

static weft_status run_behind(wf_coll_op *op)
{
    weft_request *r;
    weft_status st = submit(op, &r);

    if (st == WEFT_OK) {
        st = weft_request_wait(r, 0);
        weft_request_release(r);
    }
    return st;
}

/* The part of a blocking call that the fast path skips. */
static weft_status run_to_end(wf_coll_op *op, bool begun)
{
    weft_comm *comm = op->op.comm;
    weft_status st;

    if (!begun) {
        begin(op);
        if (wf_call_is(op->op.call.kind, WF_REDUCES)) {
            set_reducer(op);
        }
    }
    atomic_store(&comm->running, true);
    st = wf_op_run(&op->op);
    atomic_store(&comm->running, false);
    if (atomic_load(&comm->queued) != 0) {
        wf_progress_kick(comm->world->progress); /* requests had to wait */
    }
    return st;
}

/* Operations of a communicator end in their order, which others rely on when
 * they use slots again: one cannot end within another. */
static weft_status refuse_within_another(const wf_coll_op *op)
{
    return wf_fail(WEFT_ERR_INVALID,
                   "rank %u: a blocking %s within a blocking collective of "
                   "the same communicator, in a callback or on another "
                   "thread: start a request instead",
                   op->op.comm->rank, wf_call_name(op->op.call.kind));
}

/* Run it on this thread, or queue it after outstanding requests. */
static weft_status run(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    const wf_coll *coll = wf_coll_of(comm);
    bool begun = false;
    weft_status st = wf_comm_check(comm);

    if (st != WEFT_OK) {
        return st;
    }
    if (atomic_load_explicit(&comm->running, memory_order_relaxed)) {
        return refuse_within_another(op);
    }
    if (atomic_load_explicit(&comm->queued, memory_order_acquire) != 0) {
        return run_behind(op);
    }
    op->op.sequence = comm->sequence++;
    st = WF_PENDING;
    if (op->bytes < coll->quick_until[op->op.call.kind]) {
        op->state = coll->quick_state;
        op->next = NULL;
        st = coll->quick(op);
        begun = true;
    } else {
        wf_coll_show(op);
    }
    if (st != WEFT_OK) {
        st = st == WF_PENDING ? run_to_end(op, begun)
                              : wf_comm_break(comm, st, weft_error_detail());
    }
    if (st == WEFT_OK) {
        wf_comm_end(comm, &op->op);
    }
    return st;
}

weft_status wf_coll_finish(wf_coll_op *op, weft_request **out)
{
    if (op->op.comm->mark != 0 && op->op.call.op != WEFT_OP_PREMUL_SUM) {
        op->op.call.mark = op->op.comm->mark;
    }
    return out == NULL ? run(op) : submit(op, out);
}
