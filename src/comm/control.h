/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks of different nodes tell each other about the job, by active
 * messages of whatever transport leads there (docs/design/0014-hosts.md).
 *
 *   control.c  mail: from an outbox, which leaves when somebody drives
 *   beat.c     who died or left, and whether other nodes are still there
 *
 * A world of several nodes has a plane, and a server (serve.h) that drives
 * while its rank computes. All of a plane but the outbox and the notes is
 * touched under world->drive only. What comes in is checked before it is used;
 * what is not understood is counted and ignored. */
#ifndef WF_COMM_CONTROL_H
#define WF_COMM_CONTROL_H

#include "comm/gossip.h"
#include "comm/node_tree.h"
#include "comm/vigil.h"
#include "comm/world.h"

/* Active messages of slot 0 (layer.h). */
enum wf_plane_message { WF_PLANE_MAIL = 0, WF_PLANE_BEAT = 1 };

typedef struct wf_letter wf_letter;

typedef struct wf_plane {
    weft_world *world;
    /* Mail that has not left. */
    pthread_mutex_t outbox;
    wf_letter *first;
    wf_letter **last;
    _Atomic uint32_t letters;
    wf_letter *spare; /* for mail that there is no memory for */
    uint64_t came;    /* messages in all */
    uint64_t refused; /* those that were not understood */

    wf_node_tree_notes notes; /* with a lock of its own */
    wf_gossip gossip;
    wf_vigil vigil;
    uint32_t seen; /* of board->gone, that gossip knows of */
    uint32_t neighbour[WF_GOSSIP_NEIGHBOURS];
    uint32_t neighbours;
    bool speaks;           /* for its node */
    bool leaving;          /* it ends: it opens no connection any more */
    bool leaves;           /* as the last of its node */
    uint64_t told_ns;      /* when neighbours were last told something */
    uint64_t hurry_ns;     /* until when to look more often */
    uint32_t parted;       /* of host->parted, at the last look */
    uint32_t turn;         /* whom of a silent node to ask next */
    uint32_t figures_turn; /* whose figures to tell first */
    uint32_t unsettled;    /* ranks that were lost, and nobody has said why */
    uint64_t *lost_ns;     /* by rank: since when it is unsettled, or 0 */
    /* For the server, which has no lock: a heartbeat is due. */
    _Atomic bool due;
    _Atomic uint64_t due_ns;
    _Atomic uint64_t nap_ns; /* how long it may sleep */
} wf_plane;

/* In a world of several nodes, once its ports are open; else it does nothing.
 */
weft_status wf_plane_create(weft_world *world);
void wf_plane_destroy(weft_world *world);
void wf_plane_orphan(weft_world *world);

/* Mail to a rank of another node, as wf_host_post; with any lock held, on any
 * thread. In order for each pair of ranks. */
weft_status wf_plane_post(weft_world *world, uint32_t to, uint64_t key,
                          const void *data, size_t n);
/* Is there mail that has not left? */
bool wf_plane_busy(const weft_world *world);

/* What is due: by whoever drives, under world->drive. */
void wf_plane_do(weft_world *world);
static inline void wf_plane_tick(weft_world *world)
{
    if (__builtin_expect(world->plane != NULL, 0)) {
        wf_plane_do(world);
    }
}

/* For the server, each time it looks. True: something is due. */
bool wf_plane_is_due(weft_world *world);

/* A port has lost a rank of another node. Under world->drive. */
void wf_plane_lost(weft_world *world, uint32_t rank, weft_status why);
/* Was it lost less than a second ago, and is it not clear yet whether it died?
 * Under world->drive. */
bool wf_plane_unsettled(const weft_world *world, uint32_t rank);
/* This rank is about to leave. Whoever speaks for its node waits for the others
 * there a moment: most often all of them leave, and it has the connections to
 * tell so. */
void wf_plane_stay(weft_world *world);
/* This rank has said goodbye on its board. */
void wf_plane_leave(weft_world *world);

/* --- inside --------------------------------------------------------------- */

/* The header of every message. */
typedef struct wf_plane_head {
    uint64_t job;
    uint32_t to;   /* rank in the job */
    uint32_t kind; /* of this kind of message */
    union {
        uint64_t key; /* of mail */
        wf_digest digest;
    };
} wf_plane_head;
_Static_assert(sizeof(wf_plane_head) == 32, "on the wire");

/* The header of a message that came, if it is one for this rank; else NULL. */
const wf_plane_head *wf_plane_read(wf_plane *p, uint32_t from,
                                   const void *header, size_t n);
/* It is not understood. */
void wf_plane_refuse(wf_plane *p, uint32_t from);
/* Send one at once; under world->drive. */
weft_status wf_plane_send(wf_plane *p, uint32_t to,
                          enum wf_plane_message message, wf_plane_head *head,
                          const void *payload, size_t n);

wf_am_fn wf_plane_mail_came;

weft_status wf_beat_init(wf_plane *p);
void wf_beat_fini(wf_plane *p);
void wf_beat_do(wf_plane *p);
/* Would a message to it open a connection? Under world->drive. */
bool wf_beat_opens(const wf_plane *p, uint32_t to);
/* Is its node wary (vigil.h, rule 4)? */
bool wf_beat_is_wary(const wf_plane *p);
wf_am_fn wf_beat_came;

#endif
