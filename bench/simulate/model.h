/* SPDX-License-Identifier: Apache-2.0 */
/* The machine that is simulated: hosts with one link each, ranks that share
 * it, and what a message costs them.
 *
 *   rank -- cores of its host -- link out -- core of the network -- link in
 *
 * A link carries one message after the other; a message that finds it in use
 * waits. So ranks of a host share its bandwidth, and so do all who send to one
 * host at once (incast). Nothing is lost. A link passes a message on while it
 * comes in: two links in a row cost the time of one. */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* X(name, default, help). Times are in seconds, rates in bytes a second. */
#define SIM_MODEL_TABLE(X)                                                     \
    X(latency, 5e-6, "one way between hosts, of a message without data")       \
    X(bandwidth, 12.5e9, "of a host's link, in each direction")                \
    X(burst, 0, "bytes that an idle link passes at once (token bucket)")       \
    X(oversubscription, 1, "links' bandwidth over that of the core")           \
    X(header, 96, "bytes that each message adds on the wire")                  \
    X(eager, 65536, "bytes up to which a message is sent unasked")             \
    X(send, 5e-7, "processor time to send a message to another host")          \
    X(receive, 5e-7, "processor time to receive one")                          \
    X(ack, 0,                                                                  \
      "processor time to acknowledge a message to whom nothing is sent "       \
      "since the one before")                                                  \
    X(segment, 1400, "bytes of a message that go in one packet")               \
    X(longer, 0,                                                               \
      "processor time that a longer message takes beyond: it is "              \
      "acknowledged at once")                                                  \
    X(touch, 0,                                                                \
      "bytes a second that a processor moves to or from a link; "              \
      "0: the network moves them by itself")                                   \
    X(local_latency, 3e-7, "one way inside a host")                            \
    X(local_send, 1e-7,                                                        \
      "processor time of a message inside a host, at "                         \
      "either end")                                                            \
    X(copy, 1e10, "bytes a second that a rank copies")                         \
    X(fold, 5e9, "bytes a second that a rank reduces")                         \
    X(step, 0, "processor time of each look of a rank at its operation")       \
    X(cores, 0, "of a host; 0: one for each rank")                             \
    X(one_machine, 0, "1: all hosts share the cores of one, as namespaces do") \
    X(pinned, 0, "1: each rank stays on one core; they are dealt out in turn") \
    X(wake, 0, "to wake a rank that has waited for longer than `spin`")        \
    X(spin, 5e-5, "see `wake`")

typedef struct sim_model {
    uint32_t ranks;
    uint32_t per_host;
#define SIM_MODEL_FIELD(name, value, help) double name;
    SIM_MODEL_TABLE(SIM_MODEL_FIELD)
#undef SIM_MODEL_FIELD
} sim_model;

void sim_model_init(sim_model *model);

/* "latency=5e-6"; false if there is no such number. */
bool sim_model_set(sim_model *model, const char *text);

/* Lines of that form; # begins a comment. False, and `line` says which, at one
 * that is not. */
bool sim_model_read(sim_model *model, FILE *file, char *line, size_t room);

void sim_model_help(FILE *out);

static inline uint32_t sim_model_hosts(const sim_model *model)
{
    return (model->ranks + model->per_host - 1) / model->per_host;
}

static inline uint32_t sim_model_host(const sim_model *model, uint32_t rank)
{
    return rank / model->per_host;
}

#endif
