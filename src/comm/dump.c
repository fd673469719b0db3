/* SPDX-License-Identifier: Apache-2.0 */
/* The progress board as text, for people who wonder why a job stands still. */
#include <stdio.h>

#include "base/time.h"
#include "comm/comm.h"
#include "comm/text.h"

const char *wf_board_state_name(uint32_t state)
{
    switch (state) {
    case WF_BOARD_HERE:
        return "here";
    case WF_BOARD_LEFT:
        return "left";
    case WF_BOARD_DEAD:
        return "dead";
    default:
        return "joining";
    }
}

bool wf_comm_shown_text(const wf_board_rank *e, char *out, size_t room)
{
    uint64_t act = atomic_load_explicit(&e->act, memory_order_relaxed);
    wf_call call = wf_call_unpacked(
        act, atomic_load_explicit(&e->count, memory_order_relaxed));
    char name[128];
    char number[64];

    call.root = atomic_load_explicit(&e->root, memory_order_relaxed);
    wf_call_text(&call, name, sizeof(name));
    if (call.kind == WF_CALL_NONE) {
        snprintf(out, room, "%s", name);
        return false;
    }
    wf_call_number_text(
        call.kind,
        (uint32_t)atomic_load_explicit(&e->sequence, memory_order_relaxed),
        (uint32_t)(act >> 32), number, sizeof(number));
    snprintf(out, room, "%s, %s", name, number);
    return true;
}

/* What others wrote on the board is not used as an index. */
static void add_rank(wf_text *t, const wf_host *host, uint32_t rank)
{
    const wf_board_rank *e = wf_host_entry(host, rank);
    const wf_peer *peer = &host->peer[rank];
    uint32_t asleep = atomic_load_explicit(&e->asleep, memory_order_relaxed);
    uint64_t since = atomic_load_explicit(&e->since_ns, memory_order_relaxed);
    bool inside = atomic_load_explicit(&e->waiting, memory_order_relaxed) != 0;
    char shown[192];

    if (!wf_host_same_node(host, rank)) {
        wf_text_add(t, "rank %u (pid %d on %s, node %u, %s): on another host\n",
                    rank, peer->pid, peer->host, peer->node,
                    wf_board_state_name(atomic_load(&e->state)));
        return;
    }
    wf_comm_shown_text(e, shown, sizeof(shown));
    wf_text_add(t, "rank %u (pid %d on %s, node %u, %s): %s %s", rank,
                peer->pid, peer->host, peer->node,
                wf_board_state_name(atomic_load(&e->state)),
                inside ? "in" : "last in", shown);
    if (inside && asleep != 0 && since != 0) {
        wf_text_add(t, ", waiting for %.1f s",
                    (double)(wf_now_ns() - since) / 1e9);
    }
    wf_text_add(t, "\n");
}

size_t weft_dump(weft_world *world, char *out, size_t room)
{
    wf_text t = wf_text_at(out, room);

    if (world == NULL) {
        return 0;
    }
    for (uint32_t r = 0; r < world->host->ranks; r++) {
        add_rank(&t, world->host, r);
    }
    return t.length;
}
