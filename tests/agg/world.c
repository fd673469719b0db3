/* SPDX-License-Identifier: Apache-2.0 */
/* The switch and the network. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/call.h"

int wf_agg_mistake_made;
const char *world_fault;
uint64_t world_verdicts[WF_AGG_VERDICTS];

enum { EPOCH = 2, PAYLOAD = 64, STALE = 0xff };

void world_fail(const char *what)
{
    if (world_fault == NULL) {
        world_fault = what;
    }
}

/* --- the network ---------------------------------------------------------- */

void world_send(world *w, flight f)
{
    unsigned at = w->flights;

    if (w->flights == FLIGHT) {
        world_fail("too many packets are on their way");
        return;
    }
    for (; at > 0 && memcmp(&w->flight[at - 1], &f, sizeof(f)) > 0; at--) {
        w->flight[at] = w->flight[at - 1];
    }
    w->flight[at] = f;
    w->flights++;
}

static flight take_off(world *w, unsigned i)
{
    flight f = w->flight[i];

    w->flights--;
    memmove(&w->flight[i], &w->flight[i + 1],
            (w->flights - i) * sizeof(w->flight[0]));
    memset(&w->flight[w->flights], 0, sizeof(w->flight[0]));
    return f;
}

/* --- the switch ----------------------------------------------------------- */

/* Its pool, made of the packed state. */
typedef struct rig {
    wf_agg_pool pool;
    _Alignas(64) unsigned char memory[4096];
} rig;

static wf_agg_called called(const plan *p, unsigned rank)
{
    return (wf_agg_called){.total = 1,
                           .hash = hash_of(p, rank),
                           .rank = (uint16_t)rank,
                           .count = 1,
                           .call = WF_CALL_ALLREDUCE,
                           .type = WEFT_I32,
                           .op = WEFT_OP_SUM};
}

static void unpack(const plan *p, const world *w, rig *r)
{
    const wf_agg_shape shape = {.job = 1,
                                .epoch = EPOCH,
                                .ranks = p->ranks,
                                .slots = p->slots,
                                .payload = PAYLOAD};

    if (wf_agg_pool_bytes(&shape) > sizeof(r->memory)) {
        abort();
    }
    wf_agg_pool_init(&r->pool, &shape, r->memory);
    for (unsigned i = 0; i < 2 * p->slots; i++) {
        const place_state *from = &w->place[i];

        r->pool.place[i] = (wf_agg_place){.chunk = from->chunk,
                                          .seen = {from->seen},
                                          .arrived = from->arrived,
                                          .state = from->state,
                                          .first = called(p, from->first)};
        memcpy(r->pool.result + (size_t)i * PAYLOAD, &from->result, 4);
    }
    for (unsigned i = 0; i < p->slots * p->ranks; i++) {
        memcpy(r->pool.part + (size_t)i * PAYLOAD,
               &w->part[i / p->ranks][i % p->ranks], 4);
    }
}

static void pack(const plan *p, const rig *r, world *w)
{
    for (unsigned i = 0; i < 2 * p->slots; i++) {
        const wf_agg_place *from = &r->pool.place[i];
        place_state *to = &w->place[i];

        *to = (place_state){.chunk = (uint8_t)from->chunk,
                            .seen = (uint8_t)from->seen[0],
                            .arrived = (uint8_t)from->arrived,
                            .state = (uint8_t)from->state,
                            .first = (uint8_t)from->first.rank};
        if (from->state == WF_AGG_COMPLETE) {
            memcpy(&to->result, r->pool.result + (size_t)i * PAYLOAD, 4);
        }
    }
    for (unsigned i = 0; i < p->slots * p->ranks; i++) {
        unsigned slot = i / p->ranks;
        bool filling = r->pool.place[2 * slot].state == WF_AGG_FILLING ||
                       r->pool.place[2 * slot + 1].state == WF_AGG_FILLING;

        memcpy(&w->part[slot][i % p->ranks], r->pool.part + (size_t)i * PAYLOAD,
               4);
        if (!filling) {
            w->part[slot][i % p->ranks] = 0;
        }
    }
}

static wf_agg_head head_of(const plan *p, const flight *f)
{
    return (wf_agg_head){.kind = WF_AGG_DATA,
                         .version =
                             (uint8_t)wf_agg_version_of(f->chunk, p->slots),
                         .job = 1,
                         .epoch = EPOCH - f->old,
                         .chunk = f->chunk,
                         .total = 1,
                         .hash = hash_of(p, f->rank),
                         .slot = (uint16_t)wf_agg_slot_of(f->chunk, p->slots),
                         .rank = f->rank,
                         .ranks = (uint16_t)p->ranks,
                         .count = 1,
                         .call = WF_CALL_ALLREDUCE,
                         .type = WEFT_I32,
                         .op = WEFT_OP_SUM};
}

/* What ranks send is right; so nothing else than an old epoch is strange. */
static void check_verdict(const flight *f, wf_agg_verdict verdict)
{
    world_verdicts[verdict]++;
    if (verdict == WF_AGG_DROPPED_AHEAD) {
        world_fail("a chunk was sent before its turn");
    }
    if ((verdict == WF_AGG_DROPPED_STRANGE) != (f->old != 0)) {
        world_fail(f->old ? "a replay was taken" : "a packet was strange");
    }
}

static void reply(const plan *p, world *w, const wf_agg_reply *out,
                  unsigned first, unsigned last)
{
    flight f = {.kind = out->head.kind, .chunk = (uint8_t)out->head.chunk};

    (void)p;
    if (f.kind == WF_AGG_RESULT) {
        memcpy(&f.value, out->payload, 4);
    }
    for (unsigned r = first; r <= last; r++) {
        f.rank = (uint8_t)r;
        world_send(w, f);
    }
}

static void switch_take(const plan *p, world *w, const flight *f)
{
    wf_agg_head head = head_of(p, f);
    uint32_t value = f->old ? STALE : part_of(f->rank, f->chunk);
    unsigned char payload[PAYLOAD] = {0};
    wf_agg_reply out;
    wf_agg_verdict verdict;
    rig r;

    memcpy(payload, &value, sizeof(value));
    unpack(p, w, &r);
    verdict = wf_agg_take(&r.pool, &head, payload, &out);
    check_verdict(f, verdict);
    pack(p, &r, w);
    if (verdict == WF_AGG_ANSWER) {
        reply(p, w, &out, f->rank, f->rank);
    } else if (verdict == WF_AGG_BROADCAST) {
        reply(p, w, &out, 0, p->ranks - 1);
    }
}

/* --- actions -------------------------------------------------------------- */

void world_init(const plan *p, world *w)
{
    memset(w, 0, sizeof(*w));
    w->losses = (uint8_t)p->losses;
    w->repeats = (uint8_t)p->repeats;
    for (unsigned r = 0; r < p->ranks; r++) {
        rank_init(p, w, r);
        if (p->replay) {
            world_send(
                w, (flight){.kind = WF_AGG_DATA, .rank = (uint8_t)r, .old = 1});
        }
    }
}

static void deliver(const plan *p, world *w, const flight *f)
{
    if (f->kind == WF_AGG_DATA) {
        switch_take(p, w, f);
    } else {
        rank_take(p, w, f);
    }
}

static bool expire(const plan *p, world *w, unsigned rank)
{
    rank_state *s = &w->rank[rank];

    if (rank >= p->ranks || s->timeouts == 0 || s->told != 0 ||
        rank_is_done(p, s)) {
        return false;
    }
    s->timeouts--;
    rank_expire(p, w, rank);
    return true;
}

/* Of equal packets the first one stands for all. */
static bool stands(const world *w, unsigned i)
{
    return i < w->flights && (i == 0 || memcmp(&w->flight[i - 1], &w->flight[i],
                                               sizeof(flight)) != 0);
}

bool world_act(const plan *p, world *w, unsigned action)
{
    unsigned i =
        action < ACT_DELIVER ? action : (action - ACT_DELIVER) % FLIGHT;
    flight f;

    if (action < ACT_DELIVER) {
        return expire(p, w, i);
    }
    if (!stands(w, i) ||
        (action >= ACT_LOSE && action < ACT_REPEAT && w->losses == 0) ||
        (action >= ACT_REPEAT && w->repeats == 0)) {
        return false;
    }
    if (action >= ACT_REPEAT) {
        w->repeats--;
        f = w->flight[i];
    } else {
        f = take_off(w, i);
    }
    if (action >= ACT_LOSE && action < ACT_REPEAT) {
        w->losses--;
    } else {
        deliver(p, w, &f);
    }
    return true;
}

void world_say_action(const world *w, unsigned action)
{
    static const char *const kinds[] = {"", "part", "result", "wait",
                                        "mismatch"};
    const flight *f;

    if (action < ACT_DELIVER) {
        printf("the timeout of rank %u expires\n", action);
        return;
    }
    f = &w->flight[(action - ACT_DELIVER) % FLIGHT];
    printf("%s %s%s of chunk %u %s rank %u\n",
           action < ACT_LOSE     ? "deliver"
           : action < ACT_REPEAT ? "lose"
                                 : "repeat",
           f->old ? "old " : "", kinds[f->kind], f->chunk,
           f->kind == WF_AGG_DATA ? "of" : "for", f->rank);
}

bool world_is_done(const plan *p, const world *w)
{
    for (unsigned r = 0; r < p->ranks; r++) {
        bool done =
            p->odd ? w->rank[r].told != 0 : rank_is_done(p, &w->rank[r]);
        if (!done) {
            return false;
        }
    }
    return true;
}

void world_finish(const plan *p, const world *w)
{
    world now = *w;

    for (unsigned round = 0; round < 64 && !world_is_done(p, &now); round++) {
        for (unsigned r = 0; r < p->ranks; r++) {
            now.rank[r].timeouts = 1;
            expire(p, &now, r);
        }
        while (now.flights > 0 && world_fault == NULL) {
            flight f = take_off(&now, 0);
            deliver(p, &now, &f);
        }
    }
    if (!world_is_done(p, &now)) {
        world_fail("it never ends, though nothing is lost any more");
    }
}
