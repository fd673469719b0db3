/* SPDX-License-Identifier: Apache-2.0 */
/* Large scatters: instead of copying all blocks into its slots, the root
 * invites the takers to read its memory in parallel (CMA).
 *
 *   root    put the address of each block into the slot of the first chunk,
 *           and wait for everybody's answer: its buffer must stay as it is
 *   taker   read the block in slices; then `out` says that all chunks are taken
 *
 * A taker that cannot read refuses. When all have answered, the root brings the
 * blocks by chunks (exchange.c) for those who refused. A taker that will never
 * be able to read refuses permanently, and then no root invites.
 *
 * All members know from size and settings whether an invitation is possible.
 * The root alone decides whether there is one. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/secret.h"
#include "coll/shm/area.h"
#include "mem/cma.h"

/* Chosen by measurement, see docs/design/0004-shared-memory.md. */
#define PULL_RANKS 3u
#define PULL_BYTES (8u << 10)           /* of a block */
#define PULL_ALL_BYTES (64u << 10)      /* of all blocks */
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

static bool may_invite(const wf_coll_op *op, size_t largest)
{
    const weft_comm *comm = op->op.comm;

    if (!wf_call_is(op->op.call.kind, WF_ROOT_SENDS) ||
        !wf_call_is(op->op.call.kind, WF_SRC_BLOCKS)) {
        return false;
    }
    switch ((wf_cma)comm->world->settings.cma) {
    case WF_CMA_ON:
        return true;
    case WF_CMA_AUTO:
        return comm->size >= PULL_RANKS && largest >= PULL_BYTES &&
               largest >= PULL_ALL_BYTES / (comm->size - 1);
    default:
        return false;
    }
}

static uint64_t *addresses_of(const wf_coll_op *op, const shm_state *s)
{
    return (uint64_t *)(void *)shm_slot_of(s, op->op.call.root,
                                           shm_of(op)->base);
}

/* Has it refused this operation, or permanently? */
static bool refused(const wf_coll_op *op, const shm_state *s, uint32_t member)
{
    return atomic_load_explicit(&shm_head_of(s, member)->cma.refused,
                                memory_order_acquire) > shm_of(op)->base;
}

static bool anybody_refused(const wf_coll_op *op, const shm_state *s)
{
    bool any = false;

    for (uint32_t r = 0; r < op->op.comm->size && !any; r++) {
        any = r != op->op.comm->rank && refused(op, s, r);
    }
    return any;
}

static void invite(wf_coll_op *op, shm_state *s)
{
    weft_comm *comm = op->op.comm;
    uint64_t *address = addresses_of(op, s);

    for (uint32_t r = 0; r < comm->size; r++) {
        address[r] = (uint64_t)(uintptr_t)shm_source(op, r);
    }
    /* Publishes the addresses; pairs with the acquire in invited. */
    atomic_store_explicit(&shm_head_of(s, comm->rank)->cma.invited,
                          shm_of(op)->base + 1, memory_order_release);
    wf_comm_ring(comm);
}

void shm_pull_begin(wf_coll_op *op, size_t largest)
{
    shm_state *s = op->state;
    shm_progress *p = shm_of(op);

    p->pulls = may_invite(op, largest);
    if (!p->pulls) {
        return;
    }
    p->first_in = false;
    if (op->op.comm->rank == op->op.call.root) {
        p->pulls = !p->direct_src && !anybody_refused(op, s);
        if (p->pulls) {
            invite(op, s);
        }
    }
}

/* Continue by chunks. */
static weft_status exchange_instead(wf_coll_op *op)
{
    shm_of(op)->pulls = false;
    op->op.step = shm_exchange_step;
    op->op.moved++;
    return shm_exchange_step(&op->op);
}

/* --- the root ------------------------------------------------------------ */

static bool has_read(const wf_coll_op *op, const shm_state *s, uint32_t member)
{
    const shm_progress *p = shm_of(op);

    return member == op->op.comm->rank ||
           shm_reached(&shm_head_of(s, member)->out, p->base + p->chunks);
}

static bool answered(const wf_coll_op *op, const shm_state *s, uint32_t member)
{
    return has_read(op, s, member) || refused(op, s, member);
}

/* A member that has read may already refuse the next scatter. */
static bool all_have_read(const wf_coll_op *op, const shm_state *s)
{
    bool all = true;

    for (uint32_t r = 0; r < op->op.comm->size && all; r++) {
        all = has_read(op, s, r);
    }
    return all;
}

/* Copy our own block while the others read; ragged.c may have copied it. */
static bool copy_own_slice(wf_coll_op *op)
{
    shm_progress *p = shm_of(op);

    if (wf_call_is(op->op.call.kind, WF_OWN_LENGTHS) ||
        p->direct_at >= op->bytes) {
        return false;
    }
    shm_copy_own(op, p->direct_at, SLICE_BYTES);
    p->direct_at += SLICE_BYTES;
    op->op.moved++;
    return true;
}

static weft_status root_step(wf_coll_op *op, shm_state *s)
{
    shm_progress *p = shm_of(op);

    if (copy_own_slice(op)) {
        return WF_PENDING;
    }
    for (; p->in_at < op->op.comm->size; p->in_at++) {
        if (!answered(op, s, p->in_at)) {
            return WF_PENDING;
        }
        op->op.moved++;
    }
    if (!all_have_read(op, s)) {
        return exchange_instead(op);
    }
    shm_end_chunks(op);
    return WEFT_OK;
}

/* --- a taker ------------------------------------------------------------- */

static bool invited(const wf_coll_op *op, const shm_state *s)
{
    return atomic_load_explicit(&shm_head_of(s, op->op.call.root)->cma.invited,
                                memory_order_acquire) > shm_of(op)->base;
}

static weft_status refuse(wf_coll_op *op, shm_state *s, bool for_good,
                          const char *why)
{
    weft_comm *comm = op->op.comm;

    wf_log(WEFT_LOG_INFO,
           "rank %u cannot read the memory of rank %u (%s); %s through shared "
           "memory instead",
           comm->rank, op->op.call.root, why,
           for_good ? "scatters go" : "this scatter goes");
    shm_of(op)->direct_at = 0;
    /* Pairs with the acquire in refused. */
    atomic_store_explicit(&shm_head_of(s, comm->rank)->cma.refused,
                          for_good ? UINT64_MAX : shm_of(op)->base + 1,
                          memory_order_release);
    wf_board_ring(comm->entry[op->op.call.root]);
    return exchange_instead(op);
}

/* All data is read. A root that failed meanwhile may have written its buffer,
 * so the data is valid only if the communicator is not broken. */
static weft_status finish(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    weft_status st;

    atomic_thread_fence(memory_order_acquire);
    st = wf_comm_check(comm);
    if (st == WEFT_OK) {
        shm_end_chunks(op);
        wf_board_ring(comm->entry[op->op.call.root]);
    }
    return st;
}

static int32_t pid_of(const weft_comm *comm, uint32_t member)
{
    return comm->world->host->peer[comm->member[member]].pid;
}

static weft_status read_slice(wf_coll_op *op, shm_state *s)
{
    weft_comm *comm = op->op.comm;
    shm_progress *p = shm_of(op);
    uint32_t root = op->op.call.root;
    size_t left = op->bytes - p->direct_at;
    ssize_t got =
        wf_cma_read(pid_of(comm, root), (unsigned char *)op->dst + p->direct_at,
                    addresses_of(op, s)[comm->rank] + p->direct_at,
                    left < SLICE_BYTES ? left : SLICE_BYTES);

    if (got <= 0) {
        int why = got < 0 ? errno : 0;

        return refuse(op, s, wf_cma_forbidden(why),
                      why == 0 ? "no more" : strerror(why));
    }
    p->direct_at += (size_t)got;
    op->op.moved++;
    return p->direct_at < op->bytes ? WF_PENDING : finish(op);
}

/* Is the process that we would read really the root? */
static const char *doubt(const wf_coll_op *op, shm_state *s, uint32_t root)
{
    const shm_cma *theirs = &shm_head_of(s, root)->cma;
    const char *why = NULL;

    if (!s->proven[root]) {
        why = wf_cma_refusal(pid_of(op->op.comm, root), theirs->proof_at,
                             theirs->proof);
        s->proven[root] = why == NULL;
    }
    return why;
}

static weft_status taker_step(wf_coll_op *op, shm_state *s)
{
    const shm_progress *p = shm_of(op);
    uint32_t root = op->op.call.root;
    const char *why;

    if (op->bytes == 0) {
        return exchange_instead(op); /* and take nothing */
    }
    if (!invited(op, s)) {
        return shm_reached(&shm_head_of(s, root)->in, p->base + 1)
                   ? exchange_instead(op)
                   : WF_PENDING;
    }
    if (refused(op, s, op->op.comm->rank)) {
        /* We refused permanently, maybe after this root checked: it counts us
         * as having answered, and its slot may contain data by now. */
        return exchange_instead(op);
    }
    why = doubt(op, s, root);
    return why == NULL ? read_slice(op, s) : refuse(op, s, true, why);
}

weft_status shm_pull_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    shm_state *s = op->state;

    return base->comm->rank == base->call.root ? root_step(op, s)
                                               : taker_step(op, s);
}

bool shm_pull_awaits(const wf_coll_op *op, uint32_t member)
{
    const shm_state *s = op->state;

    if (op->op.comm->rank == op->op.call.root) {
        return !answered(op, s, member);
    }
    return member == op->op.call.root && !invited(op, s);
}
