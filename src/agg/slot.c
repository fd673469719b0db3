/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/slot.h"

#include <string.h>

#include "agg/mistakes.h"
#include "agg/quantise.h"
#include "base/num.h"
#include "coll/kernel/reducer.h"

const char *wf_agg_verdict_name(wf_agg_verdict verdict)
{
    static const char *const names[WF_AGG_VERDICTS] = {
        [WF_AGG_DROPPED_STRANGE] = "strange", [WF_AGG_DROPPED_LATE] = "late",
        [WF_AGG_DROPPED_AHEAD] = "ahead",     [WF_AGG_KEPT] = "kept",
        [WF_AGG_ANSWER] = "answered",         [WF_AGG_BROADCAST] = "broadcast",
    };

    return (unsigned)verdict < WF_AGG_VERDICTS ? names[verdict] : "?";
}

/* What numbers of all types, and quantised ones, are aligned to. */
#define NUMBERS_ALIGNED 8u

/* --- memory --------------------------------------------------------------- */

static bool shape_is_good(const wf_agg_shape *s)
{
    return s->ranks > 0 && s->ranks <= WF_AGG_RANKS && s->slots > 0 &&
           s->slots <= WF_AGG_SLOTS && s->payload > 0 && s->payload % 64 == 0 &&
           s->payload <= WF_AGG_PAYLOAD_MAX;
}

static size_t place_bytes(const wf_agg_shape *s)
{
    return wf_round_up(2 * (size_t)s->slots * sizeof(wf_agg_place), 64);
}

size_t wf_agg_pool_bytes(const wf_agg_shape *s)
{
    return shape_is_good(s) ? place_bytes(s) + (size_t)s->slots * s->payload *
                                                   (2 + (size_t)s->ranks)
                            : 0;
}

void wf_agg_pool_init(wf_agg_pool *pool, const wf_agg_shape *shape,
                      void *memory)
{
    unsigned char *data = (unsigned char *)memory + place_bytes(shape);

    memset(memory, 0, place_bytes(shape));
    *pool =
        (wf_agg_pool){.shape = *shape,
                      .place = memory,
                      .result = data,
                      .part = data + 2 * (size_t)shape->slots * shape->payload};
}

static unsigned char *result_at(const wf_agg_pool *pool, uint32_t place)
{
    return pool->result + (size_t)place * pool->shape.payload;
}

static unsigned char *part_at(const wf_agg_pool *pool, uint32_t slot,
                              uint32_t rank)
{
    return pool->part +
           ((size_t)slot * pool->shape.ranks + rank) * pool->shape.payload;
}

/* --- places --------------------------------------------------------------- */

static bool has_part(const wf_agg_place *p, uint32_t rank)
{
    return (p->seen[rank / 64] >> rank % 64 & 1) != 0;
}

static uint32_t first_missing(const wf_agg_place *p, uint32_t ranks)
{
    uint32_t rank = 0;

    while (rank + 1 < ranks && has_part(p, rank)) {
        rank++;
    }
    return rank;
}

static wf_agg_called called_by(const wf_agg_head *head)
{
    return (wf_agg_called){.total = head->total,
                           .hash = head->hash,
                           .rank = head->rank,
                           .count = head->count,
                           .call = head->call,
                           .type = head->type,
                           .op = head->op,
                           .flags = head->flags & WF_AGG_QUANTISED};
}

static bool agree(const wf_agg_called *a, const wf_agg_called *b)
{
    return (a->hash == b->hash && a->total == b->total &&
            a->count == b->count && a->call == b->call && a->type == b->type &&
            a->op == b->op && a->flags == b->flags) ||
           WF_AGG_MISTAKE(WF_AGG_ANY_CALL);
}

/* Rule 4. Nothing was ever in an EMPTY place, so its first chunk is known. */
static bool may_begin(const wf_agg_pool *pool, uint64_t chunk, uint32_t place)
{
    const wf_agg_place *here = &pool->place[place];
    const wf_agg_place *other = &pool->place[place ^ 1u];
    uint64_t slots = pool->shape.slots;
    bool next = here->state == WF_AGG_EMPTY ? chunk < 2 * slots
                                            : chunk == here->chunk + 2 * slots;

    return next && (chunk < slots || (other->state == WF_AGG_COMPLETE &&
                                      other->chunk == chunk - slots));
}

static void begin(wf_agg_place *p, const wf_agg_head *head)
{
    uint64_t seen = WF_AGG_MISTAKE(WF_AGG_SEEN_STAYS) ? p->seen[0] : 0;

    *p = (wf_agg_place){.chunk = head->chunk,
                        .seen = {seen},
                        .state = WF_AGG_FILLING,
                        .first = called_by(head)};
}

/* --- replies -------------------------------------------------------------- */

/* A reply of this kind about the chunk of `p`, in the words of its first part.
 */
static wf_agg_head reply_head(const wf_agg_pool *pool, uint32_t place,
                              wf_agg_kind kind)
{
    const wf_agg_place *p = &pool->place[place];

    return (wf_agg_head){.kind = (uint8_t)kind,
                         .flags = p->first.flags,
                         .version = (uint8_t)(place & 1),
                         .job = pool->shape.job,
                         .epoch = pool->shape.epoch,
                         .chunk = p->chunk,
                         .total = p->first.total,
                         .hash = p->first.hash,
                         .slot = (uint16_t)(place / 2),
                         .rank = WF_AGG_ALL,
                         .ranks = (uint16_t)pool->shape.ranks,
                         .count = p->first.count,
                         .call = p->first.call,
                         .type = p->first.type,
                         .op = p->first.op,
                         .lane = (uint8_t)pool->shape.lane};
}

static void reply_stored(const wf_agg_pool *pool, uint32_t place,
                         wf_agg_reply *reply)
{
    bool good = pool->place[place].state == WF_AGG_COMPLETE;

    reply->head =
        reply_head(pool, place, good ? WF_AGG_RESULT : WF_AGG_MISMATCH);
    reply->payload = result_at(pool, place);
}

static void reply_wait(const wf_agg_pool *pool, uint32_t place,
                       wf_agg_reply *reply)
{
    const wf_agg_place *p = &pool->place[place];

    reply->head = reply_head(pool, place, WF_AGG_WAIT);
    reply->head.rank = (uint16_t)first_missing(p, pool->shape.ranks);
    reply->head.count = (uint16_t)(pool->shape.ranks - p->arrived);
    reply->payload = NULL;
}

/* --- what is done with a part --------------------------------------------- */

/* Rule 5. The records take the place of a result. */
static void disagree(wf_agg_pool *pool, uint32_t place, const wf_agg_head *head)
{
    wf_agg_called records[2] = {pool->place[place].first, called_by(head)};

    memcpy(result_at(pool, place), records, sizeof(records));
    pool->place[place].state = WF_AGG_MISTAKE(WF_AGG_FORGETS_MISMATCH)
                                   ? WF_AGG_FILLING
                                   : WF_AGG_DISAGREES;
}

/* Rule 7. The head has shown that there is a kernel. The part of rank `last` is
 * at `payload`. */
static void reduce(wf_agg_pool *pool, uint32_t place, uint32_t last,
                   const void *payload)
{
    const wf_agg_head head = reply_head(pool, place, WF_AGG_RESULT);
    const uint32_t ranks = pool->shape.ranks;
    const void *part[WF_AGG_RANKS];
    void *dst = result_at(pool, place);
    wf_reducer reducer = {.fold = NULL};

    for (uint32_t r = 0; r < ranks; r++) {
        part[r] = part_at(pool, place / 2, r);
    }
    part[last] = payload;
    if ((head.flags & WF_AGG_QUANTISED) != 0) {
        wf_quantised_sum(part, ranks, wf_agg_numbers(&head), dst);
        return;
    }
    (void)wf_reducer_init(&reducer, (weft_dtype)head.type,
                          weft_op_of((weft_op_kind)head.op), ranks);
    reducer.fold(&reducer, &dst, 1, part, ranks, head.count);
}

static wf_agg_verdict keep(wf_agg_pool *pool, uint32_t place,
                           const wf_agg_head *head, const void *payload,
                           wf_agg_reply *reply)
{
    wf_agg_place *p = &pool->place[place];

    unsigned char *part = part_at(pool, place / 2, head->rank);
    bool last;

    p->seen[head->rank / 64] |= 1ull << head->rank % 64;
    p->arrived++;
    last =
        p->arrived + WF_AGG_MISTAKE(WF_AGG_COMPLETE_EARLY) >= pool->shape.ranks;
    /* The last one is reduced where it lies, if that can be read as numbers. */
    if (!last || (uintptr_t)payload % NUMBERS_ALIGNED != 0) {
        memcpy(part, payload, wf_agg_payload(head));
        payload = part;
    }
    if (!last) {
        return WF_AGG_KEPT;
    }
    reduce(pool, place, head->rank, payload);
    p->state = WF_AGG_COMPLETE;
    reply_stored(pool, place, reply);
    return WF_AGG_BROADCAST;
}

/* A part of the chunk that is there. */
static wf_agg_verdict add(wf_agg_pool *pool, uint32_t place,
                          const wf_agg_head *head, const void *payload,
                          wf_agg_reply *reply)
{
    wf_agg_place *p = &pool->place[place];
    wf_agg_called called = called_by(head);

    if (p->state == WF_AGG_FILLING && !agree(&p->first, &called)) {
        disagree(pool, place, head);
        reply_stored(pool, place, reply);
        return WF_AGG_BROADCAST;
    }
    if (p->state != WF_AGG_FILLING) {
        reply_stored(pool, place ^ WF_AGG_MISTAKE(WF_AGG_OTHER_ANSWER), reply);
        return WF_AGG_MISTAKE(WF_AGG_NO_ANSWER) ? WF_AGG_KEPT : WF_AGG_ANSWER;
    }
    if (has_part(p, head->rank) && !WF_AGG_MISTAKE(WF_AGG_COUNTS_TWICE)) {
        reply_wait(pool, place, reply);
        return WF_AGG_ANSWER;
    }
    return keep(pool, place, head, payload, reply);
}

/* Rule 2. */
static bool is_of(const wf_agg_shape *s, const wf_agg_head *head)
{
    return head->kind == WF_AGG_DATA && head->job == s->job &&
           (head->epoch == s->epoch || WF_AGG_MISTAKE(WF_AGG_ANY_EPOCH)) &&
           head->lane == s->lane && head->ranks == s->ranks &&
           head->slot == wf_agg_slot_of(head->chunk, s->slots) &&
           head->version == wf_agg_version_of(head->chunk, s->slots) &&
           wf_agg_payload(head) <= s->payload;
}

wf_agg_verdict wf_agg_take(wf_agg_pool *pool, const wf_agg_head *head,
                           const void *payload, wf_agg_reply *reply)
{
    uint32_t place = 2u * head->slot + head->version;
    wf_agg_place *p;

    if (!is_of(&pool->shape, head)) {
        return WF_AGG_DROPPED_STRANGE;
    }
    p = &pool->place[place];
    if (p->state != WF_AGG_EMPTY && head->chunk < p->chunk &&
        !WF_AGG_MISTAKE(WF_AGG_LATE_COUNTS)) {
        return WF_AGG_DROPPED_LATE;
    }
    if (p->state == WF_AGG_EMPTY || head->chunk > p->chunk) {
        if (!may_begin(pool, head->chunk, place)) {
            return WF_AGG_DROPPED_AHEAD;
        }
        begin(p, head);
        if (WF_AGG_MISTAKE(WF_AGG_CLEARS_EARLY)) {
            memset(result_at(pool, place ^ 1u), 0, pool->shape.payload);
        }
    }
    return add(pool, place, head, payload, reply);
}
