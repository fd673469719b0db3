/* SPDX-License-Identifier: Apache-2.0 */
/* A transport of the simulated network: so that the library's own code, which
 * calls a transport, is what runs.
 *
 * Up to `eager` bytes a message is sent at once. A longer one is offered; when
 * a receive has matched, it is asked for, and then it comes. Data does not
 * travel, only its length; messages of a few bytes have their content, because
 * calls are compared by it. */
#ifndef SIM_PORT_H
#define SIM_PORT_H

#include "coll/message/check.h"
#include "network.h"
#include "transport/msg.h"

/* Longest message that carries what is in it. */
#define SIM_CONTENT_MAX WF_CHECK_BYTES

/* One rank's end: what it waits for, and what came before its receive. */
typedef struct sim_end {
    wf_queue posted;
    sim_message *first; /* came early */
    sim_message *last;
} sim_end;

struct wf_port {
    sim *sim;
    uint32_t rank; /* on whose behalf the library runs now */
    bool content;  /* messages carry what is in them */
    sim_end *end;  /* by rank */
};

/* Tagged messages only. */
extern const wf_transport sim_transport;

void sim_port_init(wf_port *port, sim *s);
void sim_port_fini(wf_port *port);

/* A message has come for `rank`; see sim_actor.arrived. */
bool sim_port_arrived(wf_port *port, uint32_t rank, sim_message *m);

#endif
