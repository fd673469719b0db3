/* SPDX-License-Identifier: Apache-2.0 */
/* The main thread's state: connections of ranks, jobs, the HTTP port. */
#ifndef SW_SERVER_H
#define SW_SERVER_H

#include "switch.h"

#define SW_REQUEST 2048u /* bytes of an HTTP request at most */

typedef enum sw_conn_kind {
    SW_CONN_RANK, /* control channel */
    SW_CONN_HTTP
} sw_conn_kind;

typedef struct sw_conn {
    sw_conn_kind kind;
    int fd;
    uint64_t since_ns;
    wf_udp_address peer;
    /* Of a rank. */
    uint64_t nonce[2];
    wf_agg_join join;
    size_t got; /* bytes of the join, or of a request */
    sw_job *job;
    /* Of HTTP. */
    char request[SW_REQUEST];
    char *answer;
    size_t answer_bytes;
    size_t answer_sent;
    struct sw_conn *next;
} sw_conn;

typedef struct sw_server {
    sw_options options;
    wf_secret key;
    int epoll;
    int listen;
    int http; /* -1: none */
    int signals;
    int timer;
    uint16_t port;
    uint16_t http_port;
    _Atomic bool stop;
    sw_shard shard[WF_AGG_SHARDS];
    uint32_t shards; /* that run */
    sw_job *job[SW_JOBS];
    uint32_t jobs;
    uint32_t generation;
    uint64_t memory; /* that active and waiting jobs count for */
    sw_conn *conns;
    uint64_t since_ns;
    /* Counters. */
    uint64_t joined;
    uint64_t ended;
    uint64_t refused[WF_AGG_STATUSES];
} sw_server;

/* Run until a signal; 0, or why it could not start. */
weft_status sw_server_run(const sw_options *options);

/* --- jobs, ranks.c -------------------------------------------------------- */

/* A new connection; and what it sent. False: it is to be closed. */
bool sw_rank_greet(sw_conn *conn);
bool sw_rank_read(sw_server *s, sw_conn *conn);
/* Its connection ends. The job ends with the last one, or some seconds after
 * the first. */
void sw_rank_left(sw_server *s, sw_conn *conn);
/* Give up on jobs whose ranks did not all come. */
void sw_jobs_expire(sw_server *s);
void sw_jobs_end(sw_server *s);

/* --- http.c --------------------------------------------------------------- */

/* Like sw_rank_read; and go on sending. */
bool sw_http_read(sw_server *s, sw_conn *conn);
bool sw_http_write(sw_conn *conn);

/* --- metrics.c ------------------------------------------------------------ */

/* Text for Prometheus, and JSON for the page; NULL without memory. The caller
 * frees it with free(). */
char *sw_metrics(sw_server *s, size_t *bytes);
char *sw_jobs_json(sw_server *s, size_t *bytes);

/* The page, made of page.html. */
extern const char sw_page[];
extern const size_t sw_page_bytes;

#endif
