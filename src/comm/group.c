/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators from communicators: split, dup, subset. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/time.h"
#include "comm/comm.h"
#include "comm/hooks.h"
#include "comm/mail.h"

/* One rank's wish in a split. */
typedef struct wish {
    int64_t colour;
    int64_t key;
    uint32_t rank;
    uint32_t zero;
} wish;

/* Wishes travel in as many letters as they need. */
#define WISHES_A_LETTER (WF_MAIL_MAX / sizeof(wish))

/* All members have come to make a communicator. The number of this call keeps
 * its mail apart from that of the next. */
static weft_status begin_create(weft_comm *comm, uint32_t *sequence)
{
    wf_call call = {.kind = WF_CALL_CREATE};

    return wf_coll_hooks.agree(comm, &call, sequence);
}

static uint64_t salt_of(const weft_comm *comm, uint32_t sequence)
{
    return (uint64_t)comm->id << 32 | sequence;
}

/* Everybody sends its wish to the first rank, which sends all of them back. */
static weft_status gather_wishes(weft_comm *comm, uint64_t key,
                                 uint64_t deadline, wish *all)
{
    weft_status st = WEFT_OK;

    for (uint32_t r = 1; r < comm->size && st == WEFT_OK; r++) {
        size_t n = sizeof(all[r]);

        st = wf_host_take(comm->world->host, comm->member[r], key, &all[r], &n,
                          NULL, deadline);
        if (st == WEFT_OK && (n != sizeof(all[r]) || all[r].rank != r)) {
            st = wf_fail(WEFT_ERR_PROTOCOL, "rank %u: malformed mail", r);
        }
    }
    for (uint32_t r = 1; r < comm->size && st == WEFT_OK; r++) {
        for (uint32_t i = 0; i < comm->size && st == WEFT_OK;
             i += WISHES_A_LETTER) {
            size_t count = comm->size - i < WISHES_A_LETTER ? comm->size - i
                                                            : WISHES_A_LETTER;

            st = wf_host_post(comm->world->host, comm->member[r], key, &all[i],
                              count * sizeof(wish), -1);
        }
    }
    return st;
}

static weft_status send_wish(weft_comm *comm, uint64_t key, uint64_t deadline,
                             wish *all)
{
    weft_status st = wf_host_post(comm->world->host, comm->member[0], key,
                                  &all[comm->rank], sizeof(wish), -1);

    for (uint32_t i = 0; i < comm->size && st == WEFT_OK;
         i += WISHES_A_LETTER) {
        size_t count =
            comm->size - i < WISHES_A_LETTER ? comm->size - i : WISHES_A_LETTER;
        size_t n = count * sizeof(wish);

        st = wf_host_take(comm->world->host, comm->member[0], key, &all[i], &n,
                          NULL, deadline);
        if (st == WEFT_OK && n != count * sizeof(wish)) {
            st = wf_fail(WEFT_ERR_PROTOCOL, "rank 0: malformed mail");
        }
    }
    return st;
}

/* Is it everybody's wish, in the order of ranks, with ours as we sent it? */
static weft_status check_wishes(const weft_comm *comm, const wish *all,
                                const wish *own)
{
    bool good = memcmp(&all[comm->rank], own, sizeof(*own)) == 0;

    for (uint32_t r = 0; r < comm->size; r++) {
        good = good && all[r].rank == r;
    }
    return good ? WEFT_OK
                : wf_fail(WEFT_ERR_PROTOCOL, "rank 0: malformed mail");
}

static int by_key_then_rank(const void *a, const void *b)
{
    const wish *x = a;
    const wish *y = b;

    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return x->rank < y->rank ? -1 : 1;
}

/* Keep the ranks of one colour, in their order, as ranks in the job. */
static uint32_t pick(const weft_comm *comm, wish *all, int64_t colour,
                     uint32_t *members)
{
    uint32_t n = 0;

    qsort(all, comm->size, sizeof(*all), by_key_then_rank);
    for (uint32_t i = 0; i < comm->size; i++) {
        if (all[i].colour == colour) {
            members[n++] = comm->member[all[i].rank];
        }
    }
    return n;
}

static weft_status split(weft_comm *comm, wish *all, uint32_t *members,
                         weft_comm **out)
{
    wish own = all[comm->rank];
    uint64_t deadline = wf_now_ns() + comm->timeout_ns;
    uint64_t salt;
    uint64_t key;
    uint32_t sequence;
    uint32_t n;
    weft_status st = begin_create(comm, &sequence);

    if (st != WEFT_OK) {
        return st;
    }
    salt = salt_of(comm, sequence);
    key = wf_mail_key(comm->member, comm->size, salt, WF_MAIL_COLOURS);
    st = comm->rank == 0 ? gather_wishes(comm, key, deadline, all)
                         : send_wish(comm, key, deadline, all);
    if (st == WEFT_OK) {
        st = check_wishes(comm, all, &own);
    }
    if (st != WEFT_OK) {
        return wf_comm_break(comm, st, weft_error_detail());
    }
    *out = NULL;
    n = pick(comm, all, own.colour, members);
    if (own.colour >= 0) {
        st =
            wf_comm_build(comm->world, members, n, salt, comm->timeout_ns, out);
    }
    return st;
}

weft_status weft_comm_split(weft_comm *comm, int64_t colour, int64_t key,
                            weft_comm **out)
{
    weft_status st;
    wish *all;
    uint32_t *members;

    if (comm == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm or out is NULL");
    }
    all = wf_zalloc(comm->size * sizeof(*all));
    members = wf_alloc(comm->size * sizeof(*members));
    if (all == NULL || members == NULL) {
        st = wf_fail(WEFT_ERR_NOMEM, "splitting %u ranks", comm->size);
    } else {
        all[comm->rank] =
            (wish){.colour = colour, .key = key, .rank = comm->rank};
        st = split(comm, all, members, out);
    }
    wf_free(all);
    wf_free(members);
    return st;
}

weft_status weft_comm_dup(weft_comm *comm, weft_comm **out)
{
    uint32_t sequence;
    weft_status st;

    if (comm == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm or out is NULL");
    }
    st = begin_create(comm, &sequence);
    if (st != WEFT_OK) {
        return st;
    }
    return wf_comm_build(comm->world, comm->member, comm->size,
                         salt_of(comm, sequence), comm->timeout_ns, out);
}

static weft_status check_subset(const weft_comm *comm, const uint32_t *ranks,
                                size_t n)
{
    bool here = false;

    if (ranks == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "ranks is NULL");
    }
    if (n == 0 || n > comm->size) {
        return wf_fail(WEFT_ERR_INVALID, "%zu ranks out of %u", n, comm->size);
    }
    for (size_t i = 0; i < n; i++) {
        if (ranks[i] >= comm->size) {
            return wf_fail(WEFT_ERR_INVALID, "there is no rank %u among %u",
                           ranks[i], comm->size);
        }
        for (size_t j = 0; j < i; j++) {
            if (ranks[j] == ranks[i]) {
                return wf_fail(WEFT_ERR_INVALID, "rank %u is named twice",
                               ranks[i]);
            }
        }
        here = here || ranks[i] == comm->rank;
    }
    return here
               ? WEFT_OK
               : wf_fail(WEFT_ERR_INVALID,
                         "rank %u is not among the ranks it named", comm->rank);
}

weft_status weft_comm_subset(weft_comm *comm, const uint32_t *ranks, size_t n,
                             weft_comm **out)
{
    uint32_t *members;
    weft_status st;

    if (comm == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm or out is NULL");
    }
    st = wf_comm_check(comm);
    if (st == WEFT_OK) {
        st = check_subset(comm, ranks, n);
    }
    if (st != WEFT_OK) {
        return st;
    }
    members = wf_alloc(n * sizeof(*members));
    if (members == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "a communicator of %zu ranks", n);
    }
    for (size_t i = 0; i < n; i++) {
        members[i] = comm->member[ranks[i]];
    }
    /* Only members call this, so the sequence cannot tell creations apart;
     * mail between two ranks keeps its order, and that is enough. */
    st = wf_comm_build(comm->world, members, (uint32_t)n,
                       salt_of(comm, UINT32_MAX), comm->timeout_ns, out);
    wf_free(members);
    return st;
}
