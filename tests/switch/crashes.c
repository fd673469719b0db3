/* SPDX-License-Identifier: Apache-2.0 */
#include "crashes.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/coll.h>

static double seconds;
static unsigned first_seed;

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* --- the killer ----------------------------------------------------------- */

static atomic_bool over;
static unsigned switches;

static void nap_ms(unsigned ms)
{
    for (unsigned i = 0; i < ms && !atomic_load(&over); i++) {
        usleep(1000);
    }
}

static void *kill_and_restart(void *arg)
{
    unsigned seed = first_seed + 77;

    (void)arg;
    wt_speak_for(0);
    while (!atomic_load(&over)) {
        unsigned which = next(&seed) % switches;

        nap_ms(next(&seed) % 4 == 0 ? 700 : next(&seed) % 60);
        (void)rig_stop(&job_switches[which], SIGKILL);
        nap_ms(next(&seed) % 4 == 0 ? 0 : next(&seed) % 200);
        job_restart(which);
    }
    return NULL;
}

/* --- calls ---------------------------------------------------------------- */

enum { MOST = 200000 };

/* What rank r has at place k of call i: sums are exact. */
static float value(unsigned i, unsigned k, unsigned r)
{
    return (float)((i * 7 + k) % 512 + r * 3);
}

static void one_call(weft_comm *comm, unsigned i, unsigned *seed, float *x,
                     float *y)
{
    unsigned n = 1 + next(seed) % (next(seed) % 3 == 0 ? MOST : 2000);
    bool in_place = next(seed) % 2 == 0;
    float *dst = in_place ? x : y;
    weft_request *r = NULL;
    unsigned late;
    unsigned us;

    for (unsigned k = 0; k < n; k++) {
        x[k] = value(i, k, wt_rank());
    }
    if (next(seed) % 2 == 0) {
        WT_OK(weft_allreduce(comm, x, dst, n, WEFT_F32, WEFT_SUM));
    } else {
        WT_OK(weft_iallreduce(comm, x, dst, n, WEFT_F32, WEFT_SUM, &r));
        WT_OK(weft_request_wait(r, 0));
        weft_request_release(r);
    }
    for (unsigned k = 0; k < n; k++) {
        float sum = 0;

        for (unsigned q = 0; q < wt_ranks(); q++) {
            sum += value(i, k, q);
        }
        WT_CHECK(dst[k] == sum);
        WT_CHECK(in_place || x[k] == value(i, k, wt_rank()));
    }
    /* Some are late, so that others end calls that they have not. */
    late = next(seed) % 5;
    us = next(seed) % 3000;
    if (late == wt_rank()) {
        usleep(us);
    }
}

static void crashes_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    float *x = malloc(MOST * sizeof(*x));
    float *y = malloc(MOST * sizeof(*y));
    double end = wt_now() + seconds;
    unsigned seed = first_seed + 5;
    int32_t goes_on = 1;
    pthread_t killer;

    WT_CHECK(x != NULL && y != NULL);
    if (wt_rank() == 0) {
        WT_CHECK(pthread_create(&killer, NULL, kill_and_restart, NULL) == 0);
    }
    for (unsigned i = 0; goes_on != 0; i++) {
        one_call(comm, i, &seed, x, y);
        if (i % 8 == 7) {
            goes_on = wt_now() < end;
            WT_OK(weft_broadcast(comm, &goes_on, 1, WEFT_I32, 0));
        }
    }
    if (wt_rank() == 0) {
        atomic_store(&over, true);
        pthread_join(killer, NULL);
    }
    free(x);
    free(y);
}

void crash_run(const job_plan *like, double how_long, unsigned seed)
{
    job_plan plan = *like;

    plan.body = crashes_body;
    plan.deadline = how_long + 120;
    seconds = how_long;
    first_seed = seed;
    switches = plan.switches == 0 ? 1 : plan.switches;
    atomic_store(&over, false);
    job_run_as(&plan);
}
