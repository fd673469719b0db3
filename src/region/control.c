/* SPDX-License-Identifier: Apache-2.0 */
/* The control segment: barriers, and agreement through it or through a
 * communicator. */
#include <stdio.h>
#include <string.h>

#include "base/secret.h"
#include "base/time.h"
#include "comm/mail.h"
#include "mem/link.h"
#include "region/region.h"
#include <weft/coll.h>

/* --- barriers ------------------------------------------------------------- */

static void ring_all(weft_region *region)
{
    for (uint32_t r = 0; r < region->ranks; r++) {
        if (r != region->rank &&
            region->node[r] == region->node[region->rank]) {
            wf_board_ring(region->entry[r]);
        }
    }
}

static bool misses(const wf_region_wait *w, uint32_t rank)
{
    return atomic_load_explicit(&w->region->control->rank[rank].arrived,
                                memory_order_acquire) < w->value;
}

static bool misses_inside(const wf_region_wait *w, uint32_t rank)
{
    return atomic_load_explicit(&w->region->control->rank[rank].arrived_inside,
                                memory_order_acquire) < w->value;
}

static bool all_have_come(const wf_region_wait *w)
{
    uint32_t r = 0;

    while (r < w->region->ranks && !w->needs(w, r)) {
        r++;
    }
    return r == w->region->ranks;
}

static weft_status barrier_here(weft_region *region, uint64_t deadline)
{
    wf_region_wait w = {.region = region,
                        .done = all_have_come,
                        .needs = misses,
                        .what = "a barrier of a region",
                        .value = region->barriers + 1};
    weft_status st;

    /* Publishes what this rank wrote before; pairs with the load in misses.
     * One that timed out is taken up again by the next call. */
    atomic_store_explicit(&region->control->rank[region->rank].arrived, w.value,
                          memory_order_release);
    ring_all(region);
    st = wf_region_await(&w, deadline);
    if (st == WEFT_OK) {
        region->barriers = w.value;
    }
    return st;
}

static weft_status barrier_between(weft_region *region, uint64_t deadline)
{
    region->comm->timeout_ns = wf_ns_until(deadline);
    return weft_barrier(region->comm);
}

weft_status weft_region_barrier(weft_region *region, double timeout)
{
    uint64_t deadline;
    weft_status st;

    if (region == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "region is NULL");
    }
    st = wf_region_here(region);
    if (st != WEFT_OK) {
        return st;
    }
    deadline = wf_region_deadline(timeout, region->timeout_ns);
    pthread_mutex_lock(&region->barrier_lock);
    st = region->comm == NULL ? barrier_here(region, deadline)
                              : barrier_between(region, deadline);
    pthread_mutex_unlock(&region->barrier_lock);
    return st;
}

/* --- agreement ------------------------------------------------------------ */

static weft_status tell_by_comm(weft_comm *comm, const void *in, size_t n,
                                void *out, uint64_t deadline)
{
    uint64_t usual = comm->timeout_ns;
    weft_status st;

    comm->timeout_ns = wf_ns_until(deadline);
    st = weft_allgather(comm, in, out, n, WEFT_U8);
    comm->timeout_ns = usual;
    return st;
}

static weft_status check_control(void *ctx)
{
    const weft_region *region = ctx;

    return atomic_load(&region->control->stuck) == 0
               ? WEFT_OK
               : wf_fail(WEFT_ERR_ABORTED,
                         "an earlier resize or sync of this region "
                         "was not finished by all ranks");
}

/* One that cannot go on says so, since others may wait for it; most often it
 * cannot because of one who is gone. */
static weft_status check_stuck(wf_region_wait *w)
{
    weft_status st = WEFT_OK;

    if (check_control(w->region) != WEFT_OK) {
        st = wf_region_check_peers(w);
    }
    return st == WEFT_OK ? check_control(w->region) : st;
}

/* Show `in` to all ranks, and return when all have shown theirs. */
static weft_status tell_here(weft_region *region, const void *in, size_t n,
                             uint64_t deadline)
{
    wf_region_control *c = region->control;
    wf_region_rank *own = &c->rank[region->rank];
    wf_region_wait w = {.region = region,
                        .done = all_have_come,
                        .needs = misses_inside,
                        .what = "a resize or sync of a region",
                        .value = region->barriers_inside + 1,
                        .check = check_stuck};
    weft_status st = check_stuck(&w);

    if (st != WEFT_OK) {
        return st;
    }
    /* Whoever reads this half does so before it comes to the next comparison,
     * which all have come to when the one after that begins. */
    memcpy(own->slot[w.value % 2], in, n);
    atomic_store_explicit(&own->arrived_inside, w.value, memory_order_release);
    ring_all(region);
    st = wf_region_await(&w, deadline);
    region->barriers_inside = w.value;
    if (st != WEFT_OK) {
        atomic_store(&c->stuck, 1);
    }
    return st;
}

/* What a rank has shown in the comparison that has just ended. */
static const unsigned char *told_by(const weft_region *region, uint32_t rank)
{
    return region->control->rank[rank].slot[region->barriers_inside % 2];
}

weft_status wf_region_tell(weft_region *region, weft_comm *comm, const void *in,
                           size_t n, void *out, uint64_t deadline)
{
    weft_status st;

    if (comm != NULL) {
        return tell_by_comm(comm, in, n, out, deadline);
    }
    st = tell_here(region, in, n, deadline);
    for (uint32_t r = 0; r < region->ranks && st == WEFT_OK; r++) {
        memcpy((char *)out + r * n, told_by(region, r), n);
    }
    return st;
}

typedef struct note {
    int32_t status;
    char text[WF_REGION_SLOT - sizeof(int32_t)];
} note;
_Static_assert(sizeof(note) == WF_REGION_SLOT, "fits into a slot");

static weft_status note_fail(const note *n, uint32_t rank)
{
    weft_status st = wf_status_parse(n->status);

    return wf_fail(st != WEFT_OK ? st : WEFT_ERR_PROTOCOL, "rank %u: %.*s",
                   rank, (int)sizeof(n->text) - 1, n->text);
}

/* The first rank that has a failure tells the others of it. */
static weft_status verdict_by_comm(weft_comm *comm, note *mine,
                                   uint64_t deadline)
{
    int64_t first = mine->status != WEFT_OK ? comm->rank : INT64_MAX;
    uint64_t usual = comm->timeout_ns;
    weft_status st;

    comm->timeout_ns = wf_ns_until(deadline);
    st = weft_allreduce(comm, &first, &first, 1, WEFT_I64, WEFT_MIN);
    if (st == WEFT_OK && first < comm->size) {
        st =
            weft_broadcast(comm, mine, sizeof(*mine), WEFT_U8, (uint32_t)first);
        st = st == WEFT_OK ? note_fail(mine, (uint32_t)first) : st;
    }
    comm->timeout_ns = usual;
    return st;
}

static weft_status verdict_here(weft_region *region, const note *mine,
                                uint64_t deadline)
{
    weft_status st = tell_here(region, mine, sizeof(*mine), deadline);
    note n;

    for (uint32_t r = 0; r < region->ranks && st == WEFT_OK; r++) {
        memcpy(&n, told_by(region, r), sizeof(n));
        if (n.status != WEFT_OK) {
            st = note_fail(&n, r);
        }
    }
    return st;
}

weft_status wf_region_verdict(weft_region *region, weft_comm *comm,
                              weft_status own, uint64_t deadline)
{
    note mine = {.status = (int32_t)own};

    if (own != WEFT_OK) {
        snprintf(mine.text, sizeof(mine.text), "%.*s",
                 (int)sizeof(mine.text) - 1, weft_error_detail());
    }
    return comm != NULL ? verdict_by_comm(comm, &mine, deadline)
                        : verdict_here(region, &mine, deadline);
}

uint64_t wf_region_mail_key(weft_region *region)
{
    wf_secret key = {{region->id, region->mails++}};

    return wf_keyed_hash(&key, "region", 6) & ~WF_MAIL_CALL;
}

/* --- mail ----------------------------------------------------------------- */

static wf_mail_group group_of(weft_region *region, weft_comm *comm,
                              uint64_t deadline)
{
    return (wf_mail_group){.world = region->world,
                           .comm = comm,
                           .member = region->member,
                           .size = region->ranks,
                           .deadline_ns = deadline};
}

/* Without a communicator, the control segment tells the others. */
static weft_status give_up(weft_region *region, const weft_comm *comm,
                           weft_status st)
{
    if (comm == NULL) {
        atomic_store(&region->control->stuck, 1);
        ring_all(region);
    }
    return st;
}

weft_status wf_region_post(weft_region *region, weft_comm *comm, uint32_t to,
                           uint64_t key, const void *data, size_t n, int fd)
{
    wf_mail_group group = group_of(region, comm, 0);
    weft_status st = wf_mail_post(&group, to, key, data, n, fd);

    return st == WEFT_OK ? st : give_up(region, comm, st);
}

weft_status wf_region_take(weft_region *region, weft_comm *comm, uint32_t from,
                           uint64_t key, void *data, size_t *n, int *fd,
                           uint64_t deadline)
{
    wf_mail_group group = group_of(region, comm, deadline);
    wf_await await = {.host = region->world->host,
                      .needs = region->member,
                      .count = region->ranks,
                      .deadline_ns = deadline,
                      .check = check_control,
                      .ctx = region};
    weft_status st;

    if (comm != NULL) {
        return wf_mail_take(&group, from, key, data, n, fd);
    }
    st = wf_await_mail(&await, region->member[from], key, data, n, fd);
    return wf_await_spent(st) ? st : give_up(region, comm, st);
}

/* --- the segment ---------------------------------------------------------- */

static uint32_t first_of_node(const weft_region *region)
{
    uint32_t r = 0;

    while (region->node[r] != region->node[region->rank]) {
        r++;
    }
    return r;
}

static size_t control_bytes(const weft_region *region)
{
    return sizeof(wf_region_control) + region->ranks * sizeof(wf_region_rank);
}

static weft_status control_make(weft_region *region)
{
    size_t bytes = control_bytes(region);
    weft_status st = wf_segment_create("the control of a region", bytes,
                                       WF_HUGE_OFF, &region->control_segment);

    if (st == WEFT_OK) {
        st = wf_segment_populate(&region->control_segment, 0, bytes);
    }
    if (st == WEFT_OK) {
        region->control = region->control_segment.base;
        region->control->magic = WF_REGION_MAGIC;
        region->control->version = WF_REGION_VERSION;
        region->control->ranks = region->ranks;
        region->control->id = region->id;
    }
    return st;
}

/* Whoever cannot make it sends a letter that names none: nobody shall wait. */
static weft_status control_lead(weft_region *region, weft_comm *comm,
                                uint64_t key)
{
    weft_status made = control_make(region);
    weft_status sent = WEFT_OK;
    uint64_t id = made == WEFT_OK ? region->id : 0;

    for (uint32_t r = 0; r < region->ranks && sent == WEFT_OK; r++) {
        if (r != region->rank &&
            region->node[r] == region->node[region->rank]) {
            sent = wf_region_post(region, comm, r, key, &id, sizeof(id),
                                  made == WEFT_OK ? region->control_segment.fd
                                                  : -1);
        }
    }
    return made != WEFT_OK ? made : sent;
}

static weft_status control_follow(weft_region *region, weft_comm *comm,
                                  uint32_t leader, uint64_t key,
                                  uint64_t deadline)
{
    const wf_region_control *c;
    uint64_t id = 0;
    size_t n = sizeof(id);
    int fd = -1;
    weft_status st =
        wf_region_take(region, comm, leader, key, &id, &n, &fd, deadline);

    if (st != WEFT_OK) {
        return st;
    }
    if (fd < 0) {
        return id != 0 ? wf_link_fail_lost(leader)
                       : wf_fail(WEFT_ERR_NOMEM,
                                 "rank %u could not create the control segment",
                                 leader);
    }
    st = wf_segment_attach("the control of a region", fd, control_bytes(region),
                           true, &region->control_segment);
    if (st != WEFT_OK) {
        return st;
    }
    c = region->control_segment.base;
    if (c->magic != WF_REGION_MAGIC || c->version != WF_REGION_VERSION ||
        c->ranks != region->ranks || c->id != region->id) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "the control segment belongs to another region");
    }
    region->control = region->control_segment.base;
    return WEFT_OK;
}

weft_status wf_control_open(weft_region *region, weft_comm *comm,
                            uint64_t deadline)
{
    uint64_t key = wf_region_mail_key(region);
    uint32_t leader = first_of_node(region);
    weft_status st = leader == region->rank
                         ? control_lead(region, comm, key)
                         : control_follow(region, comm, leader, key, deadline);

    wf_segment_close_fd(&region->control_segment);
    return st;
}

void wf_control_close(weft_region *region)
{
    /* A forked child has it, too, and does not speak for the rank. */
    if (region->control != NULL && !atomic_load(&region->world->host->orphan)) {
        atomic_store(&region->control->rank[region->rank].gone, 1);
        wf_host_alarm(region->world->host);
    }
    wf_segment_close(&region->control_segment);
    region->control = NULL;
}
