/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local unsigned fail_in;

/* Allocations of other threads than the one that asked for this. */
static struct {
    _Atomic bool counted;
    _Atomic unsigned made;
    _Atomic unsigned first;
    _Atomic unsigned end; /* those from `first` to this fail */
} others;
static _Thread_local bool exempt;

static bool other_must_fail(void)
{
    unsigned nth;

    if (!atomic_load_explicit(&others.counted, memory_order_acquire) ||
        exempt) {
        return false;
    }
    nth = atomic_fetch_add(&others.made, 1) + 1;
    return nth >= atomic_load(&others.first) && nth < atomic_load(&others.end);
}

static bool alloc_must_fail(void)
{
    return (fail_in != 0 && --fail_in == 0) || other_must_fail();
}

void wf_alloc_fail_nth(unsigned nth)
{
    fail_in = nth;
}

void wf_alloc_fail_others(unsigned nth, unsigned count)
{
    exempt = true;
    atomic_store(&others.counted, false);
    atomic_store(&others.made, 0);
    atomic_store(&others.first, nth);
    atomic_store(&others.end, nth + count);
    atomic_store(&others.counted, count != 0);
}

unsigned wf_alloc_others(void)
{
    return atomic_load(&others.made);
}

void *wf_alloc(size_t bytes)
{
    return alloc_must_fail() ? NULL : malloc(bytes == 0 ? 1 : bytes);
}

void *wf_zalloc(size_t bytes)
{
    return alloc_must_fail() ? NULL : calloc(1, bytes == 0 ? 1 : bytes);
}

void *wf_zalloc_aligned(size_t align, size_t bytes)
{
    void *p = NULL;

    if (alloc_must_fail() || posix_memalign(&p, align, bytes) != 0) {
        return NULL;
    }
    memset(p, 0, bytes);
    return p;
}

void *wf_realloc(void *old, size_t bytes)
{
    return alloc_must_fail() ? NULL : realloc(old, bytes == 0 ? 1 : bytes);
}

char *wf_strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = wf_alloc(n);

    if (copy != NULL) {
        memcpy(copy, text, n);
    }
    return copy;
}

void wf_free(void *p)
{
    free(p);
}
