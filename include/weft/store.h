/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter store: keys -> rows of numbers, each kept where it is used.
 *
 * All ranks of a communicator share one store. A key is a number below
 * `keys`, its row a vector whose length is fixed when the store is made. Ranks
 * read rows (pull), add to them (push) and overwrite them (set). Rows that no
 * rank has written are zero.
 *
 * Ranks of one host map the rows of that host: an operation on a key that is
 * there is done in place by the caller, and no other process takes part.
 * Between hosts a key has one owner. Operations on keys of other hosts go
 * there by messages, which is always allowed, and slow. So a worker says what
 * it is going to use: weft_store_intent(keys, start, end) means "I shall use
 * these keys while my clock is in [start, end)". From that alone the store
 * decides, shortly before the start, whether a key moves to the worker's host
 * (nobody else wants it) or is copied to it (somebody does), and when a copy
 * ends. Copies send their differences to the owner and get its row back about
 * a thousand times a second.
 *
 * What is promised
 *   - No push is lost or applied twice, whatever moves meanwhile.
 *   - A row is read and written whole: a pull never sees half of a push.
 *     Several keys of one call are not one transaction.
 *   - A worker's operations on one key take effect in program order, also
 *     asynchronous ones. It sees its own completed operations.
 *   - A key without copies is sequentially consistent. Copies converge; how old
 *     a copy may be is bounded by the time of two rounds, and counted.
 *   - `set` is a set, also of a key with copies: its owner orders it.
 *   - A rank that dies in the middle of a write leaves the row as it was before
 *     that write. Rows of this host stay usable. What needs a host all of whose
 *     ranks are gone fails with WEFT_ERR_PEER, which names them.
 *
 * Threads: a worker is a clock and an order of operations. It may be used by
 * one thread at a time; every thread that wants a clock of its own makes a
 * worker. */
#ifndef WEFT_STORE_H
#define WEFT_STORE_H

#include <weft/request.h>
#include <weft/rows.h>
#include <weft/update.h>

WEFT_BEGIN_DECLS

typedef struct weft_store weft_store;
typedef struct weft_worker weft_worker;

/** What the store may do with a key that is wanted elsewhere. */
typedef enum weft_techniques {
    WEFT_TECHNIQUES_ALL = 0, /* move it, or copy it if others want it too */
    WEFT_REPLICATION_ONLY = 1,
    WEFT_RELOCATION_ONLY = 2
} weft_techniques;

typedef struct weft_store_options {
    size_t size; /* of this struct */
    uint64_t keys;
    uint64_t length;        /* elements of every row, if `lengths` is NULL */
    const int64_t *lengths; /* elements of each row, `keys` of them */
    weft_dtype type;        /* F32, F64, F16, BF16, I32 or I64 */
    weft_techniques techniques;
    /** Pushes are gradients, and this step is taken for each at the owner. The
     * state lies beside the row and goes where it goes. F32, F16 and BF16.
     * NULL: pushes are added. `step` of the struct is not read: Adam counts the
     * steps of each row (LAZY_ADAM). */
    const weft_update *optimizer;
    /** Keys are any int64 numbers, at most `keys` different ones: one more is
     * WEFT_ERR_NOMEM, which names it. A key is made when it is first named.
     * Between hosts the first call of a host that names a key asks its home,
     * and waits for the answer, also where a call returns at once otherwise:
     * one message to each home for all keys of the call. A key whose home is
     * gone and that this host has not named before is WEFT_ERR_PEER. */
    int32_t hashed;
    /** Rows that a host has room for beside those that begin there, for keys
     * that move or are copied to it: a copy takes two, and so does a key that
     * is on its way. 0: as many again; of one host: none. */
    uint64_t cache;
    uint64_t max_keys; /* what resize may reach; less than keys: keys */
    /** Rounds in a second; 0: 1000. Negative: as many as can be. */
    double rounds;
    /** Act on an intent in the next round, however far off its start is. */
    int32_t eager;
    uint64_t seed;  /* of sampling */
    double timeout; /* as long as an operation may wait for other ranks; 0: as
                     * the communicator */
} weft_store_options;

/**
 * Make a store. Collective over `comm`; all ranks pass equal options, else
 * WEFT_ERR_MISMATCH names the rank that differs. Either all ranks get it or
 * none. WEFT_ERR_NOMEM if a host cannot hold its rows. The store keeps what it
 * needs of `comm`, which may be destroyed before it.
 */
WEFT_API weft_status weft_store_create(weft_comm *comm,
                                       const weft_store_options *options,
                                       weft_store **out);

/**
 * Leave the store. On one host it is not collective; with several it waits for
 * all ranks that are alive, which may still need rows of this host. Workers
 * that still exist can only be destroyed. Takes NULL.
 */
WEFT_API void weft_store_destroy(weft_store *store);

/** The properties of a store. */
typedef struct weft_store_info {
    uint64_t keys;
    uint64_t max_keys;
    uint64_t length; /* of every row; 0: they differ */
    weft_dtype type;
    uint32_t hosts;
    uint32_t host; /* the caller's, from 0 */
    int32_t hashed;
} weft_store_info;
WEFT_API void weft_store_describe(const weft_store *store,
                                  weft_store_info *out);

/** Elements of a key's row. WEFT_ERR_INVALID for a key out of range. */
WEFT_API weft_status weft_store_length(const weft_store *store, int64_t key,
                                       uint64_t *out);

/* --- workers -------------------------------------------------------------- */

/** Make a worker of this rank. Its clock is 0. Not collective. */
WEFT_API weft_status weft_worker_create(weft_store *store, weft_worker **out);

/** End a worker. Its intents expire; operations that are not over go on. Takes
 * NULL. */
WEFT_API void weft_worker_destroy(weft_worker *worker);

/* --- access --------------------------------------------------------------- */

/** Keys and the rows that go with them, one after the other in the order of
 * the keys, without gaps; in host memory. */
typedef struct weft_pairs {
    weft_ids keys;   /* WEFT_I32 or WEFT_I64; in any order, also repeated */
    void *values;    /* of the store's type */
    uint64_t length; /* elements of all rows together: it is checked */
} weft_pairs;

/**
 * Copy the rows of the keys to `values`.
 *
 * With `request` NULL the call returns when it is done. Else `*request` is what
 * to wait for, or NULL if it is done, as it is when all keys are on this host;
 * keys and values are borrowed until then.
 *
 * WEFT_ERR_INVALID names the key that is out of range, or the length that does
 * not fit; then nothing was read. WEFT_ERR_PEER if a key's host is gone,
 * WEFT_ERR_TIMEOUT if it does not answer.
 */
WEFT_API weft_status weft_store_pull(weft_worker *worker,
                                     const weft_pairs *pairs,
                                     weft_request **request);

/** Add `values` to the rows (or take a step of the optimizer), as
 * weft_store_pull. A key that is there twice is added to twice; of its two steps
 * of an optimizer either may be taken first, if the key is not on this host.
 * Keys and values are copied before it returns: nothing is borrowed. If the host
 * of a key dies before it has answered, WEFT_ERR_PEER says that the push may or
 * may not have taken place. */
WEFT_API weft_status weft_store_push(weft_worker *worker,
                                     const weft_pairs *pairs,
                                     weft_request **request);

/** Overwrite the rows, as weft_store_push. Of equal keys the last one wins. The
 * state of the optimizer becomes zero. */
WEFT_API weft_status weft_store_set(weft_worker *worker,
                                    const weft_pairs *pairs,
                                    weft_request **request);

/** As weft_store_pull, of keys on this host only: `*local` is 0, and no row was
 * written, if one of them is not, or is a hashed key that this host would have
 * to ask for. Never waits for another host. */
WEFT_API weft_status weft_store_pull_local(weft_worker *worker,
                                           const weft_pairs *pairs, int *local);

/** Bring the keys to this host now, by moving or copying them: an intent that
 * is due at once and lasts as long as the worker. They come as fast as there is
 * room for those on their way; the request is over when all of them are here.
 * WEFT_ERR_NOMEM names one that there is no room for when the others have come
 * (options.cache); these stay. */
WEFT_API weft_status weft_store_localize(weft_worker *worker,
                                         const weft_ids *keys,
                                         weft_request **request);

/* --- intent --------------------------------------------------------------- */

#define WEFT_CLOCK_MAX INT64_MAX

/**
 * This worker will use `keys` while its clock is in [start, end); `end` 0 means
 * start + 1, WEFT_CLOCK_MAX for ever. Returns at once; keys are copied. Of
 * several intents for a key the latest end counts. One that has ended is
 * ignored. WEFT_ERR_INVALID for a key out of range. With one host there is
 * nothing to do.
 */
WEFT_API weft_status weft_store_intent(weft_worker *worker,
                                       const weft_ids *keys, int64_t start,
                                       int64_t end);

/** Advance the worker's clock by one; the new value. */
WEFT_API int64_t weft_worker_advance(weft_worker *worker);
WEFT_API int64_t weft_worker_clock(const weft_worker *worker);

/**
 * Wait until this host has begun two more rounds. Then what was pushed to
 * copies on this host before the call has reached the owners, and intents that
 * were given before it and are due have been acted on. So
 * wait_sync, barrier, wait_sync, barrier shows all earlier pushes of all
 * workers everywhere. WEFT_ERR_PEER if differences were lost with a rank that
 * died, which is named: since the last call of this worker, or before its first
 * one and no other worker of this rank was told.
 */
WEFT_API weft_status weft_store_wait_sync(weft_worker *worker);

/** Wait for all ranks of the store: each calls it once. Collective. */
WEFT_API weft_status weft_store_barrier(weft_store *store);

/* --- sampling ------------------------------------------------------------- */

typedef enum weft_sample_scheme {
    /** Draw when asked to prepare; pull from wherever the keys are. */
    WEFT_SAMPLE_NAIVE = 0,
    /** As NAIVE, with an intent for the keys. */
    WEFT_SAMPLE_PRELOC = 1,
    /** Draw from a pool of `pool` keys of this rank, which is drawn anew after
     * each key of it was used `reuse` times; with an intent. */
    WEFT_SAMPLE_POOL = 2,
    /** Draw when pulling, and take the next key that is on this host: never
     * waits for another host, and changes the distribution. */
    WEFT_SAMPLE_LOCAL = 3
} weft_sample_scheme;

typedef enum weft_distribution {
    WEFT_DRAW_UNIFORM = 0,
    /** P(key) ~ log((key - min + 2) / (key - min + 1)) */
    WEFT_DRAW_LOG_UNIFORM = 1,
    WEFT_DRAW_WEIGHTED = 2, /* as `weights` say */
    WEFT_DRAW_GIVEN = 3     /* `draw` says */
} weft_distribution;

typedef struct weft_sample_options {
    size_t size; /* of this struct */
    weft_sample_scheme scheme;
    weft_distribution distribution;
    int64_t min; /* keys from here */
    int64_t max; /* to below this; 0: all. Hashed stores need it, but GIVEN */
    int32_t distinct; /* no key twice in one sample */
    /** WEIGHTED: max - min of them; copied. A weight of 0 is never drawn. */
    const double *weights;
    /** GIVEN: a key. Called by one thread at a time for each worker; with POOL
     * under a lock, so that it must not use the store. */
    int64_t (*draw)(void *ctx);
    void *ctx;
    uint64_t pool;  /* POOL: keys; 0: 250 */
    uint64_t reuse; /* POOL: how often; 0: 16 */
} weft_sample_options;

/** Say how this store's workers draw, before they do. Not collective; each rank
 * calls it once. WEFT_ERR_INVALID names what does not fit. */
WEFT_API weft_status weft_store_sampling(weft_store *store,
                                         const weft_sample_options *options);

/** Announce that `n` samples will be needed while the clock is in [start, end),
 * as with weft_store_intent. `*id` is at least 1. WEFT_ERR_INVALID if distinct
 * keys are wanted and there are not so many. */
WEFT_API weft_status weft_sample_prepare(weft_worker *worker, uint64_t n,
                                         int64_t start, int64_t end,
                                         int64_t *id);

/** The next `pairs->keys.n` samples: the keys are written to `pairs->keys.at`
 * (WEFT_I64, and that memory is written though the struct says const), their
 * rows to `pairs->values`, whose `length` must be what they take. In portions,
 * until all are used; WEFT_ERR_INVALID for more. LOCAL fails with
 * WEFT_ERR_INVALID if no suitable key is on this host. */
WEFT_API weft_status weft_sample_pull(weft_worker *worker, int64_t id,
                                      const weft_pairs *pairs,
                                      weft_request **request);

/** Let go of what is left of a sample. */
WEFT_API weft_status weft_sample_finish(weft_worker *worker, int64_t id);

/* --- the whole ------------------------------------------------------------ */

/** Save all rows, with the optimizer's state, to one file, which any number of
 * ranks can load. Collective; no rank may write meanwhile. As
 * weft_region_save, a failure leaves an older file as it was. */
WEFT_API weft_status weft_store_save(weft_store *store, const char *path);

/** Load what was saved, by any number of ranks, from a store of the same keys,
 * lengths, type and optimizer, else WEFT_ERR_INVALID names the difference.
 * Collective, as weft_store_save. */
WEFT_API weft_status weft_store_load(weft_store *store, const char *path);

/** Change the number of keys, up to max_keys. Rows that are new are zero, those
 * that go are forgotten, with the intents for them; the others stay where they
 * are. Hashed keys cannot become fewer than there are. Not of stores with
 * `lengths`. Collective, as weft_store_save. WEFT_ERR_NOMEM if a host cannot
 * hold the new rows: then nothing was changed. If a rank dies meanwhile,
 * WEFT_ERR_PEER names it; keys below both numbers are as they were, others may
 * be gone. */
WEFT_API weft_status weft_store_resize(weft_store *store, uint64_t keys);

/** Counted by this rank since creation, or since they were reset; what a host
 * does in rounds is counted by the rank that runs them. */
typedef struct weft_store_stats {
    uint64_t pulls;       /* keys */
    uint64_t pushes;      /* keys, set ones included */
    uint64_t local_pulls; /* of these, on this host */
    uint64_t local_pushes;
    uint64_t copy_pulls; /* of the local ones, on copies */
    uint64_t copy_pushes;
    uint64_t owned;    /* keys that this host owns now */
    uint64_t copies;   /* and has copies of, now */
    uint64_t moved_in; /* keys that moved here */
    uint64_t moved_out;
    uint64_t copied_in; /* copies that were made here */
    uint64_t expired;   /* copies that ended */
    uint64_t parked;    /* requests that waited here for a key on its way */
    uint64_t forwarded; /* requests that came here and had to go on */
    uint64_t refused;   /* intents that there was no room for */
    uint64_t repaired;  /* rows that a dead rank was writing */
    uint64_t rounds;
    uint64_t messages; /* sent to other hosts */
    uint64_t bytes;    /* in them */
    double staleness;  /* longest time between two refreshes of a copy */
} weft_store_stats;
WEFT_API void weft_store_count(weft_store *store, weft_store_stats *out);
WEFT_API void weft_store_reset_count(weft_store *store);

/** Write what happens to `keys` on this host (moves, copies, intents, with
 * times) to a file, a line each, from now on; n = 0: no more. */
WEFT_API weft_status weft_store_trace(weft_store *store, const weft_ids *keys,
                                      const char *path);

WEFT_END_DECLS

#endif
