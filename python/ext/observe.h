/* SPDX-License-Identifier: Apache-2.0 */
/* Who is told of the operations of Comm as they end: nobody, unless a profiler
 * asked. An operation then costs one look at a pointer. */
#ifndef WFP_OBSERVE_H
#define WFP_OBSERVE_H

#include "call.h"

/* A callable, or NULL. Changes only while the GIL is held. */
extern PyObject *wfp_observer;

/* When an operation begins, as wfp_observe wants it; 0 if nobody wants it. */
uint64_t wfp_observe_begin(void);

/* An operation that began at `since` is over, or has been started. `call` is
 * NULL if it has no data. Takes the GIL; an exception of the observer is
 * reported and goes no further. */
void wfp_observe_end(const char *name, const wfp_comm *comm,
                     const wfp_call *call, uint64_t since);

#endif
