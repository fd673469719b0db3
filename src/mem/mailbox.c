/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/mailbox.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"

#define POST_TIMEOUT_NS (10 * WF_SEC)
#define GRACE_NS (100 * WF_MS)

typedef struct wf_mail wf_mail;

struct wf_mail {
    wf_mail *next;
    uint32_t from;
    uint32_t bytes;
    uint64_t key;
    int fd;
    unsigned char data[];
};

struct wf_mailbox {
    wf_host *host;
    bool *ended; /* by rank in the job: all that it sent has been read */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* mail came, or a peer went */
    wf_mail *first;
    wf_mail **last;
    wf_mail *spare;      /* for what is read when there is no memory */
    uint64_t starved_ns; /* since when there is no spare; 0: there is one */
    wf_mail_fn *call;
    void *call_ctx;
};

/* Threads that do not exist in a forked child may have held the lock, and have
 * waited for the condition, which could then never be destroyed. */
void wf_mailbox_unlock(wf_mailbox *box)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&box->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&box->changed, &attr);
    pthread_condattr_destroy(&attr);
}

static wf_mail *spare_alloc(void)
{
    return wf_alloc(sizeof(wf_mail) + WF_MAIL_MAX);
}

weft_status wf_mailbox_create(wf_host *host, wf_mailbox **out)
{
    wf_mailbox *box = wf_zalloc(sizeof(*box));

    if (box == NULL) {
        return wf_fail_nomem("the mailbox");
    }
    box->ended = wf_zalloc(host->ranks * sizeof(*box->ended));
    box->spare = spare_alloc();
    if (box->ended == NULL || box->spare == NULL) {
        wf_free(box->spare);
        wf_free(box->ended);
        wf_free(box);
        return wf_fail_nomem("the mailbox");
    }
    box->host = host;
    box->last = &box->first;
    wf_mailbox_unlock(box);
    *out = box;
    return WEFT_OK;
}

static void mail_free(wf_mail *m)
{
    wf_close(m->fd);
    wf_free(m);
}

void wf_mailbox_destroy(wf_mailbox *box)
{
    if (box == NULL) {
        return;
    }
    for (wf_mail *m = box->first, *next; m != NULL; m = next) {
        next = m->next;
        mail_free(m);
    }
    pthread_cond_destroy(&box->changed);
    pthread_mutex_destroy(&box->lock);
    wf_free(box->spare);
    wf_free(box->ended);
    wf_free(box);
}

void wf_mailbox_gone(wf_mailbox *box, uint32_t rank, bool ended)
{
    pthread_mutex_lock(&box->lock);
    box->ended[rank] |= ended;
    pthread_cond_broadcast(&box->changed);
    pthread_mutex_unlock(&box->lock);
}

bool wf_mailbox_ready(wf_mailbox *box)
{
    bool ready;

    pthread_mutex_lock(&box->lock);
    if (box->spare == NULL) {
        box->spare = spare_alloc();
    }
    ready = box->spare != NULL;
    if (ready) {
        box->starved_ns = 0;
    } else if (box->starved_ns == 0) {
        box->starved_ns = wf_now_ns();
        wf_log(WEFT_LOG_WARN, "no memory for mail from other ranks");
    }
    pthread_mutex_unlock(&box->lock);
    return ready;
}

/* Take out of the list what hangs at `at`. */
static wf_mail *unlink_mail(wf_mailbox *box, wf_mail **at)
{
    wf_mail *m = *at;

    *at = m->next;
    if (box->last == &m->next) {
        box->last = at;
    }
    return m;
}

/* Throw away the descriptor that the newer one of `p` replaces, with its mail;
 * under the lock. */
static void replace_mail(wf_mailbox *box, const wf_packet *p)
{
    wf_mail **at = &box->first;

    while (*at != NULL && ((*at)->from != p->from || (*at)->key != p->key ||
                           (*at)->fd == -1)) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        mail_free(unlink_mail(box, at));
    }
}

static void keep_mail(wf_mailbox *box, const wf_packet *p, int fd)
{
    wf_mail *m = wf_alloc(sizeof(*m) + p->bytes);

    pthread_mutex_lock(&box->lock);
    if ((p->key & WF_MAIL_NEWEST) != 0 && fd != -1) {
        replace_mail(box, p);
    }
    if (m == NULL) {
        m = box->spare;
        box->spare = spare_alloc();
    }
    if (m != NULL) {
        *m = (wf_mail){
            .from = p->from, .bytes = p->bytes, .key = p->key, .fd = fd};
        memcpy(m->data, p->data, p->bytes);
        *box->last = m;
        box->last = &m->next;
        pthread_cond_broadcast(&box->changed);
    }
    pthread_mutex_unlock(&box->lock);
    if (m == NULL) { /* of another node: it waits in no socket */
        wf_close(fd);
        wf_log(WEFT_LOG_ERROR, "no memory for mail from rank %u: it is lost",
               p->from);
    }
}

static int route(const wf_host *host, uint32_t to)
{
    uint32_t local = to < host->ranks ? host->peer[to].local : WF_NOT_HERE;

    if (local == WF_NOT_HERE || local == host->self) {
        return -1;
    }
    return host->link[local] >= 0 ? host->link[local] : host->link[0];
}

static void call_with(wf_mailbox *box, const wf_packet *p)
{
    wf_mail_fn *fn;
    void *ctx;

    pthread_mutex_lock(&box->lock);
    fn = box->call;
    ctx = box->call_ctx;
    pthread_mutex_unlock(&box->lock);
    if (fn != NULL) {
        fn(ctx, p->from, p->key, p->data, p->bytes);
    }
}

/* One that is gone needs none, and whoever waits for it is told otherwise. */
static void pass_on(const wf_mailbox *box, wf_packet *p, int fd)
{
    weft_status st = wf_link_send(route(box->host, p->to), p, fd,
                                  wf_now_ns() + POST_TIMEOUT_NS);

    if (st != WEFT_OK && st != WEFT_ERR_PEER) {
        wf_log(WEFT_LOG_ERROR,
               "mail from rank %u could not be passed on to rank %u: %s",
               p->from, p->to, weft_error_detail());
    }
}

void wf_mailbox_deliver(wf_mailbox *box, wf_packet *p, int fd)
{
    wf_host *h = box->host;

    if (p->to == h->rank && (p->key & WF_MAIL_CALL) != 0) {
        call_with(box, p);
    } else if (p->to == h->rank) {
        keep_mail(box, p, fd);
        return;
    } else if (h->self == 0 && route(h, p->to) >= 0) {
        pass_on(box, p, fd);
    }
    wf_close(fd);
}

uint64_t wf_host_starved_ns(wf_host *host)
{
    wf_mailbox *box = host->mailbox;
    uint64_t since;

    pthread_mutex_lock(&box->lock);
    since = box->starved_ns;
    pthread_mutex_unlock(&box->lock);
    return since;
}

void wf_host_on_mail(wf_host *host, wf_mail_fn *fn, void *ctx)
{
    wf_mailbox *box = host->mailbox;

    pthread_mutex_lock(&box->lock);
    box->call = fn;
    box->call_ctx = ctx;
    pthread_mutex_unlock(&box->lock);
}

static weft_status post_fail(const wf_host *host, uint32_t to, weft_status st)
{
    const wf_peer *peer = &host->peer[to];

    if (st == WEFT_ERR_CLOSED) {
        st = wf_host_check(host, to);
        return st != WEFT_OK
                   ? st
                   : wf_fail(WEFT_ERR_PEER, "rank %u (pid %d on %s) went away",
                             to, peer->pid, peer->host);
    }
    return wf_fail(st, "rank %u could not mail rank %u (pid %d on %s): %s",
                   host->rank, to, peer->pid, peer->host, weft_error_detail());
}

weft_status wf_host_post(wf_host *host, uint32_t to, uint64_t key,
                         const void *data, size_t n, int fd)
{
    wf_packet p = {.kind = WF_PACKET_MAIL,
                   .from = host->rank,
                   .to = to,
                   .bytes = (uint32_t)n,
                   .key = key};
    weft_status st;
    int link = route(host, to);

    if (n > WF_MAIL_MAX || link < 0) {
        return wf_fail(WEFT_ERR_INVALID, "mail of %zu bytes to rank %u", n, to);
    }
    if (n > 0) { /* mail may be a descriptor alone */
        memcpy(p.data, data, n);
    }
    st = wf_link_send(link, &p, fd, wf_now_ns() + POST_TIMEOUT_NS);
    return st == WEFT_OK ? st : post_fail(host, to, st);
}

/* Where the oldest such mail hangs; NULL hangs there if there is none. */
static wf_mail **find_mail(wf_mailbox *box, uint32_t from, uint64_t key)
{
    wf_mail **at = &box->first;

    while (*at != NULL && ((*at)->from != from || (*at)->key != key)) {
        at = &(*at)->next;
    }
    return at;
}

/* Take it out of the list; NULL if there is none. */
static wf_mail *pick_mail(wf_mailbox *box, uint32_t from, uint64_t key)
{
    wf_mail **at = find_mail(box, from, key);

    return *at != NULL ? unlink_mail(box, at) : NULL;
}

/* Wait for news until `until_ns`; under the lock. False: there was none. */
static bool await_news(wf_mailbox *box, uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / WF_SEC),
                             (long)(until_ns % WF_SEC)};

    return until_ns != 0 && pthread_cond_timedwait(&box->changed, &box->lock,
                                                   &until) != ETIMEDOUT;
}

/* A peer that went may have mailed before; its link is read to the end, or for
 * a moment if that end does not come (a child of it may hold the link open). */
static weft_status check_sender(wf_mailbox *box, uint32_t from,
                                uint64_t *grace_ns)
{
    weft_status st = wf_host_check(box->host, from);
    uint64_t now = wf_now_ns();

    if (st == WEFT_OK || box->ended[from]) {
        return st;
    }
    if (*grace_ns == 0) {
        *grace_ns = now + GRACE_NS;
    }
    return now < *grace_ns ? WEFT_OK : st;
}

static weft_status await_mail(wf_mailbox *box, uint32_t from, uint64_t key,
                              uint64_t deadline_ns, wf_mail **out)
{
    uint64_t grace_ns = 0;
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&box->lock);
    while ((*out = pick_mail(box, from, key)) == NULL && st == WEFT_OK) {
        uint64_t until = deadline_ns;

        st = check_sender(box, from, &grace_ns);
        if (grace_ns != 0 && grace_ns < until) {
            until = grace_ns;
        }
        if (st == WEFT_OK && !await_news(box, until) &&
            wf_now_ns() >= deadline_ns) {
            *out = pick_mail(box, from, key);
            st = *out != NULL
                     ? WEFT_OK
                     : wf_fail(WEFT_ERR_TIMEOUT,
                               "rank %u (pid %d on %s) did not answer in time",
                               from, box->host->peer[from].pid,
                               box->host->peer[from].host);
            break;
        }
    }
    pthread_mutex_unlock(&box->lock);
    return st;
}

weft_status wf_host_take(wf_host *host, uint32_t from, uint64_t key, void *data,
                         size_t *n, int *fd, uint64_t deadline_ns)
{
    wf_mail *m;
    weft_status st = await_mail(host->mailbox, from, key, deadline_ns, &m);

    if (st != WEFT_OK) {
        return st;
    }
    if (m->bytes > *n) {
        memcpy(data, m->data, *n);
        mail_free(m);
        return wf_fail(WEFT_ERR_PROTOCOL, "mail from rank %u is too long",
                       from);
    }
    memcpy(data, m->data, m->bytes);
    *n = m->bytes;
    if (m->fd == WF_FD_LOST) {
        mail_free(m);
        return wf_link_fail_lost(from);
    }
    if (fd != NULL) {
        *fd = m->fd;
        m->fd = -1;
    }
    mail_free(m);
    return WEFT_OK;
}

bool wf_host_has_mail(wf_host *host, uint32_t from, uint64_t key)
{
    wf_mailbox *box = host->mailbox;
    bool has;

    pthread_mutex_lock(&box->lock);
    has = *find_mail(box, from, key) != NULL;
    pthread_mutex_unlock(&box->lock);
    return has;
}
