/* SPDX-License-Identifier: Apache-2.0 */
/* What update.cu and rowwise.cu share. */
#ifndef WEFT_CUDA_UPDATE_CUH
#define WEFT_CUDA_UPDATE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels.cuh"

namespace weft
{

/* The numbers of a rule as the kernels want them. */
struct Rule {
    float lr;
    float decay; /* added to the gradient: weight decay */
    float keep;  /* w is multiplied by this first: decoupled decay */
    float eps;
    float alpha;     /* RMSPROP: of v; ADAM: beta2 */
    float one_alpha; /* 1 - alpha, which a float alpha would round away */
    float one_beta1;
    float step_size; /* ADAM: lr / (1 - beta1^t) */
    float v_scale;   /* ADAM: 1 / sqrt(1 - beta2^t) */
    float log_beta1; /* LAZY_ADAM */
    float log_beta2;
};

struct UpdateArgs {
    Lines weights;
    Lines state[WEFT_UPDATE_STATES];
    Lines grads;
    Ids ids;
    Bounds bounds;
    Share share;
    uint32_t width;
    Rule rule;
};

/* kCount elements that are loaded and stored at once, as float. */
template <typename T, int kCount> struct Vector {
    T of[kCount];
};
template <> struct alignas(16) Vector<float, 4> {
    float of[4];
};
template <> struct alignas(8) Vector<__half, 4> {
    __half of[4];
};
template <> struct alignas(8) Vector<__nv_bfloat16, 4> {
    __nv_bfloat16 of[4];
};

__device__ inline float to_float(float v)
{
    return v;
}
__device__ inline float to_float(__half v)
{
    return __half2float(v);
}
__device__ inline float to_float(__nv_bfloat16 v)
{
    return __bfloat162float(v);
}
template <typename T> __device__ inline T from_float(float v)
{
    return static_cast<T>(v);
}
template <> __device__ inline __half from_float(float v)
{
    return __float2half_rn(v);
}
template <> __device__ inline __nv_bfloat16 from_float(float v)
{
    return __float2bfloat16_rn(v);
}

template <typename T>
__device__ inline T *line_of(const Lines &lines, uint64_t line)
{
    return reinterpret_cast<T *>(lines.at + line * lines.pitch);
}

template <typename T, int kCount>
__device__ inline Vector<T, kCount> *chunk_of(const Lines &lines, uint64_t line,
                                              uint32_t chunk)
{
    return reinterpret_cast<Vector<T, kCount> *>(lines.at +
                                                 line * lines.pitch) +
           chunk;
}

inline bool aligned(const Lines &lines, uint64_t to)
{
    return (reinterpret_cast<uint64_t>(lines.at) | lines.pitch) % to == 0;
}

/* Row-wise Adagrad: one number of state for each row. Of args.share only n is
 * set. */
int update_rowwise(UpdateArgs args, weft_dtype type, cudaStream_t stream);

} // namespace weft

#endif
