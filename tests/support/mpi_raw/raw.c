/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "transport/mpi/mp.h"
#include "wt_mpi_raw.h"

/* --- levels of threads ---------------------------------------------------- */

static void finalize(int code, void *arg)
{
    int over = 0;

    (void)arg;
    if (code == 0 && MPI_Finalized(&over) == MPI_SUCCESS && !over) {
        MPI_Finalize();
    }
}

static bool begin_serialized(void)
{
    int level = MPI_THREAD_SINGLE;

    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) !=
            MPI_SUCCESS ||
        on_exit(finalize, NULL) != 0) {
        abort();
    }
    /* As weft does where it initialises MPI. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    return level == MPI_THREAD_SERIALIZED;
}

/* --- frames that no correct rank sends ------------------------------------ */

static mp_peer *rank_0(wf_port *port)
{
    return &port->peer[port->of_rank[0]];
}

static mp_head next(wf_port *port, mp_kind kind)
{
    return (mp_head){
        .job = port->job, .seq = rank_0(port)->seq_out++, .kind = kind};
}

/* Everything of this length is received by the other side at last. */
static void send_all(wf_port *port, const void *head, size_t head_bytes,
                     size_t n, int tag)
{
    MPI_Request request = MPI_REQUEST_NULL;
    unsigned char *data = calloc(1, n > 0 ? n : 1);
    int over = 0;

    if (data == NULL) {
        abort();
    }
    memcpy(data, head, n < head_bytes ? n : head_bytes);
    if (MPI_Isend(data, (int)n, MPI_BYTE, rank_0(port)->place, tag, port->comm,
                  &request) != MPI_SUCCESS) {
        abort();
    }
    while (!over) {
        MPI_Test(&request, &over, MPI_STATUS_IGNORE);
        sched_yield();
    }
    free(data);
}

static void frame(wf_port *port, const mp_head *head, size_t n)
{
    send_all(port, head, sizeof(*head), n, TAG_FRAME);
}

static void chunk(wf_port *port, const mp_chunk_head *head, size_t n)
{
    send_all(port, head, sizeof(*head), n, TAG_CHUNK);
}

static bool keeps_lengths(void)
{
#ifdef OPEN_MPI
    const char *how = getenv("OMPI_MCA_btl_vader_single_copy_mechanism");

    return how != NULL && strcmp(how, "none") == 0;
#else
    return true;
#endif
}

static uint32_t receives(const wf_port *port)
{
    return port->slots;
}

WF_API extern const wt_mpi_raw_calls wt_mpi_raw;
const wt_mpi_raw_calls wt_mpi_raw = {
    .begin_serialized = begin_serialized,
    .next = next,
    .frame = frame,
    .chunk = chunk,
    .keeps_lengths = keeps_lengths,
    .receives = receives,
};
