/* SPDX-License-Identifier: Apache-2.0 */
/* SYNC as seen by the owner: it takes the difference and the operations, and
 * decides whether the key moves to the host that asks, is copied to it, or
 * neither. */
#include <assert.h>

#include "store/protocol_parts.h"

void wf_protocol_tell(const wf_protocol_env *env, const wf_key_state *k,
                      uint32_t host, unsigned flags)
{
    wf_message m = wf_message_new(env, k, WF_MSG_NEWS);

    m.flags = (uint16_t)flags;
    if (!wf_hosts_has(&env->gone, host)) {
        env->send(env->ctx, host, &m);
    }
}

void wf_protocol_tell_home(const wf_protocol_env *env, const wf_key_state *k)
{
    uint32_t home = env->home(env->ctx, k->key);

    if (!wf_hosts_has(&env->gone, home)) {
        if (home != env->host) {
            wf_protocol_tell(env, k, home, 0);
        }
        return;
    }
    for (uint32_t host = 0; host < env->hosts; host++) {
        if (host != env->host) {
            wf_protocol_tell(env, k, host, 0);
        }
    }
}

static wf_grant decide(const wf_protocol_env *env, const wf_key_state *k,
                       const wf_message *m)
{
    bool wanted = wf_key_is(k, WF_KEY_WANTED);

    if (!wf_message_is(m, WF_MSG_WANTS)) {
        return WF_GRANT_NONE;
    }
    if (env->techniques == WEFT_RELOCATION_ONLY) {
        /* The key stays where it is wanted, so that it is not sent to and fro
         * in every round. */
        return wanted && !wf_message_is(m, WF_MSG_MUST) ? WF_GRANT_NONE
                                                        : WF_GRANT_OWN;
    }
    if (env->techniques == WEFT_REPLICATION_ONLY || wanted) {
        return WF_GRANT_COPY;
    }
    return wf_hosts_other(&k->wants, m->origin) &&
                   !WF_MISTAKE(WF_MOVES_DESPITE_COPIES)
               ? WF_GRANT_COPY
               : WF_GRANT_OWN;
}

/* The host that asks has heard of no move in so long that the next epoch would
 * seem an earlier one to it. The answer tells it; then it asks again. */
static bool is_outdated(const wf_key_state *k, const wf_message *m)
{
    return !wf_epoch_later((uint16_t)(k->epoch + 1), m->copy_epoch) &&
           !WF_MISTAKE(WF_MOVES_TO_OUTDATED);
}

/* All that want the key are behind a change that has not been told. */
static void notice_change(wf_key_state *k, uint32_t version)
{
    if (version != k->version) {
        k->version = version;
        k->behind = k->wants;
    }
}

void wf_protocol_refresh(const wf_protocol_env *env, wf_key_state *k)
{
    wf_hosts behind;
    wf_message m;

    if (!wf_hosts_other(&k->wants, WF_HOSTS_MAX)) {
        return;
    }
    notice_change(k, env->version(env->ctx, k));
    behind = k->behind;
    if (!wf_hosts_other(&behind, WF_HOSTS_MAX)) {
        return;
    }
    k->behind = (wf_hosts){{0}};
    env->save(env->ctx, k);
    for (uint32_t host = 0; host < env->hosts; host++) {
        if (wf_hosts_has(&behind, host)) {
            m = wf_message_new(env, k, WF_MSG_GRANT);
            m.grant = WF_GRANT_COPY;
            m.version = k->version;
            m.flags = WF_MSG_ROW;
            env->put_row(env->ctx, k, k->slot, &m);
            env->send(env->ctx, host, &m);
        }
    }
}

static void answer_none(const wf_protocol_env *env, wf_key_state *k,
                        const wf_message *sync)
{
    wf_message m = wf_message_new(env, k, WF_MSG_GRANT);

    if (!WF_MISTAKE(WF_WANTS_NOT_CLEARED)) {
        wf_hosts_remove(&k->wants, sync->origin);
        wf_hosts_remove(&k->behind, sync->origin);
    }
    env->save(env->ctx, k);
    m.serial = sync->serial;
    m.copy_epoch = sync->copy_epoch;
    m.grant = WF_GRANT_NONE;
    env->send(env->ctx, sync->origin, &m);
}

/* Does a copy whose SYNC has just been merged have the row of this version?
 * Then nothing but its own difference was written since it had the row. */
static bool is_same(const wf_key_state *k, const wf_message *sync,
                    uint32_t version)
{
    uint32_t own = wf_message_is(sync, WF_MSG_DIFFERENCE) ? 1 : 0;

    return wf_message_is(sync, WF_MSG_HAS_COPY) &&
           !wf_message_is(sync, WF_MSG_OPS) && sync->copy_epoch == k->epoch &&
           version == sync->version + own;
}

/* The copy is told which version it has. Workers of this host write to the row
 * at any time, so that the version is read once, and before the row: a copy
 * that has more than it was told only gets it again. */
static void answer_copy(const wf_protocol_env *env, wf_key_state *k,
                        const wf_message *sync)
{
    uint32_t version = env->version(env->ctx, k);
    bool same = is_same(k, sync, version);
    wf_message m = wf_message_new(env, k, WF_MSG_GRANT);

    notice_change(k, version);
    wf_hosts_add(&k->wants, sync->origin);
    wf_hosts_remove(&k->behind, sync->origin);
    env->save(env->ctx, k);
    m.serial = sync->serial;
    m.grant = WF_GRANT_COPY;
    m.version = k->version;
    if (!same) {
        m.flags = WF_MSG_ROW;
        env->put_row(env->ctx, k, k->slot, &m);
    }
    env->send(env->ctx, sync->origin, &m);
}

void wf_protocol_grant_kept(const wf_protocol_env *env, const wf_key_state *k,
                            uint32_t serial)
{
    wf_message m = wf_message_new(env, k, WF_MSG_GRANT);

    m.serial = serial;
    m.grant = WF_GRANT_OWN;
    m.flags = WF_MSG_ROW;
    env->put_row(env->ctx, k, k->kept, &m);
    env->send(env->ctx, k->owner, &m);
}

/* The row stays here until the new owner has it, and only the new owner can
 * give the key away again, which it does not do before it knows that the row is
 * forgotten here. So at most one row of a key is kept, at the owner before. */
static void move(const wf_protocol_env *env, wf_key_state *k,
                 const wf_message *sync)
{
    assert(k->kept == WF_NO_SLOT);
    k->kept = k->slot;
    k->slot = WF_NO_SLOT;
    k->role = WF_ABSENT;
    k->owner = sync->origin;
    k->epoch = (uint16_t)(k->epoch + 1);
    k->wants = (wf_hosts){{0}};
    k->behind = (wf_hosts){{0}};
    wf_key_clear(k, ~(unsigned)(WF_KEY_WANTED | WF_KEY_MUST));
    /* From here on no worker of this host writes to the row. */
    env->save(env->ctx, k);
    env->happened(env->ctx, k, WF_MOVED_OUT);
    wf_protocol_grant_kept(env, k, sync->serial);
    if (WF_MISTAKE(WF_FREES_BEFORE_NEWS)) {
        env->release(env->ctx, k->key, k->kept);
        k->kept = WF_NO_SLOT;
        env->save(env->ctx, k);
    }
}

/* This host has become the owner while its own SYNC was under way. */
static void sync_own(const wf_protocol_env *env, wf_key_state *k,
                     const wf_message *m)
{
    env->merge(env->ctx, k, m);
    if (m->serial == k->serial) {
        env->unpack(env->ctx, k, WEFT_OK);
    }
}

/* Its own SYNC has come back, for the last host that had the key is gone. */
static void sync_gone(const wf_protocol_env *env, wf_key_state *k,
                      const wf_message *m)
{
    wf_message gone = wf_message_new(env, k, WF_MSG_GRANT);

    gone.grant = WF_GRANT_GONE;
    gone.serial = m->serial;
    wf_protocol_grant(env, k, &gone);
}

void wf_protocol_sync(const wf_protocol_env *env, wf_key_state *k,
                      const wf_message *m)
{
    wf_grant grant;

    if (k->role != WF_OWNER) {
        if (!wf_protocol_forward(env, k, m)) {
            sync_gone(env, k, m);
        }
        return;
    }
    if (m->origin == env->host) {
        sync_own(env, k, m);
        return;
    }
    if (wf_hosts_has(&env->gone, m->origin)) {
        env->merge(env->ctx, k, m);
        return;
    }
    grant = decide(env, k, m);
    if (grant == WF_GRANT_OWN && is_outdated(k, m)) {
        grant = WF_GRANT_NONE;
    }
    if (grant == WF_GRANT_OWN && wf_key_is(k, WF_KEY_UNSETTLED) &&
        !WF_MISTAKE(WF_MOVES_ON_UNSETTLED)) {
        wf_protocol_park(env, k, m);
        return;
    }
    env->merge(env->ctx, k, m);
    if (grant == WF_GRANT_NONE) {
        answer_none(env, k, m);
    } else if (grant == WF_GRANT_COPY) {
        answer_copy(env, k, m);
    } else {
        move(env, k, m);
    }
}

void wf_protocol_take_back(const wf_protocol_env *env, wf_key_state *k)
{
    uint32_t slot = k->slot;

    k->slot = k->kept;
    k->kept = WF_NO_SLOT;
    k->role = WF_OWNER;
    k->owner = (uint16_t)env->host;
    k->epoch = (uint16_t)(k->epoch + 1);
    k->wants = (wf_hosts){{0}};
    k->behind = (wf_hosts){{0}};
    k->version = env->version(env->ctx, k);
    wf_key_clear(k, ~(unsigned)(WF_KEY_WANTED | WF_KEY_MUST));
    env->save(env->ctx, k);
    if (slot != WF_NO_SLOT) {
        env->release(env->ctx, k->key, slot);
    }
    wf_protocol_tell_home(env, k);
    env->unpack(env->ctx, k, WEFT_ERR_PEER);
    wf_protocol_resume(env, k);
}
