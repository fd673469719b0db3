/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the protocol use of each other. */
#ifndef WF_STORE_PROTOCOL_PARTS_H
#define WF_STORE_PROTOCOL_PARTS_H

#include "store/protocol.h"

/* The explorer compiles these files with mistakes that can be switched on, to
 * show that it finds them. In the library there are none. */
#ifdef WF_PROTOCOL_MISTAKES
typedef enum wf_mistake {
    WF_NO_MISTAKE = 0,
    WF_PARKS_AT_STALE_HINT,
    WF_NEWS_WITHOUT_EPOCH,
    WF_FREES_BEFORE_NEWS,
    WF_TWO_SYNCS,
    WF_SETS_COPY_ONLY,
    WF_WANTS_NOT_CLEARED,
    WF_REFRESH_WHILE_ASKED,
    WF_MOVES_DESPITE_COPIES,
    WF_DROPS_UNSENT_PUSHES,
    WF_MOVES_ON_UNSETTLED,
    WF_LANDS_TWICE,
    WF_KEPT_NOT_SENT_AGAIN,
    WF_ANSWERS_BEFORE_COPY_HAS_IT,
    WF_MOVES_TO_OUTDATED,
    WF_OWN_MISTAKES /* of the explorer's env and workers, from here on */
} wf_mistake;
extern int wf_mistake_made;
#define WF_MISTAKE(which) (wf_mistake_made == (which))
#else
#define WF_MISTAKE(which) false
#endif

static inline bool wf_key_is(const wf_key_state *k, unsigned flag)
{
    return (k->flags & flag) != 0;
}

static inline void wf_key_mark(wf_key_state *k, unsigned flags)
{
    k->flags = (uint8_t)(k->flags | flags);
}

static inline void wf_key_clear(wf_key_state *k, unsigned flags)
{
    k->flags = (uint8_t)(k->flags & ~flags);
}

static inline bool wf_message_is(const wf_message *m, unsigned flag)
{
    return (m->flags & flag) != 0;
}

static inline wf_message wf_message_new(const wf_protocol_env *env,
                                        const wf_key_state *k,
                                        wf_message_kind kind)
{
    return (wf_message){.key = k->key,
                        .from = (uint16_t)env->host,
                        .origin = (uint16_t)env->host,
                        .owner = k->owner,
                        .epoch = k->epoch,
                        .kind = (uint8_t)kind};
}

/* Take a later owner for granted. */
void wf_key_learn(wf_key_state *k, uint32_t owner, uint16_t epoch);

/* Let a message wait until something happens to the key. */
void wf_protocol_park(const wf_protocol_env *env, const wf_key_state *k,
                      const wf_message *m);
/* Handle again what waits. */
void wf_protocol_resume(const wf_protocol_env *env, wf_key_state *k);

/* Send an OP or SYNC to the owner that is known, or to the home; one that is
 * forwarded was counted as a hop. False if both are gone. */
bool wf_protocol_route(const wf_protocol_env *env, const wf_key_state *k,
                       wf_message *m);
/* Of a key that is owned elsewhere: park it, or send it on. False if it is a
 * SYNC of this host that nobody can answer. */
bool wf_protocol_forward(const wf_protocol_env *env, const wf_key_state *k,
                         const wf_message *m);

/* Begin an exchange: send a SYNC. Not while one is under way. An absent key
 * that is wanted has its slot reserved. */
void wf_protocol_ask(const wf_protocol_env *env, wf_key_state *k);
/* Reserve a slot and ask for an absent key; false if there is no room. */
bool wf_protocol_ask_for_row(const wf_protocol_env *env, wf_key_state *k);
void wf_protocol_grant(const wf_protocol_env *env, wf_key_state *k,
                       const wf_message *m);

/* At the owner. */
void wf_protocol_sync(const wf_protocol_env *env, wf_key_state *k,
                      const wf_message *m);
/* Send the row that is kept to the new owner, once more. */
void wf_protocol_grant_kept(const wf_protocol_env *env, const wf_key_state *k,
                            uint32_t serial);
/* Send rows to those that are behind. */
void wf_protocol_refresh(const wf_protocol_env *env, wf_key_state *k);
/* Tell a host that this one is the owner. */
void wf_protocol_tell(const wf_protocol_env *env, const wf_key_state *k,
                      uint32_t host, unsigned flags);
/* Tell the home; all hosts if there is none any more. */
void wf_protocol_tell_home(const wf_protocol_env *env, const wf_key_state *k);
/* Become the owner again, of the row that is kept. */
void wf_protocol_take_back(const wf_protocol_env *env, wf_key_state *k);

#endif
