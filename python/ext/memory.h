/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that all ranks of a communicator map. */
#ifndef WFP_MEMORY_H
#define WFP_MEMORY_H

#include "comm.h"

/* What weft_alloc gave. The last view of it may go on any thread, and so while
 * another one is inside the communicator; it is then freed when that leaves. */
typedef struct wfp_shared {
    void *at;
    struct wfp_shared *next;
} wfp_shared;

/* Free what was waiting for it. The communicator is not in use. */
void wfp_shared_sweep(wfp_comm *comm);

#endif
