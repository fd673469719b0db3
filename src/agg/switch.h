/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the engine "switch": what it keeps with a communicator.
 *
 *   switch_engine.c   the engine, and an operation while the switch serves
 *   switch_client.c   its client of the switches
 *   switch_hosts.c    what it does where ranks share hosts
 *   switch_settle.c   what ranks do when it is of no more use
 *   switch_return.c   how they agree to try it again
 *   switch_words.c    what comes from other ranks
 *
 * All of it is under world->drive. Calls that a switch could serve are numbered
 * on each communicator, the same on all members. An epoch is a registration
 * with the switch: it begins with a call that all agree on, the first of all
 * with call 0, and ends with the call that all do again on the host path
 * (settle.h). Where a job has several switches, one that is of no use ends the
 * epoch, and the next one begins when all of them are there. Without one, calls
 * are handed on to the engine that serves them else. */
#ifndef WF_AGG_SWITCH_H
#define WF_AGG_SWITCH_H

#include "agg/client.h"
#include "agg/engine.h"
#include "agg/settle.h"
#include "coll/hosts/rounds.h"

typedef enum switch_phase {
    SWITCH_START,
    SWITCH_JOIN,   /* the switch has not answered yet */
    SWITCH_CALL,   /* chunks are under way */
    SWITCH_SETTLE, /* given up; words of others are awaited */
    SWITCH_FETCH,  /* the rest comes from a rank that has all */
    SWITCH_OVER    /* done, or handed on */
} switch_phase;

/* What ranks say to each other: wf_coll_word.kind. */
typedef enum switch_said {
    SWITCH_WORD = 1, /* of settle.h: operation, first chunk */
    SWITCH_ANSWER,   /* the same, and needs no answer */
    SWITCH_WANTS,    /* results of an operation, from this byte on */
    SWITCH_GIVES,    /* results, at this byte */
    SWITCH_BACK,     /* to member 0: the switch is there again */
    SWITCH_GO,       /* from member 0: the next epoch begins with this call */
    SWITCH_CALLS,    /* what this rank has called as this operation */
    SWITCH_DIFFERS   /* this rank has called that instead */
} switch_said;

#define SWITCH_NEVER UINT64_MAX
/* How long a switch may be silent before it is given up, also while it is being
 * joined. */
#define SWITCH_PATIENCE_NS (2 * WF_SEC)

typedef struct switch_cell switch_cell;

typedef struct switch_state {
    weft_comm *comm;
    wf_udp_address at[WF_AGG_SWITCHES];
    uint32_t switches;
    wf_secret key;

    uint64_t calls; /* that have begun */
    uint32_t epoch;
    bool open;        /* the epoch is under way */
    uint64_t go_at;   /* the call with which the next one begins */
    wf_settle settle; /* of the epoch */
    wf_settle_word *words;

    wf_agg_client client;
    bool has_client;
    int watched[2 * WF_AGG_SWITCHES]; /* its descriptors */
    uint32_t watches;

    /* The operation, while it is in a phase between START and OVER. */
    wf_coll_op *op;
    switch_phase phase;
    uint64_t results;  /* of the client, or `fetched`, when last looked at */
    uint64_t moved_ns; /* when something happened for it */
    uint64_t said_ns;  /* when something was said again */
    size_t chunk_bytes;
    uint32_t giver; /* FETCH: from whom, and how far */
    uint64_t fetched;
    bool differs; /* another has called something else */
    uint32_t other;
    wf_call theirs;

    /* Where ranks share hosts, see switch_hosts.c. */
    bool shares;
    bool owns_cells;
    switch_cell *cells; /* by number on the host */
    wf_layout layout;
    wf_rounds_state rounds;
    uint32_t rails;
    uint32_t rail;    /* that this rank drives, or WF_NO_RAIL */
    uint32_t *driver; /* of that rail, by host */
    uint32_t seen;    /* cells that are compared */
    uint32_t deep;    /* chunks of a rail in a whole round */
    uint64_t fed;     /* rounds that our rail can send */

    /* Rings of `ring` chunks, or rounds: what was at the place of the last
     * results, where source and destination are one, and which chunk it is,
     * plus 1; and the last results of the operation `kept_op`, from byte
     * `kept_from` on. */
    uint64_t ring;
    size_t payload; /* bytes that each has room for */
    unsigned char *inputs;
    uint64_t *input_of;
    unsigned char *kept;
    uint64_t kept_op;
    uint64_t kept_from;
    uint64_t kept_bytes;

    /* Without an epoch. */
    uint32_t reached;  /* switches, in their order, that are there */
    int probe;         /* a connection to the next one, being made, or -1 */
    uint64_t probe_ns; /* when it began, or the next one is to */
    uint32_t refusals; /* by the switch, one after the other */
    bool *back;        /* by member; of member 0 only */
} switch_state;

/* Say something to a member. Deaths are found elsewhere. */
void switch_say(switch_state *s, uint32_t to, switch_said kind, uint64_t number,
                uint64_t value);

/* --- switch_client.c ------------------------------------------------------ */

weft_status switch_open_client(switch_state *s);
/* The client goes; epochs and operations stay as they are. */
void switch_close_client(switch_state *s);
/* Do its descriptors wake who sleeps? Between operations duplicates may come,
 * and the switch may go, and nobody reads that. */
void switch_heed(const switch_state *s, bool heeded);
/* Get the rings, once it is known how far ranks can be apart. */
weft_status switch_get_rings(switch_state *s);

/* --- switch_engine.c ------------------------------------------------------ */

/* The operation is in no phase any more. */
void switch_end(switch_state *s);

/* A step of the client in an operation. WEFT_OK, or an error of the call; what
 * else fails makes this rank give up. */
weft_status switch_client_step(switch_state *s, wf_coll_op *op, uint64_t now);

/* --- switch_hosts.c ------------------------------------------------------- */

/* Do ranks share hosts, of which there are several? */
bool switch_shares_hosts(const weft_comm *comm);

size_t switch_hosts_area(const weft_comm *comm);
/* What there is after a failure is for detach, which takes zeroes, too. */
weft_status switch_hosts_attach(switch_state *s, unsigned char *area);
void switch_hosts_detach(switch_state *s);
/* An epoch begins. */
void switch_hosts_epoch(switch_state *s);
/* Begin an operation, for which `call` is filled in as for one rank a host.
 * False: there is no memory for it here. Then step until it is over. */
bool switch_hosts_begin(switch_state *s, wf_coll_op *op, wf_agg_call *call,
                        uint64_t now);
weft_status switch_hosts_step(switch_state *s, wf_coll_op *op, uint64_t now);
/* The first round without a result on this rank. */
uint64_t switch_hosts_first(const switch_state *s);
bool switch_hosts_awaits(const switch_state *s, uint32_t member);

/* --- switch_settle.c ------------------------------------------------------ */

/* This rank gives up on the switch in its operation, for the reason that is the
 * detail, or since others have. */
void switch_give_up(switch_state *s, const char *why);

/* Say this rank's word to all others. */
void switch_say_word(switch_state *s, const wf_settle_word *word);

/* SETTLE and FETCH. */
weft_status switch_settle_step(switch_state *s, wf_coll_op *op, uint64_t now);

/* Keep the input of a chunk that is about to be written over. */
void switch_keep_input(void *ctx, uint64_t chunk, const void *at, size_t bytes);
/* Keep the last results of the operation, which is done. */
void switch_keep_results(switch_state *s, const wf_coll_op *op);

/* --- switch_return.c ------------------------------------------------------ */

/* Call `number` goes without the switch: find out whether it is there again. */
void switch_look_for(switch_state *s, uint64_t number, uint64_t now);
void switch_stop_looking(switch_state *s);
void switch_on_back(switch_state *s, uint32_t from);
void switch_on_go(switch_state *s, uint32_t epoch, uint64_t number);

/* An epoch begins, or has ended. */
void switch_epoch_begin(switch_state *s);
void switch_epoch_end(switch_state *s);

/* --- switch_words.c ------------------------------------------------------- */

void switch_hear(weft_comm *comm, void *state, uint32_t from,
                 const wf_coll_word *word, const void *payload, size_t n);
/* Ask those who are late what they have called. */
void switch_ask(switch_state *s, const wf_coll_op *op);
/* Does the operation wait for this member? */
bool switch_waits_for(const switch_state *s, uint32_t member);

#endif
