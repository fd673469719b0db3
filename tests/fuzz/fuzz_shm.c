/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever a peer writes into its ring, the reader neither crashes nor reads
 * or writes outside of what is its own.
 *
 * The input is a byte of choices and then what lies in the ring, a ring full
 * for each round. The port is real; the host around it, with one other rank
 * and an arena, is made up here. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/log.h>

#include "transport/shm/shm.h"

enum {
    RING_BYTES = 4096,
    LINES = RING_BYTES / 64,
    ROOM = 3000,
    RECEIVES = 6,
    READS_MEMORY = 1, /* bits of the first byte */
    PEER_READS = 2,
    RECEIVES_LATE = 4,
    HAS_ARENA = 8
};

typedef struct stage {
    wf_host host;
    wf_peer peers[2];
    uint32_t rank_of[2];
    wf_board *board;
    wf_arena arena;
    wf_ring in;
    wf_ring out;
    alignas(64) unsigned char in_data[RING_BYTES];
    alignas(64) unsigned char out_data[RING_BYTES];
    wf_port *port;
    unsigned char buf[RECEIVES][ROOM];
    wf_msg recv[RECEIVES];
    wf_msg send[2];
    unsigned char large[ROOM];
    unsigned char ranges[2][ROOM];
} stage;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void silent(weft_log_level level, const char *text, void *ctx)
{
    (void)level;
    (void)text;
    (void)ctx;
}

static void on_am(void *ctx, uint32_t from, const void *header,
                  size_t header_bytes, const void *payload,
                  size_t payload_bytes)
{
    stage *s = ctx;
    wf_port *port = s->port;

    (void)from;
    /* Reads all of it, and sends from a handler. */
    wf_transport_shm.am(port, 1, 1, header, header_bytes, payload,
                        payload_bytes);
}

/* All memory comes from here on; none is left when a run ends. */
static stage *stage_open(uint8_t choices)
{
    size_t board = wf_board_size(2, 0);
    stage *s = aligned_alloc(alignof(stage), sizeof(*s));
    shm_peer *peer;

    if (s == NULL) {
        abort();
    }
    memset(s, 0, sizeof(*s));
    s->board = aligned_alloc(64, board);
    if (s->board == NULL) {
        abort();
    }
    memset(s->board, 0, board);
    s->peers[1].local = 1;
    s->peers[1].pid = (int32_t)getpid();
    s->rank_of[1] = 1;
    s->peers[0].bell = &s->board->rank[0];
    s->peers[1].bell = &s->board->rank[1];
    s->host = (wf_host){.ranks = 2,
                        .count = 2,
                        .peer = s->peers,
                        .rank_of = s->rank_of,
                        .board = s->board};
    if ((choices & HAS_ARENA) != 0) {
        s->arena = (wf_arena){
            .base = s->ranges[0], .own = s->ranges[0], .range = ROOM};
        s->peers[1].range = 1;
        s->host.arena = &s->arena;
    }
    if (shm_port_create(&s->host, &s->port) != WEFT_OK) {
        abort();
    }
    wf_ring_read(&s->in, s->in_data, LINES, &s->port->in[1]);
    wf_ring_read(&s->in, s->in_data, LINES, &s->port->in[0]);
    peer = &s->port->peer[1];
    wf_ring_write(&s->out, s->out_data, LINES, &peer->out);
    peer->eager_bytes = 256;
    peer->readable = (choices & READS_MEMORY) != 0;
    s->port->reads = peer->readable;
    return s;
}

static void stage_close(stage *s)
{
    wf_transport_shm.close(s->port);
    free(s->board);
    free(s);
}

/* Receives of several kinds, and sends for answers to be about. */
static void stage_post(stage *s)
{
    const wf_transport *t = &wf_transport_shm;

    for (uint32_t i = 0; i < RECEIVES; i++) {
        (void)t->recv(s->port, i % 2 == 0 ? 1 : WF_FROM_ANY, i,
                      i == 5 ? 0 : WF_TAG_EXACT, s->buf[i], i * ROOM / RECEIVES,
                      &s->recv[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        (void)t->send(s->port, 1, i, s->large, sizeof(s->large), &s->send[i]);
    }
    t->handle(s->port, 0, on_am, s);
}

/* The other rank reads all that was written to it. */
static void peer_reads(stage *s)
{
    memset(s->out_data, 0, sizeof(s->out_data));
    atomic_store(&s->out.head, s->port->peer[1].out.tail);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t choices = n > 0 ? data[0] : 0;
    stage *s;

    weft_log_to(silent, NULL);
    s = stage_open(choices);
    if ((choices & RECEIVES_LATE) == 0) {
        stage_post(s);
    }
    for (size_t at = 1; at < n; at += RING_BYTES) {
        memcpy(s->in_data, data + at,
               n - at < RING_BYTES ? n - at : RING_BYTES);
        for (unsigned i = 0; i < 4; i++) {
            wf_transport_shm.progress(s->port);
        }
        if ((choices & RECEIVES_LATE) != 0) {
            stage_post(s);
            choices &= (uint8_t)~RECEIVES_LATE;
        }
        if ((choices & PEER_READS) != 0) {
            peer_reads(s);
        }
    }
    wf_transport_shm.gone(s->port, 1);
    wf_transport_shm.progress(s->port);
    stage_close(s);
    return 0;
}
