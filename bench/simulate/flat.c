/* SPDX-License-Identifier: Apache-2.0 */
/* As coll/message/message_engine.c does it: one group of all ranks. */
#include <stdlib.h>
#include <sys/mman.h>

#include "job.h"

/* Does the data go along when calls are compared? As the engine decides. */
static bool goes_along(const sim_job *job)
{
    uint8_t kind = (uint8_t)job->call.kind;

    return wf_call_is(kind, WF_HAS_DATA) &&
           !wf_call_is(kind, WF_SRC_BLOCKS | WF_ALL_LENGTHS | WF_OWN_LENGTHS) &&
           job->op.bytes <= wf_check_room(job->comm.size);
}

void sim_flat_choose(sim_job *job)
{
    wf_algorithm forced = job->call.how;
    const wf_choice *row =
        wf_message_choose(job->call.kind, job->call.bytes, job->comm.size);

    job->along = false;
    job->moves = row != NULL && job->call.bytes > 0;
    job->how = forced != WF_ALGORITHMS ? forced
               : row != NULL           ? row->how
                                       : WF_BY_DISSEMINATION;
    if (job->moves && forced == WF_ALGORITHMS && !job->layered &&
        goes_along(job)) {
        job->along = true;
        job->moves = false;
        job->how = WF_BY_DISSEMINATION;
    }
}

/* Memory that any rank's scratch fits into. Nothing of it is ever looked at;
 * packing writes to it. */
static void make_room(sim_job *job, size_t bytes)
{
    if (bytes <= job->room) {
        return;
    }
    if (job->scratch != NULL) {
        munmap(job->scratch, job->room);
    }
    job->scratch = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    job->room = bytes;
    if (job->scratch == MAP_FAILED) {
        fprintf(stderr, "simulate: no memory for %zu bytes\n", bytes);
        exit(1);
    }
}

size_t sim_flat_start(sim_job *job, sim_member *m)
{
    size_t bytes = sizeof(wf_check) + sizeof(wf_moves);

    if (job->moves) {
        (void)wf_plan_make(&m->plan, job->call.kind, job->how, job->comm.size,
                           job->comm.rank, 0, wf_data_pieces(&job->op));
        wf_data_init(&m->data, &job->op, &m->plan);
        m->data.partial.fold = sim_job_fold;
        make_room(job, m->data.scratch_bytes);
        bytes += m->data.scratch_bytes;
    }
    return bytes;
}

void sim_flat_compare(sim_job *job, sim_member *m)
{
    wf_party all = wf_party_all(&job->comm);

    wf_check_init(&m->check, &all, job->along, job->op.src, job->op.bytes, 0);
}

bool sim_flat_compared(sim_job *job, sim_member *m)
{
    job->port.content = true;
    return wf_check_step(&m->check, &job->op) == WEFT_OK;
}

void sim_flat_begin(sim_job *job, sim_member *m)
{
    wf_party all = wf_party_all(&job->comm);

    if (job->moves) {
        wf_data_place_scratch(&m->data, job->scratch);
        wf_run_init(&m->run, &m->data, &all);
        m->run.length = sim_job_cut(job, job->how, m->run.length);
        m->run.open = m->run.length;
    }
}

/* Copies and folds at the two ends of the messages. */
static void finish(sim_job *job)
{
    double bytes = (double)job->op.bytes;
    const sim_model *p = &job->sim.model;

    if (job->along) {
        sim_work(&job->sim, bytes * job->comm.size / p->fold);
    } else if (job->moves && !wf_call_cuts(job->op.op.call.kind)) {
        sim_work(&job->sim, bytes / p->copy);
    }
}

bool sim_flat_step(sim_job *job, sim_member *m)
{
    job->port.content = false;
    if (job->moves && wf_run_step(&m->run, &job->op) != WEFT_OK) {
        return false;
    }
    finish(job);
    return true;
}
