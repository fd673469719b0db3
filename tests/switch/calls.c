/* SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>
#include <weft/coll.h>

#include "base/time.h"
#include "base/types.h"

const char *const calls_no_options[] = {NULL};
const char *const calls_lossy[] = {
    "--inject", "loss=0.05,repeat=0.02,reorder=0.05,seed=7", NULL};
unsigned calls_last_switch;

void calls_one(weft_world *world, const wt_coll *c)
{
    wt_call call;

    wt_call_init(&call, weft_world_comm(world), c, NULL);
    WT_OK(wt_call_run(&call));
    wt_call_check(&call);
    wt_call_fini(&call);
}

void calls_values(weft_world *world)
{
    static const size_t counts[] = {1, 63, 1000, 40009};
    double before = wt_rank() == 0 ? job_chunks() : 0;
    uint64_t seed = 1;

    for (int type = WEFT_I8; wf_dtype_bytes((weft_dtype)type) > 0; type++) {
        for (int op = 0; op <= WEFT_OP_MAXLOC; op++) {
            wt_coll c = {.kind = WT_ALLREDUCE,
                         .type = (weft_dtype)type,
                         .op = {(weft_op_kind)op, 2},
                         .n = counts[seed % 4],
                         .in_place = seed / 4 % 2 == 0,
                         .shift = seed % 3 == 0,
                         .seed = seed};

            if (wf_op_applies((weft_op_kind)op, (weft_dtype)type)) {
                calls_one(world, &c);
                seed++;
            }
        }
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    WT_CHECK(wt_rank() != 0 || wt_ranks() == 1 || job_chunks() > before + 100);
    wt_meet(); /* a job of ranks that have left is not counted */
}

void calls_chunks(weft_world *world)
{
    enum { COUNT = 10000, EACH = 1088 / 8, CALLS = 5 };
    static _Thread_local int64_t x[COUNT];

    for (int i = 0; i < CALLS; i++) {
        memset(x, 0, sizeof(x));
        x[7] = wt_rank();
        WT_OK(weft_allreduce(weft_world_comm(world), x, x, COUNT, WEFT_I64,
                             WEFT_SUM));
        WT_CHECK(x[7] == wt_ranks() * (wt_ranks() - 1) / 2 && x[8] == 0);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    WT_CHECK(wt_rank() != 0 ||
             job_chunks() == CALLS * ((COUNT + EACH - 1) / EACH));
    wt_meet(); /* a job of ranks that have left is not counted */
}

void calls_requests(weft_world *world)
{
    enum { REQUESTS = 12, COUNT = 3000 };
    static _Thread_local float x[REQUESTS][COUNT];
    weft_comm *all = weft_world_comm(world);
    weft_comm *other = NULL;
    weft_request *r[REQUESTS];
    float sum = 0;

    WT_OK(weft_comm_dup(all, &other));
    for (int i = 0; i < REQUESTS; i++) {
        for (int k = 0; k < COUNT; k++) {
            x[i][k] = (float)(wt_rank() + 1);
        }
        if (i % 4 == 3) {
            WT_OK(weft_ibroadcast(all, x[i], COUNT, WEFT_F32, 1, &r[i]));
        } else {
            WT_OK(weft_iallreduce(i % 2 == 0 ? all : other, x[i], x[i], COUNT,
                                  WEFT_F32, WEFT_SUM, &r[i]));
        }
    }
    for (unsigned k = 1; k <= wt_ranks(); k++) {
        sum += (float)k;
    }
    for (int i = 0; i < REQUESTS; i++) {
        WT_OK(weft_request_wait(r[i], 0));
        weft_request_release(r[i]);
        WT_CHECK(x[i][0] == (i % 4 == 3 ? 2 : sum));
        WT_CHECK(x[i][COUNT - 1] == x[i][0]);
    }
    weft_comm_destroy(other);
}

void calls_killed(weft_world *world)
{
    enum { COUNT = 60000 };
    static _Thread_local float x[COUNT];
    static _Thread_local float y[COUNT];
    weft_comm *comm = weft_world_comm(world);
    int32_t state = 0; /* 1: killed, 2: started again, 3: back */
    uint64_t since = 0;

    for (unsigned i = 0; state < 3; i++) {
        float *dst = i % 2 == 0 ? x : y;

        for (int k = 0; k < COUNT; k++) {
            x[k] = (float)((unsigned)k % 1000 + i % 7 + wt_rank());
        }
        if (wt_rank() == 0 && i == 20) {
            (void)rig_stop(&job_switches[calls_last_switch], SIGKILL);
            state = 1;
        } else if (wt_rank() == 0 && state == 1 && i == 60) {
            job_restart(calls_last_switch);
            since = wf_now_ns();
            state = 2;
        }
        WT_OK(weft_allreduce(comm, x, dst, COUNT, WEFT_F32, WEFT_SUM));
        for (int k = 0; k < COUNT; k++) {
            float each = (float)((unsigned)k % 1000 + i % 7);

            WT_CHECK(dst[k] == each * (float)wt_ranks() +
                                   (float)(wt_ranks() * (wt_ranks() - 1) / 2));
        }
        if (wt_rank() == 0 && state == 2) {
            WT_CHECK(wf_now_ns() - since <
                     (uint64_t)(30 * WT_SLOWDOWN) * WF_SEC);
            state = job_chunks_of(calls_last_switch) > 0 ? 3 : 2;
        }
        WT_OK(weft_broadcast(comm, &state, 1, WEFT_I32, 0));
    }
}

void calls_other_count(weft_world *world)
{
    static _Thread_local int32_t x[5000];
    weft_comm *comm = weft_world_comm(world);

    WT_OK(weft_allreduce(comm, x, x, 5000, WEFT_I32, WEFT_SUM));
    wt_meet(); /* an error must not break the call before */
    WT_STATUS(weft_allreduce(comm, x, x, wt_rank() == 1 ? 4000 : 5000, WEFT_I32,
                             WEFT_SUM),
              WEFT_ERR_MISMATCH);
}

void calls_other_call(weft_world *world)
{
    static _Thread_local int32_t x[5000];
    weft_comm *comm = weft_world_comm(world);

    if (wt_rank() == 1) {
        WT_STATUS(weft_broadcast(comm, x, 5000, WEFT_I32, 0),
                  WEFT_ERR_MISMATCH);
    } else {
        WT_STATUS(weft_allreduce(comm, x, x, 5000, WEFT_I32, WEFT_SUM),
                  WEFT_ERR_MISMATCH);
    }
    wt_meet(); /* who leaves may be noticed before the reason comes */
}

void calls_late(weft_world *world)
{
    static _Thread_local int32_t x[5000];
    uint64_t since = wf_now_ns();

    while (wt_rank() == 1 && wf_now_ns() - since < 700 * WF_MS) {
        usleep(10000);
    }
    WT_OK(
        weft_allreduce(weft_world_comm(world), x, x, 5000, WEFT_I32, WEFT_SUM));
    wt_meet(); /* who has left answers nobody */
}

void calls_death(weft_world *world)
{
    static _Thread_local int32_t x[5000];
    weft_comm *comm = weft_world_comm(world);
    weft_status st = WEFT_OK;

    for (int i = 0; st == WEFT_OK && i < 100000; i++) {
        if (wt_rank() == 1 && i == 30) {
            kill(getpid(), SIGKILL);
        }
        st = weft_allreduce(comm, x, x, 5000, WEFT_I32, WEFT_SUM);
    }
    WT_CHECK(st == WEFT_ERR_PEER);
    WT_CHECK(strstr(weft_error_detail(), "rank 1") != NULL);
}

void calls_on_nodes(const char *nodes, const char *const *options,
                    const char *settings, wt_body *body)
{
    job_run_as(&(job_plan){.ranks = (unsigned)strlen(nodes),
                           .nodes = nodes,
                           .options = options,
                           .settings = settings,
                           .body = body});
}

void calls_on_switches(unsigned switches, unsigned ranks,
                       const char *const *options, const char *settings,
                       wt_body *body)
{
    calls_last_switch = switches - 1;
    job_run_as(&(job_plan){.ranks = ranks,
                           .switches = switches,
                           .options = options,
                           .settings = settings,
                           .body = body});
    calls_last_switch = 0;
}
