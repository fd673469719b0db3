/* SPDX-License-Identifier: Apache-2.0 */
#include "region/cuda/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

#define FILE_NAME "libweft_cuda.so"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const wf_cuda_functions *functions;
static const wf_cuda_functions *_Atomic given;
static char why_not[PATH_MAX + 256];

/* The file beside the one that this code is in. */
static void beside_us(char *path, size_t room)
{
    Dl_info us;
    const char *slash = NULL;

    if (dladdr(&once, &us) != 0 && us.dli_fname != NULL) {
        slash = strrchr(us.dli_fname, '/');
    }
    if (slash == NULL) {
        snprintf(path, room, "%s", FILE_NAME);
        return;
    }
    snprintf(path, room, "%.*s/%s", (int)(slash - us.dli_fname), us.dli_fname,
             FILE_NAME);
}

static void open_library(void)
{
    const char *named = getenv("WEFT_CUDA_LIBRARY");
    char path[PATH_MAX];
    const wf_cuda_functions *found;
    void *library;

    if (named != NULL && named[0] != '\0' && strcmp(named, "auto") != 0) {
        snprintf(path, sizeof(path), "%s", named);
    } else {
        beside_us(path, sizeof(path));
    }
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(
            why_not, sizeof(why_not),
            "no kernels for GPUs (%s): install nvcc of CUDA 12.8 or later and "
            "build weft again, or name the library in WEFT_CUDA_LIBRARY",
            dlerror());
        return;
    }
    found = dlsym(library, WF_CUDA_SYMBOL);
    if (found == NULL || found->abi != WF_CUDA_ABI) {
        snprintf(why_not, sizeof(why_not),
                 "%s belongs to another version of weft: build both anew",
                 path);
        dlclose(library);
        return;
    }
    functions = found;
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
