/* SPDX-License-Identifier: Apache-2.0 */
/* Datagrams in batches. Packets of one length for one address leave in one
 * system call, which the kernel cuts (UDP_SEGMENT), and those that come
 * together are read together (UDP_GRO, recvmmsg): at 1 KiB that is ten times as
 * many packets a second as one call for each. */
#ifndef WF_AGG_UDP_H
#define WF_AGG_UDP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <weft/status.h>

#define WF_UDP_BYTES 65000u /* of a batch */
#define WF_UDP_SEGMENTS 60u
#define WF_UDP_HEAD 64u /* bytes of a packet's head at most */
#define WF_UDP_READS 8u

typedef struct wf_udp_address {
    struct sockaddr_storage at;
    socklen_t length;
} wf_udp_address;

/* Packets on their way out to one address: all of one length, but the last,
 * which may be shorter. Heads are copied; payloads stay where they are, so that
 * the kernel's copy is the only one. */
typedef struct wf_udp_batch {
    size_t used;
    size_t segment; /* length of the first */
    uint32_t count;
    struct iovec iov[2 * WF_UDP_SEGMENTS]; /* head and payload of each */
    unsigned char head[WF_UDP_SEGMENTS][WF_UDP_HEAD];
} wf_udp_batch;

/* Room to read into, aligned to 64: so are the payloads of merged packets whose
 * length is a multiple of that. */
typedef struct wf_udp_inbox {
    unsigned char bytes[WF_UDP_READS][WF_UDP_BYTES + 536];
} wf_udp_inbox;

/* A socket with as large buffers as it can have. `local` says where to listen,
 * and is given the port that was found; `nonblocking` for those that poll. */
weft_status wf_udp_open(wf_udp_address *local, bool nonblocking, int *out);

/* Will this packet fit behind those that are there? */
bool wf_udp_fits(const wf_udp_batch *batch, size_t bytes);
/* Append a packet of head and payload; it must fit. The payload is borrowed
 * until the batch is cleared. */
void wf_udp_add(wf_udp_batch *batch, const void *head, size_t head_bytes,
                const void *payload, size_t payload_bytes);
/* Send the batch; it stays as it is, for another address. False: some of it was
 * not sent, which is loss like any other. */
bool wf_udp_send(int fd, const wf_udp_batch *batch, const wf_udp_address *to);

static inline void wf_udp_clear(wf_udp_batch *batch)
{
    batch->used = 0;
    batch->count = 0;
}

typedef void wf_udp_fn(void *ctx, const void *packet, size_t bytes);

/* Read what there is, or wait for it on a blocking socket, and call `take` for
 * each packet. Returns how many there were, or -1: errno tells. */
int wf_udp_recv(int fd, wf_udp_inbox *inbox, wf_udp_fn *take, void *ctx);

#endif
