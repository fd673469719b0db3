/* SPDX-License-Identifier: Apache-2.0 */
/* A small world for the protocol of the store: three hosts with a server each,
 * workers with short programs, messages on their way. A row is a number: each
 * push adds a hexadecimal digit of its own, each set stores one. So a push that
 * is lost, applied twice or not overwritten can be read off a row. */
#ifndef WT_EXPLORE_WORLD_H
#define WT_EXPLORE_WORLD_H

#include <stddef.h>

#include "store/protocol_parts.h"

enum {
    HOSTS = 3,
    KEYS = 2,
    WORKERS = 4,
    STEPS = 8,    /* of a worker's program */
    SLOTS = 4,    /* of a host */
    FLIGHT = 40,  /* messages on their way or parked */
    SET_DIGIT = 8 /* digits below are of pushes, from here on of sets */
};

/* Mistakes of the env and of the workers. */
enum {
    MISTAKE_SENT_STAYS = WF_OWN_MISTAKES, /* base is not moved by a SYNC */
    MISTAKE_SERIAL_AGAIN,                 /* exchanges are not told apart */
    MISTAKE_NO_HELD, /* an answer is believed although a copy is older */
    MISTAKES
};

/* Nodes: servers, those that took over, workers. A message is at `where`: on
 * the way between two nodes, parked at a server, or packed there. */
enum {
    SUCCESSOR = HOSTS,
    FIRST_WORKER = 2 * HOSTS,
    NODES = 2 * HOSTS + WORKERS,
    PARKED = NODES * NODES,
    PACKED = PARKED + HOSTS * KEYS
};

typedef struct flight {
    uint16_t where;
    wf_message m;
} flight;

typedef struct slot {
    int64_t row;
    int64_t base;
    uint32_t version;
    uint16_t used;
    uint16_t epoch; /* of the key that is here */
} slot;

typedef struct worker {
    uint8_t pc;
    uint8_t attempt[KEYS]; /* tells answers apart when one is repeated */
    uint8_t busy[KEYS];    /* step + 1 that is under way */
    uint8_t done[STEPS];   /* 1: completed, 2: failed, outcome unknown */
    uint32_t sent[KEYS];   /* the directory word by which it was routed */
} worker;

typedef struct world {
    wf_key_state key[HOSTS][KEYS];
    slot slot[HOSTS][SLOTS];
    worker worker[WORKERS];
    uint32_t serial[HOSTS]; /* of the last SYNC */
    uint8_t rounds[HOSTS];  /* that are left */
    uint8_t deaths;         /* that are left */
    uint8_t again;          /* times that a death may be heard of again */
    uint8_t dead[HOSTS];    /* 1: the first server; 2: the whole host */
    uint8_t heard[HOSTS];   /* bitmap: of whose death each host has heard */
    uint8_t lost[KEYS];     /* differences that were reported */
    uint8_t flights;
    flight flight[FLIGHT]; /* in the order of `where`; beyond flights: zero */
} world;

/* What is explored: constant during a walk. */
typedef struct plan {
    const char *text;              /* as it was given, for messages */
    char step[WORKERS][STEPS + 1]; /* letters; key 1 in lower case */
    uint8_t host[WORKERS];
    uint8_t digit[WORKERS][STEPS]; /* of pushes and sets */
    unsigned workers;
    unsigned keys;
    unsigned rounds;
    unsigned deaths;      /* of servers */
    unsigned host_deaths; /* of whole hosts instead */
    unsigned room;        /* slots for keys from elsewhere, of each host */
    unsigned moves;       /* of keys before, that only their homes know of */
    weft_techniques techniques;
    bool optimizer;
} plan;

/* What went wrong; NULL if nothing did. Set by whoever finds it first. */
extern const char *world_fault;
void world_fail(const char *what);

/* "0:U 1:IUE 2:P" with letters P pull, U push, S set, L localize, I intent,
 * E end of intent. */
void plan_read(plan *p, const char *text);
bool plan_sets(const plan *p, unsigned key);

void world_init(const plan *p, world *w);

/* Actions: numbers below ACTIONS. */
enum {
    ACT_STEP = 0,                       /* + worker */
    ACT_ROUND = ACT_STEP + WORKERS,     /* + host */
    ACT_HEAR = ACT_ROUND + HOSTS,       /* + host * HOSTS + dead host */
    ACT_DIE = ACT_HEAR + HOSTS * HOSTS, /* + host * 2 + its messages are lost */
    ACT_DELIVER = ACT_DIE + HOSTS * 2,  /* + where */
    ACTIONS = ACT_DELIVER + PARKED
};
/* Try one: false if it is not possible or changes nothing. */
bool world_act(const plan *p, world *w, unsigned action);
/* Tell every step and message on stdout. */
extern bool world_talks;
void world_say_action(const plan *p, const world *w, unsigned action);

/* --- used by the parts of the world -------------------------------------- */

int64_t digit_value(unsigned digit);
unsigned flight_find(const world *w, unsigned where); /* the first, or FLIGHT */
unsigned flight_count(const world *w, unsigned where);
void flight_add(world *w, unsigned where, const wf_message *m);
wf_message flight_take(world *w, unsigned index);
unsigned server_node(const world *w, unsigned of, unsigned as_known_by);

/* The env of a host; valid until the next call. */
const wf_protocol_env *world_env(const plan *p, world *w, unsigned host);
/* After an event: a state of which directory and slot say everything is
 * forgotten, and made again from them. */
void world_forget(world *w, unsigned host, uint64_t key);
void worker_step(const plan *p, world *w, unsigned number);
void worker_answer(const plan *p, world *w, unsigned number,
                   const wf_message *m);
void worker_hear(const plan *p, world *w, unsigned number, bool own_server);
bool worker_can_step(const plan *p, const world *w, unsigned number);

/* In every state; and where nothing moves any more. */
void walk_happened(wf_happened what);

void check_state(const plan *p, const world *w);
void check_end(const plan *p, const world *w);
bool world_is_quiet(const plan *p, const world *w);

#endif
