/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the transport over MPI: a library of its own, built once for
 * each MPI ABI from these files. (MPI owns the names that begin with "mpi_";
 * ours begin with "mp_".)
 *
 *   net.c     MPI in this process: initialising, communicators
 *   finalize.c  the end of MPI in this process
 *   flight.c  requests of MPI, and the buffers that they use
 *   in.c      frames coming in, and what they say
 *   out.c     frames going out
 *   large.c   large messages, in chunks
 *   wire.c    what comes in, checked
 *   peer.c    the end of a peer
 *   mpi.c     the contract
 *   boot.c    a bootstrap table over MPI
 *
 * MPI can neither cancel a send nor cut a connection, so it is never lent a
 * program's buffer, only memory that outlives the message: whatever is dropped,
 * MPI goes on with memory of ours. A port has a communicator of its own, on
 * which there are two tags:
 *
 *   frames   A head, and a small message, an active message, or a word about a
 *            large message. They go to receives from any source, which are
 *            always posted. A rank may have MP_CREDITS frames under way to
 *            another; each frame back returns what was read, or a frame that
 *            says nothing else. So a rank that does not read costs its peers
 *            that much memory and no more. Receives may complete out of order,
 *            so frames have numbers.
 *   chunks   of large messages. When an offer (MP_OFFER) has met its receive,
 *            the receiver posts receives for chunks, and says how much it wants
 *            (MP_WANT). Chunks come in the order in which they were wanted. A
 *            chunk without data ends a message that its sender has dropped.
 *
 * MPI may call a send complete that it still has in its hands, and that goes no
 * further once nobody calls MPI. So a rank that leaves asks those that it has
 * sent something to whether they have read it (MP_ASK), and waits a moment; at
 * last it says that it reads no more itself (MP_BYE). */
#ifndef WF_TRANSPORT_MPI_MP_H
#define WF_TRANSPORT_MPI_MP_H

#include "transport/am.h"
#include "transport/match.h"
#include "transport/mpi/net.h"
#include "transport/mpi/wire.h"

/* How many chunks may be under way to one rank, and to all others together: a
 * rank may always have one. */
#define CHUNKS_PEER 4u
#define CHUNKS_ALL 64u
/* Frames longer than this are large messages, whatever the settings say. */
#define EAGER_MOST ((size_t)64 << 10)
/* A rank that sleeps is woken to look after half the time for which nothing
 * has happened, within these limits. */
#define NAP_LEAST_NS (20 * 1000ull)
#define NAP_MOST_NS (10 * WF_MS)

/* How long a rank that leaves waits for answers. Whoever waits for a message
 * answers at once; one that has left, and whose word of that is still on its
 * way, never does. */
#define ANSWER_NS (300 * WF_MS)

/* In the place of an index of a peer: there is none, or no more. */
#define NOBODY UINT32_MAX

enum { TAG_FRAME = 1, TAG_CHUNK = 2 };

/* What a wf_msg in a peer's queues is (wf_msg.state). */
typedef enum mp_state {
    MP_RECEIVE = 0,
    MP_SEND_EAGER, /* to be copied into a frame */
    MP_SEND_OFFER, /* to be offered */
    MP_OFFERED,    /* waits until it is wanted */
    MP_STREAM,     /* goes out in chunks; room: what is wanted */
    MP_SAY_AM,     /* the front of an mp_am */
    MP_SAY_WANT,   /* the note of an mp_pull */
    MP_SAY_ENDED   /* on its own, in `streams`: a message that was dropped */
} mp_state;

typedef enum mp_use { MP_OUT_FRAME, MP_OUT_CHUNK, MP_IN_CHUNK } mp_use;

/* Memory that MPI works on. */
typedef struct mp_buf {
    struct mp_buf *next;
    uint32_t peer; /* whose it is; NOBODY: to be freed */
    mp_use use;
    bool done; /* MP_IN_CHUNK: it is here */
    size_t n;  /* how many bytes of it; SIZE_MAX: more than fit */
    _Alignas(16) unsigned char data[];
} mp_buf;

/* Requests that are under way, in arrays as MPI wants them. */
typedef struct mp_flights {
    int n;
    int room;
    MPI_Request *request;
    MPI_Status *status;
    int *index;
    mp_buf **buf;
} mp_flights;

/* A receive for a frame from anybody. */
typedef struct mp_slot {
    struct mp_slot *next; /* of those that a peer holds */
    uint32_t index;
    bool posted;
    size_t n;
    unsigned char *data;
} mp_slot;

/* An active message that has no credit. */
typedef struct mp_am {
    wf_msg msg;
    uint32_t word;
    size_t n;
    unsigned char data[]; /* as it lies in the frame */
} mp_am;

/* A message that came before its receive; kind: MP_EAGER. */
typedef struct mp_early {
    wf_arrival arrival;
    unsigned char data[];
} mp_early;

/* A large message coming in, from its offer to its end; kind: MP_OFFER. */
typedef struct mp_pull {
    wf_arrival arrival; /* while no receive matches */
    wf_msg note;        /* says that it is wanted */
    struct mp_pull *next;
    wf_msg *msg; /* the receive; NULL: it was dropped */
    uint64_t token;
    size_t want;
    size_t moved;
} mp_pull;

typedef struct mp_peer {
    uint32_t rank;
    uint32_t slot;      /* in the list of peers, and the number of the source */
    int place;          /* its rank in the communicator */
    weft_status failed; /* other than WEFT_OK: it is lost */
    bool going;         /* gone() was called */
    bool cut;           /* MPI failed with it */
    bool due;           /* is in the list of those with work */
    struct mp_peer *next_due;
    /* Out. */
    uint32_t seq_out;
    uint32_t credits;
    uint32_t sent;     /* frames that cost a credit */
    uint32_t asked_at; /* `sent` at the last question */
    uint32_t asks;     /* questions */
    uint32_t answers;  /* the last one that was answered */
    bool deaf;         /* it reads no more */
    wf_queue queue;    /* frames to be, in order */
    wf_queue offered;  /* and not wanted yet */
    wf_queue streams;  /* wanted, in that order */
    unsigned chunks_out;
    /* In. */
    uint32_t seq_in;
    uint32_t owed;     /* credits to be returned */
    uint32_t question; /* of the peer, to be answered; 0: none */
    mp_slot *held;     /* frames that came too early, or wait for memory */
    mp_pull *pulls;
    mp_pull **pulls_end;
    size_t need; /* chunks that are to come */
    unsigned posted;
    mp_buf *chunks; /* those posted, in order */
    mp_buf **chunks_end;
} mp_peer;

struct wf_port {
    mp_address address;
    wf_port_setup setup;
    uint64_t job;
    uint32_t self; /* our rank of the job */
    uint32_t ranks;
    MPI_Comm comm;
    bool orphan;
    bool open;
    uint64_t leaving_ns; /* since when questions are asked; 0: not leaving */
    size_t eager;
    size_t frame_bytes;
    uint32_t count;
    mp_peer *peer;
    uint32_t *of_rank;  /* rank of the job -> index of the peer, or NOBODY */
    uint32_t *of_place; /* rank of the communicator -> the same */
    uint32_t places;
    mp_peer *due;     /* peers with work */
    unsigned waiting; /* messages in `queue` or `streams` of all peers */
    unsigned going;   /* peers with `going` or `cut` */
    uint64_t tokens;
    /* Receives for frames. */
    uint32_t slots;
    uint32_t slots_posted;
    mp_slot *slot;
    unsigned char *slot_data;
    MPI_Request *slot_request;
    MPI_Status *slot_status;
    int *slot_index;
    /* All other requests, and the memory for them. */
    mp_flights flights;
    unsigned sending; /* of the flights */
    unsigned chunks_out;
    unsigned chunks_in;
    mp_buf *spare_frames;
    mp_buf *spare_chunks;
    wf_match match;
    wf_am_table handlers;
    /* Sleeping. */
    int timer;
    bool polled;  /* progress() came after the last arm() */
    bool stirred; /* something happened since */
    uint64_t active_ns;
};

/* flight.c: a buffer, or NULL without memory; what was taken and not used. */
mp_buf *mp_frame_take(wf_port *port);
mp_buf *mp_chunk_take(wf_port *port);
void mp_buf_give(wf_port *port, mp_buf *buf, mp_use use);
/* Make room for one more request, so that the next two cannot fail for lack of
 * memory. */
bool mp_flights_room(wf_port *port);
/* Hand the buffer to MPI; it comes back by mp_flights_test. */
void mp_flight_send(wf_port *port, mp_peer *peer, mp_buf *buf, mp_use use,
                    size_t n);
void mp_flight_recv(wf_port *port, mp_peer *peer, mp_buf *buf);
unsigned mp_flights_test(wf_port *port);
/* Nothing under way with the peer is its own any more. */
void mp_flights_part(wf_port *port, const mp_peer *peer);
/* Let go of all requests and buffers. */
void mp_flights_fini(wf_port *port);
weft_status mp_slots_init(wf_port *port);
weft_status mp_slots_start(wf_port *port);
void mp_slot_restart(wf_port *port, mp_slot *slot);
void mp_slots_fini(wf_port *port);

/* in.c */
unsigned mp_in_poll(wf_port *port);
/* Read frames that were held; how many. */
unsigned mp_in_held(wf_port *port, mp_peer *peer);
void mp_in_take(wf_port *port, wf_arrival *arrival, wf_msg *msg);

/* out.c */
void mp_out_push(wf_port *port, mp_peer *peer, wf_msg *msg);
weft_status mp_out_am(wf_port *port, mp_peer *peer, const wf_am_view *am);
void mp_out_pump(wf_port *port, mp_peer *peer);
/* Is there no reason to wait until it was read? */
bool mp_out_is_read(const mp_peer *peer);
/* To all that there was something with. */
void mp_out_bye(wf_port *port);
bool mp_out_drop(wf_port *port, mp_peer *peer, wf_msg *msg);
void mp_out_fail(wf_port *port, mp_peer *peer, weft_status why);

/* large.c */
mp_pull *mp_large_new(uint32_t source, const mp_head *head);
void mp_large_match(wf_port *port, mp_pull *pull, wf_msg *msg);
/* False: there is no memory now. */
bool mp_large_wanted(wf_port *port, mp_peer *peer, const mp_head *head,
                     bool *bad);
/* Take the chunks that have come, and go on with those to come and to go. */
unsigned mp_large_pump(wf_port *port, mp_peer *peer);
bool mp_large_drop(mp_peer *peer, const wf_msg *msg);
bool mp_large_drop_stream(wf_port *port, mp_peer *peer, wf_msg *msg);
void mp_large_fail(wf_port *port, mp_peer *peer, weft_status why);

/* peer.c */
void mp_peer_wake(wf_port *port, mp_peer *peer);
void mp_peer_cut(wf_port *port, mp_peer *peer, const char *what, int code);
void mp_peer_fail(wf_port *port, mp_peer *peer, weft_status why);
void mp_peer_let_go(wf_port *port, mp_peer *peer, weft_status why);
unsigned mp_peers_work(wf_port *port);
unsigned mp_peers_end(wf_port *port);

/* The reason to end things with when the port closes: then messages are let
 * go, not finished. */
#define MP_CLOSING WEFT_OK

static inline void mp_finish(wf_msg *msg, weft_status why)
{
    if (why != MP_CLOSING) {
        wf_msg_finish(msg, why);
    }
}

static inline mp_pull *mp_pull_of_note(wf_msg *note)
{
    return (mp_pull *)((char *)note - offsetof(mp_pull, note));
}

#endif
