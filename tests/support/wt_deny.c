/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "wt_deny.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wt.h"

static void answer_syscall(int number, unsigned answer)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC,
                &program) != 0) {
        WT_SKIP("no seccomp filters here");
    }
}

void wt_deny_syscall(int number, int error)
{
    answer_syscall(number, SECCOMP_RET_ERRNO | (unsigned)error);
}

void wt_die_at_syscall(int number)
{
    answer_syscall(number, SECCOMP_RET_KILL_PROCESS);
}

static unsigned long lower(__rlimit_resource_t what, unsigned long limit)
{
    struct rlimit r;
    unsigned long before;

    WT_CHECK(getrlimit(what, &r) == 0);
    before = r.rlim_cur;
    r.rlim_cur = limit;
    WT_CHECK(setrlimit(what, &r) == 0);
    return before;
}

/* The limit is one above the highest number that can be opened. */
unsigned long wt_limit_fds(unsigned n)
{
    int lowest_free = fcntl(0, F_DUPFD, 0);

    WT_CHECK(lowest_free >= 0);
    close(lowest_free);
    return lower(RLIMIT_NOFILE, (unsigned long)lowest_free + n);
}

unsigned long wt_limit_memory(unsigned long bytes)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long pages = 0;

    WT_CHECK(f != NULL && fscanf(f, "%lu", &pages) == 1);
    fclose(f);
    return lower(RLIMIT_AS,
                 pages * (unsigned long)sysconf(_SC_PAGESIZE) + bytes);
}

void wt_restore_fds(unsigned long limit)
{
    lower(RLIMIT_NOFILE, limit);
}

void wt_restore_memory(unsigned long limit)
{
    lower(RLIMIT_AS, limit);
}
