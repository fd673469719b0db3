/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank does in a job: legs of work, checks behind them, and its part of
 * the fault. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "soak.h"
#include "wt_data.h"
#include "wt_fault.h"

enum { ARRIVED, BEGUN }; /* words of the run */

static void sleep_for(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};

    t.tv_nsec = (long)(1e9 * (seconds - (double)t.tv_sec));
    nanosleep(&t, NULL);
}

static unsigned survivors(void)
{
    unsigned n = 0;

    for (unsigned r = 0; r < job.ranks; r++) {
        n += !job_is_victim(r);
    }
    return n;
}

/* Those that do not die meet, for the nth time. */
static void survivors_meet(unsigned nth)
{
    wt_word_add(ARRIVED, 1);
    wt_word_await(ARRIVED, nth * survivors());
}

static weft_store *make(weft_world *world)
{
    weft_store_options o = {.size = sizeof(o),
                            .keys = (uint64_t)job.keys,
                            .length = job.length,
                            .type = job.type,
                            .techniques = job.techniques,
                            .cache = job.cache,
                            .rounds = job.rounds,
                            .eager = job.eager,
                            .seed = job.seed};
    weft_sample_options s = {.size = sizeof(s),
                             .scheme = job.scheme,
                             .distribution = job.number % 2 == 0
                                                 ? WEFT_DRAW_UNIFORM
                                                 : WEFT_DRAW_LOG_UNIFORM,
                             .max = job.shared};
    weft_store *store = NULL;

    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    WT_OK(weft_store_sampling(store, &s));
    return store;
}

static void count(weft_store *store)
{
    weft_store_stats s;

    weft_store_count(store, &s);
    atomic_fetch_add(&board->moved, s.moved_in);
    atomic_fetch_add(&board->copied, s.copied_in);
    atomic_fetch_add(&board->expired, s.expired);
    atomic_fetch_add(&board->parked, s.parked);
    atomic_fetch_add(&board->forwarded, s.forwarded);
    atomic_fetch_add(&board->refused, s.refused);
    atomic_fetch_add(&board->repaired, s.repaired);
    WT_CHECK(job.techniques != WEFT_REPLICATION_ONLY || s.moved_in == 0);
    WT_CHECK(job.techniques != WEFT_RELOCATION_ONLY || s.copied_in == 0);
}

/* --- faults --------------------------------------------------------------- */

/* In the middle of what its workers do, when nobody is in the barrier before
 * this leg any more. */
static void die(double end)
{
    unsigned rank = wt_rank();
    uint32_t at = (uint32_t)(wt_mix(job.seed, job.number, 1000 + rank) % 5000);

    wt_word_await(BEGUN, job.legs * job.ranks);
    while (atomic_load(&board->steps[rank]) < at && wt_now() < end) {
        sleep_for(0.0002);
    }
    atomic_store(&board->struck, 1);
    atomic_fetch_add(&board->killed, 1);
    kill(getpid(), SIGKILL);
    pause();
}

/* A collective fails, names a rank that died, and does so soon. */
static void hear_of_deaths(weft_store *store)
{
    double since;
    uint64_t us;

    for (unsigned r = 0; r < job.ranks; r++) {
        if (job_is_victim(r)) {
            wt_await_gone(r);
        }
    }
    since = wt_now();
    WT_CHECK(!soak_tolerates(weft_store_barrier(store), "barrier"));
    us = (uint64_t)(1e6 * (wt_now() - since));
    WT_CHECK(us < 1e6 * wt_death_bound());
    if (us > atomic_load(&board->named_after)) {
        atomic_store(&board->named_after, us);
    }
}

static bool is_first_survivor(void)
{
    for (unsigned r = 0; r < wt_rank(); r++) {
        if (!job_is_victim(r)) {
            return false;
        }
    }
    return !job_is_victim(wt_rank());
}

static void stop_and_go(double end)
{
    uint64_t seed = job.seed + job.number;
    unsigned victim = 0;

    while (!job_is_victim(victim)) {
        victim++;
    }
    while (wt_now() < end) {
        pid_t pid = (pid_t)atomic_load(&board->pid[victim]);

        sleep_for(1e-6 * (double)(soak_random(&seed) % 20000));
        WT_CHECK(kill(pid, SIGSTOP) == 0);
        sleep_for(1e-6 * (double)(soak_random(&seed) % 200000));
        WT_CHECK(kill(pid, SIGCONT) == 0);
        atomic_fetch_add(&board->stopped, 1);
    }
}

/* Threads that serve others have no memory now and then, as workers have. */
static void starve(double end)
{
    uint64_t seed = job.seed + job.number + wt_rank();

    while (wt_now() < end) {
        uint64_t r = soak_random(&seed);

        wf_alloc_fail_others(1 + (unsigned)(r % 100),
                             1 + (unsigned)(r >> 20) % 3);
        sleep_for(1e-6 * (double)((r >> 32) % 5000));
    }
    wf_alloc_fail_others(0, 0);
}

static void strike(weft_store *store, double end)
{
    bool victim = job_is_victim(wt_rank());

    if (job.fault == SOAK_KILL) {
        if (victim) {
            die(end);
        }
        hear_of_deaths(store);
        sleep_for(job.seconds / 3);
    } else if (job.fault == SOAK_STOP && is_first_survivor()) {
        stop_and_go(end);
    } else if (job.fault == SOAK_STARVE && victim) {
        starve(end);
    }
}

/* --- legs ----------------------------------------------------------------- */

static void run_leg(weft_store *store, unsigned leg)
{
    double end = wt_now() + job.seconds;
    soak_worker worker[SOAK_THREADS];
    pthread_t thread[SOAK_THREADS];

    wt_word_add(BEGUN, 1);
    for (unsigned t = 0; t < job.threads; t++) {
        unsigned number = wt_rank() * job.threads + t;

        worker[t] = (soak_worker){
            .rank = wt_rank(),
            .number = number,
            .seed = wt_mix(job.seed, number, job.number * 100ull + leg) | 1};
        WT_OK(weft_worker_create(store, &worker[t].worker));
        WT_CHECK(pthread_create(&thread[t], NULL, soak_work, &worker[t]) == 0);
    }
    if (leg + 1 == job.legs) {
        strike(store, end);
    }
    while (wt_now() < end && atomic_load(&board->over) == 0) {
        sleep_for(0.001);
    }
    atomic_store(&board->over, 1);
    for (unsigned t = 0; t < job.threads; t++) {
        WT_CHECK(pthread_join(thread[t], NULL) == 0);
        weft_worker_destroy(worker[t].worker);
    }
}

/* Everything that was done is known everywhere, and is as it should be. */
static void checkpoint(weft_store *store, weft_worker *worker)
{
    WT_OK(weft_store_barrier(store));
    for (int i = 0; i < 2; i++) {
        WT_OK(weft_store_wait_sync(worker));
        WT_OK(weft_store_barrier(store));
    }
    soak_check(worker);
    WT_OK(weft_store_barrier(store));
    if (wt_rank() == 0) {
        soak_note_synced();
        atomic_store(&board->over, 0);
    }
    WT_OK(weft_store_barrier(store));
}

/* The same without those that died, and without a barrier. */
static void checkpoint_of_survivors(weft_worker *worker)
{
    survivors_meet(1);
    for (unsigned i = 0; i < 2; i++) {
        if (!soak_tolerates(weft_store_wait_sync(worker), "wait_sync")) {
            atomic_store(&board->lost, 1);
        }
        survivors_meet(2 + i);
    }
    soak_check(worker);
    survivors_meet(4);
}

void soak_body(weft_world *world)
{
    weft_store *store = make(world);
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    atomic_store(&board->pid[wt_rank()], (uint32_t)getpid());
    WT_OK(weft_store_barrier(store));
    for (unsigned leg = 0; leg < job.legs; leg++) {
        run_leg(store, leg);
        if (atomic_load(&board->struck) != 0) {
            checkpoint_of_survivors(worker);
        } else {
            checkpoint(store, worker);
        }
    }
    count(store);
    weft_worker_destroy(worker);
    weft_store_destroy(store);
}
