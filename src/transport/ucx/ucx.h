/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the transport over UCX. Reading:
 *
 *   wire.c     what goes over the network, and its checks
 *   context.c  UCX's context and worker, and how they are set
 *   sockets.c  UCX's sockets, where it has no calls for them
 *   peer.c     endpoints, and the end of a peer
 *   out.c      what goes out
 *   in.c       what comes in: order, matching, handlers
 *   large.c    messages that are offered first
 *   log.c      what UCX has to say
 *   ucx.c      the contract
 *
 * Messages up to `eager` bytes are sent at once. Longer ones are offered; only
 * when a receive has matched are the two buffers lent to UCX, in pieces, which
 * it moves as suits the network: straight into the user's buffer where that can
 * be done. UCX has a rendezvous of its own, but a send that waits for its
 * receive there cannot be taken back: ours can, so that an operation that fails
 * costs no connection (see drop in ucx.c).
 *
 * Both ends of a pair make an endpoint of their own: to send the first message
 * or when the first one arrives, whatever is first. So both see its end. */
#ifndef WF_TRANSPORT_UCX_UCX_H
#define WF_TRANSPORT_UCX_UCX_H

#include <ucp/api/ucp.h>

#include "transport/am.h"
#include "transport/match.h"
#include "transport/ucx/wire.h"

/* The number of UCX's handler. */
#define UCX_HANDLER 1
/* Where the payload of an active message that goes out is aligned to. */
#define UCX_LINE 64
/* Eager messages up to this size are copied, so that they can be dropped. */
#define UCX_COPIED ((size_t)8 << 10)
/* A piece of a large message that UCX moves straight to its place, by its own
 * rendezvous; one that it sends at once over TCP, in one segment with its head;
 * and bytes of either under way to one peer. */
#define UCX_PIECE ((size_t)512 << 10)
#define UCX_PIECE_TCP ((size_t)127 << 10)
#define UCX_WINDOW ((size_t)2 << 20)
/* How often progress() asks UCX for more as long as there is. */
#define UCX_TURNS 8
/* How long the end of a message waits for the network to let go of its buffer,
 * without anything moving, before the connection is cut. */
#define UCX_PATIENCE_NS 200000000ull

/* wf_msg.state */
typedef enum ucx_state {
    UCX_RECEIVE = 0,
    UCX_SENT, /* eager; its `buf` is the ucx_out */
    UCX_OVER, /* eager; UCX has let go of it */
    UCX_OFFERED
} ucx_state;

typedef struct ucx_peer ucx_peer;
typedef struct ucx_large ucx_large;

/* A message that UCX has to send. Its bytes lie behind it, or are lent. */
typedef struct ucx_out {
    ucx_peer *peer;
    wf_msg *msg;      /* of an eager message; NULL when it was dropped */
    ucx_large *large; /* a piece of this one */
    ucx_head head;
    _Alignas(16) unsigned char data[];
} ucx_out;

/* A large message that goes out: its msg, until that is dropped. */
struct ucx_large {
    ucx_large *next;
    wf_msg *msg;
    const unsigned char *buf;
    uint64_t token;
    uint64_t theirs; /* the receiver's token */
    size_t n;
    bool wanted;
    size_t want;  /* bytes that the receiver takes */
    size_t given; /* to UCX */
    size_t moved; /* by UCX */
    size_t lent;  /* pieces that UCX has */
};

/* A message that came in and waits: for its turn, for its receive, or, when it
 * was offered, for its bytes. */
typedef struct ucx_in {
    wf_arrival arrival;
    struct ucx_in *next;
    ucx_peer *peer;
    ucx_head head;
    bool asked;  /* the sender was told that it is wanted */
    void *kept;  /* its bytes, in UCX's memory; NULL: behind this */
    wf_msg *msg; /* these: an offer that is wanted; NULL when dropped */
    uint64_t token;
    size_t want;
    size_t moved;
    size_t lent; /* pieces that UCX writes */
    unsigned char data[];
} ucx_in;

/* An active message whose turn has come. */
typedef struct ucx_call {
    struct ucx_call *next;
    ucx_peer *peer;
    uint32_t id;
    size_t header_bytes;
    size_t payload_bytes;
    _Alignas(16) unsigned char header[WF_AM_HEADER_MAX];
    unsigned char payload[];
} ucx_call;

typedef enum ucx_stand {
    UCX_HERE = 0,
    UCX_GOING, /* gone; what is still there is heard */
    UCX_DEAF,  /* nothing more is heard */
    UCX_LOST   /* all is over, and told */
} ucx_stand;

struct ucx_peer {
    wf_port *port;
    ucp_ep_h ep; /* NULL: not yet, or no more */
    const void *address;
    uint64_t proof_in;
    uint64_t proof_out;
    uint64_t sent;  /* numbers given */
    uint64_t heard; /* numbers taken */
    uint64_t asked; /* `sent` when it was last asked what it has taken */
    uint64_t taken; /* numbers that it has taken, as it answered */
    uint32_t rank;
    uint32_t slot;
    ucx_stand stand;
    uint64_t heed_ns; /* GOING: until when what may still come is waited for */
    weft_status why;
    size_t lent;       /* ucx_outs that UCX has */
    size_t pulls;      /* pieces that UCX writes for us */
    size_t window;     /* bytes of pieces under way */
    bool pumping;      /* ucx_large_pump is at work */
    wf_queue eager;    /* eager messages that UCX has */
    ucx_large *offers; /* large ones to go out, in order */
    ucx_in *early;     /* came before their turn, by number */
    ucx_in *coming;    /* large ones that are wanted */
};

struct wf_port {
    wf_port_setup setup;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    ucx_address *published;
    uint64_t nonce;
    int fd;
    bool holding; /* nobody may be called back: messages wait */
    bool closing;
    bool leaving; /* every peer is asked whether it has taken all */
    bool told;    /* what was chosen */
    bool *asked;  /* busy() was called while there was something to flush */
    bool dirty;   /* sent since the last flush began */
    void *flush;  /* a flush is under way */
    size_t eager; /* bytes */
    bool tcp;     /* nothing but TCP leads to other hosts */
    /* The longest pause before TCP sends again; 0: it is not bounded. */
    uint64_t resend_ns;
    uint64_t bound_ns; /* when pauses of new connections are bounded, or 0 */
    uint32_t count;    /* peers */
    uint32_t *slot;    /* rank -> index of its peer, or UINT32_MAX */
    ucx_peer *peer;
    uint32_t ending;  /* peers that are going or deaf */
    uint32_t waiting; /* messages that were held */
    bool starved;     /* something is to be tried again that found no memory */
    uint64_t tokens;
    uint64_t strangers;
    uint64_t lent; /* ucx_outs that UCX has, of all peers */
    ucx_call *calls;
    ucx_call **calls_end;
    wf_match match;
    wf_am_table handlers;
};

/* context.c */
weft_status ucx_context_open(wf_port *port, const wf_settings *settings);
void ucx_context_close(wf_port *port);
/* Say once at info what leads to this peer. */
void ucx_context_tell(wf_port *port, const ucx_peer *peer);

/* sockets.c */
/* For a peer that may be silent for so long, how long may TCP pause that sends
 * so many times again? 0: as long as it does by itself, which is too short. */
uint64_t ucx_sockets_pause(uint64_t silence_ns, unsigned retries);
/* How many times TCP sends again before it gives up (tcp_retries2). */
unsigned ucx_sockets_retries(void);
/* There is a connection that may be new. */
void ucx_sockets_added(wf_port *port);
/* Bound the pauses of connections, if it is time for that. */
void ucx_sockets_bound(wf_port *port);
/* In a forked child: close what the worker watches. */
void ucx_sockets_orphan(wf_port *port);

/* log.c */
/* From now on, lines about connections that UCX prints while it works for us,
 * between the other two, go to our log. */
void ucx_log_take(void);
void ucx_log_begin(void);
void ucx_log_end(void);

/* peer.c */
ucx_peer *ucx_peer_of(const wf_port *port, uint32_t rank);
weft_status ucx_peer_check(const ucx_peer *peer);
/* Make the endpoint unless it is there. */
weft_status ucx_peer_connect(ucx_peer *peer);
/* No more comes from this peer, for this reason; progress() does the rest. */
void ucx_peer_end(ucx_peer *peer, ucx_stand stand, weft_status why);
/* Close the endpoint by force and wait until UCX has let go of all that was
 * under way with it. */
void ucx_peer_close(ucx_peer *peer);
/* Wait until `*lent` is 0, cutting the connection if need be. */
void ucx_peer_let_go(ucx_peer *peer, const size_t *lent);
unsigned ucx_peer_bury(wf_port *port);
/* Free what is pending with the peer; finish it, unless `why` is WEFT_OK. */
void ucx_peer_clear(ucx_peer *peer, weft_status why);

/* out.c */
/* Memory for a message with `bytes` behind it. */
ucx_out *ucx_out_alloc(ucx_peer *peer, ucx_kind kind, size_t bytes);
/* Send it, with its own bytes or those at `body`. It is UCX's from here on. */
void ucx_out_send(ucx_out *out, const void *body, size_t n);
/* One without bytes; false if there is no memory. */
bool ucx_out_say(ucx_peer *peer, ucx_kind kind, uint64_t word, uint64_t n,
                 uint64_t token);
weft_status ucx_out_eager(ucx_peer *peer, uint64_t tag, const void *buf,
                          size_t n, wf_msg *msg);
void ucx_out_drop(ucx_peer *peer, wf_msg *msg);
/* With the payload of `am`, or with what `fill` writes. */
weft_status ucx_out_am(ucx_peer *peer, const wf_am_view *am,
                       wf_am_fill_fn *fill, void *ctx);
unsigned ucx_out_flush(wf_port *port);
/* Before leaving: ask those who have not taken all, as far as is known. */
unsigned ucx_out_ask(wf_port *port);
/* Has the peer taken all that was sent, or is it gone? */
bool ucx_out_is_taken(const ucx_peer *peer);
/* The peer answers; false if that is nonsense. */
bool ucx_out_taken(ucx_peer *peer, const ucx_head *head);

/* in.c */
/* The peer sent what no correct rank sends. */
ucs_status_t ucx_in_nonsense(ucx_peer *peer);
ucs_status_t ucx_in_arrived(void *arg, const void *header, size_t header_bytes,
                            void *data, size_t n,
                            const ucp_am_recv_param_t *param);
/* Give the receive the message that has waited for it. */
void ucx_in_take(wf_port *port, ucx_in *in, wf_msg *msg);
/* Take what has waited for its turn. */
unsigned ucx_in_resume(ucx_peer *peer);
unsigned ucx_in_call(wf_port *port);
void ucx_in_free(const wf_port *port, ucx_in *in);

/* large.c */
weft_status ucx_large_offer(ucx_peer *peer, uint64_t tag, const void *buf,
                            size_t n, wf_msg *msg);
void ucx_large_want(wf_port *port, ucx_in *in, wf_msg *msg);
bool ucx_large_wanted(ucx_peer *peer, const ucx_head *head);
void ucx_large_moved(ucx_peer *peer, ucx_large *large, size_t n);
void ucx_large_withdrawn(ucx_peer *peer, uint64_t token);
void ucx_large_drop_send(ucx_peer *peer, const wf_msg *msg);
void ucx_large_drop_receive(ucx_peer *peer, const wf_msg *msg);
/* A piece has come: what UCX's handler has to return. */
ucs_status_t ucx_large_piece(ucx_peer *peer, const ucx_head *head, void *data,
                             bool rendezvous);
void ucx_large_pump(ucx_peer *peer);
/* Try again what found no memory. */
void ucx_large_retry(wf_port *port);
void ucx_large_clear(ucx_peer *peer, weft_status why);

#endif
