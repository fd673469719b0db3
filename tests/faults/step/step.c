/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "step.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wt.h"

static _Thread_local struct {
    wt_step_kind kind;
    unsigned left; /* 0: off */
} step;

void wt_step_arm(wt_step_kind kind, unsigned nth)
{
    step.kind = kind;
    step.left = nth;
}

bool wt_step_disarm(void)
{
    bool left = step.left != 0;

    step.left = 0;
    return left;
}

/* Is it this call's turn? */
static bool step_comes(bool mail)
{
    return step.left != 0 && (mail || step.kind == WT_STEP_KILL) &&
           --step.left == 0;
}

static void step_kill(void)
{
    if (step_comes(false)) {
        kill(getpid(), SIGKILL);
    }
}

/* An error that does not pass, so that nobody tries again. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (step_comes(true)) {
        switch (step.kind) {
        case WT_STEP_KILL:
            kill(getpid(), SIGKILL);
            break;
        case WT_STEP_DENY:
            errno = EMSGSIZE;
            return -1;
        default:
            wt_word_set(WT_STEP_STALLED, 1);
            wt_word_await(WT_STEP_GO, 1);
        }
    }
    return syscall(SYS_sendmsg, fd, message, flags);
}

int memfd_create(const char *name, unsigned flags)
{
    step_kill();
    return (int)syscall(SYS_memfd_create, name, flags);
}

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;
    va_list args;

    if ((flags & (O_CREAT | O_TMPFILE)) != 0) {
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    step_kill();
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int close(int fd)
{
    step_kill();
    return (int)syscall(SYS_close, fd);
}
