/* SPDX-License-Identifier: Apache-2.0 */
/* The chooser: which engine serves a communicator. */
#ifndef WF_COLL_CHOOSE_H
#define WF_COLL_CHOOSE_H

#include "coll/engine.h"

/* The best engine for this communicator, or the one WEFT_ENGINE names if it
 * can serve it at all. Pure. */
const wf_engine *wf_coll_choose(const weft_comm *comm);

/* The table, best first, NULL at the end. */
extern const wf_engine *const wf_engines[];

#endif
