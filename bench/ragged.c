/* SPDX-License-Identifier: Apache-2.0 */
/* How long collectives of parts of any length take through slots, and out of
 * the arenas of those who have them.
 *
 *     ragged [largest size of a part in bytes]
 *
 * Two ranks, each on a core of its own. "Plain" never touches the buffers;
 * "used" writes the sources before and reads the results after each call, and
 * both count. Blocks of the two ways alternate, since a virtual machine moves
 * its cores about; each figure is the median of the blocks' means, in us, and
 * the ratio is the median of those of neighbours. */
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#include "base/time.h"

#define BLOCKS 21
#define BLOCK_NS 4e6

enum { SLOTS, ARENA, WAYS };
enum { ALLTOALLV, REDUCE_SCATTERV, KINDS };

typedef struct bench {
    weft_world *world;
    weft_comm *comm;
    float *src[WAYS]; /* two parts */
    float *dst;
    size_t n; /* elements of a part */
} bench;

static const char *const kind_names[KINDS] = {"alltoallv", "reduce_scatterv"};

static void must(weft_status st)
{
    if (st != WEFT_OK) {
        fprintf(stderr, "ragged: %s\n", weft_error_detail());
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *v, unsigned n)
{
    double sorted[BLOCKS];

    memcpy(sorted, v, n * sizeof(*v));
    qsort(sorted, n, sizeof(*sorted), compare);
    return sorted[n / 2];
}

static void call(const bench *b, int kind, unsigned way)
{
    /* The parts lie in the other order than the ranks they are for. */
    const weft_part src[2] = {{b->src[way] + b->n, b->n}, {b->src[way], b->n}};
    const weft_part dst[2] = {{b->dst, b->n}, {b->dst + b->n, b->n}};

    if (kind == ALLTOALLV) {
        must(weft_alltoallv(b->comm, src, dst, WEFT_F32));
    } else {
        must(weft_reduce_scatterv(b->comm, src, b->dst, WEFT_F32, WEFT_SUM));
    }
}

static void use(const bench *b, const float *at)
{
    volatile float sum = 0;

    for (size_t i = 0; i < 2 * b->n; i += 16) {
        sum = sum + at[i];
    }
}

/* The mean time of a call, in us; all ranks make the same number of calls. */
static double one_block(const bench *b, int kind, unsigned way, bool used)
{
    unsigned calls = (unsigned)(BLOCK_NS / (2e3 + (double)b->n * 4)) + 1;
    uint64_t start;

    call(b, kind, way);
    start = wf_now_ns();
    for (unsigned i = 0; i < calls; i++) {
        if (used) {
            memset(b->src[way], (int)i + 1, 2 * b->n * sizeof(float));
        }
        call(b, kind, way);
        if (used) {
            use(b, b->dst);
        }
    }
    return (double)(wf_now_ns() - start) / calls / 1e3;
}

static void one_size(const bench *b, int kind)
{
    double us[WAYS][BLOCKS];
    double ratio[BLOCKS];

    for (int used = 0; used < 2; used++) {
        for (unsigned i = 0; i < BLOCKS; i++) {
            for (unsigned w = 0; w < WAYS; w++) {
                us[w][i] = one_block(b, kind, w, used != 0);
            }
            ratio[i] = us[ARENA][i] / us[SLOTS][i];
        }
        if (weft_comm_rank(b->comm) == 0) {
            printf("%16s %9zu %6s %10.1f %10.1f %7.2f\n", kind_names[kind],
                   b->n * sizeof(float), used ? "used" : "plain",
                   median(us[SLOTS], BLOCKS), median(us[ARENA], BLOCKS),
                   median(ratio, BLOCKS));
            fflush(stdout);
        }
    }
}

static void join(bench *b, const char *name, uint32_t rank)
{
    weft_world_options options = {.size = sizeof(options)};
    weft_boot *boot = NULL;
    cpu_set_t core;

    CPU_ZERO(&core);
    CPU_SET(rank, &core);
    if (sched_setaffinity(0, sizeof(core), &core) != 0) {
        perror("ragged: sched_setaffinity");
    }
    must(weft_boot_open_local(name, rank, 2, &boot));
    options.boot = boot;
    must(weft_world_create(&options, &b->world));
    weft_boot_close(boot);
    b->comm = weft_world_comm(b->world);
}

static void run(bench *b, size_t largest)
{
    b->src[SLOTS] = calloc(2, largest);
    b->dst = calloc(2, largest);
    if (b->src[SLOTS] == NULL || b->dst == NULL) {
        fprintf(stderr, "ragged: no memory for parts of %zu bytes\n", largest);
        exit(1);
    }
    must(weft_arena_zalloc(b->world, 2 * largest, (void **)&b->src[ARENA]));
    if (weft_comm_rank(b->comm) == 0) {
        printf("%16s %9s %6s %10s %10s %7s\n", "", "bytes", "", "slots",
               "arena", "ratio");
    }
    for (int kind = 0; kind < KINDS; kind++) {
        for (size_t bytes = 16384; bytes <= largest; bytes *= 4) {
            b->n = bytes / sizeof(float);
            one_size(b, kind);
        }
    }
    weft_arena_free(b->src[ARENA]);
    free(b->src[SLOTS]);
    free(b->dst);
    weft_world_destroy(b->world);
}

int main(int argc, char **argv)
{
    size_t largest = argc > 1 ? strtoull(argv[1], NULL, 10) : 64u << 20;
    bench b = {0};
    char name[64];
    pid_t child;

    snprintf(name, sizeof(name), "bench-ragged-%d", (int)getpid());
    child = fork();
    join(&b, name, child == 0 ? 1 : 0);
    run(&b, largest < 16384 ? 16384 : largest);
    if (child > 0) {
        waitpid(child, NULL, 0);
    }
    return 0;
}
