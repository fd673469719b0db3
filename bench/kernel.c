/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the reduce kernels are, next to memcpy and to a plain loop.
 *
 *     kernel [bytes per buffer]...
 *
 * For each size (small enough for L1, for L2, and too big for both, unless
 * given) one line for each type, operation, number of sources and destinations;
 * in GB/s of bytes read and written, the best of several rounds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/time.h"
#include "coll/kernel/table.h"

#define MAX_BUFFERS 18
#define ROUNDS 9
#define ROUND_NS 2000000u

typedef struct shape {
    weft_dtype type;
    weft_op_kind op;
    size_t nsrc;
    size_t ndst;
} shape;

static const shape shapes[] = {
    {WEFT_F32, WEFT_OP_SUM, 2, 1},   {WEFT_F32, WEFT_OP_SUM, 2, 2},
    {WEFT_F64, WEFT_OP_SUM, 2, 1},   {WEFT_I32, WEFT_OP_SUM, 2, 1},
    {WEFT_I64, WEFT_OP_SUM, 2, 1},   {WEFT_BF16, WEFT_OP_SUM, 2, 1},
    {WEFT_BF16, WEFT_OP_SUM, 2, 2},  {WEFT_F16, WEFT_OP_SUM, 2, 1},
    {WEFT_F16, WEFT_OP_SUM, 2, 2},   {WEFT_F32, WEFT_OP_SUM, 4, 1},
    {WEFT_F32, WEFT_OP_SUM, 8, 1},   {WEFT_F32, WEFT_OP_SUM, 16, 1},
    {WEFT_BF16, WEFT_OP_SUM, 4, 1},  {WEFT_BF16, WEFT_OP_SUM, 8, 1},
    {WEFT_BF16, WEFT_OP_SUM, 16, 1}, {WEFT_F16, WEFT_OP_SUM, 8, 1},
    {WEFT_F32, WEFT_OP_AVG, 2, 1},   {WEFT_BF16, WEFT_OP_AVG, 2, 1},
    {WEFT_F32, WEFT_OP_MAX, 2, 1},   {WEFT_I32, WEFT_OP_MAX, 2, 1},
    {WEFT_I64, WEFT_OP_BAND, 2, 1},  {WEFT_I32, WEFT_OP_AVG, 2, 1},
    {WEFT_C64, WEFT_OP_PROD, 2, 1},
};

/* What one round does, `bytes` being the size of each buffer. */
typedef struct work {
    wf_reducer reducer;
    size_t bytes;
    size_t nsrc;
    size_t ndst;
    void *dst[MAX_BUFFERS];
    const void *src[MAX_BUFFERS];
    void (*run)(const struct work *w);
} work;

static void run_kernel(const work *w)
{
    const wf_reducer *r = &w->reducer;

    r->fold(r, w->dst, w->ndst, w->src, w->nsrc, w->bytes / r->elem);
}

static void run_memcpy(const work *w)
{
    memcpy(w->dst[0], w->src[0], w->bytes);
}

static void run_loop(const work *w)
{
    float *a = w->dst[0];
    const float *b = w->src[0];

    for (size_t i = 0; i < w->bytes / sizeof(float); i++) {
        a[i] += b[i];
    }
}

/* Bytes per nanosecond, which is GB/s. `streams` buffers are read or written
 * in each call. */
static double measure(const work *w, size_t streams)
{
    double best = 0;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = wf_now_ns();
        uint64_t spent = 0;
        size_t calls = 0;

        while (spent < ROUND_NS) {
            w->run(w);
            calls++;
            spent = wf_now_ns() - start;
        }
        double rate = (double)(w->bytes * streams * calls) / (double)spent;
        best = rate > best ? rate : best;
    }
    return best;
}

static void print_peers(work *w)
{
    w->run = run_memcpy;
    printf("  %-22s %8.1f\n", "memcpy", measure(w, 2));
    w->run = run_loop;
    printf("  %-22s %8.1f\n", "f32 a[i] += b[i]", measure(w, 3));
}

static void print_shape(work *w, const shape *s)
{
    char label[64];

    w->run = run_kernel;
    w->nsrc = s->nsrc;
    w->ndst = s->ndst;
    w->reducer.factor = 0.5;
    w->reducer.ranks = (uint32_t)s->nsrc;
    w->reducer.elem = weft_dtype_size(s->type);
    w->reducer.stream = false;
    snprintf(label, sizeof(label), "%s %s %zu to %zu", weft_dtype_name(s->type),
             weft_op_name(s->op), s->nsrc, s->ndst);
    printf("  %-22s", label);
    for (int level = WF_CPU_PLAIN; level <= (int)wf_cpu_detect(); level++) {
        w->reducer.fold =
            wf_kernels_of((wf_cpu_level)level)->fold[s->type][s->op];
        printf(" %8.1f", measure(w, s->nsrc + s->ndst));
    }
    printf("\n");
}

static void print_size(work *w, size_t bytes)
{
    w->bytes = bytes;
    printf("%zu bytes in each buffer, GB/s\n  %-22s", bytes, "");
    for (int level = WF_CPU_PLAIN; level <= (int)wf_cpu_detect(); level++) {
        printf(" %8s", wf_cpu_level_name((wf_cpu_level)level));
    }
    printf("\n");
    print_peers(w);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        print_shape(w, &shapes[i]);
    }
}

/* Destinations are apart from the sources, and buffers apart by an odd number
 * of cache lines, so that they do not compete for the same sets. */
static int make_buffers(work *w, size_t bytes, char **out)
{
    size_t stride = (bytes + 63) / 64 * 64 + 64 * 37;
    char *memory = aligned_alloc(64, stride * MAX_BUFFERS);

    if (memory == NULL) {
        fprintf(stderr, "no memory for %d buffers of %zu bytes\n", MAX_BUFFERS,
                bytes);
        return -1;
    }
    memset(memory, 0, stride * MAX_BUFFERS);
    for (size_t i = 0; i < MAX_BUFFERS; i++) {
        w->src[i] = memory + i * stride;
        w->dst[i] = memory + (MAX_BUFFERS - 1 - i) * stride;
    }
    *out = memory;
    return 0;
}

static int bench_size(size_t bytes)
{
    work w;
    char *memory;

    if (make_buffers(&w, bytes, &memory) != 0) {
        return 1;
    }
    print_size(&w, bytes);
    free(memory);
    return 0;
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {1024, 6144, 131072, 16 << 20};
    int failed = 0;

    for (int i = 1; i < argc; i++) {
        failed |= bench_size(strtoull(argv[i], NULL, 0));
    }
    for (size_t i = 0; argc == 1 && i < sizeof(sizes) / sizeof(*sizes); i++) {
        failed |= bench_size(sizes[i]);
    }
    return failed;
}
