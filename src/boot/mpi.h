/* SPDX-License-Identifier: Apache-2.0 */
/* Which MPI this process belongs to, as far as that can be known without
 * calling it; and a table over it. Libraries of MPI differ in their binary
 * interface, so there is a library of ours for each, which holds the transport
 * and the table; at most one of them is ever loaded. */
#ifndef WF_BOOT_MPI_H
#define WF_BOOT_MPI_H

#include <weft/boot.h>

#include "base/export.h"
#include "base/settings.h"

/* What the libraries export: a function of this type. */
#define WF_BOOT_MPI_SYMBOL "wf_boot_mpi_module"
typedef weft_status wf_boot_mpi_open_fn(weft_boot **out);

/* The file of our library for the MPI of this process: the one that
 * settings->mpi names, or that is loaded already, or whose launcher has started
 * the process. WEFT_ERR_UNSUPPORTED if there is no sign of any. */
weft_status wf_boot_mpi_library(const wf_settings *settings, const char **file);

/* WEFT_OK if this process may initialise MPI, which nobody has done: a launcher
 * of MPI has started it, with ranks on several hosts, unless `insist`. */
WF_API weft_status wf_boot_mpi_wanted(bool insist);

/* A number that the processes of one run of mpirun have in common, and no two
 * runs; or 0 if it cannot be known. */
WF_API uint64_t wf_boot_mpi_job(void);

/* A table over MPI_COMM_WORLD, whose ranks are those of the table. All its
 * processes call this. WEFT_ERR_UNSUPPORTED if MPI cannot be used. */
weft_status wf_boot_open_mpi(const wf_settings *settings, weft_boot **out);

#endif
