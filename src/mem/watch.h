/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that watches the other ranks of this host. It sleeps in the kernel
 * until a peer sends mail, which it brings to the mailbox, or goes away. */
#ifndef WF_MEM_WATCH_H
#define WF_MEM_WATCH_H

#include "mem/host.h"

/* The thread runs from wf_watch_start on. */
weft_status wf_watch_create(wf_host *host, wf_watch **out);
weft_status wf_watch_start(wf_watch *w);
/* Stop the thread. In a forked child there is none to stop. */
void wf_watch_destroy(wf_watch *w);

/* Watch a descriptor of this rank's own: once it polls readable after
 * wf_watch_arm, drivers that sleep for it (wf_host.drivers_asleep) are woken,
 * once. It must not be closed before wf_watch_remove. wf_watch_add starts the
 * thread if it does not run. */
weft_status wf_watch_add(wf_watch *w, int fd);
void wf_watch_arm(wf_watch *w, int fd);
void wf_watch_remove(wf_watch *w, int fd);

/* Another thread sees to these descriptors, until wf_watch_give: it sleeps
 * until one of them that was armed polls readable, or `until_ns`. What became
 * readable is not armed any more. True if it woke drivers, who will see to it.
 * wf_watch_rouse wakes it. At least one was added before. */
void wf_watch_take(wf_watch *w);
void wf_watch_give(wf_watch *w);
bool wf_watch_sleep(wf_watch *w, uint64_t until_ns);
void wf_watch_rouse(wf_watch *w);

/* In a forked child: close what keeps our parent looking alive. */
void wf_watch_orphan(wf_watch *w);

#endif
