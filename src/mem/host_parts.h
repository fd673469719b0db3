/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that join the ranks of a host share (mem/host.h). */
#ifndef WF_MEM_HOST_PARTS_H
#define WF_MEM_HOST_PARTS_H

#include "mem/host.h"
#include "mem/link.h"

/* Ranks of this host, of those numbered so far, on a node. */
uint32_t wf_host_ranks_of(const wf_host *h, uint32_t node);

/* A packet to, or of this kind from, a rank of this host while it joins. */
weft_status wf_host_tell(wf_host *h, uint32_t local, uint32_t kind,
                         const void *data, size_t n, int fd, uint64_t deadline);
weft_status wf_host_expect(wf_host *h, uint32_t local, uint32_t kind,
                           uint64_t deadline, wf_packet *p, int *fd);

/* The lowest rank makes the arena of each node and sends it to its ranks; the
 * others take theirs. `entered`, `maps`: this rank maps its own. Having none is
 * no failure. */
weft_status wf_host_arenas_lead(wf_host *h, const wf_settings *settings,
                                uint64_t deadline, bool *entered);
weft_status wf_host_arena_follow(wf_host *h, const wf_settings *settings,
                                 uint64_t deadline, uint32_t *maps);
/* Keep the arena if all ranks of the node map it. */
void wf_host_arena_settle(wf_host *h, const wf_settings *settings, bool all);

#endif
