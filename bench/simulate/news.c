/* SPDX-License-Identifier: Apache-2.0 */
/* Deaths and heartbeats: who tells whom is what comm/gossip.c says, as
 * comm/beat.c uses it. The lowest living rank of a node speaks for it. It tells
 * two ranks of each neighbour what is new; who hears something new writes it on
 * the board of its node, and the one that speaks there passes it on. */
#include <stdlib.h>
#include <string.h>

#include "comm/control.h"
#include "control.h"

/* As in comm/beat.c. */
enum { LISTENERS = 2, PARTS = WF_AM_PAYLOAD_MAX / sizeof(wf_gone) };

typedef struct plane {
    uint32_t dead; /* the first ranks of node 0 */
    sim_time every;
    wf_gossip *gossip; /* by node: all ranks of one know the same */
} plane;

static void no_memory(weft_status st)
{
    if (st != WEFT_OK) {
        fprintf(stderr, "simulate: %s\n", weft_error_detail());
        exit(1);
    }
}

/* Nodes share what never changes. */
static void share_gossip(wf_gossip *g, const wf_gossip *first, uint32_t node)
{
    *g = *first;
    g->node = node;
    g->living = sim_alloc(g->nodes, sizeof(*g->living));
    g->state = sim_alloc(g->ranks, sizeof(*g->state));
    g->told = sim_alloc(g->ranks, sizeof(*g->told));
    memcpy(g->living, first->living, g->nodes * sizeof(*g->living));
    memcpy(g->state, first->state, g->ranks * sizeof(*g->state));
}

static void plane_init(plane *p, const sim *s)
{
    uint32_t ranks = s->model.ranks;
    uint32_t *node_of = sim_alloc(ranks, sizeof(*node_of));

    for (uint32_t r = 0; r < ranks; r++) {
        node_of[r] = sim_model_host(&s->model, r);
    }
    p->gossip = sim_alloc(s->hosts, sizeof(*p->gossip));
    no_memory(wf_gossip_init(&p->gossip[0], node_of, ranks, s->hosts, 0));
    for (uint32_t n = 1; n < s->hosts; n++) {
        share_gossip(&p->gossip[n], &p->gossip[0], n);
    }
    free(node_of);
}

static void plane_fini(plane *p, const sim *s)
{
    for (uint32_t n = 1; n < s->hosts; n++) {
        free(p->gossip[n].living);
        free(p->gossip[n].state);
        free(p->gossip[n].told);
    }
    wf_gossip_fini(&p->gossip[0]);
    free(p->gossip);
}

static wf_gossip *gossip_of(const sim *s, uint32_t rank)
{
    const plane *p = s->state;

    return &p->gossip[sim_model_host(&s->model, rank)];
}

static bool speaks(const sim *s, uint32_t rank)
{
    const wf_gossip *g = gossip_of(s, rank);

    return wf_gossip_living(g, g->node, 0) == rank;
}

/* To the first two of each neighbour. */
static void tell_neighbours(sim *s, uint32_t rank, uint64_t bytes,
                            uint64_t letters)
{
    const wf_gossip *g = gossip_of(s, rank);
    uint32_t neighbour[WF_GOSSIP_NEIGHBOURS];
    uint32_t count = wf_gossip_neighbours(g, neighbour);

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < LISTENERS; k++) {
            uint32_t to = wf_gossip_living(g, neighbour[i], k);

            if (to != WF_GOSSIP_NOBODY) {
                sim_mail(s, rank, to, 0, bytes, letters);
            }
        }
    }
}

/* --- news ----------------------------------------------------------------- */

static void tell_news(sim *s, uint32_t rank)
{
    wf_gossip *g = gossip_of(s, rank);
    wf_gone part[PARTS];
    uint64_t letters = 0;
    uint64_t bytes = 0;
    uint32_t from = 0;
    size_t n;

    if (g->untold == 0) {
        return;
    }
    do {
        n = wf_gossip_list(g, true, &from, part, PARTS);
        bytes += sizeof(wf_plane_head) + n * sizeof(*part);
        letters++;
    } while (n == PARTS);
    tell_neighbours(s, rank, bytes, letters);
    wf_gossip_told(g);
}

/* On the board; all ranks of the node see it. */
static void hear(sim *s, uint32_t rank)
{
    const plane *p = s->state;
    wf_gossip *g = gossip_of(s, rank);
    bool news = false;

    for (uint32_t r = 0; r < p->dead; r++) {
        news |= wf_gossip_note(g, r, WF_BOARD_DEAD);
    }
    for (uint32_t i = g->start[g->node]; news && i < g->start[g->node + 1];
         i++) {
        s->count[g->member[i]].ended = s->now;
    }
    if (speaks(s, rank)) {
        tell_news(s, rank);
    }
}

static bool news_arrived(sim *s, uint32_t rank, sim_message *m)
{
    (void)m;
    hear(s, rank);
    return true;
}

/* The mates of the dead find out first; a node that died as a whole is noticed
 * by the next one. */
static void news_step(sim *s, uint32_t rank)
{
    const plane *p = s->state;

    if (rank == p->dead) {
        hear(s, rank);
    }
}

static const sim_actor news_actor = {news_arrived, news_step, NULL};

/* Beside what it knows of each rank as a member of the job. */
static uint64_t plane_memory(const sim *s)
{
    uint64_t rank = sizeof(uint32_t) * 2 + sizeof(uint8_t) + sizeof(bool) +
                    sizeof(uint64_t);
    uint64_t node = sizeof(uint32_t) * 2 + sizeof(uint64_t) + sizeof(bool);

    return s->model.ranks * rank + s->hosts * node;
}

void sim_news(const sim_model *model, const sim_control *control,
              sim_result *out)
{
    plane p = {.dead = control->dead < model->per_host ? control->dead
                                                       : model->per_host};
    sim s;

    sim_init(&s, model, &news_actor, &p);
    plane_init(&p, &s);
    sim_control_run(&s, "gossip", model->ranks, out);
    for (uint32_t r = 0; r < model->ranks; r++) {
        s.count[r].memory = plane_memory(&s);
        out->stuck += r >= p.dead && gossip_of(&s, r)->gone != p.dead;
    }
    out->summary = sim_summarize(s.count, model->ranks);
    plane_fini(&p, &s);
    sim_fini(&s);
}

/* --- heartbeats ----------------------------------------------------------- */

static bool idle_arrived(sim *s, uint32_t rank, sim_message *m)
{
    (void)s;
    (void)rank;
    (void)m;
    return true;
}

/* As comm/vigil.h has it while nobody is alert. */
static void beat(sim *s, uint32_t rank)
{
    const wf_gossip *g = gossip_of(s, rank);
    uint32_t beside[WF_GOSSIP_NEIGHBOURS];
    uint32_t count = wf_gossip_beside(g, beside);

    for (uint32_t i = 0; i < count; i++) {
        sim_mail(s, rank, wf_gossip_living(g, beside[i], 0), 0,
                 sizeof(wf_plane_head), 1);
    }
}

static void idle_step(sim *s, uint32_t rank)
{
    const plane *p = s->state;
    uint64_t due = (uint64_t)s->now / p->every + 1;

    if (!speaks(s, rank) || s->now >= sim_seconds(1)) {
        return;
    }
    /* `memory` counts the beats so far. */
    if (s->count[rank].memory < due) {
        s->count[rank].memory = due;
        beat(s, rank);
    }
    sim_wake(s, rank, due * p->every);
}

static const sim_actor idle_actor = {idle_arrived, idle_step, NULL};

void sim_idle(const sim_model *model, const sim_control *control,
              sim_result *out)
{
    plane p = {.every = sim_seconds(control->every)};
    sim s;

    sim_init(&s, model, &idle_actor, &p);
    plane_init(&p, &s);
    sim_control_run(&s, "gossip", model->ranks, out);
    for (uint32_t r = 0; r < model->ranks; r++) {
        const sim_count *c = &s.count[r];

        s.count[r].memory = sim_rank_memory(model->ranks) + plane_memory(&s);
        s.count[r].ended = sim_seconds((double)c->sent * model->send +
                                       (double)c->received * model->receive);
    }
    out->summary = sim_summarize(s.count, model->ranks);
    plane_fini(&p, &s);
    sim_fini(&s);
}
