/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts, links, cores, and messages on their way: the part of the simulation
 * that knows nothing of what messages are for. What ranks do with them is an
 * actor's matter. */
#ifndef SIM_NETWORK_H
#define SIM_NETWORK_H

#include "counts.h"
#include "model.h"

typedef struct sim sim;

/* One message under way. */
typedef struct sim_message {
    struct sim_message *next;
    uint32_t from;
    uint32_t to;
    uint64_t bytes; /* of data; the model's header comes on top */
    /* The actor's own. */
    uint32_t kind;
    uint64_t tag;
    uint64_t length; /* that is spoken of */
    void *sender;
    void *receiver;
    unsigned char *content; /* freed with the message */
} sim_message;

/* What ranks do. Both are called at `sim->now` on behalf of one rank, whose
 * processor they may use by sim_work. */
typedef struct sim_actor {
    /* A message has come. Gives true if it was used up; else it is the actor's
     * to free. */
    bool (*arrived)(sim *s, uint32_t rank, sim_message *m);
    /* After all that had come, at the beginning, and when it asked for it. */
    void (*step)(sim *s, uint32_t rank);
    /* The time of sim_later has come. Optional. */
    void (*later)(sim *s, uint32_t about);
} sim_actor;

typedef struct sim_rank {
    sim_message *first; /* have come, and were not looked at yet */
    sim_message *last;
    sim_time free;   /* it is busy until then */
    sim_time waking; /* it looks again then; 0: not before something comes */
} sim_rank;

struct sim {
    sim_model model;
    const sim_actor *actor;
    void *state; /* the actor's */
    sim_time now;
    uint32_t hosts;
    sim_rank *rank;
    sim_count *count;
    sim_time *out;  /* by host: until when its link is in use */
    sim_time *in;   /* likewise */
    double *links;  /* by host: as wide as so many of the model's; 1 at first */
    sim_time core;  /* of the network */
    sim_time *cpu;  /* by core */
    uint32_t cores; /* of a host; 0: enough */
    sim_time owed;  /* work beside that of the rank that runs now */
    sim_events events;
    sim_pairs pairs;
    sim_message *spare;
    uint64_t happened; /* events */
};

void sim_init(sim *s, const sim_model *model, const sim_actor *actor,
              void *state);
void sim_fini(sim *s);

/* All ranks begin at time 0; returns when nothing happens any more. */
void sim_run(sim *s);

/* Use the processor of the rank on whose behalf this runs. */
static inline void sim_work(sim *s, double seconds)
{
    s->now += sim_seconds(seconds);
}

/* A message to be filled in and sent; and the end of one. */
sim_message *sim_message_new(sim *s, uint32_t from, uint32_t to);
void sim_message_free(sim *s, sim_message *m);

/* Send it from here and now. */
void sim_post(sim *s, sim_message *m);

/* Have `later` of the actor called then. */
void sim_later(sim *s, sim_time at, uint32_t about);

/* Have `rank` step at `at`, or as soon as it is free after that; but only once,
 * if it was to step earlier. */
void sim_wake(sim *s, uint32_t rank, sim_time at);

static inline bool sim_near(const sim *s, uint32_t a, uint32_t b)
{
    return sim_model_host(&s->model, a) == sim_model_host(&s->model, b);
}

/* Count a message that a rank sends; or that it receives. */
void sim_count_sent(sim *s, uint32_t from, uint32_t to, uint64_t bytes);
void sim_count_received(sim *s, uint32_t rank, uint64_t bytes);

#endif
