/* SPDX-License-Identifier: Apache-2.0 */
/* One suite for every transport: what src/transport/transport.h promises.
 *
 * A kind is a transport with settings. conform_run runs all cases for it, with
 * the ranks as processes and as threads. The cases are written for ranks that
 * know nothing of each other but the port; where a case needs a sender and a
 * receiver, these are the first and the last rank, which are one and the same
 * for a transport that leads a rank to itself. */
#ifndef CONFORM_H
#define CONFORM_H

#include "transport/transport.h"
#include "wt.h"
#include "wt_cmocka.h"

typedef struct conform_kind {
    const char *name;
    const wf_transport *transport;
    const char *settings;
    bool to_itself; /* one rank, which talks to itself */
    bool sleeps;    /* waits sleep on the bell as soon as nothing happens */
    bool slow;      /* fewer repetitions, no huge messages */
    bool timed;     /* its descriptor is a timer, which may fire any time */
    /* End the connection with a rank; NULL where there is no such thing. */
    void (*cut)(wf_port *port, uint32_t rank);
} conform_kind;

/* One rank's end, inside a case. */
typedef struct conform {
    const conform_kind *kind;
    const wf_transport *t;
    wf_host *host;
    wf_port *port;
    wf_settings settings;
    uint32_t rank;
    uint32_t ranks;
    uint32_t sender;
    uint32_t receiver;
    unsigned meetings;
    uint64_t unwanted; /* messages with this tag are not kept */
    /* What the port has told of the loss of peers: how often, and the last. */
    unsigned losses;
    uint32_t lost_rank;
    weft_status lost;
} conform;

typedef void conform_case(conform *c);

/* Run `body` on `ranks` ranks, one for a kind that talks to itself. */
void conform_ranks(const conform_kind *kind, unsigned ranks,
                   conform_case *body);

/* What rank 1 does to rank 0, by means of its port's insides. */
typedef void conform_villainy(wf_port *port);

/* Rank 0 has a receive and a large send under way with rank 1, which sends
 * something that no correct rank sends: it is lost for that, and nothing else
 * is. Rank 2 is innocent. */
void conform_punishes(const conform_kind *kind, conform_villainy *villainy);

/* Whatever else came from rank 1, rank 0 gets a message from it, and has lost
 * nobody. All ranks call it. */
void conform_still_hears(conform *c);

/* For weft_log_to: says nothing. */
void conform_silent(weft_log_level level, const char *text, void *ctx);

/* Open a port of the transport with these settings, joined with all ranks that
 * it reaches; `*port` is NULL or what it has prepared. */
weft_status conform_open(conform *c, const wf_settings *settings,
                         wf_port **port);

/* Join the ranks of the run and open a port; `kind`, `t`, `rank` and `ranks`
 * are set. */
void conform_join(conform *c);

/* Runs all cases; the number that failed. */
int conform_run(const conform_kind *kind);

/* --- inside a case ------------------------------------------------------- */

static inline bool conform_sends(const conform *c)
{
    return c->rank == c->sender;
}

static inline bool conform_receives(const conform *c)
{
    return c->rank == c->receiver;
}

/* `n`, or far less where the kind or the build is slow. */
unsigned conform_times(const conform *c, unsigned n);

/* One call of progress(), and a pause if nothing happened. */
void conform_step(conform *c);
/* Go on until the messages are done; their statuses are the caller's. */
void conform_wait(conform *c, const wf_msg *msgs, size_t n);
/* The same, and all must be WEFT_OK. */
void conform_wait_ok(conform *c, const wf_msg *msgs, size_t n);
/* Go on until nothing of ours waits to leave. */
void conform_flush(conform *c);
/* Go on until all ranks have come. */
void conform_meet(conform *c);
/* Go on until a message with this tag has arrived and waits. */
void conform_await(conform *c, uint32_t from, uint64_t tag);

/* The calls that have to succeed. */
void conform_send(conform *c, uint32_t to, uint64_t tag, const void *buf,
                  size_t n, wf_msg *msg);
void conform_recv(conform *c, uint32_t from, uint64_t tag, void *buf,
                  size_t room, wf_msg *msg);

/* Memory of `n` bytes (at least one), with a content that `seed` gives; ends
 * the rank if there is none, or if it has another content. */
void *conform_bytes(size_t n);
void conform_fill(void *buf, size_t n, uint64_t seed);
void conform_check(const void *buf, size_t n, uint64_t seed);

/* --- the cases, by file; each returns how many failed --------------------- */

int conform_tagged(const conform_kind *kind);
int conform_matching(const conform_kind *kind);
int conform_crowd(const conform_kind *kind);
int conform_am(const conform_kind *kind);
int conform_end(const conform_kind *kind);

#endif
