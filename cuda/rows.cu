/* SPDX-License-Identifier: Apache-2.0 */
/* Gather, scatter and adding scatter: what has to be found out about the ids
 * first, then one kernel that moves rows. A plain gather is that kernel alone.
 *
 *   table in parts      addresses replace numbers
 *   table on the host   rows of up to 512 bytes are visited page by page: each
 *                       page that is not the last one visited costs the bus
 *                       more than such a row does
 *   scatter             of equal ids all but the last are struck out, which
 *                       takes passes over the ids (order.cu)
 *   adding in order     ids are sorted, and each row added to by one thread */
#include "base/types.h"
#include "kernels.cuh"

namespace weft
{

namespace
{

constexpr uint64_t kSortRowBytes = 512;
/* Fewer are done before a sort has begun. */
constexpr uint64_t kSortIds = 16384;

/* Complex numbers are two others. */
uint64_t element_parts(weft_dtype type)
{
    return wf_dtype_is(type, WF_COMPLEX) ? 2 : 1;
}

uint64_t row_bytes(const wf_cuda_rows_call &call)
{
    return call.table.width * wf_dtype_bytes(call.table.type);
}

bool empty(const wf_cuda_rows_call &call)
{
    return call.ids.n == 0 || call.table.width == 0;
}

bool wants_order(const wf_cuda_rows_call &call)
{
    if (!call.table.on_host || call.sort < 0 || call.table.rows == 0) {
        return false;
    }
    return call.sort > 0 ||
           (row_bytes(call) <= kSortRowBytes && call.ids.n >= kSortIds);
}

Move move_of(const wf_cuda_rows_call &call, const StreamState &state,
             bool is_gather)
{
    Move move = {};

    move.table = {reinterpret_cast<char *>(call.table.at), call.table.pitch};
    move.table_bits = call.table.at | call.table.pitch;
    move.rows = {static_cast<char *>(call.rows.at), call.rows.pitch};
    move.on_host = call.table.on_host != 0;
    move.gather = is_gather;
    move.ids = {call.ids.at, nullptr, call.ids.type == WEFT_I64};
    move.bounds = {call.table.rows, call.bounds, state.bad};
    move.n = call.ids.n;
    move.width = call.table.width * element_parts(call.table.type);
    move.stream = state.stream;
    move.tune = call.tune;
    return move;
}

/* From here on numbers have been looked at. */
void mark_checked(Move *move)
{
    move->bounds.mode = WEFT_BOUNDS_UNCHECKED;
}

int use_addresses(const wf_cuda_rows_call &call, Scratch &scratch, Move *move)
{
    const uint32_t *order = move->ids.order;
    const int error =
        find_addresses(call.table, move->ids, move->bounds, move->n, scratch,
                       move->stream, &move->ids);

    move->ids.order = order;
    mark_checked(move);
    move->table = {nullptr, 1};
    move->table_bits = call.table.pitch;
    for (uint32_t i = 0; i < call.table.parts; i++) {
        move->table_bits |= call.table.part[i].at;
    }
    return error;
}

int run_move(const wf_cuda_rows_call &call, const Move &move)
{
    const weft_dtype table = call.table.type;
    const weft_dtype rows = call.rows.type;

    if (table == rows) {
        return copy_rows(move, row_bytes(call));
    }
    if (element_parts(table) != element_parts(rows)) {
        return WF_CUDA_UNSUPPORTED;
    }
    return move.gather
               ? convert_rows(move, wf_dtype_part(table), wf_dtype_part(rows))
               : convert_rows(move, wf_dtype_part(rows), wf_dtype_part(table));
}

/* A gather, or a scatter whose ids may be equal, with what it needs first. */
int prepare_and_move(const wf_cuda_rows_call &call, StreamState *state,
                     Move *move)
{
    const bool order = wants_order(call);
    const bool parts = call.table.parts > 0;
    const bool strike = !move->gather && move->n > 1;
    Scratch scratch(state);
    const uint32_t *positions = nullptr;
    int error = scratch.reserve(
        (order ? page_order_room(move->n) : 0) +
        (strike ? last_ones_room(move->n, call.table.rows) : 0) +
        (parts ? addresses_room(move->n) : 0));

    if (error == 0 && order) {
        error = page_order(move->ids, call.table.rows, call.table.pitch,
                           move->n, scratch, move->stream, &positions);
    }
    if (error == 0 && strike) {
        error = last_ones(move->ids, move->bounds, move->n, scratch,
                          move->stream, &move->ids);
        mark_checked(move);
    }
    if (error == 0 && parts) {
        error = use_addresses(call, scratch, move);
    }
    move->ids.order = positions;
    return error != 0 ? error : run_move(call, *move);
}

int run(const wf_cuda_rows_call &call, bool is_gather)
{
    StreamState *state;
    int error;

    if (empty(call)) {
        return 0;
    }
    error = stream_state(call.stream, &state);
    if (error != 0) {
        return error;
    }
    Move move = move_of(call, *state, is_gather);
    if (is_gather && call.table.parts == 0 && !wants_order(call)) {
        return run_move(call, move);
    }
    return prepare_and_move(call, state, &move);
}

int add_in_order(const wf_cuda_rows_call &call, StreamState *state, Move *move)
{
    const bool parts = call.table.parts > 0;
    Scratch scratch(state);
    Runs runs;
    int error = scratch.reserve(runs_room(move->n) +
                                (parts ? addresses_room(move->n) : 0));

    if (error == 0) {
        error = find_runs(move->ids, move->bounds, move->n, scratch,
                          move->stream, &runs);
        mark_checked(move);
    }
    if (error == 0 && parts) {
        error = use_addresses(call, scratch, move);
    }
    return error != 0 ? error
                      : add_runs(*move, wf_dtype_part(call.table.type), runs);
}

int add_at_once(const wf_cuda_rows_call &call, StreamState *state, Move *move)
{
    const weft_dtype type = wf_dtype_part(call.table.type);
    int error;

    if (call.table.parts == 0) {
        return add_rows(*move, type, call.table.on_host);
    }
    Scratch scratch(state);
    error = scratch.reserve(addresses_room(move->n));
    if (error == 0) {
        error = use_addresses(call, scratch, move);
    }
    return error != 0 ? error : add_rows(*move, type, call.table.on_host);
}

} // namespace

int gather(const wf_cuda_rows_call *call)
{
    return run(*call, true);
}

int scatter(const wf_cuda_rows_call *call)
{
    return run(*call, false);
}

int scatter_add(const wf_cuda_rows_call *call)
{
    StreamState *state;
    int error;

    if (call->table.type != call->rows.type) {
        return WF_CUDA_UNSUPPORTED;
    }
    if (empty(*call)) {
        return 0;
    }
    error = stream_state(call->stream, &state);
    if (error != 0) {
        return error;
    }
    Move move = move_of(*call, *state, false);
    return call->deterministic ? add_in_order(*call, state, &move)
                               : add_at_once(*call, state, &move);
}

} // namespace weft
