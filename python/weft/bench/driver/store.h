/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of store.c, store_hosts.c and store_net.c, which
 * store/library.py calls. Those that return bool say on stderr what failed. */
#ifndef BENCH_STORE_H
#define BENCH_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <weft/weft.h>

/* The most keys of a call. */
#define BENCH_BATCH 10000u

typedef struct bench_store {
    weft_world *world;
    weft_store *store;
    weft_worker *worker;
    weft_region *region;
    float *flat; /* NULL: there is none */
    uint64_t keys;
    uint64_t length;
    const int64_t *ids; /* the list of random keys, of the caller */
    uint64_t count;     /* in the list */
    uint64_t next;      /* of the list */
    float *values;      /* for BENCH_BATCH rows */
    int tcp;            /* to the other rank, while it is open */
} bench_store;

/* What is timed. The ways to read come first. */
enum {
    BENCH_LOOP_GATHER = 0, /* memcpy of each row of the flat array */
    BENCH_GATHER = 1,      /* weft_rows_gather of it, one thread */
    BENCH_PULL = 2,
    BENCH_LOOP_ADD = 3, /* add to each row of the flat array */
    BENCH_PUSH = 4,
    BENCH_PULL_PUSH = 5,
    BENCH_LOOP_AWAITED = 6, /* one key, which depends on the last row */
    BENCH_PULL_AWAITED = 7,
    BENCH_LOOP_BOTH = 8 /* read rows of the flat array, then add to them */
};

/* --- of both files -------------------------------------------------------- */

/* False after it has said what failed. */
bool bench_done(weft_status status, const char *call);
weft_pairs bench_pairs(const bench_store *b, const int64_t *keys, uint64_t n,
                       float *values);
uint64_t bench_now(void); /* ns */
double bench_median(double *sample, size_t n);
/* The next `n` of the list of keys. */
const int64_t *bench_next_keys(bench_store *b, uint64_t n);

/* --- store.c: rows of this host ------------------------------------------- */

/* Join the job that the environment speaks of. NULL: failed. */
bench_store *bench_open(void);
void bench_close(bench_store *b);

/* A store, each host with room for `cache` rows that come to it (0: as weft
 * says), and a flat array of as many rows as there are keys if `flat`.
 * Collective. */
bool bench_make(bench_store *b, uint64_t keys, uint64_t length, uint64_t cache,
                bool flat);
void bench_unmake(bench_store *b);
float *bench_flat(bench_store *b);

/* Give the keys [first, end) other numbers than zero, and the flat array the
 * same ones. */
bool bench_fill(bench_store *b, uint64_t first, uint64_t end, uint64_t seed);

/* The keys of calls to come, which stay the caller's. */
void bench_ids(bench_store *b, const int64_t *ids, uint64_t count);

/* Does everything that is timed do what it should, with the first `n` keys? */
bool bench_check(bench_store *b, uint64_t n);

/* The median time of a call with `n` keys, in ns; negative: it failed. Calls
 * with few keys are timed in groups. */
double bench_time(bench_store *b, int kind, uint64_t n, double ms);

/* --- store_hosts.c: several hosts
 * ----------------------------------------------- */

/* Which of the keys [first, first + n) are on this host: 1, else 0. */
bool bench_where(bench_store *b, uint64_t first, uint64_t n, uint8_t *here);

/* An intent from now until the worker's clock has advanced `ticks` times. */
bool bench_intent(bench_store *b, const int64_t *keys, uint64_t n,
                  int64_t ticks);
void bench_advance(bench_store *b);
bool bench_wait_sync(bench_store *b);
uint64_t bench_copies(bench_store *b); /* that this host has now */

/* The time from an intent for the keys until all are here, in ns; negative: it
 * failed. The intent is then over. */
double bench_until_local(bench_store *b, const int64_t *keys, uint64_t n);

/* `steps` steps, each of which pulls the next `n` keys, computes for
 * `compute_ns` and pushes them; with intents given `ahead` steps before, if
 * that is not 0. The time in ns, and how many of the pulled keys were here.
 * Negative: it failed. */
double bench_stream(bench_store *b, const int64_t *keys, uint64_t steps,
                    uint64_t n, uint64_t ahead, uint64_t compute_ns,
                    uint64_t *local);

/* --- store_net.c: the network itself -------------------------------------- */

/* The median round trip of messages, or over TCP, in ns; the time of a message
 * of a stream, or of one whose sender copies `n` rows together for each; the
 * time of a pull of `n` keys. `depth` are under way, at most
 * 16, and their bytes fit into BENCH_BATCH rows. Negative: it failed. */
double bench_ping(bench_store *b, uint64_t there, uint64_t back,
                  uint64_t times);
double bench_flow(bench_store *b, uint64_t bytes, uint64_t times,
                  uint64_t depth);
double bench_cold(bench_store *b, uint64_t n, uint64_t times, uint64_t depth);
double bench_outstanding(bench_store *b, uint64_t n, uint64_t times,
                         uint64_t depth);
/* `address`: of rank 1. */
bool bench_tcp_open(bench_store *b, const char *address);
void bench_tcp_close(bench_store *b);
double bench_tcp(bench_store *b, uint64_t there, uint64_t back, uint64_t times);

#endif
