/* SPDX-License-Identifier: Apache-2.0 */
#include "events.h"

#include <stdio.h>
#include <stdlib.h>

/* Four children a node: half as many levels as with two, and the children lie
 * in two cache lines. */
#define CHILDREN 4u

static void no_memory(void)
{
    fprintf(stderr, "simulate: out of memory\n");
    exit(1);
}

void *sim_alloc(size_t count, size_t bytes)
{
    void *at = calloc(count > 0 ? count : 1, bytes);

    if (at == NULL) {
        no_memory();
    }
    return at;
}

static bool before(const sim_event *a, const sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void grow(sim_events *events)
{
    size_t room = events->room > 0 ? 2 * events->room : 1024;
    sim_event *heap = realloc(events->heap, room * sizeof(*heap));

    if (heap == NULL) {
        no_memory();
    }
    events->heap = heap;
    events->room = room;
}

void sim_events_add(sim_events *events, sim_time at, uint32_t what,
                    uint32_t who, void *about)
{
    sim_event e = {at, events->order++, about, what, who};
    size_t i = events->count++;

    if (i == events->room) {
        grow(events);
    }
    while (i > 0 && before(&e, &events->heap[(i - 1) / CHILDREN])) {
        events->heap[i] = events->heap[(i - 1) / CHILDREN];
        i = (i - 1) / CHILDREN;
    }
    events->heap[i] = e;
}

static size_t earliest_child(const sim_events *events, size_t i)
{
    size_t first = CHILDREN * i + 1;
    size_t best = first;

    for (size_t c = first + 1; c < first + CHILDREN && c < events->count; c++) {
        if (before(&events->heap[c], &events->heap[best])) {
            best = c;
        }
    }
    return best;
}

bool sim_events_next(sim_events *events, sim_event *out)
{
    sim_event last;
    size_t i = 0;

    if (events->count == 0) {
        return false;
    }
    *out = events->heap[0];
    last = events->heap[--events->count];
    while (CHILDREN * i + 1 < events->count) {
        size_t c = earliest_child(events, i);

        if (!before(&events->heap[c], &last)) {
            break;
        }
        events->heap[i] = events->heap[c];
        i = c;
    }
    events->heap[i] = last;
    return true;
}

void sim_events_fini(sim_events *events)
{
    free(events->heap);
    *events = (sim_events){0};
}
