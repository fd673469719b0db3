/* SPDX-License-Identifier: Apache-2.0 */
/* A seat: the claim of one process to a rank that a launcher assigned.
 *
 * A child of a rank, forked or started anew, has the launcher's variables, too,
 * and would wait for ranks that have already joined; so would a process that
 * was given the rank of another by mistake. So whoever joins listens, for as
 * long as it is a rank, on an abstract Unix socket that is named after the
 * user, the job and the rank. The next process finds the name in use and asks
 * the kernel for its owner. The name is released when the process ends, however
 * it ends, and at exec; a forked child closes its copy. So a rank that is
 * restarted finds it free.
 *
 * Where abstract sockets do not exist, or the other process is in another
 * network namespace, duplicates are not detected. */
#ifndef WF_BOOT_SEAT_H
#define WF_BOOT_SEAT_H

#include <weft/status.h>

typedef struct wf_boot_seat wf_boot_seat;

/* Claim the rank that the environment describes. All worlds of a process share
 * the seat. `*out` is NULL where there is nothing to claim: a job of one rank,
 * or no sockets. WEFT_ERR_CLOSED names the process that holds the rank, or an
 * ancestor that keeps it. */
weft_status wf_boot_seat_take(wf_boot_seat **out);

/* Keep it for a process that is `rank` of `ranks` in a job whose ranks met in a
 * table of their own: its descendants cannot take it. All others can, since it
 * may itself be a child of the rank that the environment describes. Does
 * nothing, and `*out` is NULL, where the environment describes another rank. */
void wf_boot_seat_keep(uint32_t rank, uint32_t ranks, wf_boot_seat **out);

/* Release it. A forked child of the process that took it only frees memory. */
void wf_boot_seat_leave(wf_boot_seat *seat);

#endif
