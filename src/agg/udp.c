/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/udp.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdalign.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "base/status.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

#define BUFFER_BYTES (8 << 20)

typedef struct gso_control {
    alignas(struct cmsghdr) char bytes[CMSG_SPACE(sizeof(uint16_t))];
} gso_control;

typedef struct gro_control {
    alignas(struct cmsghdr) char bytes[CMSG_SPACE(sizeof(int))];
} gro_control;

/* --- a socket ------------------------------------------------------------- */

/* Neither the size of buffers nor merged reads are needed, only fast. */
static void set_up(int fd)
{
    const int bytes = BUFFER_BYTES;
    const int one = 1;

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    (void)setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
}

weft_status wf_udp_open(wf_udp_address *local, bool nonblocking, int *out)
{
    int flags = SOCK_CLOEXEC | (nonblocking ? SOCK_NONBLOCK : 0);
    int fd = socket(local->at.ss_family, SOCK_DGRAM | flags, 0);
    weft_status st;

    if (fd < 0) {
        return wf_fail_errno("a socket for packets");
    }
    set_up(fd);
    if (bind(fd, (const struct sockaddr *)&local->at, local->length) != 0 ||
        getsockname(fd, (struct sockaddr *)&local->at, &local->length) != 0) {
        st = wf_fail_errno("bind the socket for packets");
        close(fd);
        return st;
    }
    *out = fd;
    return WEFT_OK;
}

/* --- out ------------------------------------------------------------------ */

bool wf_udp_fits(const wf_udp_batch *b, size_t bytes)
{
    return b->count == 0 ||
           (b->count < WF_UDP_SEGMENTS && b->used + bytes <= WF_UDP_BYTES &&
            bytes <= b->segment && b->used == b->count * b->segment);
}

void wf_udp_add(wf_udp_batch *b, const void *head, size_t head_bytes,
                const void *payload, size_t payload_bytes)
{
    struct iovec *iov = &b->iov[(size_t)2 * b->count];

    memcpy(b->head[b->count], head, head_bytes);
    iov[0] = (struct iovec){b->head[b->count], head_bytes};
    iov[1] = (struct iovec){(void *)(uintptr_t)payload, payload_bytes};
    b->used += head_bytes + payload_bytes;
    if (b->count++ == 0) {
        b->segment = b->used;
    }
}

/* Send `count` packets of a batch from one on, which the kernel is to cut if
 * they are several. */
static bool send_some(int fd, const wf_udp_batch *b, const wf_udp_address *to,
                      uint32_t first, uint32_t count)
{
    gso_control control = {{0}};
    struct msghdr msg = {
        .msg_name = (void *)(uintptr_t)&to->at,
        .msg_namelen = to->length,
        .msg_iov = (struct iovec *)(uintptr_t)&b->iov[(size_t)2 * first],
        .msg_iovlen = (size_t)2 * count};
    uint16_t segment = (uint16_t)b->segment;
    ssize_t n;

    if (count > 1) {
        struct cmsghdr *c;

        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof(control.bytes);
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = IPPROTO_UDP;
        c->cmsg_type = UDP_SEGMENT;
        c->cmsg_len = CMSG_LEN(sizeof(segment));
        memcpy(CMSG_DATA(c), &segment, sizeof(segment));
    }
    do {
        n = sendmsg(fd, &msg, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    return n >= 0;
}

/* One by one, for a kernel or a device that cuts nothing. */
static bool send_each(int fd, const wf_udp_batch *b, const wf_udp_address *to)
{
    bool all = true;

    for (uint32_t i = 0; i < b->count; i++) {
        all = send_some(fd, b, to, i, 1) && all;
    }
    return all;
}

bool wf_udp_send(int fd, const wf_udp_batch *b, const wf_udp_address *to)
{
    if (b->count == 0 || send_some(fd, b, to, 0, b->count)) {
        return true;
    }
    return b->count > 1 && (errno == EIO || errno == EINVAL ||
                            errno == ENOPROTOOPT || errno == EOPNOTSUPP)
               ? send_each(fd, b, to)
               : false;
}

/* --- in ------------------------------------------------------------------- */

/* The length of merged packets; 0: it is one. */
static size_t segment_of(struct msghdr *msg)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c != NULL;
         c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int n;
            memcpy(&n, CMSG_DATA(c), sizeof(n));
            return n > 0 ? (size_t)n : 0;
        }
    }
    return 0;
}

static int cut(const unsigned char *bytes, size_t n, size_t segment,
               wf_udp_fn *take, void *ctx)
{
    int count = 0;

    if (segment == 0) {
        segment = n;
    }
    for (size_t at = 0; at < n; at += segment, count++) {
        take(ctx, bytes + at, (size_t)wf_least(segment, n - at));
    }
    return count;
}

int wf_udp_recv(int fd, wf_udp_inbox *inbox, wf_udp_fn *take, void *ctx)
{
    struct mmsghdr msg[WF_UDP_READS];
    struct iovec iov[WF_UDP_READS];
    gro_control control[WF_UDP_READS];
    int count = 0;
    int n;

    memset(msg, 0, sizeof(msg));
    for (unsigned i = 0; i < WF_UDP_READS; i++) {
        iov[i] = (struct iovec){inbox->bytes[i], sizeof(inbox->bytes[i])};
        msg[i].msg_hdr.msg_iov = &iov[i];
        msg[i].msg_hdr.msg_iovlen = 1;
        msg[i].msg_hdr.msg_control = control[i].bytes;
        msg[i].msg_hdr.msg_controllen = sizeof(control[i].bytes);
    }
    n = recvmmsg(fd, msg, WF_UDP_READS, MSG_WAITFORONE, NULL);
    for (int i = 0; i < n; i++) {
        count += cut(inbox->bytes[i], msg[i].msg_len,
                     segment_of(&msg[i].msg_hdr), take, ctx);
    }
    return n < 0 ? -1 : count;
}
