/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/cma.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

ssize_t wf_cma_read(int32_t pid, void *to, uint64_t address, size_t n)
{
    struct iovec here = {to, n};
    struct iovec there = {(void *)(uintptr_t)address, n};

    return process_vm_readv(pid, &here, 1, &there, 1, 0);
}

/* Being allowed to is not enough: in another pid namespace the number may mean
 * another process. */
const char *wf_cma_refusal(int32_t pid, uint64_t address, uint64_t value)
{
    uint64_t seen = 0;
    ssize_t n = wf_cma_read(pid, &seen, address, sizeof(seen));

    if (n < 0) {
        return strerror(errno);
    }
    return n == (ssize_t)sizeof(seen) && seen == value
               ? NULL
               : "its pid means another process";
}

bool wf_cma_forbidden(int error)
{
    return error == EPERM || error == EACCES || error == ENOSYS;
}
