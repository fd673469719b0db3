/* SPDX-License-Identifier: Apache-2.0 */
/* What the network between two hosts does by itself, for `weft bench store`:
 * messages of weft's transport, and bare TCP. Both ranks call each function;
 * rank 0 has the times, rank 1 answers. */
#include "store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_TIMES = 4096, DEPTH_MAX = 16, TAG = 7, ROWS_AHEAD = 8 };

static bool is_asking(const bench_store *b)
{
    return weft_world_rank(b->world) == 0;
}

/* --- messages ------------------------------------------------------------- */

static bool message_send(bench_store *b, size_t n)
{
    return bench_done(weft_send(weft_world_comm(b->world), b->values, n,
                                is_asking(b) ? 1 : 0, TAG),
                      "send");
}

static bool message_receive(bench_store *b, size_t n)
{
    return bench_done(weft_recv(weft_world_comm(b->world), b->values, n,
                                is_asking(b) ? 1 : 0, TAG, NULL),
                      "recv");
}

typedef bool move_fn(bench_store *b, size_t n);

/* The median of so many round trips; 0 on the rank that answers. */
static double round_trips(bench_store *b, move_fn *out, move_fn *in,
                          size_t there, size_t back, uint64_t times)
{
    static double sample[MOST_TIMES];
    uint64_t n = times < MOST_TIMES ? times : MOST_TIMES;

    for (uint64_t i = 0; i < n; i++) {
        uint64_t begin = bench_now();
        bool ok = is_asking(b) ? out(b, there) && in(b, back)
                               : in(b, there) && out(b, back);

        if (!ok) {
            return -1;
        }
        sample[i] = (double)(bench_now() - begin);
    }
    return is_asking(b) ? bench_median(sample, n) : 0;
}

double bench_ping(bench_store *b, uint64_t there, uint64_t back, uint64_t times)
{
    return round_trips(b, message_send, message_receive, there, back, times);
}

static bool let_go(weft_request **request)
{
    bool ok =
        *request == NULL || bench_done(weft_request_wait(*request, 0), "wait");

    if (*request != NULL) {
        weft_request_release(*request);
        *request = NULL;
    }
    return ok;
}

/* Rank 1 sends to rank 0, `depth` messages at a time. */
double bench_flow(bench_store *b, uint64_t bytes, uint64_t times,
                  uint64_t depth)
{
    weft_request *under_way[DEPTH_MAX] = {NULL};
    weft_comm *comm = weft_world_comm(b->world);
    uint64_t begin = bench_now();
    bool ok = true;

    for (uint64_t i = 0; ok && i < times; i++) {
        weft_request **r = &under_way[i % depth];
        char *at = (char *)b->values + i % depth * bytes;

        ok = let_go(r) &&
             bench_done(is_asking(b)
                            ? weft_irecv(comm, at, bytes, 1, TAG, NULL, r)
                            : weft_isend(comm, at, bytes, 0, TAG, r),
                        "flow");
    }
    for (uint64_t i = 0; i < depth; i++) {
        ok = let_go(&under_way[i]) && ok;
    }
    return ok ? (double)(bench_now() - begin) / (double)times : -1;
}

/* Rows from anywhere in as much memory as the rows of the store take. */
static void copy_rows(const bench_store *b, const float *table, float *to,
                      uint64_t n)
{
    static uint64_t x = 88172645463325252ull;
    const size_t row = b->length * sizeof(float);
    const float *next[ROWS_AHEAD];

    for (uint64_t i = 0; i < n + ROWS_AHEAD; i++) {
        if (i >= ROWS_AHEAD) {
            memcpy(to, next[i % ROWS_AHEAD], row);
            to += b->length;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        next[i % ROWS_AHEAD] = table + x % b->keys * b->length;
        for (size_t at = 0; at < row; at += 64) {
            __builtin_prefetch((const char *)next[i % ROWS_AHEAD] + at);
        }
    }
}

/* Like bench_flow, of n rows a message that are copied together first. */
double bench_cold(bench_store *b, uint64_t n, uint64_t times, uint64_t depth)
{
    weft_request *under_way[DEPTH_MAX] = {NULL};
    weft_comm *comm = weft_world_comm(b->world);
    uint64_t bytes = n * b->length * sizeof(float);
    float *table = is_asking(b) ? NULL : calloc(b->keys, bytes / n);
    bool ok = is_asking(b) || table != NULL;
    uint64_t begin;

    if (table != NULL) {
        memset(table, 1, b->keys * (bytes / n));
    }
    ok = ok && bench_done(weft_barrier(comm), "barrier");
    begin = bench_now();
    for (uint64_t i = 0; ok && i < times; i++) {
        weft_request **r = &under_way[i % depth];
        float *at = b->values + i % depth * n * b->length;

        ok = let_go(r);
        if (ok && table != NULL) {
            copy_rows(b, table, at, n);
        }
        ok = ok && bench_done(is_asking(b)
                                  ? weft_irecv(comm, at, bytes, 1, TAG, NULL, r)
                                  : weft_isend(comm, at, bytes, 0, TAG, r),
                              "cold");
    }
    for (uint64_t i = 0; i < depth; i++) {
        ok = let_go(&under_way[i]) && ok;
    }
    free(table);
    return ok ? (double)(bench_now() - begin) / (double)times : -1;
}

/* Pulls of rank 0 alone, `depth` at a time. */
double bench_outstanding(bench_store *b, uint64_t n, uint64_t times,
                         uint64_t depth)
{
    weft_request *under_way[DEPTH_MAX] = {NULL};
    uint64_t begin = bench_now();
    bool ok = true;

    for (uint64_t i = 0; ok && i < times; i++) {
        weft_request **r = &under_way[i % depth];
        weft_pairs pairs = bench_pairs(b, bench_next_keys(b, n), n,
                                       b->values + i % depth * n * b->length);

        ok = let_go(r) &&
             bench_done(weft_store_pull(b->worker, &pairs, r), "pull");
    }
    for (uint64_t i = 0; i < depth; i++) {
        ok = let_go(&under_way[i]) && ok;
    }
    return ok ? (double)(bench_now() - begin) / (double)times : -1;
}

/* --- bare TCP ------------------------------------------------------------- */

static bool failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    return false;
}

/* Listen on any port, tell it to rank 0 by a message, and wait for it. */
static bool tcp_listen(bench_store *b, struct sockaddr_in *at)
{
    socklen_t size = sizeof(*at);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (listener < 0 || bind(listener, (void *)at, sizeof(*at)) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (void *)at, &size) != 0) {
        return failed("listen");
    }
    memcpy(b->values, &at->sin_port, sizeof(at->sin_port));
    if (message_send(b, sizeof(at->sin_port))) {
        b->tcp = accept(listener, NULL, NULL);
    }
    close(listener);
    return b->tcp >= 0 || failed("accept");
}

static bool tcp_connect(bench_store *b, struct sockaddr_in *at)
{
    if (!message_receive(b, sizeof(at->sin_port))) {
        return false;
    }
    memcpy(&at->sin_port, b->values, sizeof(at->sin_port));
    b->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return (b->tcp >= 0 && connect(b->tcp, (void *)at, sizeof(*at)) == 0) ||
           failed("connect");
}

bool bench_tcp_open(bench_store *b, const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int one = 1;

    b->tcp = -1;
    if (inet_pton(AF_INET, address, &at.sin_addr) != 1) {
        return failed("inet_pton");
    }
    return (is_asking(b) ? tcp_connect(b, &at) : tcp_listen(b, &at)) &&
           (setsockopt(b->tcp, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ==
                0 ||
            failed("TCP_NODELAY"));
}

void bench_tcp_close(bench_store *b)
{
    close(b->tcp);
    b->tcp = -1;
}

static bool tcp_send(bench_store *b, size_t n)
{
    const char *at = (const char *)b->values;

    while (n > 0) {
        ssize_t sent = send(b->tcp, at, n, MSG_NOSIGNAL);

        if (sent <= 0) {
            return failed("send");
        }
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool tcp_receive(bench_store *b, size_t n)
{
    return recv(b->tcp, b->values, n, MSG_WAITALL) == (ssize_t)n ||
           failed("recv");
}

double bench_tcp(bench_store *b, uint64_t there, uint64_t back, uint64_t times)
{
    return round_trips(b, tcp_send, tcp_receive, there, back, times);
}
