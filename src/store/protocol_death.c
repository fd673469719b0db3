/* SPDX-License-Identifier: Apache-2.0 */
/* A server or a whole host died.
 *
 * The state of keys outlives a server; messages to it, messages that it had
 * just sent, and what was parked with it may be lost. So whatever such a
 * message could have been is said again in a form that can be heard twice: a
 * row that was given away (its epoch says whether it has landed), the news of
 * an owner, a SYNC without the difference that the last one carried. */
#include "store/protocol_parts.h"

/* The exchange under way may never end: give it up and begin another. What it
 * carried is not sent again, since it may have arrived. */
static void exchange_again(const wf_protocol_env *env, wf_key_state *k)
{
    if (wf_key_is(k, WF_KEY_CARRIED)) {
        env->happened(env->ctx, k, WF_LOST);
    }
    env->unpack(env->ctx, k, WEFT_ERR_PEER);
    /* A copy shows what it has sent; if that is lost, only a row tells. */
    wf_key_mark(k, WF_KEY_REFRESH);
    wf_protocol_ask(env, k);
}

static void owner_tells_again(const wf_protocol_env *env, wf_key_state *k,
                              uint32_t host)
{
    uint32_t home = env->home(env->ctx, k->key);
    bool self = host == env->host;

    if (self) {
        k->behind = k->wants;
        env->save(env->ctx, k);
    } else if (wf_hosts_has(&k->wants, host)) {
        wf_hosts_add(&k->behind, host);
        env->save(env->ctx, k);
    }
    if (wf_key_is(k, WF_KEY_UNSETTLED) && (self || k->before == host)) {
        wf_protocol_tell(env, k, k->before, WF_MSG_CONFIRM);
    }
    if (self || home == host) {
        wf_protocol_tell_home(env, k);
    }
}

/* What a copy that counts sends goes to its owner directly; everything else may
 * have been forwarded to any server. */
static bool may_have_been_at(const wf_protocol_env *env, const wf_key_state *k,
                             uint32_t host)
{
    return host == env->host || k->role != WF_COPY || k->owner == host ||
           wf_key_is(k, WF_KEY_LEAVING);
}

void wf_protocol_server_died(const wf_protocol_env *env, wf_key_state *k,
                             uint32_t host)
{
    bool self = host == env->host;

    wf_key_clear(k, WF_KEY_CLOSING);
    if (k->kept != WF_NO_SLOT && (self || k->owner == host) &&
        !WF_MISTAKE(WF_KEPT_NOT_SENT_AGAIN)) {
        wf_protocol_grant_kept(env, k, 0);
    }
    if (k->role == WF_OWNER) {
        owner_tells_again(env, k, host);
    } else if (wf_key_is(k, WF_KEY_ASKED)) {
        if (may_have_been_at(env, k, host)) {
            exchange_again(env, k);
        }
    } else if (k->role == WF_COPY && (self || k->owner == host)) {
        wf_key_mark(k, WF_KEY_REFRESH);
        env->save(env->ctx, k);
    }
}

/* The owner is gone, and with it the row that counts. */
static void owner_gone(const wf_protocol_env *env, wf_key_state *k)
{
    wf_message gone = wf_message_new(env, k, WF_MSG_GRANT);

    gone.grant = WF_GRANT_GONE;
    gone.serial = k->serial;
    if (k->role == WF_COPY || wf_key_is(k, WF_KEY_ASKED)) {
        wf_key_mark(k, WF_KEY_ASKED);
        wf_protocol_grant(env, k, &gone);
    }
}

void wf_protocol_host_died(const wf_protocol_env *env, wf_key_state *k,
                           uint32_t host)
{
    if (k->kept != WF_NO_SLOT && k->owner == host) {
        if (k->role == WF_COPY) {
            env->happened(env->ctx, k, WF_LOST);
        }
        wf_protocol_take_back(env, k);
    } else if (k->role == WF_OWNER) {
        wf_hosts_remove(&k->wants, host);
        wf_hosts_remove(&k->behind, host);
        if (wf_key_is(k, WF_KEY_UNSETTLED) && k->before == host) {
            wf_key_clear(k, WF_KEY_UNSETTLED);
        }
        env->save(env->ctx, k);
        if (env->home(env->ctx, k->key) == host) {
            wf_protocol_tell_home(env, k);
        }
        wf_protocol_resume(env, k);
    } else if (k->role == WF_COPY && k->owner == host) {
        owner_gone(env, k);
    } else if (wf_key_is(k, WF_KEY_ASKED) && may_have_been_at(env, k, host)) {
        exchange_again(env, k);
    }
}
