/* SPDX-License-Identifier: Apache-2.0 */
/* Several nodes, pretended with the setting NODE: who shares memory with whom,
 * and that everything works between those who do not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/time.h"
#include "comm/comm.h"
#include "comm/control.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_data.h"

/* The node of each rank, as a letter. Set before the ranks are forked. */
static const char *nodes;

static const char *settings_of(unsigned rank)
{
    static _Thread_local char text[128];

    snprintf(text, sizeof(text), "NODE=%c", nodes[rank]);
    return text;
}

static void run_nodes(const char *layout, wt_body *body)
{
    nodes = layout;
    wt_run_job_both(&(wt_job){.ranks = (unsigned)strlen(layout),
                              .settings_of = settings_of,
                              .body = body});
}

static const char *const layouts[] = {"aabb", "abc", "aaabb", "abab", "abbcca"};

enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };

/* --- who is where -------------------------------------------------------- */

static void peers_body(weft_world *world)
{
    uint32_t me = weft_world_rank(world);
    uint32_t ranks = weft_world_size(world);
    weft_peer a;
    weft_peer b;

    for (uint32_t i = 0; i < ranks; i++) {
        WT_OK(weft_world_peer(world, i, &a));
        WT_CHECK(a.rank == i && a.host != NULL && a.host[0] != '\0');
        WT_CHECK(a.pid > 0);
        WT_CHECK((a.shares_memory != 0) == (nodes[i] == nodes[me]));
        for (uint32_t k = 0; k < ranks; k++) {
            WT_OK(weft_world_peer(world, k, &b));
            WT_CHECK((a.node == b.node) == (nodes[i] == nodes[k]));
        }
    }
}

static void each_rank_knows_who_shares_memory_with_whom(void **state)
{
    (void)state;
    run_nodes("aaa", peers_body);
    for (unsigned i = 0; i < LAYOUTS; i++) {
        run_nodes(layouts[i], peers_body);
    }
}

/* --- operations between nodes -------------------------------------------- */

/* Between nodes sums of narrow floats are rounded at each hop. */
static bool reference_holds(weft_dtype type)
{
    return !wt_is_narrow(type);
}

static void allreduce_case(weft_world *world, unsigned pair, weft_dtype type,
                           weft_op op, size_t n)
{
    size_t bytes = n * weft_dtype_size(type);
    char *x = malloc(bytes);
    char *want = malloc(bytes);
    size_t at;

    WT_CHECK(x != NULL && want != NULL);
    wt_fill(x, n, type, op.kind, pair, weft_world_rank(world));
    wt_reference(want, n, type, op, pair, weft_world_size(world));
    WT_OK(weft_allreduce(weft_world_comm(world), x, x, n, type, op));
    at = wt_first_difference(x, want, n, type);
    if (at != n && reference_holds(type)) {
        WT_FAIL("%s of %zu %s: element %zu is wrong", weft_op_name(op.kind), n,
                weft_dtype_name(type), at);
    }
    wt_check_same(world, x, bytes);
    free(x);
    free(want);
}

static void allreduce_body(weft_world *world)
{
    weft_dtype type;
    weft_op op;

    for (unsigned pair = 0; wt_type_and_op(pair, &type, &op); pair++) {
        allreduce_case(world, pair, type, op, 1 + pair % 40);
        if (wt_full() || pair % 6 == 0) {
            allreduce_case(world, pair, type, op, wt_scaled(30011));
        }
    }
}

static void allreduce_gives_the_reference_between_nodes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < LAYOUTS; i++) {
        run_nodes(layouts[i], allreduce_body);
    }
}

static void rough_body(weft_world *world)
{
    static const weft_dtype types[] = {WEFT_BF16, WEFT_F16, WEFT_F32, WEFT_C64};
    const size_t sizes[] = {1, 77, 5000, wt_scaled(200003)};

    for (unsigned i = 0; i < 16; i++) {
        size_t n = sizes[i / 4];
        size_t bytes = n * weft_dtype_size(types[i % 4]);
        char *x = malloc(bytes);

        WT_CHECK(x != NULL);
        wt_fill_rough(x, n, types[i % 4], i, weft_world_rank(world));
        WT_OK(weft_allreduce(weft_world_comm(world), x, x, n, types[i % 4],
                             i % 3 == 0 ? WEFT_AVG : WEFT_SUM));
        wt_check_same(world, x, bytes);
        free(x);
    }
}

static void all_ranks_of_all_nodes_get_the_same_bits(void **state)
{
    (void)state;
    for (unsigned i = 0; i < LAYOUTS; i++) {
        run_nodes(layouts[i], rough_body);
    }
}

static void broadcast_body(weft_world *world)
{
    const size_t sizes[] = {0, 1, 1023, 70001, wt_scaled(1u << 20) + 3};

    for (unsigned i = 0; i < 5; i++) {
        for (uint32_t root = 0; root < weft_world_size(world); root++) {
            size_t n = sizes[i];
            char *x = malloc(n + 1);
            char *want = malloc(n + 1);

            WT_CHECK(x != NULL && want != NULL);
            wt_fill_bytes(x, n, i, weft_world_rank(world));
            wt_fill_bytes(want, n, i, root);
            WT_OK(weft_broadcast(weft_world_comm(world), x, n, WEFT_U8, root));
            WT_CHECK(memcmp(x, want, n) == 0);
            free(x);
            free(want);
        }
        WT_OK(weft_barrier(weft_world_comm(world)));
    }
}

static void broadcast_and_barrier_work_between_nodes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < LAYOUTS; i++) {
        run_nodes(layouts[i], broadcast_body);
    }
}

/* A ring of messages through all nodes, with the large ones crossing too. */
static void message_body(weft_world *world)
{
    const size_t sizes[] = {0, 9, 8192, 100001, wt_scaled(1u << 20)};
    weft_comm *comm = weft_world_comm(world);
    uint32_t ranks = weft_comm_size(comm);
    uint32_t me = weft_comm_rank(comm);
    uint32_t before = (me + ranks - 1) % ranks;

    for (unsigned i = 0; i < 5; i++) {
        weft_request *request = NULL;
        size_t n = sizes[i];
        char *x = malloc(3 * n + 1);
        weft_message_info got = {0};

        WT_CHECK(x != NULL);
        wt_fill_bytes(x, n, i, me);
        wt_fill_bytes(x + n, n, i, before);
        WT_OK(weft_irecv(comm, x + 2 * n, n, before, i, &got, &request));
        WT_OK(weft_send(comm, x, n, (me + 1) % ranks, i));
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
        WT_CHECK(got.n == n && memcmp(x + n, x + 2 * n, n) == 0);
        free(x);
    }
}

static void messages_cross_nodes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < LAYOUTS; i++) {
        run_nodes(layouts[i], message_body);
    }
}

/* One communicator for each node, and one of a member of each. */
static void split_body(weft_world *world)
{
    weft_comm *node = NULL;
    weft_comm *across = NULL;
    uint32_t me = weft_world_rank(world);
    weft_peer peer;
    int64_t sum = 1;
    int64_t total = 0;

    WT_OK(weft_world_peer(world, me, &peer));
    WT_OK(weft_comm_split(weft_world_comm(world), peer.node, 0, &node));
    WT_OK(weft_comm_split(weft_world_comm(world), weft_comm_rank(node), 0,
                          &across));
    WT_OK(weft_allreduce(node, &sum, &sum, 1, WEFT_I64, WEFT_SUM));
    WT_CHECK(sum == weft_comm_size(node));
    total = weft_comm_rank(node) == 0 ? sum : 0;
    WT_OK(weft_allreduce(across, &total, &total, 1, WEFT_I64, WEFT_SUM));
    WT_OK(weft_broadcast(node, &total, 1, WEFT_I64, 0));
    WT_CHECK(total == weft_world_size(world));
    weft_comm_destroy(across);
    weft_comm_destroy(node);
}

static void communicators_inside_and_across_nodes_work(void **state)
{
    (void)state;
    for (unsigned i = 0; i < LAYOUTS; i++) {
        run_nodes(layouts[i], split_body);
    }
}

/* --- ends ----------------------------------------------------------------- */

/* All members wait for the last, which gives up instead. */
static void abort_body(weft_world *world)
{
    weft_comm *comm = NULL;
    int64_t one = 1;
    weft_status st;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    if (wt_rank() == wt_ranks() - 1) {
        weft_comm_abort(comm, "enough");
    }
    st = weft_allreduce(comm, &one, &one, 1, WEFT_I64, WEFT_SUM);
    WT_STATUS(st, WEFT_ERR_ABORTED);
    WT_CHECK(strstr(weft_error_detail(), "enough") != NULL);
    /* One that closed it would tell those who ask. */
    wt_meet();
    weft_comm_destroy(comm);
}

static void an_abort_reaches_all_nodes(void **state)
{
    (void)state;
    run_nodes("abcdefgh", abort_body);
    run_nodes("aabccdef", abort_body);
}

/* Rank 0 aborts while rank 3 waits for a message from `from`, which ends as
 * `expected`; all others have closed the communicator. */
static void abort_past_those_who_closed(weft_world *world, uint32_t from,
                                        weft_status expected)
{
    weft_comm *comm = NULL;
    int64_t one = 0;
    weft_status st;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    if (wt_rank() != 0 && wt_rank() != 3) {
        weft_comm_destroy(comm);
        comm = NULL;
    }
    wt_meet();
    if (wt_rank() == 0) {
        weft_comm_abort(comm, "enough");
    } else if (wt_rank() == 3) {
        if (expected == WEFT_ERR_TIMEOUT) {
            weft_comm_set_timeout(comm, 0.5);
        }
        st = weft_recv(comm, &one, sizeof(one), from, 5, NULL);
        WT_STATUS(st, expected);
        WT_CHECK((strstr(weft_error_detail(), "enough") != NULL) ==
                 (expected == WEFT_ERR_ABORTED));
    }
    wt_meet();
    weft_comm_destroy(comm);
}

/* Rank 3 is no neighbour of rank 0. */
static void quiet_body(weft_world *world)
{
    abort_past_those_who_closed(world, 0, WEFT_ERR_ABORTED);
}

static void an_abort_is_asked_for_by_those_who_were_not_told(void **state)
{
    (void)state;
    run_nodes("abcdefgh", quiet_body);
}

static void anybody_body(weft_world *world)
{
    abort_past_those_who_closed(world, WEFT_ANY_SOURCE, WEFT_ERR_ABORTED);
}

/* On the nodes between them all have closed it; those who were told know why.
 */
static void an_abort_is_asked_for_by_those_who_wait_for_anybody(void **state)
{
    (void)state;
    run_nodes("abcdefgh", anybody_body);
}

static bool never_connected(const wf_port *port, uint32_t rank)
{
    (void)port;
    (void)rank;
    return false;
}

/* To this rank it seems that it is connected with nobody, and its node is wary,
 * if it has heard nothing of another one for a while. */
static void be_wary(weft_world *world)
{
    static _Thread_local wf_transport copy[4];
    wf_plane *p = world->plane;
    uint64_t now = wf_now_ns();

    pthread_mutex_lock(&world->drive);
    WT_CHECK(world->ports.count <= sizeof(copy) / sizeof(copy[0]));
    for (uint32_t i = 0; i < world->ports.count; i++) {
        copy[i] = *world->ports.route[i].transport;
        copy[i].connected = never_connected;
        world->ports.route[i].transport = &copy[i];
    }
    wf_vigil_alert(&p->vigil, now);
    atomic_store(&p->due, true);
    wf_plane_do(world);
    WT_CHECK(wf_beat_is_wary(p));
    pthread_mutex_unlock(&world->drive);
}

/* It would learn of the abort by asking. */
static void wary_body(weft_world *world)
{
    if (wt_rank() == 3) {
        be_wary(world);
    }
    abort_past_those_who_closed(world, WEFT_ANY_SOURCE, WEFT_ERR_TIMEOUT);
}

/* What is cut off for a while is lost for good by a connection that is tried
 * meanwhile. */
static void
a_mere_question_opens_no_connection_while_a_node_is_wary(void **state)
{
    (void)state;
    run_nodes("abcdefgh", wary_body);
}

/* What rank 3 sends to others beside messages. */
enum { SPIED = 4 };

static struct {
    wf_transport copy[SPIED];
    wf_transport real[SPIED];
    const wf_port *port[SPIED];
    _Atomic unsigned sent;
} spied;

static weft_status spied_am(wf_port *port, uint32_t to, uint32_t id,
                            const void *header, size_t header_bytes,
                            const void *payload, size_t payload_bytes)
{
    unsigned i = 0;

    while (spied.port[i] != port) {
        i++;
    }
    atomic_fetch_add(&spied.sent, 1);
    return spied.real[i].am(port, to, id, header, header_bytes, payload,
                            payload_bytes);
}

static void spy(weft_world *world)
{
    pthread_mutex_lock(&world->drive);
    WT_CHECK(world->ports.count <= SPIED);
    for (uint32_t i = 0; i < world->ports.count; i++) {
        wf_route *route = &world->ports.route[i];

        spied.port[i] = route->port;
        spied.real[i] = *route->transport;
        spied.copy[i] = spied.real[i];
        spied.copy[i].am = spied_am;
        route->transport = &spied.copy[i];
    }
    atomic_store(&spied.sent, 0);
    pthread_mutex_unlock(&world->drive);
}

enum { WAITING = 400, TOO_MANY = 1000 };

static void ignore(weft_request *request, weft_status status, void *ctx)
{
    (void)request;
    (void)status;
    (void)ctx;
}

/* All begin to wait together, and have reason to ask after the same time. */
static void wait_often(weft_comm *comm, weft_world *world,
                       weft_request *request[WAITING])
{
    static char in[WAITING];
    double until;

    spy(world);
    for (unsigned i = 0; i < WAITING; i++) {
        WT_OK(
            weft_irecv(comm, &in[i], 1, WEFT_ANY_SOURCE, 1, NULL, &request[i]));
        WT_OK(weft_request_on_done(request[i], ignore, NULL));
    }
    until = wt_now() + 0.5 * WT_SLOWDOWN;
    while (wt_now() < until || atomic_load(&spied.sent) == 0) {
        WT_STATUS(weft_request_wait(request[0], 0.01), WEFT_ERR_TIMEOUT);
    }
    if (atomic_load(&spied.sent) >= TOO_MANY) {
        WT_FAIL("%d receives sent %u questions and heartbeats", WAITING,
                atomic_load(&spied.sent));
    }
}

static void often_body(weft_world *world)
{
    weft_request *request[WAITING];
    weft_comm *comm = NULL;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    if (wt_rank() == 3) {
        wait_often(comm, world, request);
    }
    wt_meet();
    if (wt_rank() == 0) {
        weft_comm_abort(comm, "enough");
    }
    for (unsigned i = 0; wt_rank() == 3 && i < WAITING; i++) {
        WT_STATUS(weft_request_wait(request[i], 60), WEFT_ERR_ABORTED);
        weft_request_release(request[i]);
    }
    wt_meet();
    weft_comm_destroy(comm);
}

static void many_who_wait_for_anybody_ask_as_often_as_one(void **state)
{
    (void)state;
    run_nodes("abcdefgh", often_body);
}

/* The two of a node who are told have closed it: a mate waits for anybody. */
static void an_abort_reaches_those_whose_mates_have_closed_it(void **state)
{
    (void)state;
    run_nodes("abbb", anybody_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_knows_who_shares_memory_with_whom),
        cmocka_unit_test(allreduce_gives_the_reference_between_nodes),
        cmocka_unit_test(all_ranks_of_all_nodes_get_the_same_bits),
        cmocka_unit_test(broadcast_and_barrier_work_between_nodes),
        cmocka_unit_test(messages_cross_nodes),
        cmocka_unit_test(communicators_inside_and_across_nodes_work),
        cmocka_unit_test(an_abort_reaches_all_nodes),
        cmocka_unit_test(an_abort_is_asked_for_by_those_who_were_not_told),
        cmocka_unit_test(an_abort_is_asked_for_by_those_who_wait_for_anybody),
        cmocka_unit_test(
            a_mere_question_opens_no_connection_while_a_node_is_wary),
        cmocka_unit_test(many_who_wait_for_anybody_ask_as_often_as_one),
        cmocka_unit_test(an_abort_reaches_those_whose_mates_have_closed_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
