/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors, where a negative number stands for none. */
#ifndef WF_BASE_FD_H
#define WF_BASE_FD_H

#include <unistd.h>

/* Does nothing if there is none. */
static inline void wf_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

#endif
