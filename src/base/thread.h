/* SPDX-License-Identifier: Apache-2.0 */
/* The one way in which the library starts a thread. All signals are blocked in
 * it, except those that a fault raises: if they were blocked, a fault would end
 * the process without running a handler. A handler that ran on a thread of the
 * library would interrupt nothing that the program waits in, and might re-enter
 * the library. */
#ifndef WF_BASE_THREAD_H
#define WF_BASE_THREAD_H

#include <pthread.h>
#include <weft/status.h>

#include "base/export.h"

/* Start a thread that runs `main(arg)`. Fails with WEFT_ERR_SYSTEM; `what`
 * names the thread in the detail. */
WF_API weft_status wf_thread_start(const char *what, void *(*main)(void *),
                                   void *arg, pthread_t *out);

#endif
