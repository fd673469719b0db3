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
 * wf_watch_arm, the rank's bells ring, once. It must not be closed before
 * wf_watch_remove. wf_watch_add starts the thread if it does not run. */
weft_status wf_watch_add(wf_watch *w, int fd);
void wf_watch_arm(wf_watch *w, int fd);
void wf_watch_remove(wf_watch *w, int fd);

/* In a forked child: close what keeps our parent looking alive. */
void wf_watch_orphan(wf_watch *w);

#endif
