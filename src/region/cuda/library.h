/* SPDX-License-Identifier: Apache-2.0 */
/* libweft_cuda.so, opened when it is first asked for. */
#ifndef WF_REGION_CUDA_LIBRARY_H
#define WF_REGION_CUDA_LIBRARY_H

#include "region/cuda/abi.h"

/* Its functions, from the folder that libweft is in or as WEFT_CUDA_LIBRARY
 * says. It stays open. WEFT_ERR_UNSUPPORTED if there is none, or if it belongs
 * to another version; that is tried once in the life of a process. */
weft_status wf_cuda_library(const wf_cuda_functions **out);

/* For tests: use these instead, from the next call on; NULL: the library's. */
void wf_cuda_library_use(const wf_cuda_functions *instead);

#endif
