/* SPDX-License-Identifier: Apache-2.0 */
/* Making communicators.
 *
 * The first member leads. It picks the id and mails it to the others as a
 * ticket. The first member of each node makes the segment of the members there
 * and mails it to them in the same way: one ticket does both for the leader's
 * own node. Each replies; when all are ready the first says so. Thus either all
 * have it or none has, and all get the reason: in a ticket if a first one has
 * failed, in the verdict if another has. A ticket also tells the settings that
 * all members must share, and each compares its own. */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/time.h"
#include "comm/ids.h"
#include "comm/mail.h"

/* The leader's explanation needs a moment longer than the members wait. */
#define EXPLAIN_NS (WF_SEC / 2)

typedef struct ticket {
    int32_t status; /* of whoever sent it; with a reason if it failed, else
                     * with its wf_settings_shared */
    uint32_t id;
    uint64_t bytes; /* of the segment; 0: none */
    char text[WF_DETAIL_MAX];
} ticket;

typedef struct build {
    weft_comm *comm; /* NULL: there was no memory for it */
    wf_mail_group group;
    uint64_t salt;
} build;

static uint64_t build_key(const build *b, enum wf_mail_step step)
{
    return wf_mail_key(b->group.member, b->group.size, b->salt, step);
}

/* Of the tickets that the first members of nodes send, beside the leader's. */
static uint64_t node_key(const build *b)
{
    return wf_mail_key(b->group.member, b->group.size, ~b->salt,
                       WF_MAIL_TICKET);
}

/* Is this member on the node of this rank? */
static bool is_mate(const build *b, uint32_t member)
{
    const wf_host *host = b->group.world->host;

    return host->peer[b->group.member[member]].node ==
           host->peer[host->rank].node;
}

/* The first member on this rank's node. */
static uint32_t node_first(const build *b)
{
    uint32_t r = 0;

    while (!is_mate(b, r)) {
        r++;
    }
    return r;
}

/* Others may have it already, or be about to get it. */
static weft_status build_give_up(build *b, weft_status st)
{
    if (b->comm != NULL && b->comm->shared != NULL) {
        st = wf_comm_break(b->comm, st, weft_error_detail());
    }
    return st;
}

static size_t done_bytes(const weft_comm *comm)
{
    return wf_round_up(comm->mates * sizeof(wf_comm_done), WF_COMM_PAGE);
}

static size_t segment_bytes(const weft_comm *comm)
{
    return WF_COMM_PAGE + done_bytes(comm) + wf_layers_area(comm);
}

static void use_segment(weft_comm *comm)
{
    comm->shared = comm->one_node ? comm->segment.base : NULL;
    comm->done =
        (wf_comm_done *)(void *)((char *)comm->segment.base + WF_COMM_PAGE);
    comm->own_done = &comm->done[comm->local[comm->rank]];
}

static weft_status enter(weft_comm *comm)
{
    unsigned char *base = comm->segment.base;

    wf_comm_list(comm);
    return wf_layers_attach(
        comm, base == NULL ? NULL : base + WF_COMM_PAGE + done_bytes(comm));
}

static weft_status make_segment(weft_comm *comm)
{
    size_t bytes = segment_bytes(comm);
    wf_comm_shared *shared;
    weft_status st;

    if (comm->mates == 1) {
        return WEFT_OK;
    }
    st = wf_segment_create("a communicator", bytes,
                           (wf_huge)comm->world->settings.huge, &comm->segment);

    if (st == WEFT_OK) {
        st = wf_segment_populate(&comm->segment, 0,
                                 WF_COMM_PAGE + done_bytes(comm));
    }
    if (st != WEFT_OK) {
        return st;
    }
    use_segment(comm);
    shared = comm->segment.base;
    shared->magic = WF_COMM_MAGIC;
    shared->version = WF_COMM_VERSION;
    shared->members = comm->mates;
    shared->bytes = comm->segment.bytes;
    return WEFT_OK;
}

/* The rank that failed sends the reason; the others name that rank. */
static weft_status name_rank(const build *b, uint32_t member, weft_status st)
{
    const uint32_t rank = b->group.member[member];
    const wf_peer *p = &b->group.world->host->peer[rank];

    return wf_fail(st, "rank %u (pid %d on %s): %.800s", rank, p->pid, p->host,
                   weft_error_detail());
}

static weft_status lead_make(weft_comm *comm)
{
    weft_status st = wf_ids_pick(comm);

    if (st == WEFT_OK) {
        st = make_segment(comm);
    }
    return st == WEFT_OK ? enter(comm) : st;
}

/* To all other members, or to those of the own node. Its segment goes to them
 * alone. */
static weft_status send_tickets(build *b, uint64_t key, bool mates_only,
                                const wf_failure *own)
{
    uint32_t self = node_first(b);
    ticket t = {.status = (int32_t)own->status};
    weft_status st = WEFT_OK;
    int fd = -1;

    snprintf(t.text, sizeof(t.text), "%s", own->text);
    if (own->status == WEFT_OK) {
        wf_settings_shared(&b->group.world->settings, t.text,
                           WF_SETTINGS_SHARED_MAX);
        t.id = b->comm->id;
        t.bytes = b->comm->segment.bytes;
        fd = b->comm->segment.fd;
    }
    for (uint32_t r = self + 1; r < b->group.size && st == WEFT_OK; r++) {
        bool mate = is_mate(b, r);

        if (mate || !mates_only) {
            st = wf_mail_post(&b->group, r, key, &t,
                              offsetof(ticket, text) + strlen(t.text) + 1,
                              mate ? fd : -1);
        }
    }
    return st;
}

/* All of them, also after a failure, so that none is left lying for the next
 * creation by the same ranks. */
static weft_status collect_replies(build *b, wf_failure *first)
{
    weft_status st = WEFT_OK;

    for (uint32_t r = 1; r < b->group.size && st == WEFT_OK; r++) {
        weft_status one = WEFT_OK;

        st = wf_mail_take_status(&b->group, r, build_key(b, WF_MAIL_REPLY),
                                 &one);
        if (st == WEFT_OK && one != WEFT_OK) {
            wf_failure_note(first, name_rank(b, r, one));
        }
    }
    return st;
}

static weft_status send_verdicts(build *b, const wf_failure *verdict)
{
    weft_status st = WEFT_OK;

    for (uint32_t r = 1; r < b->group.size && st == WEFT_OK; r++) {
        st = wf_mail_post_status(&b->group, r, build_key(b, WF_MAIL_VERDICT),
                                 verdict->status, verdict->text);
    }
    return st;
}

static weft_status lead(build *b, weft_status own)
{
    wf_failure first = {.status = WEFT_OK};
    weft_status st;

    wf_failure_note(&first, own == WEFT_OK ? lead_make(b->comm) : own);
    st = send_tickets(b, build_key(b, WF_MAIL_TICKET), false, &first);
    if (st == WEFT_OK && first.status == WEFT_OK) {
        st = collect_replies(b, &first);
        if (st == WEFT_OK) {
            st = send_verdicts(b, &first);
        }
    }
    if (st != WEFT_OK) {
        return build_give_up(b, st);
    }
    return first.status == WEFT_OK ? WEFT_OK : wf_failure_again(&first);
}

/* Check what member `from` wrote. */
static weft_status check_ticket(const build *b, uint32_t from, const ticket *t,
                                size_t n)
{
    if (n <= offsetof(ticket, text) || ((const char *)t)[n - 1] != '\0' ||
        t->id % 2 != 0) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u sent a malformed ticket for a communicator "
                       "that it leads",
                       b->group.member[from]);
    }
    return WEFT_OK;
}

static weft_status attach_segment(weft_comm *comm, uint32_t from,
                                  const ticket *t, int fd)
{
    const wf_comm_shared *shared;
    weft_status st;

    if (fd < 0 || t->bytes < segment_bytes(comm)) {
        wf_close(fd);
        return wf_fail(WEFT_ERR_MISMATCH,
                       "rank %u and rank %u differ in the settings that size a "
                       "communicator",
                       comm->member[from], comm->member[comm->rank]);
    }
    st =
        wf_segment_attach("a communicator", fd, t->bytes, true, &comm->segment);
    if (st != WEFT_OK) {
        return st;
    }
    use_segment(comm);
    shared = comm->segment.base;
    if (shared->magic != WF_COMM_MAGIC || shared->version != WF_COMM_VERSION ||
        shared->members != comm->mates) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "the communicator's segment is malformed");
    }
    return WEFT_OK;
}

/* Make the segment of this node, and tell the others here; `own` is what this
 * member has failed with, if it has. */
static weft_status node_lead(build *b, weft_status own)
{
    wf_failure why =
        wf_failure_of(own == WEFT_OK ? make_segment(b->comm) : own);
    weft_status st = send_tickets(b, node_key(b), true, &why);

    if (st != WEFT_OK) {
        return build_give_up(b, st);
    }
    return why.status == WEFT_OK ? WEFT_OK : wf_failure_again(&why);
}

/* The sender could not make what it leads, and says why. */
static weft_status refused(const build *b, uint32_t from, const ticket *t)
{
    weft_status st = wf_status_parse(t->status);

    wf_fail(st, "%s", t->text);
    return name_rank(b, from, st);
}

/* Take a ticket; `*fd` is the caller's to close. WEFT_OK, or why there is none
 * or it cannot be used; false if it did not come at all. */
static bool take_ticket(build *b, uint32_t from, uint64_t key, ticket *t,
                        int *fd, weft_status *out)
{
    size_t n = sizeof(*t);

    *out = wf_mail_take(&b->group, from, key, t, &n, fd);
    if (!wf_await_spent(*out)) {
        return false;
    }
    if (*out == WEFT_OK) {
        *out = check_ticket(b, from, t, n);
    }
    return true;
}

/* Map the segment that the first member of this node has made. */
static weft_status node_follow(build *b, uint32_t first, weft_status own)
{
    wf_failure why = wf_failure_of(own);
    ticket t = {0};
    int fd = -1;
    weft_status st;

    if (!take_ticket(b, first, node_key(b), &t, &fd, &st)) {
        return st;
    }
    if (own != WEFT_OK || st != WEFT_OK || t.status != WEFT_OK) {
        wf_close(fd);
        return own != WEFT_OK  ? wf_failure_again(&why)
               : st != WEFT_OK ? st
                               : refused(b, first, &t);
    }
    return attach_segment(b->comm, first, &t, fd);
}

/* The memory of this node, if it is not that of the leader. */
static weft_status node_make(build *b, uint32_t first, weft_status own)
{
    if (b->group.member[first] == b->group.world->host->rank) {
        return node_lead(b, own);
    }
    return node_follow(b, first, own);
}

/* What this member does with a good ticket; `fd` is taken over. */
static weft_status follow_make(build *b, const ticket *t, int fd,
                               weft_status own)
{
    weft_comm *comm = b->comm;
    uint32_t first = node_first(b);

    if (first != 0) {
        wf_close(fd);
        own = node_make(b, first, own);
    } else if (own != WEFT_OK) {
        wf_close(fd);
    } else {
        own = attach_segment(comm, 0, t, fd);
    }
    if (own == WEFT_OK) {
        comm->id = t->id;
        wf_ids_open(comm);
        own = enter(comm);
    }
    return own;
}

/* Say whether this member has it, and hear whether all have. */
static weft_status reply(build *b, weft_status own)
{
    wf_failure why = wf_failure_of(own);
    weft_status verdict = WEFT_OK;
    weft_status st =
        wf_mail_post_status(&b->group, 0, build_key(b, WF_MAIL_REPLY), own,
                            own == WEFT_OK ? "" : why.text);

    if (st == WEFT_OK) {
        st = wf_mail_take_status(&b->group, 0, build_key(b, WF_MAIL_VERDICT),
                                 &verdict);
    }
    if (st != WEFT_OK) {
        return build_give_up(b, st);
    }
    return own != WEFT_OK ? wf_failure_again(&why) : verdict;
}

static weft_status follow(build *b, weft_status own)
{
    ticket t = {0};
    wf_failure why = wf_failure_of(own);
    int fd = -1;
    weft_status st;

    b->group.deadline_ns += EXPLAIN_NS;
    if (!take_ticket(b, 0, build_key(b, WF_MAIL_TICKET), &t, &fd, &st)) {
        return st;
    }
    if (st == WEFT_OK && t.status != WEFT_OK) {
        wf_close(fd);
        return refused(b, 0, &t);
    }
    if (own != WEFT_OK) {
        st = wf_failure_again(&why);
    } else if (st == WEFT_OK) {
        const wf_host *host = b->group.world->host;

        st = wf_settings_compare(&b->group.world->settings, host->rank, t.text,
                                 b->group.member[0]);
    }
    return reply(b, follow_make(b, &t, fd, st));
}

weft_status wf_comm_build(weft_world *world, weft_comm *parent,
                          const uint32_t *members, uint32_t size, uint64_t salt,
                          uint64_t timeout_ns, weft_comm **out)
{
    build b = {.group = {.world = world,
                         .comm = parent,
                         .member = members,
                         .size = size,
                         .deadline_ns = wf_now_ns() + timeout_ns},
               .salt = salt};
    weft_status st = wf_comm_alloc(world, members, size, &b.comm);

    if (st == WEFT_OK) {
        atomic_init(&b.comm->timeout_ns, timeout_ns);
    }
    st = members[0] == world->host->rank ? lead(&b, st) : follow(&b, st);
    if (st != WEFT_OK) {
        if (b.comm != NULL) {
            wf_ids_close(b.comm);
            wf_comm_unlist(b.comm);
            wf_layers_detach(b.comm);
            wf_comm_free(b.comm);
        }
        return st;
    }
    wf_segment_close_fd(&b.comm->segment);
    wf_world_acquire(world);
    *out = b.comm;
    return WEFT_OK;
}
