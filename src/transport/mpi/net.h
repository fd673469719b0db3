/* SPDX-License-Identifier: Apache-2.0 */
/* MPI in this process, which has it once: several ports share it. */
#ifndef WF_TRANSPORT_MPI_NET_H
#define WF_TRANSPORT_MPI_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* The C++ bindings of old libraries are of no use here. */
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <weft/status.h>

/* What a rank publishes: its rank in MPI_COMM_WORLD, and of which one. */
typedef struct mp_address {
    uint32_t version;
    uint32_t rank;
    uint64_t job; /* differs between two runs of mpirun */
} mp_address;

#define MP_ADDRESS_VERSION 1u

/* Initialise MPI, unless it is, and say who we are. Unless the program has
 * initialised it, or `insist`, this needs a launcher that speaks of several
 * hosts: others need no MPI. WEFT_ERR_UNSUPPORTED: it cannot be used here. */
weft_status mp_net_start(bool insist, mp_address *out);

/* How many processes this MPI job has. */
int mp_net_size(void);

/* Calls of MPI are made between these two; they cost nothing where MPI allows
 * several threads at once. */
void mp_net_lock(void);
void mp_net_unlock(void);

/* A communicator of these ranks of MPI_COMM_WORLD, which all call this with the
 * same list; its errors are returned. */
weft_status mp_net_group(const int *ranks, int n, MPI_Comm *out);
void mp_net_free(MPI_Comm *comm);

/* Keep `memory` until MPI has finished this request, which nobody waits for;
 * then it is freed. Takes both. */
void mp_net_keep(MPI_Request request, void *memory);

/* "MPI_Isend: message truncated", as an error detail. */
weft_status mp_net_fail(weft_status status, const char *what, int code);

/* Has a receive failed with this because the message was longer? */
bool mp_net_is_too_long(int code);

/* MPI_Finalize; says so if that takes long. */
void mp_net_finalize(int rank);

#endif
