/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/message/data.h"

#include "base/types.h"
#include "transport/msg.h"

/* Measured: smaller chunks cost more messages, larger ones leave the caches
 * before they are folded. With its heads a chunk stays below what the kernel
 * hands to a network card at once, which is 64 KiB at most, in whole frames:
 * 64,260 bytes and more in frames of 1500, 62,496 in frames of 9000. A few
 * bytes above that would go through all of the network's layers by themselves.
 * Without a pipeline chunks only bound the scratch. */
#define CHUNK_BYTES ((uint64_t)60 << 10)
#define CHUNK_BYTES_MIN ((uint64_t)256)
#define CHUNK_BYTES_MAX ((uint64_t)1 << 20)
#define CHUNKS_MAX ((uint64_t)1 << 20)
#define CHUNK_FACTOR_OF_UNPIPED 4u

/* Chunks of a group: two are in flight, and two wait behind them. */
#define GROUP_WIDTH 4u

#define ALIGNMENT 64u

/* The start of share `i` when `n` is divided into `of`. */
static size_t share(size_t n, uint64_t i, uint64_t of)
{
    return n / of * i + n % of * i / of;
}

/* Never 0: the type was checked with the arguments. */
static size_t elem_of(const wf_coll_op *op)
{
    size_t bytes = wf_dtype_bytes((weft_dtype)op->op.call.type);

    return bytes > 0 ? bytes : 1;
}

/* The scratch holds several chunks, so a very large setting is limited. */
static uint64_t chunk_target(const wf_coll_op *op)
{
    uint64_t wanted = op->op.comm->world->settings.chunk_bytes;

    return wanted == UINT64_MAX       ? CHUNK_BYTES
           : wanted < CHUNK_BYTES_MIN ? CHUNK_BYTES_MIN
           : wanted > CHUNK_BYTES_MAX ? CHUNK_BYTES_MAX
                                      : wanted;
}

static uint64_t pieces_of(uint64_t bytes, uint64_t target)
{
    uint64_t n = bytes / target + (bytes % target != 0);

    return n == 0 ? 1 : n < CHUNKS_MAX ? n : CHUNKS_MAX;
}

uint64_t wf_data_bytes(const wf_coll_op *op)
{
    const wf_call *call = &op->op.call;
    bool in_all = wf_call_is(call->kind, WF_ALL_LENGTHS);

    return call->count * elem_of(op) / (in_all ? op->op.comm->size : 1);
}

uint32_t wf_data_pieces(const wf_coll_op *op)
{
    return (uint32_t)pieces_of((op->bytes + 1) / 2, chunk_target(op));
}

/* --- how much ------------------------------------------------------------- */

/* Bytes of the longest block; all ranks get the same answer. */
static size_t longest_block(const wf_coll_op *op, const wf_plan *plan)
{
    uint8_t kind = op->op.call.kind;
    bool src = wf_call_is(kind, WF_SRC_BLOCKS);
    size_t longest = 0;

    if (wf_call_cuts(kind)) {
        size_t n = op->bytes / elem_of(op);

        return (n / plan->blocks + (n % plan->blocks != 0)) * elem_of(op);
    }
    if (!wf_call_is(kind, WF_ALL_LENGTHS)) {
        return op->bytes;
    }
    for (uint32_t r = 0; r < plan->size; r++) {
        size_t bytes = (src ? wf_coll_src(op, r) : wf_coll_dst(op, r)).bytes;

        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

static bool scales(const wf_coll_op *op)
{
    return wf_call_is(op->op.call.kind, WF_REDUCES) &&
           op->op.call.op == WEFT_OP_PREMUL_SUM;
}

/* Is the destination as long as the source, and ours to write? */
static bool dst_is_whole(const wf_coll_op *op)
{
    const wf_call *call = &op->op.call;

    return wf_call_cuts(call->kind) && !wf_call_is(call->kind, WF_EXCLUSIVE) &&
           wf_call_gives(call, op->op.comm->rank);
}

/* Does every rank have a block for every other one? */
static bool exchanges(const wf_coll_op *op)
{
    return wf_call_is(op->op.call.kind, WF_SRC_BLOCKS) &&
           wf_call_is(op->op.call.kind, WF_DST_BLOCKS);
}

static size_t src_bytes(const wf_coll_op *op, bool blocks)
{
    size_t sum = 0;

    for (uint32_t r = 0; blocks && r < op->op.comm->size; r++) {
        sum += wf_coll_src(op, r).bytes;
    }
    return blocks ? sum : op->bytes;
}

static size_t reserve(wf_data *data, size_t bytes)
{
    size_t at = data->scratch_bytes;

    data->scratch_bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

static void reserve_all(wf_data *data, const wf_coll_op *op, size_t block)
{
    const wf_plan *plan = data->plan;
    bool packs = exchanges(op) && plan->work_blocks > 0;
    bool lands = wf_call_is(op->op.call.kind, WF_REDUCES);

    if (scales(op) && !dst_is_whole(op)) {
        data->scaled_at = reserve(data, src_bytes(op, data->src_blocks));
    }
    data->work_at = reserve(data, plan->work_blocks * block);
    data->slots_at =
        reserve(data, (size_t)plan->slots * plan->width * data->chunk_bytes);
    data->landing_bytes = packs   ? plan->span * block
                          : lands ? data->chunk_bytes
                                  : 0;
    data->landing_at = reserve(data, WF_FLIGHTS * data->landing_bytes);
    data->packed_at = reserve(data, packs ? plan->span * block : 0);
}

wf_reducer wf_data_partial(const wf_call *call)
{
    weft_op how = {(weft_op_kind)call->op, 1.0};
    wf_reducer partial;

    if (how.kind == WEFT_OP_AVG || how.kind == WEFT_OP_PREMUL_SUM) {
        how.kind = WEFT_OP_SUM;
    }
    (void)wf_reducer_init(&partial, (weft_dtype)call->type, how, 1);
    return partial;
}

static wf_data_fn data_at;

void wf_data_init(wf_data *data, const wf_coll_op *op, wf_plan *plan)
{
    size_t block = longest_block(op, plan);
    size_t piece = plan->span * block;
    uint64_t target =
        chunk_target(op) * (plan->piped ? 1 : CHUNK_FACTOR_OF_UNPIPED);
    bool in_chunks = plan->piped || wf_call_is(op->op.call.kind, WF_REDUCES);
    uint32_t rank = op->op.comm->rank;
    uint64_t chunks;

    *data = (wf_data){
        .at = data_at,
        .plan = plan,
        .elem = elem_of(op),
        .src_blocks = wf_call_blocks_at(&op->op.call, WF_SRC_BLOCKS, rank),
        .dst_blocks = wf_call_blocks_at(&op->op.call, WF_DST_BLOCKS, rank)};
    wf_plan_chunks(plan, in_chunks ? pieces_of(piece, target) : 1, GROUP_WIDTH);
    chunks = plan->groups * plan->width;
    data->chunk_bytes =
        (piece / data->elem / chunks + (piece / data->elem % chunks != 0)) *
        data->elem;
    if (wf_call_is(op->op.call.kind, WF_REDUCES)) {
        data->partial = wf_data_partial(&op->op.call);
    }
    reserve_all(data, op, block);
}

void wf_data_place_scratch(wf_data *data, void *scratch)
{
    data->base = scratch;
}

/* --- where ---------------------------------------------------------------- */

static wf_block cut(const wf_data *data, const wf_coll_op *op,
                    const unsigned char *base, wf_piece piece)
{
    size_t n = op->bytes / data->elem;
    uint32_t blocks = data->plan->blocks;
    size_t from = share(n, piece.block, blocks);
    size_t until = share(n, piece.block + piece.count, blocks);

    return (wf_block){(unsigned char *)(uintptr_t)base + from * data->elem,
                      (until - from) * data->elem};
}

/* Consecutive blocks as one; only forms with equal lengths use it. */
static wf_block several(wf_block first, wf_piece piece)
{
    first.bytes *= piece.count;
    return first;
}

static wf_block scaled_block(const wf_data *data, const wf_coll_op *op,
                             uint32_t block)
{
    wf_block b = wf_coll_src(op, block);

    b.at = data->scaled;
    for (uint32_t r = 0; r < block; r++) {
        b.at += wf_coll_src(op, r).bytes;
    }
    return b;
}

static wf_block src_at(const wf_data *data, const wf_coll_op *op,
                       wf_piece piece)
{
    const unsigned char *src = data->scaled != NULL ? data->scaled : op->src;

    if (wf_call_cuts(op->op.call.kind)) {
        return cut(data, op, src, piece);
    }
    if (data->src_blocks) {
        return several(data->scaled != NULL
                           ? scaled_block(data, op, piece.block)
                           : wf_coll_src(op, piece.block),
                       piece);
    }
    return (wf_block){(unsigned char *)(uintptr_t)src, op->bytes};
}

static wf_block dst_at(const wf_data *data, const wf_coll_op *op,
                       wf_piece piece)
{
    if (wf_call_cuts(op->op.call.kind)) {
        return cut(data, op, op->dst, piece);
    }
    if (data->dst_blocks) {
        return several(wf_coll_dst(op, piece.block), piece);
    }
    return (wf_block){op->dst, op->bytes};
}

static wf_block work_at(const wf_data *data, const wf_coll_op *op,
                        wf_piece piece)
{
    const wf_plan *plan = data->plan;
    size_t block =
        ((uint64_t)piece.block + plan->size - plan->work_first) % plan->size;

    return (wf_block){data->base + data->work_at + block * op->bytes,
                      piece.count * op->bytes};
}

static wf_block chunk_of(const wf_data *data, const wf_step *step, wf_block b)
{
    uint64_t chunks = data->plan->groups * data->plan->width;
    size_t n = b.bytes / data->elem;
    size_t from = share(n, step->chunk, chunks);
    size_t until = share(n, step->chunk + 1, chunks);

    if (chunks == 1 || n == 0) {
        return b;
    }
    return (wf_block){b.at + from * data->elem, (until - from) * data->elem};
}

static wf_block data_at(const wf_data *data, const wf_coll_op *op,
                        const wf_step *step, wf_piece piece)
{
    wf_block b;

    switch (piece.at) {
    case WF_AT_SRC:
        return chunk_of(data, step, src_at(data, op, piece));
    case WF_AT_DST:
        return chunk_of(data, step, dst_at(data, op, piece));
    case WF_AT_WORK:
        return chunk_of(data, step, work_at(data, op, piece));
    default:
        /* A sum has the length of its operands. */
        b = chunk_of(data, step, src_at(data, op, piece));
        b.at = data->base + data->slots_at +
               ((size_t)piece.slot * data->plan->width + step->in_group) *
                   data->chunk_bytes;
        return b;
    }
}

/* How many blocks from `block`, the first with the bit set, have it set. */
static uint32_t bit_run(const wf_data *data, uint32_t bit, uint32_t block)
{
    uint32_t left = data->plan->size - block;

    return bit < left ? bit : left;
}

size_t wf_data_packed_bytes(const wf_data *data, const wf_coll_op *op,
                            wf_piece piece)
{
    size_t n = 0;

    for (uint32_t b = piece.bit; b < data->plan->size; b += 2 * piece.bit) {
        n += bit_run(data, piece.bit, b) * op->bytes;
    }
    return n;
}

void wf_data_pack(const wf_data *data, const wf_coll_op *op, wf_piece piece,
                  unsigned char *packed)
{
    for (uint32_t b = piece.bit; b < data->plan->size; b += 2 * piece.bit) {
        wf_block run = work_at(
            data, op, wf_run_of(WF_AT_WORK, b, bit_run(data, piece.bit, b)));

        wf_copy(packed, run.at, run.bytes);
        packed += run.bytes;
    }
}

void wf_data_unpack(const wf_data *data, const wf_coll_op *op, wf_piece piece,
                    const unsigned char *packed)
{
    for (uint32_t b = piece.bit; b < data->plan->size; b += 2 * piece.bit) {
        wf_block run = work_at(
            data, op, wf_run_of(WF_AT_WORK, b, bit_run(data, piece.bit, b)));

        wf_copy(run.at, packed, run.bytes);
        packed += run.bytes;
    }
}

/* --- before and after ----------------------------------------------------- */

static void copy(void *to, const void *from, size_t bytes)
{
    if (to != from) {
        wf_copy(to, from, bytes);
    }
}

void wf_data_fold_one(const wf_reducer *reducer, void *dst, const void *src,
                      size_t bytes)
{
    if (bytes > 0) {
        reducer->fold(reducer, &dst, 1, &src, 1, bytes / reducer->elem);
    }
}

/* Each rank multiplies its own data, so that messages carry a plain sum. */
static void scale(wf_data *data, wf_coll_op *op)
{
    const wf_call *call = &op->op.call;
    weft_op how = {WEFT_OP_PREMUL_SUM, call->factor};
    unsigned char *to =
        dst_is_whole(op) ? op->dst : data->base + data->scaled_at;
    wf_reducer times;

    (void)wf_reducer_init(&times, (weft_dtype)call->type, how, 1);
    data->scaled = to;
    if (!data->src_blocks) {
        wf_data_fold_one(&times, to, op->src, op->bytes);
        return;
    }
    for (uint32_t r = 0; r < data->plan->size; r++) {
        wf_block b = wf_coll_src(op, r);

        wf_data_fold_one(&times, to, b.at, b.bytes);
        to += b.bytes;
    }
}

static void prepare_alltoall(wf_data *data, wf_coll_op *op)
{
    uint32_t rank = op->op.comm->rank;
    uint32_t size = data->plan->size;

    if (data->plan->work_blocks == 0) {
        wf_block own = wf_coll_src(op, rank);

        copy(wf_coll_dst(op, rank).at, own.at, own.bytes);
        return;
    }
    for (uint32_t j = 0; j < size; j++) {
        copy(work_at(data, op, wf_run_of(WF_AT_WORK, j, 1)).at,
             wf_coll_src(op, (rank + j) % size).at, op->bytes);
    }
}

void wf_data_prepare(wf_data *data, wf_coll_op *op)
{
    uint32_t rank = op->op.comm->rank;
    uint8_t kind = op->op.call.kind;
    wf_piece own = wf_run_of(WF_AT_WORK, rank, 1);

    if (scales(op)) {
        scale(data, op);
    }
    if (wf_call_is(kind, WF_REDUCES)) {
        if (wf_call_is(kind, WF_PREFIX) && !wf_call_is(kind, WF_EXCLUSIVE)) {
            wf_data_fold_one(&data->partial, op->dst,
                             data->scaled != NULL ? data->scaled : op->src,
                             op->bytes);
        }
    } else if (exchanges(op)) {
        prepare_alltoall(data, op);
    } else if (data->dst_blocks) {
        copy(wf_coll_dst(op, rank).at, op->src, op->bytes);
    } else if (data->src_blocks) {
        copy(op->dst, wf_coll_src(op, rank).at, op->bytes);
    } else if (wf_call_is(kind, WF_DST_BLOCKS) && data->plan->work_blocks > 0) {
        copy(work_at(data, op, own).at, op->src, op->bytes);
    }
}

/* Finish an average: every rank that has the sum divides it, with the same
 * result. */
static void divide(const wf_coll_op *op)
{
    const wf_call *call = &op->op.call;

    if (call->op == WEFT_OP_AVG && wf_call_gives(call, op->op.comm->rank)) {
        wf_data_fold_one(&op->reducer, op->dst, op->dst, op->bytes);
    }
}

void wf_data_finish(wf_data *data, wf_coll_op *op)
{
    uint32_t rank = op->op.comm->rank;
    uint32_t size = data->plan->size;

    if (wf_call_is(op->op.call.kind, WF_REDUCES)) {
        divide(op);
    } else if (exchanges(op)) {
        for (uint32_t j = 0; j < data->plan->work_blocks; j++) {
            copy(wf_coll_dst(op, (rank + size - j) % size).at,
                 work_at(data, op, wf_run_of(WF_AT_WORK, j, 1)).at, op->bytes);
        }
    } else if (wf_call_is(op->op.call.kind, WF_SRC_BLOCKS) &&
               data->plan->work_blocks > 0) {
        copy(op->dst, work_at(data, op, wf_run_of(WF_AT_WORK, rank, 1)).at,
             op->bytes);
    }
}
