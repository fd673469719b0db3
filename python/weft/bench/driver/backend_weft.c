/* SPDX-License-Identifier: Apache-2.0 */
/* weft itself under test. */
#include "backend.h"

#include <stdio.h>
#include <weft/weft.h>

static weft_world *world;
static weft_comm *comm;

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
    weft_world_destroy(world);
}

static int world_barrier(void)
{
    return weft_done(weft_barrier(comm), "weft_barrier");
}

static int world_allreduce(const float *src, float *dst, size_t n)
{
    return weft_done(weft_allreduce(comm, src, dst, n, WEFT_F32, WEFT_SUM),
                     "weft_allreduce");
}

static int world_broadcast(void *buf, size_t bytes, int root)
{
    return weft_done(weft_broadcast(comm, buf, bytes, WEFT_U8, (uint32_t)root),
                     "weft_broadcast");
}

const bench_backend backend = {
    .init = world_init,
    .fini = world_fini,
    .barrier = world_barrier,
    .allreduce = world_allreduce,
    .broadcast = world_broadcast,
};
