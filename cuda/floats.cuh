/* SPDX-License-Identifier: Apache-2.0 */
/* To float, in which sums of narrow floats and all steps are done, and back. */
#ifndef WEFT_CUDA_FLOATS_CUH
#define WEFT_CUDA_FLOATS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/types.h"
#include "region/cuda/abi.h"

namespace weft
{

template <typename T> constexpr bool kIsNarrow = false;
template <> constexpr bool kIsNarrow<__half> = true;
template <> constexpr bool kIsNarrow<__nv_bfloat16> = true;

__device__ inline float to_float(float v)
{
    return v;
}
__device__ inline float to_float(double v)
{
    return float(v);
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

/* call(T()) for the T of a type that optimizers train (wf_dtype_trains). */
template <typename Call> int for_trained(weft_dtype type, Call call)
{
    switch (type) {
    case WEFT_F32:
        return call(float());
    case WEFT_F16:
        return call(__half());
    case WEFT_BF16:
        return call(__nv_bfloat16());
    default:
        return WF_CUDA_UNSUPPORTED;
    }
}

} // namespace weft

#endif
