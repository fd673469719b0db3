/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a host hand each other the arenas of its nodes. */
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/status.h"
#include "mem/host_parts.h"

/* Map the arena behind `fd`, if there is one. Having none is no failure. */
static bool arena_enter(wf_host *h, const wf_settings *settings, uint64_t range,
                        int fd)
{
    const wf_peer *own = &h->peer[h->rank];
    weft_status st = WEFT_OK;

    if (fd < 0 || range == 0 || settings->arena_bytes == 0) {
        wf_close(fd);
        return false;
    }
    if (range > SIZE_MAX / h->count || range % wf_segment_page() != 0 ||
        range / wf_segment_page() >= UINT32_MAX) {
        wf_close(fd);
        st = wf_fail(WEFT_ERR_PROTOCOL, "a range of %llu bytes",
                     (unsigned long long)range);
    } else {
        wf_arena *a = h->arena_room;

        h->arena_room = NULL;
        st = wf_arena_open(settings, fd, range, wf_host_ranks_of(h, own->node),
                           own->range, h->count, a);
        h->arena = st == WEFT_OK ? a : NULL;
    }
    if (st != WEFT_OK) {
        wf_log(WEFT_LOG_INFO, "rank %u maps no arena: %s", h->rank,
               weft_error_detail());
    }
    return st == WEFT_OK;
}

void wf_host_arena_settle(wf_host *h, const wf_settings *settings, bool all)
{
    if (!all) {
        wf_arena_close(h->arena);
        h->arena = NULL;
        wf_log(WEFT_LOG_INFO,
               "there is no arena on the node of rank %u%s: data is copied "
               "through shared memory",
               h->rank, settings->arena_bytes == 0 ? " (WEFT_ARENA is 0)" : "");
    } else {
        wf_arena_show(h->arena, h->board, h->rank);
    }
}

/* Make the arena of the node of local rank `first`, and send it to all of its
 * ranks. */
static weft_status arena_lead(wf_host *h, const wf_settings *settings,
                              uint32_t first, uint64_t deadline, bool *entered)
{
    uint32_t node = h->peer[h->rank_of[first]].node;
    uint32_t ranks = wf_host_ranks_of(h, node);
    uint64_t range = wf_arena_range(settings, ranks);
    weft_status st = WEFT_OK;
    int fd = -1;

    if (range > 0 && wf_arena_make_fd(range, ranks, &fd) != WEFT_OK) {
        wf_log(WEFT_LOG_INFO, "no arena could be made: %s",
               weft_error_detail());
        range = 0;
    }
    for (uint32_t i = first; i < h->count && st == WEFT_OK; i++) {
        if (i != h->self && h->peer[h->rank_of[i]].node == node) {
            st = wf_host_tell(h, i, WF_PACKET_ARENA, &range, sizeof(range), fd,
                              deadline);
        }
    }
    if (st == WEFT_OK && first == h->self) {
        *entered = arena_enter(h, settings, range, fd);
    } else {
        wf_close(fd);
    }
    return st;
}

weft_status wf_host_arenas_lead(wf_host *h, const wf_settings *settings,
                                uint64_t deadline, bool *entered)
{
    weft_status st = WEFT_OK;

    for (uint32_t i = 0; i < h->count && st == WEFT_OK; i++) {
        if (h->peer[h->rank_of[i]].range == 0) { /* the first of its node */
            st = arena_lead(h, settings, i, deadline, entered);
        }
    }
    return st;
}

weft_status wf_host_arena_follow(wf_host *h, const wf_settings *settings,
                                 uint64_t deadline, uint32_t *maps)
{
    uint64_t range = 0;
    wf_packet p;
    int fd = -1;
    weft_status st = wf_host_expect(h, 0, WF_PACKET_ARENA, deadline, &p, &fd);

    if (st == WEFT_OK) {
        if (p.bytes == sizeof(range)) {
            memcpy(&range, p.data, sizeof(range));
        }
        *maps = arena_enter(h, settings, range, fd);
    }
    return st;
}
