/* SPDX-License-Identifier: Apache-2.0 */
/* What the transport over MPI costs above MPI itself, in one run:
 *
 *     mpirun -n 2 bench_mpi_openmpi [largest size in bytes]
 *
 * For each size the time of a message one way, in a ping-pong of MPI_Send and
 * MPI_Recv and in one over the transport; and, above 64 KiB, the bandwidth with
 * eight messages under way. Blocks of the two take turns; each figure is the
 * 20th percentile of the blocks. The processes may be on two hosts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "boot/mpi.h"
#include "transport/mpi/net.h"
#include "transport/transport.h"

#define BLOCKS 25
#define FLIGHTS 8

typedef struct bench {
    int rank;
    const wf_transport *t;
    wf_port *port;
    wf_host *host;
    unsigned char *out;
    unsigned char *in;
} bench;

static void must(weft_status st)
{
    if (st != WEFT_OK) {
        fprintf(stderr, "bench_mpi: %s\n", weft_error_detail());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double percentile(double *v)
{
    qsort(v, BLOCKS, sizeof(*v), compare);
    return v[BLOCKS / 5];
}

/* --- plain MPI ------------------------------------------------------------ */

static void mpi_trip(bench *b, size_t n)
{
    int other = 1 - b->rank;

    if (b->rank == 0) {
        MPI_Send(b->out, (int)n, MPI_BYTE, other, 1, MPI_COMM_WORLD);
    }
    MPI_Recv(b->in, (int)n, MPI_BYTE, other, 1, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    if (b->rank == 1) {
        MPI_Send(b->out, (int)n, MPI_BYTE, other, 1, MPI_COMM_WORLD);
    }
}

/* Eight messages from rank 0 to rank 1, and a word back. */
static void mpi_burst(bench *b, size_t n)
{
    MPI_Request r[FLIGHTS];
    MPI_Status status[FLIGHTS];

    for (int i = 0; i < FLIGHTS; i++) {
        if (b->rank == 0) {
            MPI_Isend(b->out, (int)n, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &r[i]);
        } else {
            MPI_Irecv(b->in, (int)n, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &r[i]);
        }
    }
    MPI_Waitall(FLIGHTS, r, status);
    if (b->rank == 0) {
        MPI_Recv(b->in, 1, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(b->out, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    }
}

/* --- the transport -------------------------------------------------------- */

static void finish(bench *b, const wf_msg *msg)
{
    while (!msg->done) {
        (void)b->t->progress(b->port);
    }
    must(msg->status);
}

static void weft_trip(bench *b, size_t n)
{
    uint32_t other = (uint32_t)(1 - b->rank);
    wf_msg send;
    wf_msg recv;

    must(b->t->recv(b->port, other, 1, WF_TAG_EXACT, b->in, n, &recv));
    if (b->rank == 1) {
        finish(b, &recv);
    }
    must(b->t->send(b->port, other, 1, b->out, n, &send));
    finish(b, &recv);
    finish(b, &send);
}

static void weft_burst(bench *b, size_t n)
{
    uint32_t other = (uint32_t)(1 - b->rank);
    wf_msg msg[FLIGHTS];
    wf_msg word;

    for (int i = 0; i < FLIGHTS; i++) {
        must(b->rank == 0
                 ? b->t->send(b->port, 1, 1, b->out, n, &msg[i])
                 : b->t->recv(b->port, 0, 1, WF_TAG_EXACT, b->in, n, &msg[i]));
    }
    for (int i = 0; i < FLIGHTS; i++) {
        finish(b, &msg[i]);
    }
    must(b->rank == 1
             ? b->t->send(b->port, other, 2, b->out, 1, &word)
             : b->t->recv(b->port, other, 2, WF_TAG_EXACT, b->in, 1, &word));
    finish(b, &word);
}

/* --- blocks --------------------------------------------------------------- */

static double block(bench *b, void (*turn)(bench *, size_t), size_t n)
{
    unsigned turns = n <= 4096 ? 200 : n <= 65536 ? 40 : n <= 1 << 20 ? 6 : 2;
    double start;

    MPI_Barrier(MPI_COMM_WORLD);
    turn(b, n);
    start = MPI_Wtime();
    for (unsigned i = 0; i < turns; i++) {
        turn(b, n);
    }
    return (MPI_Wtime() - start) / turns;
}

static void one_size(bench *b, size_t n)
{
    double v[4][BLOCKS];
    bool large = n > 65536;

    for (unsigned i = 0; i < BLOCKS; i++) {
        v[0][i] = block(b, mpi_trip, n) / 2 * 1e6;
        v[1][i] = block(b, weft_trip, n) / 2 * 1e6;
        v[2][i] = large ? block(b, mpi_burst, n) / FLIGHTS : 0;
        v[3][i] = large ? block(b, weft_burst, n) / FLIGHTS : 0;
    }
    if (b->rank != 0) {
        return;
    }
    for (unsigned i = 0; i < 4; i++) {
        v[i][0] = percentile(v[i]);
    }
    printf("%9zu %9.2f %9.2f %6.2f", n, v[0][0], v[1][0], v[1][0] / v[0][0]);
    if (large) {
        printf(" %9.2f %9.2f %6.2f", 1e-9 * (double)n / v[2][0],
               1e-9 * (double)n / v[3][0], v[2][0] / v[3][0]);
    }
    printf("\n");
    fflush(stdout);
}

static void join(bench *b)
{
    const void *found = NULL;
    wf_boot_mpi_open_fn *open_table;
    wf_settings settings;
    weft_boot *boot;
    uint32_t other = (uint32_t)(1 - b->rank);
    wf_address address = {.of = "mpi"};
    wf_port_setup setup = {.settings = &settings, .rank = &other, .ranks = 1};

    must(wf_settings_load("TRANSPORTS=mpi", &settings));
    must(wf_library_find(NULL, BENCH_MODULE, WF_TRANSPORT_SYMBOL, &found));
    b->t = found;
    must(wf_library_find(NULL, BENCH_MODULE, WF_BOOT_MPI_SYMBOL, &found));
    memcpy(&open_table, &found, sizeof(open_table));
    must(open_table(&boot));
    must(b->t->prepare(&settings, &b->port, &address));
    must(wf_host_join(boot, &settings, &address, 1, (wf_interrupt){0},
                      &b->host));
    weft_boot_close(boot);
    setup.host = b->host;
    must(b->t->open(&setup, &b->port));
}

int main(int argc, char **argv)
{
    bench b = {0};
    size_t largest = argc > 1 ? strtoull(argv[1], NULL, 10) : 4 << 20;
    int level;
    int size;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) {
        fprintf(stderr, "bench_mpi: needs two processes, not %d\n", size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    join(&b);
    b.out = calloc(1, largest);
    b.in = calloc(1, largest);
    if (b.rank == 0) {
        printf("%9s %9s %9s %6s %9s %9s %6s\n", "bytes", "MPI us", "weft us",
               "ratio", "MPI GB/s", "weft GB/s", "ratio");
    }
    for (size_t n = 8; n <= largest; n *= 4) {
        one_size(&b, n);
    }
    free(b.out);
    free(b.in);
    MPI_Barrier(MPI_COMM_WORLD);
    b.t->close(b.port);
    wf_host_leave(b.host);
    MPI_Finalize();
    return 0;
}
