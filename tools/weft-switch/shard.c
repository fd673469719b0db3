/* SPDX-License-Identifier: Apache-2.0 */
/* A shard: reads packets, lets the slots decide, sends what they say. Results
 * for all ranks of a job are put together once and sent to each of them, from
 * the slots that hold them: what was decided on in one read is sent before the
 * next, and no slot is used again before its result was sent. */
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/time.h"
#include "switch.h"

/* A shard that hears nothing looks this often whether it shall stop. */
#define LOOK_US 100000

/* --- out ------------------------------------------------------------------ */

static void flush_to(const sw_shard *shard, sw_lane *lane, uint32_t rank)
{
    wf_udp_batch *batch = &lane->to[rank];

    lane->unsent += !wf_udp_send(shard->fd, batch, &lane->job->address[rank]);
    wf_udp_clear(batch);
}

static void flush_all(const sw_shard *shard, sw_lane *lane)
{
    for (uint32_t r = 0; lane->all->count > 0 && r < lane->job->like.ranks;
         r++) {
        lane->unsent +=
            !wf_udp_send(shard->fd, lane->all, &lane->job->address[r]);
    }
    wf_udp_clear(lane->all);
}

static void make_dirty(sw_shard *shard, sw_lane *lane)
{
    if (!lane->dirty) {
        lane->dirty = true;
        lane->next_dirty = shard->dirty;
        shard->dirty = lane;
    }
}

static void flush_dirty(sw_shard *shard)
{
    while (shard->dirty != NULL) {
        sw_lane *lane = shard->dirty;

        flush_all(shard, lane);
        for (uint32_t r = 0; r < lane->job->like.ranks; r++) {
            if (lane->to[r].count > 0) {
                flush_to(shard, lane, r);
            }
        }
        lane->dirty = false;
        shard->dirty = lane->next_dirty;
    }
}

static void put_to(const sw_shard *shard, sw_lane *lane, uint32_t rank,
                   const wf_agg_head *head, const void *payload, size_t bytes)
{
    if (!wf_udp_fits(&lane->to[rank], sizeof(*head) + bytes)) {
        flush_to(shard, lane, rank);
    }
    wf_udp_add(&lane->to[rank], head, sizeof(*head), payload, bytes);
}

static void put_all(const sw_shard *shard, sw_lane *lane,
                    const wf_agg_head *head, const void *payload, size_t bytes)
{
    if (!wf_udp_fits(lane->all, sizeof(*head) + bytes)) {
        flush_all(shard, lane);
    }
    wf_udp_add(lane->all, head, sizeof(*head), payload, bytes);
}

static void keep_late(sw_late *late, const wf_agg_head *head,
                      const void *payload, size_t bytes)
{
    late->head = *head;
    late->bytes = bytes;
    late->there = true;
    if (bytes > 0) {
        memcpy(late->payload, payload, bytes);
    }
}

/* To one rank, through the injector if there is one. */
static void send_one(sw_shard *shard, sw_lane *lane, uint32_t rank,
                     const wf_agg_head *head, const void *payload, size_t bytes)
{
    sw_fate fate = sw_inject_next(&shard->inject);
    sw_late *late = lane->late != NULL ? &lane->late[rank] : NULL;

    if (fate == SW_LATE && !late->there) {
        keep_late(late, head, payload, bytes);
        return;
    }
    if (fate != SW_LOSE) {
        put_to(shard, lane, rank, head, payload, bytes);
    }
    if (fate == SW_TWICE) {
        put_to(shard, lane, rank, head, payload, bytes);
    }
    if (late != NULL && late->there) {
        put_to(shard, lane, rank, &late->head, late->payload, late->bytes);
        flush_to(shard, lane, rank); /* before another one is kept there */
        late->there = false;
    }
}

static void send_reply(sw_shard *shard, sw_lane *lane, uint32_t rank,
                       wf_agg_verdict verdict, wf_agg_reply *reply)
{
    wf_agg_head *head = &reply->head;
    size_t bytes = wf_agg_payload(head);

    wf_agg_seal(&lane->job->key, head, reply->payload);
    make_dirty(shard, lane);
    if (verdict == WF_AGG_ANSWER) {
        send_one(shard, lane, rank, head, reply->payload, bytes);
    } else if (!shard->inject.on) {
        put_all(shard, lane, head, reply->payload, bytes);
    } else {
        for (uint32_t r = 0; r < lane->job->like.ranks; r++) {
            send_one(shard, lane, r, head, reply->payload, bytes);
        }
    }
}

/* --- in ------------------------------------------------------------------- */

static void count_part(sw_shard *shard, sw_lane *lane, const wf_agg_head *head,
                       wf_agg_verdict verdict)
{
    uint32_t place = 2u * head->slot + head->version;
    sw_rank *rank = &lane->rank[head->rank];

    rank->packets++;
    rank->resent += (head->flags & WF_AGG_RESENT) != 0;
    rank->rtt_us = head->rtt;
    if (verdict != WF_AGG_KEPT && verdict != WF_AGG_BROADCAST) {
        return;
    }
    lane->bytes += wf_agg_payload(head);
    if (lane->pool.place[place].state == WF_AGG_COMPLETE) {
        lane->results++;
        rank->last++;
        rank->late_ns += shard->now_ns - lane->begun_ns[place];
    } else if (lane->pool.place[place].arrived == 1) {
        lane->begun_ns[place] = shard->now_ns;
    }
}

static void take_part(sw_shard *shard, sw_lane *lane, const void *packet,
                      size_t bytes)
{
    wf_agg_head head;
    wf_agg_reply reply;
    wf_agg_verdict verdict;
    wf_agg_refusal why = wf_agg_open(&lane->job->key, packet, bytes, &head);

    lane->refused[why]++;
    if (why != WF_AGG_GOOD) {
        return;
    }
    verdict = wf_agg_take(&lane->pool, &head,
                          (const char *)packet + sizeof(head), &reply);
    lane->verdict[verdict]++;
    if (verdict == WF_AGG_DROPPED_STRANGE) {
        return;
    }
    count_part(shard, lane, &head, verdict);
    if (verdict == WF_AGG_ANSWER || verdict == WF_AGG_BROADCAST) {
        send_reply(shard, lane, head.rank, verdict, &reply);
    }
}

static void take_packet(sw_shard *shard, const void *packet, size_t bytes)
{
    uint32_t id;
    sw_lane *lane;

    if (!wf_agg_job(packet, bytes, &id)) {
        shard->strangers++;
        return;
    }
    lane = shard->lane[id % SW_JOBS];
    if (lane == NULL || lane->job->id != id) {
        shard->strangers++;
        return;
    }
    take_part(shard, lane, packet, bytes);
}

/* One read. Packets that come late are put behind the rest of it. */
typedef struct sw_read {
    sw_shard *shard;
    bool locked;
    unsigned count;
    struct {
        size_t bytes;
        unsigned char packet[sizeof(wf_agg_head) + WF_AGG_PAYLOAD_MAX];
    } late[4];
} sw_read;

static void take_injected(sw_read *l, const void *packet, size_t bytes)
{
    switch (sw_inject_next(&l->shard->inject)) {
    case SW_LOSE:
        return;
    case SW_LATE:
        if (l->count < 4 && bytes <= sizeof(l->late[0].packet)) {
            l->late[l->count].bytes = bytes;
            memcpy(l->late[l->count++].packet, packet, bytes);
            return;
        }
        break;
    case SW_TWICE:
        take_packet(l->shard, packet, bytes);
        break;
    case SW_PASS:
        break;
    }
    take_packet(l->shard, packet, bytes);
}

static void take_read(void *ctx, const void *packet, size_t bytes)
{
    sw_read *l = ctx;
    sw_shard *shard = l->shard;

    if (!l->locked) {
        l->locked = true;
        pthread_mutex_lock(&shard->lock);
        shard->now_ns = wf_now_ns();
    }
    shard->packets++;
    if (shard->inject.on) {
        take_injected(l, packet, bytes);
    } else {
        take_packet(shard, packet, bytes);
    }
}

/* The lock is not held while it waits for packets: the first one takes it. */
static void shard_turn(sw_shard *shard)
{
    sw_read l;

    l.shard = shard;
    l.locked = false;
    l.count = 0;
    (void)wf_udp_recv(shard->fd, shard->inbox, take_read, &l);
    if (!l.locked) {
        return;
    }
    for (unsigned i = 0; i < l.count; i++) {
        take_packet(shard, l.late[i].packet, l.late[i].bytes);
    }
    flush_dirty(shard);
    pthread_mutex_unlock(&shard->lock);
}

static void *shard_main(void *arg)
{
    sw_shard *shard = arg;

    while (!atomic_load(shard->stop)) {
        shard_turn(shard);
    }
    return NULL;
}

weft_status sw_shard_start(sw_shard *shard, uint32_t number,
                           const sw_options *options, wf_udp_address *at,
                           const _Atomic bool *stop)
{
    const struct timeval look = {.tv_usec = LOOK_US};
    weft_status st;

    *shard = (sw_shard){.number = number, .stop = stop};
    pthread_mutex_init(&shard->lock, NULL);
    sw_inject_init(&shard->inject, &options->inject, number);
    shard->inbox = wf_zalloc_aligned(64, sizeof(*shard->inbox));
    if (shard->inbox == NULL) {
        return wf_fail_nomem("the packets of a shard");
    }
    st = wf_udp_open(at, false, &shard->fd);
    if (st != WEFT_OK) {
        wf_free(shard->inbox);
        return st;
    }
    (void)setsockopt(shard->fd, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof(look));
    st = wf_thread_start("a shard", shard_main, shard, &shard->thread);
    shard->started = st == WEFT_OK;
    if (st != WEFT_OK) {
        close(shard->fd);
        wf_free(shard->inbox);
    }
    return st;
}

void sw_shard_join(sw_shard *shard)
{
    if (shard->started) {
        pthread_join(shard->thread, NULL);
        close(shard->fd);
        wf_free(shard->inbox);
        pthread_mutex_destroy(&shard->lock);
    }
}
