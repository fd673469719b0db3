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

static int mpi_barrier(void)
{
    return mpi_done(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
}

static int mpi_allreduce(const float *src, float *dst, size_t n)
{
    const void *from = src == dst ? MPI_IN_PLACE : src;

    return mpi_done(
        MPI_Allreduce(from, dst, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
        "MPI_Allreduce");
}

static int mpi_broadcast(void *buf, size_t bytes, int root)
{
    return mpi_done(MPI_Bcast(buf, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD),
                    "MPI_Bcast");
}

const bench_backend backend = {
    .init = mpi_init,
    .fini = mpi_fini,
    .barrier = mpi_barrier,
    .allreduce = mpi_allreduce,
    .broadcast = mpi_broadcast,
};
