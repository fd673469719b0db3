/* SPDX-License-Identifier: Apache-2.0 */
/* The least that a switch of this kind can need: packets of the same length,
 * the same sockets, batches and windows as weft's, and one core that does
 * nothing but read them and send as many back to everybody. Nothing is added,
 * hashed, looked at or sent again. Senders send a tensor from where it lies,
 * and put what comes back into another.
 *
 *     reflect serve PACKET WINDOW POLL RANKS           prints its port
 *     reflect send PACKET WINDOW POLL RANK HOST PORT PACKETS CALLS
 *
 * A sender keeps WINDOW packets on the way until PACKETS have come back, CALLS
 * times, and prints the median in us. All of them begin when the last one has
 * said hello. Whoever waits looks for POLL us before it sleeps. A packet that
 * is lost ends the program: buffers hold a window. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum {
    READS = 8, /* as in src/agg/udp.h, */
    BATCH_BYTES = 65000,
    BATCH_PACKETS = 60,
    READ_BYTES = 65536,
    BUFFER_BYTES = 8 << 20,
    RANKS = 16,
    CALLS = 1000,
    PATIENCE_S = 5
};

static size_t packet;
static size_t window;
static uint64_t poll_ns;
static size_t batch;         /* packets in one */
static unsigned char *place; /* packets that are sent, */
static size_t places;        /* so many */
static unsigned char inbox[READS][READ_BYTES];

typedef struct got {
    struct sockaddr_in from;
    unsigned char rank;
    size_t packets; /* 0: hello */
    const unsigned char *at;
} got;

static void fail(const char *what)
{
    fprintf(stderr, "reflect: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int open_socket(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET};
    const struct timeval patience = {.tv_sec = PATIENCE_S};
    int bytes = BUFFER_BYTES;
    int one = 1;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    (void)setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(any)) != 0) {
        fail("socket");
    }
    return fd;
}

/* Send packets `first` and following, which lie in the window. */
static void send_some(int fd, const struct sockaddr_in *to, uint64_t first,
                      size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(uint16_t))];
    } control = {.bytes = {0}};
    struct iovec iov[BATCH_PACKETS];
    struct msghdr msg = {.msg_name = (void *)(uintptr_t)to,
                         .msg_namelen = sizeof(*to),
                         .msg_iov = iov,
                         .msg_iovlen = count,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    uint16_t segment = (uint16_t)packet;

    c->cmsg_level = IPPROTO_UDP;
    c->cmsg_type = UDP_SEGMENT;
    c->cmsg_len = CMSG_LEN(sizeof(segment));
    memcpy(CMSG_DATA(c), &segment, sizeof(segment));
    for (size_t i = 0; i < count; i++) {
        iov[i] = (struct iovec){place + (first + i) % places * packet, packet};
    }
    if (sendmsg(fd, &msg, 0) < 0) {
        fail("sendmsg");
    }
}

/* Send packets from *sent on up to `end`, in batches, to each of `ranks`. */
static void send_up_to(int fd, const struct sockaddr_in *to, unsigned ranks,
                       uint64_t *sent, uint64_t end)
{
    while (*sent < end) {
        size_t n = end - *sent < batch ? end - *sent : batch;

        for (unsigned r = 0; r < ranks; r++) {
            send_some(fd, &to[r], *sent, n);
        }
        *sent += n;
    }
}

static int read_some(int fd, got *out, int flags)
{
    struct mmsghdr msg[READS] = {{.msg_len = 0}};
    struct iovec iov[READS];
    int n;

    for (int i = 0; i < READS; i++) {
        iov[i] = (struct iovec){inbox[i], READ_BYTES};
        msg[i].msg_hdr = (struct msghdr){.msg_name = &out[i].from,
                                         .msg_namelen = sizeof(out[i].from),
                                         .msg_iov = &iov[i],
                                         .msg_iovlen = 1};
    }
    n = recvmmsg(fd, msg, READS, flags, NULL);
    for (int i = 0; i < n; i++) {
        out[i].rank = inbox[i][0];
        out[i].at = inbox[i];
        out[i].packets = msg[i].msg_len / packet;
    }
    return n;
}

/* Look for a while, then sleep. */
static int read_or_wait(int fd, got *out)
{
    uint64_t end = now_ns() + poll_ns;
    int n = -1;

    while (n < 0 && now_ns() < end) {
        n = read_some(fd, out, MSG_DONTWAIT);
    }
    return n < 0 ? read_some(fd, out, MSG_WAITFORONE) : n;
}

/* One more is there; the last one has all begin. */
static void greet(int fd, const got *g, unsigned ranks, struct sockaddr_in *to)
{
    unsigned here = 0;

    to[g->rank] = g->from;
    for (unsigned r = 0; r < ranks; r++) {
        here += to[r].sin_port != 0;
    }
    for (unsigned r = 0; here == ranks && r < ranks; r++) {
        (void)sendto(fd, "go", 2, 0, (struct sockaddr *)&to[r], sizeof(to[r]));
    }
}

static void serve(unsigned ranks)
{
    struct sockaddr_in own;
    struct sockaddr_in to[RANKS] = {{.sin_port = 0}};
    socklen_t length = sizeof(own);
    uint64_t count[RANKS] = {0}; /* packets of each rank */
    uint64_t sent = 0;
    int fd = open_socket();

    (void)getsockname(fd, (struct sockaddr *)&own, &length);
    printf("%d\n", ntohs(own.sin_port));
    fflush(stdout);
    for (;;) {
        got g[READS];
        int n = read_or_wait(fd, g);
        uint64_t least = UINT64_MAX;

        for (int i = 0; i < n && g[i].rank < ranks; i++) {
            if (g[i].packets == 0) {
                greet(fd, &g[i], ranks, to);
            }
            count[g[i].rank] += g[i].packets;
        }
        for (unsigned r = 0; r < ranks; r++) {
            least = count[r] < least ? count[r] : least;
        }
        send_up_to(fd, to, ranks, &sent, least);
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Until all packets of a call have come back; in us. */
static double call(int fd, const struct sockaddr_in *to, unsigned char *result)
{
    uint64_t since = now_ns();
    uint64_t sent = 0;
    uint64_t back = 0;

    while (back < places) {
        uint64_t end = back + window < places ? back + window : places;
        got g[READS];
        int n;

        send_up_to(fd, to, 1, &sent, end);
        n = read_or_wait(fd, g);
        if (n < 0) {
            fail("a packet was lost");
        }
        for (int i = 0; i < n && back + g[i].packets <= places; i++) {
            memcpy(result + back * packet, g[i].at, g[i].packets * packet);
            back += g[i].packets;
        }
    }
    return (double)(now_ns() - since) / 1e3;
}

static void send_calls(unsigned char rank, const char *host, const char *port,
                       int calls)
{
    static double us[CALLS];
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(port))};
    int fd = open_socket();
    unsigned char *result = malloc(places * packet);
    got g[READS];

    if (result == NULL || inet_pton(AF_INET, host, &to.sin_addr) != 1 ||
        calls < 1 || calls > CALLS) {
        fail(host);
    }
    memset(result, 0, places * packet);
    for (size_t i = 0; i < places; i++) {
        place[i * packet] = rank;
    }
    (void)sendto(fd, &rank, 1, 0, (struct sockaddr *)&to, sizeof(to));
    if (read_some(fd, g, MSG_WAITFORONE) < 1) {
        fail("the others did not come");
    }
    for (int i = 0; i < calls; i++) {
        us[i] = call(fd, &to, result);
    }
    qsort(us, (size_t)calls, sizeof(us[0]), by_size);
    printf("%.1f\n", us[calls / 2]);
    free(result);
}

static void set_up(char **argv, const char *held)
{
    packet = (size_t)atoi(argv[0]);
    window = (size_t)atoi(argv[1]);
    poll_ns = (uint64_t)atoi(argv[2]) * 1000;
    batch = packet > 0 ? BATCH_BYTES / packet : 0;
    batch = batch < BATCH_PACKETS ? batch : BATCH_PACKETS;
    places = held != NULL ? (size_t)atoi(held) : window;
    place = malloc(places * packet);
    if (batch == 0 || place == NULL) {
        fail("packets");
    }
    memset(place, 1, places * packet);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "serve") == 0 && atoi(argv[5]) <= RANKS) {
        set_up(argv + 2, NULL);
        serve((unsigned)atoi(argv[5]));
    } else if (argc == 10 && strcmp(argv[1], "send") == 0) {
        set_up(argv + 2, argv[8]);
        send_calls((unsigned char)atoi(argv[5]), argv[6], argv[7],
                   atoi(argv[9]));
    } else {
        fputs("usage: see reflect.c\n", stderr);
        return 2;
    }
    return 0;
}
