/* SPDX-License-Identifier: Apache-2.0 */
/* The table of one host when something goes wrong: ranks that die, names that
 * clash, strangers on the socket, and bytes that nobody of ours sends. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/boot.h>

#include "boot/local.h"
#include "boot/wire.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_user.h"

/* Longer than anything takes; a test never waits for it to pass. */
#define LONG_MS 60000u

static weft_boot *table_of(unsigned round, uint32_t rank, uint32_t ranks)
{
    char name[64];
    weft_boot *b = NULL;

    wt_job_name(round, name, sizeof(name));
    WT_OK(weft_boot_open_local(name, rank, ranks, &b));
    return b;
}

static weft_boot *table(unsigned round)
{
    return table_of(round, wt_rank(), wt_ranks());
}

static void set_own(weft_boot *b)
{
    char key[32];

    snprintf(key, sizeof(key), "rank.%u", b->rank);
    WT_OK(b->set(b->ctx, key, &b->rank, sizeof(b->rank)));
}

static weft_status get_of(weft_boot *b, uint32_t rank, uint32_t *out)
{
    char key[32];
    size_t n = sizeof(*out);

    snprintf(key, sizeof(key), "rank.%u", rank);
    return b->get(b->ctx, key, out, &n, LONG_MS);
}

/* The answer shows that rank 0 is there, has the value and knows this rank. */
static void set_own_and_see_it(weft_boot *b)
{
    uint32_t got;

    set_own(b);
    WT_OK(get_of(b, b->rank, &got));
}

static void check_all(weft_boot *b)
{
    for (uint32_t i = 0; i < b->ranks; i++) {
        uint32_t got = UINT32_MAX;

        WT_OK(get_of(b, i, &got));
        WT_CHECK(got == i);
    }
}

static weft_status get_what_nobody_sets(weft_boot *b)
{
    char text[8];
    size_t n = sizeof(text);

    return b->get(b->ctx, "never", text, &n, LONG_MS);
}

/* --- ranks that die ------------------------------------------------------ */

#define VICTIM 2u

/* Rank 1 kills rank 2, which waits. What was set can still be had by all; what
 * was not, never comes, and the error names the dead. */
static void one_is_killed(void)
{
    weft_boot *b = table(0);

    set_own_and_see_it(b);
    wt_meet();
    if (wt_rank() == VICTIM) {
        wt_word_set(0, (uint32_t)getpid());
        (void)get_what_nobody_sets(b);
        WT_FAIL("should have been killed");
    }
    if (wt_rank() == 1) {
        wt_word_await(0, 1);
        WT_CHECK(kill((pid_t)atomic_load(wt_word(0)), SIGKILL) == 0);
    }
    wt_await_gone(VICTIM);
    check_all(b);
    WT_STATUS(get_what_nobody_sets(b), WEFT_ERR_PEER);
    WT_CHECK(wt_names_rank(weft_error_detail(), VICTIM));
    check_all(b);
    weft_boot_close(b);
}

static void a_rank_that_dies_is_named_and_does_not_hurt_the_others(void **state)
{
    const wt_job job = {
        .ranks = 4, .bare = one_is_killed, .doomed = 1u << VICTIM};

    (void)state;
    if (!WT_TSAN) {
        wt_run_job(&job);
    }
}

static void rank_0_is_killed(void)
{
    weft_boot *b = table(0);

    set_own(b);
    check_all(b);
    wt_meet();
    if (wt_rank() == 0) {
        raise(SIGKILL);
    }
    WT_STATUS(get_what_nobody_sets(b), WEFT_ERR_PEER);
    WT_CHECK(wt_names_rank(weft_error_detail(), 0));
    WT_STATUS(b->set(b->ctx, "more", "x", 1), WEFT_ERR_PEER);
    weft_boot_close(b);
}

static void the_death_of_rank_0_ends_every_wait(void **state)
{
    const wt_job job = {.ranks = 4, .bare = rank_0_is_killed, .doomed = 1};

    (void)state;
    if (!WT_TSAN) {
        wt_run_job(&job);
    }
}

/* Rank 2 never comes, and rank 0 has given up waiting for it. */
static void rank_0_gives_up(void)
{
    weft_boot *b = table_of(0, wt_rank(), 3);
    char text[8];
    size_t n = sizeof(text);

    if (wt_rank() == 0) {
        WT_STATUS(b->get(b->ctx, "rank.2", text, &n, 1), WEFT_ERR_TIMEOUT);
        b->done(b->ctx);
    }
    weft_boot_close(b);
}

static void a_table_ends_though_a_rank_never_came(void **state)
{
    (void)state;
    wt_run_job_both(&(const wt_job){.ranks = 2, .bare = rank_0_gives_up});
}

/* --- names --------------------------------------------------------------- */

static void open_a_taken_name(void)
{
    weft_boot *first = table_of(0, 0, 2);
    weft_boot *second = NULL;
    char name[64];

    wt_job_name(0, name, sizeof(name));
    WT_STATUS(weft_boot_open_local(name, 0, 2, &second), WEFT_ERR_INVALID);
    WT_CHECK(strstr(weft_error_detail(), name) != NULL);
    WT_CHECK(strstr(weft_error_detail(), "WEFT_JOB") != NULL);
    WT_CHECK(second == NULL);
    weft_boot_close(first);
    WT_OK(weft_boot_open_local(name, 0, 2, &second));
    weft_boot_close(second);
}

static void
a_name_that_is_taken_is_told_and_free_again_after_close(void **state)
{
    (void)state;
    wt_run_job_threads(&(const wt_job){.ranks = 1, .bare = open_a_taken_name});
}

static void open_long_names(void)
{
    char name[2][1000];
    weft_boot *b[2];

    memset(name, 'n', sizeof(name));
    name[0][998] = 'x';
    name[0][999] = '\0';
    name[1][999] = '\0';
    WT_OK(weft_boot_open_local(name[0], 0, 2, &b[0]));
    WT_OK(weft_boot_open_local(name[1], 0, 2, &b[1]));
    weft_boot_close(b[0]);
    weft_boot_close(b[1]);
}

static void names_may_be_long(void **state)
{
    (void)state;
    wt_run_job_threads(&(const wt_job){.ranks = 1, .bare = open_long_names});
}

/* Three ranks, of which the last says it is one that is there already, or
 * counts differently. */
static void come_twice(void)
{
    bool odd = wt_rank() == 2;
    weft_boot *b = table_of(0, odd ? 1 : wt_rank(), 3);

    if (odd) {
        wt_word_await(0, 1);
        WT_STATUS(b->set(b->ctx, "mine", "x", 1), WEFT_ERR_MISMATCH);
        WT_CHECK(wt_names_rank(weft_error_detail(), 1));
        wt_word_set(1, 1);
    } else {
        set_own_and_see_it(b);
        wt_word_add(0, wt_rank());
        wt_word_await(1, 1);
        WT_OK(get_of(b, 0, &(uint32_t){0}));
        WT_OK(get_of(b, 1, &(uint32_t){0}));
    }
    weft_boot_close(b);
}

static void a_rank_that_is_there_twice_is_told_and_ignored(void **state)
{
    (void)state;
    wt_run_job_both(&(const wt_job){.ranks = 3, .bare = come_twice});
}

static void count_differently(void)
{
    weft_boot *b = table_of(0, wt_rank(), 2 + wt_rank());

    if (wt_rank() == 1) {
        WT_STATUS(get_what_nobody_sets(b), WEFT_ERR_MISMATCH);
        WT_CHECK(strstr(weft_error_detail(), "2 ranks") != NULL);
        WT_CHECK(strstr(weft_error_detail(), "1 of 3") != NULL);
    }
    wt_meet();
    weft_boot_close(b);
}

static void ranks_that_count_differently_are_told(void **state)
{
    (void)state;
    wt_run_job_both(&(const wt_job){.ranks = 2, .bare = count_differently});
}

/* --- strangers ----------------------------------------------------------- */

static int stranger_connect(unsigned round)
{
    wf_boot_name at;
    char name[64];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    wt_job_name(round, name, sizeof(name));
    wf_boot_local_name(name, &at);
    WT_CHECK(fd >= 0);
    WT_CHECK(connect(fd, (struct sockaddr *)&at.address, at.n) == 0);
    return fd;
}

/* Nothing but the end comes back. */
static void stranger_check_closed(int fd)
{
    char c;
    ssize_t n = read(fd, &c, 1);

    WT_CHECK(n == 0 || (n < 0 && errno == ECONNRESET));
    close(fd);
}

static void stranger_send(int fd, const void *bytes, size_t n)
{
    WT_CHECK(send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n);
}

static void stranger_sends_junk(void)
{
    static const char junk[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int fd = stranger_connect(0);

    stranger_send(fd, junk, sizeof(junk));
    stranger_check_closed(fd);
}

/* A message that is good by itself, but not from one who has not said HELLO. */
static void stranger_speaks_out_of_turn(wf_wire_kind kind, const char *key)
{
    wf_wire_msg msg = {.kind = kind, .value = "", .n = 0};
    unsigned char bytes[256];
    int fd = stranger_connect(0);

    snprintf(msg.key, sizeof(msg.key), "%s", key);
    wf_wire_write(&msg, bytes);
    stranger_send(fd, bytes, wf_wire_size(&msg));
    stranger_check_closed(fd);
}

static void meet_strangers(void)
{
    weft_boot *b = table(0);
    int half = -1;

    weft_log_set_level(WEFT_LOG_ERROR);
    set_own(b);
    if (wt_rank() == 0) {
        /* This one says half a word and then nothing. */
        half = stranger_connect(0);
        stranger_send(half, "\x01", 1);
        stranger_sends_junk();
        stranger_speaks_out_of_turn(WF_WIRE_SET, "rank.2");
        stranger_speaks_out_of_turn(WF_WIRE_GET, "rank.0");
        stranger_speaks_out_of_turn(WF_WIRE_DONE, "");
        stranger_speaks_out_of_turn(WF_WIRE_VALUE, "");
        wt_word_set(0, 1);
    } else if (wt_rank() == wt_ranks() - 1) {
        wt_word_await(0, 1);
    }
    check_all(b);
    weft_boot_close(b);
    if (half >= 0) {
        stranger_check_closed(half);
    }
}

/* The last rank joins only afterwards, so the socket is open to strangers. */
static void meet_strangers_first(void)
{
    if (wt_rank() == wt_ranks() - 1) {
        wt_word_await(0, 1);
    }
    meet_strangers();
}

static void strangers_and_junk_do_not_hurt_the_job(void **state)
{
    (void)state;
    wt_run_job_both(&(const wt_job){.ranks = 3, .bare = meet_strangers_first});
}

/* Far more connections than there are ranks: rank 1 has to wait in the queue
 * until they are gone, and then gets in. */
static void crowd(void)
{
    enum { CROWD = 200 };
    int fds[CROWD];
    weft_boot *b;

    if (wt_rank() == 1) {
        wt_word_await(0, 1);
    }
    b = table(0);
    if (wt_rank() == 0) {
        for (int i = 0; i < CROWD; i++) {
            fds[i] = stranger_connect(0);
        }
        wt_word_set(0, 1);
        for (int i = 0; i < CROWD; i++) {
            close(fds[i]);
        }
    }
    set_own(b);
    check_all(b);
    weft_boot_close(b);
}

static void a_crowd_of_connections_keeps_no_rank_out(void **state)
{
    (void)state;
    wt_run_job_both(&(const wt_job){.ranks = 2, .bare = crowd});
}

/* The address has the user's number in it, so it is made before the child
 * becomes another user. */
static void another_user_knocks(unsigned round)
{
    wf_boot_name at;
    char name[64];
    pid_t pid;
    int code;

    wt_job_name(round, name, sizeof(name));
    wf_boot_local_name(name, &at);
    pid = fork();
    WT_CHECK(pid >= 0);
    if (pid == 0) {
        char c;
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        bool turned_away =
            setuid(WT_NOBODY) == 0 &&
            connect(fd, (struct sockaddr *)&at.address, at.n) == 0 &&
            read(fd, &c, 1) == 0;

        _exit(turned_away ? 0 : 1);
    }
    WT_CHECK(waitpid(pid, &code, 0) == pid && code == 0);
}

/* Rank 1 waits in vain, and is told who has the address. Then rank 0 comes, and
 * both find each other beside it. */
static void another_user_holds(unsigned round, bool full)
{
    uint32_t value = 7;
    size_t n = sizeof(value);
    char name[64];
    wf_boot_name at;
    weft_boot *rank0 = NULL;
    weft_boot *rank1 = NULL;
    weft_boot *second = NULL;
    pid_t pid;

    wt_job_name(round, name, sizeof(name));
    wf_boot_local_name(name, &at);
    pid = wt_other_user_listens(&at.address, at.n, full);
    WT_OK(weft_boot_open_local(name, 1, 2, &rank1));
    WT_STATUS(rank1->get(rank1->ctx, "key", &value, &n, 1), WEFT_ERR_TIMEOUT);
    WT_CHECK(full || strstr(weft_error_detail(), "user 65534") != NULL);
    WT_OK(weft_boot_open_local(name, 0, 2, &rank0));
    WT_STATUS(weft_boot_open_local(name, 0, 2, &second), WEFT_ERR_INVALID);
    WT_CHECK(strstr(weft_error_detail(), "already rank 0") != NULL);
    WT_OK(rank0->set(rank0->ctx, "key", &value, sizeof(value)));
    value = 0;
    WT_OK(rank1->get(rank1->ctx, "key", &value, &n, LONG_MS));
    WT_CHECK(value == 7);
    weft_boot_close(rank1);
    weft_boot_close(rank0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* The address is free again by the time that rank 1 comes, which then has to
 * look further all the same. */
static void another_user_leaves(unsigned round)
{
    uint32_t value = 7;
    size_t n = sizeof(value);
    char name[64];
    wf_boot_name at;
    weft_boot *rank0 = NULL;
    weft_boot *rank1 = NULL;
    pid_t pid;

    wt_job_name(round, name, sizeof(name));
    wf_boot_local_name(name, &at);
    pid = wt_other_user_listens(&at.address, at.n, false);
    WT_OK(weft_boot_open_local(name, 0, 2, &rank0));
    WT_OK(rank0->set(rank0->ctx, "key", &value, sizeof(value)));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    WT_OK(weft_boot_open_local(name, 1, 2, &rank1));
    WT_OK(rank1->get(rank1->ctx, "key", &value, &n, LONG_MS));
    weft_boot_close(rank1);
    weft_boot_close(rank0);
}

static void two_users(void)
{
    weft_boot *b;

    if (geteuid() != 0) {
        WT_SKIP("only root can be two users");
    }
    weft_log_set_level(WEFT_LOG_ERROR);
    b = table_of(0, 0, 2);
    another_user_knocks(0);
    weft_boot_close(b);
    another_user_holds(1, false);
    another_user_holds(2, true);
    another_user_leaves(3);
}

static void other_users_are_kept_out_and_keep_nobody_out(void **state)
{
    (void)state;
    wt_run_job(&(const wt_job){.ranks = 1, .bare = two_users});
}

/* --- limits -------------------------------------------------------------- */

static void open_without_descriptors(void)
{
    struct rlimit before;
    struct rlimit few;
    weft_status st;
    char name[64];
    rlim_t n = 0;

    wt_job_name(0, name, sizeof(name));
    WT_CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = before;
    do {
        weft_boot *b = NULL;

        few.rlim_cur = n++;
        WT_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        st = weft_boot_open_local(name, 0, 2, &b);
        WT_CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
        WT_CHECK(st == WEFT_OK || (st == WEFT_ERR_SYSTEM && b == NULL));
        WT_CHECK(st == WEFT_OK ||
                 strstr(weft_error_detail(), "ulimit -n") != NULL);
        weft_boot_close(b);
    } while (st != WEFT_OK);
    WT_CHECK(n > 1);
}

static void a_lack_of_descriptors_is_an_error(void **state)
{
    (void)state;
    wt_run_job_threads(
        &(const wt_job){.ranks = 1, .bare = open_without_descriptors});
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_rank_that_dies_is_named_and_does_not_hurt_the_others),
        cmocka_unit_test(the_death_of_rank_0_ends_every_wait),
        cmocka_unit_test(a_table_ends_though_a_rank_never_came),
        cmocka_unit_test(
            a_name_that_is_taken_is_told_and_free_again_after_close),
        cmocka_unit_test(names_may_be_long),
        cmocka_unit_test(a_rank_that_is_there_twice_is_told_and_ignored),
        cmocka_unit_test(ranks_that_count_differently_are_told),
        cmocka_unit_test(strangers_and_junk_do_not_hurt_the_job),
        cmocka_unit_test(a_crowd_of_connections_keeps_no_rank_out),
        cmocka_unit_test(other_users_are_kept_out_and_keep_nobody_out),
        cmocka_unit_test(a_lack_of_descriptors_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
