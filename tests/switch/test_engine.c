/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of a job through a switch: right results, through it and not
 * beside it; when it loses packets, dies and comes back; when ranks call
 * different things, or die. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <weft/coll.h>

#include "base/time.h"
#include "base/types.h"
#include "coll/choose.h"
#include "job.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"

static const char *const no_options[] = {NULL};
static const char *const lossy[] = {
    "--inject", "loss=0.05,repeat=0.02,reorder=0.05,seed=7", NULL};

static void one_call(weft_world *world, const wt_coll *c)
{
    wt_call call;

    wt_call_init(&call, weft_world_comm(world), c, NULL);
    WT_OK(wt_call_run(&call));
    wt_call_check(&call);
    wt_call_fini(&call);
}

/* --- values --------------------------------------------------------------- */

/* Every type and operation, in place and not, off alignment, from one element
 * to more than the window. */
static void values_body(weft_world *world)
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
                one_call(world, &c);
                seed++;
            }
        }
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    WT_CHECK(wt_rank() != 0 || wt_ranks() == 1 || job_chunks() > before + 100);
    wt_meet(); /* a job of ranks that have left is not counted */
}

static void every_type_and_operation_goes_through_the_switch(void **state)
{
    static const unsigned ranks[] = {1, 2, 3, 5, 8};

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        job_run(ranks[i], no_options, "", values_body);
    }
}

static void packets_are_lost_and_results_are_right(void **state)
{
    (void)state;
    job_run(3, lossy, "", values_body);
    job_run(2, lossy, "SWITCH_SLOTS=1", values_body);
}

/* The daemon has reduced as many chunks as the calls had. */
static void chunks_body(weft_world *world)
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

static void the_daemon_counts_the_chunks_of_the_calls(void **state)
{
    (void)state;
    job_run(3, no_options, "", chunks_body);
}

/* Requests, several at once, among them some that the switch does not serve,
 * on two communicators. */
static void requests_body(weft_world *world)
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

static void requests_go_through_the_switch_on_two_communicators(void **state)
{
    (void)state;
    job_run(2, no_options, "", requests_body);
    job_run(3, lossy, "", requests_body);
}

/* --- a switch that is not there ------------------------------------------- */

static void no_switch_is_no_failure(void **state)
{
    (void)state;
    job_run(3, NULL, "LOG=error", requests_body);
}

static void unused_body(weft_world *world)
{
    requests_body(world);
    WT_CHECK(wt_rank() != 0 || job_chunks() == 0);
}

static void a_switch_with_another_key_is_not_used(void **state)
{
    rig other;

    (void)state;
    rig_init(&other);
    job_run_as(&(job_plan){.ranks = 2,
                           .options = no_options,
                           .key_file = other.key_file,
                           .settings = "LOG=error",
                           .body = unused_body});
    rig_fini(&other);
}

static unsigned last_switch;

/* Calls go on while the last switch is killed and started again, and are back
 * on it within five seconds of its return; no result is wrong. */
static void killed_body(weft_world *world)
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
            (void)rig_stop(&job_switches[last_switch], SIGKILL);
            state = 1;
        } else if (wt_rank() == 0 && state == 1 && i == 60) {
            job_restart(last_switch);
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
                     (uint64_t)(5 * WT_SLOWDOWN) * WF_SEC);
            state = job_chunks_of(last_switch) > 0 ? 3 : 2;
        }
        WT_OK(weft_broadcast(comm, &state, 1, WEFT_I32, 0));
    }
}

static void a_switch_is_killed_and_comes_back(void **state)
{
    (void)state;
    job_run(3, no_options, "LOG=error", killed_body);
    job_run(2, lossy, "LOG=error SWITCH_SLOTS=16", killed_body);
}

/* --- several switches ----------------------------------------------------- */

/* Each has its share of the chunks. */
static void shares_body(weft_world *world)
{
    chunks_body(world);
    for (unsigned i = 0; wt_rank() == 0 && i <= last_switch; i++) {
        WT_CHECK(job_chunks_of(i) > job_chunks() / (last_switch + 2));
    }
    values_body(world);
}

static void job_on(unsigned switches, unsigned ranks,
                   const char *const *options, const char *settings,
                   wt_body *body)
{
    last_switch = switches - 1;
    job_run_as(&(job_plan){.ranks = ranks,
                           .switches = switches,
                           .options = options,
                           .settings = settings,
                           .body = body});
    last_switch = 0;
}

static void chunks_are_shared_by_all_switches_of_a_job(void **state)
{
    (void)state;
    job_on(2, 3, no_options, "", shares_body);
    job_on(3, 2, lossy, "", shares_body);
}

static void one_of_several_switches_is_killed_and_comes_back(void **state)
{
    (void)state;
    job_on(2, 3, no_options, "LOG=error", killed_body);
    job_on(3, 2, lossy, "LOG=error SWITCH_SLOTS=16", killed_body);
}

/* --- doing nothing -------------------------------------------------------- */

static double processor_seconds(void)
{
    struct rusage used;

    WT_CHECK(getrusage(RUSAGE_SELF, &used) == 0);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* Results have come twice, so that some lie in the socket after the calls; then
 * the switch goes, too. */
static void idle_body(weft_world *world)
{
    const wt_coll c = {.kind = WT_ALLREDUCE,
                       .type = WEFT_F32,
                       .op = {WEFT_OP_SUM, 0},
                       .n = 40009,
                       .seed = 1};
    double used;

    for (unsigned i = 0; i < 3; i++) {
        one_call(world, &c);
    }
    if (wt_rank() == 0) {
        (void)rig_stop(&job_switch, SIGKILL);
    }
    usleep(100000);
    used = processor_seconds();
    usleep(1000000);
    used = processor_seconds() - used;
    WT_CHECK(used < 0.25);
    one_call(world, &c);
}

static void a_rank_between_calls_uses_no_processor(void **state)
{
    static const char *const twice[] = {"--inject", "repeat=0.5,seed=7", NULL};

    (void)state;
    job_run(2, twice, "LOG=error", idle_body);
}

/* --- ranks ---------------------------------------------------------------- */

static void other_count_body(weft_world *world)
{
    static _Thread_local int32_t x[5000];
    weft_comm *comm = weft_world_comm(world);

    WT_OK(weft_allreduce(comm, x, x, 5000, WEFT_I32, WEFT_SUM));
    wt_meet(); /* an error must not break the call before */
    WT_STATUS(weft_allreduce(comm, x, x, wt_rank() == 1 ? 4000 : 5000, WEFT_I32,
                             WEFT_SUM),
              WEFT_ERR_MISMATCH);
}

static void other_call_body(weft_world *world)
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

static void calls_that_differ_are_errors_on_all_ranks(void **state)
{
    (void)state;
    job_run(3, no_options, "", other_count_body);
    job_run(2, no_options, "", other_call_body);
    job_run(3, no_options, "", other_call_body);
}

static void death_body(weft_world *world)
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

static void the_death_of_a_rank_is_named(void **state)
{
    (void)state;
    job_run_as(&(job_plan){.ranks = 3,
                           .options = no_options,
                           .body = death_body,
                           .doomed = 1u << 1});
}

/* --- ranks that share hosts ----------------------------------------------- */

static void job_on_nodes(const char *nodes, const char *const *options,
                         const char *settings, wt_body *body)
{
    job_run_as(&(job_plan){.ranks = (unsigned)strlen(nodes),
                           .nodes = nodes,
                           .options = options,
                           .settings = settings,
                           .body = body});
}

static void ranks_of_a_host_are_added_up_before_they_send(void **state)
{
    static const char *const layouts[] = {"aab", "aabb", "abcabcab",
                                          "aaaaabbbbb"};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        job_on_nodes(layouts[i], no_options, "", chunks_body);
    }
}

/* Rounds are made small, so that little data has many of them. */
static void
every_type_and_operation_is_right_where_ranks_share_hosts(void **state)
{
    (void)state;
    job_on_nodes("aabb", no_options, "CHUNK_BYTES=1K", values_body);
    job_on_nodes("aabab", no_options, "", values_body);
    job_on_nodes("abbcc", lossy, "CHUNK_BYTES=8K", values_body);
    if (wt_full()) { /* each lost packet is waited for */
        job_on_nodes("abbcc", lossy, "CHUNK_BYTES=1K SWITCH_SLOTS=2",
                     values_body);
        job_on_nodes("aabb", lossy, "SWITCH_PAYLOAD=64", values_body);
    }
    job_on_nodes("aabb", no_options, "", requests_body);
}

static void hosts_of_several_ranks_go_back_to_a_switch(void **state)
{
    (void)state;
    job_on_nodes("aabb", no_options, "LOG=error", killed_body);
    job_on_nodes("abb", no_options, "LOG=error CHUNK_BYTES=32K", killed_body);
}

/* Rank 1 shares a host with rank 0; it averages where others add. */
static void other_operation_body(weft_world *world)
{
    static _Thread_local float x[5000];
    weft_comm *comm = weft_world_comm(world);

    WT_OK(weft_allreduce(comm, x, x, 5000, WEFT_F32, WEFT_SUM));
    wt_meet(); /* an error must not break the call before */
    WT_STATUS(weft_allreduce(comm, x, x, 5000, WEFT_F32,
                             wt_rank() < 2 ? WEFT_AVG : WEFT_SUM),
              WEFT_ERR_MISMATCH);
    WT_CHECK(strstr(weft_error_detail(), "avg") != NULL &&
             strstr(weft_error_detail(), "sum") != NULL);
}

static void calls_that_differ_are_errors_where_ranks_share_hosts(void **state)
{
    (void)state;
    job_on_nodes("aabb", no_options, "", other_count_body);
    job_on_nodes("aabb", no_options, "", other_call_body);
    job_on_nodes("abab", no_options, "", other_call_body);
    job_on_nodes("aabb", no_options, "", other_operation_body);
}

static void the_death_of_a_rank_that_shares_a_host_is_named(void **state)
{
    static const char *const layouts[] = {"aabb", "abb"};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        job_run_as(&(job_plan){.ranks = (unsigned)strlen(layouts[i]),
                               .nodes = layouts[i],
                               .options = no_options,
                               .body = death_body,
                               .doomed = 1u << 1});
    }
}

/* --- the choice ----------------------------------------------------------- */

static bool by_switch(const weft_comm *comm, wf_call_kind kind)
{
    const wf_coll_row *row = wf_coll_of(comm)->row[kind];

    return strcmp(row->seat->engine->name, "switch") == 0;
}

static void chosen_body(weft_world *world)
{
    const weft_comm *comm = weft_world_comm(world);
    bool three = comm->tree.nodes >= 3;

    WT_CHECK(by_switch(comm, WF_CALL_ALLREDUCE) == three);
    for (int kind = 0; kind < WF_CALL_KINDS; kind++) {
        WT_CHECK(kind == WF_CALL_ALLREDUCE ||
                 !by_switch(comm, (wf_call_kind)kind));
    }
    for (unsigned i = 0; i < 3; i++) {
        one_call(world, &(wt_coll){.kind = WT_REDUCE_SCATTER,
                                   .type = WEFT_F32,
                                   .op = WEFT_SUM,
                                   .n = 1 + 1000 * i,
                                   .seed = i});
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    WT_CHECK(wt_rank() != 0 || job_chunks() == 0);
}

static void
it_is_chosen_for_allreduce_from_three_hosts_on_and_for_no_other(void **state)
{
    static const char *const layouts[] = {"ab", "aabb", "abc", "aabbc"};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        job_on_nodes(layouts[i], no_options, "ENGINE=auto", chosen_body);
    }
}

/* --- settings ------------------------------------------------------------- */

static void bad_setting(const char *text, const char *says)
{
    weft_world_options o = {.size = sizeof(o), .settings = text};
    weft_world *world = NULL;

    assert_int_equal(weft_world_create(&o, &world), WEFT_ERR_INVALID);
    if (strstr(weft_error_detail(), says) == NULL) {
        fail_msg("%s", weft_error_detail());
    }
}

static const char *differing;

/* Of rank 1, and of the others. */
static void differ_bare(void)
{
    char settings[200];
    weft_world *world = NULL;

    (void)snprintf(settings, sizeof(settings), "SWITCH_KEY=k TIMEOUT=60s %s%s",
                   wt_rank() == 1 ? "" : "SWITCH=127.0.0.1:1 ",
                   wt_rank() == 1 ? differing : "");
    WT_STATUS(wt_join(settings, 0, &world), WEFT_ERR_MISMATCH);
    WT_CHECK(strstr(weft_error_detail(), "WEFT_") != NULL);
    WT_CHECK(wt_names_rank(weft_error_detail(), 0));
    WT_CHECK(wt_names_rank(weft_error_detail(), 1));
}

static void settings_in_which_ranks_differ_are_named_on_all(void **state)
{
    static const char *const some[] = {"",
                                       "SWITCH=127.0.0.1:2",
                                       "SWITCH=127.0.0.1:1,127.0.0.1:2",
                                       "SWITCH=127.0.0.1:1 SWITCH_SLOTS=8",
                                       "SWITCH=127.0.0.1:1 SWITCH_PAYLOAD=64",
                                       "SWITCH=127.0.0.1:1 ENGINE=switch"};

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        differing = some[i];
        wt_run_job(&(wt_job){.ranks = 3, .bare = differ_bare});
    }
}

static void wrong_settings_are_named(void **state)
{
    (void)state;
    bad_setting("SWITCH=a:1", "WEFT_SWITCH_KEY");
    bad_setting("SWITCH=a:b SWITCH_KEY=k", "'a:b' is not the address");
    bad_setting("SWITCH=::1 SWITCH_KEY=k", "'::1' is not the address");
    bad_setting("SWITCH=:5 SWITCH_KEY=k", "':5' is not the address");
    bad_setting("SWITCH=a:1,b:x SWITCH_KEY=k", "'b:x' is not the address");
    bad_setting("SWITCH=a:1, SWITCH_KEY=k", "'' is not the address");
    bad_setting("SWITCH=a,b,c,d,e,f,g,h,i SWITCH_KEY=k", "at most 8 switches");
    bad_setting("SWITCH=a:1 SWITCH_KEY=k SWITCH_PAYLOAD=100", "multiple of 64");
    bad_setting("SWITCH=a:1 SWITCH_KEY=k SWITCH_SLOTS=0", "1 to 4096");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_and_operation_goes_through_the_switch),
        cmocka_unit_test(packets_are_lost_and_results_are_right),
        cmocka_unit_test(the_daemon_counts_the_chunks_of_the_calls),
        cmocka_unit_test(requests_go_through_the_switch_on_two_communicators),
        cmocka_unit_test(a_rank_between_calls_uses_no_processor),
        cmocka_unit_test(no_switch_is_no_failure),
        cmocka_unit_test(a_switch_with_another_key_is_not_used),
        cmocka_unit_test(a_switch_is_killed_and_comes_back),
        cmocka_unit_test(chunks_are_shared_by_all_switches_of_a_job),
        cmocka_unit_test(one_of_several_switches_is_killed_and_comes_back),
        cmocka_unit_test(calls_that_differ_are_errors_on_all_ranks),
        cmocka_unit_test(the_death_of_a_rank_is_named),
        cmocka_unit_test(ranks_of_a_host_are_added_up_before_they_send),
        cmocka_unit_test(
            every_type_and_operation_is_right_where_ranks_share_hosts),
        cmocka_unit_test(hosts_of_several_ranks_go_back_to_a_switch),
        cmocka_unit_test(calls_that_differ_are_errors_where_ranks_share_hosts),
        cmocka_unit_test(the_death_of_a_rank_that_shares_a_host_is_named),
        cmocka_unit_test(
            it_is_chosen_for_allreduce_from_three_hosts_on_and_for_no_other),
        cmocka_unit_test(settings_in_which_ranks_differ_are_named_on_all),
        cmocka_unit_test(wrong_settings_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
