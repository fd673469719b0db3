/* SPDX-License-Identifier: Apache-2.0 */
/* What an exchange of large data between two ranks is made of, step by step.
 *
 *     exchange [MiB] [chunk in KiB]
 *
 * Two processes on two cores, each with as many bytes to give as to get:
 *
 *   copy       its own source to its own result, past the caches: what memory
 *              allows
 *   by slot    the same through a slot that stays in its own cache: reading
 *              memory and writing it no longer go on at once
 *   exchange   through two slots that the other one reads, which claims the
 *              lines it has read, as src/coll/shm/exchange.c does: lines change
 *              caches as well
 *   unclaimed  the same without claiming
 *   kernel     out of the other one's source, which the kernel reads
 *   pieces     every other chunk so, the others as in exchange
 *
 * The best of several rounds, for the slower of the two. */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/stream.h"
#include "base/time.h"
#include "coll/shm/area.h"
#include "mem/cma.h"

#define ROUNDS 7u
#define SLOTS_AT 4096u

typedef struct counters {
    alignas(128) _Atomic uint64_t in;
    alignas(128) _Atomic uint64_t out;
    alignas(128) _Atomic uint64_t met;
    uint64_t ns;
    uint64_t src; /* where its source lies, in its process */
    int pid;
} counters;

typedef struct rank {
    counters *own;
    counters *other;
    unsigned char *slot;       /* two of ours, which the other one reads */
    unsigned char *other_slot; /* its */
    unsigned char *src;
    unsigned char *dst;
    size_t bytes;
    size_t chunk;
    uint64_t met;
    uint64_t base; /* chunks of the rounds before */
} rank;

static shm_state library; /* of which a copy needs the kernels */

static void await(const _Atomic uint64_t *counter, uint64_t value)
{
    while (atomic_load_explicit(counter, memory_order_acquire) < value) {
        wf_cpu_relax();
    }
}

static void meet(rank *r)
{
    atomic_store(&r->own->met, ++r->met);
    await(&r->other->met, r->met);
}

static void copy(rank *r)
{
    wf_copy_stream(r->dst, r->src, r->bytes);
}

static void by_slot(rank *r)
{
    for (size_t at = 0; at < r->bytes; at += r->chunk) {
        memcpy(r->slot, r->src + at, r->chunk);
        wf_copy_stream(r->dst + at, r->slot, r->chunk);
    }
}

static void read_by_kernel(rank *r, size_t at, size_t bytes)
{
    while (bytes > 0) {
        ssize_t got =
            wf_cma_read(r->other->pid, r->dst + at, r->other->src + at, bytes);

        if (got <= 0) {
            perror("process_vm_readv");
            exit(1);
        }
        at += (size_t)got;
        bytes -= (size_t)got;
    }
}

/* Of each `stride` chunks the first goes through a slot, and the kernel reads
 * the others. */
static void exchange(rank *r, bool claim, unsigned stride)
{
    uint64_t chunks = r->bytes / r->chunk / stride;

    for (uint64_t i = 0; i < chunks; i++) {
        size_t at = i * stride * r->chunk;
        size_t slot = i % 2 * r->chunk;

        if (i >= 2) {
            await(&r->other->out, r->base + i - 1);
        }
        memcpy(r->slot + slot, r->src + at, r->chunk);
        atomic_store_explicit(&r->own->in, r->base + i + 1,
                              memory_order_release);
        await(&r->other->in, r->base + i + 1);
        if (claim) {
            shm_take(&library, r->dst + at, r->other_slot + slot, r->chunk,
                     true);
        } else {
            wf_copy_stream(r->dst + at, r->other_slot + slot, r->chunk);
        }
        atomic_store_explicit(&r->own->out, r->base + i + 1,
                              memory_order_release);
        read_by_kernel(r, at + r->chunk, (stride - 1) * r->chunk);
    }
    r->base += chunks;
}

static void claimed(rank *r)
{
    exchange(r, true, 1);
}

static void unclaimed(rank *r)
{
    exchange(r, false, 1);
}

static void kernel(rank *r)
{
    for (size_t at = 0; at < r->bytes; at += r->chunk) {
        read_by_kernel(r, at, r->chunk);
    }
}

static void pieces(rank *r)
{
    exchange(r, true, 2);
}

static const struct {
    const char *name;
    void (*run)(rank *r);
} steps[] = {{"copy", copy},        {"by slot", by_slot},
             {"exchange", claimed}, {"unclaimed", unclaimed},
             {"kernel", kernel},    {"pieces", pieces}};

static void measure(rank *r, bool tells)
{
    double copied = 0;

    for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
        uint64_t best = UINT64_MAX;

        for (unsigned round = 0; round < ROUNDS; round++) {
            uint64_t start;

            meet(r);
            start = wf_now_ns();
            steps[s].run(r);
            r->own->ns = wf_now_ns() - start;
            meet(r);
            if (r->other->ns > r->own->ns) {
                r->own->ns = r->other->ns;
            }
            best = r->own->ns < best ? r->own->ns : best;
        }
        copied = s == 0 ? (double)best : copied;
        if (tells) {
            printf("%-10s %8.2f ms  %5.2f of copy\n", steps[s].name,
                   (double)best / 1e6, (double)best / copied);
        }
    }
}

static unsigned char *memory(size_t bytes, int kind)
{
    void *p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return p;
}

static void one_core(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

int main(int argc, char **argv)
{
    size_t chunk = (argc > 2 ? strtoull(argv[2], NULL, 10) : 64) << 10;
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 256) << 20;
    unsigned char *shared;
    pid_t child;
    rank r = {.bytes = bytes, .chunk = chunk};

    if (chunk == 0 || bytes % (2 * chunk) != 0) {
        fprintf(stderr, "an even number of whole chunks, please\n");
        return 2;
    }
    library.kernels = wf_kernels_of(wf_cpu_level_used());
    shared = memory(SLOTS_AT + 4 * chunk, MAP_SHARED);
    child = fork();
    one_core(child == 0);
    r.own = (counters *)(void *)shared + (child == 0);
    r.other = (counters *)(void *)shared + (child != 0);
    r.slot = shared + SLOTS_AT + (child == 0 ? 2 * chunk : 0);
    r.other_slot = shared + SLOTS_AT + (child == 0 ? 0 : 2 * chunk);
    r.src = memory(bytes, MAP_PRIVATE);
    r.dst = memory(bytes, MAP_PRIVATE);
    memset(r.src, 1 + (child == 0), bytes);
    memset(r.dst, 3, bytes);
    r.own->src = (uint64_t)(uintptr_t)r.src;
    r.own->pid = (int)getpid();
    measure(&r, child != 0);
    if (child == 0) {
        _exit(memcmp(r.dst, r.src, 1) == 0 ? 1 : 0);
    }
    waitpid(child, NULL, 0);
    return 0;
}
