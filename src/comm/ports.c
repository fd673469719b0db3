/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/ports.h"

#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "comm/world.h"

/* In wf_ports.to: no transport reaches it. */
#define NOWHERE UINT8_MAX

static uint32_t table_size(const weft_world *world)
{
    uint32_t n = 0;

    while (world->parts->transports[n] != NULL) {
        n++;
    }
    return n;
}

static weft_status alloc(weft_world *world)
{
    wf_ports *p = &world->ports;
    uint32_t ranks = world->host->ranks;

    p->route = wf_zalloc(table_size(world) * sizeof(*p->route));
    p->to = wf_zalloc(ranks);
    p->told = wf_zalloc(ranks * sizeof(*p->told));
    if (p->route == NULL || p->to == NULL || p->told == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "the routes to %u ranks", ranks);
    }
    memset(p->to, NOWHERE, ranks);
    return WEFT_OK;
}

/* Route to transport `t` all ranks that it reaches and none before it did. True
 * if there is such a rank. */
static bool take_ranks(weft_world *world, const wf_transport *t)
{
    wf_ports *p = &world->ports;
    bool any = false;

    for (uint32_t r = 0; r < world->host->ranks; r++) {
        if (p->to[r] == NOWHERE && t->reaches(world->host, r)) {
            p->to[r] = (uint8_t)p->count;
            any = true;
        }
    }
    return any;
}

static weft_status open_port(weft_world *world, const wf_transport *t)
{
    wf_ports *p = &world->ports;
    wf_route *route = &p->route[p->count];
    weft_status st = t->open(world->host, &world->settings, &route->port);

    if (st == WEFT_OK) {
        route->transport = t;
        p->count++;
    }
    return st;
}

static weft_status check_routes(const weft_world *world)
{
    const wf_host *host = world->host;
    const uint8_t *none = memchr(world->ports.to, NOWHERE, host->ranks);
    uint32_t rank = none != NULL ? (uint32_t)(none - world->ports.to) : 0;

    return none == NULL
               ? WEFT_OK
               : wf_fail(WEFT_ERR_UNSUPPORTED,
                         "no transport leads from rank %u (on %s) to rank %u "
                         "(on %s)",
                         host->rank, host->peer[host->rank].host, rank,
                         host->peer[rank].host);
}

weft_status wf_ports_open(weft_world *world)
{
    weft_status st = alloc(world);

    for (uint32_t i = 0; i < table_size(world) && st == WEFT_OK; i++) {
        const wf_transport *t = world->parts->transports[i];

        if (take_ranks(world, t)) {
            st = open_port(world, t);
        }
    }
    return st == WEFT_OK ? check_routes(world) : st;
}

void wf_ports_close(weft_world *world)
{
    wf_ports *p = &world->ports;

    while (p->count > 0) {
        wf_route *r = &p->route[--p->count];

        r->transport->close(r->port);
        r->port = NULL;
    }
}

void wf_ports_fini(weft_world *world)
{
    wf_free(world->ports.route);
    wf_free(world->ports.to);
    wf_free(world->ports.told);
}

static void tell_of_losses(weft_world *world)
{
    wf_ports *p = &world->ports;
    wf_host *host = world->host;
    uint32_t alarm =
        atomic_load_explicit(&host->board->alarm, memory_order_acquire);

    if (alarm == p->alarm) {
        return;
    }
    p->alarm = alarm;
    for (uint32_t i = 0; i < host->count; i++) {
        uint32_t state = atomic_load(&host->board->rank[i].state);
        uint32_t rank = host->rank_of[i];

        if (i != host->self && !p->told[rank] && state != WF_BOARD_HERE) {
            const wf_route *r = wf_world_route(world, rank);

            p->told[rank] = true;
            r->transport->gone(r->port, rank);
        }
    }
}

bool wf_ports_progress(weft_world *world)
{
    const wf_ports *p = &world->ports;
    unsigned events = 0;

    for (uint32_t i = 0; i < p->count; i++) {
        events += p->route[i].transport->progress(p->route[i].port);
    }
    if (p->count > 0) {
        tell_of_losses(world);
    }
    world->news += events;
    return events > 0;
}

bool wf_ports_busy(const weft_world *world)
{
    const wf_ports *p = &world->ports;
    bool busy = false;

    for (uint32_t i = 0; i < p->count && !busy; i++) {
        busy = p->route[i].transport->busy(p->route[i].port);
    }
    return busy;
}

/* No port has a descriptor: the bell rings by itself. */
bool wf_ports_arm(weft_world *world)
{
    (void)world;
    return true;
}

void wf_ports_orphan(weft_world *world)
{
    const wf_ports *p = &world->ports;

    for (uint32_t i = 0; i < p->count; i++) {
        if (p->route[i].transport->orphan != NULL) {
            p->route[i].transport->orphan(p->route[i].port);
        }
    }
}
