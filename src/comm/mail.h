/* SPDX-License-Identifier: Apache-2.0 */
/* What communicators tell each other by mail: their creation, and, where no
 * memory is shared, that they broke. */
#ifndef WF_COMM_MAIL_H
#define WF_COMM_MAIL_H

#include "comm/comm.h"

/* Tell the other members that `comm` is broken; under comm->lock. */
void wf_mail_break(weft_comm *comm);

/* Listen for that. */
void wf_mail_listen(weft_world *world);

/* Another member broke it. */
void wf_comm_broken_by(weft_comm *comm, weft_status status, const char *text);

/* A key for mail between the members of a communicator to be made. */
enum wf_mail_step {
    WF_MAIL_TICKET = 0,  /* the first member: id, and the segment */
    WF_MAIL_REPLY = 1,   /* a member: ready, or why not */
    WF_MAIL_VERDICT = 2, /* the first member: all are ready, or why not */
    WF_MAIL_COLOURS = 3  /* split: everybody's colour and key */
};
uint64_t wf_mail_key(const uint32_t *members, uint32_t size, uint64_t salt,
                     enum wf_mail_step step);

/* A status and its detail, as mail. */
weft_status wf_mail_status(weft_world *world, uint32_t to, uint64_t key,
                           weft_status status, const char *text);
weft_status wf_mail_take_status(weft_world *world, uint32_t from, uint64_t key,
                                uint64_t deadline_ns);

#endif
