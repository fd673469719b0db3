/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/ports.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/library.h"
#include "base/log.h"
#include "base/num.h"
#include "base/status.h"
#include "comm/control.h"
#include "comm/ids.h"
#include "comm/wait.h"
#include "mem/mailbox.h"
#include "mem/watch.h"

/* In wf_ports.to: no transport reaches it. */
#define NOWHERE UINT8_MAX

/* The longest time before leaving, in times of which nothing happens. */
#define FLUSH_MOMENTS 3

/* --- before ranks know of each other -------------------------------------- */

/* May this transport be used, as WEFT_TRANSPORTS says? `*named` if it is named
 * there, so that it has to work. */
static bool allowed(const wf_settings *s, const char *name, bool *named)
{
    size_t n = strlen(name);
    const char *at = s->transports;

    *named = false;
    if (strcmp(at, "auto") == 0) {
        return true;
    }
    while (!*named && at != NULL) {
        *named = strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0');
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    return *named;
}

/* Does the transport lie in a library of its own? */
static bool is_apart(const wf_transport *row)
{
    return row->library != NULL || row->locate != NULL;
}

/* The transport that a row of the table means. */
static weft_status load(const wf_settings *settings, const wf_transport *row,
                        const wf_transport **out)
{
    const void *found = row;
    const char *file = row->library;
    weft_status st = WEFT_OK;

    if (row->locate != NULL) {
        st = row->locate(settings, &file);
    }
    if (st == WEFT_OK && file != NULL) {
        st = wf_library_find(NULL, file, WF_TRANSPORT_SYMBOL, &found);
    }
    *out = found;
    return st;
}

/* Every version of the contract begins with its number. */
static weft_status check_abi(const wf_transport *row, const wf_transport *t)
{
    return row->abi == WF_TRANSPORT_ABI && t->abi == WF_TRANSPORT_ABI
               ? WEFT_OK
               : wf_fail(WEFT_ERR_INVALID,
                         "transport %s is built for version %u of the "
                         "contract, and this libweft for version %u: build "
                         "both anew",
                         row->name, t->abi, WF_TRANSPORT_ABI);
}

/* Add the transport of a row, if it works here, and its address. */
static weft_status prepare(weft_world *world, const wf_transport *row,
                           bool one_host, wf_address *address,
                           size_t *addresses)
{
    wf_ports *p = &world->ports;
    wf_route *route = &p->route[p->prepared];
    bool named;
    weft_status st;

    if (!allowed(&world->settings, row->name, &named) ||
        (one_host && !named && is_apart(row))) {
        return WEFT_OK;
    }
    *route = (wf_route){.descriptor = -1};
    st = load(&world->settings, row, &route->transport);
    if (st == WEFT_OK) {
        st = check_abi(row, route->transport);
    }
    if (st == WEFT_OK && route->transport->prepare != NULL) {
        address->of = route->transport->name;
        st = route->transport->prepare(&world->settings, &route->port, address);
        *addresses += st == WEFT_OK;
    }
    if (st == WEFT_ERR_UNSUPPORTED && !named) {
        wf_log(WEFT_LOG_DEBUG, "transport %s cannot be used: %s", row->name,
               weft_error_detail());
        return WEFT_OK;
    }
    p->prepared += st == WEFT_OK;
    return st;
}

static uint32_t table_size(const weft_world *world)
{
    uint32_t n = 0;

    while (world->parts->transports[n] != NULL) {
        n++;
    }
    return n;
}

static weft_status alloc(weft_world *world, uint32_t ranks)
{
    wf_ports *p = &world->ports;
    size_t n = table_size(world);

    p->route = wf_zalloc((n + 1) * sizeof(*p->route));
    p->to = wf_alloc(ranks);
    p->reported = wf_zalloc(ranks * sizeof(*p->reported));
    p->lost = wf_zalloc(ranks * sizeof(*p->lost));
    if (p->route == NULL || p->to == NULL || p->reported == NULL ||
        p->lost == NULL || n >= NOWHERE) {
        return wf_fail_nomem("the routes to %u ranks", ranks);
    }
    memset(p->to, NOWHERE, ranks);
    return WEFT_OK;
}

weft_status wf_ports_join(weft_world *world, const weft_boot *boot,
                          wf_interrupt interrupt)
{
    uint32_t n = table_size(world);
    wf_address *address = wf_zalloc((n + 1) * sizeof(*address));
    size_t addresses = 0;
    bool one_host = boot->ranks == 1 || boot->one_host != 0;
    weft_status st = address != NULL ? alloc(world, boot->ranks)
                                     : wf_fail_nomem("addresses");

    for (uint32_t i = 0; i < n && st == WEFT_OK; i++) {
        const wf_transport *row = world->parts->transports[i];

        st = prepare(world, row, one_host, &address[addresses], &addresses);
    }
    if (st != WEFT_OK) {
        wf_join_decline(boot);
    } else {
        st = wf_host_join(boot, &world->settings, address, addresses, interrupt,
                          &world->host);
    }
    wf_free(address);
    return st;
}

/* --- routes --------------------------------------------------------------- */

static void on_loss(void *ctx, uint32_t rank, weft_status why)
{
    weft_world *world = ctx;
    const wf_peer *peer = &world->host->peer[rank];

    world->ports.lost[rank] = why;
    if (!wf_host_same_node(world->host, rank)) {
        wf_plane_lost(world, rank, why);
        wf_mailbox_gone(world->host->mailbox, rank, true);
    }
    wf_log(WEFT_LOG_INFO, "rank %u lost rank %u (pid %d on %s): %s",
           world->host->rank, rank, peer->pid, peer->host,
           weft_status_text(why));
    wf_board_ring(wf_host_own(world->host)); /* those who wait for it */
}

weft_status wf_ports_fail(const weft_world *world, uint32_t rank)
{
    const wf_peer *peer = &world->host->peer[rank];
    weft_status st = wf_host_check(world->host, rank);

    if (st == WEFT_OK && world->ports.lost[rank] == WEFT_ERR_PROTOCOL) {
        st = wf_fail(WEFT_ERR_PROTOCOL,
                     "rank %u (pid %d on %s) sent something malformed before",
                     rank, peer->pid, peer->host);
    }
    return st != WEFT_OK
               ? st
               : wf_fail(WEFT_ERR_PEER,
                         "the connection with rank %u (pid %d on %s) was lost",
                         rank, peer->pid, peer->host);
}

static bool reaches(const weft_world *world, const wf_transport *t,
                    uint32_t rank)
{
    wf_address ignored;

    return (t->prepare == NULL ||
            wf_join_address(world->host->table, rank, t->name, &ignored)) &&
           t->reaches(world->host, rank);
}

/* Route to transport `t` all ranks that it reaches and none before it did; they
 * are listed in `list`. Returns their number. */
static uint32_t take_ranks(weft_world *world, const wf_transport *t,
                           uint32_t *list)
{
    wf_ports *p = &world->ports;
    uint32_t n = 0;

    for (uint32_t r = 0; r < world->host->ranks; r++) {
        if (p->to[r] == NOWHERE && reaches(world, t, r)) {
            p->to[r] = (uint8_t)p->count;
            list[n++] = r;
        }
    }
    return n;
}

static weft_status open_port(weft_world *world, wf_route *route,
                             const uint32_t *list, uint32_t n)
{
    const wf_transport *t = route->transport;
    wf_port_setup setup = {.host = world->host,
                           .settings = &world->settings,
                           .rank = list,
                           .ranks = n,
                           .keep = wf_ids_wanted,
                           .lost = on_loss,
                           .ctx = world};
    weft_status st = t->open(&setup, &route->port);

    if (st == WEFT_OK && t->descriptor != NULL) {
        route->descriptor = t->descriptor(route->port);
    }
    if (st == WEFT_OK && route->descriptor >= 0) {
        st = wf_watch_add(world->host->watch, route->descriptor);
        world->ports.watched += st == WEFT_OK;
    }
    return st;
}

/* Open the route, or close it if it leads nowhere. */
static weft_status use_route(weft_world *world, wf_route *route, uint32_t *list)
{
    wf_ports *p = &world->ports;
    uint32_t n = take_ranks(world, route->transport, list);
    wf_route used = *route;
    weft_status st = WEFT_OK;

    *route = (wf_route){.descriptor = -1};
    if (n > 0) {
        st = open_port(world, &used, list, n);
    }
    if (n > 0 && st == WEFT_OK) {
        p->route[p->count++] = used;
    } else {
        used.transport->close(used.port);
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
                         "no transport reaches from rank %u (on %s) to rank %u "
                         "(on %s); WEFT_TRANSPORTS is %s",
                         host->rank, host->peer[host->rank].host, rank,
                         host->peer[rank].host, world->settings.transports);
}

weft_status wf_ports_open(weft_world *world)
{
    wf_ports *p = &world->ports;
    uint32_t *list = wf_alloc(world->host->ranks * sizeof(*list));
    weft_status st = list != NULL ? WEFT_OK : wf_fail_nomem("a list of ranks");

    for (uint32_t i = 0; i < p->prepared && st == WEFT_OK; i++) {
        st = use_route(world, &p->route[i], list);
    }
    wf_free(list);
    return st == WEFT_OK ? check_routes(world) : st;
}

static uint64_t flush_moved(const wf_goal *g)
{
    return g->world->news;
}

static weft_status flush_look(wf_wait *w)
{
    weft_world *world = w->goal.world;
    const uint64_t *deadline = w->goal.ctx;
    bool busy;

    wf_wait_drive(w);
    pthread_mutex_lock(&world->drive);
    busy = wf_ports_busy(world) || wf_plane_busy(world);
    pthread_mutex_unlock(&world->drive);
    if (!busy) {
        return WEFT_OK;
    }
    return wf_now_ns() < *deadline
               ? WF_PENDING
               : wf_fail(WEFT_ERR_TIMEOUT, "rank %u: no end of %s",
                         w->goal.rank, w->goal.what);
}

/* A send may be over before its message has left this process. A peer that does
 * not read keeps this rank for a moment only, and what is said after that, to
 * others, for a shorter one. What others go on sending, heartbeats or more, has
 * it wait for FLUSH_MOMENTS of them at most. */
void wf_ports_flush(weft_world *world)
{
    static const wf_goal_kind kind = {.moved = flush_moved};
    static const _Atomic uint64_t moment_ns = WF_SEC;
    static const _Atomic uint64_t shorter_ns = 100 * WF_MS;
    bool hurries = world->ports.hurries;
    uint64_t deadline;
    wf_goal goal = {.kind = &kind,
                    .what = "the last messages before leaving the job",
                    .world = world,
                    .ctx = &deadline,
                    .timeout_ns = hurries ? &shorter_ns : &moment_ns};
    wf_wait w;

    /* Without these nothing was sent, and routes may be missing. */
    if ((world->comm == NULL && world->plane == NULL) ||
        atomic_load(&world->host->orphan)) {
        return;
    }
    goal.rank = world->host->rank;
    deadline = wf_now_ns() + FLUSH_MOMENTS * atomic_load(goal.timeout_ns);
    pthread_mutex_lock(&world->drive);
    for (uint32_t i = 0; i < world->ports.count; i++) {
        const wf_route *r = &world->ports.route[i];

        if (r->transport->leaving != NULL) {
            r->transport->leaving(r->port);
        }
    }
    pthread_mutex_unlock(&world->drive);
    wf_wait_begin(&w, &goal, true);
    world->ports.hurries = wf_wait_run(&w, flush_look) != WEFT_OK;
    if (world->ports.hurries && !hurries) {
        wf_log(WEFT_LOG_WARN, "rank %u left before all that it had sent: %s",
               world->host->rank, weft_error_detail());
    }
}

void wf_ports_close(weft_world *world)
{
    wf_ports *p = &world->ports;

    if (world->plane != NULL) {
        wf_ports_flush(world);
    }
    /* From here on nobody sends, see wf_ports_am. */
    pthread_mutex_lock(&world->drive);
    p->count = 0;
    while (p->alsos > 0) {
        wf_ports_unwatch(world, p->also[0].fd);
    }
    pthread_mutex_unlock(&world->drive);
    for (uint32_t i = p->prepared; i-- > 0;) {
        wf_route *r = &p->route[i];

        if (r->descriptor >= 0) {
            wf_watch_remove(world->host->watch, r->descriptor);
        }
        if (r->port != NULL) {
            r->transport->close(r->port);
        }
        r->port = NULL;
        r->descriptor = -1;
    }
    p->prepared = 0;
    p->watched = 0;
}

void wf_ports_fini(weft_world *world)
{
    wf_free(world->ports.route);
    wf_free(world->ports.to);
    wf_free(world->ports.reported);
    wf_free(world->ports.lost);
    wf_free(world->ports.also);
    wf_free(world->ports.flow);
}

/* --- use ------------------------------------------------------------------ */

size_t wf_ports_am_payload(const weft_world *world, uint32_t to)
{
    uint32_t most = wf_world_route(world, to)->transport->am_payload;

    return most > 0 ? most : WF_AM_PAYLOAD_MAX;
}

weft_status wf_ports_flows(weft_world *world)
{
    uint32_t ranks = world->host->ranks;
    wf_flow *flow;

    if (world->ports.flow != NULL) {
        return WEFT_OK;
    }
    flow = wf_alloc(ranks * sizeof(*flow));
    if (flow == NULL) {
        return wf_fail_nomem("what may be under way with %u ranks", ranks);
    }
    for (uint32_t r = 0; r < ranks; r++) {
        wf_flow_init(&flow[r], wf_ports_am_payload(world, r));
    }
    world->ports.flow = flow;
    return WEFT_OK;
}

wf_flow *wf_ports_flow(const weft_world *world, uint32_t rank)
{
    return &world->ports.flow[rank];
}

static weft_status check_open(const weft_world *world)
{
    return world->ports.count > 0
               ? WEFT_OK
               : wf_fail(WEFT_ERR_CLOSED, "rank %u has left the job",
                         world->host->rank);
}

weft_status wf_ports_am(weft_world *world, uint32_t to, uint32_t id,
                        const void *header, size_t header_bytes,
                        const void *payload, size_t n)
{
    const wf_route *r = wf_world_route(world, to);
    weft_status st = check_open(world);

    return st != WEFT_OK ? st
                         : r->transport->am(r->port, to, id, header,
                                            header_bytes, payload, n);
}

static weft_status am_filled(const wf_route *r, uint32_t to, uint32_t id,
                             const void *header, size_t header_bytes, size_t n,
                             wf_am_fill_fn *fill, void *ctx)
{
    _Alignas(64) unsigned char payload[WF_AM_PAYLOAD_MAX];

    if (n > sizeof(payload)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "transport %s has no active messages of %zu bytes",
                       r->transport->name, n);
    }
    fill(ctx, payload);
    return r->transport->am(r->port, to, id, header, header_bytes, payload, n);
}

weft_status wf_ports_am_fill(weft_world *world, uint32_t to, uint32_t id,
                             const void *header, size_t header_bytes, size_t n,
                             wf_am_fill_fn *fill, void *ctx)
{
    const wf_route *r = wf_world_route(world, to);
    weft_status st = check_open(world);

    if (st != WEFT_OK) {
        return st;
    }
    return r->transport->am_fill == NULL
               ? am_filled(r, to, id, header, header_bytes, n, fill, ctx)
               : r->transport->am_fill(r->port, to, id, header, header_bytes, n,
                                       fill, ctx);
}

static void tell_of_losses(weft_world *world)
{
    wf_ports *p = &world->ports;
    wf_host *host = world->host;
    uint32_t gone =
        atomic_load_explicit(&host->board->gone, memory_order_acquire);

    if (gone == p->gone) {
        return;
    }
    p->gone = gone;
    for (uint32_t rank = 0; rank < host->ranks; rank++) {
        uint32_t state = atomic_load(&host->board->rank[rank].state);

        if (rank != host->rank && !p->reported[rank] &&
            state != WF_BOARD_HERE) {
            const wf_route *r = wf_world_route(world, rank);

            p->reported[rank] = true;
            r->transport->gone(r->port, rank);
        }
    }
}

bool wf_ports_progress(weft_world *world)
{
    const wf_ports *p = &world->ports;
    uint64_t came = world->plane != NULL ? world->plane->came : 0;
    unsigned events = 0;

    for (uint32_t i = 0; i < p->count; i++) {
        events += p->route[i].transport->progress(p->route[i].port);
    }
    if (p->count > 0) {
        tell_of_losses(world);
    }
    if (world->plane != NULL) {
        /* Heartbeats move nothing that anybody waits for. */
        events -= (unsigned)wf_least(events, world->plane->came - came);
    }
    world->news += events;
    if (events > 0 && p->watched > 0) {
        /* What another thread of ours sleeps for may be over. */
        wf_board_ring(wf_host_own(world->host));
    }
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

bool wf_ports_stuck(const weft_world *world)
{
    const wf_ports *p = &world->ports;
    bool stuck = false;

    for (uint32_t i = 0; i < p->count && !stuck; i++) {
        stuck = p->route[i].descriptor < 0 &&
                p->route[i].transport->busy(p->route[i].port);
    }
    return stuck;
}

bool wf_ports_arm(weft_world *world)
{
    const wf_ports *p = &world->ports;
    bool armed = true;

    if (p->watched == 0) {
        return true;
    }
    pthread_mutex_lock(&world->drive);
    for (uint32_t i = 0; i < p->count && armed; i++) {
        const wf_route *r = &p->route[i];

        if (r->descriptor >= 0) {
            armed = r->transport->arm(r->port);
            wf_watch_arm(world->host->watch, r->descriptor);
        }
    }
    for (uint32_t i = 0; i < p->alsos && armed; i++) {
        if (p->also[i].heeded) {
            wf_watch_arm(world->host->watch, p->also[i].fd);
        }
    }
    pthread_mutex_unlock(&world->drive);
    return armed;
}

weft_status wf_ports_watch(weft_world *world, int fd)
{
    wf_ports *p = &world->ports;
    wf_also *grown = wf_realloc(p->also, (p->alsos + 1) * sizeof(*p->also));
    weft_status st;

    if (grown == NULL) {
        return wf_fail_nomem("%u descriptors", p->alsos + 1);
    }
    p->also = grown;
    st = wf_watch_add(world->host->watch, fd);
    if (st == WEFT_OK) {
        p->also[p->alsos++] = (wf_also){fd, true};
        p->watched++;
    }
    return st;
}

void wf_ports_unwatch(weft_world *world, int fd)
{
    wf_ports *p = &world->ports;

    for (uint32_t i = 0; i < p->alsos; i++) {
        if (p->also[i].fd == fd) {
            wf_watch_remove(world->host->watch, fd);
            p->also[i] = p->also[--p->alsos];
            p->watched--;
            return;
        }
    }
}

void wf_ports_heed(weft_world *world, int fd, bool heeded)
{
    wf_ports *p = &world->ports;

    for (uint32_t i = 0; i < p->alsos; i++) {
        if (p->also[i].fd == fd) {
            p->also[i].heeded = heeded;
        }
    }
}

void wf_ports_due(weft_world *world, uint64_t now, uint64_t at)
{
    wf_ports *p = &world->ports;
    uint64_t due = atomic_load(&p->due_ns);

    at = at < now ? now : at; /* 0 would be never */
    if (due <= now || at < due) {
        atomic_store(&p->due_ns, at);
    }
}

uint64_t wf_ports_next_due(weft_world *world, uint64_t now)
{
    uint64_t due = atomic_load(&world->ports.due_ns);
    uint64_t told = due;

    if (due != 0 && due <= now) {
        (void)atomic_compare_exchange_strong(&world->ports.due_ns, &told, 0);
    }
    return due;
}

/* What watches the descriptors is the parent's. */
void wf_ports_orphan(weft_world *world)
{
    wf_ports *p = &world->ports;

    for (uint32_t i = 0; i < p->count; i++) {
        p->route[i].descriptor = -1;
        if (p->route[i].transport->orphan != NULL) {
            p->route[i].transport->orphan(p->route[i].port);
        }
    }
    p->alsos = 0;
    p->watched = 0;
}
