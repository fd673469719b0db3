/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/message/run.h"

static unsigned flight_index(const wf_run *run, unsigned nth)
{
    return (run->first + nth) % WF_FLIGHTS;
}

void wf_run_init(wf_run *run, wf_data *data, const wf_party *party)
{
    run->data = data;
    run->party = *party;
    run->next = 0;
    run->length = wf_plan_length(data->plan);
    run->open = run->length;
    run->first = 0;
    run->count = 0;
    run->moved = 0;
}

/* --- begin ---------------------------------------------------------------- */

static weft_status begin_recv(wf_run *run, wf_coll_op *op, unsigned index)
{
    wf_flight *f = &run->flight[index];
    const wf_step *s = &f->step;
    wf_block b = {wf_data_landing(run->data, index), 0};

    if (s->recv.bit != 0) {
        b.bytes = wf_data_packed_bytes(run->data, op, s->recv);
    } else {
        wf_block dest = run->data->at(run->data, op, s, s->recv);

        b.bytes = dest.bytes;
        b.at = s->act == WF_STORE ? dest.at : b.at;
    }
    f->expects = b.bytes;
    return wf_wire_recv(op, wf_party_member(&run->party, s->from), b.at,
                        b.bytes, &f->recv);
}

static weft_status begin_send(wf_run *run, wf_coll_op *op, wf_flight *f)
{
    const wf_data *data = run->data;
    const wf_step *s = &f->step;
    wf_block b = {data->base + data->packed_at, 0};

    if (s->send.bit != 0) {
        b.bytes = wf_data_packed_bytes(data, op, s->send);
        wf_data_pack(data, op, s->send, b.at);
    } else {
        b = data->at(data, op, s, s->send);
    }
    return wf_wire_send(op, wf_party_member(&run->party, s->to), b.at, b.bytes,
                        &f->send);
}

/* Begin the next step if possible; `*begun` says whether it was. */
static weft_status begin_one(wf_run *run, wf_coll_op *op, bool *begun)
{
    uint64_t ended = wf_run_ended(run);
    unsigned index = flight_index(run, run->count);
    wf_flight *f = &run->flight[index];
    weft_status st = WEFT_OK;

    *begun = false;
    if (run->next == run->open || run->count == WF_FLIGHTS) {
        return WEFT_OK;
    }
    wf_plan_at(run->data->plan, run->next, &f->step);
    if (f->step.needs > ended) {
        return WEFT_OK;
    }
    *begun = true;
    f->at = run->next++;
    f->send.open = false;
    f->recv.open = false;
    if (f->step.to == WF_NOBODY && f->step.from == WF_NOBODY) {
        return WEFT_OK;
    }
    run->count++;
    if (f->step.from != WF_NOBODY) {
        st = begin_recv(run, op, index);
    }
    if (st == WEFT_OK && f->step.to != WF_NOBODY) {
        st = begin_send(run, op, f);
    }
    return st;
}

/* --- end ------------------------------------------------------------------ */

static void fold(const wf_data *data, const wf_coll_op *op, const wf_step *s,
                 const unsigned char *came)
{
    wf_piece own = s->recv;
    wf_block to = data->at(data, op, s, s->recv);
    wf_block ours;
    void *dst = to.at;

    own.at = s->own;
    ours = data->at(data, op, s, own);
    if (to.bytes > 0) {
        bool first = s->act == WF_FOLD_FIRST;
        const void *both[2] = {first ? came : ours.at, first ? ours.at : came};

        data->partial.fold(&data->partial, &dst, 1, both, 2,
                           to.bytes / data->elem);
    }
}

/* Fold or copy received data to its destination. */
static void take(const wf_run *run, const wf_coll_op *op, unsigned index)
{
    const wf_step *s = &run->flight[index].step;
    const unsigned char *came = wf_data_landing(run->data, index);

    if (s->act == WF_FOLD_FIRST || s->act == WF_FOLD_LAST) {
        fold(run->data, op, s, came);
    } else if (s->act == WF_LAND && s->recv.bit != 0) {
        wf_data_unpack(run->data, op, s->recv, came);
    } else if (s->act == WF_LAND) {
        wf_block to = run->data->at(run->data, op, s, s->recv);

        wf_data_fold_one(&run->data->partial, to.at, came, to.bytes);
    }
}

/* End the oldest flight; WF_PENDING if it is not complete. */
static weft_status end_one(wf_run *run, const wf_coll_op *op)
{
    wf_flight *f = &run->flight[run->first];
    weft_status received = wf_wire_status(op, &f->recv);
    weft_status sent;

    if (received != WEFT_OK && received != WF_PENDING) {
        return received;
    }
    sent = wf_wire_status(op, &f->send);
    if (sent != WEFT_OK || received != WEFT_OK) {
        return sent != WEFT_OK ? sent : received;
    }
    if (f->recv.open && f->recv.msg.n != f->expects) {
        return wf_coll_uneven(op, wf_party_member(&run->party, f->step.from),
                              f->recv.msg.n, op->op.comm->rank, f->expects);
    }
    if (f->recv.open) {
        take(run, op, run->first);
    }
    run->first = flight_index(run, 1);
    run->count--;
    return WEFT_OK;
}

/* Has a piece of a message moved since the last look? */
static bool pieces_moved(wf_run *run)
{
    uint64_t before = run->moved;

    run->moved = 0;
    for (unsigned i = 0; i < run->count; i++) {
        const wf_flight *f = &run->flight[flight_index(run, i)];

        run->moved += wf_wire_moved(&f->send) + wf_wire_moved(&f->recv);
    }
    return run->moved != before;
}

weft_status wf_run_step(wf_run *run, wf_coll_op *op)
{
    bool moved = true;

    while (moved) {
        weft_status st = begin_one(run, op, &moved);

        if (st == WEFT_OK && run->count > 0) {
            st = end_one(run, op);
            moved = moved || st == WEFT_OK;
            op->op.moved += st == WEFT_OK;
        }
        if (st != WEFT_OK && st != WF_PENDING) {
            return st;
        }
    }
    if (run->next == run->length && run->count == 0) {
        return WEFT_OK;
    }
    op->op.moved += pieces_moved(run);
    return WF_PENDING;
}

bool wf_run_awaits(const wf_run *run, uint32_t member)
{
    for (unsigned i = 0; i < run->count; i++) {
        const wf_flight *f = &run->flight[flight_index(run, i)];

        if (wf_wire_awaits(&f->send, member) ||
            wf_wire_awaits(&f->recv, member)) {
            return true;
        }
    }
    return false;
}

void wf_run_drop(wf_run *run, const wf_coll_op *op)
{
    for (unsigned i = 0; i < run->count; i++) {
        wf_flight *f = &run->flight[flight_index(run, i)];

        wf_wire_drop(op, &f->send);
        wf_wire_drop(op, &f->recv);
    }
    run->count = 0;
}
