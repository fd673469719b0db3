/* SPDX-License-Identifier: Apache-2.0 */
/* Transports that keep the contract to the letter and no further: each wraps
 * another one and, at random,
 *
 *   - holds sends and active messages back, and lets those to different ranks
 *     overtake each other;
 *   - tells of what is done late, and in another order;
 *   - returns from progress() without having done anything.
 *
 * Order is kept only where the contract asks for it. Since progress() may
 * return 0 with work left, whoever waits must poll. The random numbers start
 * from the rank, so that a run can be repeated. */
#ifndef CONFORM_DOUBLE_H
#define CONFORM_DOUBLE_H

#include "transport/transport.h"

extern const wf_transport wf_double_self;
extern const wf_transport wf_double_shm;

#endif
