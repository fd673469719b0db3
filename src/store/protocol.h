/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol between the hosts of a store: who owns a key, who has a copy,
 * and what is done with each message and each intent.
 *
 * It is pure: it has no memory, lock or clock of its own, and never sees a row.
 * The caller (a host's server) loads the state of one key, calls the function
 * of the event that happened, and everything that must be done is done through
 * the functions of wf_protocol_env. The store implements those with shared
 * memory and messages, tests/explore with small integers, and walks all
 * interleavings. docs/design/0013-store.md, "Between hosts", says why it is so.
 *
 *   protocol.c            operations, intents, rounds
 *   protocol_route.c      directory words, and where a message goes next
 *   protocol_exchange.c   SYNC and GRANT as seen by the host that asks
 *   protocol_owner.c      SYNC as seen by the owner; moves
 *   protocol_death.c      a server or a whole host died
 *
 * Roles of a host for a key
 *   OWNER   has the row that counts.
 *   COPY    has a row and its base, which is what the owner will have when it
 *           has got all differences that were sent. row - base is what was
 *           pushed here and is not sent yet.
 *   ABSENT  has no row, and knows an owner of the past with its epoch.
 * Beside its role a host may keep the row that it gave away, until the new
 * owner has it.
 *
 * One exchange at a time: ASKED is set from a SYNC to its GRANT. A host that is
 * absent, wants the key and has asked has room for the row reserved, and its
 * directory names the host itself as owner: operations of its workers then come
 * to its own server, and wait there for the GRANT.
 *
 * While a host has a copy and the owner counts it among those that want the
 * key, the owner does not give the key to anybody but this host. So a copy's
 * owner never changes, and what the two servers send each other is in order. */
#ifndef WF_STORE_PROTOCOL_H
#define WF_STORE_PROTOCOL_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/store.h>

/* --- sets of hosts -------------------------------------------------------- */

#define WF_HOSTS_MAX 256u /* hosts of a store: a set of them is a bitmap */

typedef struct wf_hosts {
    uint64_t word[WF_HOSTS_MAX / 64];
} wf_hosts;

static inline bool wf_hosts_has(const wf_hosts *set, uint32_t host)
{
    return (set->word[host / 64] >> host % 64 & 1) != 0;
}

static inline void wf_hosts_add(wf_hosts *set, uint32_t host)
{
    set->word[host / 64] |= 1ull << host % 64;
}

static inline void wf_hosts_remove(wf_hosts *set, uint32_t host)
{
    set->word[host / 64] &= ~(1ull << host % 64);
}

/* Is there any but `host` in the set? WF_HOSTS_MAX: is there any at all? */
bool wf_hosts_other(const wf_hosts *set, uint32_t host);

/* --- the state of one key on one host ------------------------------------- */

#define WF_NO_SLOT UINT32_MAX

typedef enum wf_role { WF_ABSENT = 0, WF_COPY = 1, WF_OWNER = 2 } wf_role;

enum {
    /* A worker here has an intent that is due and has not ended. */
    WF_KEY_WANTED = 1,
    WF_KEY_ASKED = 2,   /* a SYNC is under way */
    WF_KEY_CARRIED = 4, /* and carries a difference or operations */
    /* Somebody localizes it: it is moved here whoever wants it, where keys are
     * only moved. */
    WF_KEY_MUST = 8,
    /* Of a copy: ask for the row in the next round in any case, since what was
     * sent, or what the owner sent, may be lost. */
    WF_KEY_REFRESH = 16,
    /* Of a copy: the owner has heard that this host does not want it any more,
     * and may give it away. Pushes that came late are still to be sent. */
    WF_KEY_LEAVING = 32,
    /* Of a copy that is being dropped: workers are sent to the server, while it
     * looks whether one of them has pushed in the last moment. */
    WF_KEY_CLOSING = 64,
    /* Of an owner: the one before it may still keep the row and become the
     * owner again if this host dies, so the key must not move on yet. */
    WF_KEY_UNSETTLED = 128
};

/* Saved in memory of the host, see env->save. Fixed width, no pointers. */
typedef struct wf_key_state {
    uint64_t key;
    /* OWNER: the version of the row that all but `behind` have been told.
     * COPY: the owner's version that it has. */
    uint32_t version;
    uint32_t slot;   /* of the row; of an absent key that was asked for: the
                      * reserved one; else WF_NO_SLOT */
    uint32_t kept;   /* of the row that was given to `owner`; else WF_NO_SLOT */
    uint32_t serial; /* of the last SYNC */
    uint16_t owner;  /* the last known; this host if it is the owner */
    uint16_t epoch;  /* number of the move that made it the owner */
    uint16_t before; /* UNSETTLED: the owner before */
    uint8_t role;    /* wf_role */
    uint8_t flags;
    wf_hosts wants;  /* OWNER: hosts that want the key, this one apart */
    wf_hosts behind; /* OWNER: those of them that lack `version` */
} wf_key_state;
_Static_assert(sizeof(wf_key_state) == 32 + 2 * sizeof(wf_hosts), "layout");

/* The state of a key nobody has touched. `slot`: of the home; else
 * WF_NO_SLOT. */
void wf_key_init(wf_key_state *k, uint64_t key, uint32_t host, uint32_t home,
                 uint32_t slot);

/* The directory word of a state: 1 << 31 | slot, or owner << 16 | epoch. */
uint32_t wf_key_word(const wf_key_state *k, uint32_t host);

/* Do the directory's word, and of a key that is here the epoch of its slot, say
 * everything? Then no record is needed, and wf_key_load restores the state.
 * Absent keys that nothing is going on with, and owned ones that nobody
 * wants. */
bool wf_key_plain(const wf_key_state *k);
void wf_key_load(wf_key_state *k, uint64_t key, uint32_t word, uint16_t epoch,
                 uint32_t host);

#define WF_WORD_HERE (1u << 31)

static inline uint32_t wf_word_owner(uint32_t word)
{
    return word >> 16 & 0x7fffu;
}

static inline uint16_t wf_word_epoch(uint32_t word)
{
    return (uint16_t)word;
}

/* Is epoch `a` later than `b`? As serial numbers: they wrap. */
static inline bool wf_epoch_later(uint16_t a, uint16_t b)
{
    uint16_t ahead = (uint16_t)(a - b);

    return ahead != 0 && ahead < 0x8000u;
}

/* What an answer teaches: the word that replaces `now`, where `sent` was the
 * word by which the operation was routed. The server, or a worker by
 * compare-and-exchange, puts it there; only for absent keys. */
uint32_t wf_word_learn(uint32_t now, uint32_t sent, uint32_t owner,
                       uint16_t epoch);

/* --- messages ------------------------------------------------------------- */

typedef enum wf_message_kind {
    /* An operation of a worker. To its own server, or to the server of the
     * owner that the directory names; forwarded until it is at the owner, which
     * answers the worker. */
    WF_MSG_OP = 1,
    /* From a host that has no row or a copy: the difference since the last one,
     * operations that the owner must order, and whether the key is wanted.
     * Forwarded until it is at the owner. */
    WF_MSG_SYNC,
    /* The owner's answer, or, with serial 0, a row that it sends of its own
     * accord because others have changed it. */
    WF_MSG_GRANT,
    /* From a new owner, when the row has landed, to the owner before it (with
     * WF_MSG_CONFIRM) and to the home; if that host is gone, to all. */
    WF_MSG_NEWS,
    /* The answer to a NEWS with WF_MSG_CONFIRM: the row that was kept is
     * forgotten. */
    WF_MSG_SETTLED,
    /* The answer to a GRANT of the ownership that there is no room for: the
     * sender is to be the owner again. */
    WF_MSG_RETURN
} wf_message_kind;

typedef enum wf_op_kind {
    WF_OP_PULL = 1,
    WF_OP_PUSH,
    WF_OP_SET,
    /* Bring the key here; answered when it is. Also begins an intent. Only to
     * the worker's own server. */
    WF_OP_LOCALIZE,
    /* A push or set was answered by an owner on another host while the own
     * host's word was not "absent, owned by another host". The copy here may
     * lack it: answered when it cannot any more. Only to the own server. */
    WF_OP_HELD
} wf_op_kind;

typedef enum wf_grant {
    WF_GRANT_NONE = 0, /* not copied: not wanted, or refused */
    WF_GRANT_COPY,     /* a copy, with the row unless it is up to date */
    WF_GRANT_OWN,      /* the ownership, with the row */
    WF_GRANT_GONE      /* nobody has the key any more */
} wf_grant;

enum {
    WF_MSG_MARKED = 1,    /* the receiver is or will be the owner at `epoch` */
    WF_MSG_VIA_HOME = 2,  /* it has been at the home of the key */
    WF_MSG_WANTS = 4,     /* SYNC: the key is (still) wanted */
    WF_MSG_MUST = 8,      /* SYNC: as WF_KEY_MUST */
    WF_MSG_HAS_COPY = 16, /* SYNC: of a copy that has `version` */
    WF_MSG_DIFFERENCE = 32, /* SYNC: carries a difference */
    WF_MSG_OPS = 64,        /* SYNC: carries operations behind it */
    WF_MSG_ROW = 128,       /* GRANT: carries the row */
    WF_MSG_CONFIRM = 256    /* NEWS: answer with SETTLED */
};

/* What the protocol reads and writes of a message. The row, the difference and
 * the values of operations are the env's, which finds them by `data`. */
typedef struct wf_message {
    uint64_t key;
    uint64_t data; /* not read here */
    uint64_t tag;  /* not read here: which operation of which worker */
    uint32_t version;
    uint32_t serial; /* SYNC, GRANT */
    uint16_t flags;
    uint16_t from;   /* the host whose server sent it, or whose worker did */
    uint16_t origin; /* OP: the worker's host; SYNC: the host that asks */
    uint16_t epoch;
    uint16_t owner;      /* GRANT, NEWS: at `epoch` */
    uint16_t copy_epoch; /* SYNC: that the sender knows; GRANT_NONE: the same */
    uint8_t hops;        /* how often it was forwarded; at most 255 */
    uint8_t kind;        /* wf_message_kind */
    uint8_t op;          /* OP: wf_op_kind */
    uint8_t grant;       /* GRANT: wf_grant */
} wf_message;
_Static_assert(sizeof(wf_message) == 48, "layout");

/* The head of an OP that a worker of `host` sends; the host to send it to, or
 * if that host is gone the own one. An operation on a copy that the owner must
 * order (set, and push with an optimizer) goes to the own server: `word` is of
 * a key that is here. */
uint32_t wf_protocol_op(wf_message *m, uint64_t key, wf_op_kind op,
                        uint32_t host, uint32_t word);

/* --- what the caller does ------------------------------------------------- */

/* For counting, tracing and reporting. */
typedef enum wf_happened {
    WF_MOVED_IN,
    WF_MOVED_OUT,
    WF_COPIED_IN, /* from absent */
    WF_EXPIRED,   /* a copy was dropped */
    WF_PARKED,
    WF_FORWARDED,
    WF_REFUSED, /* no room: the key stays where it is */
    WF_LOST     /* a difference may have been lost with a server that died */
} wf_happened;

/* Functions are called from within the events below, by the thread that called
 * the event, and must not call events of the same key. `k` is the state as the
 * protocol has it now; its key says which. */
typedef struct wf_protocol_env {
    void *ctx;
    uint32_t host;
    uint32_t hosts; /* at most WF_HOSTS_MAX */
    weft_techniques techniques;
    bool optimizer; /* pushes are ordered by the owner, as sets are */
    wf_hosts gone;  /* hosts without a living rank */

    uint32_t (*home)(void *ctx, uint64_t key);

    /* Make the state what the host's next server would find, and its word the
     * directory's. Called before anything that depends on it is done: a server
     * that dies inside an event has saved either the state before it, or one
     * from which wf_protocol_server_died goes on. When it returns no worker
     * writes to a slot that the word does not name any more. */
    void (*save)(void *ctx, const wf_key_state *k);

    /* A number for a SYNC: not 0, and none that a SYNC of this host had in the
     * last while, whatever key it was about and whichever server sent it: the
     * record that had the last one may be forgotten. */
    uint32_t (*serial)(void *ctx);

    /* Send it to the server of a host, never this one. */
    void (*send)(void *ctx, uint32_t to, const wf_message *m);
    /* Answer the worker of an OP: it was done (or, with a failure, not). Pulls
     * have been applied before. The answer carries the owner and the epoch of
     * `k` for wf_word_learn. WEFT_ERR_NOMEM: no room for LOCALIZE;
     * WEFT_ERR_PEER: the key is gone with its host. */
    void (*answer)(void *ctx, const wf_key_state *k, const wf_message *op,
                   weft_status status);

    /* Messages that wait for something to happen to the key, first in first
     * out; they may be in private memory. unpark: take the first, false if
     * there is none; parked: how many there are. */
    void (*park)(void *ctx, const wf_message *m);
    bool (*unpark)(void *ctx, uint64_t key, wf_message *out);
    unsigned (*parked)(void *ctx, uint64_t key);
    /* Put copies of all parked OPs of this host's workers (SET, HELD, PUSH)
     * into a SYNC and keep them aside until unpack; false if there are none. */
    bool (*pack)(void *ctx, wf_message *sync);
    /* Answer all that were packed with this status. */
    void (*unpack)(void *ctx, const wf_key_state *k, weft_status status);

    /* Room for a row and a base; WF_NO_SLOT if there is none. */
    uint32_t (*reserve)(void *ctx, uint64_t key);
    void (*release)(void *ctx, uint64_t key, uint32_t slot);

    /* Do an OP on k->slot: read for the answer, add, step, overwrite. */
    void (*apply)(void *ctx, const wf_key_state *k, const wf_message *op);
    /* Owner: add the SYNC's difference, then do its operations in order. */
    void (*merge)(void *ctx, const wf_key_state *k, const wf_message *sync);
    /* Copy: has it been written to, so that row differs from base? */
    bool (*differs)(void *ctx, const wf_key_state *k);
    /* Copy: difference = row - base, base = base + difference, row = base; the
     * two additions as the owner does them, so that the bits are equal. */
    void (*put_difference)(void *ctx, const wf_key_state *k, wf_message *sync);
    /* The row of `slot`, with the optimizer's state if it moves. */
    void (*put_row)(void *ctx, const wf_key_state *k, uint32_t slot,
                    wf_message *grant);
    /* row = received + (row - base), base = received; if the host had no copy
     * (`fresh`): both = received. As owner there is no base any more. */
    void (*land_copy)(void *ctx, const wf_key_state *k, const wf_message *grant,
                      bool fresh);
    void (*land_owner)(void *ctx, const wf_key_state *k,
                       const wf_message *grant, bool fresh);
    /* Owner: counts the writes to the row, and wraps. A difference that is
     * merged is one; workers write between any two calls of these. */
    uint32_t (*version)(void *ctx, const wf_key_state *k);

    void (*happened)(void *ctx, const wf_key_state *k, wf_happened what);
} wf_protocol_env;

/* --- events --------------------------------------------------------------- */

/* Can this message have been sent to a host whose state is this? Messages come
 * from other processes: one that cannot be true is to be dropped. It is not
 * for finding all lies, but those that a host has no room or row for. */
bool wf_protocol_possible(const wf_key_state *k, const wf_message *m);

/* A message came from another server, or an OP from any worker; it is
 * possible. */
void wf_protocol_receive(const wf_protocol_env *env, wf_key_state *k,
                         const wf_message *m);

/* The first intent of this host for the key became due, or the last ended. It
 * is acted on in the next round. */
void wf_protocol_intent(const wf_protocol_env *env, wf_key_state *k,
                        bool wanted);

/* The key's part of a round. Needed for keys that are wanted and absent, copies
 * that were written to or are not wanted any more or have WF_KEY_REFRESH, and
 * owned keys with `wants` that were written to. `force`: ask for a copy in any
 * case, as a round for wait_sync does. True if a SYNC is under way now: the
 * round is over when its GRANT has come (WF_KEY_ASKED is gone). */
bool wf_protocol_tick(const wf_protocol_env *env, wf_key_state *k, bool force);

/* The server of a host died and its next rank takes over; with the own host:
 * the caller has just done so, and what was parked and packed is lost. For all
 * keys that have a record, and those that are owned away from their home. No
 * worker's operations are answered for it: the store fails or repeats those
 * that are under way.
 *
 * To be called twice (and so is the handling of operations that are under way
 * to be done twice): when this host hears of the death, which a message from
 * the next rank says too, and when all hosts have heard of it. Between the two
 * a message may have gone through a host that had not heard of it, to the rank
 * that was dead. */
void wf_protocol_server_died(const wf_protocol_env *env, wf_key_state *k,
                             uint32_t host);

/* The last rank of a host died; env->gone contains it. For all keys that have a
 * record or whose owner it was. */
void wf_protocol_host_died(const wf_protocol_env *env, wf_key_state *k,
                           uint32_t host);

#endif
