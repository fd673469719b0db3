/* SPDX-License-Identifier: Apache-2.0 */
/* Taking things away from the calling process, for good: tests do it in a rank
 * of their own. */
#ifndef WT_DENY_H
#define WT_DENY_H

/* Let the system call `number` fail with `error` from now on, in all threads.
 * Ends the rank as skipped if the kernel has no seccomp filters. */
void wt_deny_syscall(int number, int error);

/* End the process as kill -9 would, in the moment in which a thread of it makes
 * the system call `number`. The rank is a doomed one. */
void wt_die_at_syscall(int number);

/* Allow `n` descriptors more than are open now / `bytes` more address space
 * than is used now. Return the old soft limit, for wt_restore_limit. */
unsigned long wt_limit_fds(unsigned n);
unsigned long wt_limit_memory(unsigned long bytes);
void wt_restore_fds(unsigned long limit);
void wt_restore_memory(unsigned long limit);

#endif
