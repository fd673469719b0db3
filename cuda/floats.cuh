/* SPDX-License-Identifier: Apache-2.0 */
/* To float, in which all sums and steps are done, and back. */
#ifndef WEFT_CUDA_FLOATS_CUH
#define WEFT_CUDA_FLOATS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace weft
{

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

} // namespace weft

#endif
