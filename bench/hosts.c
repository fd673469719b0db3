/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives between pretended nodes of this machine: by shared memory inside
 * nodes and messages between them, against messages alone.
 *
 *     hosts [nodes] [largest size in bytes]
 *
 * Nodes are a letter for each rank, "aabb" unless said. Messages between the
 * nodes go over shared memory, too, so what is compared is the work of the
 * ranks and not that of a network. Blocks of both engines are measured in turn;
 * each figure is the 20th percentile of its blocks, in us. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#include "base/time.h"

#define BLOCKS 15
#define LARGEST ((size_t)16 << 20)

enum { HOSTS, MESSAGE, ENGINES };

static const char *const engines[ENGINES] = {"hosts", "message"};

enum {
    BARRIER,
    ALLREDUCE,
    BROADCAST,
    REDUCE,
    ALLGATHER,
    REDUCE_SCATTER,
    CALLS
};

static const char *const names[CALLS] = {"barrier",   "allreduce",
                                         "broadcast", "reduce",
                                         "allgather", "reduce_scatter"};

typedef struct bench {
    uint32_t rank;
    uint32_t ranks;
    weft_comm *comm[ENGINES];
    float *src;
    float *dst;
} bench;

static void must(weft_status st)
{
    if (st != WEFT_OK) {
        fprintf(stderr, "hosts: %s\n", weft_error_detail());
        exit(1);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* `n` elements in all. */
static void call(const bench *b, int engine, int what, size_t n)
{
    weft_comm *comm = b->comm[engine];

    switch (what) {
    case BARRIER:
        must(weft_barrier(comm));
        break;
    case ALLREDUCE:
        must(weft_allreduce(comm, b->src, b->dst, n, WEFT_F32, WEFT_SUM));
        break;
    case BROADCAST:
        must(weft_broadcast(comm, b->src, n, WEFT_F32, 0));
        break;
    case REDUCE:
        must(weft_reduce(comm, b->src, b->dst, n, WEFT_F32, WEFT_SUM, 0));
        break;
    case ALLGATHER:
        must(weft_allgather(comm, b->src, b->dst, n / b->ranks, WEFT_F32));
        break;
    default:
        must(weft_reduce_scatter(comm, b->src, b->dst, n / b->ranks, WEFT_F32,
                                 WEFT_SUM));
        break;
    }
}

/* Time of one call, in us. */
static double one_block(const bench *b, int engine, int what, size_t n)
{
    unsigned calls = n <= 1024 ? 200 : n <= 65536 ? 40 : n <= 1 << 20 ? 6 : 2;
    uint64_t start;

    call(b, engine, what, n);
    must(weft_barrier(b->comm[engine]));
    start = wf_now_ns();
    for (unsigned i = 0; i < calls; i++) {
        call(b, engine, what, n);
    }
    return (double)(wf_now_ns() - start) / 1e3 / calls;
}

static void measure(const bench *b, int what, size_t bytes)
{
    double us[ENGINES][BLOCKS];

    for (unsigned i = 0; i < BLOCKS; i++) {
        for (int e = 0; e < ENGINES; e++) {
            us[e][i] = one_block(b, e, what, bytes / sizeof(float));
        }
    }
    for (int e = 0; e < ENGINES; e++) {
        qsort(us[e], BLOCKS, sizeof(double), compare);
    }
    if (b->rank == 0) {
        double hosts = us[HOSTS][BLOCKS / 5];
        double message = us[MESSAGE][BLOCKS / 5];

        printf("%-15s %9zu %11.1f %11.1f %7.2f\n", names[what], bytes, hosts,
               message, hosts / message);
        fflush(stdout);
    }
}

static weft_world *join(const char *job, const char *nodes, uint32_t rank,
                        uint32_t ranks, int engine)
{
    char name[96];
    char settings[96];
    weft_world_options options = {.size = sizeof(options)};
    weft_boot *boot = NULL;
    weft_world *world = NULL;

    snprintf(name, sizeof(name), "%s.%s", job, engines[engine]);
    snprintf(settings, sizeof(settings), "NODE=%c ENGINE=%s", nodes[rank],
             engines[engine]);
    must(weft_boot_open_local(name, rank, ranks, &boot));
    options.boot = boot;
    options.settings = settings;
    must(weft_world_create(&options, &world));
    weft_boot_close(boot);
    return world;
}

static void run(const char *job, const char *nodes, uint32_t rank,
                size_t largest)
{
    bench b = {.rank = rank, .ranks = (uint32_t)strlen(nodes)};
    weft_world *world[ENGINES];

    b.src = calloc(1, largest);
    b.dst = calloc(1, largest);
    if (b.src == NULL || b.dst == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < largest / sizeof(float); i++) {
        b.src[i] = (float)(i % 1000 + rank);
    }
    for (int e = 0; e < ENGINES; e++) {
        world[e] = join(job, nodes, rank, b.ranks, e);
        b.comm[e] = weft_world_comm(world[e]);
    }
    if (rank == 0) {
        printf("nodes %s, us\n%-15s %9s %11s %11s %7s\n", nodes, "", "bytes",
               "hosts", "message", "ratio");
    }
    measure(&b, BARRIER, 0);
    for (int what = ALLREDUCE; what < CALLS; what++) {
        for (size_t bytes = 1024; bytes <= largest; bytes *= bytes == 65536 ? 16
                                                             : bytes == 1024
                                                                 ? 64
                                                                 : 16) {
            measure(&b, what, bytes);
        }
    }
    for (int e = 0; e < ENGINES; e++) {
        weft_world_destroy(world[e]);
    }
    free(b.src);
    free(b.dst);
}

int main(int argc, char **argv)
{
    const char *nodes = argc > 1 ? argv[1] : "aabb";
    size_t largest = argc > 2 ? strtoull(argv[2], NULL, 10) : LARGEST;
    uint32_t ranks = (uint32_t)strlen(nodes);
    char job[64];
    int failed = 0;

    snprintf(job, sizeof(job), "bench-hosts-%d", (int)getpid());
    for (uint32_t r = 0; r < ranks; r++) {
        if (fork() == 0) {
            run(job, nodes, r, largest);
            exit(0);
        }
    }
    for (uint32_t r = 0; r < ranks; r++) {
        int status;

        failed |= wait(&status) < 0 || status != 0;
    }
    return failed;
}
