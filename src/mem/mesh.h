/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting the ranks of a host with each other, each side of a connection
 * proving to the other that it knows the job's secret. */
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

/* While joining, `local` has closed its link, or does not take one any more.
 * Fails with WEFT_ERR_PEER and the reason: what another rank says it was, or
 * the rank that died, if one did and `local` only saw it go. */
weft_status wf_mesh_lost(const wf_host *host, uint32_t local);

/* While joining: after a slice of waiting that came to `*st`, shall the wait go
 * on? Looks at all links, too: whoever is waited for may itself wait for one
 * that has gone, and then `*st` is what wf_mesh_lost says. */
bool wf_mesh_lasts(const wf_host *host, const wf_patience *patience,
                   weft_status *st);

#endif
