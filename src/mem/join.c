/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of tables over the bootstrap table. Keys:
 *
 *   weft/rank/R    the table of rank R alone
 *   weft/group/R   the tables of a group, merged by its first rank R
 *   weft/table     the table of the job
 *
 * A table longer than WEFT_BOOT_VALUE_MAX continues under KEY.1, KEY.2, ...
 * Who sets a key can be told from it (wf_boot_key_owner). */
#include "mem/join.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"

#define TABLE_KEY "weft/table"

/* How long a rank that cannot join waits for rank 0, to tell it. */
#define DECLINE_MS 1000

/* Who waits for one that waits itself does so for a little longer, so that the
 * explanation gets here. */
#define EXPLAIN_NS (WF_SEC / 2)

/* More than a rank needs for its addresses, so that a length that makes no
 * sense is not taken for the size of a table. */
#define RANK_BYTES_MAX (16u << 20)

/* Below this many ranks, rank 0 collects from all by itself. */
#define GROUP_MIN 32u

typedef char join_key[40];

typedef struct exchange {
    const weft_boot *boot;
    const wf_patience *patience;
    uint32_t group;
    uint32_t operations;
    unsigned char *buffer; /* WEFT_BOOT_VALUE_MAX bytes */
} exchange;

uint32_t wf_join_group(uint32_t ranks)
{
    uint32_t group = GROUP_MIN;

    while ((uint64_t)group * group < ranks) {
        group *= 2;
    }
    return group;
}

/* Where `rank` publishes what it has collected. */
static void key_of(uint32_t rank, uint32_t group, char *key)
{
    if (rank == 0) {
        snprintf(key, sizeof(join_key), TABLE_KEY);
    } else {
        snprintf(key, sizeof(join_key), "weft/%s/%u",
                 rank % group == 0 ? "group" : "rank", rank);
    }
}

/* The key under which a table goes on, after `part` values. */
static const char *part_key(const char *key, size_t part, char *out)
{
    if (part == 0) {
        return key;
    }
    snprintf(out, sizeof(join_key), "%s.%zu", key, part);
    return out;
}

/* A table has no way to interrupt a get, so it is asked again and again. One
 * that gives up before its time means it. */
static weft_status patient_get(exchange *x, const char *key,
                               const wf_patience *patience, void *value,
                               size_t *n)
{
    const weft_boot *boot = x->boot;
    size_t room = *n;
    uint64_t until;
    weft_status st;

    x->operations++;
    do {
        until = wf_patience_slice(patience);
        *n = room;
        st = boot->get(boot->ctx, key, value, n, (uint32_t)wf_ms_until(until));
    } while (wf_now_ns() + WF_SLICE_NS / 2 >= until &&
             wf_patience_lasts(patience, &st));
    return st;
}

static weft_status publish(exchange *x, const char *key, const wf_join_table *t)
{
    size_t left = t->head->bytes;
    weft_status st = WEFT_OK;
    join_key part;

    for (size_t i = 0; left > 0 && st == WEFT_OK; i++) {
        size_t n = left < WEFT_BOOT_VALUE_MAX ? left : WEFT_BOOT_VALUE_MAX;

        st = x->boot->set(x->boot->ctx, part_key(key, i, part),
                          t->bytes + i * WEFT_BOOT_VALUE_MAX, n);
        x->operations++;
        left -= n;
    }
    return st;
}

/* The length of the table whose first `n` bytes are in the buffer, as far as
 * that is known before it is checked. */
static size_t whole_bytes(const exchange *x, size_t n)
{
    wf_join_head head;

    if (n < WEFT_BOOT_VALUE_MAX) {
        return n;
    }
    memcpy(&head, x->buffer, sizeof(head));
    return head.magic == WF_JOIN_MAGIC && head.version == WF_JOIN_VERSION &&
                   head.bytes > n &&
                   head.bytes / RANK_BYTES_MAX < x->boot->ranks
               ? head.bytes
               : n;
}

static weft_status fetch(exchange *x, const char *key,
                         const wf_patience *patience, wf_join_table **out,
                         size_t *bytes)
{
    size_t n = WEFT_BOOT_VALUE_MAX;
    wf_join_table *t;
    join_key part;
    weft_status st = patient_get(x, key, patience, x->buffer, &n);

    if (st != WEFT_OK) {
        return st;
    }
    *bytes = whole_bytes(x, n);
    /* Room for a head, so that looking at one is safe. */
    t = wf_join_room(*bytes > sizeof(*t->head) ? *bytes : sizeof(*t->head));
    if (t == NULL) {
        return wf_fail_nomem("a table of %zu bytes", *bytes);
    }
    memcpy(t->bytes, x->buffer, n);
    for (size_t i = 1; n < *bytes && st == WEFT_OK; i++) {
        size_t more = *bytes - n;

        st = patient_get(x, part_key(key, i, part), patience, t->bytes + n,
                         &more);
        n += more;
    }
    if (st != WEFT_OK) {
        wf_free(t);
        return st;
    }
    *bytes = n;
    *out = t;
    return WEFT_OK;
}

/* --- failures ------------------------------------------------------------- */

/* So that the others need not wait for their own deadline. */
static void publish_failure(const weft_boot *boot, uint32_t kind)
{
    struct {
        wf_join_head head;
        char text[512];
    } why;
    join_key key;

    memset(&why, 0, sizeof(why));
    why.head.magic = WF_JOIN_MAGIC;
    why.head.version = WF_JOIN_VERSION;
    why.head.failed = kind;
    snprintf(why.head.weft, sizeof(why.head.weft), "%s", weft_version());
    snprintf(why.text, sizeof(why.text), "%s", weft_error_detail());
    key_of(boot->rank, wf_join_group(boot->ranks), key);
    (void)boot->set(boot->ctx, key, &why, sizeof(why.head) + strlen(why.text));
}

void wf_join_decline(const weft_boot *boot)
{
    wf_failure why = wf_failure_of(WEFT_OK);
    unsigned char answer[1024];
    size_t n = sizeof(answer);

    if (boot->ranks == 1) {
        return;
    }
    publish_failure(boot, WF_JOIN_FAILED_SELF);
    if (boot->rank != 0) {
        /* A table that has yet to reach rank 0 gets a moment for it. */
        (void)boot->get(boot->ctx, TABLE_KEY, answer, &n, DECLINE_MS);
    }
    wf_failure_again(&why);
}

/* --- collecting ----------------------------------------------------------- */

/* Fetch what rank `from` has to tell of `ranks` ranks. */
static weft_status collect_one(exchange *x, uint32_t from, uint32_t ranks,
                               wf_join_table **out)
{
    wf_patience patience = *x->patience;
    wf_join_table *t = NULL;
    size_t bytes = 0;
    join_key key;
    weft_status st;

    patience.deadline_ns += from % x->group == 0 ? EXPLAIN_NS : 0;
    key_of(from, x->group, key);
    st = fetch(x, key, &patience, &t, &bytes);
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

/* Collect those that come after our own, up to `end`: ranks of our group, and
 * then, as rank 0, groups. */
static weft_status collect_parts(exchange *x, uint32_t end,
                                 wf_join_table **part, size_t *count)
{
    weft_status st = WEFT_OK;
    uint32_t ranks;

    for (uint32_t r = x->boot->rank + 1; r < end && st == WEFT_OK; r += ranks) {
        uint32_t left = end - r;

        ranks = r % x->group != 0 ? 1 : left < x->group ? left : x->group;
        st = collect_one(x, r, ranks, &part[*count]);
        *count += st == WEFT_OK;
    }
    return st;
}

static weft_status collect(exchange *x, wf_join_table *own, wf_join_table **out)
{
    uint32_t ranks = x->boot->ranks;
    uint32_t rank = x->boot->rank;
    uint32_t end =
        rank == 0 || ranks - rank < x->group ? ranks : rank + x->group;
    wf_join_table **part =
        wf_alloc((x->group + ranks / x->group + 1) * sizeof(wf_join_table *));
    size_t count = 1;
    weft_status st;

    if (part == NULL) {
        return wf_fail_nomem("the tables of %u ranks", ranks);
    }
    part[0] = own;
    st = collect_parts(x, end, part, &count);
    if (st == WEFT_OK) {
        st = wf_join_merge(part, count, out);
    }
    for (size_t i = 1; i < count; i++) {
        wf_free(part[i]);
    }
    wf_free(part);
    return st;
}

static weft_status sign(wf_join_head *head)
{
    weft_status st = wf_random(&head->secret, sizeof(head->secret));

    return st == WEFT_OK ? wf_random(&head->job, sizeof(head->job)) : st;
}

/* Collect and publish, as rank 0 or the first of a group. `*out` is what was
 * collected. */
static weft_status lead(exchange *x, wf_join_table *own, wf_join_table **out)
{
    const weft_boot *boot = x->boot;
    wf_join_table *t = NULL;
    wf_failure why;
    join_key key;
    weft_status st = collect(x, own, &t);

    if (st == WEFT_OK && boot->rank == 0) {
        st = sign(t->head);
    }
    if (st != WEFT_OK && boot->ranks > 1) {
        why = wf_failure_of(st);
        publish_failure(boot, st == WEFT_ERR_TIMEOUT || st == WEFT_ERR_PEER ||
                                      st == WEFT_ERR_PROTOCOL
                                  ? WF_JOIN_FAILED_JOB
                                  : WF_JOIN_FAILED_SELF);
        wf_failure_again(&why);
    }
    if (st == WEFT_OK && boot->ranks > 1) {
        key_of(boot->rank, x->group, key);
        st = publish(x, key, t);
    }
    if (st != WEFT_OK) {
        wf_free(t);
        return st;
    }
    *out = t;
    return WEFT_OK;
}

static weft_status follow(exchange *x, wf_join_table **out)
{
    wf_patience longer = *x->patience;
    uint32_t ranks = x->boot->ranks;
    wf_join_table *t = NULL;
    size_t bytes = 0;
    weft_status st;

    longer.deadline_ns += ranks > x->group ? 2 * EXPLAIN_NS : EXPLAIN_NS;
    st = fetch(x, TABLE_KEY, &longer, &t, &bytes);
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

/* Publish our own table, or all of our group, and wait for that of the job. */
static weft_status report(exchange *x, wf_join_table *own, wf_join_table **out)
{
    wf_join_table *group = NULL;
    join_key key;
    weft_status st;

    if (x->boot->rank % x->group == 0) {
        st = lead(x, own, &group);
        wf_free(group);
        return st == WEFT_OK ? follow(x, out) : st;
    }
    key_of(x->boot->rank, x->group, key);
    st = publish(x, key, own);
    if (st != WEFT_OK) {
        wf_join_decline(x->boot);
        return st;
    }
    return follow(x, out);
}

weft_status wf_join_exchange(const weft_boot *boot, const wf_join_record *own,
                             const wf_address *addresses, size_t count,
                             const wf_patience *patience, wf_join_table **out)
{
    exchange x = {boot, patience, wf_join_group(boot->ranks), 0, NULL};
    wf_join_table *single = NULL;
    wf_join_table *t = NULL;
    weft_status st =
        wf_join_single(own, boot->rank, boot->ranks, addresses, count, &single);

    if (st == WEFT_OK && boot->ranks > 1) {
        x.buffer = wf_alloc(WEFT_BOOT_VALUE_MAX);
        st = x.buffer != NULL ? WEFT_OK : wf_fail_nomem("the record of a rank");
    }
    if (st != WEFT_OK) {
        wf_join_decline(boot);
    } else {
        st = boot->rank == 0 ? lead(&x, single, &t) : report(&x, single, &t);
    }
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
