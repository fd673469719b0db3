/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/message/check.h"

#include "base/status.h"
#include "coll/message/plan.h"
#include "transport/msg.h"

/* The head of a record; data of the rank may follow. */
typedef struct check_head {
    wf_call call;
    uint32_t without;
    uint32_t zero;
} check_head;
_Static_assert(sizeof(check_head) == 32, "sent as bytes");

static size_t record_bytes(size_t data)
{
    return sizeof(check_head) + (data + 15) / 16 * 16;
}

size_t wf_check_room_in(uint32_t size, size_t bytes)
{
    size_t record = bytes / size / 16 * 16;

    return record > sizeof(check_head) ? record - sizeof(check_head) : 0;
}

void wf_check_init(wf_check *check, const wf_party *party, bool with_data,
                   const void *data, size_t bytes, uint32_t without)
{
    check->party = *party;
    check->round = 0;
    check->send.open = false;
    check->recv.open = false;
    check->without = without;
    check->with_data = with_data;
    check->record = record_bytes(with_data ? bytes : 0);
    if (with_data) {
        memset(check->records, 0, check->record);
    }
    if (with_data && data != NULL) {
        wf_copy(check->records + sizeof(check_head), data, bytes);
    }
}

/* The number of records sent in a round to the one at distance `away`. */
static size_t records_in(const wf_check *check, uint32_t away)
{
    uint32_t size = check->party.size;

    return !check->with_data ? 1 : away < size - away ? away : size - away;
}

static unsigned char *record_at(const wf_check *check, uint32_t index)
{
    return (unsigned char *)(uintptr_t)check->records + index * check->record;
}

static weft_status round_begin(wf_check *check, const wf_coll_op *op,
                               const wf_step *step, uint32_t away)
{
    size_t n = records_in(check, away) * check->record;
    unsigned char *to = record_at(check, check->with_data ? away : 1);
    check_head head = {.call = op->op.call, .without = check->without};
    weft_status st = WEFT_OK;

    if (!check->recv.open) {
        size_t room = (size_t)(check->records + sizeof(check->records) - to);

        st = wf_wire_recv(op, wf_party_member(&check->party, step->from), to,
                          room, &check->recv);
    }
    if (st == WEFT_OK && !check->send.open) {
        memcpy(check->records, &head, sizeof(head));
        st = wf_wire_send(op, wf_party_member(&check->party, step->to),
                          check->records, n, &check->send);
    }
    return st;
}

/* Error for an equal call that chose another algorithm. */
static weft_status other_way(const wf_coll_op *op, uint32_t from)
{
    return wf_fail(WEFT_ERR_MISMATCH,
                   "operation number %u on communicator %u: rank %u and rank "
                   "%u do this %s by different algorithms; do all ranks have "
                   "the same settings?",
                   op->op.sequence, op->op.comm->id, op->op.comm->rank, from,
                   wf_call_name(op->op.call.kind));
}

/* Compare the received records: the calls of the sender and of those before it.
 * A rank that made another call may have sent another length. */
static weft_status compare(wf_check *check, const wf_coll_op *op, uint32_t from,
                           uint32_t away)
{
    const wf_party *party = &check->party;
    size_t records = records_in(check, away);
    size_t came = check->recv.msg.n;

    for (uint32_t i = 0; i < records; i++) {
        check_head head = {.without = 0};

        if (came >= (i + 1) * check->record ||
            (i == 0 && came >= sizeof(head))) {
            memcpy(&head, record_at(check, (check->with_data ? away : 1) + i),
                   sizeof(head));
        }
        if (!wf_call_equal(&head.call, &op->op.call)) {
            uint32_t who = (from + party->size - i) % party->size;

            return wf_coll_mismatch(op, wf_party_member(party, who),
                                    &head.call);
        }
        if (came != records * check->record) {
            return other_way(op, wf_party_member(party, from));
        }
        if (check->without == 0) {
            check->without = head.without;
        }
    }
    return WEFT_OK;
}

/* Step one round; WEFT_OK when it is complete. */
static weft_status round_step(wf_check *check, wf_coll_op *op,
                              const wf_step *step, uint32_t away)
{
    weft_status st = round_begin(check, op, step, away);
    weft_status sent;

    if (st == WEFT_OK) {
        st = wf_wire_status(op, &check->recv);
    }
    if (st == WEFT_OK) {
        st = compare(check, op, step->from, away);
    }
    if (st != WEFT_OK && st != WF_PENDING) {
        return st;
    }
    sent = wf_wire_status(op, &check->send);
    return sent != WEFT_OK ? sent : st;
}

weft_status wf_check_no_memory(wf_coll_op *op, uint32_t rank)
{
    op->op.private_failure = true;
    return wf_fail(WEFT_ERR_NOMEM,
                   "rank %u has no memory for what passes through it in this "
                   "%s",
                   rank, wf_call_name(op->op.call.kind));
}

weft_status wf_check_step(wf_check *check, wf_coll_op *op)
{
    wf_plan rounds;
    wf_step step;
    weft_status st = WEFT_OK;

    (void)wf_plan_make(&rounds, WF_CALL_BARRIER, WF_BY_DISSEMINATION,
                       check->party.size, check->party.rank, 0, 1);
    while (check->round < rounds.steps && st == WEFT_OK) {
        wf_plan_at(&rounds, check->round, &step);
        st = round_step(check, op, &step, 1u << check->round);
        if (st == WEFT_OK) {
            check->send.open = false;
            check->recv.open = false;
            check->round++;
            op->op.moved++;
        }
    }
    return st == WEFT_OK && check->without != 0
               ? wf_check_no_memory(op, check->without - 1)
               : st;
}

const unsigned char *wf_check_data(const wf_check *check, uint32_t number)
{
    uint32_t size = check->party.size;

    return record_at(check, (check->party.rank + size - number) % size) +
           sizeof(check_head);
}

bool wf_check_awaits(const wf_check *check, uint32_t member)
{
    return wf_wire_awaits(&check->send, member) ||
           wf_wire_awaits(&check->recv, member);
}

void wf_check_drop(wf_check *check, const wf_coll_op *op)
{
    wf_wire_drop(op, &check->send);
    wf_wire_drop(op, &check->recv);
}
