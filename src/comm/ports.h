/* SPDX-License-Identifier: Apache-2.0 */
/* The ports of a world: which transport leads to which rank.
 *
 * A world is given a table of transports, best first (wf_parts). Each rank of
 * the job is routed to the first transport that reaches it, and a transport
 * that some rank is routed to has a port. Nothing else in src/comm knows how
 * many transports there are, or which. All calls are made under world->drive,
 * unless they say otherwise. */
#ifndef WF_COMM_PORTS_H
#define WF_COMM_PORTS_H

#include <weft/world.h>

#include "transport/transport.h"

/* A transport, and this rank's port of it. */
typedef struct wf_route {
    const wf_transport *transport;
    wf_port *port; /* NULL: it is closed */
} wf_route;

typedef struct wf_ports {
    uint32_t count;  /* of ports that are open */
    wf_route *route; /* in the order of the table */
    uint8_t *to;     /* by rank in the job: which route leads there */
    bool *told;      /* by rank in the job: its port knows that it is gone */
    uint32_t alarm;  /* of the board, when ports were last told */
} wf_ports;

/* Open a port of each transport that is needed. Fails with WEFT_ERR_UNSUPPORTED
 * if some rank is reached by none. What it has opened before it fails is for
 * wf_ports_close. Needs no lock. */
weft_status wf_ports_open(weft_world *world);
/* Close all ports; routes still say which transport leads where. */
void wf_ports_close(weft_world *world);
void wf_ports_fini(weft_world *world);

/* Move what can be moved on all ports, and tell them who died or left. True if
 * something happened. */
bool wf_ports_progress(weft_world *world);

/* Is there something on a port that leaves only by further progress? */
bool wf_ports_busy(const weft_world *world);

/* Have this rank's bell ring when there is something to do on a port that has a
 * descriptor; it rings by itself for the others. To be called between
 * wf_board_drowse (or wf_board_listen) and the sleep, after a look at the ports
 * that found nothing. False: there is something to do, look again. Takes
 * world->drive by itself. */
bool wf_ports_arm(weft_world *world);

/* In a forked child: let go of what is pending and shared. */
void wf_ports_orphan(weft_world *world);

#endif
