/* SPDX-License-Identifier: Apache-2.0 */
/* A long cable: passes frames between two network interfaces, each after a
 * while and no faster than a rate, where the kernel has no netem for it.
 *
 *   cable INTERFACE INTERFACE MILLISECONDS MEGABYTES_A_SECOND
 *
 * Milliseconds are those of a round trip. Each way has a thread that reads and
 * one that writes, and a queue between them. Frames that would wait for the
 * rate for longer than QUEUE_NS are dropped. Says "ready" and goes on until it
 * is killed. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_NS 200000000ull
#define SECOND_NS 1000000000ull
#define FRAME_MAX 70000u /* what is cut into frames by the hardware, if any */
#define SOCKET_BYTES (64 << 20)

typedef struct frame {
    struct frame *next;
    uint64_t due;
    size_t bytes;
    char data[];
} frame;

/* Of both ways. */
static uint64_t delay_ns;
static double rate; /* bytes in a nanosecond */

typedef struct way {
    int in;
    int out;
    uint64_t free_at; /* all that was read has left then */
    pthread_mutex_t lock;
    pthread_cond_t filled;
    frame *first;
    frame **end;
} way;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static void sleep_until(uint64_t when)
{
    struct timespec t = {(time_t)(when / SECOND_NS), (long)(when % SECOND_NS)};

    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void put(way *w, const char *data, size_t bytes)
{
    uint64_t now = now_ns();
    uint64_t begin = w->free_at > now ? w->free_at : now;
    frame *f = begin - now > QUEUE_NS ? NULL : malloc(sizeof(*f) + bytes);

    if (f == NULL) {
        return;
    }
    w->free_at = begin + (uint64_t)((double)bytes / rate);
    *f = (frame){.due = w->free_at + delay_ns, .bytes = bytes};
    memcpy(f->data, data, bytes);
    pthread_mutex_lock(&w->lock);
    *w->end = f;
    w->end = &f->next;
    pthread_cond_signal(&w->filled);
    pthread_mutex_unlock(&w->lock);
}

static frame *take(way *w)
{
    frame *f;

    pthread_mutex_lock(&w->lock);
    while (w->first == NULL) {
        pthread_cond_wait(&w->filled, &w->lock);
    }
    f = w->first;
    w->first = f->next;
    if (w->first == NULL) {
        w->end = &w->first;
    }
    pthread_mutex_unlock(&w->lock);
    return f;
}

static void *read_frames(void *arg)
{
    static _Thread_local char data[FRAME_MAX];
    way *w = arg;

    for (;;) {
        ssize_t n = recv(w->in, data, sizeof(data), 0);

        if (n > 0) {
            put(w, data, (size_t)n);
        }
    }
    return NULL;
}

static void *write_frames(void *arg)
{
    way *w = arg;

    for (;;) {
        frame *f = take(w);

        sleep_until(f->due);
        while (send(w->out, f->data, f->bytes, 0) < 0 && errno == ENOBUFS) {
            sleep_until(now_ns() + SECOND_NS / 10000);
        }
        free(f);
    }
    return NULL;
}

/* With the header that says what the hardware would have to do: frames pass as
 * they are handed down, up to 64 KiB at a time. */
static int open_socket(const char *name)
{
    const int yes = 1;
    const int bytes = SOCKET_BYTES;
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
    struct sockaddr_ll at = {.sll_family = AF_PACKET,
                             .sll_protocol = htons(ETH_P_ALL),
                             .sll_ifindex = (int)if_nametoindex(name)};

    if (fd < 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof(yes)) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof(yes)) !=
            0 ||
        bind(fd, (void *)&at, sizeof(at)) != 0) {
        perror(name);
        exit(1);
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
    return fd;
}

static void way_start(way *w, int in, int out)
{
    pthread_t thread;

    w->in = in;
    w->out = out;
    w->end = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->filled, NULL);
    if (pthread_create(&thread, NULL, read_frames, w) != 0 ||
        pthread_create(&thread, NULL, write_frames, w) != 0) {
        perror("pthread_create");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static way there;
    static way back;
    int one;
    int two;

    if (argc != 5 || atof(argv[3]) < 0 || atof(argv[4]) <= 0) {
        fputs("usage: cable INTERFACE INTERFACE MS MB_A_SECOND\n", stderr);
        return 2;
    }
    delay_ns = (uint64_t)(atof(argv[3]) * 1e6 / 2);
    rate = atof(argv[4]) * 1e-3;
    one = open_socket(argv[1]);
    two = open_socket(argv[2]);
    way_start(&there, one, two);
    way_start(&back, two, one);
    puts("ready");
    fflush(stdout);
    for (;;) {
        pause();
    }
}
