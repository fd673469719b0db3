/* SPDX-License-Identifier: Apache-2.0 */
/* A few desks, on which callers lay their jobs, and helpers that look at all of
 * them. Entering and leaving a job is one atomic operation on the desk's gate:
 * with a lock for it, sixteen threads took longer to pass it than to copy four
 * thousand rows.
 *
 * A job's parts are dealt to seats. A helper takes the seat of its own number
 * first, then what is left of the others'.
 *
 * A caller without a free desk does its work alone. One that has a desk closes
 * the gate when no part is left, and waits until the last helper has gone: only
 * then may what the job speaks of go away. The desks themselves stay. */
#include "region/rows/pool.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/num.h"
#include "base/settings.h"
#include "base/thread.h"
#include "base/time.h"

/* A helper that finds nothing to do polls this long before it sleeps, and a
 * caller before it sleeps for its helpers: waking a thread takes as long. */
#define POLL_NS 50000u
/* The clock is looked at once in so many polls. */
#define POLLS 32u
/* Sleepers that one thread wakes; those wake others. */
#define WAKES 2
#define DESKS 8
#define LINE 64

/* The gate: is it open, does the caller sleep until all have left, how many
 * helpers may still enter, and how many are inside. */
#define GATE_OPEN (1u << 31)
#define GATE_SLEEP (1u << 30)
#define GATE_WANTED (1u << 12)
#define GATE_INSIDE_MASK (GATE_WANTED - 1)
#define GATE_WANTED_MASK (GATE_SLEEP - GATE_WANTED)

typedef struct seat {
    _Alignas(LINE) _Atomic uint32_t next; /* the first part nobody has taken */
    uint32_t end;
} seat;

typedef struct desk {
    _Alignas(LINE) _Atomic uint32_t gate;
    _Atomic bool taken; /* by a caller */
    wf_pool_fn *fn;
    void *ctx;
    seat *seats; /* on the caller's stack */
    uint32_t count;
} desk;

static struct {
    desk desks[DESKS];
    _Alignas(LINE) _Atomic uint32_t posts; /* counts jobs; helpers wait on it */
    _Alignas(LINE) _Atomic uint32_t sleepers;
    _Atomic uint32_t count;
    _Atomic bool ending;
    pthread_mutex_t lock; /* while helpers are made */
    pthread_t thread[WF_POOL_MAX];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t threads_by_default;

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int threads)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

/* Poll until the word, as far as the mask shows it, is `value`, or is not;
 * false if that took too long. */
static bool poll_until(_Atomic uint32_t *word, uint32_t mask, bool is,
                       uint32_t value)
{
    uint64_t end = wf_now_ns() + POLL_NS;

    do {
        for (unsigned i = 0; i < POLLS; i++) {
            uint32_t now = atomic_load_explicit(word, memory_order_acquire);

            if (((now & mask) == value) == is) {
                return true;
            }
            wf_cpu_relax();
        }
    } while (wf_now_ns() < end);
    return false;
}

/* --- jobs ---------------------------------------------------------------- */

static void job_work(const desk *d, uint32_t number)
{
    for (uint32_t i = 0; i < d->count; i++) {
        seat *from = &d->seats[(number + i) % d->count];
        uint32_t part;

        while ((part = atomic_fetch_add_explicit(
                    &from->next, 1, memory_order_relaxed)) < from->end) {
            d->fn(d->ctx, part);
        }
    }
}

/* The acquire pairs with the release in job_post: what the caller wrote of the
 * job is seen. A gate that was closed and opened again meanwhile is as good. */
static bool job_enter(desk *d)
{
    uint32_t gate = atomic_load_explicit(&d->gate, memory_order_relaxed);

    while ((gate & GATE_OPEN) != 0 && (gate & GATE_WANTED_MASK) != 0) {
        if (atomic_compare_exchange_weak_explicit(
                &d->gate, &gate, gate - GATE_WANTED + 1, memory_order_acquire,
                memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

/* The release pairs with the acquire in job_wait: what the parts wrote is seen
 * by the caller. */
static void job_leave(desk *d)
{
    uint32_t before =
        atomic_fetch_sub_explicit(&d->gate, 1, memory_order_release);

    if ((before & GATE_INSIDE_MASK) == 1 && (before & GATE_SLEEP) != 0) {
        futex_wake(&d->gate, 1);
    }
}

static void sleepers_wake(void)
{
    if (atomic_load(&pool.sleepers) > 0) {
        futex_wake(&pool.posts, WAKES);
    }
}

/* --- helpers ------------------------------------------------------------- */

/* The count of sleepers goes up before the kernel compares the posts, and a
 * caller looks at it after it has added a post: one of the two sees the
 * other. */
static void helper_sleep(uint32_t seen)
{
    atomic_fetch_add(&pool.sleepers, 1);
    futex_wait(&pool.posts, seen);
    atomic_fetch_sub(&pool.sleepers, 1);
}

/* Help with what is there; false if nothing was. One that has just been woken
 * wakes others first. */
static bool helper_work(uint32_t number, bool woken)
{
    for (int i = 0; i < DESKS; i++) {
        desk *d = &pool.desks[i];

        if (job_enter(d)) {
            if (woken) {
                sleepers_wake();
            }
            job_work(d, number);
            job_leave(d);
            return true;
        }
    }
    return false;
}

static void *helper_main(void *arg)
{
    uint32_t number = (uint32_t)(uintptr_t)arg;
    bool woken = false;

    while (!atomic_load_explicit(&pool.ending, memory_order_acquire)) {
        uint32_t seen = atomic_load_explicit(&pool.posts, memory_order_acquire);

        if (helper_work(number, woken)) {
            woken = false;
        } else if (!poll_until(&pool.posts, UINT32_MAX, false, seen)) {
            helper_sleep(seen);
            woken = true;
        }
    }
    return NULL;
}

static bool helper_start(pthread_t *thread, uint32_t number)
{
    weft_status st = wf_thread_start("a thread for row operations", helper_main,
                                     (void *)(uintptr_t)number, thread);

    if (st != WEFT_OK) {
        wf_log(WEFT_LOG_DEBUG, "%s", weft_error_detail());
    }
    return st == WEFT_OK;
}

static void pool_grow(uint32_t helpers)
{
    pthread_mutex_lock(&pool.lock);
    while (!pool.ending && pool.count < helpers && pool.count < WF_POOL_MAX) {
        if (!helper_start(&pool.thread[pool.count], pool.count + 1)) {
            break;
        }
        pool.count++;
    }
    pthread_mutex_unlock(&pool.lock);
}

static void before_fork(void)
{
    pthread_mutex_lock(&pool.lock);
}

static void after_in_parent(void)
{
    pthread_mutex_unlock(&pool.lock);
}

/* The child has none of the threads, and none of their jobs. */
static void after_in_child(void)
{
    pthread_mutex_init(&pool.lock, NULL);
    memset(pool.desks, 0, sizeof(pool.desks));
    pool.sleepers = 0;
    pool.count = 0;
}

static uint32_t cores_here(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        return 1;
    }
    return (uint32_t)CPU_COUNT(&set);
}

static void pool_init(void)
{
    wf_settings settings;
    uint32_t asked = 0;

    pthread_atfork(before_fork, after_in_parent, after_in_child);
    if (wf_settings_load(NULL, &settings) == WEFT_OK) {
        asked = settings.threads;
    }
    threads_by_default = asked != 0 ? asked : cores_here();
}

/* At exit, or when the library is unloaded. A caller that is at work on another
 * thread finishes by itself. */
__attribute__((destructor)) static void pool_end(void)
{
    uint32_t count;

    pthread_mutex_lock(&pool.lock);
    pool.ending = true;
    count = pool.count;
    pool.count = 0;
    pthread_mutex_unlock(&pool.lock);
    atomic_fetch_add(&pool.posts, 1);
    futex_wake(&pool.posts, INT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(pool.thread[i], NULL);
    }
}

/* --- callers ------------------------------------------------------------- */

static desk *desk_take(void)
{
    for (int i = 0; i < DESKS; i++) {
        if (!atomic_exchange_explicit(&pool.desks[i].taken, true,
                                      memory_order_acquire)) {
            return &pool.desks[i];
        }
    }
    return NULL;
}

static void job_post(desk *d, uint32_t helpers)
{
    if (atomic_load_explicit(&pool.count, memory_order_relaxed) < helpers) {
        pool_grow(helpers);
    }
    atomic_store_explicit(&d->gate, GATE_OPEN | helpers * GATE_WANTED,
                          memory_order_release);
    atomic_fetch_add(&pool.posts, 1);
    sleepers_wake();
}

/* Close the gate, and wait until nobody is inside. */
static void job_wait(desk *d)
{
    uint32_t gate;

    atomic_fetch_and_explicit(&d->gate, GATE_INSIDE_MASK, memory_order_relaxed);
    if (poll_until(&d->gate, GATE_INSIDE_MASK, true, 0)) {
        return;
    }
    gate = GATE_SLEEP |
           atomic_fetch_or_explicit(&d->gate, GATE_SLEEP, memory_order_acquire);
    while ((gate & GATE_INSIDE_MASK) != 0) {
        futex_wait(&d->gate, gate);
        gate = atomic_load_explicit(&d->gate, memory_order_acquire);
    }
}

static void seats_deal(seat *seats, uint32_t count, uint32_t parts)
{
    for (uint32_t i = 0; i < count; i++) {
        seats[i].next = (uint32_t)((uint64_t)parts * i / count);
        seats[i].end = (uint32_t)((uint64_t)parts * (i + 1) / count);
    }
}

/* The caller has seat 0. */
static void job_run(desk *d, uint32_t threads, uint32_t parts)
{
    seat seats[WF_POOL_MAX];

    seats_deal(seats, threads, parts);
    d->seats = seats;
    d->count = threads;
    job_post(d, threads - 1);
    job_work(d, 0);
    job_wait(d);
    d->seats = NULL;
}

void wf_pool_run(uint32_t threads, uint32_t parts, wf_pool_fn *fn, void *ctx)
{
    desk *d;

    threads = wf_least(threads, parts);
    threads = wf_least(threads, WF_POOL_MAX);
    d = threads < 2 ? NULL : desk_take();
    if (d == NULL) {
        for (uint32_t part = 0; part < parts; part++) {
            fn(ctx, part);
        }
        return;
    }
    pthread_once(&once, pool_init);
    d->fn = fn;
    d->ctx = ctx;
    job_run(d, threads, parts);
    atomic_store_explicit(&d->taken, false, memory_order_release);
}

uint32_t wf_pool_threads(void)
{
    pthread_once(&once, pool_init);
    return threads_by_default;
}

uint32_t wf_pool_count(void)
{
    return atomic_load_explicit(&pool.count, memory_order_relaxed);
}
