/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/join_value.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/time.h"

/* More than a rank needs for its addresses, so that a length that makes no
 * sense is not taken for the size of a table. */
#define RANK_BYTES_MAX (16u << 20)

/* Below this many ranks, rank 0 collects from all by itself. */
#define GROUP_MIN 32u

uint32_t wf_join_group(uint32_t ranks)
{
    uint32_t group = GROUP_MIN;

    while ((uint64_t)group * group < ranks) {
        group *= 2;
    }
    return group;
}

void wf_join_group_key(uint32_t first, char *key)
{
    snprintf(key, sizeof(wf_join_name), "weft/group/%u", first);
}

/* Where `rank` publishes what it has collected. */
void wf_join_key_of(uint32_t rank, uint32_t group, char *key)
{
    if (rank == 0) {
        snprintf(key, sizeof(wf_join_name), WF_JOIN_TABLE_KEY);
    } else if (rank % group == 0) {
        wf_join_group_key(rank, key);
    } else {
        snprintf(key, sizeof(wf_join_name), "weft/rank/%u", rank);
    }
}

/* The ranks of a group end before this one. */
uint32_t wf_join_group_end(const wf_join_talk *x, uint32_t rank)
{
    uint32_t first = rank / x->group * x->group;

    return x->boot->ranks - first < x->group ? x->boot->ranks
                                             : first + x->group;
}

/* The key under which a table goes on, after `part` values. */
static const char *part_key(const char *key, size_t part, char *out)
{
    if (part == 0) {
        return key;
    }
    snprintf(out, sizeof(wf_join_name), "%s.%zu", key, part);
    return out;
}

/* A table has no way to interrupt a get, so it is asked again and again. One
 * that gives up before its time means it. */
static weft_status patient_get(wf_join_talk *x, const char *key,
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

weft_status wf_join_publish(wf_join_talk *x, const char *key,
                            const wf_join_table *t)
{
    size_t left = t->head->bytes;
    weft_status st = WEFT_OK;
    wf_join_name part;

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
static size_t whole_bytes(const wf_join_talk *x, size_t n)
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

weft_status wf_join_fetch(wf_join_talk *x, const char *key,
                          const wf_patience *patience, wf_join_table **out,
                          size_t *bytes)
{
    size_t n = WEFT_BOOT_VALUE_MAX;
    wf_join_table *t;
    wf_join_name part;
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
