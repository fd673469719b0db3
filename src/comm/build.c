/* SPDX-License-Identifier: Apache-2.0 */
/* Making communicators.
 *
 * The first member leads. It picks the id and mails it as a ticket along the
 * tree of the group (node_tree.h). The head of each node makes the segment of
 * the members there, and sends it to them with their ticket. When all below a
 * member are ready it says so to the one above; when all are, the first one
 * tells that, the same way down. Thus either all have it or none has, and all
 * get the reason, with the name of the rank that failed.
 *
 * A ticket that tells of a failure is the end for those who get it: they pass
 * it on, and are asked no more. After any other failure a member goes on, so
 * that those above and below get the reason. Whoever is nearest to one that
 * does not answer gives up first: waits end later with every step from it. A
 * ticket also tells the settings that all members must share, and each compares
 * its own.
 *
 * The same members may try again after a failure, some of them earlier or more
 * often than others, and then mail of former attempts lies about. So replies
 * and verdicts name the id of the ticket that they are about, and others are
 * thrown away: a communicator is made by members who all are in the same
 * attempt, or not at all. Of several tickets the newest counts. A member that
 * hears that those above it gave up waits for their next attempt while it has
 * time: they may be there again, and what it heard is about a former one. Else
 * members who all try again at the same times could answer a former attempt
 * each time. */
#include "comm/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/time.h"
#include "comm/ids.h"
#include "comm/mail.h"

/* How long an explanation may take for one step along the tree. */
#define EXPLAIN_NS (WF_SEC / 2)

typedef struct ticket {
    int32_t status; /* with a reason if it failed, else with the leader's
                     * wf_settings_shared */
    uint32_t id;
    uint64_t bytes; /* of the segment of the receiver's node; 0: none */
    char text[WF_DETAIL_MAX];
} ticket;

typedef struct build {
    weft_comm *comm; /* NULL: there was no memory for it */
    wf_mail_group group;
    wf_node_tree tree;
    uint64_t salt;
    uint32_t id;          /* that the ticket gives */
    uint64_t deadline_ns; /* without time for explanations */
    wf_failure why;       /* the first failure of this member or one below */
    bool heads_wait;      /* those below have a good ticket */
    bool mates_wait;      /* likewise the mates of a head */
    bool unsent;          /* a ticket could not be sent: not all will reply */
    bool outlived;        /* those above gave up, and this member need not */
} build;

static uint64_t build_key(const build *b, enum wf_mail_step step)
{
    return wf_mail_key(b->group.member, b->group.size, b->salt, step);
}

/* Is this member on the node of this rank? */
static bool is_mate(const build *b, uint32_t member)
{
    return wf_host_same_node(b->group.world->host, b->group.member[member]);
}

static bool is_head(const build *b)
{
    return b->tree.head == b->tree.self;
}

static bool is_leader(const build *b)
{
    return b->tree.parent == b->tree.self;
}

/* Wait so many steps longer than the caller allows. */
static void wait_for(build *b, uint32_t steps)
{
    b->group.deadline_ns = b->deadline_ns + steps * EXPLAIN_NS;
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

static weft_status lead_make(weft_comm *comm)
{
    weft_status st = wf_ids_pick(comm);

    if (st == WEFT_OK) {
        st = make_segment(comm);
    }
    return st == WEFT_OK ? enter(comm) : st;
}

/* --- tickets -------------------------------------------------------------- */

/* What others are told of a failure of this rank. */
static void write_reason(const build *b, const wf_failure *why, char *text)
{
    const wf_host *host = b->group.world->host;
    const wf_peer *own = &host->peer[host->rank];

    snprintf(text, WF_DETAIL_MAX, "rank %u (pid %d on %s): %.800s", host->rank,
             own->pid, own->host, why->text);
}

static size_t ticket_bytes(const ticket *t)
{
    return offsetof(ticket, text) + strlen(t->text) + 1;
}

static void send_ticket(build *b, uint32_t to, const ticket *t, int fd)
{
    weft_status st = wf_mail_post(&b->group, to, build_key(b, WF_MAIL_TICKET),
                                  t, ticket_bytes(t), fd);

    wf_failure_note(&b->why, st);
    b->unsent |= st != WEFT_OK;
}

/* To the heads of other nodes below this one. */
static void tell_heads(build *b, const ticket *t)
{
    b->heads_wait = t->status == WEFT_OK;
    for (uint32_t i = 0; i < b->tree.count; i++) {
        send_ticket(b, b->tree.below[i], t, -1);
    }
}

/* To the other members of this node, with its segment. */
static void tell_mates(build *b, ticket *t)
{
    int fd = -1;

    b->mates_wait = t->status == WEFT_OK;
    if (b->mates_wait) {
        t->bytes = b->comm->segment.bytes;
        fd = b->comm->segment.fd;
    }
    for (uint32_t m = b->tree.self + 1; m < b->group.size; m++) {
        if (is_mate(b, m)) {
            send_ticket(b, m, t, fd);
        }
    }
}

/* It ends for all below, for the reason that is the error detail. Returns
 * `st`. */
static weft_status refuse_below(build *b, weft_status st)
{
    wf_failure why = wf_failure_of(st);
    ticket t = {.status = (int32_t)st};

    if (is_head(b)) {
        snprintf(t.text, sizeof(t.text), "%s", why.text);
        tell_heads(b, &t);
        tell_mates(b, &t);
    }
    return wf_failure_again(&why);
}

/* Check what member `from` wrote. */
static weft_status check_ticket(const build *b, uint32_t from, const ticket *t,
                                size_t n)
{
    if (n <= offsetof(ticket, text) || ((const char *)t)[n - 1] != '\0' ||
        t->id % 2 != 0) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "rank %u sent a malformed ticket for a communicator",
                       b->group.member[from]);
    }
    return WEFT_OK;
}

/* Take the oldest ticket. `*fd` is the caller's to close. WEFT_OK, or why there
 * is none or it cannot be used; false if it did not come at all. Whoever sent
 * one that cannot be used hears so if it has an id. */
static bool take_oldest(build *b, ticket *t, int *fd, weft_status *out)
{
    size_t n = sizeof(*t);
    weft_status form;

    *t = (ticket){0};
    *out = wf_mail_take(&b->group, b->tree.parent, build_key(b, WF_MAIL_TICKET),
                        t, &n, fd);
    if (!wf_await_spent(*out)) {
        return false;
    }
    b->id = t->id;
    if (*out != WEFT_ERR_PROTOCOL) { /* a descriptor alone may be lost */
        form = check_ticket(b, b->tree.parent, t, n);
        *out = form != WEFT_OK ? form : *out;
    }
    return true;
}

/* The one above makes another ticket only after it has given up waiting for the
 * reply to this one. It tells each caller once of all other failures. */
static bool is_given_up(const build *b, const ticket *t)
{
    return (t->status == (int32_t)WEFT_OK ||
            t->status == (int32_t)WEFT_ERR_TIMEOUT) &&
           wf_host_has_mail(b->group.world->host,
                            b->group.member[b->tree.parent],
                            build_key(b, WF_MAIL_TICKET));
}

/* Take the ticket that counts, like take_oldest. */
static bool take_ticket(build *b, ticket *t, int *fd, weft_status *out)
{
    bool came;

    wait_for(b, b->tree.steps);
    came = take_oldest(b, t, fd, out);
    while (came && *out == WEFT_OK && is_given_up(b, t)) {
        wf_close(*fd);
        *fd = -1;
        came = take_oldest(b, t, fd, out);
    }
    return came;
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

/* Make the segment of this node and tell the mates, or why there is none; `own`
 * is what this member has failed with, if it has. */
static weft_status share_segment(build *b, ticket *t, weft_status own)
{
    wf_failure why =
        wf_failure_of(own == WEFT_OK ? make_segment(b->comm) : own);

    if (why.status != WEFT_OK) {
        t->status = (int32_t)why.status;
        write_reason(b, &why, t->text);
    }
    tell_mates(b, t);
    return why.status == WEFT_OK ? WEFT_OK : wf_failure_again(&why);
}

/* What this member does with a good ticket; `fd` is taken over. */
static weft_status use_ticket(build *b, ticket *t, int fd, weft_status own)
{
    if (is_head(b)) {
        wf_close(fd);
        own = share_segment(b, t, own);
    } else if (own != WEFT_OK) {
        wf_close(fd);
    } else {
        own = attach_segment(b->comm, b->tree.head, t, fd);
    }
    if (own == WEFT_OK) {
        b->comm->id = t->id;
        wf_ids_open(b->comm);
        own = enter(b->comm);
    }
    return own;
}

static weft_status compare_settings(const build *b, const ticket *t)
{
    const weft_world *world = b->group.world;

    return wf_settings_compare(&world->settings, world->host->rank, t->text,
                               b->group.member[0]);
}

/* --- ready? --------------------------------------------------------------- */

static bool waits(const build *b, uint32_t member)
{
    return is_mate(b, member) ? b->mates_wait : b->heads_wait;
}

/* Hear from all below, also after a failure, so that no reply is left lying for
 * the next creation by the same ranks. */
static void collect_replies(build *b)
{
    uint32_t next = 0;
    uint32_t member;

    wait_for(b, wf_node_tree_levels(b->tree.nodes) - 1 - b->tree.steps);
    while (!b->unsent && wf_mail_below(&b->group, &b->tree, &next, &member)) {
        weft_status one = WEFT_OK;
        weft_status st = WEFT_OK;

        if (waits(b, member)) {
            st = wf_mail_take_status(&b->group, member,
                                     build_key(b, WF_MAIL_REPLY), b->id, &one);
        }
        wf_failure_note(&b->why, st == WEFT_OK ? one : st);
    }
}

static weft_status tell_verdict(build *b, const wf_failure *verdict)
{
    const char *text = verdict->status == WEFT_OK ? "" : verdict->text;
    wf_failure first = {.status = WEFT_OK};
    uint32_t next = 0;
    uint32_t member;

    while (wf_mail_below(&b->group, &b->tree, &next, &member)) {
        if (waits(b, member)) {
            wf_failure_note(&first,
                            wf_mail_post_status(&b->group, member,
                                                build_key(b, WF_MAIL_VERDICT),
                                                b->id, verdict->status, text));
        }
    }
    return first.status == WEFT_OK ? WEFT_OK : wf_failure_again(&first);
}

/* Say whether all below are ready, and hear whether all are. False: nothing was
 * heard, because of `*out`. */
static bool hear_verdict(build *b, weft_status *out)
{
    weft_status theirs = WEFT_OK;
    weft_status st = wf_mail_post_status(&b->group, b->tree.parent,
                                         build_key(b, WF_MAIL_REPLY), b->id,
                                         b->why.status, b->why.text);

    if (st == WEFT_OK) {
        wait_for(b, wf_node_tree_levels(b->tree.nodes) - 1 + b->tree.steps);
        st = wf_mail_take_status(&b->group, b->tree.parent,
                                 build_key(b, WF_MAIL_VERDICT), b->id, &theirs);
    }
    *out = st == WEFT_OK ? theirs : st;
    return st == WEFT_OK;
}

/* This member is ready, or has failed with `own`: are all ready? */
static weft_status conclude(build *b, weft_status own)
{
    wf_failure mine = wf_failure_of(own);
    wf_failure verdict;
    weft_status st;
    bool heard = true;

    if (own != WEFT_OK) {
        b->why.status = own;
        write_reason(b, &mine, b->why.text);
    }
    collect_replies(b);
    if (is_leader(b)) {
        verdict = b->why;
    } else {
        heard = hear_verdict(b, &st);
        verdict = wf_failure_of(st);
    }
    st = tell_verdict(b, &verdict);
    if (!heard) {
        return build_give_up(b, wf_failure_again(&verdict));
    }
    b->outlived =
        !is_leader(b) && own == WEFT_OK && verdict.status == WEFT_ERR_TIMEOUT;
    if (own != WEFT_OK || verdict.status != WEFT_OK) {
        return wf_failure_again(own != WEFT_OK ? &mine : &verdict);
    }
    return st == WEFT_OK ? WEFT_OK : build_give_up(b, st);
}

static weft_status lead(build *b, weft_status own)
{
    wf_failure why = wf_failure_of(own == WEFT_OK ? lead_make(b->comm) : own);
    ticket t = {0};

    if (why.status != WEFT_OK) {
        write_reason(b, &why, t.text);
        refuse_below(b, wf_fail(why.status, "%s", t.text));
        return wf_failure_again(&why);
    }
    t.id = b->comm->id;
    b->id = t.id;
    wf_settings_shared(&b->group.world->settings, t.text,
                       WF_SETTINGS_SHARED_MAX);
    tell_heads(b, &t);
    tell_mates(b, &t);
    return conclude(b, WEFT_OK);
}

static weft_status follow(build *b, weft_status own)
{
    wf_failure why = wf_failure_of(own);
    ticket t = {0};
    int fd = -1;
    weft_status st;

    if (!take_ticket(b, &t, &fd, &st)) {
        return refuse_below(b, st);
    }
    if (st != WEFT_OK) { /* it came, and cannot be used */
        wf_close(fd);
        return conclude(b, refuse_below(b, st));
    }
    if (t.status != WEFT_OK) {
        wf_close(fd);
        b->outlived = t.status == (int32_t)WEFT_ERR_TIMEOUT;
        return refuse_below(b,
                            wf_fail(wf_status_parse(t.status), "%s", t.text));
    }
    tell_heads(b, &t);
    st = own != WEFT_OK ? wf_failure_again(&why) : compare_settings(b, &t);
    return conclude(b, use_ticket(b, &t, fd, st));
}

/* Let go of what a failed attempt has made. */
static void undo(build *b)
{
    if (b->comm != NULL) {
        wf_ids_close(b->comm);
        wf_comm_unlist(b->comm);
        wf_layers_detach(b->comm);
        wf_comm_free(b->comm);
    }
}

/* Take part in one attempt to make the communicator. */
static weft_status try_once(build *b, uint64_t timeout_ns)
{
    weft_status st =
        wf_comm_alloc(b->group.world, b->group.member, b->group.size, &b->comm);

    b->id = 0;
    b->why.status = WEFT_OK;
    b->heads_wait = false;
    b->mates_wait = false;
    b->unsent = false;
    b->outlived = false;
    if (st == WEFT_OK) {
        atomic_init(&b->comm->timeout_ns, timeout_ns);
    }
    st = is_leader(b) ? lead(b, st) : follow(b, st);
    if (st != WEFT_OK) {
        undo(b);
        b->comm = NULL;
    }
    return st;
}

/* May there be another attempt for this member? The ranks of a job meet once;
 * and where there is a communicator to look at, a failure breaks that. */
static bool goes_on(const build *b)
{
    return b->outlived && b->group.comm == NULL &&
           b->group.world->comm != NULL && wf_now_ns() < b->deadline_ns;
}

/* Those above gave up, as `former` tells, and made no other attempt. */
static weft_status fail_alone(const build *b, const wf_failure *former)
{
    const wf_host *host = b->group.world->host;
    uint32_t rank = b->group.member[b->tree.parent];
    const wf_peer *peer = &host->peer[rank];

    return wf_fail(WEFT_ERR_TIMEOUT,
                   "rank %u (pid %d on %s) gave up before rank %u, and did not "
                   "try again in time: %.700s",
                   rank, peer->pid, peer->host, host->rank, former->text);
}

weft_status wf_comm_build(weft_world *world, weft_comm *parent,
                          const uint32_t *members, uint32_t size, uint64_t salt,
                          uint64_t timeout_ns, weft_comm **out)
{
    build b = {.group = {.world = world,
                         .comm = parent,
                         .member = members,
                         .size = size},
               .salt = salt,
               .deadline_ns = wf_now_ns() + timeout_ns};
    wf_failure former = {.status = WEFT_OK};
    weft_status st;

    wf_node_tree_find(world, members, size, &b.tree);
    st = try_once(&b, timeout_ns);
    while (st != WEFT_OK && goes_on(&b)) {
        former = wf_failure_of(st);
        st = try_once(&b, timeout_ns);
    }
    if (st == WEFT_ERR_TIMEOUT && former.status != WEFT_OK && !b.outlived) {
        st = fail_alone(&b, &former);
    }
    if (st != WEFT_OK) {
        return st;
    }
    wf_segment_close_fd(&b.comm->segment);
    wf_world_acquire(world);
    *out = b.comm;
    return WEFT_OK;
}
