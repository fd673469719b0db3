/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/watch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/time.h"
#include "mem/link.h"

#define POST_TIMEOUT_NS (10 * WF_SEC)
#define GRACE_NS (100 * WF_MS)
/* How often the thread asks for memory that it lacks. */
#define STARVED_PAUSE_MS 10
#define EVENTS 32

struct wf_mail {
    wf_mail *next;
    uint32_t from;
    uint32_t bytes;
    uint64_t key;
    int fd;
    unsigned char data[];
};

struct wf_watch {
    wf_host *host;
    pthread_t thread;
    bool running;
    int epoll;
    int stop;    /* eventfd */
    int *pidfd;  /* by local index, or -1 */
    bool *ended; /* by local index: all that it sent has been read */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* mail came, or a peer went */
    wf_mail *first;
    wf_mail **last;
    wf_mail *spare;      /* for what is read when there is no memory */
    uint64_t starved_ns; /* since when there is no spare; 0: there is one */
    wf_mail_fn *call;
    void *call_ctx;
};

/* What epoll hands back: the low half is the local index. */
enum { EVENT_LINK = 0, EVENT_PIDFD = 1, EVENT_STOP = 2 };

static uint64_t event_of(uint32_t kind, uint32_t local)
{
    return (uint64_t)kind << 32 | local;
}

static weft_status watch_fd(wf_watch *w, int fd, uint32_t kind, uint32_t local)
{
    struct epoll_event e = {.events = EPOLLIN,
                            .data.u64 = event_of(kind, local)};

    if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e) != 0) {
        return wf_fail_errno("watching a peer");
    }
    return WEFT_OK;
}

/* A lock that nobody has, and a condition that nobody waits for. */
static void watch_unlocked(wf_watch *w)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->changed, &attr);
    pthread_condattr_destroy(&attr);
}

static wf_mail *spare_alloc(void)
{
    return wf_alloc(sizeof(wf_mail) + WF_MAIL_MAX);
}

weft_status wf_watch_create(wf_host *host, wf_watch **out)
{
    wf_watch *w = wf_zalloc(sizeof(*w));

    if (w == NULL) {
        return wf_fail(WEFT_ERR_NOMEM, "the watching thread");
    }
    w->pidfd = wf_alloc(host->count * sizeof(*w->pidfd));
    w->ended = wf_zalloc(host->count * sizeof(*w->ended));
    w->spare = spare_alloc();
    if (w->pidfd == NULL || w->ended == NULL || w->spare == NULL) {
        wf_free(w->spare);
        wf_free(w->pidfd);
        wf_free(w->ended);
        wf_free(w);
        return wf_fail(WEFT_ERR_NOMEM, "the watching thread");
    }
    for (uint32_t i = 0; i < host->count; i++) {
        w->pidfd[i] = -1;
    }
    w->host = host;
    w->epoll = -1;
    w->stop = -1;
    w->last = &w->first;
    watch_unlocked(w);
    *out = w;
    return WEFT_OK;
}

static void mail_free(wf_mail *m)
{
    if (m->fd >= 0) {
        close(m->fd);
    }
    wf_free(m);
}

/* Everybody who sleeps in this job on this host shall look at the board. */
static void raise_alarm(wf_host *host)
{
    /* Publishes the state stored before; pairs with the load in waits. */
    atomic_fetch_add_explicit(&host->board->alarm, 1, memory_order_release);
    for (uint32_t i = 0; i < host->count; i++) {
        wf_board_wake(&host->board->rank[i]);
    }
}

static void peer_gone(wf_watch *w, uint32_t local)
{
    wf_board_rank *r = &w->host->board->rank[local];
    uint32_t here = WF_BOARD_HERE;

    if (atomic_compare_exchange_strong(&r->state, &here, WF_BOARD_DEAD)) {
        wf_log(WEFT_LOG_INFO, "rank %u (pid %d) died", r->rank, r->pid);
    }
    raise_alarm(w->host);
    pthread_mutex_lock(&w->lock);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void unwatch_link(wf_watch *w, uint32_t local)
{
    epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->host->link[local], NULL);
}

/* What is not read stays in its socket: mail is read only while there is a
 * spare for it, and so is never lost for lack of memory. */
static bool spare_ready(wf_watch *w)
{
    if (w->spare == NULL) {
        w->spare = spare_alloc();
    }
    pthread_mutex_lock(&w->lock);
    if (w->spare != NULL) {
        w->starved_ns = 0;
    } else if (w->starved_ns == 0) {
        w->starved_ns = wf_now_ns();
        wf_log(WEFT_LOG_WARN, "no memory for mail from other ranks");
    }
    pthread_mutex_unlock(&w->lock);
    return w->spare != NULL;
}

static void keep_mail(wf_watch *w, const wf_packet *p, int fd)
{
    wf_mail *m = wf_alloc(sizeof(*m) + p->bytes);

    if (m == NULL) {
        m = w->spare;
        w->spare = NULL;
    }
    *m = (wf_mail){.from = p->from, .bytes = p->bytes, .key = p->key, .fd = fd};
    memcpy(m->data, p->data, p->bytes);
    pthread_mutex_lock(&w->lock);
    *w->last = m;
    w->last = &m->next;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static int route(const wf_host *host, uint32_t to)
{
    uint32_t local = to < host->ranks ? host->peer[to].local : WF_NOT_HERE;

    if (local == WF_NOT_HERE || local == host->self) {
        return -1;
    }
    return host->link[local] >= 0 ? host->link[local] : host->link[0];
}

static void call_with(wf_watch *w, const wf_packet *p)
{
    wf_mail_fn *fn;
    void *ctx;

    pthread_mutex_lock(&w->lock);
    fn = w->call;
    ctx = w->call_ctx;
    pthread_mutex_unlock(&w->lock);
    if (fn != NULL) {
        fn(ctx, p->from, p->key, p->data, p->bytes);
    }
}

/* One that is gone needs none, and whoever waits for it is told otherwise. */
static void pass_on(const wf_watch *w, wf_packet *p, int fd)
{
    weft_status st = wf_link_send(route(w->host, p->to), p, fd,
                                  wf_now_ns() + POST_TIMEOUT_NS);

    if (st != WEFT_OK && st != WEFT_ERR_PEER) {
        wf_log(WEFT_LOG_ERROR,
               "mail from rank %u could not be passed on to rank %u: %s",
               p->from, p->to, weft_error_detail());
    }
}

/* Mail for us, or, at the lowest rank, mail to pass on. */
static void deliver(wf_watch *w, wf_packet *p, int fd)
{
    wf_host *h = w->host;

    if (p->to == h->rank && (p->key & WF_MAIL_CALL) != 0) {
        call_with(w, p);
    } else if (p->to == h->rank) {
        keep_mail(w, p, fd);
        return;
    } else if (h->self == 0 && route(h, p->to) >= 0) {
        pass_on(w, p, fd);
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void read_link(wf_watch *w, uint32_t local)
{
    wf_packet p;
    int fd;
    weft_status st = wf_link_recv(w->host->link[local], &p, &fd, 0);

    if (st == WEFT_ERR_TIMEOUT) {
        return;
    }
    if (st == WEFT_OK && p.kind == WF_PACKET_MAIL && p.from < w->host->ranks) {
        deliver(w, &p, fd);
        return;
    }
    if (st == WEFT_OK && fd >= 0) {
        close(fd);
    }
    if (st != WEFT_OK) {
        unwatch_link(w, local);
        pthread_mutex_lock(&w->lock);
        w->ended[local] = true;
        pthread_mutex_unlock(&w->lock);
        peer_gone(w, local);
    }
}

static void *watch_main(void *arg)
{
    wf_watch *w = arg;
    struct epoll_event events[EVENTS];

    for (;;) {
        int n = epoll_wait(w->epoll, events, EVENTS, -1);
        bool starved = false;

        for (int i = 0; i < n; i++) {
            uint32_t local = (uint32_t)events[i].data.u64;
            uint32_t kind = (uint32_t)(events[i].data.u64 >> 32);

            if (kind == EVENT_STOP) {
                return NULL;
            }
            if (kind == EVENT_PIDFD) {
                epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->pidfd[local], NULL);
                peer_gone(w, local);
            } else if (spare_ready(w)) {
                read_link(w, local);
            } else {
                starved = true;
            }
        }
        if (starved) {
            poll(NULL, 0, STARVED_PAUSE_MS);
        }
    }
}

void wf_watch_pidfds(wf_watch *w)
{
    wf_host *h = w->host;

    for (uint32_t i = 0; i < h->count; i++) {
        struct ucred peer;
        socklen_t n = sizeof(peer);

        if (h->link[i] >= 0 &&
            getsockopt(h->link[i], SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 &&
            peer.pid > 0 && peer.pid != getpid()) {
            w->pidfd[i] = (int)syscall(SYS_pidfd_open, peer.pid, 0);
        }
    }
}

static weft_status watch_everything(wf_watch *w)
{
    weft_status st = watch_fd(w, w->stop, EVENT_STOP, 0);

    for (uint32_t i = 0; i < w->host->count && st == WEFT_OK; i++) {
        if (w->host->link[i] >= 0) {
            st = watch_fd(w, w->host->link[i], EVENT_LINK, i);
        }
        if (st == WEFT_OK && w->pidfd[i] >= 0) {
            st = watch_fd(w, w->pidfd[i], EVENT_PIDFD, i);
        }
    }
    return st;
}

weft_status wf_watch_start(wf_watch *w)
{
    weft_status st;

    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll < 0 || w->stop < 0) {
        return wf_fail_errno("the watching thread");
    }
    wf_watch_pidfds(w);
    st = watch_everything(w);
    if (st == WEFT_OK) {
        st = wf_thread_start("the watching thread", watch_main, w, &w->thread);
    }
    w->running = st == WEFT_OK;
    return st;
}

void wf_watch_orphan(wf_watch *w)
{
    w->running = false;
    for (uint32_t i = 0; i < w->host->count; i++) {
        if (w->host->link[i] >= 0) {
            close(w->host->link[i]);
            w->host->link[i] = -1;
        }
    }
    /* Threads that do not exist here may have held the one, and have waited for
     * the other, which could then never be destroyed. */
    watch_unlocked(w);
}

void wf_watch_destroy(wf_watch *w)
{
    uint64_t one = 1;

    if (w == NULL) {
        return;
    }
    if (w->running) {
        while (write(w->stop, &one, sizeof(one)) < 0 && errno == EINTR) {
        }
        pthread_join(w->thread, NULL);
    }
    for (wf_mail *m = w->first, *next; m != NULL; m = next) {
        next = m->next;
        mail_free(m);
    }
    for (uint32_t i = 0; i < w->host->count; i++) {
        if (w->pidfd[i] >= 0) {
            close(w->pidfd[i]);
        }
    }
    if (w->epoll >= 0) {
        close(w->epoll);
    }
    if (w->stop >= 0) {
        close(w->stop);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    wf_free(w->spare);
    wf_free(w->pidfd);
    wf_free(w->ended);
    wf_free(w);
}

uint64_t wf_host_starved_ns(wf_host *host)
{
    wf_watch *w = host->watch;
    uint64_t since;

    pthread_mutex_lock(&w->lock);
    since = w->starved_ns;
    pthread_mutex_unlock(&w->lock);
    return since;
}

void wf_host_on_mail(wf_host *host, wf_mail_fn *fn, void *ctx)
{
    wf_watch *w = host->watch;

    pthread_mutex_lock(&w->lock);
    w->call = fn;
    w->call_ctx = ctx;
    pthread_mutex_unlock(&w->lock);
}

static weft_status post_fail(const wf_host *host, uint32_t to, weft_status st)
{
    const wf_peer *peer = &host->peer[to];
    char why[256];

    if (st == WEFT_ERR_CLOSED) {
        st = wf_host_check(host, to);
        return st != WEFT_OK
                   ? st
                   : wf_fail(WEFT_ERR_PEER, "rank %u (pid %d on %s) went away",
                             to, peer->pid, peer->host);
    }
    snprintf(why, sizeof(why), "%s", weft_error_detail());
    return wf_fail(st, "rank %u could not mail rank %u (pid %d on %s): %s",
                   host->rank, to, peer->pid, peer->host, why);
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

static wf_mail *find_mail(wf_watch *w, uint32_t from, uint64_t key)
{
    for (wf_mail **at = &w->first; *at != NULL; at = &(*at)->next) {
        wf_mail *m = *at;

        if (m->from == from && m->key == key) {
            *at = m->next;
            if (w->last == &m->next) {
                w->last = at;
            }
            return m;
        }
    }
    return NULL;
}

/* Wait for news until `until_ns`; under the lock. False: there was none. */
static bool await_news(wf_watch *w, uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / WF_SEC),
                             (long)(until_ns % WF_SEC)};

    return until_ns != 0 &&
           pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT;
}

/* A peer that went may have mailed before; its link is read to the end, or for
 * a moment if that end does not come (a child of it may hold the link open). */
static weft_status check_sender(wf_watch *w, uint32_t from, uint64_t *grace_ns)
{
    weft_status st = wf_host_check(w->host, from);
    uint64_t now = wf_now_ns();

    if (st == WEFT_OK || w->ended[w->host->peer[from].local]) {
        return st;
    }
    if (*grace_ns == 0) {
        *grace_ns = now + GRACE_NS;
    }
    return now < *grace_ns ? WEFT_OK : st;
}

static weft_status await_mail(wf_watch *w, uint32_t from, uint64_t key,
                              uint64_t deadline_ns, wf_mail **out)
{
    uint64_t grace_ns = 0;
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&w->lock);
    while ((*out = find_mail(w, from, key)) == NULL && st == WEFT_OK) {
        uint64_t until = deadline_ns;

        st = check_sender(w, from, &grace_ns);
        if (grace_ns != 0 && grace_ns < until) {
            until = grace_ns;
        }
        if (st == WEFT_OK && !await_news(w, until) &&
            wf_now_ns() >= deadline_ns) {
            *out = find_mail(w, from, key);
            st = *out != NULL
                     ? WEFT_OK
                     : wf_fail(WEFT_ERR_TIMEOUT,
                               "rank %u (pid %d on %s) did not answer in time",
                               from, w->host->peer[from].pid,
                               w->host->peer[from].host);
            break;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return st;
}

weft_status wf_host_take(wf_host *host, uint32_t from, uint64_t key, void *data,
                         size_t *n, int *fd, uint64_t deadline_ns)
{
    wf_mail *m;
    weft_status st = await_mail(host->watch, from, key, deadline_ns, &m);

    if (st != WEFT_OK) {
        return st;
    }
    if (m->bytes > *n) {
        mail_free(m);
        return wf_fail(WEFT_ERR_PROTOCOL, "mail from rank %u is too long",
                       from);
    }
    if (m->fd == WF_FD_LOST) {
        mail_free(m);
        return wf_link_fail_lost(from);
    }
    memcpy(data, m->data, m->bytes);
    *n = m->bytes;
    if (fd != NULL) {
        *fd = m->fd;
        m->fd = -1;
    }
    mail_free(m);
    return WEFT_OK;
}
