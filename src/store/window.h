/* SPDX-License-Identifier: Apache-2.0 */
/* When to act on an intent: how many ticks of a worker's clock before its
 * start. Pure arithmetic.
 *
 * Clocks are looked at about once in the time from one round to the next. An
 * intent that is not acted on now has its next chance then, and the action
 * takes as long as rounds took of late, measured in looks: 1 where answers come
 * before the next look, more where hosts are far or slow. So an intent is due
 * if the clock may reach its start within one look and one action: the ticks of
 * that time are taken as Poisson distributed, and the window is a high quantile
 * of that. */
#ifndef WF_STORE_WINDOW_H
#define WF_STORE_WINDOW_H

#include <stdint.h>

typedef struct wf_window {
    double
        estimate;  /* ticks from look to look, smoothed over looks with ticks */
    int64_t clock; /* at the last look */
} wf_window;

/* `clock`: the worker's, now. */
void wf_window_init(wf_window *window, int64_t clock);

/* The worker's clock is found at `clock`, while an action takes `action` looks:
 * intents that start before clock + the result, or at it, are due. At least
 * 1. */
int64_t wf_window_look(wf_window *window, int64_t clock, double action);

/* How many looks an action takes, after a round that took `looks`: a longer one
 * counts at once, shorter ones by and by. At least 1. */
double wf_window_learn(double action, double looks);

/* The least n for which a Poisson distributed number is n or less with
 * probability 0.9999; above a mean of 1e6, of the normal distribution with the
 * same mean and variance. 0 for a mean of 0 or less. */
int64_t wf_window_quantile(double mean);

#endif
