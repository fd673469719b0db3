/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks of this machine over any transport, to be compared
 * with what its network's own tools say (ucx_perftest -t ucp_am_lat,
 * ucp_am_bw).
 *
 *     transport FILE [largest size in bytes]
 *
 * FILE is a transport in a library (build/libweft_ucx.so), or "shm". For each
 * size: the median of half a round trip in microseconds, and the bandwidth of
 * WINDOW messages under way at once, best of a few rounds. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/boot.h>

#include "base/library.h"
#include "base/time.h"
#include "transport/transport.h"

#define WINDOW 16
#define ROUNDS 7

typedef struct bench {
    const wf_transport *t;
    uint32_t rank;
    wf_host *host;
    wf_port *port;
    unsigned char *buf;
} bench;

static void must(weft_status st)
{
    if (st != WEFT_OK) {
        fprintf(stderr, "transport: %s\n", weft_error_detail());
        exit(1);
    }
}

static void wait_for(bench *b, const wf_msg *msg)
{
    unsigned idle = 0;

    while (!msg->done) {
        if (b->t->progress(b->port) != 0) {
            idle = 0;
        } else if (++idle % 256 == 0) {
            sched_yield();
        }
    }
    must(msg->status);
}

static void message(bench *b, bool sends, size_t n)
{
    wf_msg msg;

    must(sends ? b->t->send(b->port, 1 - b->rank, 1, b->buf, n, &msg)
               : b->t->recv(b->port, 1 - b->rank, 1, WF_TAG_EXACT, b->buf, n,
                            &msg));
    wait_for(b, &msg);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double latency_us(bench *b, size_t n, unsigned turns)
{
    static double us[10000];

    for (unsigned i = 0; i < turns; i++) {
        uint64_t begin = wf_now_ns();

        message(b, b->rank == 0, n);
        message(b, b->rank == 1, n);
        us[i] = (double)(wf_now_ns() - begin) / 2e3;
    }
    qsort(us, turns, sizeof(us[0]), compare);
    return us[turns / 2];
}

static double bandwidth(bench *b, size_t n, unsigned turns)
{
    double best = 0;

    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t begin = wf_now_ns();
        double mb;

        for (unsigned i = 0; i < turns; i++) {
            wf_msg msg[WINDOW];

            for (unsigned k = 0; k < WINDOW; k++) {
                unsigned char *at = b->buf + k * n;

                must(b->rank == 0 ? b->t->send(b->port, 1, 2, at, n, &msg[k])
                                  : b->t->recv(b->port, 0, 2, WF_TAG_EXACT, at,
                                               n, &msg[k]));
            }
            for (unsigned k = 0; k < WINDOW; k++) {
                wait_for(b, &msg[k]);
            }
        }
        message(b, b->rank == 1, 1);
        mb = (double)n * WINDOW * turns / 1e6 /
             ((double)(wf_now_ns() - begin) / 1e9);
        best = mb > best ? mb : best;
    }
    return best;
}

static void join(bench *b, const char *name)
{
    uint32_t other = 1 - b->rank;
    static wf_settings settings;
    wf_address address = {.of = b->t->name};
    wf_port_setup setup = {.settings = &settings, .rank = &other, .ranks = 1};
    weft_boot *boot;
    cpu_set_t core;

    CPU_ZERO(&core);
    CPU_SET(b->rank, &core);
    if (sched_setaffinity(0, sizeof(core), &core) != 0) {
        perror("transport: sched_setaffinity");
    }
    must(wf_settings_load(NULL, &settings));
    must(weft_boot_open_local(name, b->rank, 2, &boot));
    if (b->t->prepare != NULL) {
        must(b->t->prepare(&settings, &b->port, &address));
    }
    must(wf_host_join(boot, &settings, &address, b->t->prepare != NULL,
                      (wf_interrupt){0}, &b->host));
    weft_boot_close(boot);
    setup.host = b->host;
    must(b->t->open(&setup, &b->port));
}

static void run(bench *b, const char *name, size_t largest)
{
    join(b, name);
    b->buf = calloc(WINDOW, largest);
    if (b->buf == NULL) {
        exit(1);
    }
    memset(b->buf, 1, WINDOW * largest);
    (void)latency_us(b, 8, 200);
    for (size_t n = 8; n <= largest; n *= n < 1024 ? 128 : 4) {
        unsigned turns = n <= 65536 ? 2000 : n <= 1 << 20 ? 300 : 100;
        double us = latency_us(b, n, turns);
        double mb = bandwidth(b, n, turns / WINDOW + 1);

        if (b->rank == 0) {
            printf("%8zu bytes  %9.1f us  %9.1f MB/s\n", n, us, mb);
            fflush(stdout);
        }
    }
    while (b->t->busy(b->port)) {
        b->t->progress(b->port);
    }
    b->t->close(b->port);
    wf_host_leave(b->host);
    free(b->buf);
}

int main(int argc, char **argv)
{
    bench b = {.t = &wf_transport_shm};
    const void *found = NULL;
    char name[64];
    pid_t child;

    if (argc < 2) {
        fprintf(stderr, "usage: transport FILE [largest size in bytes]\n");
        return 2;
    }
    snprintf(name, sizeof(name), "bench-transport-%d", (int)getpid());
    child = fork();
    b.rank = child == 0 ? 1 : 0;
    if (strcmp(argv[1], "shm") != 0) {
        must(wf_library_find(argv[1], "", WF_TRANSPORT_SYMBOL, &found));
        b.t = found;
    }
    run(&b, name, argc > 2 ? strtoull(argv[2], NULL, 10) : (size_t)4 << 20);
    if (child > 0) {
        waitpid(child, NULL, 0);
    }
    return 0;
}
