/* SPDX-License-Identifier: Apache-2.0 */
/* One list of jobs under one lock. A job lies on its caller's stack; a helper
 * enters it under the lock and leaves it under the lock, and the caller takes
 * it off the list before it waits for the last helper to leave. */
#include "region/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/log.h"
#include "base/settings.h"
#include "base/time.h"

/* A helper that finds nothing to do polls this long before it sleeps, and a
 * caller before it sleeps for its helpers: waking a thread takes as long. */
#define POLL_NS 50000u
/* The clock is looked at once in so many polls. */
#define POLLS 32u

typedef struct job {
    wf_pool_fn *fn;
    void *ctx;
    uint32_t parts;
    _Atomic uint32_t next;    /* the first part that nobody has taken */
    _Atomic uint32_t helpers; /* inside; changed under the lock */
    uint32_t wanted;          /* helpers that may still enter */
    struct job *link;
} job;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t posted;
    pthread_cond_t left;
    job *jobs;
    _Atomic uint32_t posts; /* counts jobs, for helpers that poll */
    uint32_t sleepers;
    uint32_t count;
    bool ending;
    pthread_t thread[WF_POOL_MAX];
} pool = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .posted = PTHREAD_COND_INITIALIZER,
    .left = PTHREAD_COND_INITIALIZER,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t threads_by_default;

static void job_work(job *j)
{
    uint32_t part;

    while ((part = atomic_fetch_add_explicit(
                &j->next, 1, memory_order_relaxed)) < j->parts) {
        j->fn(j->ctx, part);
    }
}

/* A job that wants a helper, entered. */
static job *job_enter(void)
{
    for (job *j = pool.jobs; j != NULL; j = j->link) {
        if (j->wanted > 0 &&
            atomic_load_explicit(&j->next, memory_order_relaxed) < j->parts) {
            j->wanted--;
            atomic_fetch_add_explicit(&j->helpers, 1, memory_order_relaxed);
            return j;
        }
    }
    return NULL;
}

/* The job may be gone as soon as the count is down. The release pairs with the
 * acquire in job_wait: what the parts wrote is seen by the caller. */
static void job_leave(job *j)
{
    if (atomic_fetch_sub_explicit(&j->helpers, 1, memory_order_release) == 1) {
        pthread_cond_broadcast(&pool.left);
    }
}

/* Without the lock: poll until the count of jobs changes. */
static void helper_poll(uint32_t seen)
{
    uint64_t end = wf_now_ns() + POLL_NS;

    do {
        for (unsigned i = 0; i < POLLS; i++) {
            if (atomic_load_explicit(&pool.posts, memory_order_relaxed) !=
                seen) {
                return;
            }
            wf_cpu_relax();
        }
    } while (wf_now_ns() < end);
}

/* Called and returns with the lock. */
static void helper_rest(void)
{
    uint32_t seen = atomic_load_explicit(&pool.posts, memory_order_relaxed);

    pthread_mutex_unlock(&pool.lock);
    helper_poll(seen);
    pthread_mutex_lock(&pool.lock);
    if (!pool.ending &&
        atomic_load_explicit(&pool.posts, memory_order_relaxed) == seen) {
        pool.sleepers++;
        pthread_cond_wait(&pool.posted, &pool.lock);
        pool.sleepers--;
    }
}

static void *helper_main(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&pool.lock);
    while (!pool.ending) {
        job *j = job_enter();

        if (j == NULL) {
            helper_rest();
            continue;
        }
        pthread_mutex_unlock(&pool.lock);
        job_work(j);
        pthread_mutex_lock(&pool.lock);
        job_leave(j);
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

/* Signals are for the program's own threads. */
static bool helper_start(pthread_t *thread)
{
    sigset_t all;
    sigset_t before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, NULL, helper_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        wf_log(WEFT_LOG_DEBUG, "no thread for row operations: error %d", error);
    }
    return error == 0;
}

static void pool_grow(uint32_t helpers)
{
    while (!pool.ending && pool.count < helpers && pool.count < WF_POOL_MAX) {
        if (!helper_start(&pool.thread[pool.count])) {
            return;
        }
        pool.count++;
    }
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
    pthread_cond_init(&pool.posted, NULL);
    pthread_cond_init(&pool.left, NULL);
    pool.jobs = NULL;
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
    atomic_fetch_add_explicit(&pool.posts, 1, memory_order_relaxed);
    pthread_cond_broadcast(&pool.posted);
    pthread_mutex_unlock(&pool.lock);
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(pool.thread[i], NULL);
    }
}

static void job_post(job *j, uint32_t helpers)
{
    pthread_mutex_lock(&pool.lock);
    pool_grow(helpers);
    j->wanted = helpers;
    j->link = pool.jobs;
    pool.jobs = j;
    atomic_fetch_add_explicit(&pool.posts, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < helpers && i < pool.sleepers; i++) {
        pthread_cond_signal(&pool.posted);
    }
    pthread_mutex_unlock(&pool.lock);
}

static void job_unlink(job *j)
{
    job **at = &pool.jobs;

    while (*at != NULL && *at != j) {
        at = &(*at)->link;
    }
    if (*at == j) {
        *at = j->link;
    }
}

static bool job_is_left(job *j)
{
    return atomic_load_explicit(&j->helpers, memory_order_acquire) == 0;
}

static void job_wait(job *j)
{
    uint64_t end;

    pthread_mutex_lock(&pool.lock);
    job_unlink(j);
    pthread_mutex_unlock(&pool.lock);
    if (job_is_left(j)) {
        return;
    }
    end = wf_now_ns() + POLL_NS;
    while (wf_now_ns() < end) {
        for (unsigned i = 0; i < POLLS; i++) {
            if (job_is_left(j)) {
                return;
            }
            wf_cpu_relax();
        }
    }
    pthread_mutex_lock(&pool.lock);
    while (!job_is_left(j)) {
        pthread_cond_wait(&pool.left, &pool.lock);
    }
    pthread_mutex_unlock(&pool.lock);
}

void wf_pool_run(uint32_t threads, uint32_t parts, wf_pool_fn *fn, void *ctx)
{
    job j = {.fn = fn, .ctx = ctx, .parts = parts};
    uint32_t helpers = threads < parts ? threads : parts;

    if (helpers < 2) {
        for (uint32_t part = 0; part < parts; part++) {
            fn(ctx, part);
        }
        return;
    }
    pthread_once(&once, pool_init);
    helpers = helpers > WF_POOL_MAX ? WF_POOL_MAX : helpers;
    job_post(&j, helpers - 1);
    job_work(&j);
    job_wait(&j);
}

uint32_t wf_pool_threads(void)
{
    pthread_once(&once, pool_init);
    return threads_by_default;
}

uint32_t wf_pool_count(void)
{
    uint32_t count;

    pthread_mutex_lock(&pool.lock);
    count = pool.count;
    pthread_mutex_unlock(&pool.lock);
    return count;
}
