/* SPDX-License-Identifier: Apache-2.0 */
/* What happens when: a queue in the order of time. Events of one time come out
 * in the order they were put in, so that a simulation can be repeated. */
#ifndef SIM_EVENTS_H
#define SIM_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Picoseconds: a message of one byte takes 80 of them at 100 Gbit/s. */
typedef uint64_t sim_time;

static inline sim_time sim_seconds(double seconds)
{
    return (sim_time)(seconds * 1e12 + 0.5);
}

typedef struct sim_event {
    sim_time at;
    uint64_t order;
    void *about;
    uint32_t what;
    uint32_t who;
} sim_event;

typedef struct sim_events {
    sim_event *heap;
    size_t count;
    size_t room;
    uint64_t order;
} sim_events;

void sim_events_add(sim_events *events, sim_time at, uint32_t what,
                    uint32_t who, void *about);
/* False: there is none. */
bool sim_events_next(sim_events *events, sim_event *out);
void sim_events_fini(sim_events *events);

/* Memory that is there, or the program ends: a simulator has nothing better to
 * do. Zero at first. */
void *sim_alloc(size_t count, size_t bytes);

#endif
