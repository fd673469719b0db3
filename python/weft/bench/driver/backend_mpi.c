/* SPDX-License-Identifier: Apache-2.0 */
/* An MPI library under test: Open MPI or MPICH, whichever compiles this. */
#include "backend.h"

#include <mpi.h>
#include <stdio.h>

static int mpi_done(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING];
    int n = 0;

    if (code == MPI_SUCCESS) {
        return 0;
    }
    MPI_Error_string(code, text, &n);
    fprintf(stderr, "%s: %.*s\n", call, n, text);
    return -1;
}

static int mpi_init(int *argc, char ***argv, int *rank, int *ranks)
{
    if (MPI_Init(argc, argv) != MPI_SUCCESS) {
        fprintf(stderr, "MPI_Init failed\n");
        return -1;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
    return 0;
}

static void mpi_fini(void)
{
    MPI_Finalize();
}

/* What MPI takes for the source of a sum. */
static const void *source(const float *src, const float *dst)
{
    return src == dst ? MPI_IN_PLACE : src;
}

static int mpi_barrier(void)
{
    return mpi_done(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
}

static int mpi_broadcast(void *buf, size_t bytes, int root)
{
    return mpi_done(MPI_Bcast(buf, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD),
                    "MPI_Bcast");
}

static int mpi_allreduce(const float *src, float *dst, size_t n)
{
    return mpi_done(MPI_Allreduce(source(src, dst), dst, (int)n, MPI_FLOAT,
                                  MPI_SUM, MPI_COMM_WORLD),
                    "MPI_Allreduce");
}

/* Never in place: MPICH up to 4.1 crashes on that, unless the root is 0. */
static int mpi_reduce(const float *src, float *dst, size_t n, int root)
{
    return mpi_done(
        MPI_Reduce(src, dst, (int)n, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD),
        "MPI_Reduce");
}

/* The ranks in reverse order, made when it is first asked for. */
static MPI_Comm mpi_reversed(void)
{
    static MPI_Comm comm = MPI_COMM_NULL;
    int rank;

    if (comm == MPI_COMM_NULL) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        (void)mpi_done(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm),
                       "MPI_Comm_split");
    }
    return comm;
}

static int mpi_scan(const float *src, float *dst, size_t n, bool down)
{
    return mpi_done(MPI_Scan(source(src, dst), dst, (int)n, MPI_FLOAT, MPI_SUM,
                             down ? mpi_reversed() : MPI_COMM_WORLD),
                    "MPI_Scan");
}

static int mpi_reduce_scatter(const float *src, float *dst, size_t n)
{
    return mpi_done(MPI_Reduce_scatter_block(src, dst, (int)n, MPI_FLOAT,
                                             MPI_SUM, MPI_COMM_WORLD),
                    "MPI_Reduce_scatter_block");
}

static int mpi_allgather(const float *src, float *dst, size_t n)
{
    return mpi_done(MPI_Allgather(src, (int)n, MPI_FLOAT, dst, (int)n,
                                  MPI_FLOAT, MPI_COMM_WORLD),
                    "MPI_Allgather");
}

static int mpi_alltoall(const float *src, float *dst, size_t n)
{
    return mpi_done(MPI_Alltoall(src, (int)n, MPI_FLOAT, dst, (int)n, MPI_FLOAT,
                                 MPI_COMM_WORLD),
                    "MPI_Alltoall");
}

static int mpi_gather(const float *src, float *dst, size_t n, int root)
{
    return mpi_done(MPI_Gather(src, (int)n, MPI_FLOAT, dst, (int)n, MPI_FLOAT,
                               root, MPI_COMM_WORLD),
                    "MPI_Gather");
}

static int mpi_scatter(const float *src, float *dst, size_t n, int root)
{
    return mpi_done(MPI_Scatter(src, (int)n, MPI_FLOAT, dst, (int)n, MPI_FLOAT,
                                root, MPI_COMM_WORLD),
                    "MPI_Scatter");
}

const bench_backend backend = {
    .init = mpi_init,
    .fini = mpi_fini,
    .barrier = mpi_barrier,
    .broadcast = mpi_broadcast,
    .allreduce = mpi_allreduce,
    .reduce = mpi_reduce,
    .scan = mpi_scan,
    .reduce_scatter = mpi_reduce_scatter,
    .allgather = mpi_allgather,
    .alltoall = mpi_alltoall,
    .gather = mpi_gather,
    .scatter = mpi_scatter,
};
