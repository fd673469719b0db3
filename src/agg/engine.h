/* SPDX-License-Identifier: Apache-2.0 */
/* What src/agg is to those above it: the engine "switch". */
#ifndef WF_AGG_ENGINE_H
#define WF_AGG_ENGINE_H

#include "coll/engine.h"

extern const wf_engine wf_engine_switch;

#endif
