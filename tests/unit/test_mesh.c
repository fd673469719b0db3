/* SPDX-License-Identifier: Apache-2.0 */
/* Who is blamed when a link ends while the job is forming. */
#include "mem/mesh.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/status.h"
#include "mem/link.h"
#include "wt_cmocka.h"

enum { RANKS = 4, SELF = 3 };

typedef struct job {
    wf_host host;
    wf_peer peer[RANKS];
    uint32_t rank_of[RANKS];
    int link[RANKS];
    int far[RANKS]; /* the others' ends */
} job;

/* Ranks 0 to 2 as rank 3 sees them; all of them are this process. */
static void job_open(job *j)
{
    memset(j, 0, sizeof(*j));
    j->host = (wf_host){.rank = SELF,
                        .ranks = RANKS,
                        .self = SELF,
                        .count = RANKS,
                        .peer = j->peer,
                        .rank_of = j->rank_of,
                        .link = j->link};
    for (uint32_t i = 0; i < RANKS; i++) {
        int ends[2] = {-1, -1};

        j->peer[i] = (wf_peer){.host = "here", .pid = getpid(), .local = i};
        j->rank_of[i] = i;
        if (i != SELF) {
            assert_int_equal(
                socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
        }
        j->link[i] = ends[0];
        j->far[i] = ends[1];
    }
}

static void job_close(job *j)
{
    for (uint32_t i = 0; i < RANKS; i++) {
        if (j->link[i] >= 0) {
            close(j->link[i]);
        }
        if (j->far[i] >= 0) {
            close(j->far[i]);
        }
    }
}

static void leave(job *j, uint32_t rank)
{
    close(j->far[rank]);
    j->far[rank] = -1;
}

/* The number of a process that has ended; nobody waits for it yet. */
static pid_t dead_child(void)
{
    siginfo_t info;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    return pid;
}

static void a_rank_that_leaves_alone_is_named(void **state)
{
    job j;

    (void)state;
    job_open(&j);
    leave(&j, 1);
    assert_int_equal(wf_mesh_lost(&j.host, 1), WEFT_ERR_PEER);
    assert_non_null(strstr(weft_error_detail(), "rank 1 "));
    job_close(&j);
}

static void one_that_died_is_named_before_those_that_left(void **state)
{
    pid_t pid = dead_child();
    job j;

    (void)state;
    job_open(&j);
    j.peer[2].pid = pid;
    leave(&j, 1);
    leave(&j, 2);
    assert_int_equal(wf_mesh_lost(&j.host, 1), WEFT_ERR_PEER);
    assert_non_null(strstr(weft_error_detail(), "rank 2 "));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    leave(&j, 0);
    j.peer[2].pid = pid; /* waited for: the number means nobody */
    assert_int_equal(wf_mesh_lost(&j.host, 0), WEFT_ERR_PEER);
    assert_non_null(strstr(weft_error_detail(), "rank 2 "));
    job_close(&j);
}

static void last_words_count_most(void **state)
{
    static const char why[] = "rank 0 ran out of memory";
    wf_packet p = {.kind = WF_PACKET_FAILED, .from = 0, .bytes = sizeof(why)};
    pid_t pid = dead_child();
    job j;

    (void)state;
    job_open(&j);
    memcpy(p.data, why, sizeof(why));
    assert_int_equal(wf_link_send(j.far[0], &p, -1, UINT64_MAX), WEFT_OK);
    j.peer[2].pid = pid;
    leave(&j, 0);
    leave(&j, 2);
    assert_int_equal(wf_mesh_lost(&j.host, 2), WEFT_ERR_PEER);
    assert_non_null(strstr(weft_error_detail(), why));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    job_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_leaves_alone_is_named),
        cmocka_unit_test(one_that_died_is_named_before_those_that_left),
        cmocka_unit_test(last_words_count_most),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
