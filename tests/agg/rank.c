/* SPDX-License-Identifier: Apache-2.0 */
/* A rank: the window of src/agg, and what it must keep. */
#include <string.h>

#include "world.h"

/* The window is made of the packed state, used and packed again. All happens at
 * time 0, when no timeout has expired, or at time 1, when all have. */
typedef struct rank_window {
    wf_agg_window w;
    wf_agg_window_chunk entry[SLOTS];
} rank_window;

static void unpack(const plan *p, const rank_state *s, rank_window *r)
{
    const wf_agg_window_config config = {
        .slots = p->slots, .limit = p->slots, .least_ns = 1, .most_ns = 1};

    wf_agg_window_init(&r->w, &config, r->entry);
    r->w.begin = s->begin;
    r->w.end = s->end;
    r->w.next = s->next;
    r->w.first = s->first;
    r->w.check_ns = 1;
    r->w.quiet = s->quiet != 0;
    for (unsigned i = 0; i < p->slots; i++) {
        const entry_state *e = &s->entry[i];

        r->entry[i].sends = e->sends;
        r->entry[i].later = e->later;
        r->entry[i].held = e->held != 0;
        r->entry[i].order = e->order;
        r->w.under_way += e->sends != 0;
    }
    r->w.packets = SLOTS;
}

/* Only the order of those under way matters. */
static uint8_t order_of(const rank_window *r, unsigned slots, unsigned i)
{
    uint8_t order = 0;

    for (unsigned k = 0; k < slots; k++) {
        order = (uint8_t)(order + (r->entry[k].sends != 0 &&
                                   r->entry[k].order < r->entry[i].order));
    }
    return order;
}

static void pack(const plan *p, const rank_window *r, rank_state *s)
{
    s->begin = (uint8_t)r->w.begin;
    s->end = (uint8_t)r->w.end;
    s->next = (uint8_t)r->w.next;
    s->first = (uint8_t)r->w.first;
    s->quiet = r->w.quiet;
    for (unsigned i = 0; i < p->slots; i++) {
        const wf_agg_window_chunk *c = &r->entry[i];

        s->entry[i] = (entry_state){.sends = 0};
        if (c->sends != 0) {
            s->entry[i] =
                (entry_state){.sends = (uint8_t)(c->sends > 2 ? 2 : c->sends),
                              .later = (uint8_t)(c->later > WF_AGG_WINDOW_GAP
                                                     ? WF_AGG_WINDOW_GAP
                                                     : c->later),
                              .held = c->held,
                              .order = order_of(r, p->slots, i)};
        }
    }
}

bool rank_is_done(const plan *p, const rank_state *s)
{
    return s->call == CALLS || p->calls[s->call] == 0;
}

static void begin_call(const plan *p, rank_state *s, rank_window *r)
{
    if (!rank_is_done(p, s)) {
        wf_agg_window_call(&r->w, p->calls[s->call], 0);
    }
}

/* Send all that may be sent now, and go on to the next call where one is over.
 * A call that gave no result for a chunk must not be over. */
static void go_on(const plan *p, world *w, unsigned rank, rank_window *r,
                  uint64_t now)
{
    rank_state *s = &w->rank[rank];
    uint64_t chunk;
    bool again;

    while (!rank_is_done(p, s) && s->told == 0) {
        while (wf_agg_window_send(&r->w, now, &chunk, &again)) {
            world_send(w, (flight){.kind = WF_AGG_DATA,
                                   .rank = (uint8_t)rank,
                                   .chunk = (uint8_t)chunk});
        }
        if (!wf_agg_window_is_over(&r->w)) {
            break;
        }
        if (s->written != (1u << r->w.end) - 1) {
            world_fail("a call ended without some of its results");
        }
        s->call++;
        begin_call(p, s, r);
    }
    pack(p, r, s);
}

void rank_init(const plan *p, world *w, unsigned rank)
{
    rank_window r;

    unpack(p, &w->rank[rank], &r);
    w->rank[rank].timeouts = (uint8_t)p->timeouts;
    begin_call(p, &w->rank[rank], &r);
    go_on(p, w, rank, &r, 0);
}

void rank_expire(const plan *p, world *w, unsigned rank)
{
    rank_window r;

    unpack(p, &w->rank[rank], &r);
    go_on(p, w, rank, &r, 1);
}

static uint32_t expected(const plan *p, unsigned chunk)
{
    uint32_t sum = 0;

    for (unsigned i = 0; i < p->ranks; i++) {
        sum += part_of(i, chunk);
    }
    return sum;
}

static void write_result(const plan *p, rank_state *s, const flight *f)
{
    if (p->odd) {
        world_fail("different calls gave a result");
    }
    if ((s->written >> f->chunk & 1) != 0) {
        world_fail("a result was written twice");
    }
    if (f->value != expected(p, f->chunk)) {
        world_fail("a result is wrong");
    }
    s->written |= 1u << f->chunk;
}

void rank_take(const plan *p, world *w, const flight *f)
{
    rank_state *s = &w->rank[f->rank];
    rank_window r;

    unpack(p, s, &r);
    if (f->kind == WF_AGG_MISMATCH) {
        s->told = 1;
    } else if (f->kind == WF_AGG_WAIT) {
        wf_agg_window_held(&r.w, f->chunk, 0);
    } else {
        switch (wf_agg_window_result(&r.w, f->chunk, 0)) {
        case WF_AGG_WINDOW_NEW:
            write_result(p, s, f);
            break;
        case WF_AGG_WINDOW_STRANGE:
            world_fail("a result came of a chunk that was never sent");
            break;
        case WF_AGG_WINDOW_OLD:
            break;
        }
    }
    go_on(p, w, f->rank, &r, 0);
}
