/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: ordered groups of ranks.
 *
 * All members call the collective operations of one communicator in the same
 * order. Collective calls on one communicator are made by one thread at a time;
 * messages on it may be sent and received by several threads, and different
 * communicators may be used by different threads at once.
 *
 * A communicator on which an operation failed because of a peer, a deadline or
 * a mismatch is broken: pending and later operations fail at once with the
 * same status and text, on all its ranks. It can only be destroyed. */
#ifndef WEFT_COMM_H
#define WEFT_COMM_H

#include <weft/status.h>
#include <weft/world.h>

WEFT_BEGIN_DECLS

/** The caller's rank in `comm`, from 0. */
WEFT_API uint32_t weft_comm_rank(const weft_comm *comm);
WEFT_API uint32_t weft_comm_size(const weft_comm *comm);
WEFT_API weft_world *weft_comm_world(const weft_comm *comm);

/** The rank in the world of member `rank`; UINT32_MAX if there is none. */
WEFT_API uint32_t weft_comm_world_rank(const weft_comm *comm, uint32_t rank);

/**
 * Split `comm` into one communicator for each colour; members are ordered by
 * `key`, equal keys by their rank in `comm`. A rank with a negative colour gets
 * none: `*out` is NULL. Collective over `comm`.
 */
WEFT_API weft_status weft_comm_split(weft_comm *comm, int64_t colour,
                                     int64_t key, weft_comm **out);

/** A communicator of the same ranks, with an order of its own. Collective. */
WEFT_API weft_status weft_comm_dup(weft_comm *comm, weft_comm **out);

/**
 * A communicator of the `n` members of `comm` in `ranks`, in that order.
 * Collective over those ranks only; the caller must be one of them.
 *
 * This is also how those who are left go on after a death: once each of `ranks`
 * was told (an operation failed, or weft_comm_error says so), it works on a
 * communicator that is broken with WEFT_ERR_PEER. If one of `ranks` is gone, it
 * fails with WEFT_ERR_PEER and names that one. `comm` stays broken. On one that
 * is broken for another reason it fails with that reason.
 */
WEFT_API weft_status weft_comm_subset(weft_comm *comm, const uint32_t *ranks,
                                      size_t n, weft_comm **out);

/**
 * A communicator of the `n` members of `comm` in `ranks`, in that order, that
 * stands on its own. Collective over those ranks only.
 *
 * `comm` says who the ranks are and nothing else: it may be broken or in use
 * by other threads, and stays as it is, also when this fails. Groups of
 * different tags may be made at once, by several threads and in any order; all
 * members give the same tag. After a failure the same tag may be given again:
 * a call succeeds only with calls of the others that are under way. One that
 * came when others had given up waits for them to call again, and succeeds if
 * they do so in time. `timeout` is how long to wait for the members here, and
 * then that of the new communicator; 0 or less means WEFT_TIMEOUT. A member
 * that is interrupted here is waited for that long by the others.
 */
WEFT_API weft_status weft_comm_create_group(weft_comm *comm,
                                            const uint32_t *ranks, size_t n,
                                            uint64_t tag, double timeout,
                                            weft_comm **out);

/**
 * A communicator of all members of `comm` but the `n` in `exclude`, in their
 * order. Collective over those who stay, who all name the same ones.
 *
 * For going on without ranks that are dead, stuck or no longer wanted. Unlike
 * weft_comm_subset it works whatever state `comm` is in on each rank, also if
 * it was aborted or a deadline passed. `comm` is broken by it, if it was not:
 * what is pending on it fails, and so do calls of the excluded ranks, with
 * WEFT_ERR_ABORTED. If another rank is gone, it fails with WEFT_ERR_PEER and
 * names that one; it may then be called once more with that one excluded.
 */
WEFT_API weft_status weft_comm_shrink(weft_comm *comm, const uint32_t *exclude,
                                      size_t n, weft_comm **out);

/**
 * End this rank's use of `comm`. Not collective; outstanding requests fail
 * with WEFT_ERR_CLOSED here, and collectives of the others that need this rank,
 * now or later, with WEFT_ERR_PEER (between nodes, when their deadline passes).
 * Messages to this rank that it has not received are dropped. Does nothing for
 * NULL and for the world's own communicator.
 */
WEFT_API void weft_comm_destroy(weft_comm *comm);

/** How long an operation may wait for peers. 0 or less restores WEFT_TIMEOUT.
 */
WEFT_API void weft_comm_set_timeout(weft_comm *comm, double seconds);
WEFT_API double weft_comm_timeout(const weft_comm *comm);

/**
 * Attach a mark, a number of the caller's, to the collective operations that
 * this rank calls on `comm` from now on; 0 is none. Ranks compare it like the
 * rest of a call, and different marks are WEFT_ERR_MISMATCH, which names both.
 * It costs nothing. A pre-multiplied sum carries none. For layers above that
 * number their operations themselves.
 */
WEFT_API void weft_comm_set_mark(weft_comm *comm, uint64_t mark);

/**
 * Break `comm` on all its ranks: every pending and later operation fails with
 * WEFT_ERR_ABORTED and `why`. Callable from any thread, returns at once.
 */
WEFT_API void weft_comm_abort(weft_comm *comm, const char *why);

/** WEFT_OK, or the status with which `comm` broke; the detail tells why. */
WEFT_API weft_status weft_comm_error(const weft_comm *comm);

WEFT_END_DECLS

#endif
