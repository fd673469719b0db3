/* SPDX-License-Identifier: Apache-2.0 */
/* A connection between two ranks of a host: packets that can carry a file
 * descriptor, over a SOCK_SEQPACKET Unix socket. */
#ifndef WF_MEM_LINK_H
#define WF_MEM_LINK_H

#include <stdbool.h>
#include <weft/status.h>

#define WF_PACKET_DATA 2048

enum wf_packet_kind {
    WF_PACKET_HELLO = 1,  /* data: wf_hello */
    WF_PACKET_ANSWER = 2, /* data: wf_answer */
    WF_PACKET_PROOF = 3,  /* data: uint64_t */
    WF_PACKET_BOARD = 4,  /* data: uint64_t bytes of the board; fd */
    WF_PACKET_READY = 5,  /* data: uint32_t, 1: and maps the arena */
    WF_PACKET_GO = 6,     /* data: uint32_t, 1: and all of its node map it */
    WF_PACKET_FAILED = 7, /* data: text */
    WF_PACKET_MAIL = 8,   /* key and data are the sender's; fd or not */
    WF_PACKET_ARENA = 9,  /* data: uint64_t bytes of a range; fd unless 0 */
    WF_PACKET_TABLE = 10  /* data: uint64_t bytes of the job's table; fd */
};

/* What goes over the socket: this header, then `bytes` of data. */
typedef struct wf_packet {
    uint32_t kind;
    uint32_t from; /* ranks in the job */
    uint32_t to;
    uint32_t bytes;
    uint64_t key;
    unsigned char data[WF_PACKET_DATA];
} wf_packet;

/* Listen on a random abstract name, which only ranks of the job know. */
weft_status wf_link_listen(const uint64_t name[2], int *out);
/* WEFT_ERR_CLOSED when nobody listens there any more. */
weft_status wf_link_connect(const uint64_t name[2], int *out);
/* Accept one connection of the same user; -1 in `*out` if it was another's. */
weft_status wf_link_accept(int listener, uint64_t deadline_ns, int *out);

/* Send a packet, with `fd` unless it is -1. Waits while the socket is full. */
weft_status wf_link_send(int link, const wf_packet *p, int fd,
                         uint64_t deadline_ns);

/* Instead of a descriptor: one arrived, but this process has reached its limit
 * of open files. */
#define WF_FD_LOST (-2)

/* WEFT_ERR_SYSTEM: a descriptor from rank `from` met that limit. */
weft_status wf_link_fail_lost(uint32_t from);

/* Receive a packet. `fd`, if not NULL, becomes the caller's descriptor, -1, or
 * WF_FD_LOST; one that nobody asked for is closed. WEFT_ERR_CLOSED when the
 * other side is gone. A deadline of 0 does not wait: WEFT_ERR_TIMEOUT means
 * nothing there. */
weft_status wf_link_recv(int link, wf_packet *p, int *fd, uint64_t deadline_ns);

/* The error of a FAILED packet: WEFT_ERR_PEER, with its text. */
weft_status wf_packet_reason(const wf_packet *p);

/* The peer closed the connection: did it send a FAILED packet? Then its text is
 * the error detail. Its other packets are discarded. */
bool wf_link_last_words(int link);
/* Like wf_link_last_words, but for several links, and waits a short time: the
 * first rank that fails makes others fail, and its reason is reported. */
bool wf_links_last_words(const int *link, size_t count);

/* Check that what was received is a well-formed packet. Pure. */
weft_status wf_packet_check(const wf_packet *p, size_t received);

#endif
