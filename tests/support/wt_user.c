/* SPDX-License-Identifier: Apache-2.0 */
#include "wt_user.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wt.h"

static bool fill_queue(const struct sockaddr *address, socklen_t n)
{
    int failed = 0;

    while (failed == 0) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

        failed = fd < 0 || connect(fd, address, n) != 0 ? errno : 0;
        if (fd >= 0) {
            close(fd); /* it stays in the queue */
        }
    }
    return failed == EAGAIN;
}

static void listen_as_nobody(const struct sockaddr *address, socklen_t n,
                             bool full, int ready)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    if (setuid(WT_NOBODY) == 0 && bind(fd, address, n) == 0 &&
        listen(fd, full ? 0 : 8) == 0 && (!full || fill_queue(address, n)) &&
        write(ready, "x", 1) == 1) {
        pause();
    }
    _exit(1);
}

pid_t wt_other_user_listens(const struct sockaddr_un *address, socklen_t n,
                            bool full)
{
    int ready[2];
    pid_t pid;
    char c;

    WT_CHECK(pipe(ready) == 0);
    pid = fork();
    WT_CHECK(pid >= 0);
    if (pid == 0) {
        listen_as_nobody((const struct sockaddr *)address, n, full, ready[1]);
    }
    close(ready[1]);
    WT_CHECK(read(ready[0], &c, 1) == 1);
    close(ready[0]);
    return pid;
}

void wt_other_user_fills(const struct sockaddr_un *address, socklen_t n)
{
    pid_t pid = fork();
    int status = 0;

    WT_CHECK(pid >= 0);
    if (pid == 0) {
        _exit(setuid(WT_NOBODY) == 0 &&
                      fill_queue((const struct sockaddr *)address, n)
                  ? 0
                  : 1);
    }
    WT_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}
