/* SPDX-License-Identifier: Apache-2.0 */
/* States of a model that is walked breadth first: which were seen, which are
 * still to be looked at, and how each was reached.
 *
 * Of a state that was seen only a hash of 64 bits is kept, and the way to it;
 * states that are still to be looked at are kept whole. A state is bytes: equal
 * ones are one state. Ends the program when there is no memory. */
#ifndef WT_STATES_H
#define WT_STATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct wt_state_queue {
    unsigned char *at;
    size_t used;
    size_t size;
    size_t read;
} wt_state_queue;

/* All zero: none were seen. */
typedef struct wt_states {
    uint64_t *hash; /* 0: free */
    uint64_t size;  /* a power of two */
    wt_state_queue now;
    wt_state_queue next;
    struct wt_state_step *steps;
    uint64_t steps_size;
    uint64_t count; /* different ones; they are numbered as they were found */
} wt_states;

/* A state that was reached from state `before` by `action`; the first one from
 * itself. Does nothing if it was seen. */
void wt_states_add(wt_states *s, const void *state, size_t n, uint64_t before,
                   unsigned action);

/* Go on to the states that were added since the last call; false: none were. */
bool wt_states_go_on(wt_states *s);

/* Copy the next of them to `state`, which has room for the longest; false: that
 * was all. */
bool wt_states_take(wt_states *s, void *state);

/* Are there states that nobody has looked at? */
bool wt_states_left(const wt_states *s);

/* Actions that lead to a state, the last one first; returns their number. */
unsigned wt_states_path(const wt_states *s, uint64_t number, unsigned *path,
                        unsigned room);

void wt_states_fini(wt_states *s);

/* Walks end at this time of wt_now, where they are; 0: at none. */
extern double wt_states_deadline;
bool wt_states_late(void);

#endif
