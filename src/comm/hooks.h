/* SPDX-License-Identifier: Apache-2.0 */
/* What the layers above want to keep with every communicator. They fill in
 * this table; src/comm calls it and knows nothing more of them. */
#ifndef WF_COMM_HOOKS_H
#define WF_COMM_HOOKS_H

#include "comm/comm.h"

typedef struct wf_comm_hooks {
    /* Bytes of the communicator's segment that are wanted, all zero at first;
     * the same on all members. */
    size_t (*area)(const weft_comm *comm);
    /* `area` is NULL where the members do not share memory. */
    weft_status (*attach)(weft_comm *comm, void *area);
    void (*detach)(weft_comm *comm);
    /* Return when all members have made the same call; its number among the
     * communicator's operations is the same on all. */
    weft_status (*agree)(weft_comm *comm, const wf_call *call,
                         uint32_t *sequence);
} wf_comm_hooks;

#endif
