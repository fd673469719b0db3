/* SPDX-License-Identifier: Apache-2.0 */
/* Half of the hosts are cut off, all at once: who finds that out, and when? Who
 * watches whom and who tells whom is what comm/vigil.c and comm/gossip.c say,
 * as comm/beat.c uses them; a host is one rank to them, since its ranks die
 * together. Only those who speak do something. A message says what its sender
 * knows when it arrives, some microseconds after it was sent. */
#include <stdlib.h>
#include <string.h>

#include "base/time.h"
#include "comm/control.h"
#include "comm/vigil.h"
#include "control.h"

/* As in comm/beat.c. */
enum { BEAT, ASK, NEWS, LIST };
enum { LISTENERS = 2, PARTS = WF_AM_PAYLOAD_MAX / sizeof(wf_gone) };
#define TELL_PAUSE_NS (10 * WF_MS)

/* The cut comes so long after the beginning of time. */
#define EPOCH_NS (3600 * WF_SEC)

typedef struct guard {
    wf_gossip gossip;
    wf_vigil vigil;
    uint64_t told_ns;
    bool cut; /* this host is cut off */
} guard;

typedef struct job {
    guard *guard;       /* by host */
    uint32_t cut;       /* hosts */
    uint32_t unknowing; /* hosts that do not know of all of these */
    sim_time end;
} job;

static uint64_t clock_ns(const sim *s)
{
    return EPOCH_NS + s->now / 1000;
}

static guard *guard_of(const sim *s, uint32_t rank)
{
    const job *j = s->state;

    return &j->guard[sim_model_host(&s->model, rank)];
}

static bool speaks(const sim *s, uint32_t rank)
{
    return rank % s->model.per_host == 0;
}

/* --- sending -------------------------------------------------------------- */

static void mail(sim *s, uint32_t rank, uint32_t node, uint32_t listener,
                 uint32_t kind, const guard *parts)
{
    uint32_t to = node * s->model.per_host + listener;
    uint64_t letters = 1;
    uint64_t bytes = 0;

    if (to >= s->model.ranks || listener >= s->model.per_host) {
        return; /* it has not so many ranks */
    }
    if (parts != NULL) {
        wf_gone part[PARTS];
        uint32_t from = 0;
        size_t n;

        letters = 0;
        do {
            n = wf_gossip_list(&parts->gossip, kind == NEWS, &from, part,
                               PARTS);
            bytes += n * sizeof(*part);
            letters++;
        } while (n == PARTS);
    }
    sim_mail(s, rank, to, kind, bytes + letters * sizeof(wf_plane_head),
             letters);
}

static void tell(sim *s, uint32_t rank, guard *g)
{
    uint32_t neighbour[WF_GOSSIP_NEIGHBOURS];
    uint32_t count = wf_gossip_neighbours(&g->gossip, neighbour);

    wf_vigil_death(&g->vigil, clock_ns(s));
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < LISTENERS; k++) {
            mail(s, rank, neighbour[i], k, NEWS, g);
        }
    }
    wf_gossip_told(&g->gossip);
    g->told_ns = clock_ns(s);
}

/* --- learning ------------------------------------------------------------- */

static void note(sim *s, guard *g, uint32_t node)
{
    job *j = s->state;
    uint32_t speaker = g->gossip.node * s->model.per_host;

    if (wf_gossip_note(&g->gossip, node, WF_BOARD_DEAD) &&
        g->gossip.gone == j->cut) {
        s->count[speaker].ended = s->now;
        j->unknowing--;
    }
}

static void learn(sim *s, guard *g, const guard *from)
{
    for (uint32_t n = 0; n < g->gossip.nodes; n++) {
        if (from->gossip.state[n] != WF_BOARD_HERE) {
            note(s, g, n);
        }
    }
}

/* Only the one that speaks watches others; what another rank of its host hears
 * it sees on the board. */
static void hear(sim *s, uint32_t rank, guard *g, const guard *from)
{
    uint64_t now = clock_ns(s);

    if (speaks(s, rank)) {
        wf_vigil_hear(&g->vigil, from->gossip.node, now);
        wf_vigil_hear_alert(&g->vigil, wf_vigil_alert_left(&from->vigil, now),
                            now);
    } else {
        sim_wake(s, rank - rank % s->model.per_host, s->now);
    }
}

static bool cut_arrived(sim *s, uint32_t rank, sim_message *m)
{
    guard *g = guard_of(s, rank);
    const guard *from = guard_of(s, m->from);
    uint32_t sender = from->gossip.node;
    bool differs = g->gossip.hash != from->gossip.hash;

    if (g->cut || g->gossip.state[sender] != WF_BOARD_HERE) {
        return true;
    }
    if (differs && m->kind >= NEWS) {
        learn(s, g, from);
    }
    hear(s, rank, g, from);
    if (m->kind == ASK) {
        mail(s, rank, sender, 0, BEAT, NULL);
    }
    if (differs && (m->kind <= ASK ||
                    (m->kind == LIST && g->gossip.gone > from->gossip.gone))) {
        mail(s, rank, sender, 0, LIST, g);
    }
    return true;
}

/* --- time ----------------------------------------------------------------- */

static void beat(sim *s, uint32_t rank, guard *g)
{
    uint32_t count = wf_vigil_look(&g->vigil, &g->gossip, clock_ns(s));
    const wf_vigil_node *seen = g->vigil.seen;

    for (uint32_t i = 0; i < count; i++) {
        if (seen[i].state == WF_VIGIL_DEAD) {
            note(s, g, seen[i].node);
            continue;
        }
        mail(s, rank, seen[i].node, 0, BEAT, NULL);
        if (seen[i].state == WF_VIGIL_SILENT) {
            mail(s, rank, seen[i].node, 1, ASK, NULL);
        }
    }
}

/* Nobody looks any more once all know; or when that has taken too long. */
static void cut_step(sim *s, uint32_t rank)
{
    const job *j = s->state;
    guard *g = guard_of(s, rank);
    uint64_t next;

    if (!speaks(s, rank) || g->cut || j->unknowing == 0 || s->now > j->end) {
        return;
    }
    if (wf_vigil_is_due(&g->vigil, clock_ns(s))) {
        beat(s, rank, g);
    }
    if (g->gossip.untold > 0 && clock_ns(s) - g->told_ns >= TELL_PAUSE_NS) {
        tell(s, rank, g);
    }
    next = g->vigil.looked_ns + g->vigil.every_ns;
    if (g->gossip.untold > 0) {
        next = g->told_ns + TELL_PAUSE_NS;
    } else if (g->vigil.hastens) {
        next = clock_ns(s);
    }
    sim_wake(s, rank, (next - EPOCH_NS + 1) * 1000);
}

/* --- the job -------------------------------------------------------------- */

static bool is_cut(const sim_control *control, uint32_t node, uint32_t nodes,
                   uint64_t *dice)
{
    switch (control->cut) {
    case SIM_CUT_BLOCK:
        return node < nodes / 2;
    case SIM_CUT_OTHERS:
        return node % 2 == 1;
    default:
        *dice = *dice * 6364136223846793005ull + 1442695040888963407ull;
        return *dice >> 63 != 0;
    }
}

/* Heartbeats of hosts do not come at the same time: each had its last one some
 * time before the cut. */
static void guard_init(guard *g, const uint32_t *node_of, uint32_t node,
                       uint32_t nodes, const sim_control *control)
{
    uint64_t every = (uint64_t)(control->every * 1e9);
    uint64_t before = every * (node * 5 % 8) / 8;

    if (wf_gossip_init(&g->gossip, node_of, nodes, nodes, node) != WEFT_OK ||
        wf_vigil_init(&g->vigil, nodes, (uint64_t)(control->timeout * 1e9),
                      every) != WEFT_OK) {
        fprintf(stderr, "simulate: %s\n", weft_error_detail());
        exit(1);
    }
    wf_vigil_begin(&g->vigil, EPOCH_NS - before);
    wf_vigil_look(&g->vigil, &g->gossip, EPOCH_NS - before);
}

static void job_init(job *j, const sim *s, const sim_control *control)
{
    uint32_t *node_of = sim_alloc(s->hosts, sizeof(*node_of));
    uint64_t dice = 1;

    j->guard = sim_alloc(s->hosts, sizeof(*j->guard));
    for (uint32_t n = 0; n < s->hosts; n++) {
        node_of[n] = n;
    }
    for (uint32_t n = 0; n < s->hosts; n++) {
        guard_init(&j->guard[n], node_of, n, s->hosts, control);
        j->guard[n].cut = is_cut(control, n, s->hosts, &dice);
        j->cut += j->guard[n].cut;
    }
    j->unknowing = j->cut > 0 ? s->hosts - j->cut : 0;
    free(node_of);
}

static void job_fini(job *j, const sim *s)
{
    for (uint32_t n = 0; n < s->hosts; n++) {
        wf_gossip_fini(&j->guard[n].gossip);
        wf_vigil_fini(&j->guard[n].vigil);
    }
    free(j->guard);
}

void sim_cut(const sim_model *model, const sim_control *control,
             sim_result *out)
{
    static const sim_actor actor = {cut_arrived, cut_step, NULL};
    job j = {.end = sim_seconds(3 * control->timeout)};
    sim s;

    sim_init(&s, model, &actor, &j);
    job_init(&j, &s, control);
    sim_control_run(&s, "vigil", model->ranks, out);
    out->stuck = j.unknowing;
    job_fini(&j, &s);
    sim_fini(&s);
}
