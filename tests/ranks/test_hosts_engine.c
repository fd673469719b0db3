/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of several nodes: every collective on layouts of all kinds, what
 * crosses between the nodes, and what happens when a rank fails.
 *
 * Rounds are made small, so that little data has many of them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "coll/choose.h"
#include "coll/coll.h"
#include "coll_matrix.h"
#include "double.h"
#include "weft.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"
#include "wt_data.h"
#include "wt_doomed.h"
#include "wt_fault.h"

#define SMALL "CHUNK_BYTES=1K SHM_EAGER=512"

/* Equal nodes; one alone; uneven and interleaved; many; none that share. */
static const char *const layouts[] = {"aabb",     "abbb",     "aabab",
                                      "aabbccdd", "abcdefgh", "abcabcab"};

enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

static unsigned ranks_of(const char *nodes)
{
    return (unsigned)strlen(nodes);
}

/* --- results -------------------------------------------------------------- */

static void every_layout_gives_the_reference(void **state)
{
    unsigned count = wt_full() ? LAYOUTS : WT_TSAN ? 3 : 4;

    (void)state;
    for (unsigned i = 0; i < count; i++) {
        coll_run_matrix("hosts", ranks_of(layouts[i]), layouts[i], SMALL);
    }
}

/* Whoever waits must poll there, so it yields for ever. */
static void it_works_over_a_transport_that_delays(void **state)
{
    static const wf_transport *const transports[] = {&wf_double_self,
                                                     &wf_double_shm, NULL};
    static const wf_engine *const engines[] = {
        &wf_engine_alone, &wf_engine_hosts, &wf_engine_message, NULL};
    static const wf_parts delaying = {
        .transports = transports,
        .layers = {[WF_LAYER_COLL] = {&wf_coll_layer, engines}},
        .agree = wf_coll_agree,
    };

    (void)state;
    wt_parts = &delaying;
    coll_run_matrix("hosts", 4, "abab", SMALL " SPIN=0s YIELD=1h");
    if (wt_full()) {
        coll_run_matrix("hosts", 5, "aabab", SMALL " SPIN=0s YIELD=1h");
        coll_run_matrix("hosts", 8, "aabbccdd", SMALL " SPIN=0s YIELD=1h");
    }
    wt_parts = NULL;
}

static const wt_coll_kind shaped[] = {WT_ALLREDUCE, WT_REDUCE, WT_BROADCAST,
                                      WT_ALLGATHER, WT_REDUCE_SCATTER};

/* As large as rounds are by default, and some. */
static void large_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);

    for (unsigned i = 0; i < 10; i++) {
        wt_coll c = {.kind = shaped[i % 5],
                     .type = i < 5 ? WEFT_F32 : WEFT_BF16,
                     .op = i < 5 ? WEFT_SUM : WEFT_AVG,
                     .root = i % weft_comm_size(comm),
                     .n = wt_scaled((i + 3) * 60007) / weft_comm_size(comm),
                     .in_place = i % 2 == 1,
                     .rounded_often = true,
                     .seed = i};

        wt_coll_carry_out(comm, &c, NULL, i % 3 != 0);
    }
}

static void large_data_gives_the_reference(void **state)
{
    (void)state;
    coll_the = (coll_matrix){
        .engine = "auto", .rest = "TIMEOUT=60s", .set = COLL_SETS - 1};
    for (unsigned i = 0; i < LAYOUTS; i++) {
        wt_job job = {.ranks = ranks_of(layouts[i]),
                      .settings_of = coll_settings_of,
                      .body = large_body};

        /* The others are among those that give the reference for small data. */
        if (wt_full() || i == 0 || i >= 4) {
            coll_the.nodes = layouts[i];
            wt_run_job_both(&job);
        }
    }
}

/* --- a barrier ------------------------------------------------------------ */

/* Now and then for a while, so that others come first or last. */
static void dawdle(uint64_t *seed)
{
    struct timespec pause = {.tv_nsec = 0};

    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    pause.tv_nsec = (long)(*seed >> 33) % 300000;
    if (*seed >> 62 == 0) {
        nanosleep(&pause, NULL);
    }
}

/* Something else between barriers: small, or in rounds. */
static void disturb(weft_comm *comm, unsigned round)
{
    wt_coll c = {.kind = shaped[round % 5],
                 .type = WEFT_I32,
                 .op = WEFT_SUM,
                 .root = round % weft_comm_size(comm),
                 .n = round % 3 == 0 ? 700 : 3,
                 .seed = round};

    if (round % 4 == 0) {
        wt_coll_carry_out(comm, &c, NULL, round % 8 == 0);
    }
}

/* All but the first rank are in the third communicator, in another order. */
static void barriers_body(weft_world *world)
{
    enum { COMMS = 3 };
    weft_comm *comm[COMMS] = {weft_world_comm(world), NULL, NULL};
    unsigned rounds = wt_full() ? 20000 : 400;
    uint64_t seed = wt_rank() * 7919u + 1;
    uint32_t others[WT_MAX_RANKS];
    unsigned comms = wt_rank() == 0 ? COMMS - 1 : COMMS;

    for (unsigned r = 1; r < wt_ranks(); r++) {
        others[r - 1] = wt_ranks() - r;
    }
    WT_OK(weft_comm_dup(comm[0], &comm[1]));
    if (wt_rank() != 0) {
        WT_OK(weft_comm_subset(comm[0], others, wt_ranks() - 1, &comm[2]));
    }
    for (unsigned i = 1; i <= rounds; i++) {
        for (unsigned c = 0; c < comms; c++) {
            int64_t all = (int64_t)i * weft_comm_size(comm[c]);

            dawdle(&seed);
            wt_word_add(c, 1);
            WT_OK(weft_barrier(comm[c]));
            WT_CHECK(atomic_load(wt_word(c)) >= all);
            disturb(comm[c], i + c);
        }
    }
    for (unsigned c = 1; c < comms; c++) {
        weft_comm_destroy(comm[c]);
    }
}

static void nobody_leaves_a_barrier_before_all_have_come(void **state)
{
    static const char *const nodes[] = {"aabb", "abbb", "aaabb", "abab",
                                        "aabbc"};

    (void)state;
    coll_the = (coll_matrix){
        .engine = "hosts", .rest = SMALL " TIMEOUT=60s", .set = COLL_SETS - 1};
    for (unsigned i = 0; i < 5; i++) {
        coll_the.nodes = nodes[i];
        wt_run_job_both(&(wt_job){.ranks = ranks_of(nodes[i]),
                                  .settings_of = coll_settings_of,
                                  .body = barriers_body});
    }
}

/* One of a node and two of another; and two of which neither has a mate. */
static void part_body(weft_world *world)
{
    static const uint32_t crossing[] = {3, 0, 2};
    static const uint32_t pair[] = {1, 2};
    weft_comm *comm = NULL;
    wt_coll c = {.kind = WT_ALLREDUCE,
                 .type = WEFT_I32,
                 .op = WEFT_SUM,
                 .n = wt_scaled(40003)};

    if (wt_rank() != 1 && wt_rank() != 4) {
        WT_OK(weft_comm_subset(weft_world_comm(world), crossing, 3, &comm));
        for (unsigned i = 0; i < 5; i++) {
            c.kind = shaped[i];
            c.root = i % 3;
            wt_coll_carry_out(comm, &c, NULL, i % 2 == 0);
        }
        weft_comm_destroy(comm);
    }
    if (wt_rank() == 1 || wt_rank() == 2) {
        WT_OK(weft_comm_subset(weft_world_comm(world), pair, 2, &comm));
        c.kind = WT_REDUCE;
        c.root = 1;
        wt_coll_carry_out(comm, &c, NULL, true);
        weft_comm_destroy(comm);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void groups_smaller_than_a_node_that_cross_nodes_are_right(void **state)
{
    (void)state;
    wt_doomed.nodes = "aabbb";
    wt_run_job_both(&(wt_job){
        .ranks = 5, .settings_of = wt_doomed_settings, .body = part_body});
}

/* Several at once: on one communicator in their order, on another beside it. */
static void several_body(weft_world *world)
{
    enum { CALLS = 10 };
    weft_comm *comm[2] = {weft_world_comm(world), NULL};
    wt_call call[CALLS];
    weft_request *request[CALLS];
    unsigned last = CALLS - 1;

    WT_OK(weft_comm_dup(comm[0], &comm[1]));
    for (unsigned i = 0; i < CALLS; i++) {
        wt_coll c = {.kind = shaped[i % 5],
                     .type = WEFT_I64,
                     .op = WEFT_MAX,
                     .n = i % 3 == 0 ? 3 : wt_scaled(9001),
                     .seed = i};

        wt_call_init(&call[i], comm[i % 2], &c, NULL);
    }
    for (unsigned i = 0; i < last; i++) {
        /* One rank begins on the other communicator. */
        unsigned k = wt_rank() == 1 && (i ^ 1) < last ? i ^ 1 : i;

        WT_OK(wt_call_start(&call[k], &request[k]));
    }
    WT_OK(wt_call_run(&call[last]));
    for (unsigned i = 0; i < CALLS; i++) {
        if (i < last) {
            WT_OK(weft_request_wait(request[i], 0));
            weft_request_release(request[i]);
        }
        wt_call_check(&call[i]);
        wt_call_fini(&call[i]);
    }
    weft_comm_destroy(comm[1]);
}

static void several_under_way_do_not_disturb_each_other(void **state)
{
    (void)state;
    wt_doomed.nodes = "abaab";
    wt_run_job_both(&(wt_job){
        .ranks = 5, .settings_of = wt_doomed_settings, .body = several_body});
}

static void pooled_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    wt_coll c = {.kind = WT_ALLREDUCE,
                 .type = WEFT_F32,
                 .op = WEFT_SUM,
                 .n = 5003,
                 .shared_src = 0x5,
                 .shared_dst = 0xb};
    wt_pool pool;

    wt_pool_init(&pool, comm, (size_t)1 << 20);
    wt_coll_carry_out(comm, &c, &pool, true);
    wt_pool_fini(&pool, comm);
}

static void buffers_of_weft_alloc_work(void **state)
{
    (void)state;
    wt_run_nodes(2, 2, pooled_body);
}

/* --- bits ----------------------------------------------------------------- */

static void bits_body(weft_world *world)
{
    static const weft_dtype types[] = {WEFT_F32, WEFT_BF16, WEFT_F16};

    for (unsigned i = 0; i < 18; i++) {
        wt_coll c = {.kind = WT_ALLREDUCE,
                     .type = types[i % 3],
                     .op = i % 2 == 0 ? WEFT_SUM : WEFT_AVG,
                     .n = i < 6 ? 40 : wt_scaled(i < 12 ? 3001 : 90011),
                     .rough = true,
                     .seed = 5};

        coll_check_bits(world, c);
    }
}

static void all_ranks_get_the_same_bits_in_every_run(void **state)
{
    (void)state;
    coll_the = (coll_matrix){.engine = "hosts", .rest = "CHUNK_BYTES=16K"};
    for (unsigned i = 0; i < LAYOUTS; i += 2) {
        wt_job job = {.ranks = ranks_of(layouts[i]),
                      .settings_of = coll_settings_of,
                      .body = bits_body};

        coll_the.nodes = layouts[i];
        for (coll_the.set = 0; coll_the.set < COLL_SETS; coll_the.set += 2) {
            wt_run_job_both(&job);
        }
    }
}

/* --- what crosses --------------------------------------------------------- */

/* Bytes that ranks have sent to other nodes, by rank; and to whom, as bits. */
enum { SENT = 0, PARTNERS = WT_MAX_RANKS };

static weft_status counting_send(wf_port *port, uint32_t to, uint64_t tag,
                                 const void *buf, size_t n, wf_msg *msg)
{
    if (wt_doomed.nodes[wt_rank()] != wt_doomed.nodes[to]) {
        wt_word_add(SENT + wt_rank(), (uint32_t)n);
        atomic_fetch_or(wt_word(PARTNERS + wt_rank()), 1u << to);
    }
    return wf_transport_shm.send(port, to, tag, buf, n, msg);
}

static void run_counting(const char *nodes, wt_body *body)
{
    static wf_transport counting;
    static const wf_transport *const transports[] = {&wf_transport_self,
                                                     &counting, NULL};
    static wf_parts parts;

    if (WT_TSAN) {
        skip(); /* here, since it does not return */
    }
    counting = wf_transport_shm;
    counting.send = counting_send;
    parts = wf_weft_parts;
    parts.transports = transports;
    wt_parts = &parts;
    wt_doomed.nodes = nodes;
    /* As processes, since requests are driven by any thread of one. */
    wt_run_job(&(wt_job){.ranks = ranks_of(nodes),
                         .settings_of = wt_doomed_settings,
                         .body = body});
    wt_parts = NULL;
}

static void expect_sent(weft_comm *comm, const wt_coll *c, uint32_t least,
                        uint32_t most)
{
    uint32_t sent;
    wt_call call;

    wt_meet();
    wt_word_set(SENT + wt_rank(), 0);
    wt_call_init(&call, comm, c, NULL);
    WT_OK(wt_call_run(&call));
    sent = atomic_load(wt_word(SENT + wt_rank()));
    wt_call_check(&call);
    wt_call_fini(&call);
    if (sent < least || sent > most) {
        WT_FAIL("%s: rank %u sent %u bytes to other nodes, not %u to %u",
                wt_coll_name(c->kind), wt_rank(), sent, least, most);
    }
    WT_OK(weft_barrier(comm));
}

/* Calls of 32 bytes each are compared, in two rounds on four nodes. */
enum { COMPARED = 64, MIB_ELEMS = 1 << 18 };

static void crossing_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    bool two_nodes = wt_ranks() == 4;
    uint32_t nodes = two_nodes ? 2 : 4;
    uint32_t half = MIB_ELEMS * sizeof(float) / 2; /* of one of two rails */
    wt_coll c = {
        .kind = WT_ALLREDUCE, .type = WEFT_F32, .op = WEFT_SUM, .n = MIB_ELEMS};
    uint32_t ring = 2 * (half / nodes) * (nodes - 1);

    expect_sent(comm, &c, ring, ring + COMPARED);
    c.n = MIB_ELEMS / wt_ranks();
    c.kind = WT_REDUCE_SCATTER;
    expect_sent(comm, &c, ring / 2, ring / 2 + COMPARED);
    c.kind = WT_ALLGATHER;
    expect_sent(comm, &c, ring / 2, ring / 2 + COMPARED);
    if (two_nodes) {
        bool here = wt_doomed.nodes[wt_rank()] == 'a';

        c.n = MIB_ELEMS;
        c.kind = WT_BROADCAST;
        expect_sent(comm, &c, here ? half : 0, (here ? half : 0) + COMPARED);
        c.kind = WT_REDUCE;
        expect_sent(comm, &c, here ? 0 : half, (here ? 0 : half) + COMPARED);
    }
}

static void nodes_send_each_other_the_bytes_that_plans_predict(void **state)
{
    (void)state;
    run_counting("aabb", crossing_body);
    run_counting("abab", crossing_body);
    run_counting("aabbccdd", crossing_body);
}

static void partners_body(weft_world *world)
{
    /* 2 log2(nodes) + 2 on eight nodes. */
    const int most = 8;

    for (unsigned i = 0; i < 15; i++) {
        wt_coll c = {.kind = shaped[i % 5],
                     .type = WEFT_F32,
                     .op = WEFT_SUM,
                     .n = i < 5 ? 1 : wt_scaled(i < 10 ? 6000 : 90000),
                     .root = i % wt_ranks()};

        atomic_store(wt_word(PARTNERS + wt_rank()), 0);
        wt_coll_carry_out(weft_world_comm(world), &c, NULL, true);
        WT_CHECK(__builtin_popcount(
                     atomic_load(wt_word(PARTNERS + wt_rank()))) <= most);
    }
}

static void a_rank_talks_to_few_others(void **state)
{
    (void)state;
    run_counting("aabbccddeeffgghh", partners_body);
}

/* --- what is told --------------------------------------------------------- */

static char in_log[4000];

static void hear(weft_log_level level, const char *text, void *ctx)
{
    (void)level;
    (void)ctx;
    snprintf(in_log + strlen(in_log), sizeof(in_log) - strlen(in_log), "%s\n",
             text);
}

static void log_bare(void)
{
    weft_world *world = NULL;
    static float x[100000];

    if (wt_rank() == 0) {
        weft_log_set_level(WEFT_LOG_INFO);
        weft_log_to(hear, NULL);
    }
    WT_OK(wt_join(wt_doomed_settings(wt_rank()), 0, &world));
    WT_OK(weft_allreduce(weft_world_comm(world), x, x, 3, WEFT_F32, WEFT_SUM));
    WT_OK(weft_allreduce(weft_world_comm(world), x, x, 100000, WEFT_F32,
                         WEFT_SUM));
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_log_to(NULL, NULL);
    if (wt_rank() == 0) {
        WT_CHECK(strstr(in_log, "of 3 ranks on several nodes: collectives by "
                                "hosts (shared memory") != NULL);
        WT_CHECK(strstr(in_log, "on 2 nodes by dissemination: it goes along") !=
                 NULL);
        WT_CHECK(strstr(in_log, "on 2 nodes by doubling: two nodes") != NULL);
    }
    weft_world_destroy(world);
}

static void the_choice_and_its_reason_are_logged(void **state)
{
    (void)state;
    wt_doomed.nodes = "aba";
    wt_run_job(&(wt_job){.ranks = 3, .bare = log_bare});
}

/* --- failures ------------------------------------------------------------- */

/* One rank makes another call: of a node that others are on, or alone; with
 * small and with large data. */
static void differ_body(weft_world *world)
{
    float *x = calloc(50000, sizeof(*x));

    WT_CHECK(x != NULL);
    for (unsigned odd = 0; odd < wt_ranks(); odd++) {
        for (unsigned i = 0; i < 3; i++) {
            size_t n = (i == 0 ? 2 : 40000) + (wt_rank() == odd);
            weft_comm *comm = NULL;
            weft_status st;

            WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
            st = i == 2 && wt_rank() == odd
                     ? weft_barrier(comm)
                     : weft_allreduce(comm, x, x, n, WEFT_F32, WEFT_SUM);
            WT_STATUS(st, WEFT_ERR_MISMATCH);
            WT_CHECK(wt_names_rank(weft_error_detail(), odd));
            wt_meet(); /* that a rank has left would be as good a reason */
            weft_comm_destroy(comm);
        }
    }
    free(x);
}

static void a_rank_with_another_call_is_told_of(void **state)
{
    (void)state;
    wt_doomed.nodes = "abca";
    wt_run_job_both(&(wt_job){
        .ranks = 4, .settings_of = wt_doomed_settings, .body = differ_body});
}

/* The second allocation of the call, after its request, is where messages
 * land. */
static void no_memory_body(weft_world *world)
{
    enum { N = 30000 };
    weft_comm *comm = weft_world_comm(world);
    float *x = malloc(N * sizeof(*x));
    bool is_victim = wt_is_victim();

    WT_CHECK(x != NULL);

    for (unsigned i = 0; i < N; i++) {
        x[i] = 1;
    }
    for (unsigned i = 0; i < 3; i++) {
        weft_request *request = NULL;

        if (!is_victim) {
            wt_meet();
        } else {
            wf_alloc_fail_nth(2);
        }
        WT_OK(weft_iallreduce(comm, x, x, N, WEFT_F32, WEFT_SUM, &request));
        if (is_victim) {
            wf_alloc_fail_nth(0);
            wt_meet();
        }
        WT_STATUS(weft_request_wait(request, 0), WEFT_ERR_NOMEM);
        WT_CHECK(wt_names_rank(weft_error_detail(), wt_doomed.victim));
        weft_request_release(request);
    }
    WT_OK(weft_comm_error(comm));
    for (unsigned i = 0; i < 3; i++) {
        x[0] = x[N - 1] = 1;
        WT_OK(weft_allreduce(comm, x, x, N, WEFT_F32, WEFT_SUM));
        WT_CHECK(x[0] == (float)wt_ranks() && x[N - 1] == x[0]);
    }
    free(x);
}

static void a_rank_without_memory_ends_it_for_all_and_harms_nothing(void **s)
{
    (void)s;
    wt_doomed.nodes = "aabb";
    for (wt_doomed.victim = 0; wt_doomed.victim < 4; wt_doomed.victim++) {
        wt_run_job_both(&(wt_job){.ranks = 4,
                                  .settings_of = wt_doomed_settings,
                                  .body = no_memory_body});
    }
}

/* The victim dies in the middle of a row of calls, while the others go on. */
static weft_status call_until_it_fails(weft_comm *comm, float *x, size_t n)
{
    weft_status st = WEFT_OK;

    for (unsigned i = 0; st == WEFT_OK; i++) {
        if (wt_is_victim() && i == 7) {
            raise(SIGKILL);
        }
        switch (i % 4) {
        case 0:
            st = weft_allreduce(comm, x, x, n, WEFT_F32, WEFT_MAX);
            break;
        case 1:
            st = weft_broadcast(comm, x, n, WEFT_F32, 0);
            break;
        case 2:
            st = weft_barrier(comm);
            break;
        default:
            st = weft_reduce(comm, x, x, n, WEFT_F32, WEFT_MAX, 1);
            break;
        }
    }
    return st;
}

static void death_body(weft_world *world)
{
    static const size_t sizes[] = {1, 300000};
    size_t n = sizes[wt_doomed.victim % 2];
    float *x = calloc(n, sizeof(*x));
    double began;

    WT_STATUS(call_until_it_fails(weft_world_comm(world), x, n), WEFT_ERR_PEER);
    began = wt_now();
    WT_CHECK(wt_names_rank(weft_error_detail(), wt_doomed.victim));
    WT_STATUS(weft_barrier(weft_world_comm(world)), WEFT_ERR_PEER);
    WT_CHECK(wt_now() - began < wt_death_bound());
    wt_survivors_meet(0, 1);
    free(x);
}

static void the_death_of_any_rank_is_told_of(void **state)
{
    static const char *const nodes[] = {"aabb", "abaab"};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned v = 0; v < ranks_of(nodes[i]); v++) {
            wt_run_doomed(nodes[i], v, death_body);
        }
    }
}

/* A rank that leaves after the last call does not disturb those who are still
 * in it; one that closes the communicator early ends it for its mates. */
static void leaving_body(weft_world *world)
{
    weft_comm *comm = NULL;
    float x[2000] = {0};

    for (unsigned i = 0; i < 20; i++) {
        WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
        WT_OK(weft_allreduce(comm, x, x, 2000, WEFT_F32, WEFT_SUM));
        weft_comm_destroy(comm);
    }
    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    if (wt_rank() == 1) {
        weft_comm_destroy(comm);
        wt_meet();
        return;
    }
    if (wt_rank() == 0) { /* a mate of it */
        WT_STATUS(weft_barrier(comm), WEFT_ERR_PEER);
        WT_CHECK(wt_names_rank(weft_error_detail(), 1));
        WT_CHECK(strstr(weft_error_detail(), "closed") != NULL);
    } else {
        WT_STATUS(weft_barrier(comm), WEFT_ERR_PEER);
    }
    wt_meet();
    weft_comm_destroy(comm);
}

static void a_rank_that_has_left_is_told_of_only_where_it_is_needed(void **s)
{
    (void)s;
    wt_doomed.nodes = "aabb";
    wt_run_job_both(&(wt_job){
        .ranks = 4, .settings_of = wt_doomed_settings, .body = leaving_body});
}

/* Rank 3 does not come. */
static const char *impatient_of(unsigned rank)
{
    static _Thread_local char text[64];

    snprintf(text, sizeof(text), "NODE=%c TIMEOUT=0.3s", "aabb"[rank]);
    return text;
}

static void late_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);

    if (wt_rank() != 3) {
        WT_STATUS(weft_barrier(comm), WEFT_ERR_TIMEOUT);
        wt_word_add(0, 1);
    } else {
        wt_word_await(0, 3);
        WT_STATUS(weft_barrier(comm), WEFT_ERR_TIMEOUT);
    }
}

static void a_rank_that_does_not_come_ends_it_at_the_deadline(void **state)
{
    (void)state;
    wt_run_job_both(
        &(wt_job){.ranks = 4, .settings_of = impatient_of, .body = late_body});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_gives_the_reference),
        cmocka_unit_test(it_works_over_a_transport_that_delays),
        cmocka_unit_test(large_data_gives_the_reference),
        cmocka_unit_test(nobody_leaves_a_barrier_before_all_have_come),
        cmocka_unit_test(groups_smaller_than_a_node_that_cross_nodes_are_right),
        cmocka_unit_test(several_under_way_do_not_disturb_each_other),
        cmocka_unit_test(buffers_of_weft_alloc_work),
        cmocka_unit_test(all_ranks_get_the_same_bits_in_every_run),
        cmocka_unit_test(nodes_send_each_other_the_bytes_that_plans_predict),
        cmocka_unit_test(a_rank_talks_to_few_others),
        cmocka_unit_test(the_choice_and_its_reason_are_logged),
        cmocka_unit_test(a_rank_with_another_call_is_told_of),
        cmocka_unit_test(
            a_rank_without_memory_ends_it_for_all_and_harms_nothing),
        cmocka_unit_test(the_death_of_any_rank_is_told_of),
        cmocka_unit_test(
            a_rank_that_has_left_is_told_of_only_where_it_is_needed),
        cmocka_unit_test(a_rank_that_does_not_come_ends_it_at_the_deadline),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
