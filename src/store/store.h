/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter store inside the library; docs/design/0013-store.md.
 *
 *   create.c   making and ending a store
 *   options.c  its options
 *   check.c    keys and lengths that callers pass
 *   hash.c     keys that are any numbers
 *   access.c   pull, push, set
 *   worker.c   workers and their clocks
 *   sampling.c, sample.c, draw.c  samples, and distributions
 *   file.c, resize.c  saving and loading, the number of keys
 *   stats.c, trace.c  counting, and writing down what happens to keys
 *   show.c     what others see of it on the board
 *   hosts/     keys of several hosts
 */
#ifndef WF_STORE_STORE_H
#define WF_STORE_STORE_H

#include <pthread.h>
#include <weft/store.h>

#include "base/types.h"
#include "comm/comm.h"
#include "store/hash.h"
#include "store/sample.h"
#include "store/slots.h"

/* Keys that were pulled and pushed. */
typedef struct wf_keys_done {
    uint64_t pulls;
    uint64_t pushes;
} wf_keys_done;

typedef struct wf_trace wf_trace;

struct weft_store {
    weft_store_options options; /* those that were given, defaults filled in */
    weft_comm *comm;            /* of all ranks of the store, its own */
    weft_comm *host;            /* of those of this host */
    bool uniform;               /* all rows have options.length elements */
    uint32_t hosts;
    uint32_t number; /* of this host */
    /* Dense numbers of keys are below this: options.keys, or more if the keys
     * are hashed and hosts have given out more of them than others. */
    uint64_t ids;
    _Atomic uint32_t users;  /* the caller, and each worker */
    _Atomic bool closed;     /* weft_store_destroy was called */
    bool optimizes;          /* pushes are gradients */
    uint64_t optimizer_kind; /* 1 + it; 0: none */
    uint64_t lengths_sum;    /* a checksum, where lengths differ; else 0 */
    wf_trace *trace;         /* under world->drive; NULL: no keys are traced */
    weft_comm *alone; /* of this rank: its requests never break for others */
    wf_slots *slots;
    struct wf_store_hosts *remote; /* NULL: there is one host */
    wf_hash *hash;                 /* NULL: keys are not hashed */
    wf_sampler *_Atomic sampler; /* NULL: weft_store_sampling was not called */
    _Atomic uint32_t workers;    /* that were made */
    /* Lost differences that a worker of this rank was told of. */
    _Atomic uint64_t lost_told;
    /* Workers share the writers of their rank. */
    pthread_mutex_t writer[WF_WRITERS];
    /* Its place on the board's shelf, or NULL; and where it counts: there, or
     * in memory of its own. */
    wf_shown_store *shown;
    wf_store_counts *counts;
    wf_store_counts own_counts;
    _Atomic bool meeting; /* a worker notes a hot key */
    /* Workers that live, what those counted that ended, and what all had
     * counted when counting began anew; under `roll`. */
    pthread_mutex_t roll;
    weft_worker *first;
    wf_keys_done ended;
    wf_keys_done start;
};

struct weft_worker {
    weft_store *store;
    weft_worker *next; /* of the same store; under store->roll */
    /* Keys: on the shelf, or in memory of its own. */
    wf_worker_counts *count;
    wf_shown_worker *shown; /* or NULL */
    wf_worker_counts own_count;
    int64_t until_hot; /* keys until the next that is sampled, less 1 */
    uint64_t hot_random;
    uint32_t number; /* among those of its rank */
    uint32_t place;  /* of its clock, among those of its rank */
    int64_t zero;    /* what its clock was at first */
    uint32_t writer;
    _Atomic int64_t own_clock;
    _Atomic int64_t *clock; /* that, or where rounds read it */
    /* Operations by messages, newest first; under world->drive. */
    struct wf_remote *remotes;
    _Atomic uint32_t under_way;
    wf_samples samples;
    uint64_t lost_seen; /* differences that it was told to be lost */
};

/* Show a new store on the board, before it has threads; and not any more. In
 * show.c. */
void wf_store_show(weft_store *store);
void wf_store_hide(weft_store *store);
/* Its keys are others; and, in rounds: what this host has of them. */
void wf_store_show_keys(weft_store *store);
void wf_store_show_owned(weft_store *store);
/* Under store->roll: what ended workers counted has changed. */
void wf_store_show_ended(weft_store *store);
/* Find out which keys are used most, from some that a worker uses. */
void wf_worker_sample(weft_worker *worker, const weft_ids *keys);
static inline void wf_worker_meet(weft_worker *worker, const weft_ids *keys)
{
    worker->until_hot -= (int64_t)keys->n;
    if (__builtin_expect(worker->until_hot < 0, 0)) {
        wf_worker_sample(worker, keys);
    }
}

/* A worker counts for its store from here to there; in stats.c. */
void wf_worker_enroll(weft_worker *worker);
void wf_worker_leave(weft_worker *worker);

/* Among the workers of its host. */
uint32_t wf_worker_index(const weft_worker *worker);

/* The first member of `comm` on the node of member `r`: hosts of a store are
 * numbered in the order of these. */
static inline uint32_t wf_first_on_node(const weft_comm *comm, uint32_t r)
{
    const wf_peer *peer = comm->world->host->peer;
    uint32_t first = 0;

    while (peer[comm->member[first]].node != peer[comm->member[r]].node) {
        first++;
    }
    return first;
}

/* May a worker of this store do anything? WEFT_OK, or why not. */
weft_status wf_store_check(weft_store *store);

/* WEFT_OK if `own` is WEFT_OK on all ranks; else all get the failure of the
 * first rank that has one, which its text names. Collective. */
weft_status wf_store_agree(weft_store *store, weft_status own);

/* Options with their defaults, checked; the same on all ranks, or which differs
 * on which rank (collective); a checksum that is 0 for NULL only. */
weft_status wf_store_options_read(const weft_store_options *given,
                                  weft_store_options *o);
weft_status wf_store_options_compare(weft_comm *comm,
                                     const weft_store_options *o);
uint64_t wf_store_checksum(const void *data, size_t n);

void wf_store_retain(weft_store *store);
void wf_store_release(weft_store *store);

/* Keys of a call as the store numbers them. */
#define WF_DENSE_FEW 64
typedef struct wf_dense {
    weft_ids ids;
    int64_t *many; /* NULL: they fit into `few`, or are the caller's */
    int64_t few[WF_DENSE_FEW];
} wf_dense;

/* Check the keys that `who` was called with: the first one that is out of range
 * is named. Hashed keys that are new are entered; where another host would have
 * to be asked that is done with `wait`, else they become -1. Ends with
 * wf_dense_fini, also after a failure. */
weft_status wf_dense_init(wf_dense *dense, weft_store *store, const char *who,
                          const weft_ids *keys, bool wait);
void wf_dense_fini(wf_dense *dense);

/* How many hashed keys each host has given numbers, an array to free, and all
 * together. Collective. */
weft_status wf_store_made(weft_store *store, uint64_t **made, uint64_t *all);

/* What the caller calls a key. */
int64_t wf_store_name(const weft_store *store, uint64_t key);

/* How many of `keys` keys begin at a host. */
static inline uint64_t wf_keys_at(const weft_store *store, uint32_t host,
                                  uint64_t keys)
{
    return (keys + store->hosts - 1 - host) / store->hosts;
}

/* Bytes of a key's row, without the optimizer's state. */
static inline uint64_t wf_store_row_bytes(const weft_store *store, uint64_t key)
{
    return wf_slots_length(store->slots, key) *
           wf_dtype_bytes(store->options.type);
}

/* Is [start, end) a window of a clock? */
weft_status wf_store_check_window(const char *who, int64_t start, int64_t end);

/* Elements of all their rows together. */
uint64_t wf_store_length_of(const weft_store *store, const weft_ids *keys);

/* Do values of this length go with the keys? */
weft_status wf_store_check_length(const weft_store *store, const char *who,
                                  const weft_ids *keys,
                                  const weft_pairs *pairs);

/* Write down what happened to a key, if it is traced; under world->drive. */
void wf_trace_event(const weft_store *store, uint64_t key, const char *what);
void wf_trace_close(weft_store *store);

/* What a server counts. */
struct wf_key_state;
void wf_store_happened(weft_store *store, const struct wf_key_state *k,
                       int what);
/* A copy was refreshed that was so old. */
void wf_store_stale(weft_store *store, uint64_t ns);

static inline void wf_count(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

/* For what is mostly none. */
static inline void wf_count_some(_Atomic uint64_t *counter, uint64_t by)
{
    if (__builtin_expect(by != 0, 0)) {
        wf_count(counter, by);
    }
}

#endif
