/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of this host: who they are, a socket to each, the board they
 * share, and mail: small messages that can carry a file descriptor.
 *
 * Joining, in order:
 *   1. Each rank listens on an abstract Unix socket with a random name and
 *      publishes a record of itself through the bootstrap table.
 *   2. Rank 0 collects the records and publishes all of them with a secret.
 *   3. Ranks with the same boot id, user and namespaces connect; both sides of
 *      a connection prove the secret (a challenge each, a keyed hash back) and
 *      the kernel vouches for the user.
 *   4. The lowest rank of the host makes the board of each node (of several, if
 *      WEFT_NODE pretends that there are) and sends the descriptor to the
 *      others, and likewise the arena of each node (mem/arena.h); each maps
 *      both, writes its entry and answers READY; when all have, the lowest rank
 *      sends GO. A node has an arena if all its ranks could map it.
 *
 * From then on a thread watches the sockets (and pidfds, where the kernel has
 * them): if that of a rank of the same node ends while the board does not say
 * that the rank left, the rank has died. What happens on other nodes, also on
 * those that are pretended, is told by them (comm/control.h). The thread also
 * receives the mail. Up to `mesh_ranks` ranks are all connected with each
 * other; above that each is connected with its neighbours and with the lowest
 * rank, which forwards mail. */
#ifndef WF_MEM_HOST_H
#define WF_MEM_HOST_H

#include <pthread.h>
#include <stdbool.h>
#include <weft/boot.h>
#include <weft/status.h>

#include "base/patience.h"
#include "base/secret.h"
#include "base/settings.h"
#include "mem/arena.h"
#include "mem/board.h"
#include "mem/join.h"
#include "mem/segment.h"

#define WF_MAIL_MAX 2048
#define WF_NOT_HERE UINT32_MAX

/* What each rank knows about every rank of the job. */
typedef struct wf_peer {
    char host[64];
    int32_t pid;
    uint32_t node;  /* ranks with the same number may map each other's memory */
    uint32_t local; /* index on this host, or WF_NOT_HERE */
    uint32_t range; /* index on its node: of its range of the arena */
    wf_board_rank *bell; /* what it sleeps on, on its own board; NULL: another
                            host's */
    /* The socket of a rank of this host, but of another node, ended. */
    _Atomic bool parted;
} wf_peer;

typedef struct wf_mailbox wf_mailbox;
typedef struct wf_watch wf_watch;

typedef struct wf_host {
    uint32_t rank; /* in the job */
    uint32_t ranks;
    uint32_t nodes;
    uint32_t self; /* on this host */
    uint32_t count;
    uint32_t cpus;      /* cores that the ranks of this host may use together */
    bool yields;        /* sched_yield gives the core to other ranks, too */
    wf_peer *peer;      /* by rank in the job */
    uint32_t *rank_of;  /* local index -> rank in the job */
    int *link;          /* local index -> socket, or -1 */
    wf_segment control; /* holds the boards of the nodes of this host */
    int shown; /* its descriptor, for reading, by which others find it; or -1 */
    wf_board *board;         /* of this rank's node */
    wf_arena *arena;         /* of this rank; NULL: its node has none */
    wf_arena *arena_room;    /* memory for it, until it is there */
    _Atomic uint32_t parted; /* how many of the peers have */
    _Atomic bool found;      /* this rank was first to see that one had died */
    /* Threads that sleep until there is something to do on a port with a
     * descriptor, and will drive when the first bell rings. */
    _Atomic uint32_t drivers_asleep;
    uint64_t job;           /* random, the same on all ranks */
    _Atomic bool orphan;    /* this process is a forked child, see mem/fork.h */
    wf_interrupt interrupt; /* asked by waits for other ranks */
    wf_mailbox *mailbox;
    wf_watch *watch;
    wf_join_table *table;      /* with the addresses of all ranks */
    struct wf_host *next_host; /* these two: src/mem/fork.c */
    const struct wf_fork_calls *on_fork;
} wf_host;

/* Join the ranks that `boot` knows, telling them this rank's `count` addresses.
 * Collective. WEFT_ERR_ABORTED if the caller was interrupted. */
weft_status wf_host_join(const weft_boot *boot, const wf_settings *settings,
                         const wf_address *addresses, size_t count,
                         wf_interrupt interrupt, wf_host **out);

/* Set our state on the board to LEFT: from now on our end is not a death. */
void wf_host_goodbye(wf_host *host);
/* Leave and free everything, with a goodbye if there was none. Takes NULL. */
void wf_host_leave(wf_host *host);

/* What this node knows of a rank of the job. */
static inline wf_board_rank *wf_host_entry(const wf_host *host, uint32_t rank)
{
    return &host->board->rank[rank];
}

/* What a rank of this host really sleeps on, for those who write to its memory.
 */
static inline wf_board_rank *wf_host_bell(const wf_host *host, uint32_t rank)
{
    return host->peer[rank].bell;
}

/* May this rank map the memory of that one? */
static inline bool wf_host_same_node(const wf_host *host, uint32_t rank)
{
    return host->peer[rank].node == host->peer[host->rank].node;
}

/* Where the range of a rank of this node lies in the arena, as mapped here;
 * NULL if there is no arena, or for ranks of other nodes. */
static inline unsigned char *wf_host_range(const wf_host *host, uint32_t rank)
{
    return host->arena != NULL && wf_host_same_node(host, rank)
               ? host->arena->base + host->peer[rank].range * host->arena->range
               : NULL;
}

/* The entry of the caller's own rank. */
static inline wf_board_rank *wf_host_own(const wf_host *host)
{
    return &host->board->rank[host->rank];
}

/* The shelf of the caller's own rank. */
static inline wf_shelf *wf_host_shelf(const wf_host *host)
{
    return wf_board_shelf(host->board, host->rank);
}

/* All waits on this node shall look whether somebody is gone. Called after that
 * was stored where they look. */
void wf_host_alarm(wf_host *host);

/* Is it known that this rank died? */
bool wf_host_died(const wf_host *host, uint32_t rank);

/* WEFT_OK, or WEFT_ERR_PEER with rank, pid, host and how it went. */
weft_status wf_host_check(const wf_host *host, uint32_t rank);

/* Is the process of this rank stopped (SIGSTOP, a debugger)? False if unknown.
 */
bool wf_host_stopped(const wf_host *host, uint32_t rank);

/* Send up to WF_MAIL_MAX bytes, and `fd` unless it is -1 (it stays the
 * caller's), to a rank of this host. Returns when the kernel has it. */
weft_status wf_host_post(wf_host *host, uint32_t to, uint64_t key,
                         const void *data, size_t n, int fd);

/* Wait for the oldest mail with `key` from rank `from`. `*n` is the size of the
 * buffer `data` on entry, the length of the mail on return. `fd`, if not NULL,
 * becomes the caller's descriptor, or -1. WEFT_ERR_TIMEOUT at `deadline_ns`
 * (monotonic; 0 means: do not wait), WEFT_ERR_PEER if `from` dies or leaves
 * before sending it. Only `from` is checked: see mem/await.h. With
 * WEFT_ERR_SYSTEM the descriptor was lost, and the data is there; with
 * WEFT_ERR_PROTOCOL it is longer than the buffer, which has its beginning. */
weft_status wf_host_take(wf_host *host, uint32_t from, uint64_t key, void *data,
                         size_t *n, int *fd, uint64_t deadline_ns);

/* Is there such mail? */
bool wf_host_has_mail(wf_host *host, uint32_t from, uint64_t key);

/* Of mail with a descriptor whose key has this bit only the newest is kept for
 * each key and sender, so that what nobody takes holds one descriptor only. */
#define WF_MAIL_NEWEST (1ull << 58)

/* The time since which mail cannot be received for lack of memory, or 0. */
uint64_t wf_host_starved_ns(wf_host *host);

/* Called by the watching thread for mail whose key has this bit, which is then
 * not queued; set before any such mail can be sent. */
#define WF_MAIL_CALL (1ull << 63)
typedef void wf_mail_fn(void *ctx, uint32_t from, uint64_t key,
                        const void *data, size_t n);
void wf_host_on_mail(wf_host *host, wf_mail_fn *fn, void *ctx);

#endif
