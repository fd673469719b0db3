/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing calls, inside a node by cells and between nodes by messages of the
 * members 0; and small data that goes along: member 0 puts together what the
 * node brings, and each node's is passed on with its call. */
#include <string.h>

#include "coll/hosts/area.h"
#include "transport/msg.h"

/* --- what goes along ------------------------------------------------------ */

/* Bytes that a member brings, and a node. */
static size_t brought(const wf_coll_op *op, const hosts_state *s)
{
    return wf_call_is(op->op.call.kind, WF_SRC_BLOCKS)
               ? op->bytes * s->layout.size
               : op->bytes;
}

static size_t node_bytes(const wf_coll_op *op, const hosts_state *s)
{
    return wf_call_is(op->op.call.kind, WF_DST_BLOCKS)
               ? op->bytes * s->layout.most
               : brought(op, s);
}

static bool is_along(const hosts_state *s)
{
    return s->rounds.shape.way == WF_SHAPE_ALONG;
}

/* What this node brings, in `room` if it has to be made; NULL: nothing. */
static const void *node_data(const wf_coll_op *op, hosts_state *s,
                             unsigned char *room)
{
    const wf_layout *l = &s->layout;
    const wf_call *call = &op->op.call;
    void *dst = room;

    if (wf_call_is(call->kind, WF_ROOT_SENDS)) {
        return l->node_of[call->root] == l->node
                   ? hosts_cell_of(s, op->op.comm->local[call->root])->payload
                   : NULL;
    }
    for (uint32_t m = 0; m < s->rounds.members; m++) {
        s->rounds.src[m] = hosts_cell_of(s, m)->payload;
    }
    if (wf_call_is(call->kind, WF_REDUCES)) {
        s->rounds.inner.fold(&s->rounds.inner, &dst, 1, s->rounds.src,
                             s->rounds.members,
                             brought(op, s) / s->rounds.inner.elem);
        return room;
    }
    for (uint32_t m = 0; m < s->rounds.members; m++) {
        wf_copy(room + m * op->bytes, s->rounds.src[m], op->bytes);
    }
    return room;
}

/* Make the result of what all nodes have brought, in the order of nodes. */
static void make_result(const wf_coll_op *op, const hosts_state *s)
{
    const wf_layout *l = &s->layout;
    const wf_call *call = &op->op.call;
    const void *src[WF_CHECK_MOST];
    void *dst = hosts_common_of(s)->result;

    if (wf_call_is(call->kind, WF_ROOT_SENDS)) {
        wf_copy(dst, wf_check_data(&s->check, l->node_of[call->root]),
                op->bytes);
    } else if (wf_call_is(call->kind, WF_REDUCES)) {
        wf_reducer sum = wf_data_partial(call);

        for (uint32_t n = 0; n < l->nodes; n++) {
            src[n] = wf_check_data(&s->check, n);
        }
        sum.fold(&sum, &dst, 1, src, l->nodes, brought(op, s) / sum.elem);
    } else {
        for (uint32_t i = 0; i < l->size; i++) {
            uint32_t rank = l->member[i];
            uint32_t n = l->node_of[rank];

            wf_copy((unsigned char *)dst + rank * op->bytes,
                    wf_check_data(&s->check, n) + (i - l->first[n]) * op->bytes,
                    op->bytes);
        }
    }
}

static void take_result(const wf_coll_op *op, const hosts_state *s)
{
    const wf_call *call = &op->op.call;
    const unsigned char *result = hosts_common_of(s)->result;
    uint32_t rank = s->layout.rank;

    if (wf_call_is(call->kind, WF_DST_BLOCKS)) {
        wf_copy(op->dst, result, op->bytes * s->layout.size);
    } else if (wf_call_is(call->kind, WF_SRC_BLOCKS)) {
        wf_rounds_finish(op, op->dst, result + rank * op->bytes, op->bytes);
    } else if (wf_call_gives(call, rank)) {
        wf_rounds_finish(op, op->dst, result, op->bytes);
    }
}

/* --- calls ---------------------------------------------------------------- */

void hosts_post(wf_coll_op *op, bool without)
{
    hosts_state *s = op->state;
    hosts_cell *cell = hosts_cell_of(s, s->layout.local);

    cell->call = op->op.call;
    cell->without = without;
    if (is_along(s) && (!wf_call_is(op->op.call.kind, WF_ROOT_SENDS) ||
                        op->op.call.root == s->layout.rank)) {
        wf_copy(cell->payload, op->src, brought(op, s));
    }
    s->cells_seen = 0;
    s->comparing = false;
    /* Publishes call and data; pairs with the acquire in node_compare. */
    atomic_store_explicit(&cell->sequence, op->op.sequence + 1,
                          memory_order_release);
    wf_rounds_ring(op, &s->rounds);
}

/* By member 0: have all members of this node made this call? */
static weft_status node_compare(wf_coll_op *op, hosts_state *s)
{
    const wf_layout *l = &s->layout;

    for (; s->cells_seen < s->rounds.members; s->cells_seen++) {
        const hosts_cell *cell = hosts_cell_of(s, s->cells_seen);

        if (atomic_load_explicit(&cell->sequence, memory_order_acquire) !=
            op->op.sequence + 1) {
            return WF_PENDING;
        }
        if (!wf_call_equal(&cell->call, &op->op.call)) {
            return wf_coll_mismatch(
                op, wf_layout_member(l, l->node, s->cells_seen), &cell->call);
        }
        op->op.moved++;
    }
    return WEFT_OK;
}

static void begin_comparing(const wf_coll_op *op, hosts_state *s)
{
    const wf_layout *l = &s->layout;
    wf_party speakers = {
        .member = s->speaker, .size = l->nodes, .rank = l->node};
    alignas(64) unsigned char room[WF_CHECK_BYTES];
    uint32_t without = 0;

    for (uint32_t m = s->rounds.members; m-- > 0;) {
        if (hosts_cell_of(s, m)->without != 0) {
            without = wf_layout_member(l, l->node, m) + 1;
        }
    }
    wf_check_init(&s->check, &speakers, is_along(s),
                  is_along(s) ? node_data(op, s, room) : NULL,
                  is_along(s) ? node_bytes(op, s) : 0, without);
    s->comparing = true;
}

/* By member 0. */
static weft_status lead(wf_coll_op *op, hosts_state *s)
{
    hosts_common *common = hosts_common_of(s);
    weft_status st = s->comparing ? WEFT_OK : node_compare(op, s);

    if (st == WEFT_OK && !s->comparing) {
        begin_comparing(op, s);
    }
    if (st == WEFT_OK) {
        st = wf_check_step(&s->check, op);
    }
    if (st != WEFT_OK && !(st == WEFT_ERR_NOMEM && op->op.private_failure)) {
        return st;
    }
    common->without = s->check.without;
    if (st == WEFT_OK && is_along(s)) {
        make_result(op, s);
    }
    /* Publishes the result; pairs with the acquire in hosts_meet. */
    atomic_store_explicit(&common->go, op->op.sequence + 1,
                          memory_order_release);
    wf_rounds_ring(op, &s->rounds);
    return st;
}

weft_status hosts_meet(wf_coll_op *op)
{
    hosts_state *s = op->state;
    const hosts_common *common = hosts_common_of(s);
    weft_status st = WEFT_OK;

    if (s->layout.local == 0) {
        st = lead(op, s);
    } else if (atomic_load_explicit(&common->go, memory_order_acquire) !=
               op->op.sequence + 1) {
        return WF_PENDING;
    } else if (common->without != 0) {
        st = wf_check_no_memory(op, common->without - 1);
    }
    if (st == WEFT_OK) {
        op->op.moved++;
        if (is_along(s)) {
            take_result(op, s);
        }
    }
    return st;
}

/* Those who have not called; else member 0, which waits for other nodes. */
bool hosts_meet_awaits(const wf_coll_op *op, uint32_t member)
{
    const hosts_state *s = op->state;
    const weft_comm *comm = op->op.comm;
    uint32_t local = comm->local[member];
    bool all = true;

    if (s->layout.local == 0 && s->comparing) {
        return wf_check_awaits(&s->check, member);
    }
    if (!wf_host_same_node(comm->world->host, comm->member[member])) {
        return false; /* member 0 waits for other nodes */
    }
    for (uint32_t m = 0; m < s->rounds.members; m++) {
        bool here =
            atomic_load(&hosts_cell_of(s, m)->sequence) == op->op.sequence + 1;

        if (m == local && !here) {
            return true;
        }
        all = all && here;
    }
    return all && local == 0;
}
