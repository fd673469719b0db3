/* SPDX-License-Identifier: Apache-2.0 */
/* The table of functions, the one symbol that this library exports. */
#include "kernels.cuh"

namespace weft
{

namespace
{

int device(void *stream, int32_t *out)
{
    int number;
    const int error = device_of(stream, &number);

    if (error == 0) {
        *out = number;
    }
    return error;
}

/* A call on the device that its stream belongs to. */
template <typename Call, int (*kFunction)(const Call *)>
int on_device(const Call *call)
{
    OnDeviceOf here(call->stream);

    return kFunction(call);
}

int check_there(void *stream, wf_cuda_bad *out)
{
    OnDeviceOf here(stream);

    return check(stream, out);
}

int trim_there(void *stream)
{
    OnDeviceOf here(stream);

    return trim(stream);
}

const char *explain(int error)
{
    switch (error) {
    case WF_CUDA_UNSUPPORTED:
        return "no kernel does this";
    case WF_CUDA_UNREACHABLE:
        return "host memory that the GPU cannot see";
    default:
        return cudaGetErrorString(static_cast<cudaError_t>(error));
    }
}

int reach(const void *host, uint64_t *out)
{
    cudaPointerAttributes about;
    const int error = cudaPointerGetAttributes(&about, host);

    if (error != 0) {
        return error;
    }
    if (about.devicePointer == nullptr) {
        return WF_CUDA_UNREACHABLE;
    }
    *out = reinterpret_cast<uint64_t>(about.devicePointer);
    return 0;
}

} // namespace

} // namespace weft

extern "C" __attribute__((visibility("default")))
const wf_cuda_functions weft_cuda_functions = {
    WF_CUDA_ABI,
    weft::device,
    weft::explain,
    weft::reach,
    weft::on_device<wf_cuda_rows_call, weft::gather>,
    weft::on_device<wf_cuda_rows_call, weft::scatter>,
    weft::on_device<wf_cuda_rows_call, weft::scatter_add>,
    weft::on_device<wf_cuda_update_call, weft::update>,
    weft::on_device<wf_cuda_unique_call, weft::unique>,
    weft::check_there,
    weft::trim_there,
};
