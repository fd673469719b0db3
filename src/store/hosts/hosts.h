/* SPDX-License-Identifier: Apache-2.0 */
/* A store over several hosts: this rank's part in it.
 *
 *   book.[ch]    what the ranks of a host share
 *   active.[ch]  keys that something is going on with
 *   wire.c       messages in parcels, one after the other
 *   bulk*.[ch]   operations on many keys, without a message for each
 *   serve.c      the server: the protocol's functions done with real messages
 *   rows.c       and with real rows
 *   held.c       events that wait for a row which somebody holds
 *   room.c       keys that are localized and wait for room
 *   arrive.c     parcels that come in
 *   intent.c     what workers will use
 *   round.c      rounds
 *   death.c      servers that die, and taking over
 *   token.c      operations that are under way, by token
 *   remote.c     a worker's operations on keys of other hosts
 *   order.c      and their order; waiting for rounds
 *   names.c      the numbers of hashed keys
 *   ask.c        questions for them
 *   resize.c     another number of keys
 *
 * All of it, but for what says otherwise, is touched under world->drive. */
#ifndef WF_STORE_HOSTS_HOSTS_H
#define WF_STORE_HOSTS_HOSTS_H

#include "comm/request.h"
#include "store/hosts/active.h"
#include "store/hosts/book.h"
#include "store/parcel.h"
#include "store/protocol.h"
#include "store/store.h"
#include "store/window.h"

/* --- messages on the wire ------------------------------------------------- */

/* Kinds of parcels. */
enum {
    WF_PARCEL_ENTRIES = 1, /* `count` entries, each with its data */
    /* From a worker to its server: `count` keys of an intent of worker `token`
     * from `extra` on; the first number of the body is its end. */
    WF_PARCEL_INTENT = 2,
    /* For the dense numbers of `count` hashed keys, and the answer. */
    WF_PARCEL_ASK = 3,
    WF_PARCEL_TELL = 4,
    /* `count` keys of operation `token` of the sender, of kind `extra`, and
     * answers to some of them: see bulk.c. */
    WF_PARCEL_OPS = 5,
    WF_PARCEL_DONE = 6
};

/* Beside the kinds of the protocol: a worker's operation is done; the sender
 * has told of all keys it owns whose home was the host `owner`, which is gone.
 */
#define WF_MSG_ANSWER 100
#define WF_MSG_TOLD 101

/* Data of an entry: a row, or what the kind says. `bytes` of them, and then up
 * to 7 more so that the next entry is aligned. */
typedef struct wf_blob {
    uint64_t bytes;
    unsigned char at[];
} wf_blob;

/* A message as it travels; its data lies behind it. */
typedef struct wf_entry {
    wf_message m;
    uint32_t rank;     /* OP: the worker's rank in the job */
    uint32_t token;    /* OP: which operation of that rank */
    uint32_t position; /* OP: which key of the operation */
    int32_t status;    /* ANSWER; LOCALIZE: number of the worker */
    uint64_t bytes;    /* of its data: with it a wf_blob begins */
} wf_entry;
_Static_assert(sizeof(wf_entry) == 72, "layout");

static inline const wf_blob *wf_entry_blob(const wf_entry *e)
{
    return (const wf_blob *)(const void *)&e->bytes;
}

/* A message that is being handled has `data` pointing to its wf_blob and `tag`
 * to its wf_entry, in memory that stays as long. */
static inline wf_message wf_entry_message(const wf_entry *e)
{
    wf_message m = e->m;

    m.tag = (uintptr_t)e;
    m.data = (uintptr_t)&e->bytes;
    return m;
}

static inline const wf_entry *wf_message_entry(const wf_message *m)
{
    return (const wf_entry *)(uintptr_t)m->tag;
}

static inline const wf_blob *wf_message_blob(const wf_message *m)
{
    return (const wf_blob *)(uintptr_t)m->data;
}

static inline size_t wf_entry_bytes(uint64_t data)
{
    return sizeof(wf_entry) + wf_round_up(data, 8);
}

/* Entries that are to go to one rank. */
typedef struct wf_outbox {
    unsigned char *at;
    size_t bytes;
    size_t room;
    uint32_t count;
    bool listed; /* in wf_store_hosts.unsent */
} wf_outbox;

/* --- a worker's operation ------------------------------------------------- */

typedef struct wf_remote wf_remote;

/* Keys of an operation that go to one host (bulk.h), and those that wait. */
typedef struct wf_share {
    wf_remote *op;
    struct wf_share *before; /* in the line of the host, while it waits */
    struct wf_share *after;
    uint32_t host;
    uint32_t next; /* in the order of the operation: what is sent next */
    uint32_t end;
} wf_share;

/* What this rank's workers have under way to a host (bulk.h), and what waits
 * until there is room. */
typedef struct wf_line {
    uint64_t under_way; /* bytes */
    uint64_t heard_ns;  /* when something last came */
    wf_share *first;
    wf_share *last;
} wf_line;

struct wf_remote {
    wf_op op;               /* behind a request: the first member */
    struct wf_remote *next; /* of its worker */
    weft_request *request;
    weft_worker *worker;
    wf_op_kind kind;
    uint32_t token;
    uint64_t n;
    uint64_t left;    /* keys that are not answered */
    uint64_t *key;    /* n of each of these */
    uint64_t *offset; /* of its row in `values`, in bytes */
    uint32_t *word;   /* the directory's, when it was sent */
    uint32_t *order;  /* for sending: those that go with others (bulk.c) */
    bool *answered;
    bool *bulk;      /* it is under way so */
    wf_share *share; /* by host to which some go so */
    uint32_t shares;
    char *values;    /* the caller's for a pull, else our copy behind these */
    uint64_t since;  /* when something last came, or was sent */
    uint32_t deaths; /* of servers, when it was sent */
    uint32_t agains; /* that were looked at, see wf_store_hosts */
    weft_status status;
    char *text;
};

typedef struct wf_op_place {
    wf_remote *op; /* NULL: it is free */
    uint32_t uses;
} wf_op_place;

typedef struct wf_ask wf_ask;

/* --- intents -------------------------------------------------------------- */

typedef struct wf_intent {
    int64_t start;
    int64_t end;
    uint64_t n;
    uint64_t key[];
} wf_intent;

/* Intents, the one with the smallest number first: a heap. */
typedef struct wf_intent_heap {
    struct wf_intent_place {
        int64_t order;
        wf_intent *intent;
    } * at;
    uint64_t n;
    uint64_t room;
} wf_intent_heap;

/* What the server knows of a worker of its host. */
typedef struct wf_worker_view {
    wf_intent_heap later; /* that are not due, by their starts */
    wf_intent_heap due;   /* and have not ended, by their ends */
    wf_window window;
    int64_t first; /* clock of the use of this place that the window is of */
} wf_worker_view;

/* --- this rank's part ----------------------------------------------------- */

typedef struct wf_scratch {
    unsigned char *at;
    size_t bytes;
    size_t room;
} wf_scratch;

struct wf_store_hosts {
    weft_store *store;
    weft_world *world;
    wf_parcel_box box;
    wf_book book;
    uint32_t writer;    /* the server's own */
    uint32_t *server;   /* host -> rank in the job that serves it */
    uint32_t *dead;     /* host -> its last server that died; UINT32_MAX */
    uint32_t *host_of;  /* rank in the job -> its host; others: UINT32_MAX */
    uint32_t alarm;     /* of the board, when servers were last looked at */
    uint32_t deaths;    /* of servers */
    uint32_t last_dead; /* rank in the job */
    /* After a death: when to hear of it again, how long to wait for the next
     * time, and how often that was. */
    uint64_t again_ns;
    uint64_t again_pause;
    uint32_t agains;
    wf_outbox *out;   /* by rank in the job */
    uint32_t *unsent; /* ranks whose outbox is not empty */
    uint32_t unsents;
    /* By host that is gone: those that have told of its keys. */
    wf_hosts *told;
    /* Messages of a server, or to one, whose predecessor is not known here to
     * be dead: what that one sent comes first. */
    wf_waiting_list early;

    /* Operations of this rank's workers that are under way, by token. */
    wf_op_place *op;
    uint32_t ops;
    uint32_t next_op;        /* the first one that is free */
    wf_line *line;           /* by host */
    uint32_t waiting_shares; /* in all of these */

    uint64_t heard_ns; /* when the parcel came that is being read */

    wf_ask *asks;         /* questions of this rank that are under way */
    uint64_t asked_names; /* how many there were */

    uint64_t places[WF_BOOK_WORKERS / 64]; /* of this rank's workers: used */
    wf_worker_view *view;                  /* by rank of the host and worker */
    uint64_t intents;                      /* in all of these */

    /* Of the server. */
    bool serves;
    wf_protocol_env env;
    wf_actives active;
    /* Keys with a SYNC under way: those that the round waits for, which were
     * asked for before it had begun or by it, and later ones. */
    uint64_t asked;
    uint64_t asked_later;
    uint64_t turn;    /* changes when a round begins and when it has begun */
    wf_scratch again; /* keys that the next round looks at */
    bool forced;      /* some of them a round waits for that is begun */
    /* Messages about keys whose rows a worker holds that does not go on. */
    wf_waiting_list held;
    /* Keys that are localized, for which there was no room; and how many keys
     * have slots that are going to be free. */
    wf_waiting_list roomless;
    uint64_t ending;
    bool localizing;       /* a key, in the event that is being handled */
    wf_waiting_list limbo; /* messages that were parked, until the event ends */
    wf_scratch row;        /* data of the message that is being written */
    wf_scratch bulk;       /* a parcel of bulk.c that is being written */
    wf_scratch apart;      /* one of its keys, as a message of its own */
    wf_scratch difference; /* of a SYNC that is being written */
    wf_scratch ops_packed;
    bool rounding;     /* a round is begun and not over */
    uint64_t round_ns; /* when it was begun */
    uint64_t look_ns;  /* when clocks were last looked at */
    uint32_t looks;    /* since the round began, that of its beginning too */
    double action;     /* looks that a round takes, see window.h */
    bool paused;       /* slots are resized: messages of the protocol wait */
    bool resizing;     /* others will forget keys that are gone, too */
    uint64_t idle;     /* rounds since something happened */

    /* The thread of rounds. */
    pthread_t thread;
    pthread_cond_t wake; /* with world->drive */
    bool has_thread;
    bool stop;
};

typedef struct wf_store_hosts wf_store_hosts;

/* Collective over the store: keys get to their homes. */
weft_status wf_hosts_open(weft_store *store);
/* Collective, as far as there are others left. */
void wf_hosts_close(weft_store *store);

static inline uint32_t wf_home_of(const weft_store *store, uint64_t key)
{
    return (uint32_t)(key % store->hosts);
}

/* wire.c: append to what goes to a rank; send everything. An entry's data is
 * copied. */
void wf_out_entry(wf_store_hosts *h, uint32_t rank, const wf_entry *entry,
                  const void *data, uint64_t bytes);
void wf_out_flush(wf_store_hosts *h);
/* Send a parcel of another kind; false if there is no memory to send it. That
 * its receiver died is noticed by death.c. */
bool wf_out_parcel(wf_store_hosts *h, uint32_t rank, const wf_parcel *parcel,
                   const void *body);
/* One whose body `fill` writes, in place where it fits into one message. It is
 * called once, or not at all if the parcel cannot be sent. */
bool wf_out_filled(wf_store_hosts *h, uint32_t rank, const wf_parcel *parcel,
                   wf_am_fill_fn *fill, void *ctx);
/* Free the memory of what has been sent. */
void wf_out_trim(wf_store_hosts *h);
/* The next entry of a parcel's body; NULL if what follows is none. */
const wf_entry *wf_entry_next(const unsigned char **at, size_t *left);
bool wf_scratch_add(wf_scratch *s, const void *data, size_t n);

/* arrive.c: a parcel, or one message of it, that came from a rank of the job */
wf_parcel_fn wf_parcel_arrived;
void wf_entry_arrived(wf_store_hosts *h, uint32_t from, const wf_entry *e);

/* serve.c */
void wf_serve_init(wf_store_hosts *h);
void wf_serve_fini(wf_store_hosts *h);
void wf_serve_load(wf_store_hosts *h, uint64_t key, wf_key_state *k);
/* One event: a message, the begin or end of an intent, a key's part of a round;
 * a server or host that died. */
void wf_serve_entry(wf_store_hosts *h, const wf_entry *e);
void wf_serve_entry_now(wf_store_hosts *h, const wf_entry *e);
/* Look at a key again in the next round; false without memory. */
bool wf_serve_again(wf_store_hosts *h, wf_active *a);
void wf_serve_intent(wf_store_hosts *h, uint64_t key, bool wanted);
void wf_serve_tick(wf_store_hosts *h, uint64_t key, bool force);
void wf_serve_death(wf_store_hosts *h, uint64_t key, uint32_t host, bool whole);
/* Of a server that takes over: what the last one left of this key. */
void wf_serve_adopt(wf_store_hosts *h, wf_active *a, const wf_key_state *k);
void wf_waiting_keep(wf_waiting_list *list, const wf_entry *e, uint64_t tag);
/* The key is not one of the store any more: nothing is left of it here. And if
 * somebody asks for it, who does not know: it is gone. */
void wf_serve_forget(wf_store_hosts *h, uint64_t key);
void wf_serve_refuse(wf_store_hosts *h, const wf_entry *e);

/* held.c: does somebody hold the row of the key, so that an event would have to
 * wait? Then a message is kept, and a key is looked at in the next round; false
 * if they are not, for want of memory. What waited is tried again, or, with
 * `now`, done in any case. */
bool wf_held(const wf_store_hosts *h, const wf_key_state *k);
bool wf_held_entry(wf_store_hosts *h, const wf_key_state *k, const wf_entry *e);
bool wf_held_tick(wf_store_hosts *h, const wf_key_state *k, bool force);
void wf_held_retry(wf_store_hosts *h, bool now);

/* room.c: a key's state changes; its operation may wait for room, in place of
 * being refused; a worker of this host localizes a key, which is an intent,
 * too; those that wait are tried again, outside of events. */
void wf_room_count(wf_store_hosts *h, const wf_key_state *before,
                   const wf_key_state *after);
bool wf_room_wait(wf_store_hosts *h, const wf_message *op);
void wf_room_localize(wf_store_hosts *h, const wf_entry *e);
void wf_room_retry(wf_store_hosts *h);

/* rows.c: the functions of the protocol that touch rows; and a row, locked by
 * the server. */
void wf_rows_serve(wf_protocol_env *env);
void *wf_row_lock(wf_store_hosts *h, uint64_t key, uint32_t slot);
/* Push to or set a row that is here. */
void wf_row_write(wf_store_hosts *h, uint64_t key, wf_op_kind kind,
                  const void *values);
/* The last server may have died while it wrote the base of a copy. */
void wf_rows_mend(wf_store_hosts *h);

/* round.c */
weft_status wf_rounds_start(wf_store_hosts *h);
void wf_rounds_stop(wf_store_hosts *h);
void wf_rounds_wake(wf_store_hosts *h);

/* intent.c: a worker of this rank, by its index, will use these keys: the
 * server is told. */
weft_status wf_intent_tell(wf_store_hosts *h, uint32_t worker, int64_t start,
                           int64_t end, const weft_ids *keys);
/* The server knows that the worker has localized them. */
void wf_intent_remember(wf_store_hosts *h, uint32_t worker,
                        const weft_ids *keys);
/* A worker of this host will. Of a rank that does not serve: one of its own, to
 * be told to the next server. */
void wf_intent_add(wf_store_hosts *h, uint32_t worker, int64_t start,
                   int64_t end, const uint64_t *keys, uint64_t n);
/* As an intent for ever that is acted on at once. */
void wf_intent_now(wf_store_hosts *h, uint32_t worker, uint64_t key);
/* Act on those that are due, and end those that are over. */
void wf_intents_look(wf_store_hosts *h);
/* This rank has become the server; another one has. */
void wf_intents_serve(wf_store_hosts *h);
void wf_intents_repeat(wf_store_hosts *h);
void wf_intents_fini(wf_store_hosts *h);
/* Only keys below store->ids exist now. */
void wf_intents_cut(wf_store_hosts *h);

/* death.c: look for deaths, unless this rank has left the job, so that it
 * neither serves nor sends; the store may outlive its world. */
void wf_hosts_look(wf_store_hosts *h);
bool wf_hosts_left(const wf_store_hosts *h);
/* Messages that waited are read. */
void wf_hosts_read_early(wf_store_hosts *h);
/* What is not answered for so long after a death may be lost with it. */
#define WF_HEAR_AGAIN_NS (500 * WF_MS)
/* Is a host's server dead, which is not known yet? */
bool wf_hosts_dying(const wf_store_hosts *h, uint32_t host);
/* `by` has told of the keys of a host that is gone. */
void wf_hosts_told(wf_store_hosts *h, uint32_t host, uint32_t by);
/* May an owner be known to others of a key whose home is gone? */
bool wf_hosts_untold(const wf_store_hosts *h, uint64_t key);
/* With whom the keys of a host are gone: a rank in the job. */
uint32_t wf_hosts_dead(const wf_store_hosts *h, uint32_t host);
/* "rank 3 (pid 7 on here) died", or "has left the job" */
void wf_hosts_name(const wf_store_hosts *h, uint32_t rank, char *text,
                   size_t room);

/* token.c: give an operation a token, take it away, find it or NULL. */
weft_status wf_token_take(wf_store_hosts *h, wf_remote *r);
void wf_token_give(wf_store_hosts *h, const wf_remote *r);
wf_remote *wf_token_find(const wf_store_hosts *h, uint32_t token);

/* remote.c: wait in place of the thread that answers others, which would have
 * to wake this one. */
weft_status wf_remote_wait(weft_store *store, weft_request *request);
void wf_remote_answer(wf_store_hosts *h, const wf_entry *e);
/* Send key `i` of an operation by a message of its own. */
void wf_remote_send_key(wf_store_hosts *h, wf_remote *r, uint64_t i,
                        wf_op_kind kind);
/* It is over, unless it was before: with this status and text. */
void wf_remote_fail(wf_remote *r, weft_status st, const char *text);
/* Another host has done it for one key, and taught nothing; a pull's row. */
void wf_remote_done(wf_store_hosts *h, wf_remote *r, uint32_t position,
                    const void *row, uint64_t bytes);
weft_status wf_remote_wait_conflicts(weft_worker *worker, const weft_ids *keys);
weft_status wf_remote_begin(weft_worker *worker, wf_op_kind kind,
                            const wf_batch *batch, weft_request **request);
weft_status wf_remote_localize(weft_worker *worker, const weft_ids *keys,
                               weft_request **request);
/* The worker's newest operation that is under way, retained; or NULL. */
weft_request *wf_remote_newest(weft_worker *worker);
weft_status wf_remote_intent(weft_worker *worker, const weft_ids *keys,
                             int64_t start, int64_t end);
weft_status wf_remote_sync(weft_worker *worker);

/* names.c: the dense numbers of hashed keys, as wf_dense_init. */
weft_status wf_names_find(weft_store *store, const char *who,
                          const weft_ids *keys, int64_t *dense, bool wait);
/* A parcel of the kind ASK. */
void wf_names_asked(wf_store_hosts *h, uint32_t from, const wf_parcel *parcel,
                    const int64_t *keys);
/* ask.c: a question with room for n keys; a key of it, or one that every host
 * is to answer, though it is about no key; send it and wait until it is over.
 * What is learnt goes to the table. A parcel of the kind TELL. */
weft_status wf_ask_make(weft_store *store, const char *who, uint64_t n,
                        weft_request **request);
void wf_ask_for(weft_request *request, int64_t key);
void wf_ask_every(weft_request *request);
weft_status wf_ask_wait(weft_store *store, weft_request *request);
void wf_ask_told(wf_store_hosts *h, uint32_t from, const wf_parcel *parcel,
                 const int64_t *dense);
/* names.c: wait until all servers have read what this rank sent them before. */
weft_status wf_hosts_flush(weft_store *store, const char *who);

/* open.c: the keys from `from` to below `to` get to their homes, on the rank
 * that serves. */
weft_status wf_hosts_settle(weft_store *store, uint64_t from, uint64_t to);

/* resize.c: as wf_hosts_settle for the keys that are new, or forget those that
 * go. All ranks of the store call it; the number of dense keys is `ids` then.
 */
weft_status wf_hosts_resize(weft_store *store, uint64_t ids);
void wf_hosts_cut(weft_store *store, uint64_t ids, uint64_t until);
/* This rank has failed to resize the store, and others of its host may not
 * know. */
void wf_hosts_give_up(weft_store *store, weft_status st);

#endif
