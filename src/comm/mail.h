/* SPDX-License-Identifier: Apache-2.0 */
/* What communicators tell each other by mail: their creation, and, where no
 * memory is shared, that they broke.
 *
 * Whoever waits for mail may wait for somebody who waits for a third. So a wait
 * ends when any rank of the group dies, and whoever cannot go on (a member has
 * died or does not answer, mail cannot be sent, the caller is interrupted)
 * breaks the group's communicator, at which all others look as well: nobody
 * waits for what will not come. What only concerns this rank, such as a
 * descriptor that it could not receive, is for it to tell the others. */
#ifndef WF_COMM_MAIL_H
#define WF_COMM_MAIL_H

#include "comm/comm.h"
#include "mem/await.h"

/* Mail to any rank, as wf_host_post. Between nodes no descriptor travels. */
weft_status wf_mail_send(weft_world *world, uint32_t to, uint64_t key,
                         const void *data, size_t n, int fd);

/* Tell others that `comm` is broken, once its reason is set: its members on
 * this node, and some on others, who pass it on (node_tree.h). */
void wf_mail_break(weft_comm *comm);

/* Ask a member of another node whether it still has this communicator. If it
 * has not, comm->closed_by says so some time later, after an alarm; if it is
 * broken there, it is broken here, too. */
void wf_mail_ask(weft_comm *comm, uint32_t member);

/* This rank closes a communicator: remember why it was broken, if it was, for
 * those who ask. Their own news of that may come later than the closing. */
void wf_mail_closed(weft_comm *comm);

/* Beside WF_MAIL_CALL: that question, and the answer "no", or the reason for
 * which it is, or was, broken. */
#define WF_MAIL_ASK (1ull << 61)
#define WF_MAIL_CLOSED (1ull << 60)
/* Likewise: a mate who has closed it was told that it is broken. */
#define WF_MAIL_RELAYED (1ull << 59)

/* Handle such notifications. */
void wf_mail_listen(weft_world *world);

/* Another member broke it. True if that is new. */
bool wf_comm_broken_by(weft_comm *comm, weft_status status, const char *text);

/* A key for mail between the members of a communicator to be made. */
enum wf_mail_step {
    WF_MAIL_TICKET = 0,  /* down the tree: id, and the segment of a node */
    WF_MAIL_REPLY = 1,   /* up: all below are ready, or why not */
    WF_MAIL_VERDICT = 2, /* down: all are ready, or why not */
    WF_MAIL_COLOURS = 3  /* split: colours and keys, up and then down */
};
uint64_t wf_mail_key(const uint32_t *members, uint32_t size, uint64_t salt,
                     enum wf_mail_step step);

/* The ranks of a collective call that uses mail. */
typedef struct wf_mail_group {
    weft_world *world;
    weft_comm *comm;        /* broken if it cannot be finished; or NULL */
    const uint32_t *member; /* ranks in the job */
    uint32_t size;
    uint64_t deadline_ns;
} wf_mail_group;

/* All members of a communicator, with the time that it gives. */
wf_mail_group wf_mail_group_of(weft_comm *comm);

/* Mail to and from members of the group, by their number in it. A take fails
 * as wf_await_mail does. If it fails with mail that was received all the same
 * (wf_await_spent), nothing is broken. */
weft_status wf_mail_post(const wf_mail_group *g, uint32_t to, uint64_t key,
                         const void *data, size_t n, int fd);
weft_status wf_mail_take(const wf_mail_group *g, uint32_t from, uint64_t key,
                         void *data, size_t *n, int *fd);

/* The next member that stands directly below this rank in the group's tree,
 * from `*next` on, which is 0 at first: heads of other nodes, then mates.
 * False: there is none left. */
bool wf_mail_below(const wf_mail_group *g, const wf_node_tree *tree,
                   uint32_t *next, uint32_t *member);
/* Mail to all members directly below this rank. After a failure the others are
 * told all the same; returns the first. */
weft_status wf_mail_tell(const wf_mail_group *g, const wf_node_tree *tree,
                         uint64_t key, const void *data, size_t n);

/* This rank cannot go on, because of `st` and its detail. Returns the first
 * reason that the group's communicator was broken with. */
weft_status wf_mail_give_up(const wf_mail_group *g, weft_status st);

/* A status and its detail, as mail about the communicator that is to have `id`;
 * what was sent about others, in calls that were given up, is thrown away.
 * `*theirs` is the other's status, with the detail of that; WEFT_ERR_PROTOCOL
 * if it cannot be understood. */
weft_status wf_mail_post_status(const wf_mail_group *g, uint32_t to,
                                uint64_t key, uint32_t id, weft_status status,
                                const char *text);
weft_status wf_mail_take_status(const wf_mail_group *g, uint32_t from,
                                uint64_t key, uint32_t id, weft_status *theirs);

#endif
