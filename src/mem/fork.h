/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to a host in a forked child: its sockets are closed there, so
 * that a child does not keep its dead parent looking alive, and it is marked
 * an orphan, so that nothing the child calls touches the parent's job. */
#ifndef WF_MEM_FORK_H
#define WF_MEM_FORK_H

#include "mem/host.h"

void wf_fork_add(wf_host *host);
void wf_fork_remove(wf_host *host);

#endif
