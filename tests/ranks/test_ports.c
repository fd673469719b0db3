/* SPDX-License-Identifier: Apache-2.0 */
/* Which transport leads where: the table, its order, libraries that are loaded
 * or missing, versions; and what becomes of a connection that ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/time.h"
#include "comm/comm.h"
#include "comm/drive.h"
#include "socket/socket.h"
#include "weft.h"
#include "wt.h"
#include "wt_cmocka.h"

static const wf_transport missing = {.abi = WF_TRANSPORT_ABI,
                                     .name = "missing",
                                     .library = "libweft_missing.so"};
static const wf_transport old = {.abi = 1, .name = "old"};

/* The table that worlds are made from; set before the ranks are forked. */
static const wf_transport *table[5];
static wf_parts parts;

static void use(const wf_transport *a, const wf_transport *b,
                const wf_transport *c)
{
    const wf_transport *const all[] = {&wf_transport_self, a, b, c, NULL};

    memcpy(table, all, sizeof(table));
    parts = wf_weft_parts;
    parts.transports = table;
    wt_parts = &parts;
}

static const char *name_to(const weft_world *world, uint32_t rank)
{
    return wf_world_route(world, rank)->transport->name;
}

/* --- routes --------------------------------------------------------------- */

static const char *two_nodes(unsigned rank)
{
    return rank < 2 ? "NODE=a" : "NODE=b";
}

static const char *apart(unsigned rank)
{
    return two_nodes(2 * rank);
}

static void sum_over_all(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint32_t n = weft_world_size(world);
    int32_t one = 1;
    int32_t sum = 0;

    WT_OK(weft_allreduce(comm, &one, &sum, 1, WEFT_I32, WEFT_SUM));
    WT_CHECK(sum == (int32_t)n);
}

static void routes_body(weft_world *world)
{
    uint32_t me = weft_world_rank(world);

    for (uint32_t r = 0; r < 4; r++) {
        const char *want = r == me           ? "self"
                           : r / 2 == me / 2 ? "shm"
                                             : "socket";

        WT_CHECK(strcmp(name_to(world, r), want) == 0);
    }
    WT_CHECK(world->ports.count == 3 && world->ports.watched == 1);
    sum_over_all(world);
}

static void
each_rank_is_led_to_by_the_first_transport_that_reaches_it(void **state)
{
    (void)state;
    use(&wt_transport_far, &wf_transport_shm, NULL);
    wt_run_job_both(
        &(wt_job){.ranks = 4, .settings_of = two_nodes, .body = routes_body});
}

static void shm_only_body(weft_world *world)
{
    WT_CHECK(world->ports.count == 2 && world->ports.watched == 0);
    sum_over_all(world);
}

/* It has been prepared, and is closed again. */
static void a_transport_that_nobody_needs_is_not_opened(void **state)
{
    (void)state;
    use(&wf_transport_shm, &wt_transport_socket, NULL);
    wt_run_both(3, NULL, shm_only_body);
}

/* --- libraries, settings, versions ---------------------------------------- */

static void library_body(weft_world *world)
{
    uint32_t me = weft_world_rank(world);

    WT_CHECK(strcmp(name_to(world, 1 - me), "socket") == 0);
    sum_over_all(world);
}

static void a_transport_can_lie_in_a_library(void **state)
{
    (void)state;
    use(&wt_transport_library, &wf_transport_shm, NULL);
    wt_run_both(2, NULL, library_body);
    use(&wf_transport_shm, &wt_transport_library, NULL);
    wt_run_both(2, "TRANSPORTS=self,socket", library_body);
}

static void a_library_that_is_missing_reaches_nobody(void **state)
{
    (void)state;
    use(&missing, &wf_transport_shm, NULL);
    wt_run_both(2, NULL, shm_only_body);
}

static const char *why;
static const char *the_settings;
static weft_status the_status;

static void refused_rank(void)
{
    weft_world *world = NULL;

    WT_STATUS(wt_join(the_settings, 0, &world), the_status);
    WT_CHECK(strstr(weft_error_detail(), why) != NULL);
    WT_CHECK(world == NULL);
}

static void expect_refused(weft_status st, const char *settings,
                           const char *text)
{
    the_status = st;
    the_settings = settings;
    why = text;
    wt_run_job_both(&(wt_job){.ranks = 1, .bare = refused_rank});
}

static void a_transport_that_is_asked_for_must_be_there(void **state)
{
    (void)state;
    use(&missing, &wf_transport_shm, NULL);
    expect_refused(WEFT_ERR_UNSUPPORTED, "TRANSPORTS=self,shm,missing",
                   "libweft_missing.so");
}

static void ranks_that_no_transport_reaches_are_named(void **state)
{
    (void)state;
    use(&wf_transport_shm, NULL, NULL);
    expect_refused(WEFT_ERR_UNSUPPORTED, "TRANSPORTS=shm",
                   "no transport reaches from rank 0");
}

static void a_transport_of_another_version_is_refused(void **state)
{
    (void)state;
    use(&old, &wf_transport_shm, NULL);
    expect_refused(WEFT_ERR_INVALID, NULL,
                   "transport old is built for version 1 of the contract");
}

/* --- a connection that ends ----------------------------------------------- */

static void cut_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint32_t me = weft_world_rank(world);
    int32_t in = 0;

    if (me == 0) {
        pthread_mutex_lock(&world->drive);
        wt_socket_cut(wf_world_route(world, 1)->port, 1);
        pthread_mutex_unlock(&world->drive);
    }
    if (me < 2) {
        WT_STATUS(weft_recv(comm, &in, sizeof(in), 1 - me, 1, NULL),
                  WEFT_ERR_PEER);
        WT_CHECK(strstr(weft_error_detail(), "the connection with rank") !=
                 NULL);
        WT_CHECK(wt_names_rank(weft_error_detail(), 1 - me));
        WT_STATUS(weft_send(comm, &in, sizeof(in), 1 - me, 1), WEFT_ERR_PEER);
        WT_OK(weft_send(comm, &me, sizeof(me), 2, 1));
        WT_OK(weft_recv(comm, &in, sizeof(in), 2, 1, NULL));
    } else {
        WT_OK(weft_recv(comm, &in, sizeof(in), 0, 1, NULL));
        WT_OK(weft_recv(comm, &in, sizeof(in), 1, 1, NULL));
        WT_OK(weft_send(comm, &in, sizeof(in), 0, 1));
        WT_OK(weft_send(comm, &in, sizeof(in), 1, 1));
    }
}

static void a_cut_connection_fails_only_what_needs_it(void **state)
{
    (void)state;
    use(&wt_transport_socket, NULL, NULL);
    wt_run_both(3, NULL, cut_body);
}

/* --- sleeping ------------------------------------------------------------- */

/* Waits sleep at once, so that each message has to wake its receiver. */
static void sleeping_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint32_t me = weft_world_rank(world);
    uint32_t n = weft_world_size(world);
    uint32_t token = 0;

    for (uint32_t round = 0; round < 30; round++) {
        if (me == 0) {
            WT_OK(weft_send(comm, &token, sizeof(token), 1, 1));
        }
        WT_OK(
            weft_recv(comm, &token, sizeof(token), (me + n - 1) % n, 1, NULL));
        token++;
        if (me != 0) {
            WT_OK(weft_send(comm, &token, sizeof(token), (me + 1) % n, 1));
        }
    }
    WT_CHECK(me != 0 || token == 30 * n);
}

static void a_descriptor_wakes_a_rank_that_sleeps(void **state)
{
    (void)state;
    use(&wt_transport_socket, NULL, NULL);
    wt_run_both(3, "SPIN=0s YIELD=0s", sleeping_body);
    use(&wt_transport_far, &wf_transport_shm, NULL);
    wt_run_both(3, "SPIN=0s YIELD=0s", sleeping_body);
}

enum { TALKS = 40 };

/* Words of the board. */
enum { POSTED = 0, TALKED };

static void pause_ms(long ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};

    nanosleep(&t, NULL);
}

/* Each answer has to wake the thread that runs the callback. */
static void talk(weft_request *request, weft_status st, void *ctx)
{
    weft_comm *comm = ctx;
    uint64_t began = wf_now_ns();
    int32_t x = 0;

    (void)request;
    WT_OK(st);
    for (int i = 0; i < TALKS; i++) {
        WT_OK(weft_send(comm, &x, sizeof(x), 1, 2));
        WT_OK(weft_recv(comm, &x, sizeof(x), 1, 2, NULL));
    }
    /* A tenth of a second each if nobody minds the descriptors. */
    WT_CHECK(wf_now_ns() - began < 50 * WF_MS * TALKS);
    wt_word_set(TALKED, 1);
}

/* No thread of rank 0 waits in the library, so that the thread that minds the
 * ports runs the callback. */
static void callback_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *request = NULL;
    int32_t x = 0;

    if (weft_world_rank(world) == 0) {
        wf_progress_wait_begin(world->progress);
        WT_OK(weft_irecv(comm, &x, sizeof(x), 1, 1, NULL, &request));
        WT_OK(weft_request_on_done(request, talk, comm));
        wt_word_set(POSTED, 1);
        wt_word_await(TALKED, 1);
        wf_progress_wait_end(world->progress);
        weft_request_release(request);
        return;
    }
    wt_word_await(POSTED, 1);
    pause_ms(20); /* rank 0 is asleep */
    WT_OK(weft_send(comm, &x, sizeof(x), 0, 1));
    for (int i = 0; i < TALKS; i++) {
        WT_OK(weft_recv(comm, &x, sizeof(x), 0, 2, NULL));
        pause_ms(5);
        WT_OK(weft_send(comm, &x, sizeof(x), 0, 2));
    }
}

static const char *sleepy_nodes(unsigned rank)
{
    return rank == 0 ? "NODE=a SPIN=0s YIELD=0s" : "NODE=b SPIN=0s YIELD=0s";
}

static void a_callback_of_the_thread_that_minds_ports_can_wait(void **state)
{
    (void)state;
    use(&wt_transport_far, &wf_transport_shm, NULL);
    wt_run_job_both(&(wt_job){
        .ranks = 2, .settings_of = sleepy_nodes, .body = callback_body});
}

static _Atomic uint32_t refusals;

static bool never_armed(wf_port *port)
{
    (void)port;
    atomic_fetch_add(&refusals, 1);
    return false;
}

static void unarmed_body(weft_world *world)
{
    uint64_t began;
    uint32_t before;
    uint64_t tenths;

    sum_over_all(world);
    pause_ms(100); /* all threads have nothing more to do */
    began = wf_now_ns();
    before = atomic_load(&refusals);
    pause_ms(300);
    tenths = (wf_now_ns() - began) / 100000;
    /* Both ranks may be threads, and twice is for what else asks. */
    WT_CHECK(atomic_load(&refusals) - before < 4 * tenths);
    wt_meet();
}

static void a_port_that_cannot_be_armed_leaves_the_core_to_others(void **state)
{
    static wf_transport unarmed;

    (void)state;
    unarmed = wt_transport_far;
    unarmed.arm = never_armed;
    use(&unarmed, &wf_transport_shm, NULL);
    wt_run_job_both(
        &(wt_job){.ranks = 2, .settings_of = apart, .body = unarmed_body});
}

/* --- deadlines ------------------------------------------------------------ */

/* Something happens on it all the time, as heartbeats do now and then. */
static unsigned noisy_progress(wf_port *port)
{
    return wt_transport_far.progress(port) + 1;
}

static weft_status meet_in_vain(weft_comm *comm, bool by_request)
{
    weft_request *request = NULL;
    weft_status st;

    if (!by_request) {
        return weft_barrier(comm);
    }
    WT_OK(weft_ibarrier(comm, &request));
    st = weft_request_wait(request, 0);
    weft_request_release(request);
    return st;
}

/* Rank 1 comes when rank 0 has given up. */
static void noisy_body(weft_world *world)
{
    weft_comm *comm = NULL;

    for (uint32_t turn = 0; turn < 2; turn++) {
        WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
        weft_comm_set_timeout(comm, 0.2);
        if (weft_world_rank(world) == 0) {
            WT_STATUS(meet_in_vain(comm, turn == 1), WEFT_ERR_TIMEOUT);
            WT_CHECK(wt_names_rank(weft_error_detail(), 1));
            wt_word_set(0, turn + 1);
        } else {
            wt_word_await(0, turn + 1);
        }
        weft_comm_destroy(comm);
    }
}

static void what_others_send_does_not_put_off_a_deadline(void **state)
{
    static wf_transport noisy;

    (void)state;
    noisy = wt_transport_far;
    noisy.progress = noisy_progress;
    use(&noisy, &wf_transport_shm, NULL);
    wt_run_job_both(
        &(wt_job){.ranks = 2, .settings_of = apart, .body = noisy_body});
}

/* --- leaving -------------------------------------------------------------- */

static bool never_out(const wf_port *port)
{
    (void)port;
    return true;
}

static void count_warning(weft_log_level level, const char *text, void *ctx)
{
    unsigned *count = ctx;
    char own[64];

    snprintf(own, sizeof(own), "rank %u: no progress", wt_rank());
    if (level == WEFT_LOG_WARN && strstr(text, "left before all") != NULL) {
        WT_CHECK(strstr(text, own) != NULL);
        ++*count;
    }
}

/* It has goodbyes to say after it has found out. */
static void stuck_rank(void)
{
    weft_world *world = NULL;
    unsigned warnings = 0;

    weft_log_to(count_warning, &warnings);
    WT_OK(wt_join(apart(wt_rank()), 0, &world));
    WT_CHECK(world->plane != NULL);
    weft_world_destroy(world);
    weft_log_to(NULL, NULL);
    WT_CHECK(warnings == 1);
}

static void
a_rank_that_leaves_tells_once_that_a_peer_does_not_read(void **state)
{
    static wf_transport stuck;

    (void)state;
    stuck = wt_transport_far;
    stuck.busy = never_out;
    use(&stuck, &wf_transport_shm, NULL);
    wt_run_job(&(wt_job){.ranks = 2, .bare = stuck_rank});
}

static void note_end(weft_log_level level, const char *text, void *ctx)
{
    unsigned *count = ctx;

    *count += level == WEFT_LOG_WARN && strstr(text, "no end of") != NULL;
}

/* Others send all the time, and one of them does not read. */
static void noisy_and_stuck_rank(void)
{
    weft_world *world = NULL;
    unsigned warnings = 0;

    weft_log_to(note_end, &warnings);
    WT_OK(wt_join(apart(wt_rank()), 0, &world));
    weft_world_destroy(world);
    weft_log_to(NULL, NULL);
    WT_CHECK(warnings == 1);
}

static void what_others_send_does_not_keep_a_rank_from_leaving(void **state)
{
    static wf_transport both;

    (void)state;
    both = wt_transport_far;
    both.busy = never_out;
    both.progress = noisy_progress;
    use(&both, &wf_transport_shm, NULL);
    wt_run_job(
        &(wt_job){.ranks = 2, .bare = noisy_and_stuck_rank, .deadline = 30});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            each_rank_is_led_to_by_the_first_transport_that_reaches_it),
        cmocka_unit_test(a_transport_that_nobody_needs_is_not_opened),
        cmocka_unit_test(a_transport_can_lie_in_a_library),
        cmocka_unit_test(a_library_that_is_missing_reaches_nobody),
        cmocka_unit_test(a_transport_that_is_asked_for_must_be_there),
        cmocka_unit_test(ranks_that_no_transport_reaches_are_named),
        cmocka_unit_test(a_transport_of_another_version_is_refused),
        cmocka_unit_test(a_cut_connection_fails_only_what_needs_it),
        cmocka_unit_test(a_descriptor_wakes_a_rank_that_sleeps),
        cmocka_unit_test(a_callback_of_the_thread_that_minds_ports_can_wait),
        cmocka_unit_test(a_port_that_cannot_be_armed_leaves_the_core_to_others),
        cmocka_unit_test(what_others_send_does_not_put_off_a_deadline),
        cmocka_unit_test(
            a_rank_that_leaves_tells_once_that_a_peer_does_not_read),
        cmocka_unit_test(what_others_send_does_not_keep_a_rank_from_leaving),
    };

    return cmocka_run_group_tests_name("ports", tests, NULL, NULL);
}
