/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs, and their lanes in the shards. */
#include "base/alloc.h"
#include "base/status.h"
#include "base/time.h"
#include "switch.h"

static wf_agg_shape shape_of(const wf_agg_join *like, uint32_t slots)
{
    return (wf_agg_shape){
        .ranks = like->ranks, .slots = slots, .payload = like->payload};
}

uint64_t sw_job_memory(const wf_agg_join *like, uint32_t slots, uint32_t shards,
                       bool injects)
{
    wf_agg_shape shape = shape_of(like, slots);
    uint64_t rank = sizeof(sw_rank) + sizeof(wf_udp_batch) +
                    (injects ? sizeof(sw_late) : 0);

    return shards * (wf_agg_pool_bytes(&shape) + 2 * slots * sizeof(uint64_t) +
                     sizeof(wf_udp_batch) + like->ranks * rank);
}

weft_status sw_job_create(const wf_agg_join *like, uint32_t id, sw_job **out)
{
    sw_job *job = wf_zalloc(sizeof(*job));

    if (job == NULL) {
        return wf_fail_nomem("a job");
    }
    job->id = id;
    job->like = *like;
    job->since_ns = wf_now_ns();
    job->conn = wf_zalloc(like->ranks * sizeof(*job->conn));
    job->address = wf_zalloc(like->ranks * sizeof(*job->address));
    if (job->conn == NULL || job->address == NULL) {
        sw_job_destroy(job, NULL, 0);
        return wf_fail_nomem("the ranks of a job");
    }
    *out = job;
    return WEFT_OK;
}

static void lane_fini(sw_lane *lane)
{
    wf_free(lane->memory);
    wf_free(lane->begun_ns);
    wf_free(lane->rank);
    wf_free(lane->all);
    wf_free(lane->to);
    wf_free(lane->late);
}

static weft_status lane_init(sw_lane *lane, uint32_t number, sw_job *job,
                             bool injects)
{
    wf_agg_shape shape = shape_of(&job->like, job->joined.slots);
    uint32_t ranks = shape.ranks;

    shape.job = job->id;
    shape.epoch = job->joined.epoch;
    shape.lane = number;
    lane->job = job;
    lane->memory = wf_zalloc_aligned(64, wf_agg_pool_bytes(&shape));
    lane->begun_ns = wf_zalloc(2 * shape.slots * sizeof(*lane->begun_ns));
    lane->rank = wf_zalloc(ranks * sizeof(*lane->rank));
    lane->all = wf_zalloc(sizeof(*lane->all));
    lane->to = wf_zalloc(ranks * sizeof(*lane->to));
    lane->late = injects ? wf_zalloc(ranks * sizeof(*lane->late)) : NULL;
    if (lane->memory == NULL || lane->begun_ns == NULL || lane->rank == NULL ||
        lane->all == NULL || lane->to == NULL ||
        (injects && lane->late == NULL)) {
        return wf_fail_nomem("the slots of a job");
    }
    wf_agg_pool_init(&lane->pool, &shape, lane->memory);
    return WEFT_OK;
}

weft_status sw_job_activate(sw_job *job, sw_shard *shard, uint32_t shards,
                            bool injects)
{
    weft_status st = WEFT_OK;

    for (uint32_t i = 0; i < shards && st == WEFT_OK; i++) {
        st = lane_init(&job->lane[i], i, job, injects);
    }
    for (uint32_t i = 0; i < shards && st == WEFT_OK; i++) {
        pthread_mutex_lock(&shard[i].lock);
        shard[i].lane[job->id % SW_JOBS] = &job->lane[i];
        pthread_mutex_unlock(&shard[i].lock);
    }
    job->active = st == WEFT_OK;
    return st;
}

void sw_job_destroy(sw_job *job, sw_shard *shard, uint32_t shards)
{
    for (uint32_t i = 0; i < shards; i++) {
        pthread_mutex_lock(&shard[i].lock);
        if (shard[i].lane[job->id % SW_JOBS] == &job->lane[i]) {
            shard[i].lane[job->id % SW_JOBS] = NULL;
        }
        pthread_mutex_unlock(&shard[i].lock);
    }
    for (uint32_t i = 0; i < WF_AGG_SHARDS; i++) {
        lane_fini(&job->lane[i]);
    }
    wf_free(job->conn);
    wf_free(job->address);
    wf_free(job);
}
