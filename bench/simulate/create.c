/* SPDX-License-Identifier: Apache-2.0 */
/* Making a communicator: what the first member tells goes down, what members
 * answer goes up; and the first member of each node mails its mates the memory
 * that they share. Today the first member mails everybody; along a tree,
 * members pass it on. */
#include <stdlib.h>

#include "control.h"
#include "mem/host.h"

enum { WISH, WISHES, TICKET, SEGMENT, REPLY, VERDICT };

/* Bytes of mail, as in comm/group.c and comm/build.c, when all goes well. */
enum { WISH_BYTES = 24, TICKET_BYTES = 17, REPLY_BYTES = 5 };

typedef struct creation {
    bool tree;
    uint32_t colours; /* rank r has colour r % colours */
    bool splits;
    uint32_t *heard;
    uint8_t *tickets; /* that have come: the leader's, the node's */
} creation;

/* A group: every `step`-th rank from `first` on. */
typedef struct group {
    uint32_t first;
    uint32_t step;
    uint32_t size;
} group;

static group all_of(const sim *s)
{
    return (group){0, 1, s->model.ranks};
}

static group own_of(const sim *s, uint32_t rank)
{
    const creation *c = s->state;
    uint32_t first = rank % c->colours;

    return (group){first, c->colours,
                   (s->model.ranks - first + c->colours - 1) / c->colours};
}

static uint32_t number_in(group g, uint32_t rank)
{
    return (rank - g.first) / g.step;
}

/* --- who passes on to whom ------------------------------------------------ */

static uint32_t parent_of(const creation *c, uint32_t number)
{
    return c->tree ? number & (number - 1) : 0;
}

/* The i-th child's number; 0: there are not so many. */
static uint32_t child_of(const creation *c, group g, uint32_t number,
                         uint32_t i)
{
    uint64_t child = c->tree ? number + ((uint64_t)1 << i) : i + 1;
    bool is = c->tree ? number == 0 || child - number < (number & -number)
                      : number == 0;

    return is && child < g.size ? (uint32_t)child : 0;
}

static uint32_t children_of(const creation *c, group g, uint32_t number)
{
    uint32_t n = 0;

    if (!c->tree) {
        return number == 0 ? g.size - 1 : 0;
    }
    while (child_of(c, g, number, n) != 0) {
        n++;
    }
    return n;
}

/* Members below `number` and itself. */
static uint32_t subtree_of(const creation *c, group g, uint32_t number)
{
    uint32_t whole = c->tree ? number & -number : 1;

    return number == 0               ? g.size
           : g.size - number < whole ? g.size - number
                                     : whole;
}

static void pass_down(sim *s, group g, uint32_t rank, uint32_t kind,
                      uint64_t bytes, uint64_t letters)
{
    const creation *c = s->state;
    uint32_t number = number_in(g, rank);

    for (uint32_t i = 0; child_of(c, g, number, i) != 0; i++) {
        uint32_t child = child_of(c, g, number, i);

        sim_mail(s, rank, g.first + child * g.step, kind, bytes, letters);
    }
}

/* One more is ready; true if all below and the rank itself are. */
static bool all_ready(sim *s, group g, uint32_t rank)
{
    creation *c = s->state;

    c->heard[rank]++;
    if (c->heard[rank] <= children_of(c, g, number_in(g, rank))) {
        return false;
    }
    c->heard[rank] = 0;
    return true;
}

static void answer(sim *s, group g, uint32_t rank, uint32_t kind,
                   uint64_t bytes)
{
    uint32_t up = parent_of(s->state, number_in(g, rank));

    sim_mail(s, rank, g.first + up * g.step, kind, bytes, 1);
}

/* --- the steps ------------------------------------------------------------ */

static void see_verdict(sim *s, uint32_t rank)
{
    pass_down(s, own_of(s, rank), rank, VERDICT, REPLY_BYTES, 1);
    s->count[rank].ended = s->now;
}

static void see_reply(sim *s, uint32_t rank)
{
    group g = own_of(s, rank);

    if (!all_ready(s, g, rank)) {
        return;
    }
    if (number_in(g, rank) == 0) {
        see_verdict(s, rank);
    } else {
        answer(s, g, rank, REPLY, REPLY_BYTES);
    }
}

/* The first member of a group on the node of a rank. */
static uint32_t node_first(const sim *s, group g, uint32_t rank)
{
    uint32_t from = rank / s->model.per_host * s->model.per_host;

    return from <= g.first
               ? g.first
               : g.first + (from - g.first + g.step - 1) / g.step * g.step;
}

static void see_segment(sim *s, uint32_t rank)
{
    creation *c = s->state;
    group g = own_of(s, rank);
    uint32_t first = node_first(s, g, rank);
    /* One ticket does both for the leader's mates. */
    uint32_t needed = first == g.first || rank == first ? 1 : 2;

    if (++c->tickets[rank] == needed) {
        see_reply(s, rank);
    }
}

static void see_ticket(sim *s, uint32_t rank)
{
    group g = own_of(s, rank);

    pass_down(s, g, rank, TICKET, TICKET_BYTES, 1);
    if (rank != g.first && rank == node_first(s, g, rank)) {
        for (uint32_t r = rank + g.step;
             r < s->model.ranks && sim_near(s, r, rank); r += g.step) {
            sim_mail(s, rank, r, SEGMENT, TICKET_BYTES, 1);
        }
    }
    see_segment(s, rank);
}

static void see_wishes(sim *s, uint32_t rank)
{
    uint64_t bytes = (uint64_t)s->model.ranks * WISH_BYTES;
    uint64_t a_letter = WF_MAIL_MAX / WISH_BYTES * WISH_BYTES;

    pass_down(s, all_of(s), rank, WISHES, bytes,
              (bytes + a_letter - 1) / a_letter);
    if (number_in(own_of(s, rank), rank) == 0) {
        see_ticket(s, rank);
    }
}

static void see_wish(sim *s, uint32_t rank)
{
    group g = all_of(s);

    if (!all_ready(s, g, rank)) {
        return;
    }
    if (rank == 0) {
        see_wishes(s, rank);
    } else {
        answer(s, g, rank, WISH,
               (uint64_t)subtree_of(s->state, g, rank) * WISH_BYTES);
    }
}

static bool create_arrived(sim *s, uint32_t rank, sim_message *m)
{
    sim_work(s, (double)(m->tag - 1) * s->model.receive);
    switch (m->kind) {
    case WISH:
        see_wish(s, rank);
        break;
    case WISHES:
        see_wishes(s, rank);
        break;
    case TICKET:
        see_ticket(s, rank);
        break;
    case SEGMENT:
        see_segment(s, rank);
        break;
    case REPLY:
        see_reply(s, rank);
        break;
    default:
        see_verdict(s, rank);
    }
    return true;
}

/* Everybody begins once. */
static void create_step(sim *s, uint32_t rank)
{
    const creation *c = s->state;

    if (s->count[rank].memory != 0) {
        return;
    }
    s->count[rank].memory = 1;
    if (c->splits) {
        see_wish(s, rank);
    } else if (rank == 0) {
        see_ticket(s, rank);
    }
}

static const sim_actor create_actor = {create_arrived, create_step, NULL};

static void run(const sim_model *model, creation *c, sim_result *out)
{
    /* Beside the new communicator's list of members. */
    uint64_t wishes = c->splits ? (uint64_t)model->ranks * WISH_BYTES : 0;
    sim s;

    sim_init(&s, model, &create_actor, c);
    c->heard = sim_alloc(model->ranks, sizeof(*c->heard));
    c->tickets = sim_alloc(model->ranks, sizeof(*c->tickets));
    sim_control_run(&s, c->tree ? "tree" : "leader", model->ranks, out);
    for (uint32_t r = 0; r < model->ranks; r++) {
        s.count[r].memory = wishes + (uint64_t)own_of(&s, r).size *
                                         (sizeof(uint32_t) + sizeof(void *));
        out->stuck += s.count[r].ended == 0;
    }
    out->summary = sim_summarize(s.count, model->ranks);
    free(c->heard);
    free(c->tickets);
    sim_fini(&s);
}

void sim_create(const sim_model *model, const sim_control *control,
                sim_result *out)
{
    creation c = {.tree = control->tree, .colours = 1};

    run(model, &c, out);
}

void sim_split(const sim_model *model, const sim_control *control,
               sim_result *out)
{
    creation c = {
        .tree = control->tree, .colours = control->colours, .splits = true};

    run(model, &c, out);
}
