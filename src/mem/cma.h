/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-memory attach (CMA): reading the memory of another process of this host
 * with process_vm_readv. The kernel may forbid it (Yama, seccomp, another
 * user), and some memory cannot be read that way (a device's), so every caller
 * needs a fallback.
 *
 * Ranks that are threads of one process are read in the same way: the buffer of
 * a rank whose operation failed may be unmapped, which the kernel notices. */
#ifndef WF_MEM_CMA_H
#define WF_MEM_CMA_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Bytes read, which may be fewer than `n`, or -1 with errno. */
ssize_t wf_cma_read(int32_t pid, void *to, uint64_t address, size_t n);

/* Can we read the process whose random number `value` lies at `address`?
 * Returns NULL, or the reason why not. */
const char *wf_cma_refusal(int32_t pid, uint64_t address, uint64_t value);

/* Is this errno of a failed read permanent? */
bool wf_cma_forbidden(int error);

#endif
