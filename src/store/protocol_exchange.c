/* SPDX-License-Identifier: Apache-2.0 */
/* SYNC and GRANT as seen by the host that asks.
 *
 * There is one exchange at a time. So a GRANT contains all that this host has
 * sent before, and nothing that it pushed since: those pushes are row - base,
 * and stay visible on top of what is received. A row that the owner sends of
 * its own accord while an exchange is under way may lack what was sent, and is
 * ignored: the GRANT comes behind it and is newer. */
#include "store/protocol_parts.h"

static void exchange_over(wf_key_state *k)
{
    wf_key_clear(k, WF_KEY_ASKED | WF_KEY_CARRIED);
}

static void drop(const wf_protocol_env *env, wf_key_state *k)
{
    uint32_t slot = k->slot;

    k->role = WF_ABSENT;
    k->slot = WF_NO_SLOT;
    wf_key_clear(k, WF_KEY_CLOSING | WF_KEY_LEAVING | WF_KEY_REFRESH);
    env->save(env->ctx, k);
    if (slot != WF_NO_SLOT) {
        env->release(env->ctx, k->key, slot);
    }
}

/* Nobody has the key any more. */
static void grant_gone(const wf_protocol_env *env, wf_key_state *k)
{
    wf_message m;

    exchange_over(k);
    if (k->role == WF_COPY) {
        env->happened(env->ctx, k, WF_LOST);
    }
    drop(env, k);
    env->unpack(env->ctx, k, WEFT_ERR_PEER);
    for (unsigned n = env->parked(env->ctx, k->key); n > 0; n--) {
        if (!env->unpark(env->ctx, k->key, &m)) {
            break;
        }
        if (m.kind == WF_MSG_OP) {
            env->answer(env->ctx, k, &m, WEFT_ERR_PEER);
        } else {
            (void)wf_protocol_forward(env, k, &m);
        }
    }
}

void wf_protocol_ask(const wf_protocol_env *env, wf_key_state *k)
{
    wf_message m = wf_message_new(env, k, WF_MSG_SYNC);
    bool copy = k->role == WF_COPY;
    bool difference = copy && env->differs(env->ctx, k);
    bool ops = copy && env->pack(env->ctx, &m);
    bool wants = wf_key_is(k, WF_KEY_WANTED) && k->slot != WF_NO_SLOT;
    bool current = copy && !wf_key_is(k, WF_KEY_REFRESH);

    k->serial = env->serial(env->ctx);
    m.serial = k->serial;
    m.version = k->version;
    m.copy_epoch = k->epoch;
    m.flags = (uint16_t)((wants ? WF_MSG_WANTS : 0) |
                         (wf_key_is(k, WF_KEY_MUST) ? WF_MSG_MUST : 0) |
                         (current ? WF_MSG_HAS_COPY : 0) |
                         (difference ? WF_MSG_DIFFERENCE : 0) |
                         (ops ? WF_MSG_OPS : 0));
    wf_key_clear(k, WF_KEY_CARRIED | WF_KEY_REFRESH);
    wf_key_mark(k, WF_KEY_ASKED | (difference || ops ? WF_KEY_CARRIED : 0));
    /* Before the difference is taken: a successor must know of it. */
    env->save(env->ctx, k);
    if (difference) {
        env->put_difference(env->ctx, k, &m);
    }
    if (!wf_protocol_route(env, k, &m)) {
        grant_gone(env, k);
    }
}

bool wf_protocol_ask_for_row(const wf_protocol_env *env, wf_key_state *k)
{
    k->slot = env->reserve(env->ctx, k->key);
    if (k->slot == WF_NO_SLOT) {
        env->happened(env->ctx, k, WF_REFUSED);
        return false;
    }
    wf_protocol_ask(env, k);
    return true;
}

/* Drop a copy or a reserved slot, and tell the owner so if it may count on a
 * copy here. Operations that the owner has done, and the copy lacks, are over
 * now. */
static void drop_and_tell(const wf_protocol_env *env, wf_key_state *k)
{
    bool again = wf_key_is(k, WF_KEY_REFRESH);

    drop(env, k);
    env->unpack(env->ctx, k, WEFT_OK);
    if (again) {
        wf_protocol_ask(env, k);
    } else {
        wf_protocol_resume(env, k);
    }
}

/* The owner does not count on this copy any more. What was pushed to it since
 * the SYNC must go to the owner before it is dropped. If it is wanted again, it
 * needs the row: it may lack operations that the owner has done for this
 * host. */
static void leave(const wf_protocol_env *env, wf_key_state *k)
{
    if (wf_key_is(k, WF_KEY_WANTED)) {
        wf_key_mark(k, WF_KEY_REFRESH);
        if (WF_MISTAKE(WF_ANSWERS_BEFORE_COPY_HAS_IT)) {
            env->unpack(env->ctx, k, WEFT_OK);
        }
        wf_protocol_ask(env, k);
        return;
    }
    wf_key_mark(k, WF_KEY_CLOSING);
    env->save(env->ctx, k);
    if (env->differs(env->ctx, k) && !WF_MISTAKE(WF_DROPS_UNSENT_PUSHES)) {
        wf_key_clear(k, WF_KEY_CLOSING);
        wf_protocol_ask(env, k);
        return;
    }
    env->happened(env->ctx, k, WF_EXPIRED);
    drop_and_tell(env, k);
}

static void grant_none(const wf_protocol_env *env, wf_key_state *k,
                       const wf_message *m)
{
    exchange_over(k);
    wf_key_learn(k, m->owner, m->epoch);
    if (k->epoch == m->copy_epoch && k->role == WF_ABSENT) {
        /* Nothing was heard since the SYNC: whatever it seems, it is later. */
        k->owner = m->owner;
        k->epoch = m->epoch;
    }
    if (k->role == WF_ABSENT) {
        drop_and_tell(env, k);
        return;
    }
    /* What was packed is answered when the copy has it or is dropped. */
    wf_key_mark(k, WF_KEY_LEAVING);
    env->save(env->ctx, k);
    wf_protocol_resume(env, k);
    if (!wf_key_is(k, WF_KEY_ASKED)) {
        leave(env, k);
    }
}

static void grant_copy(const wf_protocol_env *env, wf_key_state *k,
                       const wf_message *m)
{
    bool fresh = k->role != WF_COPY;

    exchange_over(k);
    wf_key_clear(k, WF_KEY_LEAVING);
    k->owner = m->owner;
    k->epoch = m->epoch;
    k->version = m->version;
    if (wf_message_is(m, WF_MSG_ROW)) {
        env->land_copy(env->ctx, k, m, fresh);
    }
    k->role = WF_COPY;
    env->save(env->ctx, k);
    if (fresh) {
        env->happened(env->ctx, k, WF_COPIED_IN);
    }
    env->unpack(env->ctx, k, WEFT_OK);
    wf_protocol_resume(env, k);
}

/* A row that was not asked for, or in an exchange that was given up. */
static void grant_unasked(const wf_protocol_env *env, wf_key_state *k,
                          const wf_message *m)
{
    bool asked =
        wf_key_is(k, WF_KEY_ASKED) && !WF_MISTAKE(WF_REFRESH_WHILE_ASKED);

    if (k->role == WF_ABSENT) {
        wf_key_learn(k, m->owner, m->epoch);
    }
    if (m->grant != WF_GRANT_COPY) {
        return;
    }
    if (asked) {
        /* An exchange that was given up has overtaken the one under way, and
         * may have left the owner with a wrong idea: it answers it, or counts
         * on a copy that is not here. */
        wf_key_mark(k, m->serial != 0 || k->role == WF_ABSENT ? WF_KEY_REFRESH
                                                              : 0);
        env->save(env->ctx, k);
        return;
    }
    if (k->role == WF_COPY && k->epoch == m->epoch) {
        /* Rows of one owner come in the order in which it sent them. */
        if (wf_message_is(m, WF_MSG_ROW)) {
            k->version = m->version;
            env->land_copy(env->ctx, k, m, false);
            env->save(env->ctx, k);
        }
    } else if (k->role == WF_ABSENT && !(wf_key_is(k, WF_KEY_WANTED) &&
                                         wf_protocol_ask_for_row(env, k))) {
        /* The owner counts on a copy that is not here: say so. */
        wf_protocol_ask(env, k);
    }
}

/* There is no room any more: only after a death, when this GRANT answers a SYNC
 * that was given up. */
static void give_back(const wf_protocol_env *env, wf_key_state *k,
                      const wf_message *m)
{
    wf_message back = wf_message_new(env, k, WF_MSG_RETURN);

    k->owner = m->from;
    k->epoch = (uint16_t)(m->epoch + 1);
    back.epoch = k->epoch;
    env->save(env->ctx, k);
    env->send(env->ctx, m->from, &back);
}

static void become_owner(const wf_protocol_env *env, wf_key_state *k,
                         const wf_message *m)
{
    env->land_owner(env->ctx, k, m, k->role != WF_COPY);
    k->role = WF_OWNER;
    k->owner = (uint16_t)env->host;
    k->epoch = m->epoch;
    k->before = m->from;
    k->wants = (wf_hosts){{0}};
    k->behind = (wf_hosts){{0}};
    k->version = env->version(env->ctx, k);
    exchange_over(k);
    wf_key_clear(k, WF_KEY_LEAVING | WF_KEY_REFRESH | WF_KEY_MUST);
    if (!wf_hosts_has(&env->gone, k->before)) {
        wf_key_mark(k, WF_KEY_UNSETTLED);
    }
    env->save(env->ctx, k);
    env->happened(env->ctx, k, WF_MOVED_IN);
}

static void grant_own(const wf_protocol_env *env, wf_key_state *k,
                      const wf_message *m)
{
    uint32_t home = env->home(env->ctx, k->key);
    bool late = !wf_epoch_later(m->epoch, k->epoch);

    if (late && !WF_MISTAKE(WF_LANDS_TWICE)) {
        /* It was sent once more because a server died, and has landed. */
        wf_message news = wf_message_new(env, k, WF_MSG_NEWS);
        news.flags = WF_MSG_CONFIRM;
        env->send(env->ctx, m->from, &news);
        return;
    }
    if (k->slot == WF_NO_SLOT) {
        k->slot = env->reserve(env->ctx, k->key);
    }
    if (k->slot == WF_NO_SLOT) {
        give_back(env, k, m);
        return;
    }
    become_owner(env, k, m);
    wf_protocol_tell(env, k, k->before, WF_MSG_CONFIRM);
    if (home != k->before || wf_hosts_has(&env->gone, home)) {
        wf_protocol_tell_home(env, k);
    }
    if (m->serial == k->serial) {
        env->unpack(env->ctx, k, WEFT_OK);
    }
    wf_protocol_resume(env, k);
}

bool wf_protocol_possible(const wf_key_state *k, const wf_message *m)
{
    if (m->kind != WF_MSG_GRANT) {
        return true;
    }
    if (m->grant == WF_GRANT_OWN) {
        /* A host that owns a key, or keeps its row for the owner, is given it
         * once more only by one that has not heard that it got it. */
        return !wf_epoch_later(m->epoch, k->epoch) ||
               (k->role != WF_OWNER && k->kept == WF_NO_SLOT);
    }
    if (m->grant == WF_GRANT_COPY && wf_key_is(k, WF_KEY_ASKED) &&
        m->serial == k->serial) {
        return k->role == WF_COPY ||
               (k->slot != WF_NO_SLOT && wf_message_is(m, WF_MSG_ROW));
    }
    return true;
}

void wf_protocol_grant(const wf_protocol_env *env, wf_key_state *k,
                       const wf_message *m)
{
    if (m->grant == WF_GRANT_OWN) {
        grant_own(env, k, m);
    } else if (!wf_key_is(k, WF_KEY_ASKED) || m->serial != k->serial) {
        grant_unasked(env, k, m);
    } else if (m->grant == WF_GRANT_COPY) {
        grant_copy(env, k, m);
    } else if (m->grant == WF_GRANT_NONE) {
        grant_none(env, k, m);
    } else {
        grant_gone(env, k);
    }
}
