/* SPDX-License-Identifier: Apache-2.0 */
/* What tests call of MPI itself. Test programs know no MPI, as the same ones
 * run under each, so this is a library for each binary interface
 * (mpi_raw/raw.c); wt_launched.h finds the one that fits. */
#ifndef WT_MPI_RAW_H
#define WT_MPI_RAW_H

#include "transport/mpi/wire.h"
#include "transport/transport.h"

#define WT_MPI_RAW_SYMBOL "wt_mpi_raw"

typedef struct wt_mpi_raw_calls {
    /* Initialise MPI for MPI_THREAD_SERIALIZED, as a program may do before it
     * uses weft; is that what MPI has then? It is finalized when the process
     * ends with 0. */
    bool (*begin_serialized)(void);
    /* The head of the next frame from this rank to rank 0. */
    mp_head (*next)(wf_port *port, mp_kind kind);
    /* Send rank 0 a frame or a chunk with this head, of which `n` bytes go out:
     * fewer than a head has, or zeros behind it. */
    void (*frame)(wf_port *port, const mp_head *head, size_t n);
    void (*chunk)(wf_port *port, const mp_chunk_head *head, size_t n);
    /* Does this MPI refuse what is longer than its receive? Open MPI 4.1 writes
     * past the end where a process reads the memory of another one; not with
     * OMPI_MCA_btl_vader_single_copy_mechanism=none. */
    bool (*keeps_lengths)(void);
    /* How many receives for frames a port has. */
    uint32_t (*receives)(const wf_port *port);
} wt_mpi_raw_calls;

#endif
