/* SPDX-License-Identifier: Apache-2.0 */
/* Forming a job, through a table of keys that one process serves, on a host of
 * its own. Every rank sets a key with a table of itself. The first of a group
 * of ranks collects those of its group, merges them and sets the result; rank 0
 * collects from these, and sets the job's table in parts. All get these; in a
 * large job all get the table of their group, find their mates there, and one
 * of a host gets the parts, for all of its mates in the group. */
#include <stdlib.h>

#include "control.h"
#include "mem/join.h"
#include "mem/join_share.h"

enum { SET, GET, VALUE, SHARED };

/* Longer tables are set and got in parts. */
#define PART_BYTES ((uint64_t)WEFT_BOOT_VALUE_MAX)

/* Of a request, or of what confirms one. */
enum { REQUEST_BYTES = 64 };

/* Where a rank stands. */
enum { OWN, COLLECT, MERGED, COLLECT_ALL, PUBLISH, FIND, READ, TAKE, JOINED };

typedef struct place {
    uint32_t phase;
    uint32_t next; /* in this phase */
    bool asked;    /* an answer is awaited */
    bool shared;   /* a mate has handed the table over */
} place;

/* Keys: 0 to n - 1 of ranks, then of groups, then of parts. */
typedef struct forming {
    const sim_control *control;
    uint32_t ranks;
    uint32_t group; /* ranks of a group */
    uint32_t groups;
    uint32_t parts;
    uint32_t server;
    bool shares;
    place *place;
    bool *set;             /* by key */
    sim_message **waiting; /* by key: gets that came too early */
} forming;

static uint64_t table_bytes(const forming *f, uint32_t ranks, uint32_t per_host)
{
    uint64_t address =
        sizeof(wf_join_section) + ((uint64_t)f->control->address + 7) / 8 * 8;
    uint64_t nodes = (ranks + per_host - 1) / per_host;

    return sizeof(wf_join_head) + nodes * sizeof(wf_join_node) +
           ranks * (sizeof(wf_join_member) + address);
}

static uint64_t value_bytes(const sim *s, uint32_t key)
{
    const forming *f = s->state;
    uint64_t all = table_bytes(f, f->ranks, s->model.per_host);
    uint64_t part;

    if (key < f->ranks) {
        return table_bytes(f, 1, 1);
    }
    if (key < f->ranks + f->groups) {
        return table_bytes(f, f->group, s->model.per_host);
    }
    part = key - f->ranks - f->groups;
    return part + 1 < f->parts ? PART_BYTES : all - part * PART_BYTES;
}

/* --- the server ----------------------------------------------------------- */

static void respond(sim *s, uint32_t to, uint64_t bytes)
{
    const forming *f = s->state;
    sim_message *m = sim_message_new(s, f->server, to);

    m->kind = VALUE;
    m->bytes = bytes;
    s->count[to].received++;
    s->count[to].received_bytes += bytes;
    sim_post(s, m);
}

static bool serve(sim *s, sim_message *m)
{
    forming *f = s->state;
    uint32_t key = (uint32_t)m->tag;

    sim_work(s, f->control->table);
    if (m->kind == GET && !f->set[key]) {
        m->next = f->waiting[key];
        f->waiting[key] = m;
        return false;
    }
    respond(s, m->from,
            m->kind == GET ? value_bytes(s, key) : (uint64_t)REQUEST_BYTES);
    if (m->kind == SET) {
        f->set[key] = true;
        while (f->waiting[key] != NULL) {
            sim_message *w = f->waiting[key];

            f->waiting[key] = w->next;
            respond(s, w->from, value_bytes(s, key));
            sim_message_free(s, w);
        }
    }
    return true;
}

/* --- a rank --------------------------------------------------------------- */

static void request(sim *s, uint32_t rank, uint32_t kind, uint32_t key)
{
    const forming *f = s->state;
    sim_message *m = sim_message_new(s, rank, f->server);

    m->kind = kind;
    m->tag = key;
    m->bytes = REQUEST_BYTES + (kind == SET ? value_bytes(s, key) : 0);
    sim_count_sent(s, rank, f->server, m->bytes);
    f->place[rank].asked = true;
    sim_post(s, m);
}

/* The rank that reads the table of the job for this one. */
static uint32_t reader_of(const sim *s, uint32_t rank)
{
    const forming *f = s->state;
    uint32_t host = rank / s->model.per_host * s->model.per_host;
    uint32_t group = rank / f->group * f->group;

    return !f->shares ? rank : host > group ? host : group;
}

static void hand_over(sim *s, uint32_t reader)
{
    const forming *f = s->state;

    for (uint32_t r = reader + 1; r < f->ranks && reader_of(s, r) == reader;
         r++) {
        sim_message *m = sim_message_new(s, reader, r);

        m->kind = SHARED;
        m->bytes = REQUEST_BYTES;
        sim_post(s, m);
    }
}

/* How many requests a phase has for this rank. */
static uint32_t requests_of(const sim *s, uint32_t rank, uint32_t phase)
{
    const forming *f = s->state;
    bool leads = rank % f->group == 0;
    bool reads = reader_of(s, rank) == rank;
    uint32_t left = f->ranks - rank;

    switch (phase) {
    case OWN:
        return leads ? 0 : 1;
    case COLLECT:
        return !leads ? 0 : (left < f->group ? left : f->group) - 1;
    case MERGED:
        return leads && (rank != 0 || f->shares) ? 1 : 0;
    case COLLECT_ALL:
        return rank == 0 ? f->groups - 1 : 0;
    case PUBLISH:
        return rank == 0 ? f->parts : 0;
    case FIND:
        return f->shares && !leads ? 1 : 0;
    case READ:
        return rank == 0 || !reads ? 0 : f->parts;
    default: /* nothing is asked for */
        return reads || f->place[rank].shared ? 0 : 1;
    }
}

static void request_next(sim *s, uint32_t rank, const place *p)
{
    const forming *f = s->state;
    uint32_t groups = f->ranks;
    uint32_t parts = f->ranks + f->groups;

    switch (p->phase) {
    case OWN:
        request(s, rank, SET, rank);
        break;
    case COLLECT:
        request(s, rank, GET, rank + 1 + p->next);
        break;
    case MERGED:
        request(s, rank, SET, groups + rank / f->group);
        break;
    case COLLECT_ALL:
        request(s, rank, GET, groups + 1 + p->next);
        break;
    case PUBLISH:
        request(s, rank, SET, parts + p->next);
        break;
    case FIND:
        request(s, rank, GET, groups + rank / f->group);
        break;
    case READ:
        request(s, rank, GET, parts + p->next);
        break;
    default:
        break;
    }
}

static void join_step(sim *s, uint32_t rank)
{
    const forming *f = s->state;
    place *p = &f->place[rank];

    if (rank >= f->ranks || p->asked) {
        return;
    }
    while (p->phase < JOINED && p->next == requests_of(s, rank, p->phase)) {
        p->phase++;
        p->next = 0;
    }
    if (p->phase < JOINED) {
        request_next(s, rank, p);
    } else if (s->count[rank].ended == 0) {
        hand_over(s, rank);
        s->count[rank].ended = s->now;
    }
}

static bool join_arrived(sim *s, uint32_t rank, sim_message *m)
{
    forming *f = s->state;

    if (rank == f->server) {
        return serve(s, m);
    }
    if (m->kind == SHARED) {
        f->place[rank].shared = true;
        return true;
    }
    f->place[rank].asked = false;
    f->place[rank].next++;
    return true;
}

static const sim_actor join_actor = {join_arrived, join_step, NULL};

static void init(forming *f, const sim_model *model)
{
    uint32_t keys;
    uint64_t all;

    f->ranks = model->ranks;
    f->group = wf_join_group(model->ranks);
    f->shares = f->ranks >= WF_JOIN_SHARED_FROM;
    f->groups = (f->ranks + f->group - 1) / f->group;
    all = table_bytes(f, f->ranks, model->per_host);
    f->parts = (uint32_t)((all + PART_BYTES - 1) / PART_BYTES);
    f->server = sim_model_hosts(model) * model->per_host;
    keys = f->ranks + f->groups + f->parts;
    f->place = sim_alloc(f->server + 1, sizeof(*f->place));
    f->set = sim_alloc(keys, sizeof(*f->set));
    f->waiting = sim_alloc(keys, sizeof(*f->waiting));
}

void sim_join(const sim_model *model, const sim_control *control,
              sim_result *out)
{
    sim_model with_server = *model;
    forming f = {.control = control};
    sim s;

    init(&f, model);
    with_server.ranks = f.server + 1;
    sim_init(&s, &with_server, &join_actor, &f);
    sim_control_run(&s, "groups", model->ranks, out);
    for (uint32_t r = 0; r < model->ranks; r++) {
        s.count[r].memory = reader_of(&s, r) == r
                                ? table_bytes(&f, f.ranks, model->per_host)
                                : 0;
        out->stuck += s.count[r].ended == 0;
    }
    out->summary = sim_summarize(s.count, model->ranks);
    free(f.place);
    free(f.set);
    free(f.waiting);
    sim_fini(&s);
}
