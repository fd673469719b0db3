/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a world in a forked child (mem/fork.h). All that was under
 * way is its parent's: the child's copies of requests are over, as closed,
 * without their callbacks, and its ports hold nothing. So whatever the child
 * does with its copies later ends at once and is local. */
#include "comm/control.h"
#include "comm/request.h"
#include "mem/fork.h"

/* Ports, queues and lists are whole while these two are held. */
static void before_fork(void *ctx)
{
    weft_world *world = ctx;

    pthread_mutex_lock(&world->drive);
    pthread_mutex_lock(&world->comms_lock);
}

static void orphan_comm(weft_comm *comm)
{
    comm->receive_queue = NULL;
    wf_requests_orphan(comm);
    pthread_mutex_init(&comm->lock, NULL); /* another thread may have had it */
    wf_segment_part(&comm->segment, 0);
}

static void orphan_world(weft_world *world)
{
    wf_ports_orphan(world);
    wf_plane_orphan(world);
    for (weft_comm *c = world->comms; c != NULL; c = c->next) {
        orphan_comm(c);
    }
    world->busy = NULL;
    atomic_store(&world->pending, 0);
    if (world->progress != NULL) {
        wf_progress_orphan(world->progress);
    }
}

static void after_fork(void *ctx, bool in_child)
{
    weft_world *world = ctx;

    if (in_child) {
        orphan_world(world);
    }
    pthread_mutex_unlock(&world->comms_lock);
    pthread_mutex_unlock(&world->drive);
}

void wf_world_watch_forks(weft_world *world)
{
    world->on_fork = (wf_fork_calls){before_fork, after_fork, world};
    wf_fork_tell(world->host, &world->on_fork);
}
