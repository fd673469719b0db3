/* SPDX-License-Identifier: Apache-2.0 */
#include "network.h"

#include <stdlib.h>

enum {
    LEAVES,  /* a message reaches its sender's link */
    REACHES, /* it reaches its receiver's link */
    COMES,   /* all of it is at the receiver's host */
    WAKES,   /* a rank looks around */
    LATER    /* whatever an actor wanted to happen */
};

/* What a processor moves at once between a link and memory: that much of a
 * message is on nobody's link while it is moved; the rest overlaps. */
#define PORTION 16384.0

/* --- life ----------------------------------------------------------------- */

void sim_init(sim *s, const sim_model *model, const sim_actor *actor,
              void *state)
{
    uint32_t hosts = sim_model_hosts(model);

    *s = (sim){.model = *model, .actor = actor, .state = state};
    s->hosts = hosts;
    s->rank = sim_alloc(model->ranks, sizeof(*s->rank));
    s->count = sim_alloc(model->ranks, sizeof(*s->count));
    s->out = sim_alloc(hosts, sizeof(*s->out));
    s->in = sim_alloc(hosts, sizeof(*s->in));
    s->links = sim_alloc(hosts, sizeof(*s->links));
    for (uint32_t i = 0; i < hosts; i++) {
        s->links[i] = 1;
    }
    s->cores = (uint32_t)model->cores;
    s->cpu = sim_alloc((size_t)hosts * s->cores, sizeof(*s->cpu));
}

void sim_fini(sim *s)
{
    for (sim_message *m = s->spare; m != NULL; m = s->spare) {
        s->spare = m->next;
        free(m);
    }
    free(s->rank);
    free(s->count);
    free(s->out);
    free(s->in);
    free(s->links);
    free(s->cpu);
    sim_pairs_fini(&s->pairs);
    sim_events_fini(&s->events);
}

/* --- messages ------------------------------------------------------------- */

sim_message *sim_message_new(sim *s, uint32_t from, uint32_t to)
{
    sim_message *m = s->spare;

    if (m != NULL) {
        s->spare = m->next;
    } else {
        m = sim_alloc(1, sizeof(*m));
    }
    *m = (sim_message){.from = from, .to = to};
    return m;
}

void sim_message_free(sim *s, sim_message *m)
{
    free(m->content);
    m->next = s->spare;
    s->spare = m;
}

void sim_count_sent(sim *s, uint32_t from, uint32_t to, uint64_t bytes)
{
    sim_count *c = &s->count[from];

    c->sent++;
    c->sent_bytes += bytes;
    if (!sim_near(s, from, to)) {
        c->far_bytes += bytes;
        if (sim_pairs_add(&s->pairs, from, to)) {
            c->endpoints++;
            s->count[to].endpoints++;
        }
    }
}

void sim_count_received(sim *s, uint32_t rank, uint64_t bytes)
{
    s->count[rank].received++;
    s->count[rank].received_bytes += bytes;
}

/* --- processors ----------------------------------------------------------- */

/* The first core to be free of those that the rank may run on; or its own, if
 * it is pinned. NULL: there are enough. */
static sim_time *core_for(const sim *s, uint32_t rank)
{
    uint32_t host =
        s->model.one_machine > 0 ? 0 : sim_model_host(&s->model, rank);
    sim_time *cpu = &s->cpu[(size_t)host * s->cores];
    sim_time *best = s->cores > 0 ? cpu : NULL;

    if (s->cores > 0 && s->model.pinned > 0) {
        return &cpu[rank % s->cores];
    }
    for (uint32_t i = 1; i < s->cores; i++) {
        best = cpu[i] < *best ? &cpu[i] : best;
    }
    return best;
}

/* The processor moves `bytes` between memory and a link. What is beside the
 * message's way keeps the core from others all the same. */
static void move(sim *s, uint64_t bytes)
{
    double rate = s->model.touch;
    double all = (double)bytes;
    double last = all < PORTION ? all : PORTION;

    if (rate > 0) {
        sim_work(s, last / rate);
        s->owed += sim_seconds((all - last) / rate);
    }
}

static void pay_to_receive(sim *s, const sim_message *m)
{
    if (sim_near(s, m->from, m->to)) {
        sim_work(s, s->model.local_send + (double)m->bytes / s->model.copy);
    } else {
        sim_work(s, s->model.receive);
        if (s->model.ack > 0 && !sim_pairs_heard(&s->pairs, m->to, m->from)) {
            sim_work(s, s->model.ack);
        }
        if ((double)m->bytes > s->model.segment) {
            sim_work(s, s->model.longer);
        }
        move(s, m->bytes);
    }
}

void sim_wake(sim *s, uint32_t rank, sim_time at)
{
    sim_rank *r = &s->rank[rank];

    at = at > r->free ? at : r->free;
    at = at > 0 ? at : 1;
    if (r->waking == 0 || at < r->waking) {
        r->waking = at;
        sim_events_add(&s->events, at, WAKES, rank, NULL);
    }
}

void sim_later(sim *s, sim_time at, uint32_t about)
{
    sim_events_add(&s->events, at, LATER, about, NULL);
}

static void look(sim *s, uint32_t rank)
{
    sim_rank *r = &s->rank[rank];

    r->waking = 0;
    if (s->model.wake > 0 && s->now > r->free + sim_seconds(s->model.spin)) {
        sim_work(s, s->model.wake);
    }
    while (r->first != NULL) {
        sim_message *m = r->first;

        r->first = m->next;
        pay_to_receive(s, m);
        if (s->actor->arrived(s, rank, m)) {
            sim_message_free(s, m);
        }
    }
    sim_work(s, s->model.step);
    s->actor->step(s, rank);
    r->free = s->now;
}

static void on_wake(sim *s, uint32_t rank)
{
    sim_rank *r = &s->rank[rank];
    sim_time *core = core_for(s, rank);

    if (r->waking != s->now) {
        return; /* it was told to look earlier, and has */
    }
    if (core != NULL && *core > s->now) {
        r->waking = *core;
        sim_events_add(&s->events, *core, WAKES, rank, NULL);
        return;
    }
    s->owed = 0;
    look(s, rank);
    if (core != NULL) {
        *core = s->now + s->owed;
    }
}

/* --- links ---------------------------------------------------------------- */

static sim_time duration(const sim *s, const sim_message *m, double rate)
{
    return sim_seconds(((double)m->bytes + s->model.header) / rate);
}

/* Take `length` of a link that is in use until `*until`: when it begins. A
 * token bucket has saved up to `credit` for a message that comes now. */
static sim_time take(sim_time *until, sim_time now, sim_time length,
                     sim_time credit)
{
    sim_time early = now > credit ? now - credit : 0;
    sim_time begins = *until > early ? *until : early;

    *until = begins + length;
    return begins;
}

static void on_leave(sim *s, sim_message *m)
{
    const sim_model *p = &s->model;
    uint32_t host = sim_model_host(p, m->from);
    sim_time length = duration(s, m, p->bandwidth * s->links[host]);
    sim_time begins = take(&s->out[host], s->now, length,
                           sim_seconds(p->burst / p->bandwidth));
    sim_time reaches = begins > s->now ? begins : s->now;

    if (p->oversubscription > 1) {
        double rate = p->bandwidth * s->hosts / p->oversubscription;

        reaches = take(&s->core, reaches, duration(s, m, rate), 0);
    }
    sim_events_add(&s->events, reaches + sim_seconds(p->latency), REACHES, 0,
                   m);
}

static void on_reach(sim *s, sim_message *m)
{
    uint32_t host = sim_model_host(&s->model, m->to);
    sim_time length = duration(s, m, s->model.bandwidth * s->links[host]);
    sim_time credit = sim_seconds(s->model.burst / s->model.bandwidth);
    sim_time comes = take(&s->in[host], s->now, length, credit) + length;

    sim_events_add(&s->events, comes > s->now ? comes : s->now, COMES, 0, m);
}

/* A processor hands a message to the link first, and then sees to it that the
 * link always has something to send. */
void sim_post(sim *s, sim_message *m)
{
    if (sim_near(s, m->from, m->to)) {
        sim_work(s, s->model.local_send + (double)m->bytes / s->model.copy);
        sim_events_add(&s->events, s->now + sim_seconds(s->model.local_latency),
                       COMES, 0, m);
        return;
    }
    sim_work(s, s->model.send);
    if (s->model.ack > 0) {
        sim_pairs_said(&s->pairs, m->from, m->to);
    }
    sim_events_add(&s->events, s->now, LEAVES, 0, m);
    move(s, m->bytes);
}

static void on_come(sim *s, sim_message *m)
{
    sim_rank *r = &s->rank[m->to];

    m->next = NULL;
    if (r->first == NULL) {
        r->first = m;
    } else {
        r->last->next = m;
    }
    r->last = m;
    sim_wake(s, m->to, s->now);
}

/* --- all of it ------------------------------------------------------------ */

void sim_run(sim *s)
{
    sim_event e;

    for (uint32_t r = 0; r < s->model.ranks; r++) {
        sim_wake(s, r, 0);
    }
    while (sim_events_next(&s->events, &e)) {
        s->now = e.at;
        s->happened++;
        switch (e.what) {
        case LEAVES:
            on_leave(s, e.about);
            break;
        case REACHES:
            on_reach(s, e.about);
            break;
        case COMES:
            on_come(s, e.about);
            break;
        case LATER:
            s->actor->later(s, e.who);
            break;
        default:
            on_wake(s, e.who);
        }
    }
}
