/* SPDX-License-Identifier: Apache-2.0 */
/* The engine for members that share memory: which algorithm for which size,
 * and the memory they use. */
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/stream.h"
#include "coll/shm/area.h"

/* Chosen by measurement, see docs/design/0004-shared-memory.md. */
#define FLAT_BYTES 2048u /* per member that is read */
#define CELL_BYTES 2048u /* where not all members read all data */
#define SMALL_CHUNK_BYTES (16u << 10)
#define CHUNK_BYTES (64u << 10)
#define BIG_CHUNK_BYTES (256u << 10)
#define BIG_FROM_BYTES (12u << 20)
/* Subslots of many members are shorter than that only in very large groups. */
#define SUBSLOT_BYTES (32u << 10)
#define MOST_SLOT_BYTES (1u << 20)

/* Large buffers tend to start on a page. If slots did, too, loads from one
 * would suffer 4K aliasing with stores to the other. */
#define SLOT_SHIFT 1088u

/* Each member reads the data of all others, which pays while it is small. */
static size_t flat_limit(const weft_comm *comm)
{
    uint64_t wanted = comm->world->settings.flat_bytes;
    size_t limit = 2 * FLAT_BYTES / comm->size;

    if (wanted != UINT64_MAX) {
        limit = wanted < (64u << 10) ? (size_t)wanted : 64u << 10;
    }
    return limit < 64 ? 64 : wf_round_up(limit, 64);
}

/* The capacity of a cell, with a few words for each member (ragged.c). */
static size_t cell_limit(const weft_comm *comm, size_t flat)
{
    bool chosen = comm->world->settings.flat_bytes != UINT64_MAX;
    size_t words = wf_round_up(64 + comm->size * 2 * sizeof(uint64_t), 64);
    size_t limit = chosen || flat > CELL_BYTES ? flat : CELL_BYTES;

    return limit > words ? limit : words;
}

static size_t slot_bytes(const weft_comm *comm)
{
    uint64_t wanted = comm->world->settings.chunk_bytes;
    uint64_t least =
        wf_round_up(comm->size * 64u, 4096); /* one line per subslot */

    if (wanted == UINT64_MAX) {
        wanted = comm->size * (uint64_t)SUBSLOT_BYTES;
        wanted = wanted > MOST_SLOT_BYTES ? MOST_SLOT_BYTES : wanted;
        wanted = wanted < BIG_CHUNK_BYTES ? BIG_CHUNK_BYTES : wanted;
    }
    wanted = wanted > (16u << 20) ? 16u << 20 : wanted;
    wanted = wanted < least ? least : wanted;
    return wf_round_up((size_t)wanted, 4096);
}

/* Where data goes one way, several chunks let members work at the same time;
 * elsewhere all members work all the time. Where ranks outnumber cores, each
 * chunk more makes some of them wait for a core once more. */
static size_t chunk_by_kind(const wf_coll_op *op, size_t bytes)
{
    const wf_host *host = op->op.comm->world->host;
    bool crowded = host->count > host->cpus;
    uint8_t kind = op->op.call.kind;
    size_t part = crowded ? bytes : bytes / 4;

    if (wf_call_has_root(kind)) {
        part = part < BIG_CHUNK_BYTES ? part : BIG_CHUNK_BYTES;
        return part > SMALL_CHUNK_BYTES ? part : SMALL_CHUNK_BYTES;
    }
    if (wf_call_is(kind, WF_SRC_BLOCKS) && !wf_call_is(kind, WF_REDUCES)) {
        return MOST_SLOT_BYTES;
    }
    return wf_call_cuts(kind) && bytes < BIG_FROM_BYTES && !crowded
               ? CHUNK_BYTES
               : BIG_CHUNK_BYTES;
}

size_t shm_chunk_for(const wf_coll_op *op, size_t bytes)
{
    const weft_comm *comm = op->op.comm;
    uint32_t subslots = shm_subslots(op);
    size_t slot = slot_bytes(comm);
    /* Above this size the length makes no difference. Whole lines, so that
     * data of one chunk has no second one. */
    size_t most = wf_round_up(wf_least(bytes, BIG_FROM_BYTES), 64);
    size_t chunk = chunk_by_kind(op, most * subslots);

    if (chunk > slot || comm->world->settings.chunk_bytes != UINT64_MAX) {
        chunk = slot;
    }
    chunk = chunk / subslots / 64 * 64;
    return chunk > 64 ? chunk : 64;
}

/* One chunk of an allreduce of two members, see shm_chunk_for. */
static size_t pair_limit(const weft_comm *comm, size_t slot)
{
    bool chosen = comm->world->settings.chunk_bytes != UINT64_MAX;

    if (comm->size != 2) {
        return 0;
    }
    return chosen || slot < CHUNK_BYTES ? slot : CHUNK_BYTES;
}

static void lay_out(const weft_comm *comm, shm_state *s)
{
    size_t page = 4096;

    s->flat = flat_limit(comm);
    s->payload = cell_limit(comm, s->flat);
    /* The number of lines is odd, so that the cells of members do not all map
     * to the same few cache sets. */
    s->cell = wf_round_up(offsetof(shm_cell, payload) + s->payload, 128) + 64;
    s->cell = wf_round_up(s->cell, 64);
    s->slot = slot_bytes(comm);
    s->pair_bytes = pair_limit(comm, s->slot);
    s->addresses_at = sizeof(shm_head) + SHM_CELLS * s->cell;
    s->slots_at =
        wf_round_up(s->addresses_at + comm->size * sizeof(uint64_t), page) +
        SLOT_SHIFT;
    s->block = wf_round_up(s->slots_at + SHM_SLOTS * s->slot, page);
}

static wf_offer shm_offer(const weft_comm *comm, wf_call_kind kind)
{
    (void)kind;
    return wf_offer_all(comm->one_node && comm->size > 1 ? 50 : 0);
}

static size_t shm_area(const weft_comm *comm)
{
    shm_state s;

    lay_out(comm, &s);
    return comm->size * s.block;
}

/* All ranks of a node have the arena, or none has. */
static void find_ranges(const weft_comm *comm, shm_state *s)
{
    const wf_host *host = comm->world->host;

    s->arena = host->arena;
    for (uint32_t r = 0; r < comm->size && s->arena != NULL; r++) {
        s->range[r] = wf_host_range(host, comm->member[r]);
    }
}

static weft_status shm_attach(weft_comm *comm, void *area, void **state)
{
    shm_state *s = wf_zalloc(sizeof(*s) + comm->size * 3 * sizeof(void *) +
                             comm->size * sizeof(bool));
    weft_status st;

    if (s == NULL) {
        return wf_fail_nomem("the memory engine of %u ranks", comm->size);
    }
    lay_out(comm, s);
    s->area = area;
    s->src = (const void **)(s + 1);
    s->dst = (void **)(s->src + comm->size);
    s->range = (unsigned char **)(void *)(s->dst + comm->size);
    s->proven = (bool *)(void *)(s->range + comm->size);
    find_ranges(comm, s);
    s->free_until = SHM_CELLS;
    s->kernels = wf_kernels_of(wf_cpu_level_used());
    /* Each member allocates its own cells, on its NUMA node. */
    st = wf_segment_populate(
        &comm->segment,
        (size_t)(s->area - (unsigned char *)comm->segment.base) +
            comm->rank * s->block,
        s->slots_at);
    if (st == WEFT_OK) {
        st = shm_pull_attach(comm, s);
    }
    if (st != WEFT_OK) {
        wf_free(s);
        return st;
    }
    *state = s;
    return WEFT_OK;
}

static void shm_detach(weft_comm *comm, void *state)
{
    (void)comm;
    wf_free(state);
}

/* Allocate the pages of our slots at the first large operation. */
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

/* Results that outgrow the caches are stored past them: by the kernel where
 * all that a member gets is a fold of its own, else by whoever copies. */
static void choose_stores(wf_coll_op *op, size_t largest)
{
    bool large = largest >= WF_STREAM_FROM_BYTES / op->op.comm->size;
    bool folds = wf_call_is(op->op.call.kind, WF_REDUCES) &&
                 wf_call_is(op->op.call.kind, WF_SRC_BLOCKS);

    op->reducer.stream = large && folds;
    shm_of(op)->stream = large && !folds;
}

weft_status shm_start_chunks(wf_coll_op *op, size_t chunk, size_t largest)
{
    weft_comm *comm = op->op.comm;
    shm_state *s = op->state;
    shm_progress *p = shm_of(op);

    p->chunk = chunk;
    p->chunks = largest <= chunk ? 1 : (largest + chunk - 1) / chunk;
    p->base = s->chunks;
    s->chunks += p->chunks;
    choose_stores(op, largest);
    return populate_slots(comm, s);
}

void shm_end_chunks(const wf_coll_op *op)
{
    const shm_progress *p = shm_of(op);
    shm_head *own = shm_head_of(op->state, op->op.comm->rank);

    atomic_store_explicit(&own->in.value, p->base + p->chunks,
                          memory_order_relaxed);
    atomic_store_explicit(&own->red.value, p->base + p->chunks,
                          memory_order_relaxed);
    /* Pairs with the acquire in taken_by_all of the members that wait for
     * us. */
    atomic_store_explicit(&own->out.value, p->base + p->chunks,
                          memory_order_release);
}

/* The largest part that a member has for another, or for all if all get the
 * same. All members get the same answer. */
static size_t largest_part(const wf_coll_op *op)
{
    const weft_part *part = op->src_part != NULL ? op->src_part : op->dst_part;
    size_t n = op->op.call.count;

    if (part != NULL) {
        n = 0;
        for (uint32_t r = 0; r < op->op.comm->size; r++) {
            n = part[r].n > n ? part[r].n : n;
        }
    }
    return n * wf_dtype_bytes((weft_dtype)op->op.call.type);
}

/* Does the data fit into the cells? All members get the same answer. */
static bool is_flat(const wf_coll_op *op, const shm_state *s)
{
    uint8_t kind = op->op.call.kind;
    size_t elem = wf_dtype_bytes((weft_dtype)op->op.call.type);

    if (!wf_coll_moves(op)) {
        return true; /* there is no data */
    }
    if (wf_call_is(kind, WF_OWN_LENGTHS)) {
        return false; /* ragged.c decides by the announced lengths */
    }
    if (wf_call_is(kind, WF_SRC_BLOCKS)) {
        /* Each member brings a block for all: `count` is the sum in v-forms,
         * else one block. */
        uint32_t blocks =
            wf_call_is(kind, WF_ALL_LENGTHS) ? 1 : op->op.comm->size;

        return op->op.call.count * elem <= s->payload / blocks;
    }
    /* With a root there is one reader or writer; else all read all data. */
    return wf_call_has_root(kind) && !wf_call_is(kind, WF_REDUCES)
               ? op->op.call.count * elem <= s->payload
               : largest_part(op) <= s->flat;
}

static weft_status large_first_step(wf_op *base)
{
    wf_coll_op *op = (wf_coll_op *)(void *)base;
    size_t largest = largest_part(op);
    bool folds = wf_call_is(base->call.kind, WF_REDUCES) &&
                 !wf_call_is(base->call.kind, WF_SRC_BLOCKS);
    bool whole = shm_scatter_fits(op, largest) && !shm_may_pull(op, largest);
    weft_status st =
        whole ? shm_scatter_start(op, largest)
              : shm_start_chunks(op, shm_chunk_for(op, largest), largest);

    if (st != WEFT_OK) {
        return st;
    }
    shm_locate(op);
    if (!whole) {
        shm_pull_begin(op, largest);
    }
    base->step = folds   ? shm_reduce_step
                 : whole ? shm_scatter_step
                         : shm_exchange_step;
    return base->step(base);
}

void shm_begin(wf_coll_op *op)
{
    const shm_state *s = op->state;
    shm_progress *p = shm_of(op);

    p->posted = false;
    p->checked = false;
    p->agreed = false;
    p->at = 0;
    p->finished = op->op.sequence;
    p->chunks = 0;
    p->stream = false;
    op->op.awaits = shm_awaits;
    if (is_flat(op, s)) {
        op->op.step = shm_flat_step;
        op->op.early = shm_flat_early;
        return;
    }
    p->share_of = 0;
    p->in = 0;
    p->red = 0;
    p->out = 0;
    p->freed = 0;
    p->in_at = 0;
    p->red_at = 0;
    p->direct_at = 0;
    p->where.src = 0;
    p->where.dst = 0;
    p->direct_src = false;
    p->read_direct = false;
    p->first_in = true;
    p->pulls = false;
    p->invites = false;
    p->by_slots = false;
    p->own_at = 0;
    p->refused_at = UINT32_MAX;
    op->op.step = large_first_step;
    if (wf_call_is(op->op.call.kind, WF_OWN_LENGTHS)) {
        p->first_in = false;
        op->op.step = shm_ragged_step;
        op->op.early = shm_ragged_early;
    }
}

const wf_engine wf_engine_shm = {
    .name = "shm",
    .what = "memory that all members map",
    .offer = shm_offer,
    .area = shm_area,
    .attach = shm_attach,
    .detach = shm_detach,
    .begin = shm_begin,
    .quick = shm_quick,
    .quick_until = CHUNK_BYTES + 1,
};
