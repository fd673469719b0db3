/* SPDX-License-Identifier: Apache-2.0 */
#include "replay.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "job.h"

static sim_job *current;

void sim_job_fold(const wf_reducer *r, void *const dst[], size_t ndst,
                  const void *const src[], size_t nsrc, size_t n)
{
    size_t bytes = n * r->elem;
    sim *s = &current->sim;

    (void)dst;
    (void)ndst;
    (void)src;
    (void)nsrc;
    s->count[current->comm.rank].folded += bytes;
    sim_work(s, (double)bytes / s->model.fold);
}

void sim_job_speak_for(sim_job *job, uint32_t rank)
{
    wf_layout *l = &job->layout;

    job->comm.rank = rank;
    job->port.rank = rank;
    job->op.op.sequence = job->member[rank].sequence;
    if (job->layered) {
        l->rank = rank;
        l->node = l->node_of[rank];
        l->local = rank - job->speaker[l->node];
    }
    current = job;
}

/* Only a ring can be cut short: all ranks are at the same step, and every step
 * is between the same two. */
uint64_t sim_job_cut(const sim_job *job, wf_algorithm how, uint64_t length)
{
    uint64_t each = job->call.steps / job->comm.size;

    each = each > 0 ? each : 1;
    return how == WF_BY_RING && each < length ? each : length;
}

/* --- one rank ------------------------------------------------------------- */

static void start(sim_job *job, sim_member *m)
{
    size_t bytes;

    if (job->layered) {
        bytes = sim_layers_start(job, m);
    } else {
        bytes = sim_flat_start(job, m);
        sim_flat_compare(job, m);
    }
    job->sim.count[job->comm.rank].memory = bytes;
}

static bool meet(sim_job *job, sim_member *m)
{
    if (job->layered) {
        return sim_layers_meet(job, m);
    }
    if (!sim_flat_compared(job, m)) {
        return false;
    }
    sim_flat_begin(job, m);
    return true;
}

/* One call as far as it goes; true when it is over. */
static bool advance(sim_job *job, sim_member *m)
{
    if (m->phase == SIM_START) {
        start(job, m);
        m->phase = SIM_MEET;
    }
    if (m->phase == SIM_MEET) {
        if (!meet(job, m)) {
            return false;
        }
        m->before = job->sim.count[job->comm.rank];
        m->before.ended = job->sim.now;
        m->phase = SIM_MOVE;
    }
    return job->layered ? sim_layers_move(job, m) : sim_flat_step(job, m);
}

static void job_step(sim *s, uint32_t rank)
{
    sim_job *job = s->state;
    sim_member *m = &job->member[rank];

    sim_job_speak_for(job, rank);
    while (m->phase != SIM_OVER && advance(job, m)) {
        m->sequence++;
        job->op.op.sequence = m->sequence;
        m->phase = m->sequence < job->call.repeat ? SIM_START : SIM_OVER;
        if (m->phase == SIM_OVER) {
            s->count[rank].ended = s->now;
        }
    }
}

static bool job_arrived(sim *s, uint32_t rank, sim_message *m)
{
    sim_job *job = s->state;

    sim_job_speak_for(job, rank);
    return sim_port_arrived(&job->port, rank, m);
}

static const sim_actor job_actor = {job_arrived, job_step, sim_layers_later};

/* --- all of them ---------------------------------------------------------- */

static void init_group(sim_job *job)
{
    uint32_t size = job->sim.model.ranks;
    weft_comm *comm = &job->comm;

    job->route = (wf_route){.transport = &sim_transport, .port = &job->port};
    job->world.ports.route = &job->route;
    job->world.ports.to = sim_alloc(size, 1);
    job->world.settings.chunk_bytes =
        job->call.in_chunk > 0 ? job->call.in_chunk : UINT64_MAX;
    comm->world = &job->world;
    comm->size = size;
    comm->member = sim_alloc(size, sizeof(*comm->member));
    for (uint32_t i = 0; i < size; i++) {
        comm->member[i] = i;
    }
}

static void init_op(sim_job *job)
{
    wf_coll_op *op = &job->op;
    uint64_t bytes = job->call.bytes;
    weft_dtype type = bytes % 4 == 0 ? WEFT_F32 : WEFT_U8;

    wf_op_init(&op->op);
    op->op.comm = &job->comm;
    op->op.call = (wf_call){.kind = (uint8_t)job->call.kind,
                            .type = (uint8_t)type,
                            .op = WEFT_OP_SUM,
                            .count = bytes / wf_dtype_bytes(type)};
    op->bytes = bytes;
    /* Never looked at, save by comparisons, which carry data of 0. */
    op->src = sim_alloc(1, SIM_CONTENT_MAX);
    op->dst = (void *)(uintptr_t)op->src;
}

/* Is what was asked for possible? */
static bool applies(const sim_job *job)
{
    if (job->layered && job->shape.way == WF_SHAPE_RAILS) {
        return wf_algorithm_applies(job->call.kind, job->shape.choice.how,
                                    job->layout.nodes);
    }
    return !job->moves ||
           wf_algorithm_applies(job->call.kind, job->how, job->comm.size);
}

/* The steps of the plan, and how many are carried out. */
static uint64_t steps_of(sim_job *job, uint64_t *carried)
{
    sim_member *m = &job->member[0];
    wf_algorithm how = job->how;
    uint64_t length;

    *carried = 0;

    sim_job_speak_for(job, 0);
    if (job->layered && job->shape.way == WF_SHAPE_RAILS) {
        how = job->shape.choice.how;
        wf_shape_plan(&job->shape, &job->layout, &job->op.op.call, 0, &m->plan);
    } else if (job->moves &&
               (!job->layered || job->shape.way == WF_SHAPE_PLAIN)) {
        (void)sim_flat_start(job, m);
    } else {
        return 0;
    }
    length = wf_plan_length(&m->plan);
    *carried = sim_job_cut(job, how, length);
    return length;
}

static void job_init(sim_job *job, const sim_model *model, const sim_call *call)
{
    uint32_t hosts = sim_model_hosts(model);

    job->call = *call;
    sim_init(&job->sim, model, &job_actor, job);
    sim_port_init(&job->port, &job->sim);
    job->member = sim_alloc(model->ranks, sizeof(*job->member));
    init_group(job);
    init_op(job);
    /* As the engines offer themselves. */
    job->layered = !call->flat && hosts > 1 && hosts < model->ranks;
    sim_flat_choose(job);
    if (job->layered) {
        sim_layers_init(job);
    }
}

static void job_fini(sim_job *job)
{
    if (job->scratch != NULL) {
        munmap(job->scratch, job->room);
    }
    if (job->layered) {
        sim_layers_fini(job);
    }
    free((void *)(uintptr_t)job->op.src);
    free(job->comm.member);
    free(job->world.ports.to);
    free(job->member);
    sim_port_fini(&job->port);
    sim_fini(&job->sim);
    free(job);
}

static uint64_t grown(uint64_t before, uint64_t now, double by)
{
    return before + (uint64_t)((double)(now - before) * by + 0.5);
}

/* From the part of a plan that was carried out, all of it. */
static void complete(const sim_job *job)
{
    double by = 1 / job->part;

    for (uint32_t i = 0; i < job->comm.size; i++) {
        const sim_count *b = &job->member[i].before;
        sim_count *c = &job->sim.count[i];

        c->sent = grown(b->sent, c->sent, by);
        c->sent_bytes = grown(b->sent_bytes, c->sent_bytes, by);
        c->far_bytes = grown(b->far_bytes, c->far_bytes, by);
        c->received = grown(b->received, c->received, by);
        c->received_bytes = grown(b->received_bytes, c->received_bytes, by);
        c->ended = grown(b->ended, c->ended, by);
    }
}

/* From several calls, one of them. */
static void divide(const sim_job *job)
{
    uint32_t n = job->call.repeat;

    for (uint32_t i = 0; i < job->comm.size; i++) {
        sim_count *c = &job->sim.count[i];

        c->sent /= n;
        c->sent_bytes /= n;
        c->far_bytes /= n;
        c->received /= n;
        c->received_bytes /= n;
        c->ended /= n;
    }
}

static const char *how_of(const sim_job *job)
{
    return wf_algorithm_name(job->layered &&
                                     (job->shape.way == WF_SHAPE_RAILS ||
                                      job->shape.way == WF_SHAPE_ALONG)
                                 ? job->shape.choice.how
                                 : job->how);
}

static sim_result result_of(const sim_job *job)
{
    static const char *const ways[] = {[WF_SHAPE_MEET] = "meeting of hosts",
                                       [WF_SHAPE_ALONG] = "meeting of hosts",
                                       [WF_SHAPE_RAILS] = "rails of hosts",
                                       [WF_SHAPE_PLAIN] = "all ranks"};
    sim_result out = {.summary = sim_summarize(job->sim.count, job->comm.size),
                      .how = how_of(job),
                      .among =
                          ways[job->layered ? job->shape.way : WF_SHAPE_PLAIN],
                      .part = job->part,
                      .happened = job->sim.happened};

    for (uint32_t i = 0; i < job->comm.size; i++) {
        out.stuck += job->member[i].phase != SIM_OVER;
    }
    return out;
}

/* Plans of trees have many steps in which most ranks do nothing. */
#define EMPTY 20u

static void run(sim_job *job, sim_result *out)
{
    uint64_t carried;
    uint64_t steps = steps_of(job, &carried);

    if (carried * job->comm.size / EMPTY > job->call.steps) {
        *out = (sim_result){.too_many = steps * job->comm.size};
        return;
    }
    job->part = carried < steps ? (double)carried / (double)steps : 1;
    job->call.repeat = job->part < 1 ? 1 : job->call.repeat;
    sim_run(&job->sim);
    if (job->part < 1) {
        complete(job);
    } else {
        divide(job);
    }
    *out = result_of(job);
}

bool sim_replay(const sim_model *model, const sim_call *call, sim_result *out)
{
    sim_job *job = sim_alloc(1, sizeof(*job));
    bool good;

    job_init(job, model, call);
    good = applies(job);
    if (good) {
        run(job, out);
    }
    job_fini(job);
    return good;
}
