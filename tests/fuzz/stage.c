/* SPDX-License-Identifier: Apache-2.0 */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/log.h>

#include "base/alloc.h"
#include "coll/coll.h"
#include "comm/control.h"
#include "comm/ids.h"
#include "transport/msg.h"

/* What a receive gets, by a byte of the script. */
enum { GETS_ECHO = 0, GETS_BYTES = 1, GETS_FULL = 2, GETS_LOSS = 3, GETS = 5 };

struct wf_port {
    script *input;
    wf_queue waiting; /* receives that what we send goes to */
};

void must(int holds)
{
    if (!holds) {
        fprintf(stderr, "the last error was: %s\n", weft_error_detail());
        abort();
    }
}

/* --- the script ---------------------------------------------------------- */

size_t script_bytes(script *s, void *to, size_t n)
{
    size_t got = n < s->left ? n : s->left;

    memset(to, 0, n);
    if (got > 0) {
        memcpy(to, s->at, got);
        s->at += got;
        s->left -= got;
    }
    return got;
}

uint8_t script_u8(script *s)
{
    uint8_t value;

    script_bytes(s, &value, sizeof(value));
    return value;
}

uint16_t script_u16(script *s)
{
    uint16_t value;

    script_bytes(s, &value, sizeof(value));
    return value;
}

/* --- the port ------------------------------------------------------------ */

static void get(wf_msg *msg, const void *from, size_t n)
{
    wf_copy(msg->buf, from, n < msg->room ? n : msg->room);
    msg->n = n;
    wf_msg_finish(msg, n > msg->room ? WEFT_ERR_TRUNCATED : WEFT_OK);
}

static void get_bytes(script *input, wf_msg *msg)
{
    size_t n = script_u16(input) % 8192;
    unsigned char *bytes = calloc(1, n + 1);

    must(bytes != NULL);
    script_bytes(input, bytes, n);
    get(msg, bytes, n);
    free(bytes);
}

static weft_status stage_recv(wf_port *port, uint32_t from, uint64_t tag,
                              uint64_t mask, void *buf, size_t room,
                              wf_msg *msg)
{
    uint8_t how = port->input != NULL ? script_u8(port->input) % GETS : 0;

    (void)mask;
    *msg = (wf_msg){.from = from, .tag = tag, .buf = buf, .room = room};
    if (how == GETS_BYTES) {
        get_bytes(port->input, msg);
    } else if (how == GETS_FULL) {
        memset(buf, 1, room);
        msg->n = room;
        wf_msg_finish(msg, WEFT_OK);
    } else if (how == GETS_LOSS) {
        wf_msg_finish(msg, WEFT_ERR_PEER);
    } else {
        wf_queue_push(&port->waiting, msg);
    }
    return WEFT_OK;
}

static weft_status stage_send(wf_port *port, uint32_t to, uint64_t tag,
                              const void *buf, size_t n, wf_msg *msg)
{
    wf_msg *waits = wf_queue_pop(&port->waiting);

    *msg = (wf_msg){.from = to, .tag = tag, .n = n};
    if (waits != NULL) {
        get(waits, buf, n);
    }
    wf_msg_finish(msg, WEFT_OK);
    return WEFT_OK;
}

static void stage_drop(wf_port *port, wf_msg *msg)
{
    (void)wf_queue_remove(&port->waiting, msg);
}

/* Reads all of it, as a real one does. */
static weft_status stage_am(wf_port *port, uint32_t to, uint32_t id,
                            const void *header, size_t header_bytes,
                            const void *payload, size_t payload_bytes)
{
    unsigned char copy[WF_AM_HEADER_MAX + WF_AM_PAYLOAD_MAX];

    (void)port;
    must(to < STAGE_RANKS && id < WF_AM_IDS);
    must(header_bytes <= WF_AM_HEADER_MAX);
    must(payload_bytes <= WF_AM_PAYLOAD_MAX);
    wf_copy(copy, header, header_bytes);
    wf_copy(copy + header_bytes, payload, payload_bytes);
    return WEFT_OK;
}

static unsigned stage_progress(wf_port *port)
{
    (void)port;
    return 0;
}

static bool stage_busy(const wf_port *port)
{
    (void)port;
    return false;
}

static void stage_gone(wf_port *port, uint32_t rank)
{
    (void)port;
    (void)rank;
}

/* Nothing is kept before its receive. */
static void stage_forget(wf_port *port, uint64_t tag, uint64_t mask)
{
    (void)port;
    (void)tag;
    (void)mask;
}

/* Nothing is ever handled here: targets call the handlers themselves. */
static void stage_handle(wf_port *port, uint32_t id, wf_am_fn *fn, void *ctx)
{
    (void)port;
    (void)fn;
    (void)ctx;
    must(id < WF_AM_IDS);
}

const wf_transport stage_transport = {
    .busy = stage_busy,
    .abi = WF_TRANSPORT_ABI,
    .name = "stage",
    .send = stage_send,
    .recv = stage_recv,
    .drop = stage_drop,
    .forget = stage_forget,
    .handle = stage_handle,
    .am = stage_am,
    .progress = stage_progress,
    .gone = stage_gone,
};

/* --- the world ----------------------------------------------------------- */

static void silent(weft_log_level level, const char *text, void *ctx)
{
    (void)level;
    (void)text;
    (void)ctx;
}

static void host_init(stage *s, uint32_t ranks, uint32_t rank, bool apart)
{
    size_t bytes = wf_board_size(ranks, ranks);

    s->board = aligned_alloc(64, bytes);
    must(s->board != NULL);
    memset(s->board, 0, bytes);
    s->board->ranks = ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        s->peers[r] = (wf_peer){.host = "stage",
                                .pid = (int32_t)getpid(),
                                .node = apart ? r : 0,
                                .local = r,
                                .bell = &s->board->rank[r]};
        s->rank_of[r] = r;
        s->link[r] = -1;
        s->board->rank[r].rank = r;
        s->board->rank[r].shelf =
            apart && r != rank ? WF_BOARD_NO_SHELF : s->board->shelves++;
        atomic_store(&s->board->rank[r].state, WF_BOARD_HERE);
    }
    s->host = (wf_host){.rank = rank,
                        .ranks = ranks,
                        .nodes = apart ? ranks : 1,
                        .self = rank,
                        .count = ranks,
                        .cpus = ranks,
                        .peer = s->peers,
                        .rank_of = s->rank_of,
                        .link = s->link,
                        .board = s->board};
}

void stage_init(stage *s, uint32_t ranks, uint32_t rank, bool apart,
                script *input)
{
    static const wf_engine *const engines[] = {&wf_engine_shm,
                                               &wf_engine_message, NULL};
    static const wf_parts parts = {
        .layers = {[WF_LAYER_COLL] = {&wf_coll_layer, engines}},
        .agree = wf_coll_agree};
    static const char small[] =
        "SHM_RING_BYTES=4K FLAT_BYTES=64 CHUNK_BYTES=4K";
    weft_world *world = &s->world;

    weft_log_to(silent, NULL);
    memset(s, 0, sizeof(*s));
    host_init(s, ranks, rank, apart);
    must(wf_settings_load(small, &world->settings) == WEFT_OK);
    world->host = &s->host;
    world->pace.spin_ns = UINT64_MAX / 2; /* never sleep */
    world->parts = &parts;
    s->route = (wf_route){&stage_transport, calloc(1, sizeof(wf_port)), -1};
    must(s->route.port != NULL);
    s->route.port->input = input;
    world->ports = (wf_ports){.count = 1,
                              .route = &s->route,
                              .to = s->to,
                              .reported = s->reported,
                              .lost = s->lost};
    atomic_store(&world->users, 1);
    pthread_mutex_init(&world->comms_lock, NULL);
    pthread_mutex_init(&world->drive, NULL);
    pthread_mutex_init(&world->ids.lock, NULL);
    must(wf_plane_create(world) == WEFT_OK);
}

void stage_fini(stage *s)
{
    must(s->world.comms == NULL && s->world.busy == NULL);
    must(atomic_load(&s->world.users) == 1);
    wf_plane_destroy(&s->world);
    pthread_mutex_destroy(&s->world.comms_lock);
    pthread_mutex_destroy(&s->world.drive);
    wf_ids_fini(&s->world);
    wf_free(s->world.ports.flow);
    free(s->route.port);
    free(s->board);
}
