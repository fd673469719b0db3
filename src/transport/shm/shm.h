/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the shared-memory transport.
 *
 * Every rank owns an inbox: one segment with a ring for each rank of the host.
 * Reading:
 *
 *   inbox.c  makes the inbox, swaps descriptors with the others
 *   ring.c   one ring; record.c what is in it
 *   out.c    what goes out: tries the ring, else waits in the peer's queue
 *   in.c     what comes in: takes records and does what they say
 *   large.c  a large message coming in: reads the sender's memory, in the
 *            arena or by CMA, or has it streamed
 *   shm.c    the contract, and the end of a peer
 *
 * Idle, progress() loads one word for each other rank of the host, each on a
 * line that stays in this core's cache until its writer stores to it. */
#ifndef WF_TRANSPORT_SHM_SHM_H
#define WF_TRANSPORT_SHM_SHM_H

#include "transport/am.h"
#include "transport/match.h"
#include "transport/shm/record.h"
#include "transport/shm/ring.h"

/* Records of one peer that one progress() takes at most. */
#define SHM_BATCH 64
/* A piece of a stream, and how many of one peer's pieces one progress() writes
 * at most. The receiver copies one piece out while the sender copies the next
 * one in, so short ones overlap better, and long ones cost fewer records. */
#define SHM_PIECE ((size_t)128 * WF_RING_LINE - WF_RING_HEADER)
#define SHM_PIECES 8
/* What one progress() reads from a sender's memory at most. */
#define SHM_SLICE ((size_t)256 << 10)

/* What a wf_msg in a peer's lists is (wf_msg.state). */
typedef enum shm_state {
    SHM_RECEIVE = 0,
    SHM_EAGER,    /* to be copied into the ring */
    SHM_OFFER,    /* to be offered */
    SHM_OFFERED,  /* waits for what the receiver says to that */
    SHM_STREAM,   /* goes through the ring in pieces */
    SHM_AM,       /* the front of a shm_am */
    SHM_SAY_SEND, /* these two: the note of a shm_large */
    SHM_SAY_TAKEN,
    SHM_SAY_WITHDRAWN /* on its own; its token says of what */
} shm_state;

/* wf_arrival.kind: what lies around it. */
typedef enum shm_arrival_kind {
    SHM_ARRIVED_EAGER,
    SHM_ARRIVED_LARGE
} shm_arrival_kind;

/* A small message that came before its receive. */
typedef struct shm_early {
    wf_arrival arrival;
    unsigned char data[];
} shm_early;

/* An active message that found no room; `moved` of it is in the ring. */
typedef struct shm_am {
    wf_msg msg;
    uint32_t id;
    uint32_t header_bytes;
    unsigned char data[]; /* header and payload, room bytes together */
} shm_am;

/* A large message coming in, from its offer to its end. */
typedef struct shm_large {
    wf_arrival arrival; /* while no receive matches */
    wf_msg note;        /* the answer, while it waits for room in the ring */
    struct shm_large *next;
    wf_msg *msg; /* the receive, once one matches; NULL if it was let go */
    uint32_t source;
    bool answered;             /* SEND has left: pieces may come */
    const unsigned char *lies; /* where in the sender's arena, or NULL */
    uint64_t address;
    uint64_t token;
    uint32_t withdrawn; /* by the sender, before it offered this one */
    size_t want;        /* what the receive has room for */
    size_t moved;
} shm_large;

/* Large messages in the order of their offers. */
typedef struct shm_larges {
    shm_large *head;
    shm_large *last; /* valid while head is not NULL */
} shm_larges;

typedef struct shm_peer {
    weft_status failed;   /* other than WEFT_OK: nothing goes to or from it */
    bool going;           /* gone, but its last records have to be read */
    uint64_t parted_ns;   /* when its socket was seen to have ended, or 0 */
    bool readable;        /* we may read its memory by CMA */
    unsigned char *range; /* its part of the arena, or NULL */
    uint32_t rank;
    uint32_t slot;
    int32_t pid;
    size_t eager_bytes;
    wf_board_rank *bell;
    wf_segment inbox; /* the peer's, mapped here */
    wf_ring_writer out;
    wf_queue queue;   /* to go out, in order */
    wf_queue streams; /* to go out in pieces, one after the other */
    wf_queue offered;
    shm_larges streamed;  /* coming in in pieces */
    unsigned char *parts; /* of an active message, parts_bytes so far */
    size_t parts_bytes;
} shm_peer;

struct wf_port {
    wf_host *host;
    uint32_t count; /* ranks of the host, this one included */
    uint32_t self;
    bool reads;     /* messages are read, where that is possible */
    uint64_t probe; /* peers read it to learn whether they may */
    uint64_t tokens;
    wf_match match;
    wf_segment inbox;
    wf_ring_reader *in; /* by index on the host, apart: progress() scans it */
    shm_peer *peer;     /* by index on the host */
    unsigned waiting;   /* peers with something in queue or streams */
    unsigned going;     /* peers that are going */
    uint32_t parted;    /* of host->parted: those that were looked at */
    unsigned parting;   /* peers that have, and are not going yet */
    shm_larges pulls;   /* being read from senders' memory, one by one */
    wf_am_table handlers;
    wf_loss_fn *lost;
    void *ctx;
    alignas(64) unsigned char am_header[WF_AM_HEADER_MAX];
    alignas(64) unsigned char am_payload[WF_AM_PAYLOAD_MAX];
};

/* inbox.c */
typedef struct shm_layout {
    uint32_t lines;
    size_t data;  /* where the first ring's lines begin */
    size_t bytes; /* of the whole inbox */
} shm_layout;

weft_status shm_layout_of(uint32_t count, uint64_t ring_bytes, shm_layout *out);
wf_ring *shm_ring_at(const wf_segment *inbox, uint32_t index);
void *shm_lines_at(const wf_segment *inbox, const shm_layout *layout,
                   uint32_t index);
weft_status shm_inbox_create(wf_port *port, const wf_settings *settings);
weft_status shm_inbox_swap(wf_port *port, const wf_settings *settings);

/* out.c */
void shm_out_submit(wf_port *port, shm_peer *peer, wf_msg *msg);
bool shm_out_am(shm_peer *peer, const wf_am_view *am);
weft_status shm_out_am_later(wf_port *port, shm_peer *peer,
                             const wf_am_view *am);
void shm_out_stream(wf_port *port, shm_peer *peer, wf_msg *msg);
unsigned shm_out_pump(wf_port *port, shm_peer *peer);
bool shm_out_forget(wf_port *port, shm_peer *peer, wf_msg *msg);
void shm_out_withdraw(wf_port *port, shm_peer *peer, wf_msg *msg);
void shm_out_fail(wf_port *port, shm_peer *peer, weft_status why);

/* in.c */
unsigned shm_in_poll(wf_port *port, shm_peer *peer, unsigned limit);
void shm_in_take_early(wf_port *port, wf_arrival *arrival, wf_msg *msg);

/* large.c */
bool shm_large_offered(wf_port *port, shm_peer *peer, uint64_t tag,
                       const wf_offer *offer);
/* Where in its arena the peer's message lies, or NULL. */
const unsigned char *shm_large_place(const wf_port *port, const shm_peer *peer,
                                     const wf_offer *offer);
void shm_large_match(wf_port *port, shm_large *large, wf_msg *msg);
bool shm_large_piece(shm_peer *peer, uint64_t token, const void *data,
                     size_t n);
unsigned shm_large_pull(wf_port *port);
void shm_large_withdrawn(wf_port *port, shm_peer *peer, uint64_t token);
void shm_large_drop(wf_port *port, const wf_msg *msg);
void shm_large_fail(wf_port *port, shm_peer *peer, weft_status why);
bool shm_large_probe(const wf_port *port, const shm_peer *peer,
                     uint64_t address, uint64_t value);

/* shm.c */
weft_status shm_port_create(wf_host *host, wf_port **out);
void shm_port_destroy(wf_port *port);
void shm_peer_fail(wf_port *port, shm_peer *peer, weft_status why);

/* The reason to end things with when the port closes: then messages are let
 * go, not finished. */
#define SHM_CLOSING WEFT_OK

static inline void shm_finish(wf_msg *msg, weft_status why)
{
    if (why != SHM_CLOSING) {
        wf_msg_finish(msg, why);
    }
}

static inline shm_large *shm_large_of_note(wf_msg *note)
{
    return (shm_large *)((char *)note - offsetof(shm_large, note));
}

#endif
