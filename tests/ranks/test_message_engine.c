/* SPDX-License-Identifier: Apache-2.0 */
/* The message engine: every collective by every algorithm, over the transport
 * of the host, over a transport that holds messages back and lets them
 * overtake each other, and between nodes.
 *
 * Chunks are made small, so that little data has many of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "coll/coll.h"
#include "coll_matrix.h"
#include "double.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"

static const unsigned rank_counts[] = {1, 2, 3, 5, 8};

static void every_algorithm_gives_the_reference(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        coll_run_matrix("message", rank_counts[i], NULL,
                        "CHUNK_BYTES=1K SHM_EAGER=512");
    }
}

/* Whoever waits must poll there, so it yields for ever. */
static void every_algorithm_works_over_a_transport_that_delays(void **state)
{
    static const wf_transport *const transports[] = {&wf_double_self,
                                                     &wf_double_shm, NULL};
    static const wf_engine *const engines[] = {&wf_engine_alone,
                                               &wf_engine_message, NULL};
    static const wf_parts delaying = {
        .transports = transports,
        .layers = {[WF_LAYER_COLL] = {&wf_coll_layer, engines}},
        .agree = wf_coll_agree,
    };

    (void)state;
    wt_parts = &delaying;
    for (unsigned i = 1; i < 5; i++) {
        if (wt_full() || rank_counts[i] <= 5) {
            coll_run_matrix("message", rank_counts[i], NULL,
                            "CHUNK_BYTES=1K SHM_EAGER=512 SPIN=0s YIELD=1h");
        }
    }
    wt_parts = NULL;
}

static void every_algorithm_gives_the_reference_between_nodes(void **state)
{
    (void)state;
    coll_run_matrix("message", 3, "aba", "CHUNK_BYTES=2K");
    if (wt_full()) {
        coll_run_matrix("message", 5, "aabbc", "CHUNK_BYTES=1K");
        coll_run_matrix("message", 8, "abcabcaa", "CHUNK_BYTES=1K");
    }
}

/* --- bits ----------------------------------------------------------------- */

static void bits_body(weft_world *world)
{
    coll_check_bits(world, (wt_coll){.kind = WT_ALLREDUCE,
                                     .type = WEFT_F32,
                                     .op = WEFT_SUM,
                                     .n = wt_scaled(30011),
                                     .rough = true,
                                     .seed = 5});
}

static void all_ranks_get_the_same_bits_by_every_algorithm(void **state)
{
    wt_job job = {.settings_of = coll_settings_of, .body = bits_body};

    (void)state;
    coll_the = (coll_matrix){.engine = "message", .rest = "CHUNK_BYTES=4K"};
    for (job.ranks = 2; job.ranks <= 7; job.ranks += 2 + (job.ranks == 4)) {
        for (coll_the.set = 0; coll_the.set < COLL_SETS; coll_the.set++) {
            wt_run_job_both(&job);
        }
    }
}

/* --- what is told --------------------------------------------------------- */

typedef struct heard {
    unsigned lines;
    unsigned refusals;
    char last[200];
} heard;

static heard in_log;

static void hear(weft_log_level level, const char *text, void *ctx)
{
    heard *h = ctx;

    (void)level;
    if (strstr(text, ": allreduce") != NULL && strstr(text, " by ") != NULL) {
        h->lines++;
        snprintf(h->last, sizeof(h->last), "%s", text);
    }
    h->refusals += strstr(text, "cannot be done by doubling") != NULL;
}

static void log_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    char x[3 * 8] = {0};
    float y[4] = {0};

    if (weft_world_rank(world) != 0) {
        weft_log_set_level(WEFT_LOG_ERROR);
    } else {
        weft_log_set_level(WEFT_LOG_INFO);
        weft_log_to(hear, &in_log);
    }
    for (unsigned i = 0; i < 3; i++) {
        WT_OK(weft_allreduce(comm, y, y, 4, WEFT_F32, WEFT_SUM));
        WT_OK(weft_allgather(comm, x + 8 * weft_world_rank(world), x, 8,
                             WEFT_U8));
    }
    weft_log_to(NULL, NULL);
    if (weft_world_rank(world) == 0) {
        WT_CHECK(in_log.lines == 1);
        WT_CHECK(strstr(in_log.last, "on 3 ranks by ring: ") != NULL);
        WT_CHECK(in_log.refusals == 1);
    }
}

static void an_algorithm_and_its_reason_are_logged_once(void **state)
{
    (void)state;
    wt_run(3, "ENGINE=message ALGORITHM=allreduce=ring,allgather=doubling",
           log_body);
}

static void expect_refused(const char *settings, const char *word)
{
    weft_world *world = NULL;

    WT_STATUS(wt_join(settings, 0, &world), WEFT_ERR_INVALID);
    WT_CHECK(strstr(weft_error_detail(), "WEFT_ALGORITHM") != NULL);
    if (strstr(weft_error_detail(), word) == NULL) {
        WT_FAIL("does not say \"%s\": %s", word, weft_error_detail());
    }
}

static void bad_names_body(void)
{
    weft_world *world = NULL;

    expect_refused("ALGORITHM=allreduce=rings", "doubling, halving");
    expect_refused("ALGORITHM=allreduce=linear", "double_tree, ring");
    expect_refused("ALGORITHM=barrier=ring", "broadcast, allreduce");
    expect_refused("ALGORITHM=allsum=ring", "'allsum'");
    expect_refused("ALGORITHM=ring", "allreduce=ring");
    WT_OK(wt_join("ALGORITHM=alltoall=bruck,,scan=doubling", 1, &world));
    weft_world_destroy(world);
}

static void unknown_names_are_refused_with_the_known_ones(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = 1, .bare = bad_names_body});
}

/* --- failures ------------------------------------------------------------- */

/* The second allocation of the call, after its request, is the scratch. */
static void no_scratch_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    float x[500] = {0};
    weft_request *request = NULL;
    unsigned rank = weft_world_rank(world);

    if (rank != 1) {
        wt_meet();
    } else {
        wf_alloc_fail_nth(2);
    }
    WT_OK(weft_iallreduce(comm, x, x, 500, WEFT_F32, WEFT_SUM, &request));
    if (rank == 1) {
        wf_alloc_fail_nth(0);
        wt_meet();
    }
    WT_STATUS(weft_request_wait(request, 0), WEFT_ERR_NOMEM);
    WT_CHECK(wt_names_rank(weft_error_detail(), 1));
    weft_request_release(request);

    x[0] = 1;
    WT_OK(weft_comm_error(comm));
    WT_OK(weft_allreduce(comm, x, x, 500, WEFT_F32, WEFT_SUM));
    WT_CHECK(x[0] == (float)weft_world_size(world));
}

static void
a_rank_without_scratch_ends_it_for_all_and_harms_nothing(void **state)
{
    (void)state;
    wt_run_both(2, "ENGINE=message", no_scratch_body);
    wt_run_both(5, "ENGINE=message", no_scratch_body);
}

/* Rank 1 sends, or expects, one element more than its partner thinks. */
static weft_status uneven_call(weft_comm *comm, unsigned how)
{
    uint32_t rank = weft_comm_rank(comm);
    size_t one_more = rank == 1 ? 6 : 5;
    int32_t from[24] = {0};
    int32_t to[24] = {0};
    weft_part src[3] = {{from, 5}, {from + 8, 5}, {from + 16, 5}};
    weft_part dst[3] = {{to, 5}, {to + 8, 5}, {to + 16, 5}};

    switch (how) {
    case 0:
        return weft_gatherv(comm, from, one_more, dst, WEFT_I32, 0);
    case 1:
        return weft_scatterv(comm, src, to, one_more, WEFT_I32, 0);
    default:
        src[0].n = one_more;
        return weft_alltoallv(comm, src, dst, WEFT_I32);
    }
}

static void uneven_body(weft_world *world)
{
    for (unsigned how = 0; how < 3; how++) {
        weft_comm *comm = NULL;
        weft_status st;

        WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
        st = uneven_call(comm, how);
        /* Those who need nothing of the two learn of it with the next call. */
        for (unsigned i = 0; st == WEFT_OK && i < 3; i++) {
            st = weft_barrier(comm);
        }
        WT_STATUS(st, WEFT_ERR_MISMATCH);
        WT_CHECK(wt_names_rank(weft_error_detail(), 0));
        WT_CHECK(wt_names_rank(weft_error_detail(), 1));
        WT_CHECK(strstr(weft_error_detail(), "24") != NULL);
        WT_CHECK(strstr(weft_error_detail(), "20") != NULL);
        WT_OK(weft_barrier(weft_world_comm(world)));
        weft_comm_destroy(comm);
    }
}

static void parts_of_different_lengths_are_told_of(void **state)
{
    (void)state;
    wt_run_both(3, "ENGINE=message TIMEOUT=1800s", uneven_body);
}

/* By one algorithm small data goes along with the call, by the other not. */
static void odd_bare(void)
{
    weft_world *world = NULL;

    WT_STATUS(wt_join(wt_rank() == 1 ? "ENGINE=message ALGORITHM=allreduce=ring"
                                     : "ENGINE=message",
                      0, &world),
              WEFT_ERR_MISMATCH);
    WT_CHECK(wt_names_rank(weft_error_detail(), 1));
    WT_CHECK(strstr(weft_error_detail(), "WEFT_ALGORITHM") != NULL);
}

static void different_algorithms_on_two_ranks_are_told_of(void **state)
{
    wt_job job = {.ranks = 2, .bare = odd_bare};

    (void)state;
    wt_run_job_both(&job);
    job.ranks = 3;
    wt_run_job_both(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_gives_the_reference),
        cmocka_unit_test(every_algorithm_works_over_a_transport_that_delays),
        cmocka_unit_test(every_algorithm_gives_the_reference_between_nodes),
        cmocka_unit_test(all_ranks_get_the_same_bits_by_every_algorithm),
        cmocka_unit_test(an_algorithm_and_its_reason_are_logged_once),
        cmocka_unit_test(unknown_names_are_refused_with_the_known_ones),
        cmocka_unit_test(
            a_rank_without_scratch_ends_it_for_all_and_harms_nothing),
        cmocka_unit_test(parts_of_different_lengths_are_told_of),
        cmocka_unit_test(different_algorithms_on_two_ranks_are_told_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
