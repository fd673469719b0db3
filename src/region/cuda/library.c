/* SPDX-License-Identifier: Apache-2.0 */
#include "region/cuda/library.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/library.h"
#include "base/status.h"

#define FILE_NAME "libweft_cuda.so"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const wf_cuda_functions *functions;
static const wf_cuda_functions *_Atomic given;
static char why_not[PATH_MAX + 256];

static void open_library(void)
{
    const void *found = NULL;

    if (wf_library_find(getenv("WEFT_CUDA_LIBRARY"), FILE_NAME, WF_CUDA_SYMBOL,
                        &found) != WEFT_OK) {
        snprintf(
            why_not, sizeof(why_not),
            "no kernels for GPUs (%s): install nvcc of CUDA 12.8 or later and "
            "build weft again, or name the library in WEFT_CUDA_LIBRARY",
            weft_error_detail());
    } else if (((const wf_cuda_functions *)found)->abi != WF_CUDA_ABI) {
        snprintf(why_not, sizeof(why_not),
                 "the library with kernels for GPUs belongs to another version "
                 "of weft: build both anew");
    } else {
        functions = found;
    }
}

void wf_cuda_library_use(const wf_cuda_functions *instead)
{
    atomic_store(&given, instead);
}

weft_status wf_cuda_library(const wf_cuda_functions **out)
{
    const wf_cuda_functions *instead = atomic_load(&given);

    if (instead != NULL) {
        *out = instead;
        return WEFT_OK;
    }
    pthread_once(&once, open_library);
    if (functions == NULL) {
        return wf_fail(WEFT_ERR_UNSUPPORTED, "%s", why_not);
    }
    *out = functions;
    return WEFT_OK;
}
