/* SPDX-License-Identifier: Apache-2.0 */
/* The table that PMIx is: Open MPI's mpirun and `srun --mpi=pmix` have a server
 * on each host, which libpmix talks to. */
#ifndef WF_BOOT_PMIX_H
#define WF_BOOT_PMIX_H

#include <stdbool.h>
#include <weft/boot.h>

/* Did a launcher that speaks PMIx start this process? Does not load it. */
bool wf_boot_pmix_offered(void);

/* `number` separates the worlds that this process forms one after the other.
 * WEFT_ERR_UNSUPPORTED if libpmix is not there, if there is no server, or if it
 * counts this process as another rank. */
weft_status wf_boot_open_pmix(unsigned number, uint32_t rank, uint32_t ranks,
                              weft_boot **out);

#endif
