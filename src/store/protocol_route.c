/* SPDX-License-Identifier: Apache-2.0 */
/* Directory words, and where a message goes next.
 *
 * Whoever sends a message to the owner it knows marks it with that owner's
 * epoch. A receiver that is not the owner either hears of a later epoch than it
 * knows: then the row is on its way to it, and the message waits for it. Or it
 * has given the key away, and sends the message to the home. The home, and
 * whoever gets it from there, sends it to the owner it knows, and from there on
 * each hop is to a later epoch. So a message is forwarded at most twice (to the
 * home, and from there to the owner), and once more for each move of the key
 * that the home had not heard of when the message passed it. */
#include "store/protocol_parts.h"

bool wf_hosts_other(const wf_hosts *set, uint32_t host)
{
    wf_hosts others = *set;
    uint64_t any = 0;

    if (host < WF_HOSTS_MAX) {
        wf_hosts_remove(&others, host);
    }
    for (unsigned i = 0; i < WF_HOSTS_MAX / 64; i++) {
        any |= others.word[i];
    }
    return any != 0;
}

void wf_key_init(wf_key_state *k, uint64_t key, uint32_t host, uint32_t home,
                 uint32_t slot)
{
    *k = (wf_key_state){
        .key = key,
        .slot = host == home ? slot : WF_NO_SLOT,
        .kept = WF_NO_SLOT,
        .owner = (uint16_t)home,
        .role = host == home ? WF_OWNER : WF_ABSENT,
    };
}

uint32_t wf_key_word(const wf_key_state *k, uint32_t host)
{
    bool waits = k->role == WF_ABSENT ? wf_key_is(k, WF_KEY_ASKED)
                                      : wf_key_is(k, WF_KEY_CLOSING);

    if (k->role != WF_ABSENT && !waits) {
        return WF_WORD_HERE | k->slot;
    }
    return (waits ? host : k->owner) << 16 | k->epoch;
}

bool wf_key_plain(const wf_key_state *k)
{
    return k->flags == 0 && k->kept == WF_NO_SLOT && k->role != WF_COPY &&
           !wf_hosts_other(&k->wants, WF_HOSTS_MAX);
}

void wf_key_load(wf_key_state *k, uint64_t key, uint32_t word, uint16_t epoch,
                 uint32_t host)
{
    if (word & WF_WORD_HERE) {
        wf_key_init(k, key, host, host, word & ~WF_WORD_HERE);
        k->epoch = epoch;
        return;
    }
    *k = (wf_key_state){
        .key = key,
        .slot = WF_NO_SLOT,
        .kept = WF_NO_SLOT,
        .owner = (uint16_t)wf_word_owner(word),
        .epoch = wf_word_epoch(word),
        .role = WF_ABSENT,
    };
}

uint32_t wf_word_learn(uint32_t now, uint32_t sent, uint32_t owner,
                       uint16_t epoch)
{
    /* An epoch so old that it has wrapped looks later than the truth. But what
     * an answer says is later than the word that its operation went by. */
    if (now == sent || wf_epoch_later(epoch, wf_word_epoch(now))) {
        return owner << 16 | epoch;
    }
    return now;
}

void wf_key_learn(wf_key_state *k, uint32_t owner, uint16_t epoch)
{
    if (wf_epoch_later(epoch, k->epoch) || WF_MISTAKE(WF_NEWS_WITHOUT_EPOCH)) {
        k->owner = (uint16_t)owner;
        k->epoch = epoch;
    }
}

uint32_t wf_protocol_op(wf_message *m, uint64_t key, wf_op_kind op,
                        uint32_t host, uint32_t word)
{
    *m = (wf_message){.key = key,
                      .from = (uint16_t)host,
                      .origin = (uint16_t)host,
                      .kind = WF_MSG_OP,
                      .op = (uint8_t)op};
    if (word & WF_WORD_HERE || wf_word_owner(word) == host ||
        op == WF_OP_LOCALIZE || op == WF_OP_HELD) {
        return host;
    }
    m->flags = WF_MSG_MARKED;
    m->epoch = wf_word_epoch(word);
    return wf_word_owner(word);
}

bool wf_protocol_route(const wf_protocol_env *env, const wf_key_state *k,
                       wf_message *m)
{
    uint32_t home = env->home(env->ctx, k->key);
    bool home_gone = wf_hosts_has(&env->gone, home);
    bool known = !wf_hosts_has(&env->gone, k->owner);
    /* Its own messages a host sends to the owner it knows at once. */
    bool to_owner = m->from == m->origin && m->hops == 0;

    if (env->host == home) {
        m->flags |= WF_MSG_VIA_HOME;
    }
    m->from = (uint16_t)env->host;
    to_owner = to_owner || wf_message_is(m, WF_MSG_VIA_HOME) || home_gone;
    if (known && (to_owner || home == k->owner)) {
        m->flags |= WF_MSG_MARKED;
        m->epoch = k->epoch;
        env->send(env->ctx, k->owner, m);
    } else if (env->host != home && !home_gone &&
               !wf_message_is(m, WF_MSG_VIA_HOME)) {
        m->flags &= (uint16_t)~WF_MSG_MARKED;
        env->send(env->ctx, home, m);
    } else {
        return false;
    }
    return true;
}

/* Nobody has the key any more. False if it is for this host to draw the
 * conclusion: its SYNC has come back. */
static bool route_to_nobody(const wf_protocol_env *env, const wf_key_state *k,
                            const wf_message *m)
{
    wf_message grant = wf_message_new(env, k, WF_MSG_GRANT);

    if (m->kind == WF_MSG_OP) {
        env->answer(env->ctx, k, m, WEFT_ERR_PEER);
        return true;
    }
    grant.grant = WF_GRANT_GONE;
    grant.serial = m->serial;
    if (m->origin != env->host) {
        env->send(env->ctx, m->origin, &grant);
    }
    return m->origin != env->host;
}

bool wf_protocol_forward(const wf_protocol_env *env, const wf_key_state *k,
                         const wf_message *m)
{
    wf_message next = *m;
    bool told = wf_message_is(m, WF_MSG_MARKED) &&
                (wf_epoch_later(m->epoch, k->epoch) ||
                 WF_MISTAKE(WF_PARKS_AT_STALE_HINT));

    if (told && (wf_key_is(k, WF_KEY_ASKED) || k->kept != WF_NO_SLOT ||
                 WF_MISTAKE(WF_PARKS_AT_STALE_HINT))) {
        wf_protocol_park(env, k, m);
        return true;
    }
    next.hops = (uint8_t)(next.hops + (next.hops < UINT8_MAX));
    env->happened(env->ctx, k, WF_FORWARDED);
    return wf_protocol_route(env, k, &next) || route_to_nobody(env, k, m);
}
