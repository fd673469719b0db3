/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WF_COMM_WORLD_H
#define WF_COMM_WORLD_H

#include <pthread.h>
#include <stdatomic.h>
#include <weft/world.h>

#include "base/settings.h"
#include "base/status.h"
#include "boot/seat.h"
#include "comm/call.h"
#include "comm/layer.h"
#include "comm/ports.h"
#include "mem/fork.h"
#include "mem/host.h"

typedef struct wf_progress wf_progress;
typedef struct wf_server wf_server;
typedef struct wf_plane wf_plane;

/* What a world is put together from. src/comm does not know who fills it in:
 * src/weft.c does, above all layers. */
typedef struct wf_parts {
    const wf_transport *const *transports; /* best first; ends with NULL */
    wf_layer_slot layers[WF_LAYERS];
    /* Return when all members have made the same call; its number among the
     * communicator's operations is the same on all. */
    weft_status (*agree)(weft_comm *comm, const wf_call *call,
                         uint32_t *sequence);
} wf_parts;

/* How a wait behaves while nothing happens: it polls, then yields the core,
 * then sleeps, and looks around by itself now and then. */
typedef struct wf_pace {
    uint64_t spin_ns;
    uint64_t yield_ns;
    uint64_t yield_also_ns; /* in its place while ports.awaited says so */
    /* How long a wait for other nodes stays awake, as long as no other thread
     * wants its core. Less than spin_ns and yield_ns: as long as these. */
    uint64_t far_ns;
    uint64_t nap_ns;
    uint32_t poll_mask; /* look at the clock once in so many polls, less 1 */
} wf_pace;

/* Ids for the communicators that this rank leads, see ids.h. */
typedef struct wf_ids {
    pthread_mutex_t lock;
    uint32_t next;   /* number of the next one, up to wf_ids_limit */
    uint32_t *taken; /* those that are passed over, in order */
    size_t count;
} wf_ids;

/* Open ids are spread over so many lists. */
#define WF_WORLD_BUCKETS 64u

/* Why a communicator that this rank has closed was broken; status 0: unused. */
#define WF_CLOSED_KEPT 16
typedef struct wf_closed {
    uint32_t id;
    weft_status status;
    char text[WF_DETAIL_MAX];
} wf_closed;

struct weft_world {
    wf_host *host;
    wf_boot_seat *seat; /* NULL: the caller's table says who this is */
    wf_settings settings;
    const wf_parts *parts;
    weft_comm *comm;        /* of all ranks */
    _Atomic uint32_t users; /* the caller and each communicator */
    wf_fork_calls on_fork;  /* orphan.c */

    wf_pace pace; /* of waits, see wait.h */

    /* All communicators, for news that comes by mail, and the last that were
     * closed here and broken before. */
    pthread_mutex_t comms_lock;
    weft_comm *comms;
    wf_closed closed[WF_CLOSED_KEPT];
    uint32_t closings;
    wf_ids ids;

    /* Ports and queues are touched by the holder of this lock only. */
    pthread_mutex_t drive;
    wf_ports ports;
    weft_comm *open[WF_WORLD_BUCKETS]; /* by id, see ids.h */
    uint64_t news; /* counts what may have brought messages, see receive.h */
    uint64_t
        asked_ns; /* when pending requests were last asked, see request.c */
    uint32_t asked_alarm;
    _Atomic uint64_t turns;   /* how often it was driven */
    weft_comm *busy;          /* communicators with requests */
    _Atomic uint32_t pending; /* requests that are not over */
    wf_progress *progress;
    wf_plane *plane;        /* NULL: all ranks are on one node, see control.h */
    wf_server *server;      /* NULL: nothing here is asked for, see serve.h */
    void *layer[WF_LAYERS]; /* what those above keep here, see layer.h */
};

/* weft_world_create, from these parts, which the world goes on using. */
weft_status wf_world_create(const weft_world_options *options,
                            const wf_parts *parts, weft_world **out);

void wf_world_acquire(weft_world *world);
void wf_world_release(weft_world *world);

/* Make it an orphan in children that are forked from now on. */
void wf_world_watch_forks(weft_world *world);

/* The transport and port that lead to a rank of the job. */
static inline const wf_route *wf_world_route(const weft_world *world,
                                             uint32_t rank)
{
    return &world->ports.route[world->ports.to[rank]];
}

#endif
