/* SPDX-License-Identifier: Apache-2.0 */
/* Large data in private memory: instead of copying its blocks into its slots, a
 * member invites the takers to read its memory, all at once (CMA).
 *
 *   who brings   puts the address of each block where the takers look; its
 *                memory must stay as it is until all have taken (C5)
 *   taker        reads its block in slices, before any chunk
 *
 * A taker that cannot read refuses: whoever has invited it then brings chunks
 * (exchange.c), as those do who have not invited. A taker that will never be
 * able to read refuses permanently, and then nobody invites.
 *
 * All members know from size and settings whether invitations are possible.
 * Each member that brings decides for itself whether it invites. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/secret.h"
#include "coll/shm/area.h"
#include "mem/cma.h"

/* Chosen by measurement, see docs/design/0004-shared-memory.md. */
#define SCATTER_RANKS 3u
#define SCATTER_BYTES (8u << 10)      /* of a block */
#define SCATTER_ALL_BYTES (64u << 10) /* of all blocks */
#define ALLTOALL_RANKS 8u
#define ALLTOALL_BYTES (32u << 10)      /* of a block */
#define SLICE_BYTES ((size_t)256 << 10) /* read in one step */

weft_status shm_pull_attach(const weft_comm *comm, shm_state *s)
{
    shm_cma *own = &shm_head_of(s, comm->rank)->cma;
    weft_status st = wf_random(&s->proof, sizeof(s->proof));

    /* Our first call publishes it. */
    own->proof_at = (uint64_t)(uintptr_t)&s->proof;
    own->proof = s->proof;
    return st;
}

/* Is reading faster than slots? `largest` is what one member has for
 * another. */
static bool pays(const wf_coll_op *op, size_t largest)
{
    const weft_comm *comm = op->op.comm;
    const wf_host *host = comm->world->host;
    uint8_t kind = op->op.call.kind;

    if (!wf_call_is(kind, WF_SRC_BLOCKS)) {
        return false;
    }
    if (wf_call_is(kind, WF_ROOT_SENDS)) {
        return !shm_scatter_fits(op, largest) && comm->size >= SCATTER_RANKS &&
               largest >= SCATTER_BYTES &&
               largest >= SCATTER_ALL_BYTES / (comm->size - 1);
    }
    return comm->size >= ALLTOALL_RANKS && host->count <= host->cpus &&
           largest >= ALLTOALL_BYTES;
}

bool shm_may_pull(const wf_coll_op *op, size_t largest)
{
    if (wf_call_is(op->op.call.kind, WF_REDUCES)) {
        return false;
    }
    switch ((wf_cma)op->op.comm->world->settings.cma) {
    case WF_CMA_ON:
        return true;
    case WF_CMA_AUTO:
        return pays(op, largest);
    default:
        return false;
    }
}

/* Has it refused this operation, or permanently? */
static bool refused(const wf_coll_op *op, const shm_state *s, uint32_t member)
{
    return atomic_load_explicit(&shm_head_of(s, member)->cma.refused,
                                memory_order_acquire) > shm_of(op)->base;
}

bool shm_pull_refused(const wf_coll_op *op, const shm_state *s)
{
    bool any = false;

    for (uint32_t r = 0; r < op->op.comm->size && !any; r++) {
        any = r != op->op.comm->rank && shm_takes(op, r) && refused(op, s, r);
    }
    return any;
}

static void invite(wf_coll_op *op, shm_state *s)
{
    weft_comm *comm = op->op.comm;
    uint64_t *address = shm_addresses_of(s, comm->rank);

    for (uint32_t r = 0; r < comm->size; r++) {
        address[r] = (uint64_t)(uintptr_t)shm_source(op, r);
    }
    /* Publishes the addresses; pairs with the acquire in shm_invited. */
    atomic_store_explicit(&shm_head_of(s, comm->rank)->cma.invited,
                          shm_of(op)->base + 1, memory_order_release);
    wf_comm_ring(comm);
    shm_of(op)->invites = true;
}

void shm_pull_begin(wf_coll_op *op, size_t largest)
{
    shm_state *s = op->state;
    shm_progress *p = shm_of(op);

    p->pulls = shm_may_pull(op, largest);
    if (!p->pulls) {
        return;
    }
    p->first_in = false;
    if (refused(op, s, op->op.comm->rank)) {
        p->refused_at = 0;
    }
    if (shm_by_chunks(op, op->op.comm->rank) && !p->direct_src &&
        !shm_pull_refused(op, s)) {
        invite(op, s);
    }
}

bool shm_invited(const wf_coll_op *op, const shm_state *s, uint32_t from)
{
    return atomic_load_explicit(&shm_head_of(s, from)->cma.invited,
                                memory_order_acquire) > shm_of(op)->base;
}

static void refuse(wf_coll_op *op, shm_state *s, uint32_t from, bool for_good,
                   const char *why)
{
    weft_comm *comm = op->op.comm;
    shm_progress *p = shm_of(op);

    wf_log(WEFT_LOG_INFO,
           "rank %u cannot read the memory of rank %u (%s); %s through shared "
           "memory instead",
           comm->rank, from, why,
           for_good ? "large data goes" : "this operation goes");
    p->direct_at = 0;
    p->refused_at = p->in_at;
    /* Pairs with the acquire in refused. */
    atomic_store_explicit(&shm_head_of(s, comm->rank)->cma.refused,
                          for_good ? UINT64_MAX : p->base + 1,
                          memory_order_release);
    wf_comm_ring(comm);
    op->op.moved++;
}

static int32_t pid_of(const weft_comm *comm, uint32_t member)
{
    return comm->world->host->peer[comm->member[member]].pid;
}

/* Is the process that we would read really that member? */
static const char *doubt(const wf_coll_op *op, shm_state *s, uint32_t from)
{
    const shm_cma *theirs = &shm_head_of(s, from)->cma;
    const char *why = NULL;

    if (!s->proven[from]) {
        why = wf_cma_refusal(pid_of(op->op.comm, from), theirs->proof_at,
                             theirs->proof);
        s->proven[from] = why == NULL;
    }
    return why;
}

bool shm_pull(wf_coll_op *op, shm_state *s, uint32_t from, size_t bytes)
{
    weft_comm *comm = op->op.comm;
    shm_progress *p = shm_of(op);
    size_t left = bytes - p->direct_at;
    const char *why = doubt(op, s, from);
    ssize_t got;

    if (why != NULL) {
        refuse(op, s, from, true, why);
        return false;
    }
    got = wf_cma_read(pid_of(comm, from), shm_target(op, from) + p->direct_at,
                      shm_addresses_of(s, from)[comm->rank] + p->direct_at,
                      left < SLICE_BYTES ? left : SLICE_BYTES);
    if (got <= 0) {
        int error = got < 0 ? errno : 0;

        refuse(op, s, from, wf_cma_forbidden(error),
               error == 0 ? "no more" : strerror(error));
        return false;
    }
    p->read_direct = true;
    p->direct_at += (size_t)got;
    op->op.moved++;
    if (p->direct_at < bytes) {
        return false;
    }
    p->direct_at = 0;
    return true;
}
