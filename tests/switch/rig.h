/* SPDX-License-Identifier: Apache-2.0 */
/* A weft-switch of the test's own on loopback, and workers as threads. */
#ifndef WT_SWITCH_RIG_H
#define WT_SWITCH_RIG_H

#include <sys/types.h>

#include "agg/client.h"

enum { RIG_WORKERS = 16 };

typedef struct rig {
    pid_t pid;
    uint16_t port;
    uint16_t http;
    char folder[64];
    char key_file[96];
    wf_secret key;
} rig;

/* A folder with a key in it; no switch yet. Or the same key as another's. */
void rig_init(rig *r);
void rig_init_beside(rig *r, const rig *other);
void rig_fini(rig *r);

/* Start a switch with these options, up to a NULL, beside key, addresses and
 * ports; on the port that it had before, if it has run. */
void rig_start(rig *r, const char *const *options);
/* Send a signal, and return what it exits with, or minus the signal that ended
 * it. */
int rig_stop(rig *r, int signal);

wf_udp_address rig_address(const rig *r);

/* The answer to a GET, with its head; freed by the caller. */
char *rig_get(const rig *r, const char *path);
/* The sum of all samples whose line begins with `name`. */
double rig_metric(const rig *r, const char *name);

/* A worker: one rank of a job. */
typedef struct worker {
    const rig *rig;
    wf_agg_options options;
    wf_agg_client client;
    unsigned seed; /* for its data */
    void *ctx;
    weft_status status;
    char text[256];
} worker;

wf_agg_options worker_options(uint32_t rank, uint32_t ranks, uint64_t group);

/* Until it has joined, or failed. */
weft_status worker_join(worker *w);
weft_status worker_allreduce(worker *w, const void *src, void *dst,
                             uint64_t count, weft_dtype type, weft_op_kind op,
                             bool quantised);

/* Run `body` as each of the ranks, on threads, with options that are alike but
 * for the rank; none of them has joined. Worker r's status is what its body
 * returned. */
typedef weft_status worker_body(worker *w);
void run_workers(const rig *r, const wf_agg_options *like, worker_body *body,
                 void *ctx, worker *out);

#endif
