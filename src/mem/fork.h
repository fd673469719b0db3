/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a host in a forked child. Its sockets are closed there, so
 * that a child does not keep its dead parent looking alive. The host becomes an
 * orphan: calls that involve other ranks fail. And the memory through which
 * ranks communicate (the board, message rings, the segments of communicators)
 * is replaced by private memory at the same addresses, so that nothing the
 * child does reaches its parent's job. Memory that belongs to the user
 * (regions) stays shared; the arena becomes the child's own (mem/arena.h).
 *
 * A child has a copy of everything as it was at the fork, and of all threads
 * only the one that forked: what other threads change under a lock must be
 * consistent then, so that lock is held over the fork. */
#ifndef WF_MEM_FORK_H
#define WF_MEM_FORK_H

#include "mem/host.h"

/* From now on there are handlers. */
void wf_fork_watch(void);

void wf_fork_add(wf_host *host);
void wf_fork_remove(wf_host *host);

/* Callbacks of the layer above a host around each fork from now on, on the
 * thread that forks; after() is called in both processes. */
typedef struct wf_fork_calls {
    void (*before)(void *ctx);
    void (*after)(void *ctx, bool in_child);
    void *ctx;
} wf_fork_calls;
void wf_fork_tell(wf_host *host, const wf_fork_calls *calls);

#endif
