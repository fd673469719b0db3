/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/wait.h"

#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>

#include "comm/comm.h"
#include "comm/drive.h"
#include "comm/text.h"

/* When a goal is stalled, and how often it is told so. */
#define STALL_NS (100 * WF_MS)
#define STALLED_PAUSE_NS WF_SEC
/* After so long a wait shows whom it waits for, having looked at so many. */
#define BLAME_NS (100000ull)
#define LOOKED_AT 64u
/* Ranks that wait for each other in turn, in an error. */
#define CHAIN_MAX 4
#define NEVER_NS UINT64_MAX

/* --- peers, in words ------------------------------------------------------ */

/* When this node knew what its entry of the board says: 0 for its own ranks,
 * which write it themselves; NEVER_NS where nothing was heard. */
static uint64_t known_ns(const wf_host *host, uint32_t rank)
{
    uint64_t heard = atomic_load_explicit(&wf_host_entry(host, rank)->heard_ns,
                                          memory_order_relaxed);

    return wf_host_same_node(host, rank) ? 0 : heard != 0 ? heard : NEVER_NS;
}

/* ", waiting for rank 2 (pid 812 on node2)": whom a rank of the job waits for,
 * whom that one waits for, and so on. So whoever gives up first names the rank
 * that keeps them all, though it waits for another one. Where it comes back to
 * this rank they wait for each other: ", waiting for rank 0 in turn". */
static void add_chain(const wf_goal *g, uint32_t of, wf_text *t)
{
    const wf_host *host = g->world->host;

    for (int i = 0; i < CHAIN_MAX && known_ns(host, of) != NEVER_NS; i++) {
        uint32_t next = atomic_load_explicit(
            &wf_host_entry(host, of)->waits_for, memory_order_relaxed);
        uint32_t r = 0;

        if (next == 0 || next > host->ranks) {
            return;
        }
        of = next - 1;
        if (of == host->rank) {
            wf_text_add(t, ", waiting for rank %u in turn", g->rank);
            return;
        }
        while (r < g->ranks && g->member[r] != of) {
            r++;
        }
        wf_text_add(t, ", waiting for rank %u%s (pid %d on %s)",
                    r < g->ranks ? r : of, r < g->ranks ? "" : " of the job",
                    host->peer[of].pid, host->peer[of].host);
    }
}

/* "it was last in allreduce of 4 f32, sum, number 7 on communicator 2" */
static void last_act(const wf_goal *g, uint32_t rank, char *text, size_t room)
{
    const wf_host *host = g->world->host;
    const wf_board_rank *e = wf_host_entry(host, g->member[rank]);
    uint64_t known = known_ns(host, g->member[rank]);
    uint64_t now = wf_now_ns();
    wf_text t = wf_text_at(text, room);
    char shown[192];
    bool waits;

    if (known == NEVER_NS) {
        wf_text_add(&t, "its host knows what it did last");
        return;
    }
    waits = atomic_load_explicit(&e->waiting, memory_order_relaxed) != 0;
    if (known != 0) {
        wf_text_add(&t, "%.1f s ago ",
                    known < now ? (double)(now - known) / 1e9 : 0.0);
    }
    if (!wf_comm_shown_text(e, shown, sizeof(shown))) {
        wf_text_add(&t, "it %s called nothing yet", known != 0 ? "had" : "has");
        return;
    }
    wf_text_add(&t, "it %s %s",
                !waits       ? "was last in"
                : known != 0 ? "was in"
                             : "is in",
                shown);
    if (waits) {
        add_chain(g, g->member[rank], &t);
    }
}

static void goal_name(const wf_goal *g, char *text, size_t room)
{
    if (g->what != NULL) {
        snprintf(text, room, "%s", g->what);
    } else {
        g->kind->name(g, text, room);
    }
}

static weft_status timed_out(const wf_goal *g, uint64_t waited_ns)
{
    const wf_host *host = g->world->host;
    char text[WF_DETAIL_MAX];
    char name[384] = "";
    const char *before = ", waiting for";
    size_t n;

    goal_name(g, name, sizeof(name));
    n = (size_t)snprintf(text, sizeof(text),
                         "rank %u: no progress for %.3g s in %s", g->rank,
                         (double)waited_ns / 1e9, name);
    for (uint32_t r = 0;
         g->kind->awaits != NULL && r < g->ranks && n < sizeof(text) - 400;
         r++) {
        const wf_peer *p = &host->peer[g->member[r]];
        /* A rank that is stopped may keep us waiting through others. */
        bool stopped = wf_host_stopped(host, g->member[r]);

        if (r != g->rank && (stopped || g->kind->awaits(g, r))) {
            last_act(g, r, name, sizeof(name));
            n += (size_t)snprintf(
                text + n, sizeof(text) - n, "%s rank %u (pid %d on %s%s; %s)",
                before, r, p->pid, p->host, stopped ? ", stopped" : "", name);
            before = ",";
        }
    }
    return wf_fail(WEFT_ERR_TIMEOUT, "%s", text);
}

/* --- the goal ------------------------------------------------------------- */

static weft_status goal_fail(const wf_goal *g, weft_status why)
{
    return g->kind->fail != NULL ? g->kind->fail(g, why) : why;
}

static uint64_t goal_moved(const wf_goal *g)
{
    return g->kind->moved != NULL ? g->kind->moved(g) : 0;
}

static bool goal_needs(const wf_goal *g, uint32_t rank)
{
    return g->kind->needs != NULL
               ? g->kind->needs(g, rank)
               : g->kind->awaits != NULL && g->kind->awaits(g, rank);
}

static weft_status goal_ask(const wf_goal *g)
{
    return g->kind->check != NULL ? g->kind->check(g) : WEFT_OK;
}

weft_status wf_goal_check_peers(const wf_goal *g)
{
    weft_status st = WEFT_OK;
    char last[256];

    for (uint32_t r = 0; g->kind->gone != NULL && r < g->ranks; r++) {
        weft_status one = r != g->rank ? g->kind->gone(g, r) : WEFT_OK;

        if (one == WF_PENDING) {
            st = one;
        } else if (one != WEFT_OK) {
            last_act(g, r, last, sizeof(last));
            return wf_fail(one, "%.600s; %s", weft_error_detail(), last);
        }
    }
    return st;
}

static uint32_t last_alarm(const wf_goal *g)
{
    return atomic_load_explicit(&g->world->host->board->alarm,
                                memory_order_acquire);
}

/* Rule 3. */
static weft_status check_alarm(const wf_goal *g, wf_stall *s)
{
    uint32_t alarm = last_alarm(g);
    weft_status st = WEFT_OK;

    if (!s->has_looked || s->alarm != alarm) {
        st = wf_goal_check_peers(g);
        s->has_looked = st != WF_PENDING;
        s->alarm = alarm;
    }
    return st == WF_PENDING ? WEFT_OK : st;
}

static void check_stall(const wf_goal *g, wf_stall *s, uint64_t now)
{
    if (g->kind->stalled != NULL && now - s->since_ns > STALL_NS &&
        now - s->asked_ns > STALLED_PAUSE_NS) {
        s->asked_ns = now;
        g->kind->stalled(g);
    }
}

weft_status wf_goal_check(const wf_goal *g, wf_stall *s, uint64_t now)
{
    uint64_t moved = goal_moved(g);
    weft_status st = goal_ask(g);

    if (s->since_ns == 0 || moved != s->moved) {
        s->since_ns = now;
        s->moved = moved;
    }
    if (st == WEFT_OK) {
        st = check_alarm(g, s);
    }
    if (st == WEFT_OK) {
        check_stall(g, s, now);
    }
    if (st == WEFT_OK && g->timeout_ns != NULL &&
        now - s->since_ns > atomic_load(g->timeout_ns)) {
        st = timed_out(g, now - s->since_ns);
    }
    return st == WEFT_OK ? st : goal_fail(g, st);
}

/* --- the wait ------------------------------------------------------------- */

bool wf_wait_drive(wf_wait *w)
{
    weft_world *world = w->goal.world;
    bool moved = w->drowsy ? wf_world_drive_now(world) : wf_world_drive(world);

    w->stirred = w->stirred || moved;
    return moved;
}

/* Announce that this thread will sleep; the next look is the last before. */
static void wait_drowse(wf_wait *w)
{
    const wf_goal *g = &w->goal;
    wf_board_rank *own = wf_host_own(g->world->host);

    if (g->ranks > 0) {
        atomic_store_explicit(&own->since_ns, w->stall.since_ns,
                              memory_order_relaxed);
    }
    w->listening = w->listens != NULL && w->listens(g->world);
    w->bell = w->listening ? wf_board_listen(own)
                           : wf_board_drowse(g->world->host->board, own);
    w->drowsy = true;
    w->polls = w->mask;
}

static void wait_rouse(wf_wait *w)
{
    wf_board_rank *own = wf_host_own(w->goal.world->host);

    if (w->listening) {
        wf_board_unlisten(own);
    } else {
        wf_board_awake(own);
    }
    w->drowsy = false;
}

void wf_wait_end(wf_wait *w)
{
    if (w->drowsy) {
        wait_rouse(w);
    }
    if (w->waits_for != 0) {
        atomic_store_explicit(&wf_host_own(w->goal.world->host)->waits_for, 0,
                              memory_order_relaxed);
    }
}

/* Is there a reason not to sleep after all? What happened may happen again;
 * what was posted before the announcement rang no bell; and what this thread
 * listens for may come by the other one. */
static bool is_roused(const wf_wait *w)
{
    const wf_goal *g = &w->goal;

    return w->stirred || goal_moved(g) != w->stall.moved ||
           last_alarm(g) != w->stall.alarm || goal_ask(g) != WEFT_OK ||
           (w->listening && !w->listens(g->world));
}

static void wait_sleep(wf_wait *w)
{
    const wf_goal *g = &w->goal;
    wf_host *host = g->world->host;
    uint64_t until = wf_now_ns() + w->pace->nap_ns;

    if (g->timeout_ns != NULL) {
        uint64_t end = w->stall.since_ns + atomic_load(g->timeout_ns) + 1;

        until = end < until ? end : until;
    }
    if (w->arms) {
        uint64_t due = wf_ports_next_due(g->world, wf_now_ns());

        until = due != 0 && due < until ? due : until;
        /* Announced before the ports are armed. */
        atomic_fetch_add(&host->drivers_asleep, 1);
    }
    if (is_roused(w) || (w->arms && !wf_ports_arm(g->world))) {
        w->stirred = true;
    } else if (w->listening) {
        wf_board_sleep_listening(wf_host_own(host), w->bell, until);
    } else {
        wf_board_sleep(host->board, wf_host_own(host), w->bell, until);
    }
    if (w->arms) {
        atomic_fetch_sub(&host->drivers_asleep, 1);
    }
    wait_rouse(w);
}

/* A rank that the goal needs and that is late, as 1 + its number; 0: none was
 * found. Of many it looks at some, at others the next time. */
static uint32_t find_awaited(wf_wait *w)
{
    const wf_goal *g = &w->goal;

    if (w->waits_for != 0 && goal_needs(g, w->waits_for - 1)) {
        return w->waits_for;
    }
    for (uint32_t i = 0; i < g->ranks && i < LOOKED_AT; i++) {
        uint32_t r = w->next++ % g->ranks;

        if (r != g->rank && goal_needs(g, r)) {
            return r + 1;
        }
    }
    return 0;
}

/* Show on the board how long this rank has waited, and for whom. Those who are
 * needed are looked at only after a while: a wait that is soon over is nobody's
 * fault, and is not to become longer. */
static void wait_show(wf_wait *w, uint64_t now)
{
    const wf_goal *g = &w->goal;
    wf_host *host = g->world->host;
    wf_board_rank *own = wf_host_own(host);
    uint64_t before = w->shown_ns;
    uint32_t rank;

    w->shown_ns = now;
    if (before == 0) {
        w->next = g->rank + 1;
        return;
    }
    wf_count_alone(&own->waited_ns, now - before);
    if (now - w->stall.since_ns < BLAME_NS) {
        return;
    }
    w->waits_for = find_awaited(w);
    rank = w->waits_for != 0 ? g->member[w->waits_for - 1] : 0;
    atomic_store_explicit(&own->since_ns, w->stall.since_ns,
                          memory_order_relaxed);
    atomic_store_explicit(&own->waits_for, w->waits_for != 0 ? rank + 1 : 0,
                          memory_order_relaxed);
    if (w->waits_for != 0) {
        atomic_fetch_add_explicit(&wf_host_entry(host, rank)->awaited_ns,
                                  now - before, memory_order_relaxed);
    }
}

/* Rule 4. */
static weft_status wait_ask(wf_wait *w, uint64_t now)
{
    const wf_goal *g = &w->goal;
    char name[256];

    if (g->interrupt == NULL || now - w->asked_ns < WF_SLICE_NS) {
        return WEFT_OK;
    }
    w->asked_ns = now;
    if (wf_interrupt_check(g->interrupt) == WEFT_OK) {
        return WEFT_OK;
    }
    goal_name(g, name, sizeof(name));
    return goal_fail(g, wf_fail(WEFT_ERR_ABORTED, "rank %u: interrupted in %s",
                                g->rank, name));
}

/* How often another thread has got the core while this one could have gone on,
 * having yielded or not. */
static long times_preempted(void)
{
    struct rusage used = {0};

    (void)getrusage(RUSAGE_THREAD, &used);
    return used.ru_nivcsw;
}

/* Stay awake for what comes from other nodes, unless somebody else wants the
 * core: ranks of other nodes may share it (namespaces, containers), and so may
 * programs that weft does not know of. `again`: it did so the last time, too.
 * False: it is time to sleep. */
static bool wait_linger(wf_wait *w, bool again)
{
    long before = w->preempted;

    w->preempted = times_preempted();
    if (again && w->preempted != before) {
        return false;
    }
    w->lingers = true;
    sched_yield();
    return true;
}

/* Leave the core to others the more, the longer nothing has happened. */
static void wait_rest(wf_wait *w, uint64_t quiet_ns)
{
    const wf_pace *pace = w->pace;
    bool also = atomic_load_explicit(&w->goal.world->ports.awaited,
                                     memory_order_relaxed) != 0;
    uint64_t yield_ns = also ? pace->yield_also_ns : pace->yield_ns;
    bool lingered = w->lingers;

    w->lingers = false;
    if (quiet_ns < pace->spin_ns) {
        wf_cpu_relax();
    } else if (quiet_ns < pace->spin_ns + yield_ns) {
        sched_yield();
    } else if (!w->goal.far || quiet_ns >= pace->far_ns ||
               !wait_linger(w, lingered)) {
        wait_drowse(w);
    }
}

weft_status wf_wait_slow(wf_wait *w)
{
    weft_world *world = w->goal.world;
    uint64_t since;
    uint64_t now;
    weft_status st;

    if (w->drowsy) {
        wait_sleep(w);
        return WEFT_OK; /* rule 3 */
    }
    if (!w->drives &&
        atomic_load_explicit(&world->pending, memory_order_relaxed) != 0) {
        wf_world_drive(world);
    }
    now = wf_now_ns();
    if (w->asked_ns == 0) {
        w->asked_ns = now;
    }
    if (w->stirred) {
        w->stirred = false;
        w->awake_ns = now;
    }
    st = wait_ask(w, now);
    if (st == WEFT_OK) {
        st = wf_goal_check(&w->goal, &w->stall, now);
    }
    if (st == WEFT_OK && w->goal.ranks > 0) {
        wait_show(w, now);
    }
    since = w->awake_ns > w->stall.since_ns ? w->awake_ns : w->stall.since_ns;
    if (st == WEFT_OK) {
        wait_rest(w, now - since);
    }
    return st;
}
