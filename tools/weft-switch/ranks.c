/* SPDX-License-Identifier: Apache-2.0 */
/* The control channel: ranks join, jobs begin and end. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/time.h"
#include "server.h"

/* A rank that leaves has all its results; others may still ask for theirs. */
#define LINGER_NS (5 * WF_SEC)

/* Replies are shorter than any socket buffer, so a write that does not take
 * all means that the peer is gone. */
static bool write_all(int fd, const void *bytes, size_t n)
{
    return send(fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n;
}

bool sw_rank_greet(sw_conn *conn)
{
    wf_agg_hello hello = {.magic = WF_AGG_CONTROL_MAGIC,
                          .format = WF_AGG_CONTROL_FORMAT};

    if (wf_random(conn->nonce, sizeof(conn->nonce)) != WEFT_OK) {
        return false;
    }
    memcpy(hello.nonce, conn->nonce, sizeof(hello.nonce));
    return write_all(conn->fd, &hello, sizeof(hello));
}

static void answer(const sw_server *s, const sw_conn *conn,
                   const wf_agg_joined *like)
{
    wf_agg_joined joined = *like;

    wf_agg_joined_prove(&s->key, conn->join.nonce, &joined);
    (void)write_all(conn->fd, &joined, sizeof(joined));
}

static bool refuse(sw_server *s, const sw_conn *conn, wf_agg_status why)
{
    const wf_agg_joined joined = {.status = why};

    s->refused[why]++;
    wf_log(WEFT_LOG_INFO, "a rank is refused: %s", wf_agg_status_text(why));
    answer(s, conn, &joined);
    return false;
}

/* --- jobs ----------------------------------------------------------------- */

static sw_job *find_group(const sw_server *s, const uint64_t group[2])
{
    for (uint32_t i = 0; i < SW_JOBS; i++) {
        if (s->job[i] != NULL &&
            memcmp(s->job[i]->like.group, group, 16) == 0) {
            return s->job[i];
        }
    }
    return NULL;
}

/* As many slots as the job may have; 0: not even one fits. */
static uint32_t grant(const sw_server *s, const wf_agg_join *join)
{
    const sw_options *o = &s->options;
    bool injects = s->shard[0].inject.on;
    uint32_t slots = join->slots < o->slots ? join->slots : o->slots;
    uint64_t room = s->memory < o->memory ? o->memory - s->memory : 0;

    room = room < o->job_memory ? room : o->job_memory;
    while (slots > 0 && sw_job_memory(join, slots, s->shards, injects) > room) {
        slots /= 2;
    }
    return slots;
}

static wf_agg_status new_job(sw_server *s, const wf_agg_join *join,
                             sw_job **out)
{
    uint32_t slots = grant(s, join);
    uint32_t seat = 0;
    sw_job *job;

    while (seat < SW_JOBS && s->job[seat] != NULL) {
        seat++;
    }
    if (s->jobs >= s->options.jobs || seat == SW_JOBS || slots == 0 ||
        sw_job_create(join, ++s->generation * SW_JOBS + seat, &job) !=
            WEFT_OK) {
        return WF_AGG_REFUSED_QUOTA;
    }
    job->joined = (wf_agg_joined){.job = job->id,
                                  .epoch = s->generation,
                                  .slots = (uint16_t)slots,
                                  .shards = (uint16_t)s->shards};
    job->memory = sw_job_memory(join, slots, s->shards, s->shard[0].inject.on);
    s->memory += job->memory;
    s->job[seat] = job;
    s->jobs++;
    *out = job;
    return WF_AGG_JOINED_OK;
}

/* Its connections are closed by whoever walks them next. */
static void end_job(sw_server *s, sw_job *job, const char *why)
{
    wf_log(WEFT_LOG_INFO, "job %u of %u ranks ends: %s", job->id,
           job->like.ranks, why);
    for (uint32_t r = 0; r < job->like.ranks; r++) {
        sw_conn *conn = job->conn[r];

        if (conn != NULL) {
            if (!job->active) {
                (void)refuse(s, conn, WF_AGG_REFUSED_GONE);
            }
            conn->job = NULL;
            shutdown(conn->fd, SHUT_RDWR);
        }
    }
    s->ended += job->active;
    s->memory -= job->memory;
    s->job[job->id % SW_JOBS] = NULL;
    s->jobs--;
    sw_job_destroy(job, s->shard, s->shards);
}

static void begin_job(sw_server *s, sw_job *job)
{
    for (uint32_t i = 0; i < s->shards; i++) {
        job->joined.port[i] = s->shard[i].port;
    }
    if (wf_random(job->joined.salt, sizeof(job->joined.salt)) != WEFT_OK) {
        end_job(s, job, "no random numbers");
        return;
    }
    job->key = (wf_agg_key){
        .secret = wf_agg_derive(&s->key, job->like.group, &job->joined),
        .whole = job->like.whole != 0};
    if (sw_job_activate(job, s->shard, s->shards, s->shard[0].inject.on) !=
        WEFT_OK) {
        end_job(s, job, "no memory");
        return;
    }
    s->joined++;
    wf_log(WEFT_LOG_INFO, "job %u of %u ranks begins, with %u slots", job->id,
           job->like.ranks, job->joined.slots);
    for (uint32_t r = 0; r < job->like.ranks; r++) {
        answer(s, job->conn[r], &job->joined);
    }
}

/* --- ranks ---------------------------------------------------------------- */

static bool is_alike(const wf_agg_join *a, const wf_agg_join *b)
{
    return a->ranks == b->ranks && a->slots == b->slots &&
           a->payload == b->payload && a->whole == b->whole;
}

/* Packets come from where the connection does, and the port that was told. */
static wf_udp_address address_of(const sw_conn *conn)
{
    wf_udp_address a = conn->peer;

    if (a.at.ss_family == AF_INET6) {
        ((struct sockaddr_in6 *)&a.at)->sin6_port = htons(conn->join.port);
    } else {
        ((struct sockaddr_in *)&a.at)->sin_port = htons(conn->join.port);
    }
    return a;
}

static bool join(sw_server *s, sw_conn *conn)
{
    const wf_agg_join *j = &conn->join;
    wf_agg_status why = wf_agg_join_check(&s->key, conn->nonce, j);
    sw_job *job = NULL;

    if (why == WF_AGG_JOINED_OK) {
        job = find_group(s, j->group);
        why = job == NULL ? new_job(s, j, &job) : why;
    }
    if (why != WF_AGG_JOINED_OK) {
        return refuse(s, conn, why);
    }
    if (job->active || job->conn[j->rank % job->like.ranks] != NULL ||
        !is_alike(&job->like, j)) {
        return refuse(s, conn, WF_AGG_REFUSED_DIFFER);
    }
    conn->job = job;
    job->conn[j->rank] = conn;
    job->address[j->rank] = address_of(conn);
    if (++job->here == job->like.ranks) {
        begin_job(s, job);
    }
    return true;
}

/* After the join a rank says nothing; the end of the connection is all that is
 * read. */
bool sw_rank_read(sw_server *s, sw_conn *conn)
{
    char rest[16];
    bool joining = conn->got < sizeof(conn->join);
    ssize_t n = joining ? recv(conn->fd, (char *)&conn->join + conn->got,
                               sizeof(conn->join) - conn->got, 0)
                        : recv(conn->fd, rest, sizeof(rest), 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
    }
    if (n <= 0 || !joining) {
        return false;
    }
    conn->got += (size_t)n;
    return conn->got < sizeof(conn->join) || join(s, conn);
}

void sw_rank_left(sw_server *s, sw_conn *conn)
{
    sw_job *job = conn->job;

    if (job == NULL) {
        return;
    }
    job->conn[conn->join.rank] = NULL;
    conn->job = NULL;
    job->here--;
    job->left_ns = job->left_ns != 0 ? job->left_ns : wf_now_ns();
    if (!job->active || job->here == 0) {
        end_job(s, job, job->active ? "its ranks left" : "a rank left");
    }
}

/* Has a job waited too long: for ranks to come, or for the rest to leave? */
static const char *expired(const sw_server *s, const sw_job *job, uint64_t now)
{
    if (!job->active && now - job->since_ns > s->options.patience_ns) {
        return "not all of its ranks came";
    }
    return job->left_ns != 0 && now - job->left_ns > LINGER_NS ? "a rank left"
                                                               : NULL;
}

void sw_jobs_expire(sw_server *s)
{
    uint64_t now = wf_now_ns();

    for (uint32_t i = 0; i < SW_JOBS; i++) {
        sw_job *job = s->job[i];
        const char *why = job != NULL ? expired(s, job, now) : NULL;

        if (why != NULL) {
            end_job(s, job, why);
        }
    }
}

void sw_jobs_end(sw_server *s)
{
    for (uint32_t i = 0; i < SW_JOBS; i++) {
        if (s->job[i] != NULL) {
            end_job(s, s->job[i], "the switch stops");
        }
    }
}
