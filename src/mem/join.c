/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of tables: who collects, who publishes, who reads. */
#include "mem/join.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/num.h"
#include "base/status.h"
#include "base/time.h"
#include "mem/join_share.h"
#include "mem/join_value.h"

/* How long a rank that cannot join waits for rank 0, to tell it. */
#define DECLINE_MS 1000

/* Who waits for one that waits itself does so for a little longer, so that the
 * explanation gets here. */
#define EXPLAIN_NS (WF_SEC / 2)

/* After how long who waits for the table of its group first looks whether there
 * is one of the job. */
#define LOOK_NS (2 * WF_SEC)

/* --- failures ------------------------------------------------------------- */

static bool is_shared(const weft_boot *boot)
{
    return boot->ranks >= WF_JOIN_SHARED_FROM;
}

/* So that the others need not wait for their own deadline. `has_group`: the
 * table of our group was published, which rank 0 does apart from its own. */
static void publish_failure(const weft_boot *boot, uint32_t kind,
                            bool has_group)
{
    struct {
        wf_join_head head;
        char text[512];
    } why;
    wf_join_name key;
    size_t n;

    memset(&why, 0, sizeof(why));
    why.head.magic = WF_JOIN_MAGIC;
    why.head.version = WF_JOIN_VERSION;
    why.head.failed = kind;
    snprintf(why.head.weft, sizeof(why.head.weft), "%s", weft_version());
    snprintf(why.text, sizeof(why.text), "%s", weft_error_detail());
    n = sizeof(why.head) + strlen(why.text);
    wf_join_key_of(boot->rank, wf_join_group(boot->ranks), key);
    (void)boot->set(boot->ctx, key, &why, n);
    if (boot->rank == 0 && is_shared(boot) && !has_group) {
        wf_join_group_key(0, key);
        (void)boot->set(boot->ctx, key, &why, n);
    }
}

void wf_join_decline(const weft_boot *boot)
{
    wf_failure why = wf_failure_of(WEFT_OK);
    unsigned char answer[1024];
    size_t n = sizeof(answer);

    if (boot->ranks == 1) {
        return;
    }
    publish_failure(boot, WF_JOIN_FAILED_SELF, false);
    if (boot->rank != 0) {
        /* A table that has yet to reach rank 0 gets a moment for it. */
        (void)boot->get(boot->ctx, WF_JOIN_TABLE_KEY, answer, &n, DECLINE_MS);
    }
    wf_failure_again(&why);
}

/* --- collecting ----------------------------------------------------------- */

/* Fetch what rank `from` has to tell of `ranks` ranks. */
static weft_status collect_one(wf_join_talk *x, uint32_t from, uint32_t ranks,
                               wf_join_table **out)
{
    wf_patience patience = *x->patience;
    wf_join_table *t = NULL;
    size_t bytes = 0;
    wf_join_name key;
    weft_status st;

    patience.deadline_ns += from % x->group == 0 ? EXPLAIN_NS : 0;
    wf_join_key_of(from, x->group, key);
    st = wf_join_fetch(x, key, &patience, &t, &bytes);
    if (st == WEFT_ERR_TIMEOUT) {
        return wf_fail(st, "rank %u did not join in time", from);
    }
    if (st == WEFT_OK) {
        st = wf_join_open(t, bytes, from, from, ranks, x->boot->ranks);
    }
    if (st != WEFT_OK) {
        wf_free(t);
        return st;
    }
    *out = t;
    return WEFT_OK;
}

/* Collect from rank `from` on up to `end`: ranks of our group, or groups. */
static weft_status collect_parts(wf_join_talk *x, uint32_t from, uint32_t end,
                                 wf_join_table **part, size_t *count)
{
    weft_status st = WEFT_OK;
    uint32_t ranks;

    for (uint32_t r = from; r < end && st == WEFT_OK; r += ranks) {
        uint32_t left = end - r;

        ranks = r % x->group != 0 ? 1 : left < x->group ? left : x->group;
        st = collect_one(x, r, ranks, &part[*count]);
        *count += st == WEFT_OK;
    }
    return st;
}

/* Merge `first` with what comes after it, from rank `from` on up to `end`. */
static weft_status collect(wf_join_talk *x, wf_join_table *first, uint32_t from,
                           uint32_t end, wf_join_table **out)
{
    uint32_t ranks = x->boot->ranks;
    wf_join_table **part =
        wf_alloc((x->group + ranks / x->group + 1) * sizeof(wf_join_table *));
    size_t count = 1;
    weft_status st;

    if (part == NULL) {
        return wf_fail_nomem("the tables of %u ranks", ranks);
    }
    part[0] = first;
    st = collect_parts(x, from, end, part, &count);
    if (st == WEFT_OK) {
        st = wf_join_merge(part, count, out);
    }
    for (size_t i = 1; i < count; i++) {
        wf_free(part[i]);
    }
    wf_free(part);
    return st;
}

/* The table of a group that is complete. */
static weft_status sign_group(const wf_join_talk *x, wf_join_table *t)
{
    return x->shares ? wf_random(&t->head->secret, sizeof(t->head->secret))
                     : WEFT_OK;
}

/* Our group, and as rank 0 all groups. */
static weft_status collect_all(wf_join_talk *x, wf_join_table *own,
                               wf_join_table **out)
{
    uint32_t rank = x->boot->rank;
    uint32_t end = wf_join_group_end(x, rank);
    wf_join_table *group = NULL;
    wf_join_name key;
    weft_status st = collect(x, own, rank + 1, end, &group);

    if (st != WEFT_OK || rank != 0 || end == x->boot->ranks) {
        *out = group;
        return st;
    }
    if (x->shares) {
        wf_join_group_key(0, key);
        st = sign_group(x, group);
        x->secret = group->head->secret;
        st = st == WEFT_OK ? wf_join_publish(x, key, group) : st;
        x->has_group = st == WEFT_OK;
    }
    if (st == WEFT_OK) {
        st = collect(x, group, end, x->boot->ranks, out);
    }
    wf_free(group);
    return st;
}

static weft_status sign(wf_join_head *head)
{
    weft_status st = wf_random(&head->secret, sizeof(head->secret));

    return st == WEFT_OK ? wf_random(&head->job, sizeof(head->job)) : st;
}

/* Collect and publish, as rank 0 or the first of a group. `*out` is what was
 * collected. */
static weft_status lead(wf_join_talk *x, wf_join_table *own,
                        wf_join_table **out)
{
    const weft_boot *boot = x->boot;
    wf_join_table *t = NULL;
    wf_failure why;
    wf_join_name key;
    weft_status st = collect_all(x, own, &t);

    if (st == WEFT_OK) {
        st = boot->rank == 0 ? sign(t->head) : sign_group(x, t);
    }
    if (st != WEFT_OK && boot->ranks > 1) {
        why = wf_failure_of(st);
        publish_failure(boot,
                        st == WEFT_ERR_TIMEOUT || st == WEFT_ERR_PEER ||
                                st == WEFT_ERR_PROTOCOL
                            ? WF_JOIN_FAILED_JOB
                            : WF_JOIN_FAILED_SELF,
                        x->has_group);
        wf_failure_again(&why);
    }
    if (st == WEFT_OK && boot->ranks > 1) {
        wf_join_key_of(boot->rank, x->group, key);
        st = wf_join_publish(x, key, t);
    }
    if (st != WEFT_OK) {
        wf_free(t);
        return st;
    }
    *out = t;
    return WEFT_OK;
}

/* --- the table of the job --------------------------------------------------
 */

static weft_status read_table(wf_join_talk *x, wf_join_table **out)
{
    wf_patience longer = *x->patience;
    uint32_t ranks = x->boot->ranks;
    wf_join_table *t = NULL;
    size_t bytes = 0;
    weft_status st;

    longer.deadline_ns += ranks > x->group ? 2 * EXPLAIN_NS : EXPLAIN_NS;
    st = wf_join_fetch(x, WF_JOIN_TABLE_KEY, &longer, &t, &bytes);
    if (st == WEFT_ERR_TIMEOUT) {
        return wf_fail(st, "rank 0 did not form the job in time");
    }
    if (st == WEFT_OK) {
        st = wf_join_open(t, bytes, 0, 0, ranks, ranks);
    }
    if (st != WEFT_OK) {
        wf_free(t);
        return st;
    }
    *out = t;
    return WEFT_OK;
}

/* Read the table, and hand it to our mates, whom `known` has. */
static weft_status read_for_mates(wf_join_talk *x, const wf_join_mates *known,
                                  wf_join_table **out)
{
    weft_status st = read_table(x, out);

    if (st == WEFT_OK) {
        wf_join_share_give(x->mates, *out, known);
    }
    return st;
}

/* Is there a table of the job? */
static bool is_decided(wf_join_talk *x)
{
    size_t n = WEFT_BOOT_VALUE_MAX;

    x->operations++;
    return x->boot->get(x->boot->ctx, WF_JOIN_TABLE_KEY, x->buffer, &n, 0) ==
           WEFT_OK;
}

/* Wait for the table of the group that rank `first` leads. A member of it may
 * be missing while that of the job tells already why there is none: so it is
 * looked for as well, more and more seldom. */
static weft_status await_group(wf_join_talk *x, uint32_t first,
                               wf_join_table **t, size_t *bytes)
{
    wf_patience slice = *x->patience;
    uint64_t look_ns = LOOK_NS;
    bool waits;
    wf_join_name key;
    weft_status st;

    wf_join_group_key(first, key);
    do {
        slice.deadline_ns =
            wf_least(wf_now_ns() + look_ns, x->patience->deadline_ns);
        look_ns *= 2;
        st = wf_join_fetch(x, key, &slice, t, bytes);
        /* One that gives up before its time means it. */
        waits = st == WEFT_ERR_TIMEOUT &&
                wf_now_ns() + WF_SLICE_NS / 2 >= slice.deadline_ns &&
                slice.deadline_ns < x->patience->deadline_ns;
    } while (waits && !is_decided(x));
    return st;
}

/* The table of our group, which another rank publishes. `*out` is NULL where it
 * is of no use: that of the job tells why. */
static weft_status fetch_group(wf_join_talk *x, wf_join_table **out)
{
    uint32_t rank = x->boot->rank;
    uint32_t first = rank / x->group * x->group;
    wf_join_table *t = NULL;
    size_t bytes = 0;
    weft_status st;

    *out = NULL;
    st = await_group(x, first, &t, &bytes);
    if (st != WEFT_OK) {
        return st == WEFT_ERR_TIMEOUT ? WEFT_OK : st;
    }
    if (wf_join_open(t, bytes, first, first, wf_join_group_end(x, rank) - first,
                     x->boot->ranks) != WEFT_OK) {
        wf_free(t);
        return WEFT_OK;
    }
    *out = t;
    return WEFT_OK;
}

/* Who are our mates? `group` has them, unless it is NULL: then it is fetched,
 * and if it is of no use, there are none. */
static weft_status find_mates(wf_join_talk *x, const wf_join_table *group,
                              wf_join_mates *out)
{
    uint32_t rank = x->boot->rank;
    wf_join_table *fetched = NULL;
    weft_status st = group == NULL ? fetch_group(x, &fetched) : WEFT_OK;

    *out = (wf_join_mates){.reader = rank};
    group = group != NULL ? group : fetched;
    if (group != NULL) {
        wf_join_find_mates(group, rank, wf_join_group_end(x, rank), out);
    }
    wf_free(fetched);
    return st;
}

/* Our mate `reader` was late with a table that is there. The time is over, and
 * whoever else was late because of it would be named in its place. */
static weft_status fail_reader(const wf_join_table *t, uint32_t reader)
{
    return wf_fail(WEFT_ERR_TIMEOUT,
                   "rank %u (pid %d on %s) did not hand over the table of the "
                   "job in time",
                   reader, t->member[reader].pid,
                   wf_join_node_of(t, reader)->host);
}

/* Get the table from the mate that reads it for us. */
static weft_status take_from(wf_join_talk *x, const wf_join_mates *known,
                             wf_join_table **out)
{
    weft_status taken =
        wf_join_share_take(known, x->boot->ranks, x->patience, out);
    weft_status st;

    if (taken == WEFT_OK || taken == WEFT_ERR_ABORTED) {
        return taken;
    }
    st = read_table(x, out);
    if (st == WEFT_OK && taken == WEFT_ERR_TIMEOUT) {
        st = fail_reader(*out, known->reader);
        wf_free(*out);
        *out = NULL;
    }
    return st;
}

/* Wait for the table of the job, in our own hands or in those of a mate. */
static weft_status follow(wf_join_talk *x, const wf_join_table *group,
                          wf_join_table **out)
{
    wf_join_mates known;
    weft_status st;

    if (!x->shares) {
        return read_table(x, out);
    }
    st = find_mates(x, group, &known);
    if (st != WEFT_OK) {
        return st;
    }
    return known.reader == x->boot->rank ? read_for_mates(x, &known, out)
                                         : take_from(x, &known, out);
}

/* As rank 0: make the table of the job. */
static weft_status form(wf_join_talk *x, wf_join_table *own,
                        wf_join_table **out)
{
    wf_join_mates known;
    weft_status st = lead(x, own, out);

    if (st == WEFT_OK && x->shares) {
        wf_join_find_mates(*out, 0, wf_join_group_end(x, 0), &known);
        known.secret = x->secret;
        wf_join_share_give(x->mates, *out, &known);
    }
    return st;
}

/* Publish our own table, or all of our group, and wait for that of the job. */
static weft_status report(wf_join_talk *x, wf_join_table *own,
                          wf_join_table **out)
{
    wf_join_table *group = NULL;
    wf_join_name key;
    weft_status st;

    if (x->boot->rank % x->group == 0) {
        st = lead(x, own, &group);
        st = st == WEFT_OK ? follow(x, group, out) : st;
        wf_free(group);
        return st;
    }
    wf_join_key_of(x->boot->rank, x->group, key);
    st = wf_join_publish(x, key, own);
    if (st != WEFT_OK) {
        wf_join_decline(x->boot);
        return st;
    }
    return follow(x, NULL, out);
}

/* What an exchange needs; where it can share nothing it does without. */
static weft_status prepare(wf_join_talk *x, const wf_join_record *own)
{
    if (x->boot->ranks == 1) {
        return WEFT_OK;
    }
    x->shares = is_shared(x->boot);
    if (x->shares && wf_join_share_listen(own->socket, &x->mates) != WEFT_OK) {
        wf_log(WEFT_LOG_DEBUG, "rank %u hands its table to nobody: %s",
               x->boot->rank, weft_error_detail());
    }
    x->buffer = wf_alloc(WEFT_BOOT_VALUE_MAX);
    return x->buffer != NULL ? WEFT_OK : wf_fail_nomem("the record of a rank");
}

weft_status wf_join_exchange(const weft_boot *boot, const wf_join_record *own,
                             const wf_address *addresses, size_t count,
                             const wf_patience *patience, wf_join_table **out)
{
    wf_join_talk x = {.boot = boot,
                      .patience = patience,
                      .group = wf_join_group(boot->ranks),
                      .mates = -1};
    wf_join_table *single = NULL;
    wf_join_table *t = NULL;
    weft_status st =
        wf_join_single(own, boot->rank, boot->ranks, addresses, count, &single);

    if (st == WEFT_OK) {
        st = prepare(&x, own);
    }
    if (st != WEFT_OK) {
        wf_join_decline(boot);
    } else {
        st = boot->rank == 0 ? form(&x, single, &t) : report(&x, single, &t);
    }
    wf_join_share_end(x.mates);
    wf_free(single);
    wf_free(x.buffer);
    if (st != WEFT_OK) {
        return st;
    }
    t->operations = x.operations;
    wf_log(WEFT_LOG_INFO,
           "rank %u joined %u ranks on %u node%s: a table of %zu bytes, %u "
           "operations of the bootstrap table",
           boot->rank, boot->ranks, t->head->nodes,
           t->head->nodes == 1 ? "" : "s", (size_t)t->head->bytes,
           x.operations);
    *out = t;
    return WEFT_OK;
}
