/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite for the transport over MPI. MPI wants a launcher, so
 * the test starts itself under one, for each MPI that there is. */
#include "conform.h"
#include "wt_launched.h"

static int run(const wf_transport *mpi)
{
    const conform_kind kinds[] = {
        {.name = "mpi",
         .transport = mpi,
         .settings = "TRANSPORTS=mpi",
         .timed = true},
        {.name = "mpi with waits that sleep",
         .transport = mpi,
         .settings = "TRANSPORTS=mpi SHM_EAGER=512",
         .sleeps = true,
         .timed = true,
         .slow = true},
    };
    int failed = 0;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        failed += conform_run(&kinds[i]);
    }
    return failed;
}

int main(void)
{
    return wt_launched() ? run(wt_launched_load()) : wt_launch_self(8);
}
