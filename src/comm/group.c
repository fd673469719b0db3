/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators from communicators: split, dup, subset, shrink and groups. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/secret.h"
#include "base/time.h"
#include "comm/comm.h"
#include "comm/mail.h"

/* One rank's wish in a split. */
typedef struct wish {
    int64_t colour;
    int64_t key;
    uint32_t rank;
    int32_t status; /* why this rank cannot go on, and so none can */
} wish;

/* Wishes travel in as many letters as they need; one that is not full is the
 * last. */
#define WISHES_A_LETTER (WF_MAIL_MAX / sizeof(wish))

typedef struct letter {
    wish wish[WISHES_A_LETTER];
} letter;

/* Up to so many, a subset needs no memory for a list of them. */
#define FEW_MEMBERS 64

/* In place of the number of a call: subsets of a communicator, and of what is
 * left of it, which must not take mail of those that the death has ended. */
#define WHOLE UINT32_MAX
#define BROKEN (UINT32_MAX - 1)
/* Likewise groups that have a tag. */
#define TAGGED (UINT32_MAX - 2)

/* A split under way. */
typedef struct splitting {
    wf_mail_group group;
    const wf_node_tree *tree;
    uint64_t key;
    wish own;
    wish failed;       /* the first that cannot go on, if its status says so */
    wish *all;         /* NULL: there was no memory for it */
    uint32_t count;    /* of those there */
    uint32_t *members; /* of the caller's colour; NULL likewise */
} splitting;

static uint64_t salt_of(const weft_comm *comm, uint32_t sequence)
{
    return (uint64_t)comm->id << 32 | sequence;
}

/* All members have come to make a communicator. The number of this call keeps
 * its mail apart from that of the next. */
static weft_status begin_create(weft_comm *comm, uint64_t *salt)
{
    wf_call call = {.kind = WF_CALL_CREATE};
    uint32_t sequence = 0;
    weft_status st = comm->world->parts->agree(comm, &call, &sequence);

    *salt = salt_of(comm, sequence);
    return st;
}

static weft_status malformed(const splitting *s, uint32_t from)
{
    wf_fail(WEFT_ERR_PROTOCOL, "rank %u: malformed mail", from);
    return wf_mail_give_up(&s->group, WEFT_ERR_PROTOCOL);
}

static weft_status fail_wish(const wish *failed)
{
    weft_status st = wf_status_parse(failed->status);

    return wf_fail(st, "rank %u could not split the communicator: %s",
                   failed->rank, weft_status_text(st));
}

/* Keep what came in a letter of `n` bytes. */
static weft_status keep_wishes(splitting *s, uint32_t from, const letter *l,
                               size_t n)
{
    size_t count = n / sizeof(wish);

    if (n % sizeof(wish) != 0 || count > s->group.size - s->count) {
        return malformed(s, from);
    }
    for (size_t i = 0; i < count; i++) {
        const wish *one = &l->wish[i];

        if (one->rank >= s->group.size || one->status > 0) {
            return malformed(s, from);
        }
        if (one->status < 0 && s->failed.status == WEFT_OK) {
            s->failed = *one;
        }
        if (s->all != NULL) {
            s->all[s->count++] = *one;
        }
    }
    return WEFT_OK;
}

/* Take all letters of one member; `pass`: each goes on to those below. */
static weft_status take_letters(splitting *s, uint32_t from, bool pass)
{
    letter l;
    size_t n;
    weft_status st;

    do {
        n = sizeof(l);
        st = wf_mail_take(&s->group, from, s->key, &l, &n, NULL);
        if (st == WEFT_OK) {
            st = keep_wishes(s, from, &l, n);
        }
        if (st == WEFT_OK && pass) {
            st = wf_mail_tell(&s->group, s->tree, s->key, &l, n);
        }
    } while (st == WEFT_OK && n == sizeof(l));
    return st;
}

/* Send the wishes that are here to the one above, or to those below; or, if one
 * of them cannot go on, that one alone. */
static weft_status send_letters(const splitting *s, bool up)
{
    bool failed = s->failed.status != WEFT_OK;
    const wish *from = failed ? &s->failed : s->all;
    uint32_t count = failed ? 1 : s->count;
    uint32_t sent = 0;
    size_t n;
    weft_status st;

    do {
        n = wf_least(count - sent, WISHES_A_LETTER);
        st = up ? wf_mail_post(&s->group, s->tree->parent, s->key, from + sent,
                               n * sizeof(wish), -1)
                : wf_mail_tell(&s->group, s->tree, s->key, from + sent,
                               n * sizeof(wish));
        sent += (uint32_t)n;
    } while (st == WEFT_OK && n == WISHES_A_LETTER);
    return st;
}

static int by_rank(const void *a, const void *b)
{
    const wish *x = a;
    const wish *y = b;

    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Wishes go up the tree of the communicator, and all of them down again. */
static weft_status gather_wishes(splitting *s)
{
    bool leads = s->tree->parent == s->tree->self;
    uint32_t next = 0;
    uint32_t member;
    weft_status st = WEFT_OK;

    while (st == WEFT_OK && wf_mail_below(&s->group, s->tree, &next, &member)) {
        st = take_letters(s, member, false);
    }
    if (st != WEFT_OK) {
        return st;
    }
    if (leads) {
        if (s->failed.status == WEFT_OK) {
            qsort(s->all, s->count, sizeof(*s->all), by_rank);
        }
        return send_letters(s, false);
    }
    st = send_letters(s, true);
    s->count = 0;
    return st == WEFT_OK ? take_letters(s, s->tree->parent, true) : st;
}

/* Is it everybody's wish, in the order of ranks, with ours as we sent it? */
static weft_status check_wishes(const weft_comm *comm, const splitting *s)
{
    bool good = s->count == comm->size;

    for (uint32_t r = 0; r < comm->size && good; r++) {
        good = s->all[r].rank == r;
    }
    good = good && memcmp(&s->all[comm->rank], &s->own, sizeof(s->own)) == 0;
    return good ? WEFT_OK : malformed(s, 0);
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

static weft_status split(weft_comm *comm, splitting *s, weft_comm **out)
{
    uint64_t salt;
    uint32_t n;
    weft_status st = begin_create(comm, &salt);

    if (st != WEFT_OK) {
        return st;
    }
    s->group = wf_mail_group_of(comm);
    s->key = wf_mail_key(comm->member, comm->size, salt, WF_MAIL_COLOURS);
    s->tree = &comm->tree;
    st = gather_wishes(s);
    if (st == WEFT_OK) {
        st = s->failed.status == WEFT_OK ? check_wishes(comm, s)
                                         : fail_wish(&s->failed);
    }
    if (st != WEFT_OK) {
        return st;
    }
    *out = NULL;
    assert(s->all != NULL && s->members != NULL); /* or all were told */
    n = pick(comm, s->all, s->own.colour, s->members);
    return s->own.colour < 0 ? WEFT_OK
                             : wf_comm_build(comm->world, comm, s->members, n,
                                             salt, comm->timeout_ns, out);
}

/* A rank without memory takes part as well, so that the others are told. */
weft_status weft_comm_split(weft_comm *comm, int64_t colour, int64_t key,
                            weft_comm **out)
{
    splitting s = {.own = {.colour = colour, .key = key}};
    weft_status st;

    if (comm == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm or out is NULL");
    }
    s.own.rank = comm->rank;
    s.all = wf_zalloc(comm->size * sizeof(*s.all));
    s.members = wf_alloc(comm->size * sizeof(*s.members));
    if (s.all == NULL || s.members == NULL) {
        s.own.status = WEFT_ERR_NOMEM;
        s.failed = s.own;
    } else {
        s.all[s.count++] = s.own;
    }
    st = split(comm, &s, out);
    wf_free(s.all);
    wf_free(s.members);
    return st;
}

weft_status weft_comm_dup(weft_comm *comm, weft_comm **out)
{
    uint64_t salt;
    weft_status st;

    if (comm == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm or out is NULL");
    }
    st = begin_create(comm, &salt);
    return st == WEFT_OK
               ? wf_comm_build(comm->world, comm, comm->member, comm->size,
                               salt, comm->timeout_ns, out)
               : st;
}

static int by_value(const void *a, const void *b)
{
    const uint32_t *x = a;
    const uint32_t *y = b;

    return (*x > *y) - (*x < *y);
}

/* Is no rank named twice? `sorted` is memory for as many. */
static weft_status check_distinct(const uint32_t *ranks, size_t n,
                                  uint32_t *sorted)
{
    memcpy(sorted, ranks, n * sizeof(*ranks));
    qsort(sorted, n, sizeof(*sorted), by_value);
    for (size_t i = 1; i < n; i++) {
        if (sorted[i] == sorted[i - 1]) {
            return wf_fail(WEFT_ERR_INVALID, "rank %u is named twice",
                           sorted[i]);
        }
    }
    return WEFT_OK;
}

static weft_status check_subset(const weft_comm *comm, const uint32_t *ranks,
                                size_t n)
{
    bool here = false;

    if (ranks == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "ranks is NULL");
    }
    if (n == 0 || n > comm->size) {
        return wf_fail(WEFT_ERR_INVALID, "%zu ranks are out of range (size %u)",
                       n, comm->size);
    }
    for (size_t i = 0; i < n; i++) {
        weft_status st = wf_comm_check_rank(comm, ranks[i]);

        if (st != WEFT_OK) {
            return st;
        }
        here = here || ranks[i] == comm->rank;
    }
    return here ? WEFT_OK
                : wf_fail(WEFT_ERR_INVALID,
                          "ranks does not contain the caller, rank %u",
                          comm->rank);
}

/* The others wait for this rank, and without a list of them it cannot tell
 * them; but they all look at the communicator. */
static weft_status fail_subset(weft_comm *comm, size_t n)
{
    char why[128];

    snprintf(why, sizeof(why),
             "rank %u has no memory for a communicator of %zu ranks",
             comm->rank, n);
    return wf_comm_break(comm, WEFT_ERR_NOMEM, why);
}

/* Those who are left after a death make another communicator without looking at
 * the broken one. */
static weft_status check_parent(weft_comm *comm, weft_comm **parent)
{
    weft_status st = wf_comm_check(comm);

    *parent = st == WEFT_OK ? comm : NULL;
    return st == WEFT_ERR_PEER ? WEFT_OK : st;
}

/* Memory for a list of `n` members: `few` if that is enough. */
static uint32_t *list_alloc(uint32_t few[static FEW_MEMBERS], size_t n)
{
    return n <= FEW_MEMBERS ? few : wf_alloc(n * sizeof(*few));
}

static void list_free(const uint32_t *few, uint32_t *list)
{
    if (list != few) {
        wf_free(list);
    }
}

/* Only members call this, so the sequence cannot tell creations apart; mail
 * between two ranks keeps its order, and that is enough. */
static weft_status build_subset(weft_comm *comm, weft_comm *parent,
                                const uint32_t *members, size_t n,
                                weft_comm **out)
{
    return wf_comm_build(comm->world, parent, members, (uint32_t)n,
                         salt_of(comm, parent != NULL ? WHOLE : BROKEN),
                         comm->timeout_ns, out);
}

/* Fill `members` with those of a subset, by their ranks in the job. */
static weft_status list_members(const weft_comm *comm, const uint32_t *ranks,
                                size_t n, uint32_t *members)
{
    weft_status st = check_distinct(ranks, n, members);

    for (size_t i = 0; i < n && st == WEFT_OK; i++) {
        members[i] = comm->member[ranks[i]];
    }
    return st;
}

weft_status weft_comm_subset(weft_comm *comm, const uint32_t *ranks, size_t n,
                             weft_comm **out)
{
    weft_comm *parent;
    uint32_t few[FEW_MEMBERS];
    uint32_t *members;
    weft_status st;

    if (comm == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm or out is NULL");
    }
    st = check_parent(comm, &parent);
    if (st == WEFT_OK) {
        st = check_subset(comm, ranks, n);
    }
    if (st != WEFT_OK) {
        return st;
    }
    members = list_alloc(few, n);
    if (members == NULL) {
        return fail_subset(comm, n);
    }
    st = list_members(comm, ranks, n, members);
    if (st == WEFT_OK) {
        st = build_subset(comm, parent, members, n, out);
    }
    list_free(few, members);
    return st;
}

/* Groups of different tags may be made at once, so the tag is in the salt. */
static uint64_t salt_of_tag(const weft_comm *comm, uint64_t tag)
{
    wf_secret key = {{salt_of(comm, TAGGED), 0}};

    return wf_keyed_hash(&key, &tag, sizeof(tag));
}

weft_status weft_comm_create_group(weft_comm *comm, const uint32_t *ranks,
                                   size_t n, uint64_t tag, double timeout,
                                   weft_comm **out)
{
    uint32_t few[FEW_MEMBERS];
    uint32_t *members;
    weft_status st;

    if (comm == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm or out is NULL");
    }
    if (wf_comm_check(comm) == WEFT_ERR_CLOSED) {
        return WEFT_ERR_CLOSED;
    }
    st = check_subset(comm, ranks, n);
    if (st != WEFT_OK) {
        return st;
    }
    members = list_alloc(few, n);
    if (members == NULL) {
        return wf_fail_nomem("a list of %zu ranks", n);
    }
    st = list_members(comm, ranks, n, members);
    if (st == WEFT_OK) {
        st = wf_comm_build(
            comm->world, NULL, members, (uint32_t)n, salt_of_tag(comm, tag),
            wf_timeout_ns(timeout, comm->world->settings.timeout_ns), out);
    }
    list_free(few, members);
    return st;
}

/* Set `excluded[r]` to 1 for each rank of `exclude`, to 0 for all others. */
static weft_status mark_excluded(const weft_comm *comm, const uint32_t *exclude,
                                 size_t n, uint32_t *excluded)
{
    if (exclude == NULL && n > 0) {
        return wf_fail(WEFT_ERR_INVALID, "exclude is NULL");
    }
    memset(excluded, 0, comm->size * sizeof(*excluded));
    for (size_t i = 0; i < n; i++) {
        weft_status st = wf_comm_check_rank(comm, exclude[i]);

        if (st != WEFT_OK) {
            return st;
        }
        if (exclude[i] == comm->rank) {
            return wf_fail(WEFT_ERR_INVALID,
                           "rank %u excludes itself; only those who stay call "
                           "this",
                           comm->rank);
        }
        if (excluded[exclude[i]] != 0) {
            return wf_fail(WEFT_ERR_INVALID, "rank %u is named twice",
                           exclude[i]);
        }
        excluded[exclude[i]] = 1;
    }
    return WEFT_OK;
}

/* Nobody goes on with it; whoever is in a call on it is told why that fails. */
static void break_to_shrink(weft_comm *comm)
{
    char why[128];

    snprintf(why, sizeof(why), "rank %u has left the communicator to shrink it",
             comm->rank);
    wf_comm_break(comm, WEFT_ERR_ABORTED, why);
}

weft_status weft_comm_shrink(weft_comm *comm, const uint32_t *exclude, size_t n,
                             weft_comm **out)
{
    uint32_t few[FEW_MEMBERS];
    uint32_t *members;
    uint32_t left = 0;
    weft_status st;

    if (comm == NULL || out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "comm or out is NULL");
    }
    st = wf_comm_check(comm);
    if (st == WEFT_ERR_CLOSED) {
        return st;
    }
    members = list_alloc(few, comm->size);
    if (members == NULL) {
        return fail_subset(comm, comm->size);
    }
    st = mark_excluded(comm, exclude, n, members);
    if (st == WEFT_OK) {
        break_to_shrink(comm);
        /* In place: a member never moves past its own mark. */
        for (uint32_t r = 0; r < comm->size; r++) {
            if (members[r] == 0) {
                members[left++] = comm->member[r];
            }
        }
        st = build_subset(comm, NULL, members, left, out);
    }
    list_free(few, members);
    return st;
}
