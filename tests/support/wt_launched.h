/* SPDX-License-Identifier: Apache-2.0 */
/* Tests whose ranks a launcher has started, because the transport cannot do
 * without one: mpirun starts the whole program several times, with WT_LAUNCHED
 * naming a file that they share (tests/support/under_mpirun). All of them go
 * through all tests in step; a job of fewer ranks runs on the first of them.
 * */
#ifndef WT_LAUNCHED_H
#define WT_LAUNCHED_H

#include "transport/transport.h"
#include "wt.h"
#include "wt_mpi_raw.h"

/* Transport mpi for all ranks, in the library that WEFT_MPI names. */
extern const wf_transport wt_transport_mpi;

/* Load it; ends the process if it was not built. */
const wf_transport *wt_launched_load(void);

/* It, leading to ranks of other nodes only. */
const wf_transport *wt_launched_far(void);

/* What tests call of the MPI that has started this process. With WT_MPI_LEVEL
 * set to "serialized", jobs run under MPI_THREAD_SERIALIZED. */
const wt_mpi_raw_calls *wt_launched_raw(void);

bool wt_launched(void);

/* Start this program with so many ranks under each MPI that there is; what it
 * shall exit with. */
int wt_launch_self(unsigned ranks);

/* Run the job on the processes that there are, as one of them. Skips the test
 * if they are too few, if ranks shall die (the launcher ends the others), or if
 * the test has transports of its own. */
void wt_launched_run(const wt_job *job);

/* Skip a test that cannot run so. */
void wt_launched_skip(void);

#endif
