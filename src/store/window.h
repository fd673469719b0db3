/* SPDX-License-Identifier: Apache-2.0 */
/* When to act on an intent: how many ticks of a worker's clock before its
 * start. Pure arithmetic.
 *
 * A round that looks at an intent cannot act on it later than in the next one,
 * and the action takes about a round as well. So an intent is due if the clock
 * may reach its start within two rounds: the ticks of two rounds are taken as
 * Poisson distributed, and the window is a high quantile of that. */
#ifndef WF_STORE_WINDOW_H
#define WF_STORE_WINDOW_H

#include <stdint.h>

typedef struct wf_window {
    double estimate; /* ticks in a round, smoothed over rounds with ticks */
    int64_t clock;   /* at the last round */
} wf_window;

/* `clock`: the worker's, now. */
void wf_window_init(wf_window *window, int64_t clock);

/* A round begins and finds the worker's clock at `clock`: intents that start
 * before clock + the result, or at it, are due. At least 1. */
int64_t wf_window_round(wf_window *window, int64_t clock);

/* The least n for which a Poisson distributed number is n or less with
 * probability 0.9999; above a mean of 1e6, of the normal distribution with the
 * same mean and variance. 0 for a mean of 0 or less. */
int64_t wf_window_quantile(double mean);

#endif
