/* SPDX-License-Identifier: Apache-2.0 */
/* The mail of this process: what came from the other ranks of the host and has
 * not been taken yet. The watching thread (mem/watch.h) reads the sockets and
 * brings what it read here; wf_host_post sends, wf_host_take takes. */
#ifndef WF_MEM_MAILBOX_H
#define WF_MEM_MAILBOX_H

#include "mem/host.h"
#include "mem/link.h"

weft_status wf_mailbox_create(wf_host *host, wf_mailbox **out);
/* Throws away the mail. Takes NULL. */
void wf_mailbox_destroy(wf_mailbox *box);

/* In a forked child: nobody holds the lock or waits. */
void wf_mailbox_unlock(wf_mailbox *box);

/* Is there memory for one more packet? What is not read stays in its socket:
 * the watching thread reads only while there is, so that no mail is lost. */
bool wf_mailbox_ready(wf_mailbox *box);

/* Keep the packet, hand it to the function of wf_host_on_mail, or, at the
 * lowest rank of the host, pass it on. The mailbox owns `fd` from here on. */
void wf_mailbox_deliver(wf_mailbox *box, wf_packet *p, int fd);

/* This rank of the job is gone: wake whoever waits for its mail.
 * `ended`: all that it sent has been read. */
void wf_mailbox_gone(wf_mailbox *box, uint32_t rank, bool ended);

#endif
