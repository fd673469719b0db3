/* SPDX-License-Identifier: Apache-2.0 */
/* What update.cu and rowwise.cu share. */
#ifndef WEFT_CUDA_UPDATE_CUH
#define WEFT_CUDA_UPDATE_CUH

#include "floats.cuh"
#include "kernels.cuh"
#include "region/rows/rule.h"

namespace weft
{

using Rule = wf_rule;

struct UpdateArgs {
    Lines weights;
    Lines state[WEFT_UPDATE_STATES];
    Lines grads;
    Ids ids;
    Bounds bounds;
    RowGrid grid;
    uint32_t width;
    Rule rule;
};

/* kCount elements that are loaded and stored at once. */
template <typename T, int kCount> struct alignas(kCount * sizeof(T)) Vector {
    T of[kCount];
};

inline bool aligned(const Lines &lines, uint64_t to)
{
    return (reinterpret_cast<uint64_t>(lines.at) | lines.pitch) % to == 0;
}

/* Row-wise Adagrad: one number of state for each row. Of args.grid only n is
 * set. */
int update_rowwise(UpdateArgs args, weft_dtype type, cudaStream_t stream);

} // namespace weft

#endif
