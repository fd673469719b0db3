/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite over UCX, between ranks of this machine: that of the
 * system, or another one (tests/support/with_ucx). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/library.h"
#include "base/time.h"
#include "conform.h"

#if WT_ASAN || WT_TSAN
/* UCX is not built with the sanitizers. What it does to memory behind their
 * back is not theirs to judge: AddressSanitizer is told of no leak of memory
 * that UCX keeps until the process ends, ThreadSanitizer of no call that UCX
 * makes. */
const char *__lsan_default_suppressions(void);
const char *__tsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libucs.so\nleak:libuct.so\nleak:libucp.so\nleak:libucm.so\n";
}

const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libucs.so\ncalled_from_lib:libuct.so\n"
           "called_from_lib:libucp.so\ncalled_from_lib:libucm.so\n";
}
#endif

#ifdef WT_UCX_LIBRARY
#include <string.h>
#include <ucs/debug/log_def.h>

#include "transport/ucx/ucx.h"

static const wf_transport *load(void)
{
    const void *found = NULL;

    if (wf_library_find(NULL, WT_UCX_LIBRARY, WF_TRANSPORT_SYMBOL, &found) !=
        WEFT_OK) {
        printf("skipped: %s\n", weft_error_detail());
        exit(WT_EXIT_SKIP);
    }
    return found;
}

/* End the TCP connections among what the epoll descriptor `fd` watches, and
 * what those below it watch. */
static void cut_watched(int fd, int depth)
{
    char path[64];
    char line[256];
    FILE *f;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        struct sockaddr_storage name;
        socklen_t n = sizeof(name);
        int watched;

        if (sscanf(line, "tfd: %d", &watched) != 1) {
            continue;
        }
        if (getpeername(watched, (struct sockaddr *)&name, &n) == 0 &&
            (name.ss_family == AF_INET || name.ss_family == AF_INET6)) {
            shutdown(watched, SHUT_RDWR);
        } else if (depth > 0) {
            cut_watched(watched, depth - 1);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

/* Only this port's ends: with ranks as threads, the others' ends are open in
 * this process, too, and a rank that loses the end it has to answer on reads no
 * more of what has arrived there. */
static void cut_connections(wf_port *port, uint32_t rank)
{
    (void)rank;
    cut_watched(port->fd, 3);
}

/* --- strangers, nonsense and the dead --------------------------------------
 */

static const wf_transport *ucx;

static ucx_peer *villain_peer(wf_port *port)
{
    return &port->peer[port->slot[0]];
}

static void punish(void **state, conform_villainy *v)
{
    conform_punishes(*state, v);
}

/* Send a head as it is; the memory is never freed, so that UCX may take its
 * time. */
static void send_raw(wf_port *port, const ucx_head *head)
{
    static const unsigned char byte[1];
    const ucp_request_param_t param = {0};
    ucx_head *copy = conform_bytes(sizeof(*copy));
    ucs_status_ptr_t sent;

    *copy = *head;
    sent =
        ucp_am_send_nbx(villain_peer(port)->ep, UCX_HANDLER, copy,
                        sizeof(*copy), byte, head->kind == UCX_EAGER, &param);
    while (UCS_PTR_IS_PTR(sent) &&
           ucp_request_check_status(sent) == UCS_INPROGRESS) {
        ucp_worker_progress(port->worker);
    }
    if (UCS_PTR_IS_PTR(sent)) {
        ucp_request_free(sent);
    }
    free(copy);
}

static ucx_head proven(wf_port *port, ucx_kind kind)
{
    return (ucx_head){.proof = villain_peer(port)->proof_out,
                      .number = villain_peer(port)->sent,
                      .from = 1,
                      .kind = kind};
}

static void send_no_kind(wf_port *port)
{
    ucx_head head = proven(port, (ucx_kind)99);

    send_raw(port, &head);
}

static void a_message_of_no_kind_ends_its_sender(void **state)
{
    punish(state, send_no_kind);
}

static void send_endless_offer(wf_port *port)
{
    ucx_head head = proven(port, UCX_OFFER);

    head.n = UINT64_MAX;
    send_raw(port, &head);
}

static void an_offer_of_more_than_memory_ends_its_sender(void **state)
{
    punish(state, send_endless_offer);
}

static void send_old_number(wf_port *port)
{
    ucx_head head = proven(port, UCX_WITHDRAWN);

    head.number = 0;
    send_raw(port, &head);
}

static void a_number_that_was_used_ends_its_sender(void **state)
{
    punish(state, send_old_number);
}

static void want_nothing_offered(wf_port *port)
{
    ucx_head head = proven(port, UCX_WANT);

    head.token = UINT64_MAX;
    send_raw(port, &head);
}

static void a_wish_for_what_was_never_offered_ends_its_sender(void **state)
{
    punish(state, want_nothing_offered);
}

static void take_more_than_was_asked_about(wf_port *port)
{
    ucx_head head = proven(port, UCX_TAKEN);

    head.word = UINT64_MAX;
    send_raw(port, &head);
}

static void an_answer_without_a_question_ends_its_sender(void **state)
{
    punish(state, take_more_than_was_asked_about);
}

/* A goodbye may overtake what was sent before, so it is not said until that has
 * been taken. Rank 1 does not read until rank 0 has asked in vain for a while.
 */
static void leaving_body(conform *c)
{
    enum { READS = 1, OVER = 2, STOPPED = 3 }; /* words of the board */
    double until;
    uint64_t value = 5;
    uint64_t in = 0;
    wf_msg msg;

    if (c->rank == 1) {
        conform_recv(c, 0, 1, &in, 8, &msg);
        conform_wait_ok(c, &msg, 1);
        wt_word_set(STOPPED, 1);
        wt_word_await(READS, 1);
        while (atomic_load(wt_word(OVER)) == 0) {
            conform_step(c);
        }
        conform_recv(c, 0, 2, &in, 8, &msg);
        WT_CHECK(msg.done && msg.status == WEFT_OK && in == 5);
    } else {
        conform_send(c, 1, 1, &value, 8, &msg);
        conform_wait_ok(c, &msg, 1);
        while (atomic_load(wt_word(STOPPED)) == 0) {
            conform_step(c);
        }
        conform_send(c, 1, 2, &value, 8, &msg);
        conform_wait_ok(c, &msg, 1);
        c->t->leaving(c->port);
        until = wt_now() + 0.3;
        while (c->t->busy(c->port) && wt_now() < until) {
            conform_step(c);
        }
        WT_CHECK(c->t->busy(c->port));
        wt_word_set(READS, 1);
        while (c->t->busy(c->port)) {
            conform_step(c);
        }
        wt_word_set(OVER, 1);
    }
    conform_meet(c);
}

static void a_rank_that_leaves_is_busy_until_all_was_taken(void **state)
{
    conform_ranks(*state, 2, leaving_body);
}

/* Without the proof it is as if nothing had come. */
static void stranger_body(conform *c)
{
    uint64_t value = 5;
    wf_msg msg;

    weft_log_to(conform_silent, NULL);
    if (c->rank == 1) {
        ucx_head head;

        conform_send(c, 0, 1, &value, 8, &msg);
        conform_wait_ok(c, &msg, 1);
        head = proven(c->port, UCX_EAGER);
        head.proof ^= 1;
        head.n = 1;
        send_raw(c->port, &head);
        head = proven(c->port, UCX_CUT);
        head.proof = 0;
        send_raw(c->port, &head);
        head.from = UINT32_MAX;
        send_raw(c->port, &head);
    }
    conform_still_hears(c);
    WT_CHECK(c->rank != 0 || c->port->strangers == 3);
    conform_meet(c);
    weft_log_to(NULL, NULL);
}

static void what_comes_without_the_secret_is_not_heard(void **state)
{
    conform_ranks(*state, 2, stranger_body);
}

/* A process that ends without a word: its connections do. */
static void killed_body(void)
{
    conform c = {.t = ucx, .rank = wt_rank(), .ranks = 2};
    conform_kind kind = {.transport = ucx};
    uint64_t value = 5;
    uint64_t in[2] = {0};
    wf_msg msg[2];
    wf_msg last; /* never comes; asked for while the other lives */

    c.kind = &kind;
    conform_join(&c);
    conform_recv(&c, 1 - c.rank, 1, &in[0], 8, &msg[0]);
    conform_recv(&c, 1 - c.rank, 2, &in[1], 8, &last);
    conform_send(&c, 1 - c.rank, 1, &value, 8, &msg[1]);
    conform_wait_ok(&c, msg, 2);
    if (c.rank == 1) {
        kill(getpid(), SIGKILL);
    }
    conform_wait(&c, &last, 1);
    WT_CHECK(last.status == WEFT_ERR_PEER);
    WT_CHECK(c.losses == 1 && c.lost_rank == 1 && c.lost == WEFT_ERR_PEER);
    c.t->close(c.port);
    wf_host_leave(c.host);
}

static void a_killed_rank_is_lost_without_anybody_telling(void **state)
{
    const wt_job job = {.ranks = 2, .bare = killed_body, .doomed = 1u << 1};

    (void)state;
    wt_run_job(&job);
}

static int faults(void)
{
    static const conform_kind kind = {.name = "ucx",
                                      .settings = "SHM_EAGER=2K UCX_EAGER=2K"};
    static conform_kind loaded;
    void *k = &loaded;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(a_message_of_no_kind_ends_its_sender, k),
        cmocka_unit_test_prestate(an_offer_of_more_than_memory_ends_its_sender,
                                  k),
        cmocka_unit_test_prestate(a_number_that_was_used_ends_its_sender, k),
        cmocka_unit_test_prestate(
            a_wish_for_what_was_never_offered_ends_its_sender, k),
        cmocka_unit_test_prestate(an_answer_without_a_question_ends_its_sender,
                                  k),
        cmocka_unit_test_prestate(
            a_rank_that_leaves_is_busy_until_all_was_taken, k),
        cmocka_unit_test_prestate(what_comes_without_the_secret_is_not_heard,
                                  k),
        cmocka_unit_test_prestate(a_killed_rank_is_lost_without_anybody_telling,
                                  k),
    };

    loaded = kind;
    loaded.transport = ucx;
    return cmocka_run_group_tests_name("ucx, faults", tests, NULL, NULL);
}

/* --- what UCX prints ------------------------------------------------------ */

static void ucx_says(const char *file, ucs_log_level_t level)
{
    ucs_log_component_config_t component = {.log_level = UCS_LOG_LEVEL_WARN,
                                            .name = "TEST"};

    ucs_log_dispatch(file, 1, "test", level, &component, "of %s", file);
}

/* All that is said in `path`; UCX writes to the standard output. */
static void read_said(const char *path, char *text, size_t room)
{
    FILE *f = fopen(path, "r");
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, room - 1, f);
    text[n] = '\0';
    fclose(f);
}

static void connections_that_fail_are_no_line_of_ucx(void **state)
{
    char path[] = "/tmp/weft-ucx-log-XXXXXX";
    int file = mkstemp(path);
    int out = dup(STDOUT_FILENO);
    char text[4096];

    (void)state;
    assert_true(file >= 0 && out >= 0);
    fflush(stdout);
    assert_int_equal(dup2(file, STDOUT_FILENO), STDOUT_FILENO);
    ucx_log_take();
    ucx_says("tcp_before.c", UCS_LOG_LEVEL_ERROR);
    ucx_log_begin();
    ucx_says("uct/tcp/tcp_cm.c", UCS_LOG_LEVEL_ERROR);
    ucx_says("ucp_ep.c", UCS_LOG_LEVEL_ERROR);
    ucx_log_end();
    ucx_says("tcp_after.c", UCS_LOG_LEVEL_ERROR);
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    read_said(path, text, sizeof(text));
    close(file);
    close(out);
    unlink(path);
    assert_non_null(strstr(text, "of tcp_before.c"));
    assert_null(strstr(text, "tcp_cm.c"));
    assert_non_null(strstr(text, "of ucp_ep.c"));
    assert_non_null(strstr(text, "of tcp_after.c"));
}

/* TCP that sends again fewer times may have to pause for longer. */
static void no_connection_ends_before_its_host_is_given_up(void **state)
{
    (void)state;
    assert_int_equal(ucx_sockets_pause(15 * WF_SEC, 15), 1875 * WF_MS);
    assert_int_equal(ucx_sockets_pause(15 * WF_SEC, 8), 3750 * WF_MS);
    assert_int_equal(ucx_sockets_pause(60 * WF_SEC, 8), 30 * WF_SEC);
    assert_int_equal(ucx_sockets_pause(15 * WF_SEC, 3), 0);
    assert_int_equal(ucx_sockets_pause(3 * WF_SEC, 15), WF_SEC);
    assert_in_range(ucx_sockets_retries(), 1, UINT8_MAX);
}

static int parts(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_connection_ends_before_its_host_is_given_up),
        cmocka_unit_test(connections_that_fail_are_no_line_of_ucx),
    };

    return cmocka_run_group_tests_name("ucx, parts", tests, NULL, NULL);
}

/* Is the UCX that was linked that of the folder WT_UCX, if one is named? */
static bool from_folder(void)
{
    const char *folder = getenv("WT_UCX");
    ucs_status_t (*of)(ucp_worker_h, int *) = ucp_worker_get_efd;
    const void *symbol;
    Dl_info where;

    memcpy(&symbol, &of, sizeof(symbol));
    if (folder == NULL) {
        return true;
    }
    if (dladdr(symbol, &where) == 0) {
        return false;
    }
    printf("UCX %s, %s\n", ucp_get_version_string(), where.dli_fname);
    return strncmp(where.dli_fname, folder, strlen(folder)) == 0;
}

static int run(void)
{
    const conform_kind kinds[] = {
        {.name = "ucx",
         .transport = ucx,
         .settings = "SHM_EAGER=32K",
         .cut = cut_connections},
        {.name = "ucx with waits that sleep, and a small eager limit",
         .transport = ucx,
         .settings = "SHM_EAGER=2K UCX_EAGER=2K",
         .sleeps = true,
         .cut = cut_connections},
    };
    int failed = faults() + parts();

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        failed += conform_run(&kinds[i]);
    }
    return failed;
}

int main(void)
{
    ucx = load();
    return from_folder() ? run() : EXIT_FAILURE;
}
#else
int main(void)
{
    printf("skipped: built without UCX (Debian: libucx-dev)\n");
    return WT_EXIT_SKIP;
}
#endif
