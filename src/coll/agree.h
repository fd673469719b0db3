/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WF_COLL_AGREE_H
#define WF_COLL_AGREE_H

#include "comm/comm.h"

/* A barrier that goes by another name: see comm/hooks.h. */
weft_status wf_coll_agree(weft_comm *comm, const wf_call *call,
                          uint32_t *sequence);

#endif
