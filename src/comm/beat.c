/* SPDX-License-Identifier: Apache-2.0 */
/* Who died or left on other nodes, and whether these are still there.
 *
 * The board of the node is what its ranks know together. The lowest living rank
 * speaks for the node: it tells its neighbours (gossip.h) what is new on the
 * board, and sends heartbeats to those it watches (vigil.h). What a rank hears
 * it writes on the board; so whoever speaks next knows it, too. A rank that
 * found a death itself tells it as well, since the one that speaks may be
 * stopped; and two ranks of each node are told, for the same reason.
 *
 * A node is dead if nothing came from it for WEFT_HOST_TIMEOUT: heartbeats of
 * the one that speaks or, when that has been silent for a while, answers of the
 * others there, which are asked in turn. It is dead at once if the connection
 * with its last living rank has ended. If other ranks of it live they say
 * whether the one that was lost is dead, so they are asked for a sign of life;
 * without one it was not the only one. */
#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "comm/comm.h"
#include "comm/control.h"
#include "comm/figures.h"
#include "comm/wait.h"

/* Kinds of heartbeats. */
enum { BEAT = 0, ASK = 1, LIST = 2, LIST_END = 3, FIGURES = 4 };

/* Several who leave at about the same time are told of together. */
#define TELL_PAUSE_NS (10 * WF_MS)
/* How often, and for how long, to look while something is unsettled. */
#define HURRY_NAP_NS (50 * WF_MS)
#define HURRY_NS WF_SEC
#define IDLE_NAP_NS WF_SEC
/* How much later than the end of a connection a goodbye may come: it goes
 * another way, over the neighbours. */
#define GRACE_NS (300 * WF_MS)
/* How long the others of its node may take to tell that a rank has died whose
 * connection ended. */
#define TELL_OF_MATES_NS WF_SEC
/* How long whoever speaks for a node waits for the others there to leave. */
#define STAY_NS (500 * WF_MS)
/* Ranks of a node that are told. */
#define LISTENERS 2u
/* Parts of a list in one message. */
#define PARTS (WF_AM_PAYLOAD_MAX / sizeof(wf_gone))

bool wf_beat_opens(const wf_plane *p, uint32_t to)
{
    const wf_route *r = wf_world_route(p->world, to);

    return p->world->ports.count > 0 && r->transport->connected != NULL &&
           !r->transport->connected(r->port, to);
}

static bool is_connected(void *ctx, uint32_t node)
{
    const wf_plane *p = ctx;

    return !wf_beat_opens(p, wf_gossip_living(&p->gossip, node, 0));
}

weft_status wf_beat_init(wf_plane *p)
{
    const wf_host *host = p->world->host;
    uint32_t *node_of = wf_alloc(host->ranks * sizeof(*node_of));
    weft_status st = WEFT_OK;

    p->lost_ns = wf_zalloc(host->ranks * sizeof(*p->lost_ns));
    if (node_of == NULL || p->lost_ns == NULL) {
        st = wf_fail_nomem("what is known of %u ranks", host->ranks);
    }
    for (uint32_t r = 0; r < host->ranks && st == WEFT_OK; r++) {
        node_of[r] = host->peer[r].node;
    }
    if (st == WEFT_OK) {
        st = wf_gossip_init(&p->gossip, node_of, host->ranks, host->nodes,
                            host->peer[host->rank].node);
    }
    wf_free(node_of);
    if (st != WEFT_OK) {
        wf_free(p->lost_ns);
        return st;
    }
    st = wf_vigil_init(&p->vigil, host->nodes,
                       p->world->settings.host_timeout_ns,
                       p->world->settings.heartbeat_ns);
    if (st != WEFT_OK) {
        wf_gossip_fini(&p->gossip);
        wf_free(p->lost_ns);
        return st;
    }
    p->vigil.connected = is_connected;
    p->vigil.ctx = p;
    p->neighbours = wf_gossip_neighbours(&p->gossip, p->neighbour);
    atomic_store(&p->nap_ns, p->world->settings.heartbeat_ns);
    /* Connections with those beside it are opened while all are sure to be
     * here. */
    atomic_store(&p->due, true);
    return st;
}

void wf_beat_fini(wf_plane *p)
{
    wf_vigil_fini(&p->vigil);
    wf_gossip_fini(&p->gossip);
    wf_free(p->lost_ns);
}

/* --- the board ------------------------------------------------------------ */

static uint32_t state_of(const wf_plane *p, uint32_t rank)
{
    return atomic_load_explicit(&wf_host_entry(p->world->host, rank)->state,
                                memory_order_acquire);
}

/* Learn what others have written there. */
static void read_board(wf_plane *p)
{
    const wf_host *host = p->world->host;
    uint32_t gone =
        atomic_load_explicit(&host->board->gone, memory_order_acquire);

    if (gone == p->seen) {
        return;
    }
    p->seen = gone;
    for (uint32_t r = 0; r < host->ranks; r++) {
        uint32_t state = state_of(p, r);

        if (state == WF_BOARD_LEFT || state == WF_BOARD_DEAD) {
            wf_gossip_note(&p->gossip, r, state);
        }
    }
    p->neighbours = wf_gossip_neighbours(&p->gossip, p->neighbour);
    atomic_store(&p->due, true); /* the neighbours may have to be told */
}

static bool write_board(wf_plane *p, uint32_t rank, uint32_t state)
{
    const wf_host *host = p->world->host;
    const wf_peer *peer = &host->peer[rank];
    bool news = wf_board_end(host->board, rank, state);

    if (news && state == WF_BOARD_DEAD) {
        wf_log(WEFT_LOG_INFO, "rank %u (pid %d on %s) is dead, rank %u hears",
               rank, peer->pid, peer->host, host->rank);
    }
    return news;
}

/* All of its ranks that were still there are dead. */
static void node_died(wf_plane *p, uint32_t node, const char *why)
{
    const wf_gossip *g = &p->gossip;
    const char *name = p->world->host->peer[g->member[g->start[node]]].host;

    wf_log(WEFT_LOG_WARN, "host %s (node %u) is dead to rank %u: %s", name,
           node, p->world->host->rank, why);
    for (uint32_t i = g->start[node]; i < g->start[node + 1]; i++) {
        write_board(p, g->member[i], WF_BOARD_DEAD);
    }
    atomic_store(&p->world->host->found, true);
    wf_host_alarm(p->world->host);
}

/* --- alert ---------------------------------------------------------------- */

/* The alert is passed on by heartbeats, at once. */
static void hasten(wf_plane *p)
{
    if (p->vigil.hastens) {
        atomic_store(&p->due, true);
    }
}

static void be_alert(wf_plane *p)
{
    wf_vigil_alert(&p->vigil, wf_now_ns());
    hasten(p);
}

static void hear_alert(wf_plane *p, uint32_t alert_ms, uint64_t now)
{
    wf_vigil_hear_alert(&p->vigil, alert_ms * WF_MS, now);
    hasten(p);
}

/* --- telling -------------------------------------------------------------- */

static wf_plane_head head_of(const wf_plane *p, uint32_t kind)
{
    uint64_t alert = wf_vigil_alert_left(&p->vigil, wf_now_ns()) / WF_MS;
    wf_plane_head head = {.kind = kind, .digest = wf_gossip_digest(&p->gossip)};

    head.digest.alert_ms = (uint32_t)wf_least(alert, UINT32_MAX);
    return head;
}

static void send_beat(wf_plane *p, uint32_t to, uint32_t kind)
{
    wf_plane_head head = head_of(p, kind);

    if (!(p->leaving && wf_beat_opens(p, to))) {
        (void)wf_plane_send(p, to, WF_PLANE_BEAT, &head, NULL, 0);
    }
}

static void send_list(wf_plane *p, uint32_t to, bool untold)
{
    wf_gone part[PARTS];
    uint32_t from = 0;
    size_t n;

    do {
        wf_plane_head head;

        n = wf_gossip_list(&p->gossip, untold, &from, part, PARTS);
        /* What is new is no whole list: it is not answered with one. */
        head = head_of(p, n < PARTS && !untold ? LIST_END : LIST);
        (void)wf_plane_send(p, to, WF_PLANE_BEAT, &head, part,
                            n * sizeof(*part));
    } while (n == PARTS);
}

static bool speaks(const wf_plane *p)
{
    return wf_gossip_living(&p->gossip, p->gossip.node, 0) ==
           p->world->host->rank;
}

/* Tell the neighbours what is new, or only those there is a connection with.
 * Returns how many were told. */
static uint32_t tell_neighbours(wf_plane *p, bool all)
{
    uint32_t told = 0;

    for (uint32_t i = 0; i < p->neighbours; i++) {
        for (uint32_t k = 0; k < LISTENERS; k++) {
            uint32_t to = wf_gossip_living(&p->gossip, p->neighbour[i], k);

            if (to != WF_GOSSIP_NOBODY && (all || !wf_beat_opens(p, to))) {
                send_list(p, to, true);
                told++;
            }
        }
    }
    return told;
}

/* Where some leave the others often follow, and are gone before a connection is
 * made: goodbyes can wait for the next heartbeat. Deaths cannot. */
static void tell(wf_plane *p)
{
    bool all = !p->leaving && wf_gossip_deaths(&p->gossip);

    if (all) {
        wf_vigil_death(&p->vigil, wf_now_ns());
        hasten(p);
    }
    if (tell_neighbours(p, all) == 0 && p->leaves) {
        tell_neighbours(p, true);
    }
    wf_gossip_told(&p->gossip);
    atomic_store(&p->world->host->found, false);
}

/* True if there is something to tell that has to wait a little. */
static bool tell_if_due(wf_plane *p)
{
    uint64_t now;

    if (p->gossip.untold == 0 ||
        !(p->leaves || atomic_load(&p->world->host->found) || speaks(p))) {
        return false;
    }
    now = wf_now_ns();
    if (!p->leaves && now - p->told_ns < TELL_PAUSE_NS) {
        return true;
    }
    p->told_ns = now;
    tell(p);
    return false;
}

static weft_status stay_look(wf_wait *w)
{
    weft_world *world = w->goal.world;
    wf_plane *p = world->plane;
    const uint64_t *deadline = w->goal.ctx;
    bool waits;

    wf_wait_drive(w);
    pthread_mutex_lock(&world->drive);
    read_board(p);
    waits = speaks(p) && p->gossip.living[p->gossip.node] > 1 &&
            wf_now_ns() < *deadline;
    pthread_mutex_unlock(&world->drive);
    return waits ? WF_PENDING : WEFT_OK;
}

void wf_plane_stay(weft_world *world)
{
    wf_plane *p = world->plane;
    uint64_t deadline = wf_now_ns() + STAY_NS;
    wf_goal goal = wf_goal_none(world, &deadline);
    wf_wait w;

    if (p == NULL || world->comm == NULL || atomic_load(&world->host->orphan)) {
        return;
    }
    pthread_mutex_lock(&world->drive);
    p->leaving = true;
    pthread_mutex_unlock(&world->drive);
    wf_wait_begin(&w, &goal, true);
    (void)wf_wait_run(&w, stay_look);
}

/* To those there is a connection with, before that ends. */
static void say_goodbye(wf_plane *p)
{
    const wf_host *host = p->world->host;
    const wf_gone own = {host->rank, 1, WF_BOARD_LEFT};

    for (uint32_t r = 0; r < host->ranks; r++) {
        wf_plane_head head = head_of(p, LIST);

        if (!wf_host_same_node(host, r) &&
            wf_world_route(p->world, r)->transport->connected != NULL &&
            !wf_beat_opens(p, r)) {
            (void)wf_plane_send(p, r, WF_PLANE_BEAT, &head, &own, sizeof(own));
        }
    }
}

void wf_plane_leave(weft_world *world)
{
    wf_plane *p = world->plane;

    if (p == NULL || atomic_load(&world->host->orphan)) {
        return;
    }
    pthread_mutex_lock(&world->drive);
    read_board(p);
    if (world->ports.count > 0) {
        say_goodbye(p);
    }
    /* Those who are still here see the goodbye on the board. */
    p->leaves = p->gossip.living[p->gossip.node] == 0;
    tell_if_due(p);
    pthread_mutex_unlock(&world->drive);
}

/* --- hearing -------------------------------------------------------------- */

/* We have been taken for dead: to us, all others are. */
static void be_cut_off(wf_plane *p, uint32_t by)
{
    wf_log(WEFT_LOG_WARN,
           "rank %u was silent for too long, and is dead to rank %u: it is cut "
           "off from all other hosts",
           p->world->host->rank, by);
    for (uint32_t n = 0; n < p->gossip.nodes; n++) {
        if (n != p->gossip.node && p->gossip.living[n] > 0) {
            node_died(p, n, "this host is dead to it");
        }
    }
}

/* Of the ranks of our node we know more than others. */
static bool hear_part(wf_plane *p, uint32_t from, const wf_gone *part)
{
    const wf_host *host = p->world->host;
    bool news = false;

    for (uint32_t r = part->first; r < part->first + part->count; r++) {
        if (!wf_host_same_node(host, r)) {
            news |= write_board(p, r, part->state);
        } else if (r == host->rank && part->state == WF_BOARD_DEAD) {
            be_cut_off(p, from);
        }
    }
    return news;
}

static void hear_list(wf_plane *p, uint32_t from, const wf_gone *part, size_t n)
{
    bool news = false;

    for (size_t i = 0; i < n; i++) {
        if (wf_gossip_check(&p->gossip, &part[i])) {
            news |= hear_part(p, from, &part[i]);
        } else {
            wf_plane_refuse(p, from);
        }
    }
    if (news) {
        wf_host_alarm(p->world->host);
    }
    read_board(p);
}

/* It is no sign of life that anybody counts on. */
static void hear_figures(wf_plane *p, uint32_t from, const void *payload,
                         size_t n)
{
    if (!wf_figures_hear(p->world->host, payload, n)) {
        wf_plane_refuse(p, from);
    }
}

void wf_beat_came(void *ctx, uint32_t from, const void *header,
                  size_t header_bytes, const void *payload, size_t n)
{
    weft_world *world = ctx;
    wf_plane *p = world->plane;
    const wf_plane_head *head = wf_plane_read(p, from, header, header_bytes);
    uint64_t now = wf_now_ns();

    if (head == NULL) {
        return;
    }
    if (head->kind == FIGURES) {
        hear_figures(p, from, payload, n);
        return;
    }
    if (head->kind > LIST_END || n % sizeof(wf_gone) != 0) {
        wf_plane_refuse(p, from);
        return;
    }
    read_board(p);
    if (p->gossip.state[from] == WF_BOARD_HERE) {
        wf_vigil_hear(&p->vigil, p->gossip.node_of[from], now);
        hear_alert(p, head->digest.alert_ms, now);
    }
    hear_list(p, from, payload, n / sizeof(wf_gone));
    if (p->gossip.state[from] != WF_BOARD_HERE) {
        return; /* it does not listen any more, or nobody is to hear it */
    }
    if (head->kind == ASK) {
        send_beat(p, from, BEAT);
    }
    if (head->kind == LIST_END
            ? p->gossip.gone > head->digest.gone
            : head->kind != LIST &&
                  !wf_gossip_agrees(&p->gossip, &head->digest)) {
        send_list(p, from, false);
    }
}

/* --- time ----------------------------------------------------------------- */

/* When to be here again. The server may have gone to sleep for longer. */
static void plan_nap(wf_plane *p, bool untold)
{
    uint64_t beat = p->world->settings.heartbeat_ns;
    uint64_t now = wf_now_ns();
    uint64_t nap = p->speaks ? beat : IDLE_NAP_NS;
    bool sooner;

    if (p->speaks && p->vigil.hastens) {
        nap = 0;
    } else if (untold) {
        nap = wf_least(nap, TELL_PAUSE_NS);
    } else if (p->unsettled > 0 || now < p->hurry_ns) {
        nap = wf_least(nap, HURRY_NAP_NS);
    }
    sooner = nap < atomic_load(&p->nap_ns);
    atomic_store(&p->nap_ns, nap);
    atomic_store(&p->due_ns, now + nap);
    if (sooner) {
        wf_board_ring_all(wf_host_own(p->world->host));
    }
}

/* --- losses --------------------------------------------------------------- */

/* Ask those of a node who are not lost for a sign of life; false if there is
 * nobody. */
static bool ask_mates(wf_plane *p, uint32_t node)
{
    uint32_t asked = 0;
    uint32_t r;

    for (uint32_t k = 0; asked < LISTENERS; k++) {
        r = wf_gossip_living(&p->gossip, node, k);
        if (r == WF_GOSSIP_NOBODY) {
            break;
        }
        if (p->world->ports.lost[r] == WEFT_OK) {
            send_beat(p, r, ASK);
            asked++;
        }
    }
    return asked > 0;
}

/* Is it clear by now what became of a rank that was lost? */
static bool settle(wf_plane *p, uint32_t rank)
{
    uint32_t node = p->gossip.node_of[rank];
    uint64_t lost_for = wf_now_ns() - p->lost_ns[rank];

    if (state_of(p, rank) != WF_BOARD_HERE) {
        return true;
    }
    if (wf_vigil_heard_since(&p->vigil, node, p->lost_ns[rank])) {
        /* The others there tell if it died; else only a connection ended. */
        return lost_for >= TELL_OF_MATES_NS;
    }
    if (ask_mates(p, node) || lost_for < GRACE_NS) {
        return false;
    }
    node_died(p, node, "the connection with its last rank ended");
    return true;
}

/* A rank without living mates is dead, unless it has said goodbye. For others
 * their mates speak. */
void wf_plane_lost(weft_world *world, uint32_t rank, weft_status why)
{
    wf_plane *p = world->plane;

    if (p == NULL || p->leaving || why != WEFT_ERR_PEER ||
        p->lost_ns[rank] != 0 || state_of(p, rank) != WF_BOARD_HERE) {
        return;
    }
    read_board(p);
    p->lost_ns[rank] = wf_now_ns();
    p->unsettled++;
    be_alert(p);
    if (settle(p, rank)) {
        p->lost_ns[rank] = 0;
        p->unsettled--;
    } else {
        plan_nap(p, false);
    }
}

bool wf_plane_unsettled(const weft_world *world, uint32_t rank)
{
    const wf_plane *p = world->plane;

    return p != NULL && p->lost_ns[rank] != 0 &&
           wf_now_ns() - p->lost_ns[rank] < TELL_OF_MATES_NS;
}

static void settle_all(wf_plane *p)
{
    uint32_t before = p->unsettled;

    for (uint32_t r = 0; r < p->gossip.ranks && p->unsettled > 0; r++) {
        if (p->lost_ns[r] != 0 && settle(p, r)) {
            p->lost_ns[r] = 0;
            p->unsettled--;
        }
    }
    if (p->unsettled != before) {
        /* Those whose messages wait for it. */
        wf_board_ring_all(wf_host_own(p->world->host));
    }
}

/* --- heartbeats ----------------------------------------------------------- */

static void beat_node(wf_plane *p, const wf_vigil_node *seen)
{
    if (seen->state == WF_VIGIL_DEAD) {
        node_died(p, seen->node, "nothing came from it for WEFT_HOST_TIMEOUT");
        return;
    }
    send_beat(p, wf_gossip_living(&p->gossip, seen->node, 0), BEAT);
    if (seen->state == WF_VIGIL_SILENT) {
        uint32_t number = p->turn++ % p->gossip.living[seen->node];

        send_beat(p, wf_gossip_living(&p->gossip, seen->node, number), ASK);
    }
}

/* For the boards of the neighbours; lost ones do no harm. */
static void send_figures(wf_plane *p)
{
    wf_figures some[WF_FIGURES_MAX];
    size_t n = wf_figures_tell(p->world->host, &p->figures_turn, some);

    for (uint32_t i = 0; i < p->neighbours; i++) {
        wf_plane_head head = head_of(p, FIGURES);
        uint32_t to = wf_gossip_living(&p->gossip, p->neighbour[i], 0);

        if (to != WF_GOSSIP_NOBODY && !wf_beat_opens(p, to)) {
            (void)wf_plane_send(p, to, WF_PLANE_BEAT, &head, some,
                                n * sizeof(*some));
        }
    }
}

static void beat(wf_plane *p, uint64_t now)
{
    uint32_t count = wf_vigil_look(&p->vigil, &p->gossip, now);

    for (uint32_t i = 0; i < count; i++) {
        beat_node(p, &p->vigil.seen[i]);
    }
    send_figures(p);
}

bool wf_plane_is_due(weft_world *world)
{
    wf_plane *p = world->plane;

    if (p != NULL && wf_now_ns() >= atomic_load(&p->due_ns)) {
        atomic_store(&p->due, true);
        return true;
    }
    return false;
}

/* Whoever speaks for a node has the heartbeats of others, and tells its mates
 * what follows from them. */
static void show_wariness(const wf_plane *p, uint64_t now)
{
    atomic_store_explicit(&p->world->host->board->wary_ns,
                          wf_vigil_wary_until(&p->vigil, now),
                          memory_order_relaxed);
}

bool wf_beat_is_wary(const wf_plane *p)
{
    return wf_now_ns() < atomic_load_explicit(&p->world->host->board->wary_ns,
                                              memory_order_relaxed);
}

static void do_what_is_due(wf_plane *p)
{
    uint64_t now = wf_now_ns();
    bool untold;

    read_board(p);
    atomic_store(&p->due, false);
    if (p->unsettled > 0 && !p->leaving) {
        settle_all(p);
    }
    if (speaks(p) && !p->speaks) {
        wf_vigil_begin(&p->vigil, now);
    }
    p->speaks = speaks(p);
    if (p->speaks && wf_vigil_is_due(&p->vigil, now)) {
        beat(p, now);
        read_board(p);
    }
    untold = tell_if_due(p);
    if (p->speaks) {
        show_wariness(p, now);
    }
    plan_nap(p, untold);
}

void wf_beat_do(wf_plane *p)
{
    const wf_host *host = p->world->host;
    uint32_t gone =
        atomic_load_explicit(&host->board->gone, memory_order_relaxed);
    uint32_t parted = atomic_load_explicit(&host->parted, memory_order_relaxed);

    if (parted != p->parted) {
        p->parted = parted;
        p->hurry_ns = wf_now_ns() + HURRY_NS;
        atomic_store(&p->due, true);
    }
    if (gone != p->seen ||
        atomic_load_explicit(&p->due, memory_order_relaxed)) {
        do_what_is_due(p);
    }
}
