/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/watch.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/time.h"
#include "boot/conn.h"
#include "mem/mailbox.h"

/* How often the thread asks for memory that it lacks. */
#define STARVED_PAUSE_MS 10
#define EVENTS 32

struct wf_watch {
    wf_host *host;
    pthread_t thread;
    bool running;
    int epoll;
    int own;    /* another epoll, of this rank's own descriptors; in the first
                 * one unless another thread sleeps on it */
    int stop;   /* eventfd */
    int rouse;  /* eventfd, in `own` */
    int *pidfd; /* by local index, or -1 */
};

/* What epoll hands back: the low half is the local index. */
enum { EVENT_LINK = 0, EVENT_PIDFD = 1, EVENT_STOP = 2, EVENT_OWN = 3 };

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

weft_status wf_watch_create(wf_host *host, wf_watch **out)
{
    wf_watch *w = wf_zalloc(sizeof(*w));

    if (w == NULL) {
        return wf_fail_nomem("the watching thread");
    }
    w->pidfd = wf_alloc(host->count * sizeof(*w->pidfd));
    if (w->pidfd == NULL) {
        wf_free(w);
        return wf_fail_nomem("the watching thread");
    }
    for (uint32_t i = 0; i < host->count; i++) {
        w->pidfd[i] = -1;
    }
    w->host = host;
    w->epoll = -1;
    w->own = -1;
    w->stop = -1;
    w->rouse = -1;
    *out = w;
    return WEFT_OK;
}

/* As a network would, this tells the one who was connected, and nobody else. */
static void peer_parted(wf_host *h, uint32_t rank)
{
    if (!atomic_exchange(&h->peer[rank].parted, true)) {
        atomic_fetch_add(&h->parted, 1);
        wf_board_ring_all(wf_host_own(h));
    }
}

static void peer_gone(wf_watch *w, uint32_t local, bool ended)
{
    wf_host *h = w->host;
    uint32_t rank = h->rank_of[local];

    if (!wf_host_same_node(h, rank)) {
        peer_parted(h, rank);
        ended = false; /* there is mail beside that of its socket */
    } else {
        if (wf_board_end(h->board, rank, WF_BOARD_DEAD)) {
            atomic_store(&h->found, true);
            wf_log(WEFT_LOG_INFO, "rank %u (pid %d) died", rank,
                   h->peer[rank].pid);
        }
        wf_host_alarm(h);
    }
    wf_mailbox_gone(h->mailbox, rank, ended);
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
        wf_mailbox_deliver(w->host->mailbox, &p, fd);
        return;
    }
    if (st == WEFT_OK && fd >= 0) {
        close(fd);
    }
    if (st != WEFT_OK) {
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->host->link[local], NULL);
        peer_gone(w, local, true);
    }
}

/* Take note of what is readable, so that it is not told again before it is
 * armed, and wake those who sleep for it. Are there any? */
static bool own_ready(wf_watch *w)
{
    struct epoll_event events[EVENTS];
    wf_host *h = w->host;
    bool driver = epoll_wait(w->own, events, EVENTS, 0) > 0 &&
                  atomic_load(&h->drivers_asleep) > 0;

    if (driver) {
        wf_board_wake(wf_host_own(h));
    }
    return driver;
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
                peer_gone(w, local, false);
            } else if (kind == EVENT_OWN) {
                (void)own_ready(w);
            } else if (wf_mailbox_ready(w->host->mailbox)) {
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

/* Keep a pidfd of each linked peer, where the kernel gives one. */
static void open_pidfds(wf_watch *w)
{
    wf_host *h = w->host;

    for (uint32_t i = 0; i < h->count; i++) {
        pid_t pid;
        uid_t user;

        if (h->link[i] >= 0 &&
            wf_conn_peer(h->link[i], &pid, &user) == WEFT_OK && pid > 0 &&
            pid != getpid()) {
            w->pidfd[i] = (int)syscall(SYS_pidfd_open, pid, 0);
        }
    }
}

static weft_status watch_everything(wf_watch *w)
{
    struct epoll_event rouse = {.events = EPOLLIN | EPOLLET};
    weft_status st = watch_fd(w, w->stop, EVENT_STOP, 0);

    if (st == WEFT_OK) {
        st = watch_fd(w, w->own, EVENT_OWN, 0);
    }
    if (st == WEFT_OK &&
        epoll_ctl(w->own, EPOLL_CTL_ADD, w->rouse, &rouse) != 0) {
        st = wf_fail_errno("watching ports");
    }
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
    w->own = epoll_create1(EPOLL_CLOEXEC);
    w->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->rouse = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll < 0 || w->own < 0 || w->stop < 0 || w->rouse < 0) {
        return wf_fail_errno("the watching thread");
    }
    open_pidfds(w);
    st = watch_everything(w);
    if (st == WEFT_OK) {
        st = wf_thread_start("the watching thread", watch_main, w, &w->thread);
    }
    w->running = st == WEFT_OK;
    return st;
}

/* A descriptor that hangs up is reported whatever was asked for, so that it is
 * armed from the start and fires once. */
static int own_event(const wf_watch *w, int op, int fd)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT};

    return epoll_ctl(w->own, op, fd, &e);
}

weft_status wf_watch_add(wf_watch *w, int fd)
{
    weft_status st = w->running ? WEFT_OK : wf_watch_start(w);

    if (st == WEFT_OK && own_event(w, EPOLL_CTL_ADD, fd) != 0) {
        st = wf_fail_errno("watching a port");
    }
    return st;
}

void wf_watch_arm(wf_watch *w, int fd)
{
    (void)own_event(w, EPOLL_CTL_MOD, fd);
}

void wf_watch_remove(wf_watch *w, int fd)
{
    (void)own_event(w, EPOLL_CTL_DEL, fd);
}

/* What a forked child has of these is its parent's. */
void wf_watch_take(wf_watch *w)
{
    if (w->running) {
        (void)epoll_ctl(w->epoll, EPOLL_CTL_DEL, w->own, NULL);
    }
}

void wf_watch_give(wf_watch *w)
{
    struct epoll_event e = {.events = EPOLLIN,
                            .data.u64 = event_of(EVENT_OWN, 0)};

    (void)epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->own, &e);
}

/* Not epoll_wait, which counts in milliseconds. */
bool wf_watch_sleep(wf_watch *w, uint64_t until_ns)
{
    uint64_t now = wf_now_ns();
    uint64_t nap = until_ns > now ? until_ns - now : 0;
    struct timespec t = {(time_t)(nap / WF_SEC), (long)(nap % WF_SEC)};
    struct pollfd p = {.fd = w->own, .events = POLLIN};

    return ppoll(&p, 1, &t, NULL) > 0 && own_ready(w);
}

static void tell(int eventfd)
{
    uint64_t one = 1;

    while (write(eventfd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

void wf_watch_rouse(wf_watch *w)
{
    tell(w->rouse);
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
    wf_mailbox_unlock(w->host->mailbox);
}

void wf_watch_destroy(wf_watch *w)
{
    if (w == NULL) {
        return;
    }
    if (w->running) {
        tell(w->stop);
        pthread_join(w->thread, NULL);
    }
    for (uint32_t i = 0; i < w->host->count; i++) {
        wf_close(w->pidfd[i]);
    }
    wf_close(w->epoll);
    wf_close(w->own);
    wf_close(w->stop);
    wf_close(w->rouse);
    wf_free(w->pidfd);
    wf_free(w);
}
