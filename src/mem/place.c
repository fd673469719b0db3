/* SPDX-License-Identifier: Apache-2.0 */
/* On which NUMA node memory lies. The system call is made directly, so that
 * nobody needs libnuma. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "mem/segment.h"

#define PLACE_NODES 1024u
#define PLACE_WORD (8 * sizeof(unsigned long))
#define PLACE_PREFERRED 1 /* MPOL_PREFERRED */

weft_status wf_memory_place(void *at, size_t bytes, uint32_t node)
{
    unsigned long mask[PLACE_NODES / PLACE_WORD] = {0};
    char path[64];

    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u", node);
    if (node >= PLACE_NODES || (node > 0 && access(path, F_OK) != 0)) {
        return wf_fail(WEFT_ERR_INVALID, "there is no NUMA node %u here", node);
    }
    mask[node / PLACE_WORD] = 1ul << node % PLACE_WORD;
    /* The kernel counts one bit less than it is told. */
    if (bytes > 0 && syscall(SYS_mbind, at, bytes, PLACE_PREFERRED, mask,
                             PLACE_NODES + 1, 0) != 0) {
        /* A kernel or a container without it: the memory is good elsewhere. */
        wf_log(WEFT_LOG_INFO, "memory could not be placed on NUMA node %u: %s",
               node, strerror(errno));
    }
    return WEFT_OK;
}
