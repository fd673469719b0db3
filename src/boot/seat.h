/* SPDX-License-Identifier: Apache-2.0 */
/* Which process has the place in a job that a launcher gave.
 *
 * A child of a rank, forked or started anew, has the launcher's variables, too,
 * and would wait for ranks that are there already; so would a process that was
 * given the rank of another by mistake. So whoever joins listens, for as long
 * as it is a rank, on an abstract Unix socket that is named after the user, the
 * job and the rank, and the next one finds the name taken and asks the kernel
 * by whom. The name goes with the process, however that ends, and with exec; a
 * forked child closes its copy. So a rank that is started again finds it free.
 *
 * Where there are no such sockets, or those of the other are out of sight
 * (another network namespace), nobody is told. */
#ifndef WF_BOOT_SEAT_H
#define WF_BOOT_SEAT_H

#include <weft/status.h>

typedef struct wf_boot_seat wf_boot_seat;

/* Take the place that the environment describes. All worlds of a process share
 * it. `*out` is NULL where there is nothing to hold: a job of one rank, or no
 * sockets. WEFT_ERR_CLOSED names the process that has it. */
weft_status wf_boot_seat_take(wf_boot_seat **out);

/* Nothing but memory in a forked child of the process that took it. */
void wf_boot_seat_leave(wf_boot_seat *seat);

#endif
