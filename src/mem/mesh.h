/* SPDX-License-Identifier: Apache-2.0 */
/* The mesh: connections between the ranks of a host. Both sides of a connection
 * prove that they know the job's secret. */
#ifndef WF_MEM_MESH_H
#define WF_MEM_MESH_H

#include "mem/host.h"
#include "mem/join.h"

/* Are the local indices a and b connected? Pure; `mesh` is the number of ranks
 * up to which everybody is connected with everybody. */
bool wf_mesh_linked(uint32_t a, uint32_t b, uint32_t count, uint32_t mesh);

/* Fill host->link. `listener` is the socket whose name is in our record. On
 * failure the links made so far are the caller's to close. */
weft_status wf_mesh_connect(wf_host *host, const wf_join_table *table,
                            uint32_t mesh, int listener,
                            const wf_patience *patience);

/* While joining, `local` has closed its link, or refuses one. Fails with
 * WEFT_ERR_PEER and the reason: the one that another rank reports, or the rank
 * that died, if `local` only gave up because of that death. */
weft_status wf_mesh_lost(const wf_host *host, uint32_t local);

/* Like wf_patience_lasts, while joining. Checks all links, too: the rank that
 * is waited for may itself wait for one that has died, and then `*st` becomes
 * what wf_mesh_lost returns. */
bool wf_mesh_lasts(const wf_host *host, const wf_patience *patience,
                   weft_status *st);

#endif
