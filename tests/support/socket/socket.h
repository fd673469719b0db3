/* SPDX-License-Identifier: Apache-2.0 */
/* A transport over stream sockets, for tests only: it needs all of the contract
 * that memory which ranks share does not. Ranks find each other by addresses,
 * sleep on a descriptor, see a connection end, write in part, and cannot take
 * back what is half way through a socket.
 *
 * What goes through a connection is a sequence of frames: a head, and `n` bytes
 * behind it if the kind has such. A message of up to the eager limit is one
 * frame. A longer one is offered; when a receive has matched, the receiver says
 * how many bytes it wants, and the sender sends these in one frame.
 *
 * To have frames cut everywhere, no call of the kernel moves more than a few
 * hundred bytes of a frame at first, and then twice as many each time. */
#ifndef WT_SOCKET_H
#define WT_SOCKET_H

#include "transport/am.h"
#include "transport/match.h"

/* Leads to all other ranks. */
extern const wf_transport wt_transport_socket;
/* Leads to ranks of other nodes only. */
extern const wf_transport wt_transport_far;
/* The same as wt_transport_socket, in a library of its own. */
extern const wf_transport wt_transport_library;

/* For tests: have the connection with `rank` end, as a cable that is cut. */
void wt_socket_cut(wf_port *port, uint32_t rank);

/* For tests: what comes from a rank is left in the socket for up to so many
 * microseconds, at random. Set before the ranks are forked. */
extern unsigned wt_socket_delay;

/* --- among these files ---------------------------------------------------- */

typedef enum socket_kind {
    SOCKET_EAGER = 1, /* word: tag */
    SOCKET_OFFER,     /* word: tag; n bytes are offered under `token` */
    SOCKET_WANT,      /* n bytes of what is offered under `token` */
    SOCKET_DATA,      /* they */
    SOCKET_AM         /* word: id, and bytes of the header above 8 bits */
} socket_kind;

typedef struct socket_head {
    uint64_t kind;
    uint64_t word;
    uint64_t n;
    uint64_t token;
} socket_head;

/* A frame that is to go out. */
typedef struct socket_out {
    struct socket_out *next;
    socket_head head;
    const unsigned char *body; /* behind this struct, or the program's buffer */
    size_t bytes;              /* of the body */
    size_t sent;               /* of head and body */
    wf_msg *msg;               /* done when all is sent; NULL: nobody's */
} socket_out;

/* A message that waits for its receive: whole, or offered. Then its memory
 * becomes that of the frame which says that it is wanted. */
typedef struct socket_early {
    union {
        wf_arrival arrival; /* kind: a socket_kind */
        socket_out want;
    };
    uint64_t token;
    unsigned char data[];
} socket_early;

typedef struct socket_peer {
    uint32_t rank;
    uint32_t slot; /* in the list of peers, and the number of the source */
    int fd;        /* -1: it is lost */
    weft_status failed;
    bool going;   /* gone() was called */
    bool writing; /* waits for room */
    double held;  /* nothing is read before this time; see wt_socket_delay */
    socket_out *out;
    socket_out **out_end;
    wf_queue offered; /* by us, and not wanted yet */
    wf_queue wanted;  /* by us, and not come yet */
    /* What is being read. */
    socket_head head;
    size_t got; /* of head and body */
    bool begun; /* there is a place for the body */
    socket_early *early;
    wf_msg *into; /* of SOCKET_DATA; NULL: it was dropped */
} socket_peer;

struct wf_port {
    wf_port_setup setup;
    char name[32]; /* the address: what we listen on, less the leading zero */
    int listener;
    int epoll;
    uint32_t count;
    socket_peer *peer;
    uint64_t tokens;
    uint64_t draws; /* random numbers, for delays */
    size_t stride;  /* bytes that the kernel gets at once */
    bool later;     /* something has to be tried again */
    wf_match match;
    wf_am_table handlers;
    _Alignas(16) unsigned char am_header[WF_AM_HEADER_MAX];
    _Alignas(16) unsigned char am_payload[WF_AM_PAYLOAD_MAX];
    unsigned char scrap[4096];
};

/* How many of `left` bytes to move now. */
static inline size_t socket_stride(wf_port *port, size_t left)
{
    size_t n = left < port->stride ? left : port->stride;

    port->stride = port->stride < 1u << 20 ? port->stride * 2 : 300;
    return n;
}

/* socket.c */
void socket_peer_fail(wf_port *port, socket_peer *peer, weft_status why);

/* out.c: add a frame, whose body is copied, unless it belongs to `msg`; or one
 * that lies in memory to be freed. */
void socket_out_push(wf_port *port, socket_peer *peer, socket_out *out);
weft_status socket_out_add(wf_port *port, socket_peer *peer, socket_head head,
                           const void *body, size_t bytes, wf_msg *msg);
unsigned socket_out_pump(wf_port *port, socket_peer *peer);
/* Take `msg` out; false if it is not there. Without memory for what is left of
 * its frame, the connection ends. */
bool socket_out_drop(wf_port *port, socket_peer *peer, wf_msg *msg);
void socket_out_clear(socket_peer *peer, weft_status why);

/* in.c */
unsigned socket_in_poll(wf_port *port, socket_peer *peer);
/* Give the receive `msg` the message that has waited for it. */
void socket_in_take(wf_port *port, socket_early *early, wf_msg *msg);

#endif
