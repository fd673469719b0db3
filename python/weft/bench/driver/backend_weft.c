/* SPDX-License-Identifier: Apache-2.0 */
/* weft itself under test. */
#include "backend.h"

#include <stdio.h>
#include <weft/weft.h>

static weft_world *world;
static weft_comm *comm;
static weft_comm *reversed;

static int weft_done(weft_status status, const char *call)
{
    if (status == WEFT_OK) {
        return 0;
    }
    fprintf(stderr, "%s: %s: %s\n", call, weft_status_text(status),
            weft_error_detail());
    return -1;
}

static int world_init(int *argc, char ***argv, int *rank, int *ranks)
{
    (void)argc;
    (void)argv;
    if (weft_done(weft_world_create(NULL, &world), "weft_world_create") != 0) {
        return -1;
    }
    comm = weft_world_comm(world);
    *rank = (int)weft_comm_rank(comm);
    *ranks = (int)weft_comm_size(comm);
    return 0;
}

static void world_fini(void)
{
    weft_comm_destroy(reversed);
    weft_world_destroy(world);
}

static int world_barrier(void)
{
    return weft_done(weft_barrier(comm), "weft_barrier");
}

static int world_broadcast(void *buf, size_t bytes, int root)
{
    return weft_done(weft_broadcast(comm, buf, bytes, WEFT_U8, (uint32_t)root),
                     "weft_broadcast");
}

static int world_allreduce(const float *src, float *dst, size_t n)
{
    return weft_done(weft_allreduce(comm, src, dst, n, WEFT_F32, WEFT_SUM),
                     "weft_allreduce");
}

static int world_reduce(const float *src, float *dst, size_t n, int root)
{
    return weft_done(
        weft_reduce(comm, src, dst, n, WEFT_F32, WEFT_SUM, (uint32_t)root),
        "weft_reduce");
}

/* The ranks in reverse order, made when it is first asked for. */
static weft_comm *world_reversed(void)
{
    if (reversed == NULL) {
        (void)weft_done(
            weft_comm_split(comm, 0, -(int64_t)weft_comm_rank(comm), &reversed),
            "weft_comm_split");
    }
    return reversed;
}

static int world_scan(const float *src, float *dst, size_t n, bool down)
{
    weft_comm *way = down ? world_reversed() : comm;

    return weft_done(weft_scan(way, src, dst, n, WEFT_F32, WEFT_SUM),
                     "weft_scan");
}

static int world_reduce_scatter(const float *src, float *dst, size_t n)
{
    return weft_done(weft_reduce_scatter(comm, src, dst, n, WEFT_F32, WEFT_SUM),
                     "weft_reduce_scatter");
}

static int world_allgather(const float *src, float *dst, size_t n)
{
    return weft_done(weft_allgather(comm, src, dst, n, WEFT_F32),
                     "weft_allgather");
}

static int world_alltoall(const float *src, float *dst, size_t n)
{
    return weft_done(weft_alltoall(comm, src, dst, n, WEFT_F32),
                     "weft_alltoall");
}

static int world_gather(const float *src, float *dst, size_t n, int root)
{
    return weft_done(weft_gather(comm, src, dst, n, WEFT_F32, (uint32_t)root),
                     "weft_gather");
}

static int world_scatter(const float *src, float *dst, size_t n, int root)
{
    return weft_done(weft_scatter(comm, src, dst, n, WEFT_F32, (uint32_t)root),
                     "weft_scatter");
}

/* Memory that is not in the arena would be measured under a wrong name. */
static void *world_alloc(size_t bytes)
{
    void *at = NULL;

    if (weft_done(weft_alloc(comm, bytes, &at), "weft_alloc") == 0 &&
        weft_arena_holds(at) == 0) {
        fprintf(stderr, "weft_alloc: %zu bytes are not in the arena\n", bytes);
        weft_free(comm, at);
        at = NULL;
    }
    return at;
}

static void world_release(void *at)
{
    weft_free(comm, at);
}

const bench_backend backend = {
    .init = world_init,
    .fini = world_fini,
    .barrier = world_barrier,
    .broadcast = world_broadcast,
    .allreduce = world_allreduce,
    .reduce = world_reduce,
    .scan = world_scan,
    .reduce_scatter = world_reduce_scatter,
    .allgather = world_allgather,
    .alltoall = world_alltoall,
    .gather = world_gather,
    .scatter = world_scatter,
    .alloc = world_alloc,
    .release = world_release,
};
