/* SPDX-License-Identifier: Apache-2.0 */
/* The one way in which the library starts a thread. Signals are for the
 * program's own threads: a handler that ran on one of the library's would
 * interrupt nothing that the program waits in, and might find itself inside the
 * library. So all are blocked there, save those that a thread brings upon
 * itself (a fault): blocked, these would end the process without a word. */
#ifndef WF_BASE_THREAD_H
#define WF_BASE_THREAD_H

#include <pthread.h>
#include <weft/status.h>

/* Have a thread run `main(arg)`. Fails with WEFT_ERR_SYSTEM, and `what` it was
 * to be in the detail. */
weft_status wf_thread_start(const char *what, void *(*main)(void *), void *arg,
                            pthread_t *out);

#endif
