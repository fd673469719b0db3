/* SPDX-License-Identifier: Apache-2.0 */
/* A small world for the protocol of a switch: its slots, two or three ranks
 * with their windows, packets on their way. Each rank's part of a chunk is a
 * byte of its own in a word, so that a sum shows which parts it has, and of
 * which chunk.
 *
 * A state is kept packed, without times, statistics and congestion: what is
 * left is what the protocol depends on, so that equal states are equal bytes.
 * Ranks send as soon as they may; the network delays packets for as long as it
 * likes, delivers them in any order, loses and repeats some. */
#ifndef WT_AGG_WORLD_H
#define WT_AGG_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agg/mistakes.h"
#include "agg/slot.h"
#include "agg/window.h"

enum { RANKS = 3, SLOTS = 3, CALLS = 3, FLIGHT = 40 };

/* What is explored: constant during a walk. */
typedef struct plan {
    unsigned ranks;
    unsigned slots;
    unsigned calls[CALLS]; /* chunks of each call, 0 at the end */
    unsigned losses;       /* packets that may be lost, */
    unsigned repeats;      /* or delivered once more */
    unsigned timeouts;     /* of each rank */
    bool odd;              /* the last rank calls something else */
    bool replay;           /* packets of an earlier epoch are on their way */
} plan;

typedef struct place_state {
    uint8_t chunk;
    uint8_t state;
    uint8_t seen;
    uint8_t arrived;
    uint8_t first; /* the rank of the first part */
    uint8_t zero[3];
    uint32_t result;
} place_state;

typedef struct entry_state {
    uint8_t sends; /* 2: twice or more */
    uint8_t later;
    uint8_t held;
    uint8_t order; /* among those under way */
} entry_state;

typedef struct rank_state {
    uint8_t call;
    uint8_t begin;
    uint8_t end;
    uint8_t next;
    uint8_t first;
    uint8_t timeouts; /* that are left */
    uint8_t told;     /* that calls differ */
    uint8_t quiet;    /* see window.h */
    uint32_t written; /* bitmap of chunks */
    entry_state entry[SLOTS];
} rank_state;

typedef struct flight {
    uint8_t kind; /* wf_agg_kind; DATA goes to the switch */
    uint8_t rank; /* from or to */
    uint8_t chunk;
    uint8_t old;    /* of an earlier epoch */
    uint32_t value; /* of RESULT */
} flight;

typedef struct world {
    place_state place[2 * SLOTS];
    uint32_t part[SLOTS][RANKS];
    rank_state rank[RANKS];
    uint8_t losses; /* that are left */
    uint8_t repeats;
    uint16_t flights;
    flight flight[FLIGHT]; /* sorted; beyond flights: zero */
} world;

/* What went wrong; NULL if nothing did. */
extern const char *world_fault;
void world_fail(const char *what);

/* How often the switch came to each verdict. */
extern uint64_t world_verdicts[WF_AGG_VERDICTS];

void world_init(const plan *p, world *w);

/* Actions: numbers below ACTIONS. */
enum {
    ACT_TIMEOUT = 0,                 /* + rank */
    ACT_DELIVER = RANKS,             /* + flight */
    ACT_LOSE = ACT_DELIVER + FLIGHT, /* + flight */
    ACT_REPEAT = ACT_LOSE + FLIGHT,  /* + flight: deliver it, and keep it */
    ACTIONS = ACT_REPEAT + FLIGHT
};

/* Try one: false if it is not possible, or if an equal packet stands for this
 * one. */
bool world_act(const plan *p, world *w, unsigned action);
void world_say_action(const world *w, unsigned action);

/* Has every rank all that its calls give it? */
bool world_is_done(const plan *p, const world *w);

/* Of a state without packets on their way: let timeouts expire on a network
 * that loses nothing. Fails if that does not end it. */
void world_finish(const plan *p, const world *w);

/* --- a rank, used by world.c ---------------------------------------------- */

void rank_init(const plan *p, world *w, unsigned rank);
/* Let its timeout expire. */
void rank_expire(const plan *p, world *w, unsigned rank);
/* It gets a packet from the switch. */
void rank_take(const plan *p, world *w, const flight *f);
bool rank_is_done(const plan *p, const rank_state *s);

/* Put a packet on its way. */
void world_send(world *w, flight f);

static inline uint32_t part_of(unsigned rank, unsigned chunk)
{
    return (uint32_t)(chunk + 1) << 8 * rank;
}

static inline uint64_t hash_of(const plan *p, unsigned rank)
{
    return p->odd && rank == p->ranks - 1 ? 2 : 1;
}

#endif
