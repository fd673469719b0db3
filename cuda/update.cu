/* SPDX-License-Identifier: Apache-2.0 */
/* One step of an optimizer on the rows that ids name. Gradients, weights and
 * state pass through registers once: the time is that of their bytes. */
#include "update.cuh"

namespace weft
{

namespace
{

constexpr int kFlight = 2;

/* How far Adam's averages have come, in this row. */
__device__ inline void count_row(Rule *rule, int32_t t)
{
    rule->step_size = rule->lr / -expm1f(float(t) * rule->log_beta1);
    rule->v_scale = rsqrtf(-expm1f(float(t) * rule->log_beta2));
}

template <weft_optimizer kKind>
__device__ inline void step(const Rule &rule, float g, float *w, float *s0,
                            float *s1)
{
    g += rule.decay * *w;
    if constexpr (kKind == WEFT_SGD) {
        *w -= rule.lr * g;
    } else if constexpr (kKind == WEFT_ADAGRAD) {
        *s0 += g * g;
        *w -= rule.lr * (g / (sqrtf(*s0) + rule.eps));
    } else if constexpr (kKind == WEFT_RMSPROP) {
        *s0 = rule.alpha * *s0 + rule.one_alpha * g * g;
        *w -= rule.lr * (g / (sqrtf(*s0) + rule.eps));
    } else {
        static_assert(kKind == WEFT_ADAM || kKind == WEFT_LAZY_ADAM,
                      "an optimizer without a step");
        *w *= rule.keep;
        *s0 += rule.one_beta1 * (g - *s0);
        *s1 = rule.alpha * *s1 + rule.one_alpha * g * g;
        *w -= rule.step_size * (*s0 / (sqrtf(*s1) * rule.v_scale + rule.eps));
    }
}

/* Those that are as wide as the weights. */
__host__ __device__ constexpr int states_of(weft_optimizer kind)
{
    switch (kind) {
#define ROW(name, text, wide, traits, ...)                                     \
    case WEFT_##name:                                                          \
        return wide;
        WF_OPTIMIZER_TABLE(ROW)
#undef ROW
    }
    return 0;
}

template <typename W, int kCount> struct Chunk {
    Vector<W, kCount> w;
    Vector<float, kCount> g;
    Vector<float, kCount> s[2];
    int32_t steps; /* LAZY_ADAM: that the row has seen, before this one */
};

template <weft_optimizer kKind, typename W, int kCount>
__device__ inline void load_chunk(const UpdateArgs &args, int64_t row,
                                  const Item &item, Chunk<W, kCount> *c)
{
    c->g = *chunk_at<Vector<float, kCount>>(args.grads, item.at, item.chunk);
    c->w = *chunk_at<Vector<W, kCount>>(args.weights, row, item.chunk);
#pragma unroll
    for (int i = 0; i < states_of(kKind); i++) {
        c->s[i] =
            *chunk_at<Vector<float, kCount>>(args.state[i], row, item.chunk);
    }
    if constexpr (kKind == WEFT_LAZY_ADAM) {
        c->steps = *chunk_at<const int32_t>(args.state[2], row, 0);
    }
}

template <weft_optimizer kKind, typename W, int kCount>
__device__ inline void step_chunk(const UpdateArgs &args, int64_t row,
                                  const Item &item, Chunk<W, kCount> *c)
{
    Rule rule = args.rule;

    if constexpr (kKind == WEFT_LAZY_ADAM) {
        count_row(&rule, c->steps + 1);
    }
#pragma unroll
    for (int i = 0; i < kCount; i++) {
        float w = to_float(c->w.of[i]);

        step<kKind>(rule, c->g.of[i], &w, &c->s[0].of[i], &c->s[1].of[i]);
        c->w.of[i] = from_float<W>(w);
    }
    *chunk_at<Vector<W, kCount>>(args.weights, row, item.chunk) = c->w;
#pragma unroll
    for (int i = 0; i < states_of(kKind); i++) {
        *chunk_at<Vector<float, kCount>>(args.state[i], row, item.chunk) =
            c->s[i];
    }
}

/* Counts a step of each row of the block, when all its chunks have read how
 * many there were. Numbers past the end have been recorded. */
__device__ inline void count_steps(const UpdateArgs &args, uint64_t first)
{
    const uint64_t left = args.grid.n - first;

    __syncthreads();
    for (uint32_t i = threadIdx.x; i < args.grid.rows_per_block && i < left;
         i += kThreads) {
        const int64_t row =
            row_of(args.bounds, load_id(args.ids, first + i), first + i);
        if (row >= 0) {
            ++*chunk_at<int32_t>(args.state[2], row, 0);
        }
    }
}

template <weft_optimizer kKind, typename W, int kCount>
__global__ void __launch_bounds__(kThreads) update_kernel(const UpdateArgs args)
{
    const uint64_t first = uint64_t(blockIdx.x) * args.grid.rows_per_block;
    const uint32_t items = items_here(args.grid, first);

    for (uint32_t j = threadIdx.x; j < items; j += kThreads * kFlight) {
        Item item[kFlight];
        int64_t row[kFlight];
        Chunk<W, kCount> chunk[kFlight];

        load_turn(args.grid, args.ids, args.bounds, first, j, items, item, row);
#pragma unroll
        for (int k = 0; k < kFlight; k++) {
            if (row[k] >= 0) {
                load_chunk<kKind>(args, row[k], item[k], &chunk[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < kFlight; k++) {
            if (row[k] >= 0) {
                step_chunk<kKind>(args, row[k], item[k], &chunk[k]);
            }
        }
    }
    if constexpr (kKind == WEFT_LAZY_ADAM) {
        count_steps(args, first);
    }
}

template <weft_optimizer kKind, typename W, int kCount>
int launch(UpdateArgs args, cudaStream_t stream)
{
    if constexpr (kKind == WEFT_ROWWISE_ADAGRAD) {
        return WF_CUDA_UNSUPPORTED; /* update_rowwise takes it */
    } else {
        args.grid =
            row_grid_of(args.grid.n, args.width / kCount, kThreads * kFlight);
        return launch_rows(update_kernel<kKind, W, kCount>, args, stream);
    }
}

template <typename W, int kCount>
int launch_kind(const UpdateArgs &args, weft_optimizer kind,
                cudaStream_t stream)
{
    switch (kind) {
#define ROW(name, text, wide, traits, ...)                                     \
    case WEFT_##name:                                                          \
        return launch<WEFT_##name, W, kCount>(args, stream);
        WF_OPTIMIZER_TABLE(ROW)
#undef ROW
    }
    return WF_CUDA_UNSUPPORTED;
}

/* Four elements at once where all addresses allow it. */
template <typename W>
int launch_width(const UpdateArgs &args, weft_optimizer kind,
                 cudaStream_t stream)
{
    const int states = states_of(kind);
    bool four = args.width % 4 == 0 && aligned(args.grads, 16) &&
                aligned(args.weights, 4 * sizeof(W));

    for (int i = 0; i < states; i++) {
        four = four && aligned(args.state[i], 16);
    }
    return four ? launch_kind<W, 4>(args, kind, stream)
                : launch_kind<W, 1>(args, kind, stream);
}

Lines lines_of(const wf_cuda_table &table)
{
    return {reinterpret_cast<char *>(table.at), table.pitch};
}

} // namespace

int update(const wf_cuda_update_call *call)
{
    UpdateArgs args = {};
    StreamState *state;
    int error;

    if (call->ids.n == 0 || call->weights.width == 0) {
        return 0;
    }
    if (call->weights.width >= uint64_t(1) << 31) {
        return WF_CUDA_UNSUPPORTED;
    }
    error = stream_state(call->stream, &state);
    if (error != 0) {
        return error;
    }
    args.weights = lines_of(call->weights);
    for (int i = 0; i < WEFT_UPDATE_STATES; i++) {
        args.state[i] = lines_of(call->state[i]);
    }
    args.grads = {static_cast<char *>(call->grads.at), call->grads.pitch};
    args.ids = {call->ids.at, nullptr, call->ids.type == WEFT_I64};
    args.bounds = {call->weights.rows, call->bounds, state->bad};
    args.grid.n = call->ids.n;
    args.width = uint32_t(call->weights.width);
    wf_rule_of(&call->rule, &args.rule);
    if (call->rule.kind == WEFT_ROWWISE_ADAGRAD) {
        return update_rowwise(args, call->weights.type, state->stream);
    }
    return for_trained(call->weights.type, [&](auto w) {
        return launch_width<decltype(w)>(args, call->rule.kind, state->stream);
    });
}

} // namespace weft
