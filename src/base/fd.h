/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors, where a negative number stands for none. */
#ifndef WF_BASE_FD_H
#define WF_BASE_FD_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

/* Does nothing if there is none. */
static inline void wf_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

/* Write all of it, however often a signal or a full buffer stops that. False:
 * errno says why not. */
static inline bool wf_write_all(int fd, const void *data, size_t n)
{
    const char *p = data;

    while (n > 0) {
        ssize_t put = write(fd, p, n);

        if (put < 0 && errno != EINTR) {
            return false;
        }
        if (put > 0) {
            p += put;
            n -= (size_t)put;
        }
    }
    return true;
}

#endif
