/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many threads the library uses. PyTorch has an OpenMP runtime, most
 * libraries have threads of their own and would take all cores whatever
 * torch.set_num_threads says, and for each of PyTorch's threads again when they
 * are called from a parallel region. What the user set for the library itself
 * stays, save in parallel regions.
 */
#include "shim.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

typedef int omp_count(void);

static struct {
    omp_count *in_parallel; /* PyTorch's runtime; NULL if there is none */
    omp_count *max;
    void (*set_int)(int);
    void (*set_wide)(int64_t); /* BLIS counts in 64 bits */
    int given;                 /* by the user, or 0 */
    atomic_int now;            /* what the library was told last */
} threads;

static const struct {
    const char *set, *variable;
    bool wide;
} setters[] = {
    {"openblas_set_num_threads", "OPENBLAS_NUM_THREADS", false},
    {"bli_thread_set_num_threads", "BLIS_NUM_THREADS", true},
    {"MKL_Set_Num_Threads", "MKL_NUM_THREADS", false},
};

static void *threads_setter(void *library, const char *name)
{
    const char *prefix = getenv("WEFTBLAS_PREFIX");
    char full[64];

    (void)snprintf(full, sizeof(full), "%s%s", prefix ? prefix : "", name);
    return dlsym(library, full);
}

void wb_threads_open(void *library, void *torch)
{
    void *max = dlsym(torch, "omp_get_max_threads");
    void *parallel = dlsym(torch, "omp_in_parallel");

    if (library == NULL || max == NULL || parallel == NULL) {
        return;
    }
    for (size_t i = 0; i < sizeof(setters) / sizeof(*setters); i++) {
        void *set = threads_setter(library, setters[i].set);
        const char *given = getenv(setters[i].variable);

        if (set == NULL) {
            continue;
        }
        if (i == 0 && dlsym(library, "omp_get_max_threads") == max) {
            return; /* OpenBLAS follows the runtime that it shares */
        }
        *(void **)(setters[i].wide ? (void **)&threads.set_wide
                                   : (void **)&threads.set_int) = set;
        threads.given = given ? atoi(given) : 0;
        *(void **)&threads.max = max;
        *(void **)&threads.in_parallel = parallel;
        return;
    }
}

void wb_threads_follow(void)
{
    int n;

    if (threads.in_parallel == NULL) {
        return;
    }
    n = threads.in_parallel() ? 1 : threads.given;
    if (n <= 0) {
        n = threads.max();
    }
    if (n == atomic_load_explicit(&threads.now, memory_order_relaxed)) {
        return;
    }
    atomic_store_explicit(&threads.now, n, memory_order_relaxed);
    if (threads.set_wide != NULL) {
        threads.set_wide(n);
    } else {
        threads.set_int(n);
    }
}
