/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/world.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/num.h"
#include "base/options.h"
#include "base/time.h"
#include "comm/comm.h"
#include "comm/control.h"
#include "comm/drive.h"
#include "comm/ids.h"
#include "comm/mail.h"
#include "comm/serve.h"
#include "mem/join.h"

/* How waits behave unless the settings say otherwise. A wake-up from sleep
 * costs some 25 us, so it pays to poll about as long before sleeping. Where
 * ranks outnumber cores polling only keeps the others from running: hand the
 * core over at once, and for longer before sleeping, since a turn of all the
 * others takes a while; but if yielding does not reach the others, sleep. What
 * a rank waits for beyond the ranks is never one of those to whom it yields.
 * For what comes from another host two threads wake up one after the other, and
 * a large collective waits for hundreds of such messages: who has a core of its
 * own stays awake for longer. */
#define SPIN_NS 20000u
#define YIELD_NS 50000u
#define FAR_NS 500000u
#define CROWDED_YIELD_NS (2 * WF_MS)
#define POLL_MASK 63u

static void tell_waiting(const weft_world *world)
{
    const wf_pace *pace = &world->pace;
    uint64_t near_ns = pace->spin_ns + pace->yield_ns;

    wf_log(WEFT_LOG_INFO,
           "%u ranks here on %u cores: polling for %llu us, yielding for %llu "
           "us, then sleeping; after %llu us in waits for other hosts",
           world->host->count, world->host->cpus,
           (unsigned long long)(pace->spin_ns / 1000),
           (unsigned long long)(pace->yield_ns / 1000),
           (unsigned long long)(wf_most(pace->far_ns, near_ns) / 1000));
}

static void choose_waiting(weft_world *world)
{
    const wf_settings *s = &world->settings;
    bool crowded = world->host->count > world->host->cpus;
    wf_pace *pace = &world->pace;

    pace->spin_ns = s->spin_ns != UINT64_MAX ? s->spin_ns
                    : crowded                ? 0
                                             : SPIN_NS;
    pace->yield_ns = s->yield_ns != UINT64_MAX        ? s->yield_ns
                     : crowded && world->host->yields ? CROWDED_YIELD_NS
                     : crowded                        ? 0
                                                      : YIELD_NS;
    pace->yield_also_ns =
        crowded && s->yield_ns == UINT64_MAX ? 0 : pace->yield_ns;
    pace->far_ns = crowded || s->yield_ns != UINT64_MAX ? 0 : FAR_NS;
    pace->nap_ns = WF_SLICE_NS;
    pace->poll_mask = pace->spin_ns == 0 ? 0 : POLL_MASK;
    if (world->host->rank == 0) {
        tell_waiting(world);
    }
}

static weft_status make_world_comm(weft_world *world)
{
    uint32_t n = world->host->ranks;
    uint32_t *members = wf_alloc(n * sizeof(*members));
    weft_status st;

    if (members == NULL) {
        return wf_fail_nomem("a communicator of %u ranks", n);
    }
    for (uint32_t r = 0; r < n; r++) {
        members[r] = r;
    }
    st = wf_comm_build(world, NULL, members, n, 0,
                       world->settings.boot_timeout_ns, &world->comm);
    wf_free(members);
    if (st == WEFT_OK) {
        world->comm->timeout_ns = world->settings.timeout_ns;
    }
    return st;
}

/* Other nodes may ask, or have to be told something, at any time; and what a
 * network library was given may leave only when it is called again. */
static weft_status open_plane(weft_world *world)
{
    weft_status st = wf_plane_create(world);
    bool needs_driving = world->ports.watched > 0 && world->host->ranks > 1;

    if (st == WEFT_OK && (world->plane != NULL || needs_driving)) {
        pthread_mutex_lock(&world->drive);
        st = wf_serve(world);
        pthread_mutex_unlock(&world->drive);
    }
    return st;
}

static weft_status world_join(weft_world *world, const weft_boot *boot,
                              wf_interrupt interrupt)
{
    weft_status st;

    if (boot->ranks == 0 || boot->rank >= boot->ranks ||
        (boot->ranks > 1 && (boot->set == NULL || boot->get == NULL))) {
        return wf_fail(WEFT_ERR_INVALID,
                       "a bootstrap table for rank %u of %u without its "
                       "functions",
                       boot->rank, boot->ranks);
    }
    st = wf_ports_join(world, boot, interrupt);
    if (st != WEFT_OK) {
        return st;
    }
    wf_world_watch_forks(world);
    choose_waiting(world);
    wf_mail_listen(world);
    st = wf_ports_open(world);
    if (st == WEFT_OK) {
        st = wf_layers_open(world);
    }
    if (st == WEFT_OK) {
        st = wf_progress_create(world, &world->progress);
    }
    if (st == WEFT_OK) {
        st = open_plane(world);
    }
    if (st == WEFT_OK) {
        st = make_world_comm(world);
    }
    return st;
}

/* Everything but the memory of the world itself, which communicators that
 * still exist may look at. */
static void world_leave(weft_world *world)
{
    wf_server_destroy(world->server);
    world->server = NULL;
    wf_progress_destroy(world->progress);
    world->progress = NULL;
    wf_plane_stay(world);
    wf_ports_flush(world);
    if (world->host != NULL) {
        wf_host_goodbye(world->host);
        wf_plane_leave(world);
    }
    wf_ports_close(world);
    wf_boot_seat_leave(world->seat);
    world->seat = NULL;
}

static weft_status world_alloc(const weft_world_options *options,
                               const wf_parts *parts, weft_world **out)
{
    weft_world *world = wf_zalloc(sizeof(*world));
    weft_status st;

    if (world == NULL) {
        return wf_fail_nomem("a world");
    }
    st = wf_settings_load(options->settings, &world->settings);
    if (st != WEFT_OK) {
        wf_free(world);
        return st;
    }
    wf_log_default_level((weft_log_level)world->settings.log);
    wf_settings_warn_unknown();
    world->parts = parts;
    atomic_store(&world->users, 1);
    pthread_mutex_init(&world->comms_lock, NULL);
    pthread_mutex_init(&world->drive, NULL);
    pthread_mutex_init(&world->ids.lock, NULL);
    *out = world;
    return WEFT_OK;
}

/* There will be no world here: the others shall not wait for this rank. */
static weft_status decline(const weft_boot *boot, weft_status st)
{
    wf_failure why = wf_failure_of(st);
    weft_boot *own = NULL;

    if (boot == NULL && weft_boot_open_env(&own) == WEFT_OK) {
        boot = own;
    }
    wf_failure_again(&why);
    if (boot != NULL && boot->size >= sizeof(*boot) && boot->set != NULL &&
        boot->get != NULL) {
        wf_join_decline(boot);
    }
    weft_boot_close(own);
    return wf_failure_again(&why);
}

weft_status wf_world_create(const weft_world_options *options,
                            const wf_parts *parts, weft_world **out)
{
    const weft_boot *boot = NULL;
    weft_boot *own_boot = NULL;
    weft_boot table;
    weft_world_options o;
    weft_world *world = NULL;
    weft_status st;

    if (out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "out is NULL");
    }
    st = wf_options_read(options, "weft_world_options", &o, sizeof(o));
    if (st == WEFT_OK) {
        st = world_alloc(&o, parts, &world);
    }
    if (st != WEFT_OK) {
        return decline(options != NULL ? options->boot : NULL, st);
    }
    boot = o.boot;
    if (boot == NULL) {
        st = wf_boot_seat_take(&world->seat);
        if (st == WEFT_OK) {
            st = weft_boot_open_env(&own_boot);
        }
        boot = own_boot;
    }
    if (st == WEFT_OK) {
        st = wf_options_read(boot, "weft_boot", &table, sizeof(table));
    }
    if (st == WEFT_OK && own_boot == NULL) {
        wf_boot_seat_keep(table.rank, table.ranks, &world->seat);
    }
    if (st == WEFT_OK) {
        st = world_join(world, &table, (wf_interrupt){o.interrupted, o.ctx});
    }
    if (st == WEFT_OK && table.done != NULL) {
        table.done(table.ctx);
    }
    weft_boot_close(own_boot);
    if (st != WEFT_OK) {
        weft_world_destroy(world);
        return st;
    }
    *out = world;
    return WEFT_OK;
}

void weft_world_destroy(weft_world *world)
{
    if (world == NULL) {
        return;
    }
    for (weft_comm *c = world->comms; c != NULL; c = c->next) {
        if (!atomic_load(&world->host->orphan)) {
            wf_comm_abandon(c, "left the job", "the world was destroyed");
        }
    }
    pthread_mutex_lock(&world->comms_lock);
    for (weft_comm *c = world->comms; c != NULL; c = c->next) {
        wf_comm_broken_by(c, WEFT_ERR_CLOSED, "the world was destroyed");
    }
    pthread_mutex_unlock(&world->comms_lock);
    /* Before the ports go, nothing may be pending on them. */
    for (weft_comm *c = world->comms; c != NULL; c = c->next) {
        wf_requests_fail(c, WEFT_ERR_CLOSED, "the world was destroyed");
    }
    if (world->comm != NULL) {
        wf_comm_close(world->comm);
    }
    world_leave(world);
    wf_world_release(world);
}

void wf_world_acquire(weft_world *world)
{
    atomic_fetch_add(&world->users, 1);
}

void wf_world_release(weft_world *world)
{
    if (atomic_fetch_sub(&world->users, 1) != 1) {
        return;
    }
    wf_plane_destroy(world);
    wf_host_leave(world->host);
    pthread_mutex_destroy(&world->comms_lock);
    pthread_mutex_destroy(&world->drive);
    wf_ids_fini(world);
    wf_ports_fini(world);
    wf_layers_fini(world);
    wf_free(world);
}

uint32_t weft_world_rank(const weft_world *world)
{
    return world->host->rank;
}

uint32_t weft_world_size(const weft_world *world)
{
    return world->host->ranks;
}

weft_comm *weft_world_comm(weft_world *world)
{
    return world->comm;
}

const char *weft_world_transport(const weft_world *world, uint32_t rank)
{
    const wf_ports *ports;

    if (world == NULL || rank >= world->host->ranks) {
        return NULL;
    }
    ports = &world->ports;
    return ports->route[ports->to[rank]].transport->name;
}

weft_status weft_world_peer(const weft_world *world, uint32_t rank,
                            weft_peer *out)
{
    const wf_peer *p;

    if (world == NULL || out == NULL || rank >= world->host->ranks) {
        return wf_fail(WEFT_ERR_INVALID,
                       "an argument is NULL, or rank %u is out of range", rank);
    }
    p = &world->host->peer[rank];
    *out = (weft_peer){.rank = rank,
                       .node = p->node,
                       .pid = p->pid,
                       .shares_memory =
                           p->node == world->host->peer[world->host->rank].node,
                       .host = p->host};
    return WEFT_OK;
}
