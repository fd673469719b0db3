/* SPDX-License-Identifier: Apache-2.0 */
/* Making a communicator: tickets and verdicts go down the tree of its members
 * (comm/node_tree.h), replies go up; the wishes of a split go up and then down.
 * Each letter of wishes is passed on as it comes in the library, but here when
 * all of them have come. */
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "comm/node_tree.h"
#include "control.h"
#include "mem/host.h"

enum { WISH, WISHES, TICKET, REPLY, VERDICT };

/* Bytes of mail, as in comm/group.c and comm/build.c, when all goes well. */
enum { WISH_BYTES = 24, TICKET_HEAD = 16, REPLY_BYTES = 5 };

typedef struct creation {
    uint32_t colours; /* rank r has colour r % colours */
    bool splits;
    uint64_t ticket; /* bytes */
    uint32_t *heard;
} creation;

/* A group: every `step`-th rank from `first` on. */
typedef struct group {
    uint32_t first;
    uint32_t step;
    uint32_t size;
    uint32_t per_host;
} group;

static group group_of(const sim *s, uint32_t first, uint32_t step)
{
    return (group){first, step, (s->model.ranks - first + step - 1) / step,
                   s->model.per_host};
}

static group all_of(const sim *s)
{
    return group_of(s, 0, 1);
}

static group own_of(const sim *s, uint32_t rank)
{
    const creation *c = s->state;

    return group_of(s, rank % c->colours, c->colours);
}

/* --- who passes on to whom ------------------------------------------------ */

/* The number of a rank's node in the group. Where members are further apart
 * than ranks of a host, each has a host of its own; else no host between two of
 * them is left out. */
static uint32_t node_of(group g, uint32_t rank)
{
    return g.step > g.per_host ? (rank - g.first) / g.step
                               : rank / g.per_host - g.first / g.per_host;
}

static uint32_t nodes_of(group g)
{
    return node_of(g, g.first + (g.size - 1) * g.step) + 1;
}

/* The first member of a node. */
static uint32_t head_of(group g, uint32_t node)
{
    uint32_t host = g.first / g.per_host + node;
    uint32_t from = host * g.per_host;

    if (g.step > g.per_host) {
        return g.first + node * g.step;
    }
    return from <= g.first
               ? g.first
               : g.first + (from - g.first + g.step - 1) / g.step * g.step;
}

static bool is_head(group g, uint32_t rank)
{
    return rank == head_of(g, node_of(g, rank));
}

/* The i-th rank directly below one, that one itself if there are not so many:
 * heads of other nodes, then mates. */
static uint32_t below(const sim *s, group g, uint32_t rank, uint32_t i)
{
    uint32_t nodes = nodes_of(g);
    uint32_t node = node_of(g, rank);
    uint32_t heads = 0;
    uint32_t mate;

    if (!is_head(g, rank)) {
        return rank;
    }
    while (wf_node_tree_down(node, heads, nodes) != 0) {
        heads++;
    }
    if (i < heads) {
        return head_of(g, wf_node_tree_down(node, i, nodes));
    }
    mate = rank + (i - heads + 1) * g.step;
    return mate < s->model.ranks && sim_near(s, mate, rank) ? mate : rank;
}

static uint32_t above(group g, uint32_t rank)
{
    uint32_t node = node_of(g, rank);

    return head_of(g, is_head(g, rank) ? wf_node_tree_up(node, nodes_of(g))
                                       : node);
}

/* Members below a rank and itself. */
static uint32_t subtree_of(const sim *s, group g, uint32_t rank)
{
    uint32_t count = 1;
    uint32_t to;

    for (uint32_t i = 0; (to = below(s, g, rank, i)) != rank; i++) {
        count += subtree_of(s, g, to);
    }
    return count;
}

static void pass_down(sim *s, group g, uint32_t rank, uint32_t kind,
                      uint64_t bytes, uint64_t letters)
{
    uint32_t to;

    for (uint32_t i = 0; (to = below(s, g, rank, i)) != rank; i++) {
        sim_mail(s, rank, to, kind, bytes, letters);
    }
}

/* One more is ready; true if all below and the rank itself are. */
static bool all_ready(sim *s, group g, uint32_t rank)
{
    const creation *c = s->state;

    if (below(s, g, rank, c->heard[rank]++) != rank) {
        return false;
    }
    c->heard[rank] = 0;
    return true;
}

/* The last one is not full. */
static uint64_t letters_of(uint32_t wishes)
{
    return wishes / (WF_MAIL_MAX / WISH_BYTES) + 1;
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
    if (rank == g.first) {
        see_verdict(s, rank);
    } else {
        sim_mail(s, rank, above(g, rank), REPLY, REPLY_BYTES, 1);
    }
}

static void see_ticket(sim *s, uint32_t rank)
{
    const creation *c = s->state;

    pass_down(s, own_of(s, rank), rank, TICKET, c->ticket, 1);
    see_reply(s, rank);
}

static void see_wishes(sim *s, uint32_t rank)
{
    uint32_t ranks = s->model.ranks;

    pass_down(s, all_of(s), rank, WISHES, (uint64_t)ranks * WISH_BYTES,
              letters_of(ranks));
    if (rank == own_of(s, rank).first) {
        see_ticket(s, rank);
    }
}

static void see_wish(sim *s, uint32_t rank)
{
    group g = all_of(s);
    uint32_t wishes;

    if (!all_ready(s, g, rank)) {
        return;
    }
    if (rank == 0) {
        see_wishes(s, rank);
        return;
    }
    wishes = subtree_of(s, g, rank);
    sim_mail(s, rank, above(g, rank), WISH, (uint64_t)wishes * WISH_BYTES,
             letters_of(wishes));
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

/* With the settings that a ticket tells. */
static uint64_t ticket_bytes(void)
{
    wf_settings settings;
    char text[WF_SETTINGS_SHARED_MAX];

    if (wf_settings_load(NULL, &settings) != WEFT_OK) {
        fprintf(stderr, "simulate: %s\n", weft_error_detail());
        exit(1);
    }
    wf_settings_shared(&settings, text, sizeof(text));
    return TICKET_HEAD + strlen(text) + 1;
}

static void run(const sim_model *model, creation *c, sim_result *out)
{
    /* Beside the new communicator's list of members. */
    uint64_t wishes = c->splits ? (uint64_t)model->ranks * WISH_BYTES : 0;
    sim s;

    sim_init(&s, model, &create_actor, c);
    c->heard = sim_alloc(model->ranks, sizeof(*c->heard));
    c->ticket = ticket_bytes();
    sim_control_run(&s, "tree", model->ranks, out);
    for (uint32_t r = 0; r < model->ranks; r++) {
        s.count[r].memory = wishes + (uint64_t)own_of(&s, r).size *
                                         (sizeof(uint32_t) + sizeof(void *));
        out->stuck += s.count[r].ended == 0;
    }
    out->summary = sim_summarize(s.count, model->ranks);
    free(c->heard);
    sim_fini(&s);
}

void sim_create(const sim_model *model, const sim_control *control,
                sim_result *out)
{
    creation c = {.colours = 1};

    (void)control;
    run(model, &c, out);
}

void sim_split(const sim_model *model, const sim_control *control,
               sim_result *out)
{
    creation c = {.colours = control->colours, .splits = true};

    run(model, &c, out);
}
