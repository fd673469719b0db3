/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/seat.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "boot/launcher.h"
#include "boot/name.h"

struct wf_boot_seat {
    wf_boot_seat *next;
    wf_boot_name name;
    unsigned worlds;
    int fd; /* -1 in a forked child */
};

/* The launcher's variables belong to the process, so its seats do, too. A fork
 * handler gets no argument either. */
static pthread_mutex_t seats_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t seats_watched = PTHREAD_ONCE_INIT;
static wf_boot_seat *seats;

static void before_fork(void)
{
    pthread_mutex_lock(&seats_lock);
}

static void after_in_parent(void)
{
    pthread_mutex_unlock(&seats_lock);
}

/* The worlds that the child has copies of free the memory. */
static void after_in_child(void)
{
    for (wf_boot_seat *s = seats; s != NULL; s = s->next) {
        close(s->fd);
        s->fd = -1;
    }
    seats = NULL;
    pthread_mutex_unlock(&seats_lock);
}

static void seats_watch(void)
{
    pthread_atfork(before_fork, after_in_parent, after_in_child);
}

/* A job that has no name but its directory is identified by the directory's
 * device and inode, wherever that is mounted. `keeper`: the process that keeps
 * the rank; 0: the one that has taken it. */
static void seat_set_name(const wf_boot_launch *launch, pid_t keeper,
                          wf_boot_name *out)
{
    const char *path = wf_boot_env("WEFT_BOOT_DIR");
    struct stat dir = {0};
    char text[sizeof(launch->job) + 128];
    int n;

    if (path != NULL) {
        (void)stat(path, &dir); /* opening it will tell what is wrong */
    }
    n = snprintf(text, sizeof(text), "%s:%s/%u/%llu:%llu/%d", launch->launcher,
                 launch->job, launch->rank, (unsigned long long)dir.st_dev,
                 (unsigned long long)dir.st_ino, (int)keeper);
    wf_boot_name_of("seat", text, (size_t)n, out);
}

/* A process in another container has no number here. */
static weft_status seat_fail(const wf_boot_launch *launch, pid_t pid)
{
    char who[32] = "another process";

    if (pid > 0) {
        snprintf(who, sizeof(who), "process %d", (int)pid);
    }
    return wf_fail(WEFT_ERR_CLOSED,
                   "%s is already rank %u of the job '%s': two processes were "
                   "given the same rank, or one is a forked or spawned child "
                   "of the other, which is no rank. A child can use what was "
                   "shared with it, or be a job of one rank "
                   "(weft.init('alone')); another job needs a name of its own "
                   "(WEFT_JOB)",
                   who, launch->rank, launch->job);
}

/* `*fd` becomes the socket, or stays -1 where there can be none. */
static weft_status seat_listen(const wf_boot_launch *launch,
                               const wf_boot_name *name, int *fd)
{
    wf_boot_holder holder;

    if (wf_boot_name_listen(name, fd, &holder) != WEFT_OK) {
        wf_log(WEFT_LOG_INFO,
               "boot: rank %u cannot be guarded against duplicates: %s",
               launch->rank, weft_error_detail());
        *fd = -1;
        return WEFT_OK;
    }
    return *fd >= 0 ? WEFT_OK : seat_fail(launch, holder.pid);
}

static wf_boot_seat *seat_find(const wf_boot_name *name)
{
    const char *text = name->address.sun_path + 1;
    wf_boot_seat *s = seats;

    while (s != NULL && strcmp(s->name.address.sun_path + 1, text) != 0) {
        s = s->next;
    }
    return s;
}

/* With the lock held. */
static weft_status seat_take(const wf_boot_launch *launch, pid_t keeper,
                             wf_boot_seat **out)
{
    wf_boot_name name;
    wf_boot_seat *seat;
    int fd = -1;
    weft_status st;

    seat_set_name(launch, keeper, &name);
    seat = seat_find(&name);
    if (seat != NULL) {
        seat->worlds++;
        *out = seat;
        return WEFT_OK;
    }
    st = seat_listen(launch, &name, &fd);
    if (st != WEFT_OK || fd < 0) {
        return st;
    }
    seat = wf_zalloc(sizeof(*seat));
    if (seat == NULL) {
        close(fd);
        return wf_fail_nomem("the seat of a rank");
    }
    *seat = (wf_boot_seat){.next = seats, .name = name, .worlds = 1, .fd = fd};
    seats = seat;
    *out = seat;
    return WEFT_OK;
}

static weft_status seat_claim(const wf_boot_launch *launch, pid_t keeper,
                              wf_boot_seat **out)
{
    weft_status st;

    pthread_once(&seats_watched, seats_watch);
    pthread_mutex_lock(&seats_lock);
    st = seat_take(launch, keeper, out);
    pthread_mutex_unlock(&seats_lock);
    return st;
}

/* Does an ancestor of this process keep the rank? */
static weft_status check_ancestors(const wf_boot_launch *launch)
{
    weft_status st = WEFT_OK;

    for (pid_t pid = getppid(); pid > 1 && st == WEFT_OK;
         pid = wf_boot_parent_of(pid)) {
        wf_boot_holder holder = {0};
        wf_boot_name name;
        int fd = -1;

        seat_set_name(launch, pid, &name);
        if (wf_boot_name_connect(&name, false, &fd, &holder) == WEFT_OK &&
            fd >= 0) {
            close(fd);
            st = holder.pid == pid ? seat_fail(launch, pid) : WEFT_OK;
        }
    }
    return st;
}

weft_status wf_boot_seat_take(wf_boot_seat **out)
{
    wf_boot_launch launch;
    weft_status st = wf_boot_read_launch(&launch);

    *out = NULL;
    if (st != WEFT_OK || launch.ranks == 1) {
        return st;
    }
    st = check_ancestors(&launch);
    return st == WEFT_OK ? seat_claim(&launch, 0, out) : st;
}

void wf_boot_seat_keep(uint32_t rank, uint32_t ranks, wf_boot_seat **out)
{
    wf_boot_launch launch;

    *out = NULL;
    if (ranks > 1 && wf_boot_read_launch(&launch) == WEFT_OK &&
        launch.rank == rank && launch.ranks == ranks) {
        (void)seat_claim(&launch, getpid(), out);
    }
}

void wf_boot_seat_leave(wf_boot_seat *seat)
{
    wf_boot_seat **at = &seats;

    if (seat == NULL) {
        return;
    }
    pthread_mutex_lock(&seats_lock);
    seat->worlds--;
    if (seat->worlds == 0) {
        while (*at != NULL && *at != seat) {
            at = &(*at)->next;
        }
        if (*at == seat) {
            *at = seat->next;
        }
        if (seat->fd >= 0) {
            /* A child on its way to exec may have the socket for a moment. */
            shutdown(seat->fd, SHUT_RDWR);
            close(seat->fd);
        }
        wf_free(seat);
    }
    pthread_mutex_unlock(&seats_lock);
}
