/* SPDX-License-Identifier: Apache-2.0 */
/* A job whose switch is killed at any moment of any call, and started again,
 * over and over, while it checks every result. */
#ifndef WT_SWITCH_CRASHES_H
#define WT_SWITCH_CRASHES_H

#include "job.h"

/* Run such a job for so many seconds; the same seed draws the same calls. Fails
 * the test, and names the rank, if a result is wrong or a rank hangs. */
void crash_run(const job_plan *like, double seconds, unsigned seed);

#endif
