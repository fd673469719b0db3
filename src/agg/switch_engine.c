/* SPDX-License-Identifier: Apache-2.0 */
/* The engine that lets a switch in the network add (docs/design/0017). It
 * serves allreduce; what the switch cannot do, and everything while there is
 * none, it hands on. */
#include "agg/address.h"
#include "agg/key.h"
#include "agg/pays.h"
#include "agg/quantise.h"
#include "agg/switch.h"
#include "base/alloc.h"
#include "base/status.h"
#include "base/time.h"
#include "comm/serve.h"

/* When an operation in which nothing happens looks at the others, and asks. */
#define QUIET_NS (100 * WF_MS)
#define ASK_NS (500 * WF_MS)

/* --- an operation --------------------------------------------------------- */

static switch_phase *phase_of(const wf_coll_op *op)
{
    return (switch_phase *)(uintptr_t)op->room;
}

void switch_end(switch_state *s)
{
    if (s->phase != SWITCH_OVER) {
        s->phase = SWITCH_OVER;
        atomic_fetch_sub(&s->comm->world->ports.awaited, 1);
        switch_heed_client(s, false);
    }
}

static bool is_served(const wf_call *call)
{
    return call->count > 0 &&
           wf_agg_reduces((weft_dtype)call->type, (weft_op_kind)call->op);
}

/* What the switch does not compare by itself; an average of ranks that share
 * hosts is a sum to it. */
static uint64_t hash_of(const wf_coll_op *op, uint8_t kind)
{
    const wf_secret key = {{op->op.comm->id, 0}};
    const uint64_t rest[3] = {op->op.sequence, op->op.call.mark, kind};

    return wf_keyed_hash(&key, rest, sizeof(rest));
}

static void begin_call(switch_state *s, wf_coll_op *op, uint64_t now)
{
    const wf_call *call = &op->op.call;
    bool average = s->shares && call->op == WEFT_OP_AVG;
    wf_agg_call c = {.src = op->src,
                     .dst = op->dst,
                     .count = call->count,
                     .hash = hash_of(op, call->op),
                     .kind = call->kind,
                     .type = call->type,
                     .op = average ? WEFT_OP_SUM : call->op,
                     .quantised = wf_quantises((weft_dtype)call->type,
                                               (weft_op_kind)call->op),
                     .ctx = s};

    memset(s->input_of, 0, s->ring * sizeof(*s->input_of));
    if (s->shares) {
        if (!switch_hosts_begin(s, op, &c, now)) {
            switch_give_up(s, "there is no memory for it");
            return;
        }
    } else {
        c.before = op->src == op->dst ? switch_keep_input : NULL;
        wf_agg_client_begin(&s->client, &c, now);
        s->chunk_bytes =
            s->client.each * wf_dtype_bytes((weft_dtype)call->type);
    }
    s->results = s->client.results;
    s->phase = SWITCH_CALL;
}

/* Does this rank send packets? */
static bool sends(const switch_state *s)
{
    return !s->shares || s->rail != WF_NO_RAIL;
}

/* Is there to be a switch for this call? Then begin with it. */
static bool enter(switch_state *s, wf_coll_op *op, uint64_t now)
{
    uint64_t number = s->calls++;
    weft_status st = WEFT_OK;

    if (!s->open && number != s->go_at) {
        switch_look_for(s, number, now);
        return false;
    }
    s->op = op;
    s->phase = SWITCH_JOIN;
    atomic_fetch_add(&s->comm->world->ports.awaited, 1);
    s->moved_ns = now;
    s->said_ns = now;
    s->differs = false;
    if (!s->open) {
        switch_epoch_begin(s);
        st = sends(s) ? switch_open_client(s) : switch_get_rings(s);
    }
    switch_heed_client(s, true);
    if (wf_settle_begin(&s->settle) == WF_SETTLE_SAY) {
        switch_give_up(s, "other ranks have");
    } else if (st != WEFT_OK) {
        switch_give_up(s, weft_error_detail());
    } else if (!sends(s) || s->client.joined) {
        begin_call(s, op, now);
    }
    return true;
}

/* Of two that differ, one differs from what this rank has called. */
static weft_status mismatch(const switch_state *s, const wf_coll_op *op)
{
    const wf_agg_called *c = s->client.called;
    const wf_agg_call *own = &s->client.call;
    bool alike = c[0].total == own->count && c[0].hash == own->hash &&
                 c[0].type == own->type && c[0].op == own->op;
    const wf_agg_called *other = &c[alike ? 1 : 0];
    wf_call theirs = op->op.call;
    uint32_t rank = other->rank;

    theirs.kind = other->call < WF_CALL_KINDS ? other->call : WF_CALL_NONE;
    theirs.type = other->type;
    theirs.op = other->op;
    theirs.count = other->total;
    if (s->shares) {
        rank = s->driver[other->rank % s->layout.nodes];
        if (other->hash == hash_of(op, WEFT_OP_AVG)) {
            theirs.op = WEFT_OP_AVG;
        }
    }
    return wf_coll_mismatch(op, rank, &theirs);
}

static void join_step(switch_state *s, wf_coll_op *op, uint64_t now)
{
    weft_status st = wf_agg_client_step(&s->client, now);

    if (st == WEFT_OK && !wf_agg_client_answered(&s->client) &&
        now - s->moved_ns > SWITCH_PATIENCE_NS) {
        st = wf_fail(WEFT_ERR_TIMEOUT, "the switch does not answer");
    }
    if (st == WEFT_OK && s->client.joined) {
        st = switch_get_rings(s);
    }
    if (st != WEFT_OK) {
        s->refusals += st == WEFT_ERR_DENIED;
        switch_give_up(s, weft_error_detail());
    } else if (s->client.joined) {
        s->refusals = 0;
        s->moved_ns = now;
        op->op.moved++;
        begin_call(s, op, now);
    }
}

weft_status switch_client_step(switch_state *s, wf_coll_op *op, uint64_t now)
{
    weft_status st = wf_agg_client_step(&s->client, now);

    if (s->client.results != s->results) {
        s->results = s->client.results;
        s->moved_ns = now;
        op->op.moved++;
    }
    if (st == WEFT_ERR_MISMATCH) {
        return mismatch(s, op);
    }
    if (st != WEFT_OK) {
        switch_give_up(s, weft_error_detail());
    }
    return WEFT_OK;
}

static weft_status call_step(switch_state *s, wf_coll_op *op, uint64_t now)
{
    weft_status st = s->shares ? switch_hosts_step(s, op, now)
                               : switch_client_step(s, op, now);

    if (st == WEFT_OK && !s->shares &&
        (s->phase != SWITCH_CALL || s->client.under_way)) {
        return WF_PENDING;
    }
    if (st != WEFT_OK) {
        return st;
    }
    switch_keep_results(s, op);
    wf_settle_end(&s->settle, WF_SETTLE_DONE);
    return WEFT_OK;
}

bool switch_waits_for(const switch_state *s, uint32_t member)
{
    switch (s->phase) {
    case SWITCH_JOIN:
        return true;
    case SWITCH_CALL:
        return s->shares ? switch_hosts_awaits(s, member)
                         : s->client.missing == member;
    case SWITCH_SETTLE:
        return !wf_settle_has_said(&s->settle, member);
    case SWITCH_FETCH:
        return s->giver == member;
    default:
        return false;
    }
}

/* Nothing has happened for a while: is somebody gone whom it needs? */
static weft_status look_around(switch_state *s, const wf_coll_op *op,
                               uint64_t now)
{
    const weft_comm *comm = s->comm;

    for (uint32_t m = 0; m < comm->size; m++) {
        weft_status st = m != comm->rank && switch_waits_for(s, m)
                             ? wf_host_check(comm->world->host, comm->member[m])
                             : WEFT_OK;

        if (st != WEFT_OK) {
            return st;
        }
    }
    if (now - s->said_ns > ASK_NS && s->phase <= SWITCH_CALL) {
        s->said_ns = now;
        switch_ask(s, op);
    }
    return WF_PENDING;
}

static weft_status phase_step(switch_state *s, wf_coll_op *op, uint64_t now)
{
    if (s->differs) {
        return wf_coll_mismatch(op, s->other, &s->theirs);
    }
    if (s->phase == SWITCH_JOIN) {
        join_step(s, op, now);
    }
    switch (s->phase) {
    case SWITCH_CALL:
        return call_step(s, op, now);
    case SWITCH_SETTLE:
    case SWITCH_FETCH:
        return switch_settle_step(s, op, now);
    default:
        return WF_PENDING;
    }
}

static weft_status switch_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    switch_state *s = op->state;
    uint64_t now = wf_now_ns();
    uint64_t due;
    weft_status st;

    if (*phase_of(op) == SWITCH_START) {
        *phase_of(op) = SWITCH_JOIN;
        if (!is_served(&op->op.call) || !enter(s, op, now)) {
            return wf_coll_hand_on(op);
        }
    }
    st = phase_step(s, op, now);
    if (st == WF_PENDING && s->phase != SWITCH_OVER &&
        now - s->moved_ns > QUIET_NS) {
        st = look_around(s, op, now);
    }
    if (st != WF_PENDING || s->phase == SWITCH_OVER) {
        switch_end(s);
        return st;
    }
    due = s->has_client ? wf_agg_client_due(&s->client) : UINT64_MAX;
    wf_ports_due(s->comm->world, now, wf_least(due, now + QUIET_NS));
    return WF_PENDING;
}

static void switch_drop(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    switch_state *s = op->state;

    /* An operation that never started owns nothing; the state is another's. */
    if (*phase_of(op) != SWITCH_START) {
        switch_end(s);
        switch_close_client(s);
    }
}

static bool switch_awaits(const wf_op *base, uint32_t member)
{
    const wf_coll_op *op = (const wf_coll_op *)(const void *)base;

    return *phase_of(op) != SWITCH_START && switch_waits_for(op->state, member);
}

static void switch_begin(wf_coll_op *op)
{
    *phase_of(op) = SWITCH_START;
    op->op.step = switch_step;
    op->op.drop = switch_drop;
    op->op.awaits = switch_awaits;
    op->op.driven = true;
    op->op.shares = ((switch_state *)op->state)->shares;
}

/* --- the engine ----------------------------------------------------------- */

static weft_status switch_check(const wf_settings *set)
{
    if (set->switch_at[0] == '\0') {
        return WEFT_OK;
    }
    if (set->switch_key[0] == '\0') {
        return wf_fail(WEFT_ERR_INVALID,
                       "setting WEFT_SWITCH needs WEFT_SWITCH_KEY, the file "
                       "with the switch's key");
    }
    if (set->switch_payload % 64 != 0 || set->switch_payload == 0 ||
        set->switch_payload > WF_AGG_PAYLOAD_MAX) {
        return wf_fail(WEFT_ERR_INVALID,
                       "setting WEFT_SWITCH_PAYLOAD: %llu is not a multiple of "
                       "64 up to %u",
                       (unsigned long long)set->switch_payload,
                       WF_AGG_PAYLOAD_MAX);
    }
    if (set->switch_slots > WF_AGG_SLOTS) {
        return wf_fail(WEFT_ERR_INVALID,
                       "setting WEFT_SWITCH_SLOTS: %u is not in 0 to %u",
                       set->switch_slots, WF_AGG_SLOTS);
    }
    return wf_agg_addresses_check(set->switch_at, WF_AGG_SWITCHES);
}

/* Where it does not pay it serves only those who ask for it by name. */
static wf_offer switch_offer(const weft_comm *comm, wf_call_kind kind)
{
    if (comm->world->settings.switch_at[0] == '\0' ||
        kind != WF_CALL_ALLREDUCE || comm->size < 2 ||
        (switch_shares_hosts(comm) ? comm->tree.nodes : comm->size) >
            WF_AGG_RANKS) {
        return wf_offer_all(0);
    }
    return wf_offer_all(wf_agg_pays(comm->tree.nodes, kind) ? 50 : 1);
}

static void switch_detach(weft_comm *comm, void *state)
{
    switch_state *s = state;
    weft_world *world = comm->world;

    pthread_mutex_lock(&world->drive);
    switch_close_client(s);
    switch_stop_looking(s);
    pthread_mutex_unlock(&world->drive);
    if (s->shares) {
        switch_hosts_detach(s);
    }
    wf_free(s->words);
    wf_free(s->back);
    wf_free(s->inputs);
    wf_free(s->input_of);
    wf_free(s->kept);
    wf_free(s);
}

static weft_status find_switch(switch_state *s, const wf_settings *set)
{
    weft_status st = wf_agg_addresses_find(set->switch_at, WF_AGG_SWITCHES,
                                           s->at, &s->switches);

    return st == WEFT_OK ? wf_agg_key_read(set->switch_key, &s->key) : st;
}

/* Others may ask for results while this rank calls nothing. */
static weft_status be_asked(weft_world *world)
{
    weft_status st;

    pthread_mutex_lock(&world->drive);
    st = wf_serve(world);
    pthread_mutex_unlock(&world->drive);
    return st;
}

static weft_status switch_attach(weft_comm *comm, void *area, void **out)
{
    switch_state *s = wf_zalloc(sizeof(*s));
    weft_status st;

    if (s == NULL) {
        return wf_fail_nomem("the engine of a switch");
    }
    s->comm = comm;
    s->shares = switch_shares_hosts(comm);
    s->probe = -1;
    s->kept_op = SWITCH_NEVER;
    s->phase = SWITCH_OVER;
    s->words = wf_zalloc(2 * comm->size * sizeof(*s->words));
    s->back = wf_zalloc(comm->size * sizeof(*s->back));
    st = s->words != NULL && s->back != NULL
             ? find_switch(s, &comm->world->settings)
             : wf_fail_nomem("the engine of a switch");
    if (st == WEFT_OK && s->shares) {
        st = switch_hosts_attach(s, area);
    }
    if (st == WEFT_OK) {
        st = be_asked(comm->world);
    }
    if (st != WEFT_OK) {
        switch_detach(comm, s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

const wf_engine wf_engine_switch = {
    .name = "switch",
    .what = "aggregation in the network",
    .hands_on = true,
    .check = switch_check,
    .offer = switch_offer,
    .area = switch_hosts_area,
    .attach = switch_attach,
    .detach = switch_detach,
    .begin = switch_begin,
    .hear = switch_hear,
};
