/* SPDX-License-Identifier: Apache-2.0 */
/* As src/coll/hosts does it: inside a node through memory that its members
 * share, between nodes by messages of those who drive a rail. Layout, shape and
 * plans are the library's; the order of steps is rule R2 of rounds.h, with the
 * time that copies and folds take. */
#include <stdlib.h>

#include "job.h"

static sim_node *node_of(const sim_job *job)
{
    return &job->node[job->layout.node];
}

static uint32_t members_of(const sim_job *job)
{
    return wf_layout_members(&job->layout, job->layout.node);
}

static bool reduces(const sim_job *job)
{
    return wf_call_is(job->op.op.call.kind, WF_REDUCES);
}

static bool is_root(const sim_job *job)
{
    return job->layout.rank == job->op.op.call.root;
}

static void copy(sim_job *job, double bytes)
{
    sim_work(&job->sim, bytes / job->sim.model.copy);
}

/* Fold `sources` of `bytes` each. */
static void fold(sim_job *job, double bytes, uint32_t sources)
{
    double all = bytes * (sources - 1);

    job->sim.count[job->comm.rank].folded += (uint64_t)all;
    sim_work(&job->sim, all / job->sim.model.fold);
}

/* --- what members of a node see of each other ----------------------------- */

/* One more has come so far; when `needed` have, all are told. */
static void tally_add(sim_job *job, sim_tally *t, uint64_t rounds,
                      uint32_t needed)
{
    sim *s = &job->sim;

    if (t->rounds != rounds) {
        *t = (sim_tally){.rounds = rounds};
    }
    t->count++;
    t->when = s->now > t->when ? s->now : t->when;
    if (t->count == needed) {
        t->when += sim_seconds(s->model.local_latency);
        sim_later(s, t->when, job->layout.node);
    }
}

static bool tally_is(const sim_job *job, const sim_tally *t, uint64_t rounds,
                     uint32_t needed)
{
    return t->rounds > rounds || (t->rounds == rounds && t->count >= needed &&
                                  t->when <= job->sim.now);
}

void sim_layers_later(sim *s, uint32_t node)
{
    const sim_job *job = s->state;
    const wf_layout *l = &job->layout;

    for (uint32_t i = l->first[node]; i < l->first[node + 1]; i++) {
        sim_wake(s, l->member[i], s->now);
    }
}

/* Rounds of all calls before this one. */
static uint64_t base_of(const sim_job *job, const sim_member *m)
{
    return m->sequence * job->shape.rounds;
}

/* So many members count in a step: those who drive, or all. */
static uint32_t needed_for(const sim_job *job, wf_rounds_step what)
{
    return what == WF_ROUNDS_NET ? job->shape.rails : members_of(job);
}

/* Have all got this far, in rounds of this call? May be negative. */
static bool all_have(const sim_job *job, const sim_member *m,
                     wf_rounds_step what, int64_t rounds)
{
    int64_t all = (int64_t)base_of(job, m) + rounds;

    return all <= 0 ||
           tally_is(job, &node_of(job)->tally[what][all % SIM_TALLIES],
                    (uint64_t)all, needed_for(job, what));
}

static void count(sim_job *job, sim_member *m, wf_rounds_step what)
{
    uint64_t rounds = base_of(job, m) + ++m->at[what];

    tally_add(job, &node_of(job)->tally[what][rounds % SIM_TALLIES], rounds,
              needed_for(job, what));
    if (what == WF_ROUNDS_RED && !reduces(job) && !job->shape.blocks &&
        is_root(job)) {
        sim_later(&job->sim, job->sim.now, job->layout.node);
    }
}

/* --- start ---------------------------------------------------------------- */

static void find_shape(sim_job *job)
{
    wf_shape_limits limits = {
        .slot = wf_shape_slot(job->comm.size, job->layout.nodes,
                              job->world.settings.chunk_bytes),
        .along = hosts_along(job->layout.nodes),
        .fixed = job->call.in_chunk > 0,
        .has_forced = job->call.how != WF_ALGORITHMS,
        .forced = job->call.how};

    wf_shape_init(&job->shape, &job->layout, &job->op.op.call,
                  wf_coll_moves(&job->op), &limits);
}

void sim_layers_init(sim_job *job)
{
    uint32_t size = job->comm.size;
    uint32_t *node = sim_alloc(size, sizeof(*node));
    wf_layout *l = &job->layout;

    for (uint32_t r = 0; r < size; r++) {
        node[r] = sim_model_host(&job->sim.model, r);
    }
    if (wf_layout_init(l, node, size, 0) != WEFT_OK) {
        fprintf(stderr, "simulate: %s\n", weft_error_detail());
        exit(1);
    }
    free(node);
    find_shape(job);
    job->node = sim_alloc(l->nodes, sizeof(*job->node));
    job->speaker = sim_alloc(l->nodes, sizeof(*job->speaker));
    for (uint32_t n = 0; n < l->nodes; n++) {
        job->speaker[n] = wf_layout_member(l, n, 0);
    }
    job->driver =
        sim_alloc((size_t)job->shape.rails * l->nodes, sizeof(*job->driver));
    for (uint32_t i = 0; i < job->shape.rails; i++) {
        wf_layout_drivers(l, i, job->shape.rails, &job->driver[i * l->nodes]);
    }
}

void sim_layers_fini(sim_job *job)
{
    wf_layout_fini(&job->layout);
    free(job->node);
    free(job->speaker);
    free(job->driver);
}

/* What a rail sends lies in the work area; nobody looks at it. */
static wf_block rail_at(const wf_data *data, const wf_coll_op *op,
                        const wf_step *step, wf_piece piece)
{
    const sim_job *job = data->ctx;
    const sim_member *m = &job->member[op->op.comm->rank];
    wf_range r = wf_shape_piece(&job->shape, &job->layout, data->plan, m->rail,
                                step, piece);

    return (wf_block){NULL, r.until - r.from};
}

/* Bytes of what it folds from. */
static size_t plan_rail(sim_job *job, sim_member *m)
{
    const wf_layout *l = &job->layout;
    size_t landing = 0;

    wf_shape_plan(&job->shape, l, &job->op.op.call, l->node, &m->plan);
    if (reduces(job)) {
        landing = wf_shape_longest(&job->shape, l, &m->plan);
    }
    m->data =
        (wf_data){.at = rail_at,
                  .ctx = job,
                  .plan = &m->plan,
                  .elem = job->shape.elem,
                  .partial = {.fold = sim_job_fold, .elem = job->shape.elem}};
    return WF_FLIGHTS * landing;
}

/* Bytes a node brings along with its call. */
static size_t along_bytes(const sim_job *job)
{
    uint8_t kind = job->op.op.call.kind;
    size_t blocks = wf_call_is(kind, WF_DST_BLOCKS)   ? job->layout.most
                    : wf_call_is(kind, WF_SRC_BLOCKS) ? job->layout.size
                                                      : 1;

    return job->shape.way == WF_SHAPE_ALONG ? job->op.bytes * blocks : 0;
}

size_t sim_layers_start(sim_job *job, sim_member *m)
{
    const wf_layout *l = &job->layout;
    uint32_t members = members_of(job);
    size_t slot =
        wf_shape_slot(l->size, l->nodes, job->world.settings.chunk_bytes);
    /* Its part of what the node shares, and the tables of the layout. */
    size_t bytes = sizeof(hosts_state) + sizeof(hosts_common) / members +
                   sizeof(hosts_cell) +
                   wf_rounds_bytes(members, slot) / members +
                   ((size_t)l->size * 6 + 2) * sizeof(uint32_t);

    m->rail = WF_NO_RAIL;
    m->comparing = false;
    for (unsigned i = 0; i < WF_ROUNDS_STEPS; i++) {
        m->at[i] = 0;
    }
    if (job->shape.way == WF_SHAPE_RAILS) {
        m->rail = wf_layout_rail(l, job->shape.rails);
        bytes += m->rail != WF_NO_RAIL ? plan_rail(job, m) : 0;
    } else if (job->shape.way == WF_SHAPE_PLAIN) {
        bytes += sim_flat_start(job, m);
    }
    copy(job, (double)along_bytes(job) / members);
    tally_add(job, &node_of(job)->call, m->sequence + 1, members);
    return bytes;
}

/* --- meet ----------------------------------------------------------------- */

/* Member 0 compares with the other nodes, and says when all agree. */
static bool lead(sim_job *job, sim_member *m)
{
    const wf_layout *l = &job->layout;
    wf_party speakers = {job->speaker, l->nodes, l->node};
    size_t bytes = along_bytes(job);

    if (!m->comparing) {
        if (!tally_is(job, &node_of(job)->call, m->sequence + 1,
                      members_of(job))) {
            return false;
        }
        fold(job, (double)bytes, members_of(job));
        wf_check_init(&m->check, &speakers, bytes > 0, job->op.src, bytes, 0);
        m->comparing = true;
    }
    if (!sim_flat_compared(job, m)) {
        return false;
    }
    if (bytes > 0) {
        fold(job, (double)bytes, l->nodes);
    }
    tally_add(job, &node_of(job)->go, m->sequence + 1, 1);
    return true;
}

static void feed(sim_job *job, sim_member *m, bool agreed);

static void agreed(sim_job *job, sim_member *m)
{
    const wf_layout *l = &job->layout;

    if (job->shape.way == WF_SHAPE_PLAIN) {
        sim_flat_begin(job, m);
    } else if (m->rail != WF_NO_RAIL) {
        wf_party drivers = {&job->driver[m->rail * l->nodes], l->nodes,
                            l->node};

        wf_run_init(&m->run, &m->data, &drivers);
        m->run.length = sim_job_cut(job, job->shape.choice.how, m->run.length);
        m->run.open = 0;
    }
}

bool sim_layers_meet(sim_job *job, sim_member *m)
{
    if (job->shape.way == WF_SHAPE_RAILS) {
        feed(job, m, false);
    }
    if (job->layout.local == 0
            ? !lead(job, m)
            : !tally_is(job, &node_of(job)->go, m->sequence + 1, 1)) {
        return false;
    }
    copy(job, (double)along_bytes(job));
    agreed(job, m);
    return true;
}

/* --- rounds --------------------------------------------------------------- */

static bool brings(const sim_job *job)
{
    return reduces(job) && members_of(job) > 1;
}

static double share_of(const sim_job *job, uint64_t round)
{
    wf_range r = wf_shape_share(&job->shape, &job->layout, round,
                                job->layout.local, members_of(job));

    return (double)(r.until - r.from);
}

static void bring(sim_job *job, uint64_t round)
{
    double all = (double)wf_shape_work(&job->shape, &job->layout, round);

    copy(job, all - share_of(job, round));
}

static void produce(sim_job *job, uint64_t round)
{
    if (reduces(job)) {
        fold(job, share_of(job, round), members_of(job));
    } else if (job->shape.blocks || is_root(job)) {
        copy(job, (double)wf_shape_length(&job->shape, round));
    }
}

/* Only a fold may begin before all nodes have agreed. */
static void feed(sim_job *job, sim_member *m, bool has_agreed)
{
    bool moved = has_agreed || brings(job);

    while (moved) {
        int64_t in = (int64_t)m->at[WF_ROUNDS_IN];
        int64_t red = (int64_t)m->at[WF_ROUNDS_RED];
        int64_t rounds = (int64_t)job->shape.rounds;

        moved = false;
        if (brings(job) && in < rounds &&
            all_have(job, m, WF_ROUNDS_RED,
                     in + 1 - (int64_t)WF_ROUNDS_SLOTS)) {
            bring(job, (uint64_t)in);
            count(job, m, WF_ROUNDS_IN);
            moved = true;
        }
        if (red < rounds &&
            all_have(job, m, WF_ROUNDS_OUT,
                     red + 1 - (int64_t)WF_ROUNDS_WORKS) &&
            (!brings(job) || all_have(job, m, WF_ROUNDS_IN, red + 1))) {
            produce(job, (uint64_t)red);
            count(job, m, WF_ROUNDS_RED);
            moved = true;
        }
    }
}

static bool overlap(wf_range a, wf_range b)
{
    return a.from < b.until && b.from < a.until;
}

/* Does a rail carry in a round what its driver alone has put there? */
static bool feeds_itself(const sim_job *job, const sim_member *m,
                         uint64_t round)
{
    const wf_layout *l = &job->layout;
    wf_range rail = wf_shape_rail(&job->shape, l, round, m->rail);
    uint32_t members = members_of(job);

    if (!reduces(job)) {
        return job->shape.blocks && job->shape.rails == members;
    }
    for (uint32_t i = 0; i < members; i++) {
        if (i != l->local &&
            overlap(rail, wf_shape_share(&job->shape, l, round, i, members))) {
            return false;
        }
    }
    return true;
}

static bool is_fed(const sim_job *job, const sim_member *m, uint64_t round)
{
    uint32_t root = job->op.op.call.root;
    const wf_layout *l = &job->layout;

    if (m->at[WF_ROUNDS_RED] <= round) {
        return false;
    }
    if (!reduces(job) && !job->shape.blocks) {
        return l->node_of[root] != l->node ||
               job->member[root].at[WF_ROUNDS_RED] > round;
    }
    return feeds_itself(job, m, round) ||
           all_have(job, m, WF_ROUNDS_RED, (int64_t)round + 1);
}

/* As much of the rail's plan as its data is there for; false: there is more. */
static bool drive(sim_job *job, sim_member *m)
{
    wf_run *run = &m->run;
    uint64_t steps = m->plan.steps * m->plan.width;
    bool over;

    while (run->open < run->length && is_fed(job, m, run->open / steps)) {
        run->open += steps;
    }
    run->open = run->open < run->length ? run->open : run->length;
    job->port.content = false;
    over = wf_run_step(run, &job->op) == WEFT_OK;
    while (m->at[WF_ROUNDS_NET] < wf_run_ended(run) / steps) {
        count(job, m, WF_ROUNDS_NET);
    }
    return over;
}

static void take(sim_job *job, uint64_t round)
{
    uint8_t kind = job->op.op.call.kind;
    bool all = !wf_call_is(kind, WF_SRC_BLOCKS);
    bool gets = reduces(job) ? wf_call_gives(&job->op.op.call, job->comm.rank)
                             : job->shape.blocks || !is_root(job);

    if (gets) {
        copy(job, all ? (double)wf_shape_work(&job->shape, &job->layout, round)
                      : (double)wf_shape_length(&job->shape, round));
    }
}

bool sim_layers_move(sim_job *job, sim_member *m)
{
    bool over = true;

    if (job->shape.way == WF_SHAPE_PLAIN) {
        return sim_flat_step(job, m);
    }
    if (job->shape.way != WF_SHAPE_RAILS) {
        return true;
    }
    feed(job, m, true);
    if (m->rail != WF_NO_RAIL) {
        over = drive(job, m);
    }
    while (m->at[WF_ROUNDS_OUT] < job->shape.rounds &&
           all_have(job, m, WF_ROUNDS_NET, (int64_t)m->at[WF_ROUNDS_OUT] + 1)) {
        take(job, m->at[WF_ROUNDS_OUT]);
        count(job, m, WF_ROUNDS_OUT);
    }
    return job->part < 1 ? over : m->at[WF_ROUNDS_OUT] == job->shape.rounds;
}
