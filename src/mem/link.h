/* SPDX-License-Identifier: Apache-2.0 */
/* A connection between two ranks of a host: packets that can carry a file
 * descriptor, over a Unix socket that keeps packets whole. */
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
    WF_PACKET_READY = 5,
    WF_PACKET_GO = 6,
    WF_PACKET_FAILED = 7, /* data: text */
    WF_PACKET_MAIL = 8    /* key and data are the sender's; fd or not */
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

/* Listen on a name that only those who are told it can know. */
weft_status wf_link_listen(const uint64_t name[2], int *out);
/* WEFT_ERR_CLOSED when nobody listens there any more. */
weft_status wf_link_connect(const uint64_t name[2], int *out);
/* Accept one connection of the same user; -1 in `*out` if it was another's. */
weft_status wf_link_accept(int listener, uint64_t deadline_ns, int *out);

/* Send a packet, with `fd` unless it is -1. Waits while the socket is full. */
weft_status wf_link_send(int link, const wf_packet *p, int fd,
                         uint64_t deadline_ns);

/* In place of a descriptor: one came, but this process may have no more. */
#define WF_FD_LOST (-2)

/* WEFT_ERR_SYSTEM: what rank `from` sent was lost so, and what to do. */
weft_status wf_link_fail_lost(uint32_t from);

/* Receive a packet. `fd`, if not NULL, becomes the caller's descriptor, -1, or
 * WF_FD_LOST; one that nobody asked for is closed. WEFT_ERR_CLOSED when the
 * other side is gone. A deadline of 0 does not wait: WEFT_ERR_TIMEOUT means
 * nothing there. */
weft_status wf_link_recv(int link, wf_packet *p, int *fd, uint64_t deadline_ns);

/* Pass the reason in a FAILED packet on: WEFT_ERR_PEER, with its text. */
weft_status wf_packet_reason(const wf_packet *p);

/* The other side is gone: did it say why? Then its text is in the detail.
 * What else it sent is thrown away. */
bool wf_link_last_words(int link);
/* The same for any of several links, waiting a moment: one who gives up first
 * makes others give up, and it is the first whose words count. */
bool wf_links_last_words(const int *link, size_t count);

/* Is what came in a packet that may be used? Pure; the fuzzer calls it too. */
weft_status wf_packet_check(const wf_packet *p, size_t received);

#endif
