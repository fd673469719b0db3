/* SPDX-License-Identifier: Apache-2.0 */
/* What src/coll is to those above it. */
#ifndef WF_COLL_COLL_H
#define WF_COLL_COLL_H

#include "coll/engine.h"
#include "comm/layer.h"

/* What it is given are the engines: an array of pointers, NULL at the end. */
extern const wf_layer wf_coll_layer;

/* Like weft_barrier, by another name: return when all members have made the
 * same call. Its number among the communicator's operations is the same on all;
 * `sequence` may be NULL. */
weft_status wf_coll_agree(weft_comm *comm, const wf_call *call,
                          uint32_t *sequence);

#endif
