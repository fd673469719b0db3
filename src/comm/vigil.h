/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes the speaker of a node watches, how long each has been silent, and
 * when it is taken for dead. Pure: beat.c sends and receives.
 *
 *   1. In calm a node watches the living ones beside it on the circle of nodes
 *      (gossip.h), and they watch it. So heartbeats take two connections,
 *      however many nodes there are.
 *   2. A node of which nothing came for a quarter of the timeout is silent: the
 *      other ranks there are asked, too.
 *   3. Whoever hears nothing of a node that it watches for an eighth of the
 *      timeout (three heartbeats at least), loses a connection or hears of a
 *      death is alert for half a timeout, which begins anew at each look while
 *      that node is still not heard. Heartbeats say for how long still, and
 *      whoever hears that is alert as long, unless it is so already, but for
 *      the time that a heartbeat may have been under way. So all are calm half
 *      a timeout after the last reason, and that much later.
 *   4. Who is alert watches all neighbours of gossip.h, up to 2 log2(nodes),
 *      with whom it is connected: of nodes that are cut off together, most are
 *      beside others of them only. With the others it connects only after a
 *      death. A host that is cut off for a while may be among them, a
 *      connection that cannot be made is lost for good, and what lasts less
 *      than the timeout is to lose nothing. For the same reason nobody else
 *      connects for the sake of a mere question while it is wary: alert, but
 *      not after a death. Neighbours change with every death, but a node of
 *      which nothing came yet, or which is silent (rule 2), is watched until
 *      something comes or it is dead.
 *   5. A watched node of which nothing came for the whole timeout is dead. What
 *      it did before it was watched is not known, so a node that is watched by
 *      rule 4 alone is found dead later than one that is beside a living one:
 *      an eighth of the timeout where there is a connection, else up to a
 *      timeout.
 */
#ifndef WF_COMM_VIGIL_H
#define WF_COMM_VIGIL_H

#include "comm/gossip.h"

typedef enum wf_vigil_state {
    WF_VIGIL_WELL,
    WF_VIGIL_SILENT, /* rule 2 */
    WF_VIGIL_DEAD    /* rule 5 */
} wf_vigil_state;

typedef struct wf_vigil_node {
    uint32_t node;
    wf_vigil_state state;
} wf_vigil_node;

typedef struct wf_vigil {
    uint32_t nodes;
    uint64_t timeout_ns; /* WEFT_HOST_TIMEOUT */
    uint64_t every_ns;   /* WEFT_HEARTBEAT */
    uint64_t looked_ns;  /* when it last looked, and sent heartbeats */
    uint64_t alert_ns;   /* it is alert until then */
    uint64_t open_ns;    /* it may connect with others until then */
    bool hastens;        /* it became alert since: it looks at once */
    uint64_t *heard_ns;  /* by node: when something last came from it */
    uint8_t *watched;    /* by node: whether it is, and was heard since */
    wf_vigil_node *seen; /* at the last look, with room for all nodes */
    /* Is this rank connected with the speaker of a node? NULL: with all. */
    bool (*connected)(void *ctx, uint32_t node);
    void *ctx;
} wf_vigil;

weft_status wf_vigil_init(wf_vigil *v, uint32_t nodes, uint64_t timeout_ns,
                          uint64_t every_ns);
void wf_vigil_fini(wf_vigil *v);

/* This rank begins to speak for its node: nobody has been silent so far. */
void wf_vigil_begin(wf_vigil *v, uint64_t now);
/* Something came from a node. */
void wf_vigil_hear(wf_vigil *v, uint32_t node, uint64_t now);
/* Has something come from it since then? */
bool wf_vigil_heard_since(const wf_vigil *v, uint32_t node, uint64_t then);

/* There is a reason for an alert here; or even a death. */
void wf_vigil_alert(wf_vigil *v, uint64_t now);
void wf_vigil_death(wf_vigil *v, uint64_t now);
/* Another node was alert for so long still when it said so. Nobody is for
 * longer than rule 3 has it. */
void wf_vigil_hear_alert(wf_vigil *v, uint64_t left_ns, uint64_t now);
/* For how long it is alert still; 0: it is calm. */
uint64_t wf_vigil_alert_left(const wf_vigil *v, uint64_t now);
/* Until when it is wary (rule 4); a time that has passed: it is not. */
uint64_t wf_vigil_wary_until(const wf_vigil *v, uint64_t now);

/* Is it time to look, and to send heartbeats? */
bool wf_vigil_is_due(const wf_vigil *v, uint64_t now);

/* Look at all nodes that are to be watched now. Returns how many there are in
 * `v->seen`. */
uint32_t wf_vigil_look(wf_vigil *v, const wf_gossip *g, uint64_t now);

#endif
