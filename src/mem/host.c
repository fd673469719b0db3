/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/host.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "boot/launcher.h"
#include "mem/fork.h"
#include "mem/host_parts.h"
#include "mem/link.h"
#include "mem/mailbox.h"
#include "mem/mesh.h"
#include "mem/watch.h"

/* The lowest rank explains a failure; it needs a moment to do so. */
#define EXPLAIN_NS (WF_SEC / 2)
/* How long one that failed waits for others that have not connected yet. */
#define LATE_NS (200 * WF_MS)

/* Nodes that are pretended have their boards behind each other, in the order of
 * their first ranks. */
static uint32_t boards_here(const wf_host *h, uint32_t locals)
{
    uint32_t boards = 0;

    for (uint32_t i = 0; i < locals; i++) {
        uint32_t first = 0;

        while (h->peer[h->rank_of[first]].node != h->peer[h->rank_of[i]].node) {
            first++;
        }
        boards += first == i;
    }
    return boards;
}

/* Ranks of a node, which all are of this host. */
uint32_t wf_host_ranks_of(const wf_host *h, uint32_t node)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < h->count; i++) {
        n += h->peer[h->rank_of[i]].node == node;
    }
    return n;
}

/* Boards are of one size, that of the node with the most ranks. */
static size_t board_bytes(const wf_host *h)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < h->count; i++) {
        uint32_t n = wf_host_ranks_of(h, h->peer[h->rank_of[i]].node);

        most = n > most ? n : most;
    }
    return wf_board_size(h->ranks, most);
}

static wf_board *board_at(const wf_host *h, uint32_t board)
{
    return (wf_board *)(void *)((char *)h->control.base +
                                board * board_bytes(h));
}

/* Where in the segment is the board of a rank of this host? */
static wf_board *board_of(const wf_host *h, uint32_t local)
{
    uint32_t first = 0;

    while (h->peer[h->rank_of[first]].node != h->peer[h->rank_of[local]].node) {
        first++;
    }
    return board_at(h, boards_here(h, first));
}

/* Once the segment is mapped. */
static void boards_use(wf_host *h)
{
    for (uint32_t i = 0; i < h->count; i++) {
        uint32_t rank = h->rank_of[i];

        h->peer[rank].bell = &board_of(h, i)->rank[rank];
    }
    h->board = board_of(h, h->self);
}

/* Nodes are numbered by their first rank; number the ranks of this host. */
static void place_ranks(wf_host *h, const wf_join_table *t)
{
    const wf_join_node *own = wf_join_node_of(t, h->rank);

    h->nodes = t->head->nodes;
    for (uint32_t r = 0; r < h->ranks; r++) {
        const wf_join_node *node = wf_join_node_of(t, r);
        wf_peer *p = &h->peer[r];

        snprintf(p->host, sizeof(p->host), "%s", node->host);
        p->pid = t->member[r].pid;
        p->node = t->member[r].node;
        p->local = WF_NOT_HERE;
        if (wf_join_same_host(own, node)) {
            p->range = wf_host_ranks_of(h, p->node);
            p->local = h->count++;
            h->rank_of[p->local] = r;
        }
    }
    h->self = h->peer[h->rank].local;
}

static void host_free(wf_host *h)
{
    wf_watch_destroy(h->watch);
    wf_mailbox_destroy(h->mailbox);
    for (uint32_t i = 0; i < h->count; i++) {
        wf_close(h->link[i]);
    }
    wf_close(h->shown);
    wf_arena_close(h->arena);
    wf_free(h->arena_room);
    wf_segment_close(&h->control);
    wf_free(h->peer);
    wf_free(h->rank_of);
    wf_free(h->link);
    wf_join_free(h->table);
    wf_free(h);
}

static weft_status host_alloc(const weft_boot *boot, wf_host **out)
{
    wf_host *h = wf_zalloc(sizeof(*h));

    if (h != NULL) {
        h->control.fd = -1;
        h->shown = -1;
        h->rank = boot->rank;
        h->ranks = boot->ranks;
        h->arena_room = wf_alloc(sizeof(*h->arena_room));
        h->peer = wf_zalloc(boot->ranks * sizeof(*h->peer));
        h->rank_of = wf_zalloc(boot->ranks * sizeof(*h->rank_of));
        h->link = wf_alloc(boot->ranks * sizeof(*h->link));
    }
    if (h == NULL || h->arena_room == NULL || h->peer == NULL ||
        h->rank_of == NULL || h->link == NULL) {
        if (h != NULL) {
            host_free(h);
        }
        return wf_fail_nomem("a job of %u ranks", boot->ranks);
    }
    for (uint32_t i = 0; i < boot->ranks; i++) {
        h->link[i] = -1;
    }
    *out = h;
    return WEFT_OK;
}

/* While joining, the end of a link is a death that the board cannot tell. */
static weft_status joining_fail(const wf_host *h, uint32_t local,
                                weft_status st)
{
    const wf_peer *p = &h->peer[h->rank_of[local]];

    if (st == WEFT_ERR_CLOSED) {
        return wf_mesh_lost(h, local);
    }
    if (st == WEFT_ERR_TIMEOUT) {
        return wf_fail(
            st,
            "rank %u (pid %d on %s) did not answer while the job was "
            "forming",
            h->rank_of[local], p->pid, p->host);
    }
    return st;
}

weft_status wf_host_expect(wf_host *h, uint32_t local, uint32_t kind,
                           uint64_t deadline, wf_packet *p, int *fd)
{
    wf_patience patience = {deadline, h->interrupt};
    weft_status st;

    do {
        st = wf_link_recv(h->link[local], p, fd, wf_slice_end(deadline));
    } while (wf_mesh_lasts(h, &patience, &st));
    if (st != WEFT_OK) {
        return joining_fail(h, local, st);
    }
    if (p->kind == WF_PACKET_FAILED) {
        return wf_packet_reason(p);
    }
    if (fd != NULL && *fd == WF_FD_LOST) {
        return wf_link_fail_lost(h->rank_of[local]);
    }
    if (p->kind != kind) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "expected packet %u, got %u from rank %u", kind, p->kind,
                       h->rank_of[local]);
    }
    return WEFT_OK;
}

weft_status wf_host_tell(wf_host *h, uint32_t local, uint32_t kind,
                         const void *data, size_t n, int fd, uint64_t deadline)
{
    wf_packet p = {.kind = kind,
                   .from = h->rank,
                   .to = h->rank_of[local],
                   .bytes = (uint32_t)n};
    weft_status st;

    if (n > 0) {
        memcpy(p.data, data, n);
    }
    st = wf_link_send(h->link[local], &p, fd, deadline);
    return st == WEFT_OK ? st : joining_fail(h, local, st);
}

/* Write our entry. The board is shared from here on. */
static void board_enter(wf_host *h)
{
    wf_board_rank *own = wf_host_own(h);

    /* Who waits for other hosts sleeps often, as where ranks outnumber cores:
     * see board.h. */
    own->fence = h->count > h->cpus || h->count < h->ranks;
    if (!wf_board_register_barrier()) {
        for (uint32_t i = 0; i < h->count; i++) {
            atomic_store(&board_of(h, i)->unfenced, 1);
        }
    }
    atomic_store(&own->state, WF_BOARD_HERE);
}

/* Ranks of other nodes are here until somebody says otherwise. */
static void entry_init(const wf_host *h, wf_board *board, uint32_t rank)
{
    const wf_peer *p = &h->peer[rank];
    wf_board_rank *e = &board->rank[rank];

    e->rank = rank;
    e->pid = p->pid;
    e->node = p->node;
    memcpy(e->host, p->host, sizeof(e->host));
    if (p->node == board->node) {
        e->shelf = board->shelves++;
    } else {
        e->shelf = WF_BOARD_NO_SHELF;
        atomic_store(&e->state, WF_BOARD_HERE);
    }
}

static void board_init(const wf_host *h, wf_board *board, uint32_t node)
{
    const char *name = wf_boot_job_name();

    board->magic = WF_BOARD_MAGIC;
    board->version = WF_BOARD_VERSION;
    board->ranks = h->ranks;
    board->size = board_bytes(h);
    board->boards = boards_here(h, h->count);
    board->number =
        (uint32_t)(((char *)board - (char *)h->control.base) / board->size);
    board->node = node;
    board->nodes = h->nodes;
    board->job = h->job;
    board->began_ns = wf_epoch_ns();
    snprintf(board->name, sizeof(board->name), "%s", name != NULL ? name : "");
    board->shelves = 0;
    for (uint32_t r = 0; r < h->ranks; r++) {
        entry_init(h, board, r);
    }
}

/* From here on others find it by this descriptor. Without /proc there is none,
 * and nobody who could look for it. */
static void board_show(wf_host *h)
{
    if (wf_segment_readonly_fd(&h->control, &h->shown) != WEFT_OK) {
        h->shown = -1;
        wf_log(WEFT_LOG_INFO, "weft top will not see this rank: %s",
               weft_error_detail());
    }
    wf_segment_close_fd(&h->control);
}

/* A flag of READY or GO. */
static bool flag_of(const wf_packet *p)
{
    uint32_t flag = 0;

    if (p->bytes == sizeof(flag)) {
        memcpy(&flag, p->data, sizeof(flag));
    }
    return flag == 1;
}

/* Do all ranks of the node of local rank `local` map its arena? */
static uint32_t node_maps(const wf_host *h, uint32_t local, const bool *maps)
{
    uint32_t node = h->peer[h->rank_of[local]].node;
    bool all = true;

    for (uint32_t i = 0; i < h->count; i++) {
        all = all && (maps[i] || h->peer[h->rank_of[i]].node != node);
    }
    return all;
}

/* Everybody is ready: tell them so. */
static weft_status all_go(wf_host *h, bool *maps, uint64_t deadline)
{
    weft_status st = WEFT_OK;
    wf_packet p;

    for (uint32_t i = 1; i < h->count && st == WEFT_OK; i++) {
        st = wf_host_expect(h, i, WF_PACKET_READY, deadline, &p, NULL);
        maps[i] = st == WEFT_OK && flag_of(&p);
    }
    for (uint32_t i = 1; i < h->count && st == WEFT_OK; i++) {
        uint32_t all = node_maps(h, i, maps);

        st = wf_host_tell(h, i, WF_PACKET_GO, &all, sizeof(all), -1, deadline);
    }
    return st;
}

static weft_status arenas_settle(wf_host *h, const wf_settings *settings,
                                 uint64_t deadline)
{
    bool *maps = wf_zalloc(h->count * sizeof(*maps));
    weft_status st;

    if (maps == NULL) {
        return wf_fail_nomem("%u ranks", h->count);
    }
    st = wf_host_arenas_lead(h, settings, deadline, &maps[0]);
    if (st == WEFT_OK) {
        st = all_go(h, maps, deadline);
    }
    if (st == WEFT_OK) {
        wf_host_arena_settle(h, settings, node_maps(h, 0, maps) != 0);
    }
    wf_free(maps);
    return st;
}

static weft_status board_lead(wf_host *h, const wf_settings *settings,
                              uint64_t deadline)
{
    uint64_t bytes = boards_here(h, h->count) * board_bytes(h);
    weft_status st =
        wf_segment_create(WF_BOARD_NAME, bytes, WF_HUGE_OFF, &h->control);

    if (st == WEFT_OK) {
        st = wf_segment_populate(&h->control, 0, bytes);
    }
    if (st != WEFT_OK) {
        return st;
    }
    boards_use(h);
    for (uint32_t i = 0; i < h->count; i++) {
        board_init(h, board_of(h, i), h->peer[h->rank_of[i]].node);
    }
    board_enter(h);
    for (uint32_t i = 1; i < h->count && st == WEFT_OK; i++) {
        st = wf_host_tell(h, i, WF_PACKET_BOARD, &bytes, sizeof(bytes),
                          h->control.fd, deadline);
    }
    return st == WEFT_OK ? arenas_settle(h, settings, deadline) : st;
}

static weft_status board_attach(wf_host *h, const wf_packet *p, int fd)
{
    uint64_t bytes = 0;
    weft_status st;

    memcpy(&bytes, p->data, sizeof(bytes));
    if (fd < 0 || bytes != boards_here(h, h->count) * board_bytes(h)) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "the board arrived without its descriptor");
    }
    st = wf_segment_attach(WF_BOARD_NAME, fd, bytes, true, &h->control);
    if (st != WEFT_OK) {
        return st;
    }
    boards_use(h);
    if (h->board->magic != WF_BOARD_MAGIC ||
        h->board->version != WF_BOARD_VERSION || h->board->ranks != h->ranks) {
        return wf_fail(WEFT_ERR_PROTOCOL, "the board is malformed");
    }
    return WEFT_OK;
}

static weft_status board_follow(wf_host *h, const wf_settings *settings,
                                uint64_t deadline)
{
    uint32_t maps = 0;
    wf_packet p;
    int fd = -1;
    weft_status st =
        wf_host_expect(h, 0, WF_PACKET_BOARD, deadline + EXPLAIN_NS, &p, &fd);

    if (st == WEFT_OK) {
        st = board_attach(h, &p, fd);
    }
    if (st != WEFT_OK) {
        return st;
    }
    board_enter(h);
    st = wf_host_arena_follow(h, settings, deadline + EXPLAIN_NS, &maps);
    if (st == WEFT_OK) {
        st = wf_host_tell(h, 0, WF_PACKET_READY, &maps, sizeof(maps), -1,
                          deadline);
    }
    if (st == WEFT_OK) {
        st =
            wf_host_expect(h, 0, WF_PACKET_GO, deadline + EXPLAIN_NS, &p, NULL);
    }
    if (st == WEFT_OK) {
        wf_host_arena_settle(h, settings, maps != 0 && flag_of(&p));
    }
    return st;
}

/* Ranks that are about to connect would find nobody, and no reason. */
static void explain_to_late(wf_host *h, int listener, const wf_packet *p)
{
    uint64_t deadline = wf_now_ns() + LATE_NS;
    uint32_t missing = 0;
    int fd = -1;

    for (uint32_t i = h->self + 1; i < h->count; i++) {
        missing += h->link[i] < 0;
    }
    while (missing > 0 && wf_link_accept(listener, deadline, &fd) == WEFT_OK) {
        if (fd >= 0) {
            (void)wf_link_send(fd, p, -1, deadline);
            close(fd);
            missing--;
        }
    }
}

/* Nor should those wait for us whom we have not connected to yet. */
static void explain_to_lower(wf_host *h, const wf_join_table *t,
                             const wf_packet *p)
{
    int fd = -1;

    for (uint32_t i = 0; i < h->self; i++) {
        if (h->link[i] < 0 &&
            wf_link_connect(t->member[h->rank_of[i]].socket, &fd) == WEFT_OK) {
            (void)wf_link_send(fd, p, -1, wf_now_ns() + LATE_NS);
            close(fd);
        }
    }
}

/* Tell the others why there will be no job, as far as they listen: they would
 * see us go, and take us for the cause. */
static void explain_failure(wf_host *h, const wf_join_table *t, int listener,
                            weft_status st)
{
    wf_packet p = {.kind = WF_PACKET_FAILED, .from = h->rank};
    wf_failure why;

    if (st == WEFT_ERR_ABORTED) {
        wf_fail(st,
                "rank %u (pid %d on %s) was interrupted while the job was "
                "forming",
                h->rank, h->peer[h->rank].pid, h->peer[h->rank].host);
    }
    why = wf_failure_of(st);
    p.bytes = (uint32_t)strlen(why.text);
    memcpy(p.data, why.text, p.bytes);
    explain_to_lower(h, t, &p);
    explain_to_late(h, listener, &p);
    for (uint32_t i = 0; i < h->count; i++) {
        if (h->link[i] >= 0) {
            (void)wf_link_send(h->link[i], &p, -1, wf_now_ns() + EXPLAIN_NS);
        }
    }
    wf_failure_again(&why);
}

static weft_status host_connect(wf_host *h, const wf_join_table *t,
                                const wf_settings *settings, int listener,
                                const wf_patience *patience)
{
    uint64_t deadline = patience->deadline_ns;
    weft_status st;

    place_ranks(h, t);
    h->job = t->head->job;
    h->cpus = wf_join_cpus(t, h->rank);
    h->yields = wf_join_one_session(t, h->rank);
    st = wf_mesh_connect(h, t, settings->mesh_ranks, listener, patience);
    if (st == WEFT_OK) {
        st = h->self == 0 ? board_lead(h, settings, deadline)
                          : board_follow(h, settings, deadline);
    }
    if (st != WEFT_OK) {
        explain_failure(h, t, listener, st);
        return st;
    }
    board_show(h);
    st = wf_mailbox_create(h, &h->mailbox);
    if (st == WEFT_OK) {
        st = wf_watch_create(h, &h->watch);
    }
    if (st == WEFT_OK && h->count > 1) {
        st = wf_watch_start(h->watch);
    }
    return st;
}

static weft_status boot_exchange(const weft_boot *boot,
                                 const wf_settings *settings,
                                 const wf_address *addresses, size_t count,
                                 const wf_patience *patience, int *listener,
                                 wf_join_table **out)
{
    wf_join_record own;
    uint64_t name[2];
    weft_status st = wf_random(name, sizeof(name));

    if (st == WEFT_OK) {
        st = wf_link_listen(name, listener);
    }
    if (st == WEFT_OK) {
        st = wf_join_describe(settings, name, &own);
    }
    if (st != WEFT_OK) {
        wf_join_decline(boot);
        return st;
    }
    return wf_join_exchange(boot, &own, addresses, count, patience, out);
}

weft_status wf_host_join(const weft_boot *boot, const wf_settings *settings,
                         const wf_address *addresses, size_t count,
                         wf_interrupt interrupt, wf_host **out)
{
    wf_patience patience = {wf_now_ns() + settings->boot_timeout_ns, interrupt};
    wf_host *h = NULL;
    int listener = -1;
    weft_status st = host_alloc(boot, &h);

    if (st != WEFT_OK) {
        wf_join_decline(boot);
        return st;
    }
    h->interrupt = interrupt;
    st = boot_exchange(boot, settings, addresses, count, &patience, &listener,
                       &h->table);
    if (st == WEFT_OK) {
        st = host_connect(h, h->table, settings, listener, &patience);
    }
    wf_close(listener);
    if (st != WEFT_OK) {
        host_free(h);
        return st;
    }
    wf_fork_add(h);
    *out = h;
    return WEFT_OK;
}

void wf_host_alarm(wf_host *h)
{
    /* Publishes what was stored before; pairs with the loads of `alarm`. */
    atomic_fetch_add_explicit(&h->board->alarm, 1, memory_order_release);
    for (uint32_t i = 0; i < h->count; i++) {
        uint32_t rank = h->rank_of[i];

        if (wf_host_same_node(h, rank)) {
            wf_board_ring_all(&h->board->rank[rank]);
        }
    }
}

void wf_host_goodbye(wf_host *h)
{
    if (!atomic_load(&h->orphan) &&
        wf_board_end(h->board, h->rank, WF_BOARD_LEFT)) {
        /* The sockets say the same later, and less kindly. */
        wf_host_alarm(h);
    }
}

void wf_host_leave(wf_host *h)
{
    if (h != NULL) {
        wf_fork_remove(h);
        wf_host_goodbye(h);
        host_free(h);
    }
}

bool wf_host_died(const wf_host *h, uint32_t rank)
{
    return atomic_load_explicit(&wf_host_entry(h, rank)->state,
                                memory_order_acquire) == WF_BOARD_DEAD;
}

weft_status wf_host_check(const wf_host *h, uint32_t rank)
{
    const wf_peer *p = &h->peer[rank];
    uint32_t state = atomic_load_explicit(&wf_host_entry(h, rank)->state,
                                          memory_order_acquire);

    if (state == WF_BOARD_DEAD) {
        return wf_fail(WEFT_ERR_PEER,
                       "rank %u (pid %d on %s) died or exited "
                       "without leaving the job",
                       rank, p->pid, p->host);
    }
    if (state == WF_BOARD_LEFT) {
        return wf_fail(WEFT_ERR_PEER, "rank %u (pid %d on %s) has left the job",
                       rank, p->pid, p->host);
    }
    return WEFT_OK;
}

bool wf_host_stopped(const wf_host *h, uint32_t rank)
{
    char path[64];
    char line[256] = "";
    char *state;
    FILE *f;

    if (h->peer[rank].local == WF_NOT_HERE) {
        return false;
    }
    snprintf(path, sizeof(path), "/proc/%d/stat", h->peer[rank].pid);
    f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    if (fgets(line, sizeof(line), f) == NULL) {
        line[0] = '\0';
    }
    fclose(f);
    /* "pid (name) state ...", and the name may contain anything. */
    state = strrchr(line, ')');
    return state != NULL && state[1] == ' ' &&
           (state[2] == 'T' || state[2] == 't');
}
