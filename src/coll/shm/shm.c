/* SPDX-License-Identifier: Apache-2.0 */
/* The engine for members that share memory: which algorithm for which size,
 * and the memory they use. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "coll/shm/area.h"

/* Chosen by measurement, see docs/design/0004-shared-memory.md. */
#define FLAT_BYTES 2048u /* per member that is read */
#define CHUNK_BYTES (64u << 10)
#define BIG_CHUNK_BYTES (256u << 10)
#define BIG_FROM_BYTES (12u << 20)

/* Large buffers tend to start on a page. If slots did, too, a load from one
 * would look to the core as if it followed a store to the other, and wait. */
#define SLOT_SHIFT 1088u

/* Everybody reads everybody's data: worth it while that is little. */
static size_t flat_limit(const weft_comm *comm)
{
    uint64_t wanted = comm->world->settings.flat_bytes;
    size_t limit = 2 * FLAT_BYTES / comm->size;

    if (wanted != UINT64_MAX) {
        limit = wanted < (64u << 10) ? (size_t)wanted : 64u << 10;
    }
    return limit < 64 ? 64 : wf_round_up(limit, 64);
}

static size_t slot_bytes(const weft_comm *comm)
{
    uint64_t wanted = comm->world->settings.chunk_bytes;

    if (wanted == UINT64_MAX) {
        return BIG_CHUNK_BYTES;
    }
    wanted = wanted < 4096 ? 4096 : wanted;
    wanted = wanted > (16u << 20) ? 16u << 20 : wanted;
    return wf_round_up((size_t)wanted, 4096);
}

/* Bytes of a chunk: whole lines, so that shares do not cut one. */
static size_t chunk_for(const weft_comm *comm, size_t bytes)
{
    if (comm->world->settings.chunk_bytes != UINT64_MAX) {
        return slot_bytes(comm);
    }
    return bytes >= BIG_FROM_BYTES ? BIG_CHUNK_BYTES : CHUNK_BYTES;
}

static void lay_out(const weft_comm *comm, shm_state *s)
{
    size_t page = 4096;

    s->payload = flat_limit(comm);
    /* An odd number of lines: cells of several members must not all fall into
     * the same few sets of the cache. */
    s->cell = wf_round_up(offsetof(shm_cell, payload) + s->payload, 128) + 64;
    s->cell = wf_round_up(s->cell, 64);
    s->slot = slot_bytes(comm);
    s->slots_at =
        wf_round_up(sizeof(shm_head) + SHM_CELLS * s->cell, page) + SLOT_SHIFT;
    s->block = wf_round_up(s->slots_at + SHM_SLOTS * s->slot, page);
}

static int shm_score(const weft_comm *comm)
{
    return comm->one_node && comm->size > 1 ? 50 : 0;
}

static size_t shm_area(const weft_comm *comm)
{
    shm_state s;

    lay_out(comm, &s);
    return comm->size * s.block;
}

static weft_status shm_attach(weft_comm *comm, void *area, void **state)
{
    shm_state *s = wf_zalloc(sizeof(*s) + comm->size * 2 * sizeof(void *));
    weft_status st;

    if (s == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "the memory engine of %u ranks",
                       comm->size);
    }
    lay_out(comm, s);
    s->area = area;
    s->src = (const void **)(s + 1);
    s->dst = (void **)(s->src + comm->size);
    s->free_until = SHM_CELLS;
    s->kernels = wf_kernels_of(wf_cpu_level_used());
    /* Everybody allocates its own cells, near to itself. */
    st = wf_segment_populate(
        &comm->segment,
        (size_t)(s->area - (unsigned char *)comm->segment.base) +
            comm->rank * s->block,
        s->slots_at);
    if (st != WEFT_OK) {
        wf_free(s);
        return st;
    }
    *state = s;
    return WEFT_OK;
}

static void shm_detach(weft_comm *comm, void *state)
{
    shm_state *s = state;

    (void)comm;
    for (shm_shared *one = s->shared, *next; one != NULL; one = next) {
        next = one->next;
        shm_shared_end(one);
    }
    wf_free(s);
}

/* Large data: pages for our slots when they are needed for the first time. */
static weft_status populate_slots(const weft_comm *comm, shm_state *s)
{
    size_t at = (size_t)(s->area - (unsigned char *)comm->segment.base) +
                comm->rank * s->block + s->slots_at;
    weft_status st = s->populated ? WEFT_OK
                                  : wf_segment_populate(&comm->segment, at,
                                                        SHM_SLOTS * s->slot);

    s->populated = st == WEFT_OK;
    return st;
}

static weft_status large_first_step(wf_op *base)
{
    weft_status st = populate_slots(base->comm, wf_coll_state(base->comm));

    if (st != WEFT_OK) {
        return st;
    }
    base->step = base->call.kind == WF_CALL_ALLREDUCE ? shm_allreduce_step
                                                      : shm_broadcast_step;
    return base->step(base);
}

void shm_begin(wf_coll_op *op)
{
    weft_comm *comm = op->op.comm;
    shm_state *s = wf_coll_state(comm);
    wf_shm_progress *p = &op->state.shm;

    p->posted = false;
    p->checked = false;
    p->at = 0;
    p->finished = op->op.sequence;
    op->op.awaits = shm_awaits;
    if (op->bytes <= s->payload) {
        p->chunks = 0;
        op->op.step = shm_flat_step;
        op->op.early = shm_flat_early;
        return;
    }
    p->chunk = chunk_for(comm, op->bytes);
    p->chunks =
        op->bytes <= p->chunk ? 1 : (op->bytes + p->chunk - 1) / p->chunk;
    p->share_of = 0;
    p->base = s->chunks;
    p->in = 0;
    p->red = 0;
    p->out = 0;
    p->in_at = 0;
    p->red_at = 0;
    p->direct_at = 0;
    p->first_in = true;
    p->where.src = 0;
    if (s->has_shared && op->op.call.kind == WF_CALL_ALLREDUCE) {
        shm_locate(op);
    }
    s->chunks += p->chunks;
    op->op.step = large_first_step;
}

static size_t shm_quick_bytes(const weft_comm *comm, const void *state)
{
    (void)comm;
    (void)state;
    return CHUNK_BYTES;
}

const wf_engine wf_engine_shm = {
    .name = "shm",
    .what = "memory that all members map",
    .score = shm_score,
    .area = shm_area,
    .attach = shm_attach,
    .detach = shm_detach,
    .begin = shm_begin,
    .quick = shm_quick,
    .quick_bytes = shm_quick_bytes,
};
