/* SPDX-License-Identifier: Apache-2.0 */
/* Operations, intents and rounds. */
#include "store/protocol.h"

#include "store/protocol_parts.h"

void wf_protocol_park(const wf_protocol_env *env, const wf_key_state *k,
                      const wf_message *m)
{
    env->happened(env->ctx, k, WF_PARKED);
    env->park(env->ctx, m);
}

static void op_do(const wf_protocol_env *env, wf_key_state *k,
                  const wf_message *m)
{
    if (m->op != WF_OP_LOCALIZE && m->op != WF_OP_HELD) {
        env->apply(env->ctx, k, m);
    }
    env->answer(env->ctx, k, m, WEFT_OK);
}

/* An operation of a worker of this host, which has a copy. What the owner must
 * order waits to go with the next SYNC. */
static void op_on_copy(const wf_protocol_env *env, wf_key_state *k,
                       const wf_message *m)
{
    bool ordered = m->op == WF_OP_SET || m->op == WF_OP_HELD ||
                   (m->op == WF_OP_PUSH && env->optimizer);

    if (ordered && !(m->op == WF_OP_SET && WF_MISTAKE(WF_SETS_COPY_ONLY))) {
        wf_protocol_park(env, k, m);
    } else {
        op_do(env, k, m);
    }
}

static void op_localize(const wf_protocol_env *env, wf_key_state *k,
                        const wf_message *m)
{
    bool asked = wf_key_is(k, WF_KEY_ASKED);

    wf_key_mark(k, WF_KEY_MUST | WF_KEY_WANTED);
    if (!asked && !wf_protocol_ask_for_row(env, k)) {
        wf_key_clear(k, WF_KEY_MUST | WF_KEY_WANTED);
        env->answer(env->ctx, k, m, WEFT_ERR_NOMEM);
        return;
    }
    env->save(env->ctx, k);
    wf_protocol_park(env, k, m);
}

/* An operation of a worker of this host, which has no row. */
static void op_on_absent(const wf_protocol_env *env, wf_key_state *k,
                         const wf_message *m)
{
    if (m->op == WF_OP_LOCALIZE) {
        op_localize(env, k, m);
    } else if (wf_key_is(k, WF_KEY_ASKED)) {
        wf_protocol_park(env, k, m);
    } else if (m->op == WF_OP_HELD) {
        env->answer(env->ctx, k, m, WEFT_OK);
    } else {
        (void)wf_protocol_forward(env, k, m);
    }
}

static void receive_op(const wf_protocol_env *env, wf_key_state *k,
                       const wf_message *m)
{
    if (k->role == WF_OWNER) {
        op_do(env, k, m);
    } else if (m->origin != env->host) {
        (void)wf_protocol_forward(env, k, m);
    } else if (k->role == WF_COPY) {
        op_on_copy(env, k, m);
    } else {
        op_on_absent(env, k, m);
    }
}

static void receive_news(const wf_protocol_env *env, wf_key_state *k,
                         const wf_message *m)
{
    wf_message settled = wf_message_new(env, k, WF_MSG_SETTLED);
    /* One that was sent again may be about a move of the past. */
    bool landed = wf_message_is(m, WF_MSG_CONFIRM) && k->kept != WF_NO_SLOT &&
                  !wf_epoch_later(k->epoch, m->epoch);
    uint32_t kept = k->kept;

    settled.epoch = m->epoch;
    if (k->role == WF_COPY && wf_key_is(k, WF_KEY_ASKED) &&
        wf_epoch_later(m->epoch, k->epoch)) {
        /* The SYNC under way went to the owner before, whose answer may be lost
         * with it. */
        wf_key_mark(k, WF_KEY_LEAVING);
    }
    wf_key_learn(k, m->owner, m->epoch);
    k->kept = landed ? WF_NO_SLOT : kept;
    env->save(env->ctx, k);
    if (landed) {
        env->release(env->ctx, k->key, kept);
    }
    if (wf_message_is(m, WF_MSG_CONFIRM)) {
        env->send(env->ctx, m->from, &settled);
    }
    if (landed) {
        /* Messages that seemed to know of a later owner may wait here: by a
         * word so old that its epoch has wrapped. */
        wf_protocol_resume(env, k);
    }
}

static void receive_settled(const wf_protocol_env *env, wf_key_state *k,
                            const wf_message *m)
{
    if (wf_key_is(k, WF_KEY_UNSETTLED) && k->epoch == m->epoch) {
        wf_key_clear(k, WF_KEY_UNSETTLED);
        env->save(env->ctx, k);
        wf_protocol_resume(env, k);
    }
}

static void receive_return(const wf_protocol_env *env, wf_key_state *k,
                           const wf_message *m)
{
    if (k->kept != WF_NO_SLOT && k->owner == m->from &&
        m->epoch == (uint16_t)(k->epoch + 1)) {
        wf_protocol_take_back(env, k);
    }
}

static void dispatch(const wf_protocol_env *env, wf_key_state *k,
                     const wf_message *m)
{
    switch (m->kind) {
    case WF_MSG_OP:
        receive_op(env, k, m);
        break;
    case WF_MSG_SYNC:
        wf_protocol_sync(env, k, m);
        break;
    case WF_MSG_GRANT:
        wf_protocol_grant(env, k, m);
        break;
    case WF_MSG_NEWS:
        receive_news(env, k, m);
        break;
    case WF_MSG_SETTLED:
        receive_settled(env, k, m);
        break;
    case WF_MSG_RETURN:
        receive_return(env, k, m);
        break;
    default: /* whoever reads messages has refused it */
        break;
    }
}

/* All that a copy which has not asked has parked is for the owner to order. */
static void ask_for_ordered(const wf_protocol_env *env, wf_key_state *k)
{
    if (k->role == WF_COPY && !wf_key_is(k, WF_KEY_ASKED) &&
        env->parked(env->ctx, k->key) > 0) {
        wf_protocol_ask(env, k);
    }
}

void wf_protocol_resume(const wf_protocol_env *env, wf_key_state *k)
{
    wf_message m;

    for (unsigned n = env->parked(env->ctx, k->key); n > 0; n--) {
        if (!env->unpark(env->ctx, k->key, &m)) {
            break;
        }
        dispatch(env, k, &m);
    }
    ask_for_ordered(env, k);
}

void wf_protocol_receive(const wf_protocol_env *env, wf_key_state *k,
                         const wf_message *m)
{
    dispatch(env, k, m);
    ask_for_ordered(env, k);
}

void wf_protocol_intent(const wf_protocol_env *env, wf_key_state *k,
                        bool wanted)
{
    wf_key_clear(k, WF_KEY_WANTED | (wanted ? 0 : WF_KEY_MUST));
    wf_key_mark(k, wanted ? WF_KEY_WANTED : 0);
    env->save(env->ctx, k);
}

static void tick_absent(const wf_protocol_env *env, wf_key_state *k)
{
    if (wf_key_is(k, WF_KEY_WANTED)) {
        wf_protocol_ask_for_row(env, k);
    }
}

static void tick_copy(const wf_protocol_env *env, wf_key_state *k, bool force)
{
    if (force || wf_key_is(k, WF_KEY_REFRESH) || !wf_key_is(k, WF_KEY_WANTED) ||
        env->differs(env->ctx, k)) {
        wf_protocol_ask(env, k);
    }
}

bool wf_protocol_tick(const wf_protocol_env *env, wf_key_state *k, bool force)
{
    if (k->role == WF_OWNER) {
        wf_protocol_refresh(env, k);
        return false;
    }
    if (!wf_key_is(k, WF_KEY_ASKED) || WF_MISTAKE(WF_TWO_SYNCS)) {
        if (k->role == WF_COPY) {
            tick_copy(env, k, force);
        } else {
            tick_absent(env, k);
        }
    }
    return wf_key_is(k, WF_KEY_ASKED);
}
