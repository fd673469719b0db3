/* SPDX-License-Identifier: Apache-2.0 */
/* The NUMA node of memory. The system call is made directly, so that libnuma is
 * not needed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "mem/segment.h"

#define NUMA_NODES 1024u
#define NUMA_WORD (8 * sizeof(unsigned long))
#define NUMA_PREFERRED 1 /* MPOL_PREFERRED */

weft_status wf_memory_prefer_node(void *at, size_t bytes, uint32_t node)
{
    unsigned long mask[NUMA_NODES / NUMA_WORD] = {0};
    char path[64];

    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u", node);
    if (node >= NUMA_NODES || (node > 0 && access(path, F_OK) != 0)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "NUMA node %u does not exist on this host", node);
    }
    mask[node / NUMA_WORD] = 1ul << node % NUMA_WORD;
    /* The kernel uses one bit less than maxnode says. */
    if (bytes > 0 && syscall(SYS_mbind, at, bytes, NUMA_PREFERRED, mask,
                             NUMA_NODES + 1, 0) != 0) {
        /* A kernel or container without mbind: memory on any node will do. */
        wf_log(WEFT_LOG_INFO, "memory could not be placed on NUMA node %u: %s",
               node, strerror(errno));
    }
    return WEFT_OK;
}
