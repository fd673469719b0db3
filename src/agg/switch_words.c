/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks say to each other beside the switch. */
#include "agg/switch.h"
#include "base/log.h"
#include "base/num.h"
#include "comm/ports.h"

void switch_say(switch_state *s, uint32_t to, switch_said kind, uint64_t number,
                uint64_t value)
{
    const wf_coll_word word = {.kind = kind,
                               .epoch = s->epoch + (kind == SWITCH_GO),
                               .number = number,
                               .value = value};

    /* Who is gone is found by whoever waits for it. */
    (void)wf_coll_say(s->comm, &wf_engine_switch, to, &word, NULL, 0);
}

/* --- words of settle.h ---------------------------------------------------- */

/* Of an epoch that is over here: this rank's word stands, and may have been
 * lost. */
static void answer_late(switch_state *s, uint32_t from, uint64_t op)
{
    const wf_settle_word *own =
        wf_settle_word_of(&s->settle, s->comm->rank, op);

    if (own->heard && own->op == op) {
        switch_say(s, from, SWITCH_ANSWER, op, own->first);
    }
}

static void hear_word(switch_state *s, uint32_t from, const wf_coll_word *w)
{
    const wf_settle_word word = {.op = w->number, .first = w->value};
    wf_settle_act act;

    if (!s->open) {
        if (w->kind == SWITCH_WORD) {
            answer_late(s, from, w->number);
        }
        return;
    }
    act = wf_settle_hear(&s->settle, from, &word);
    if (act == WF_SETTLE_SAY && s->phase != SWITCH_OVER) {
        switch_give_up(s, "other ranks have");
    } else if (act == WF_SETTLE_ANSWER && w->kind == SWITCH_WORD) {
        switch_say(s, from, SWITCH_ANSWER, w->number, WF_SETTLE_ALL);
    }
}

/* --- results that another lacks ------------------------------------------- */

static void give(switch_state *s, uint32_t to, const wf_coll_word *w)
{
    weft_world *world = s->comm->world;
    size_t most = wf_ports_am_payload(world, s->comm->member[to]);
    uint64_t at = w->value;
    weft_status st = WEFT_OK;

    if (w->number != s->kept_op || at < s->kept_from) {
        return;
    }
    while (st == WEFT_OK && at < s->kept_from + s->kept_bytes) {
        size_t n = wf_least(s->kept_from + s->kept_bytes - at, most);
        const wf_coll_word word = {.kind = SWITCH_GIVES,
                                   .epoch = s->epoch,
                                   .number = w->number,
                                   .value = at};

        st = wf_coll_say(s->comm, &wf_engine_switch, to, &word,
                         s->kept + (at - s->kept_from), n);
        at += n;
    }
}

static void take(switch_state *s, uint32_t from, const wf_coll_word *w,
                 const void *payload, size_t n)
{
    if (s->phase == SWITCH_FETCH && w->number == s->settle.op &&
        from == s->giver && w->value == s->fetched &&
        n <= s->op->bytes - s->fetched) {
        memcpy((char *)s->op->dst + s->fetched, payload, n);
        s->fetched += n;
    }
}

/* --- calls that differ ---------------------------------------------------- */

/* A rank that called something the switch does not serve does not come to it,
 * and nobody else would find out. */
void switch_ask(switch_state *s, const wf_coll_op *op)
{
    const wf_coll_word word = {
        .kind = SWITCH_CALLS, .epoch = s->epoch, .number = op->op.sequence};

    for (uint32_t m = 0; m < s->comm->size; m++) {
        if (m != s->comm->rank && switch_waits_for(s, m)) {
            (void)wf_coll_say(s->comm, &wf_engine_switch, m, &word,
                              &op->op.call, sizeof(op->op.call));
        }
    }
}

/* What this rank shows on the board is what it called last. One that has called
 * nothing yet shows zeros, which are also the numbers of a world's communicator
 * and of its first operation. */
static void compare(switch_state *s, uint32_t from, const wf_coll_word *w,
                    const void *payload, size_t n)
{
    const wf_board_rank *own = s->comm->own;
    uint64_t act = atomic_load(&own->act);
    wf_call ours = wf_call_unpacked(act, atomic_load(&own->count));
    wf_coll_word word = *w;
    wf_call theirs;

    if (n != sizeof(theirs) || ours.kind == WF_CALL_NONE ||
        act >> 32 != s->comm->id ||
        atomic_load(&own->sequence) != (uint32_t)w->number) {
        return;
    }
    memcpy(&theirs, payload, sizeof(theirs));
    ours.root = atomic_load(&own->root);
    if (ours.kind != theirs.kind || ours.type != theirs.type ||
        ours.op != theirs.op || ours.count != theirs.count) {
        word.kind = SWITCH_DIFFERS;
        (void)wf_coll_say(s->comm, &wf_engine_switch, from, &word, &ours,
                          sizeof(ours));
    }
}

static void hear_differs(switch_state *s, uint32_t from, const wf_coll_word *w,
                         const void *payload, size_t n)
{
    wf_call theirs;

    if (n == sizeof(theirs) && s->phase != SWITCH_OVER &&
        s->op->op.sequence == w->number) {
        memcpy(&theirs, payload, sizeof(theirs));
        if (theirs.kind < WF_CALL_KINDS) {
            s->differs = true;
            s->other = from;
            s->theirs = theirs;
        }
    }
}

/* --- all of them ---------------------------------------------------------- */

/* Those of an epoch that has not begun here are said again. */
void switch_hear(weft_comm *comm, void *state, uint32_t from,
                 const wf_coll_word *w, const void *payload, size_t n)
{
    switch_state *s = state;
    bool now = w->epoch == s->epoch;

    switch (w->kind) {
    case SWITCH_WORD:
    case SWITCH_ANSWER:
        if (now) {
            hear_word(s, from, w);
        }
        break;
    case SWITCH_WANTS:
        if (now) {
            give(s, from, w);
        }
        break;
    case SWITCH_GIVES:
        if (now) {
            take(s, from, w, payload, n);
        }
        break;
    case SWITCH_BACK:
        if (now) {
            switch_on_back(s, from);
        }
        break;
    case SWITCH_GO:
        switch_on_go(s, w->epoch, w->number);
        break;
    case SWITCH_CALLS:
        compare(s, from, w, payload, n);
        break;
    case SWITCH_DIFFERS:
        hear_differs(s, from, w, payload, n);
        break;
    default:
        wf_log(WEFT_LOG_ERROR, "rank %u of communicator %u says %u; dropped",
               from, s->comm->id, w->kind);
        break;
    }
    if (s->phase != SWITCH_OVER) {
        /* The operation's own thread may sleep. */
        wf_board_ring(wf_host_own(comm->world->host));
    }
}
