/* SPDX-License-Identifier: Apache-2.0 */
/* weft-switch: what its files share.
 *
 * The main thread has the control channel, the HTTP port and the signals. Each
 * shard is a thread with a socket for packets. A job has a lane in each shard:
 * a pool of slots of its own. A shard holds its lock while it works through the
 * packets of one read; the main thread takes it to add or remove a lane and to
 * read counters. Nothing else is shared. */
#ifndef SW_SWITCH_H
#define SW_SWITCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "agg/control.h"
#include "agg/slot.h"
#include "agg/udp.h"
#include "inject.h"

#define SW_JOBS 1024u /* a job's number modulo this is its seat */

typedef struct sw_options {
    const char *key_file;
    const char *host;
    const char *http_host;
    uint16_t port;      /* 0: any */
    uint16_t http_port; /* 0: any */
    bool http_beside;   /* instead: the port after `port`; any if that is 0 */
    bool http;
    uint32_t shards;
    uint32_t jobs;        /* at once */
    uint32_t slots;       /* of a job in a shard, at most */
    uint64_t memory;      /* of all jobs */
    uint64_t job_memory;  /* of one */
    uint64_t patience_ns; /* for the ranks of a job to come */
    sw_inject_options inject;
} sw_options;

/* What is known of a rank in a shard. */
typedef struct sw_rank {
    uint64_t packets;
    uint64_t resent;  /* of these, sent before */
    uint64_t last;    /* chunks for which all others waited */
    uint64_t late_ns; /* in all, after the first part of the chunk */
    uint32_t rtt_us;  /* as the rank measured it last */
} sw_rank;

/* A packet that leaves after the next one, see inject.h. */
typedef struct sw_late {
    wf_agg_head head;
    size_t bytes; /* of the payload */
    bool there;
    unsigned char payload[WF_AGG_PAYLOAD_MAX];
} sw_late;

/* A job in one shard. */
typedef struct sw_lane {
    struct sw_job *job;
    wf_agg_pool pool;
    void *memory;
    uint64_t *begun_ns; /* by place */
    sw_rank *rank;
    wf_udp_batch *all; /* for all ranks */
    wf_udp_batch *to;  /* for each */
    sw_late *late;     /* for each; only where faults are injected */
    bool dirty;        /* something is to be sent */
    struct sw_lane *next_dirty;
    uint64_t verdict[WF_AGG_VERDICTS];
    uint64_t refused[WF_AGG_REFUSALS];
    uint64_t results; /* chunks that are complete */
    uint64_t bytes;   /* of payloads that were kept */
    uint64_t unsent;  /* batches that the kernel did not take */
} sw_lane;

typedef struct sw_job {
    uint32_t id;
    wf_agg_join like; /* what its first rank asked for */
    wf_agg_joined joined;
    wf_agg_key key;
    uint64_t since_ns;
    uint32_t here;         /* ranks that have joined */
    bool active;           /* all have */
    uint64_t left_ns;      /* when the first of them left; 0: none has */
    uint64_t memory;       /* that it counts for */
    struct sw_conn **conn; /* by rank; NULL: not here */
    wf_udp_address *address;
    sw_lane lane[WF_AGG_SHARDS];
} sw_job;

typedef struct sw_shard {
    pthread_t thread;
    bool started;
    int fd;
    uint16_t port;
    uint32_t number;
    const _Atomic bool *stop;
    pthread_mutex_t lock;
    sw_lane *lane[SW_JOBS];
    sw_lane *dirty;
    uint64_t now_ns; /* of this read */
    wf_udp_inbox *inbox;
    sw_inject inject;
    uint64_t packets;
    uint64_t strangers; /* not ours, or of no job */
} sw_shard;

/* --- shard.c -------------------------------------------------------------- */

weft_status sw_shard_start(sw_shard *shard, uint32_t number,
                           const sw_options *options, wf_udp_address *at,
                           const _Atomic bool *stop);
/* It has been told to stop. */
void sw_shard_join(sw_shard *shard);

/* --- job.c ---------------------------------------------------------------- */

/* Bytes that a job counts for. */
uint64_t sw_job_memory(const wf_agg_join *like, uint32_t slots, uint32_t shards,
                       bool injects);
weft_status sw_job_create(const wf_agg_join *like, uint32_t id, sw_job **out);
/* All ranks are there: make its lanes, and seat them in the shards. */
weft_status sw_job_activate(sw_job *job, sw_shard *shard, uint32_t shards,
                            bool injects);
void sw_job_destroy(sw_job *job, sw_shard *shard, uint32_t shards);

#endif
