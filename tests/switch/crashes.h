/* SPDX-License-Identifier: Apache-2.0 */
/* A job whose switch is killed at any moment of any call, and started again,
 * over and over, while it checks every result. */
#ifndef WT_SWITCH_CRASHES_H
#define WT_SWITCH_CRASHES_H

#include "job.h"

typedef struct crash_plan {
    unsigned ranks;
    const char *const *options; /* of the switch */
    const char *settings;       /* of the ranks */
    double seconds;
    unsigned seed;
} crash_plan;

/* Fails the test, and names the rank, if a result is wrong or a rank hangs. */
void crash_run(const crash_plan *plan);

#endif
