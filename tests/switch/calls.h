/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks do in tests of the engine, in jobs of all kinds; each checks its
 * results. */
#ifndef WT_SWITCH_CALLS_H
#define WT_SWITCH_CALLS_H

#include "job.h"
#include "wt_coll.h"

/* Options of a switch: none, and one that loses, repeats and reorders. */
extern const char *const calls_no_options[];
extern const char *const calls_lossy[];

void calls_one(weft_world *world, const wt_coll *c);

/* Every type and operation, in place and not, off alignment, from one element
 * to more than the window. */
void calls_values(weft_world *world);

/* The daemon has reduced as many chunks as the calls had. */
void calls_chunks(weft_world *world);

/* Requests, several at once, among them some that the switch does not serve,
 * on two communicators. */
void calls_requests(weft_world *world);

/* Calls go on while the last switch is killed and started again, and are back
 * on it within five seconds of its return; no result is wrong. */
void calls_killed(weft_world *world);
extern unsigned calls_last_switch; /* its number: one less than there are */

/* Rank 1 calls with another count; or something else. */
void calls_other_count(weft_world *world);
void calls_other_call(weft_world *world);
/* Rank 1 comes to the first call when others have asked where it is. */
void calls_late(weft_world *world);

/* Rank 1 is killed in the middle of calls. */
void calls_death(weft_world *world);

/* A job with a rank for each letter, on the host of that name. */
void calls_on_nodes(const char *nodes, const char *const *options,
                    const char *settings, wt_body *body);

/* A job with so many switches. */
void calls_on_switches(unsigned switches, unsigned ranks,
                       const char *const *options, const char *settings,
                       wt_body *body);

#endif
