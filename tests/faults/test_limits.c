/* SPDX-License-Identifier: Apache-2.0 */
/* Too few descriptors, too little memory, system calls that are denied: an
 * error or another way, never a crash, a hang or a leak. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"
#include "wt_data.h"
#include "wt_deny.h"
#include "wt_proc.h"

#define IMPATIENT "BOOT_TIMEOUT=500ms TIMEOUT=1s"
/* Long enough for those who come late, where all or none must succeed. */
#define PATIENT                                                                \
    (WT_ASAN ? "BOOT_TIMEOUT=4s TIMEOUT=8s" : "BOOT_TIMEOUT=1s TIMEOUT=2s")

/* --- everything a world can do, or an error ------------------------------ */

static weft_status exchange(weft_comm *comm, char *buf, size_t n)
{
    uint32_t size = weft_comm_size(comm);
    uint32_t me = weft_comm_rank(comm);
    weft_request *request = NULL;
    weft_status st;
    weft_status sent;

    st = weft_irecv(comm, buf, n, (me + size - 1) % size, 1, NULL, &request);
    if (st != WEFT_OK) {
        return st;
    }
    sent = weft_send(comm, buf + n, n, (me + 1) % size, 1);
    st = weft_request_wait(request, 0);
    weft_request_release(request);
    return sent != WEFT_OK ? sent : st;
}

/* All other collectives, small and large. */
static weft_status use_collectives(weft_comm *comm)
{
    weft_status st = WEFT_OK;

    for (unsigned i = 0; st == WEFT_OK && i < 2 * WT_COLLS; i++) {
        wt_coll what = {.kind = (wt_coll_kind)(i / 2),
                        .type = WEFT_I32,
                        .op = WEFT_MAX,
                        .n = i % 2 == 0 ? 5 : 30000,
                        .seed = i};
        wt_call call;

        wt_call_init(&call, comm, &what, NULL);
        st = wt_call_run(&call);
        if (st == WEFT_OK) {
            wt_call_check(&call);
        }
        wt_call_fini(&call);
    }
    return st;
}

/* Large enough for every way there is to move data. */
static weft_status use_world(weft_world *world)
{
    static const size_t n = 1000000;
    weft_comm *comm = weft_world_comm(world);
    unsigned before = (wt_rank() + wt_ranks() - 1) % wt_ranks();
    char *x = malloc(3 * n);
    float *sum = (float *)(void *)x;
    weft_status st;

    WT_CHECK(x != NULL);
    wt_fill_bytes(x + n, n, 1, wt_rank());
    wt_fill_bytes(x + 2 * n, n, 1, before);
    st = exchange(comm, x, n);
    WT_CHECK(st != WEFT_OK || memcmp(x, x + 2 * n, n) == 0);
    if (st == WEFT_OK) {
        memset(x, 0, n);
        sum[n / 4 - 1] = 1;
        st = weft_allreduce(comm, sum, sum, n / 4, WEFT_F32, WEFT_SUM);
        WT_CHECK(st != WEFT_OK || sum[n / 4 - 1] == (float)wt_ranks());
    }
    free(x);
    return st == WEFT_OK ? use_collectives(comm) : st;
}

/* All ranks try; what comes out is success or an error with a reason. */
static weft_status try_world(const char *settings, unsigned round)
{
    weft_world *world = NULL;
    weft_status st = wt_join(settings, round, &world);

    WT_CHECK((st == WEFT_OK) == (world != NULL));
    if (st == WEFT_OK) {
        st = use_world(world);
    }
    WT_CHECK(st == WEFT_OK || weft_error_detail()[0] != '\0');
    weft_world_destroy(world);
    return st;
}

/* --- descriptors --------------------------------------------------------- */

/* The limited rank is the last one; the others have what they want. The last
 * time it has enough, and all have the time that they need. */
static void few_fds_body(void)
{
    bool limited = wt_rank() + 1 == wt_ranks();
    unsigned step = wt_ranks() == 1 || wt_full() ? 1 : 4;
    unsigned fds = wt_count_fds();
    weft_status st = WEFT_ERR_SYSTEM;

    for (unsigned n = 0; n < 40; n += step) {
        unsigned long before = limited ? wt_limit_fds(n) : 0;

        st = try_world(n + step < 40 ? IMPATIENT : NULL, n);
        if (limited) {
            wt_restore_fds(before);
        }
        if (st == WEFT_ERR_PROTOCOL) {
            WT_FAIL("others are blamed for it: %s", weft_error_detail());
        }
        WT_CHECK(wt_count_fds() == fds);
        wt_meet();
    }
    WT_OK(st);
}

static void too_few_descriptors_are_an_error_for_all(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = 1, .bare = few_fds_body});
    wt_run_job(&(wt_job){.ranks = 2, .bare = few_fds_body});
    wt_run_job(&(wt_job){.ranks = 3, .bare = few_fds_body});
}

/* --- memory -------------------------------------------------------------- */

static void little_memory_body(void)
{
    bool limited = wt_rank() + 1 == wt_ranks();

    for (unsigned mib = 0; mib <= 64; mib = mib == 0 ? 1 : 2 * mib) {
        weft_world *world = NULL;
        unsigned long before = limited ? wt_limit_memory(mib << 20) : 0;
        weft_status st = wt_join(IMPATIENT, mib, &world);

        /* Only the library's own needs: the test itself needs memory too. */
        if (st == WEFT_OK) {
            st = weft_barrier(weft_world_comm(world));
        }
        if (limited) {
            wt_restore_memory(before);
        }
        WT_CHECK(st == WEFT_OK || weft_error_detail()[0] != '\0');
        weft_world_destroy(world);
        wt_meet();
    }
    WT_OK(try_world(NULL, 1000));
}

static void too_little_memory_is_an_error_for_all(void **state)
{
    (void)state;
    if (WT_ASAN || WT_TSAN) {
        skip(); /* sanitizers take terabytes of address space for themselves */
    }
    wt_run_job(&(wt_job){.ranks = 1, .bare = little_memory_body});
    wt_run_job(&(wt_job){.ranks = 2, .bare = little_memory_body});
}

/* --- reading other processes' memory ------------------------------------- */

static void must_work_body(void)
{
    WT_OK(try_world("TIMEOUT=1800s", 0));
}

static void not_dumpable_body(void)
{
    prctl(PR_SET_DUMPABLE, 0);
    must_work_body();
}

static void no_vm_read_body(void)
{
    wt_deny_syscall(SYS_process_vm_readv, EPERM);
    wt_deny_syscall(SYS_process_vm_writev, EPERM);
    must_work_body();
}

static void no_vm_read_on_one_body(void)
{
    if (wt_rank() == 1) {
        wt_deny_syscall(SYS_process_vm_readv, ENOSYS);
    }
    must_work_body();
}

/* A sandbox that is entered only after the job has begun. */
static void vm_read_taken_away_body(void)
{
    weft_world *world = NULL;

    WT_OK(wt_join("TIMEOUT=1800s", 0, &world));
    WT_OK(use_world(world));
    wt_deny_syscall(SYS_process_vm_readv, EPERM);
    WT_OK(use_world(world));
    weft_world_destroy(world);
}

static void no_cma_body(void)
{
    WT_OK(try_world("SHM_CMA=0", 0));
    WT_OK(try_world("SHM_CMA=0 ENGINE=message", 1));
}

static void only_messages_body(void)
{
    WT_OK(try_world("SHM_CMA=1 ENGINE=message", 0));
    wt_deny_syscall(SYS_process_vm_readv, EPERM);
    WT_OK(try_world("SHM_CMA=1 ENGINE=message", 1));
}

static void large_messages_need_no_access_to_the_sender(void **state)
{
    void (*const bodies[])(void) = {no_cma_body,
                                    not_dumpable_body,
                                    no_vm_read_body,
                                    no_vm_read_on_one_body,
                                    vm_read_taken_away_body,
                                    only_messages_body};

    (void)state;
    for (unsigned i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        wt_run_job(&(wt_job){.ranks = 3, .bare = bodies[i]});
    }
}

/* --- other system calls -------------------------------------------------- */

/* Set before the ranks are forked. */
static struct {
    int syscall;
    int error;
    bool on_all;
    bool spared; /* there is another way */
} denied;

/* Words of the board: ranks that had a world, and that had none. */
enum { WITH, WITHOUT };

/* All have a world or none has one, and whoever was denied the call says so. */
static void denied_body(void)
{
    bool here = denied.on_all || wt_rank() == 1;
    weft_status st;

    if (here) {
        wt_deny_syscall(denied.syscall, denied.error);
    }
    wt_meet();
    st = try_world(denied.spared ? NULL : PATIENT, 0);
    if (denied.spared) {
        WT_OK(st);
    }
    wt_word_add(st == WEFT_OK ? WITH : WITHOUT, 1);
    wt_meet();
    WT_CHECK(atomic_load(wt_word(WITH)) == 0 ||
             atomic_load(wt_word(WITHOUT)) == 0);
    if (st != WEFT_OK) {
        wt_note("%s: %s", weft_status_name(st), weft_error_detail());
        WT_CHECK(st != WEFT_ERR_PROTOCOL && st != WEFT_ERR_MISMATCH);
        WT_CHECK(!here || denied.on_all || st != WEFT_ERR_TIMEOUT);
    }
}

static void deny(int number, int error, bool spared)
{
    denied.syscall = number;
    denied.error = error;
    denied.spared = spared;
    denied.on_all = false;
    wt_run_job(&(wt_job){.ranks = 3, .bare = denied_body});
    denied.on_all = true;
    wt_run_job(&(wt_job){.ranks = 3, .bare = denied_body});
    wt_run_job(&(wt_job){.ranks = 1, .bare = denied_body});
}

static void no_memfd_is_an_error_or_another_way(void **state)
{
    (void)state;
    deny(SYS_memfd_create, EPERM, false);
    deny(SYS_memfd_create, ENOSYS, false);
    deny(SYS_memfd_create, EMFILE, false);
}

static void other_denied_calls_are_an_error_or_another_way(void **state)
{
    (void)state;
    deny(SYS_socket, EACCES, false);
    deny(SYS_socketpair, EMFILE, false);
    deny(SYS_ftruncate, ENOSPC, false);
    deny(SYS_fallocate, ENOSPC, false);
    deny(SYS_eventfd2, EMFILE, false);
    deny(SYS_epoll_create1, EMFILE, false);
    deny(SYS_pidfd_open, ENOSYS, true);
    deny(SYS_madvise, EINVAL, true);
    deny(SYS_mbind, EPERM, true);
    deny(SYS_getrandom, ENOSYS, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_few_descriptors_are_an_error_for_all),
        cmocka_unit_test(too_little_memory_is_an_error_for_all),
        cmocka_unit_test(large_messages_need_no_access_to_the_sender),
        cmocka_unit_test(no_memfd_is_an_error_or_another_way),
        cmocka_unit_test(other_denied_calls_are_an_error_or_another_way),
    };

    if (WT_TSAN) {
        return WT_EXIT_SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
