/* SPDX-License-Identifier: Apache-2.0 */
/* To float, in which sums of narrow floats and all steps are done, and back. */
#ifndef WEFT_CUDA_FLOATS_CUH
#define WEFT_CUDA_FLOATS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "base/types.h"
#include "region/cuda/abi.h"

namespace weft
{

/* The T of a type; one that has no arithmetic here has void. */
template <weft_dtype> struct Element;
#define WEFT_ELEMENT(name, cpp)                                                \
    template <> struct Element<WEFT_##name> {                                  \
        using type = cpp;                                                      \
    };
WEFT_ELEMENT(BOOL, bool)
WEFT_ELEMENT(U8, uint8_t)
WEFT_ELEMENT(I8, int8_t)
WEFT_ELEMENT(I16, int16_t)
WEFT_ELEMENT(I32, int32_t)
WEFT_ELEMENT(I64, int64_t)
WEFT_ELEMENT(F16, __half)
WEFT_ELEMENT(BF16, __nv_bfloat16)
WEFT_ELEMENT(F32, float)
WEFT_ELEMENT(F64, double)
WEFT_ELEMENT(C64, void)
WEFT_ELEMENT(C128, void)
WEFT_ELEMENT(PAIR_F32, void)
WEFT_ELEMENT(PAIR_F64, void)
WEFT_ELEMENT(PAIR_I32, void)
WEFT_ELEMENT(PAIR_I64, void)
#undef WEFT_ELEMENT

/* C++ has no arithmetic for floats that are calculated in f32. */
template <typename T> constexpr bool kIsNarrow = !std::is_arithmetic_v<T>;

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

/* call(T()) for the T of a type of these classes and at most so many bytes. */
template <unsigned kClasses, size_t kBytes = 8, typename Call>
int for_types(weft_dtype type, Call call)
{
    switch (type) {
#define ROW(name, number, bytes, text, kind, ...)                              \
    case WEFT_##name:                                                          \
        if constexpr ((kClasses & WF_##kind) != 0 && (bytes) <= kBytes) {      \
            return call(typename Element<WEFT_##name>::type());                \
        }                                                                      \
        break;
        WEFT_DTYPE_TABLE(ROW)
#undef ROW
    }
    return WF_CUDA_UNSUPPORTED;
}

/* call(T()) for the T of a type that optimizers train (wf_dtype_trains). */
template <typename Call> int for_trained(weft_dtype type, Call call)
{
    return for_types<WF_FLOAT, sizeof(float)>(type, call);
}

} // namespace weft

#endif
