/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever comes in datagrams, a switch and a rank stay within their memory,
 * and nothing that is not sealed is looked at.
 *
 * The input is a sequence of packets, each with two bytes of length in front.
 * A packet is tried as it is, and then sealed, as by a rank that has the key
 * and has gone mad: its fields are made to fit where a switch would drop it at
 * once otherwise, as bits of a third byte say. Replies of the switch go through
 * the checks of a rank, and into its window. */
#include <stdlib.h>
#include <string.h>

#include "agg/quantise.h"
#include "agg/slot.h"
#include "agg/window.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { RANKS = 3, SLOTS = 2, PAYLOAD = 320, ROOM = 64 + PAYLOAD };

static const wf_agg_shape shape = {
    .job = 7, .epoch = 3, .ranks = RANKS, .slots = SLOTS, .payload = PAYLOAD};

typedef struct rig {
    wf_agg_pool pool;
    wf_agg_window window;
    wf_agg_window_chunk entry[SLOTS];
    wf_agg_key key;
    uint64_t now;
} rig;

static void must(bool true_of_good_packets)
{
    if (!true_of_good_packets) {
        abort();
    }
}

static void rank_hears(rig *r, const wf_agg_reply *reply)
{
    unsigned char packet[ROOM];
    wf_agg_head head = reply->head;
    size_t payload = wf_agg_payload(&head);
    float out[PAYLOAD / sizeof(float)];
    uint64_t chunk;
    bool again;

    must(payload <= PAYLOAD);
    wf_agg_seal(&r->key, &head, reply->payload);
    memcpy(packet, &head, sizeof(head));
    if (payload > 0) {
        memcpy(packet + sizeof(head), reply->payload, payload);
    }
    must(wf_agg_open(&r->key, packet, sizeof(head) + payload, &head) ==
         WF_AGG_GOOD);
    if (head.kind == WF_AGG_RESULT && (head.flags & WF_AGG_QUANTISED) != 0) {
        wf_dequantise(reply->payload, wf_agg_numbers(&head), RANKS, 1, out);
    }
    if (head.kind == WF_AGG_RESULT) {
        wf_agg_window_result(&r->window, head.chunk, r->now);
    } else if (head.kind == WF_AGG_WAIT) {
        wf_agg_window_held(&r->window, head.chunk, r->now);
    }
    while (wf_agg_window_send(&r->window, r->now, &chunk, &again)) {
        must(chunk < r->window.end);
    }
    must(r->window.under_way <= SLOTS);
}

static void switch_hears(rig *r, const void *packet, size_t n)
{
    wf_agg_head head;
    wf_agg_reply reply;
    wf_agg_verdict verdict;

    if (wf_agg_open(&r->key, packet, n, &head) != WF_AGG_GOOD ||
        head.kind != WF_AGG_DATA) {
        return;
    }
    must(wf_agg_payload(&head) == n - sizeof(head));
    verdict = wf_agg_take(&r->pool, &head, (const char *)packet + sizeof(head),
                          &reply);
    must(verdict < WF_AGG_VERDICTS && wf_agg_verdict_name(verdict) != NULL);
    if (verdict == WF_AGG_ANSWER || verdict == WF_AGG_BROADCAST) {
        rank_hears(r, &reply);
    }
}

/* Make it one that a switch takes, as far as `how` says. */
static void fit(wf_agg_head *head, unsigned how)
{
    if ((how & 1) != 0) {
        head->kind = WF_AGG_DATA;
        head->job = shape.job;
        head->epoch = shape.epoch;
        head->ranks = RANKS;
        head->rank %= RANKS;
        head->lane = 0;
    }
    if ((how & 2) != 0) {
        head->chunk %= 8;
        head->slot = (uint16_t)wf_agg_slot_of(head->chunk, SLOTS);
        head->version = (uint8_t)wf_agg_version_of(head->chunk, SLOTS);
    }
    if ((how & 4) != 0) {
        head->call = 3;
        head->type %= 16;
        head->op %= 14;
        head->hash = 1;
        head->total = 1000;
        head->flags &= WF_AGG_FLAGS;
    }
}

static void try_packet(rig *r, const uint8_t *data, size_t n, unsigned how)
{
    /* Of its own size, so that a step beyond it is seen. */
    unsigned char *packet = malloc(n > 0 ? n : 1);
    wf_agg_head head;
    uint32_t job;

    must(packet != NULL);
    memcpy(packet, data, n);
    (void)wf_agg_job(packet, n, &job);
    switch_hears(r, packet, n);
    if (n >= sizeof(head)) {
        memcpy(&head, packet, sizeof(head));
        fit(&head, how);
        if (wf_agg_payload(&head) == n - sizeof(head)) {
            r->key.whole = (how & 8) != 0;
            wf_agg_seal(&r->key, &head, packet + sizeof(head));
            memcpy(packet, &head, sizeof(head));
            switch_hears(r, packet, n);
        }
    }
    free(packet);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const wf_agg_window_config config = {.slots = SLOTS,
                                         .limit = SLOTS,
                                         .least_ns = 10,
                                         .most_ns = 1000,
                                         .patience_ns = 100000};
    void *memory = aligned_alloc(64, wf_agg_pool_bytes(&shape));
    rig r = {.key = {{{1, 2}}, false}};

    must(memory != NULL);
    wf_agg_pool_init(&r.pool, &shape, memory);
    wf_agg_window_init(&r.window, &config, r.entry);
    wf_agg_window_call(&r.window, 6, 0);
    while (n > 3) {
        size_t length = data[0] | (size_t)data[1] << 8;
        unsigned how = data[2];

        data += 3;
        n -= 3;
        length = length < n ? length : n;
        try_packet(&r, data, length, how);
        r.now += how;
        data += length;
        n -= length;
    }
    free(memory);
    return 0;
}
