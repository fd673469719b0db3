/* SPDX-License-Identifier: Apache-2.0 */
/* The higher rank of a pair connects. Nobody can wait in a circle: every rank
 * first connects and says hello to all lower ones, which never blocks; then
 * answers all higher ones; then reads the lower ones' answers; then checks the
 * higher ones' proofs.
 *
 *   higher rank                          lower rank
 *   HELLO  challenge a           ->
 *                                <-      ANSWER challenge b, hash(a, b)
 *   PROOF  hash(b, a)            ->
 */
#include "mem/mesh.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "mem/link.h"

#define NEIGHBOURS 4 /* on each side, where not all are connected */

/* A rank says hello as soon as it is connected. */
#define HELLO_NS (10 * WF_SEC)

/* How often to look whether those are there who have not connected yet. */
#define PROBE_NS WF_SEC

typedef struct answer {
    uint64_t challenge;
    uint64_t proof;
} answer;

typedef struct mesh {
    wf_host *host;
    const wf_join_table *table;
    const wf_patience *patience;
    uint32_t limit;    /* everybody is connected up to so many ranks */
    uint64_t probe_ns; /* when to look for missing ranks next */
    uint64_t *mine;    /* by local index: the challenge we sent */
    uint64_t *theirs;  /* and the one we got */
} mesh;

bool wf_mesh_linked(uint32_t a, uint32_t b, uint32_t count, uint32_t limit)
{
    uint32_t gap = a < b ? b - a : a - b;

    if (gap == 0) {
        return false;
    }
    return count <= limit || a == 0 || b == 0 || gap <= NEIGHBOURS ||
           gap >= count - NEIGHBOURS;
}

static uint64_t prove(const mesh *m, uint64_t theirs, uint64_t ours,
                      uint32_t prover)
{
    uint64_t words[3] = {theirs, ours, prover};

    return wf_keyed_hash(&m->table->head->secret, words, sizeof(words));
}

/* Also if nobody has waited for it yet. */
static bool process_ended(int32_t pid)
{
    struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0),
                       .events = POLLIN};
    bool ended;

    if (p.fd < 0) {
        return errno == ESRCH;
    }
    ended = poll(&p, 1, 0) > 0;
    close(p.fd);
    return ended;
}

static bool link_ended(int link)
{
    wf_packet p;

    return link >= 0 && wf_link_recv(link, &p, NULL, 0) == WEFT_ERR_CLOSED;
}

/* A rank that left because of another's death may have had no time to say so;
 * then its process is still there, and the other one's is not. */
static uint32_t first_dead(const wf_host *h, uint32_t local)
{
    for (uint32_t i = 0; i < h->count; i++) {
        if (link_ended(h->link[i]) &&
            process_ended(h->peer[h->rank_of[i]].pid)) {
            return i;
        }
    }
    return local;
}

weft_status wf_mesh_lost(const wf_host *h, uint32_t local)
{
    uint32_t rank;

    if (wf_links_last_words(h->link, h->count)) {
        return WEFT_ERR_PEER;
    }
    rank = h->rank_of[first_dead(h, local)];
    return wf_fail(WEFT_ERR_PEER,
                   "rank %u (pid %d on %s) went away while the job was forming",
                   rank, h->peer[rank].pid, h->peer[rank].host);
}

/* Is the other end closed? What it sent is left there. */
static bool link_hung_up(int link)
{
    struct pollfd p = {.fd = link, .events = POLLIN};

    return link >= 0 && poll(&p, 1, 0) > 0 && (p.revents & POLLHUP) != 0;
}

bool wf_mesh_lasts(const wf_host *h, const wf_patience *patience,
                   weft_status *st)
{
    bool lasts = wf_patience_lasts(patience, st);

    for (uint32_t i = 0; i < h->count && lasts; i++) {
        if (link_hung_up(h->link[i])) {
            *st = wf_mesh_lost(h, i);
            lasts = false;
        }
    }
    return lasts;
}

static weft_status mesh_fail(const mesh *m, uint32_t local, weft_status st)
{
    uint32_t rank = m->host->rank_of[local];

    if (st == WEFT_ERR_CLOSED) {
        return wf_mesh_lost(m->host, local);
    }
    if (st == WEFT_ERR_PEER || st == WEFT_ERR_ABORTED) {
        return st; /* it is not about this rank, or says enough */
    }
    return wf_fail(st, "rank %u (pid %d on %s): %s", rank,
                   m->host->peer[rank].pid, m->host->peer[rank].host,
                   weft_error_detail());
}

static weft_status mesh_send(const mesh *m, uint32_t local, uint32_t kind,
                             const void *data, size_t n)
{
    wf_packet p = {.kind = kind,
                   .from = m->host->rank,
                   .to = m->host->rank_of[local],
                   .bytes = (uint32_t)n};
    weft_status st;

    memcpy(p.data, data, n);
    st = wf_link_send(m->host->link[local], &p, -1, m->patience->deadline_ns);
    return st == WEFT_OK ? st : mesh_fail(m, local, st);
}

static weft_status mesh_recv(const mesh *m, uint32_t local, uint32_t kind,
                             void *data, size_t n)
{
    wf_packet p;
    weft_status st;

    do {
        st = wf_link_recv(m->host->link[local], &p, NULL,
                          wf_slice_end(m->patience->deadline_ns));
    } while (wf_mesh_lasts(m->host, m->patience, &st));
    if (st == WEFT_OK && p.kind == WF_PACKET_FAILED) {
        return wf_packet_reason(&p);
    }
    if (st == WEFT_OK && (p.kind != kind || p.bytes != n)) {
        st = wf_fail(WEFT_ERR_PROTOCOL, "unexpected packet %u", p.kind);
    }
    if (st != WEFT_OK) {
        return mesh_fail(m, local, st);
    }
    memcpy(data, p.data, n);
    return WEFT_OK;
}

static weft_status say_hello(mesh *m, uint32_t local)
{
    const wf_join_member *r = &m->table->member[m->host->rank_of[local]];
    weft_status st = wf_random(&m->mine[local], sizeof(m->mine[local]));

    if (st == WEFT_OK) {
        st = wf_link_connect(r->socket, &m->host->link[local]);
    }
    if (st != WEFT_OK) {
        return mesh_fail(m, local, st);
    }
    return mesh_send(m, local, WF_PACKET_HELLO, &m->mine[local],
                     sizeof(m->mine[local]));
}

/* Who is this? A higher rank that we expect, or a stranger: `*local` is then
 * WF_NOT_HERE. Fails if it comes only to say that there will be no job. */
static weft_status read_hello(const mesh *m, int fd, uint32_t *local)
{
    wf_host *h = m->host;
    wf_packet p;
    uint32_t i;

    *local = WF_NOT_HERE;
    if (wf_link_recv(fd, &p, NULL, wf_now_ns() + HELLO_NS) != WEFT_OK ||
        p.from >= h->ranks) {
        return WEFT_OK;
    }
    if (p.kind == WF_PACKET_FAILED) {
        return wf_packet_reason(&p);
    }
    i = h->peer[p.from].local;
    if (p.kind == WF_PACKET_HELLO && p.bytes == sizeof(m->theirs[0]) &&
        i != WF_NOT_HERE && i > h->self && h->link[i] < 0 &&
        wf_mesh_linked(i, h->self, h->count, m->limit)) {
        memcpy(&m->theirs[i], p.data, sizeof(m->theirs[i]));
        *local = i;
    }
    return WEFT_OK;
}

/* Has a rank gone that we are connected with? Others may be missing because
 * they saw it go. WEFT_OK if all are there. */
static weft_status check_linked(const mesh *m)
{
    wf_packet p;

    for (uint32_t i = 0; i < m->host->count; i++) {
        weft_status st = WEFT_OK;

        while (m->host->link[i] >= 0 && st == WEFT_OK) {
            st = wf_link_recv(m->host->link[i], &p, NULL, 0);
            if (st == WEFT_OK && p.kind == WF_PACKET_FAILED) {
                return wf_packet_reason(&p);
            }
        }
        if (st == WEFT_ERR_CLOSED) {
            return mesh_fail(m, i, st);
        }
    }
    return WEFT_OK;
}

/* A higher rank that should have connected and has not. */
static bool is_missing(const mesh *m, uint32_t local)
{
    const wf_host *h = m->host;

    return local > h->self && h->link[local] < 0 &&
           wf_mesh_linked(local, h->self, h->count, m->limit);
}

/* Those who are to come still listen, unless they are gone. */
static weft_status probe_missing(mesh *m)
{
    const wf_host *h = m->host;

    if (wf_now_ns() < m->probe_ns) {
        return WEFT_OK;
    }
    m->probe_ns = wf_now_ns() + PROBE_NS;
    for (uint32_t i = h->self + 1; i < h->count; i++) {
        int fd = -1;

        if (!is_missing(m, i)) {
            continue;
        }
        if (wf_link_connect(m->table->member[h->rank_of[i]].socket, &fd) ==
            WEFT_ERR_CLOSED) {
            return wf_mesh_lost(h, i);
        }
        wf_close(fd);
    }
    return WEFT_OK;
}

/* Wait for somebody to connect. */
static weft_status accept_next(mesh *m, int listener, int *fd)
{
    weft_status st;
    weft_status gone = WEFT_OK;

    do {
        st = wf_link_accept(listener, wf_slice_end(m->patience->deadline_ns),
                            fd);
        gone = st == WEFT_ERR_TIMEOUT ? probe_missing(m) : WEFT_OK;
    } while (gone == WEFT_OK && wf_mesh_lasts(m->host, m->patience, &st));
    return gone != WEFT_OK ? gone : st;
}

static weft_status missing_rank(const mesh *m)
{
    wf_host *h = m->host;
    weft_status st = check_linked(m);

    if (st != WEFT_OK) {
        return st;
    }
    for (uint32_t i = h->self + 1; i < h->count; i++) {
        if (is_missing(m, i)) {
            wf_fail(WEFT_ERR_TIMEOUT, "did not connect in time");
            return mesh_fail(m, i, WEFT_ERR_TIMEOUT);
        }
    }
    return wf_fail(WEFT_ERR_TIMEOUT, "a rank did not connect in time");
}

static weft_status answer_one(mesh *m, int listener, bool *joined)
{
    answer a;
    uint32_t local;
    int fd;
    weft_status st = accept_next(m, listener, &fd);

    *joined = false;
    if (st != WEFT_OK) {
        return st == WEFT_ERR_TIMEOUT ? missing_rank(m) : st;
    }
    if (fd < 0) {
        wf_log(WEFT_LOG_WARN, "refused a connection of another user");
        return WEFT_OK;
    }
    st = read_hello(m, fd, &local);
    if (local == WF_NOT_HERE) {
        close(fd);
        return st;
    }
    m->host->link[local] = fd;
    *joined = true;
    st = wf_random(&m->mine[local], sizeof(m->mine[local]));
    if (st != WEFT_OK) {
        return st;
    }
    a.challenge = m->mine[local];
    a.proof = prove(m, m->theirs[local], a.challenge, m->host->rank);
    return mesh_send(m, local, WF_PACKET_ANSWER, &a, sizeof(a));
}

static weft_status denied(const mesh *m, uint32_t local)
{
    wf_fail(WEFT_ERR_DENIED, "does not know this job's secret");
    return mesh_fail(m, local, WEFT_ERR_DENIED);
}

static weft_status check_answer(mesh *m, uint32_t local)
{
    uint32_t rank = m->host->rank_of[local];
    uint64_t proof;
    answer a = {0};
    weft_status st = mesh_recv(m, local, WF_PACKET_ANSWER, &a, sizeof(a));

    if (st != WEFT_OK) {
        return st;
    }
    if (a.proof != prove(m, m->mine[local], a.challenge, rank)) {
        return denied(m, local);
    }
    proof = prove(m, a.challenge, m->mine[local], m->host->rank);
    return mesh_send(m, local, WF_PACKET_PROOF, &proof, sizeof(proof));
}

static weft_status check_proof(mesh *m, uint32_t local)
{
    uint64_t proof = 0;
    weft_status st =
        mesh_recv(m, local, WF_PACKET_PROOF, &proof, sizeof(proof));

    if (st == WEFT_OK && proof != prove(m, m->mine[local], m->theirs[local],
                                        m->host->rank_of[local])) {
        st = denied(m, local);
    }
    return st;
}

static weft_status connect_all(mesh *m, int listener)
{
    wf_host *h = m->host;
    weft_status st = WEFT_OK;
    uint32_t expected = 0;

    for (uint32_t i = 0; i < h->self && st == WEFT_OK; i++) {
        if (wf_mesh_linked(i, h->self, h->count, m->limit)) {
            st = say_hello(m, i);
        }
    }
    for (uint32_t i = h->self + 1; i < h->count; i++) {
        expected += is_missing(m, i);
    }
    while (expected > 0 && st == WEFT_OK) {
        bool joined;

        st = answer_one(m, listener, &joined);
        expected -= joined;
    }
    for (uint32_t i = 0; i < h->self && st == WEFT_OK; i++) {
        if (h->link[i] >= 0) {
            st = check_answer(m, i);
        }
    }
    for (uint32_t i = h->self + 1; i < h->count && st == WEFT_OK; i++) {
        if (h->link[i] >= 0) {
            st = check_proof(m, i);
        }
    }
    return st;
}

weft_status wf_mesh_connect(wf_host *host, const wf_join_table *table,
                            uint32_t limit, int listener,
                            const wf_patience *patience)
{
    mesh m = {.host = host,
              .table = table,
              .patience = patience,
              .limit = limit,
              .probe_ns = wf_now_ns() + PROBE_NS};
    weft_status st;

    m.mine = wf_zalloc(2 * host->count * sizeof(*m.mine));
    if (m.mine == NULL) {
        return wf_fail_nomem("connecting %u ranks", host->count);
    }
    m.theirs = m.mine + host->count;
    st = connect_all(&m, listener);
    wf_free(m.mine);
    return st;
}
