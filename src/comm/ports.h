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

#include "comm/flow.h"
#include "transport/transport.h"

/* A transport, and this rank's port of it. */
typedef struct wf_route {
    const wf_transport *transport;
    wf_port *port;  /* NULL: it is closed */
    int descriptor; /* to be watched while this rank sleeps, or -1 */
} wf_route;

/* A descriptor of a layer above, see wf_ports_watch. */
typedef struct wf_also {
    int fd;
    bool heeded;
} wf_also;

typedef struct wf_ports {
    uint32_t count;    /* of ports that are open */
    uint32_t prepared; /* of routes that are not open yet */
    /* Of ports with a descriptor, and of `also`. */
    _Atomic uint32_t watched;
    wf_route *route; /* in the order of the table */
    uint8_t *to;     /* by rank in the job: which route leads there */
    bool *reported;  /* by rank in the job: its port knows that it is gone */
    /* By rank in the job: why nothing more comes from it; WEFT_OK: it does. */
    weft_status *lost;
    uint32_t gone; /* of the board, at the last report to the ports */
    bool hurries;  /* this rank leaves, and has waited for a peer in vain */
    /* By rank in the job: what may be under way with it. NULL until a layer
     * asks for it. */
    wf_flow *flow;
    wf_also *also;
    uint32_t alsos;
    /* Operations that wait for what comes by `also`: another process, which is
     * not one of the ranks, has work to do. Where ranks outnumber cores whoever
     * waits meanwhile sleeps at once, so that it gets a core. Theirs to count.
     */
    _Atomic uint32_t awaited;
    _Atomic uint64_t due_ns; /* who sleeps for the ports wakes then; 0: never */
} wf_ports;

/* Join the other ranks (wf_host_join), telling them the addresses of the ports
 * that transports prepare. Needs no lock. */
weft_status wf_ports_join(weft_world *world, const weft_boot *boot,
                          wf_interrupt interrupt);

/* Open a port of each transport that is needed. Fails with WEFT_ERR_UNSUPPORTED
 * if some rank is reached by none. What there is after a failure is for
 * wf_ports_close. Needs no lock. */
weft_status wf_ports_open(weft_world *world);
/* Let what was sent leave the ports, before this rank says goodbye. */
void wf_ports_flush(weft_world *world);
/* Close all ports, once the goodbye has left them; routes still say which
 * transport leads where. */
void wf_ports_close(weft_world *world);
void wf_ports_fini(weft_world *world);

/* The longest payload of an active message to a rank of the job. */
size_t wf_ports_am_payload(const weft_world *world, uint32_t to);

/* Have a flow for each rank of the job; wf_ports_flow is the one of a rank. All
 * who send more to it, or ask it for more, than one message share what is
 * learnt there. */
weft_status wf_ports_flows(weft_world *world);
wf_flow *wf_ports_flow(const weft_world *world, uint32_t rank);

/* Send an active message to a rank of the job. Fails with WEFT_ERR_CLOSED once
 * the ports are closed: threads of layers above may outlive the world. */
weft_status wf_ports_am(weft_world *world, uint32_t to, uint32_t id,
                        const void *header, size_t header_bytes,
                        const void *payload, size_t n);

/* Like wf_ports_am, but `fill` writes the payload, in place where the transport
 * can send it from there. It is called once, or not at all if this fails. */
weft_status wf_ports_am_fill(weft_world *world, uint32_t to, uint32_t id,
                             const void *header, size_t header_bytes, size_t n,
                             wf_am_fill_fn *fill, void *ctx);

/* Move what can be moved on all ports, and tell them who died or left. True if
 * something happened. */
bool wf_ports_progress(weft_world *world);

/* Is there something on a port that leaves only by further progress? */
bool wf_ports_busy(const weft_world *world);
/* Is there on one without a descriptor? A peer that makes room rings the first
 * bell, then. */
bool wf_ports_stuck(const weft_world *world);

/* Have whoever sleeps for it woken when there is something to do on a port that
 * has a descriptor; bells ring by themselves for the others. To be called
 * between wf_board_drowse (or wf_board_listen) and the sleep, after a look at
 * the ports that found nothing. False: there is something to do, look again.
 * Takes world->drive by itself. */
bool wf_ports_arm(weft_world *world);

/* Whoever sleeps for the ports is to be woken when this descriptor polls
 * readable, too: a layer above has operations that wait for it. It must not be
 * closed before wf_ports_unwatch, which takes those that are not watched. */
weft_status wf_ports_watch(weft_world *world, int fd);
void wf_ports_unwatch(weft_world *world, int fd);

/* Only while a descriptor is heeded, as it is at first, does it wake anybody.
 * Between operations nobody reads what comes there, so that it would wake
 * sleepers for nothing, again and again. */
void wf_ports_heed(weft_world *world, int fd, bool heeded);

/* Whoever sleeps for the ports is to look at this time. Those who ask for that
 * do so whenever their operation is stepped. */
void wf_ports_due(weft_world *world, uint64_t now, uint64_t at);

/* That time, for one who is about to sleep; 0: never. One that has passed is
 * told once: in the look that follows, operations that go on ask for the next
 * one, and those that are over do not. */
uint64_t wf_ports_next_due(weft_world *world, uint64_t now);

/* The error for a rank that a port has lost; says, as the board does, whether
 * it died or left. */
weft_status wf_ports_fail(const weft_world *world, uint32_t rank);

/* In a forked child: let go of what is pending and shared. */
void wf_ports_orphan(weft_world *world);

#endif
