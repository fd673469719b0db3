/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/name.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/secret.h"
#include "base/status.h"
#include "boot/conn.h"

/* A name that is taken but where nobody answers has a holder that is about to
 * listen, that has just left, or whose queue is full; a moment later it is
 * clear, unless somebody wants it to stay so. */
enum { TRIES = 20, PAUSE_NS = 1000000 };

/* Hexadecimal digits of the random number of a fallback. */
enum { RANDOM_DIGITS = 32 };

static const char list_path[] = "/proc/self/net/unix";

typedef enum name_found {
    NAME_NOBODY, /* nobody listens */
    NAME_OURS,
    NAME_FOREIGN,
    NAME_SILENT /* its backlog is full, so its owner is unknown */
} name_found;

/* What follows the zero byte with which an abstract address begins. */
static const char *name_text(const wf_boot_name *name)
{
    return name->address.sun_path + 1;
}

static void name_set(wf_boot_name *name, const char *text)
{
    size_t n = strlen(text);

    memset(name, 0, sizeof(*name));
    name->address.sun_family = AF_UNIX;
    memcpy(name->address.sun_path + 1, text, n);
    name->n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

void wf_boot_name_of(const char *kind, const void *bytes, size_t n,
                     wf_boot_name *out)
{
    static const wf_secret fixed = {{0x6f6e206f6e652068u, 0x6f73740000000001u}};
    char text[64];

    snprintf(text, sizeof(text), "weft-%.16s-%u-%016llx", kind,
             (unsigned)geteuid(),
             (unsigned long long)wf_keyed_hash(&fixed, bytes, n));
    name_set(out, text);
}

static weft_status name_socket(int *fd)
{
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return *fd >= 0 ? WEFT_OK : wf_fail_errno("boot socket");
}

/* --- looking for a listener ---------------------------------------------- */

/* Try one address. `*fd` is a connection to a process of this user, or -1. */
static weft_status name_try(const wf_boot_name *name, int *fd,
                            wf_boot_holder *holder, name_found *out)
{
    weft_status st = name_socket(fd);
    name_found found = NAME_NOBODY;

    if (st != WEFT_OK) {
        return st;
    }
    *holder = (wf_boot_holder){0};
    if (connect(*fd, (const struct sockaddr *)&name->address, name->n) == 0) {
        st = wf_conn_peer(*fd, &holder->pid, &holder->uid);
        found = holder->uid == geteuid() ? NAME_OURS : NAME_FOREIGN;
    } else if (errno == EAGAIN) {
        found = NAME_SILENT;
    } else if (errno != ECONNREFUSED && errno != EPROTOTYPE && errno != EINTR) {
        st = wf_fail_errno("connect to %s", name_text(name));
    }
    if (st != WEFT_OK || found != NAME_OURS) {
        close(*fd);
        *fd = -1;
    }
    *out = found;
    return st;
}

/* Of a line of the list, if its socket listens at an abstract address. */
typedef struct listed {
    unsigned long inode;
    char text[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
} listed;

static bool listed_parse(const char *line, listed *out)
{
    static const unsigned long listens = 0x10000;
    unsigned long flags = 0;

    return sscanf(line, "%*s %*s %*s %lx %*s %*s %lu @%106s", &flags,
                  &out->inode, out->text) == 3 &&
           (flags & listens) != 0;
}

bool wf_boot_name_parse(const char *line, const wf_boot_name *name,
                        wf_boot_name *out)
{
    size_t n = strlen(name_text(name));
    listed one;

    if (!listed_parse(line, &one) ||
        strncmp(one.text, name_text(name), n) != 0 || one.text[n] != '-' ||
        strspn(one.text + n + 1, "0123456789abcdef") != RANDOM_DIGITS ||
        one.text[n + 1 + RANDOM_DIGITS] != '\0') {
        return false;
    }
    name_set(out, one.text);
    return true;
}

/* Give each line of the list to `is_it`, until that says yes. */
static bool list_search(bool (*is_it)(void *arg, const char *line), void *arg)
{
    FILE *list = fopen(list_path, "re");
    bool found = false;
    char *line = NULL;
    size_t room = 0;

    while (list != NULL && !found && getline(&line, &room, list) > 0) {
        found = is_it(arg, line);
    }
    free(line);
    if (list != NULL) {
        fclose(list);
    }
    return found;
}

typedef struct stand_in_search {
    const wf_boot_name *name;
    weft_status st;
    int fd;
    wf_boot_holder holder;
} stand_in_search;

/* Is it one of ours, or is there no use in going on? */
static bool stand_in_answers(void *arg, const char *line)
{
    stand_in_search *search = arg;
    name_found found = NAME_NOBODY;
    wf_boot_name one;

    if (wf_boot_name_parse(line, search->name, &one)) {
        search->st = name_try(&one, &search->fd, &search->holder, &found);
    }
    return search->st != WEFT_OK || found == NAME_OURS;
}

static weft_status name_look(const wf_boot_name *name, bool far, int *fd,
                             wf_boot_holder *holder, name_found *out)
{
    stand_in_search search = {.name = name, .fd = -1};
    weft_status st = name_try(name, fd, holder, out);

    if (st != WEFT_OK || *out == NAME_OURS || (*out == NAME_NOBODY && !far)) {
        return st;
    }
    if (list_search(stand_in_answers, &search) && search.st == WEFT_OK) {
        *fd = search.fd;
        *holder = search.holder;
        *out = NAME_OURS;
    }
    return search.st;
}

weft_status wf_boot_name_connect(const wf_boot_name *name, bool search, int *fd,
                                 wf_boot_holder *holder)
{
    name_found found;

    return name_look(name, search, fd, holder, &found);
}

/* --- listening ------------------------------------------------------------ */

static weft_status name_bind(const wf_boot_name *name, int *fd)
{
    weft_status st = name_socket(fd);

    if (st != WEFT_OK) {
        return st;
    }
    if (bind(*fd, (const struct sockaddr *)&name->address, name->n) != 0) {
        bool taken = errno == EADDRINUSE;

        st = taken ? WEFT_OK : wf_fail_errno("bind %s", name_text(name));
        close(*fd);
        *fd = -1;
    } else if (listen(*fd, SOMAXCONN) != 0) {
        st = wf_fail_errno("listen at %s", name_text(name));
        close(*fd);
        *fd = -1;
    }
    return st;
}

static bool is_listed(void *arg, const char *line)
{
    const wf_boot_name *own = arg;
    listed one;

    return listed_parse(line, &one) && strcmp(one.text, name_text(own)) == 0;
}

static weft_status stand_in_listen(const wf_boot_name *name, int *fd,
                                   const wf_boot_holder *holder)
{
    uint64_t random[2];
    wf_boot_name own;
    char text[sizeof(own.address.sun_path)];
    weft_status st = wf_random(random, sizeof(random));

    if (st != WEFT_OK) {
        return st;
    }
    snprintf(text, sizeof(text), "%.64s-%016llx%016llx", name_text(name),
             (unsigned long long)random[0], (unsigned long long)random[1]);
    name_set(&own, text);
    st = name_bind(&own, fd);
    /* Can others find it? */
    if (st == WEFT_OK && *fd >= 0 && list_search(is_listed, &own)) {
        wf_log(WEFT_LOG_INFO,
               "boot: %s is held by process %d of user %u; listening at %s",
               name_text(name), (int)holder->pid, (unsigned)holder->uid, text);
        return WEFT_OK;
    }
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return st != WEFT_OK
               ? st
               : wf_fail(WEFT_ERR_DENIED,
                         "the address %s is held by process %d of user %u, and "
                         "%s does not list another one; choose another name "
                         "for the job (WEFT_JOB)",
                         name_text(name), (int)holder->pid,
                         (unsigned)holder->uid, list_path);
}

/* --- who has a name whose queue is full ------------------------------------
 */

typedef struct inode_search {
    const wf_boot_name *name;
    unsigned long inode;
} inode_search;

static bool has_inode(void *arg, const char *line)
{
    inode_search *search = arg;
    listed one;

    if (!listed_parse(line, &one) ||
        strcmp(one.text, name_text(search->name)) != 0) {
        return false;
    }
    search->inode = one.inode;
    return true;
}

/* Has a process the socket open? `fds` is its folder in /proc. */
static bool process_has(const char *fds, unsigned long inode)
{
    DIR *dir = opendir(fds);
    const struct dirent *e;
    bool found = false;
    char wanted[64];
    char link[64];

    snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
    while (dir != NULL && !found && (e = readdir(dir)) != NULL) {
        ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

        link[n > 0 ? n : 0] = '\0';
        found = strcmp(link, wanted) == 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

/* The process of this user that has it, or 0. This takes long. */
static pid_t silent_holder(const wf_boot_name *name)
{
    inode_search search = {.name = name};
    DIR *dir = list_search(has_inode, &search) ? opendir("/proc") : NULL;
    const struct dirent *e;
    pid_t found = 0;

    while (dir != NULL && found == 0 && (e = readdir(dir)) != NULL) {
        char fds[sizeof("/proc//fd") + sizeof(e->d_name)];
        struct stat s;

        snprintf(fds, sizeof(fds), "/proc/%s/fd", e->d_name);
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' &&
            fstatat(dirfd(dir), e->d_name, &s, 0) == 0 &&
            s.st_uid == geteuid() && process_has(fds, search.inode)) {
            found = (pid_t)atoi(e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

weft_status wf_boot_name_listen(const wf_boot_name *name, int *fd,
                                wf_boot_holder *holder)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    name_found found = NAME_NOBODY;
    weft_status st = WEFT_OK;

    for (unsigned i = 0; i < TRIES && st == WEFT_OK; i++) {
        st = name_bind(name, fd);
        if (st != WEFT_OK || *fd >= 0) {
            return st;
        }
        st = name_look(name, true, fd, holder, &found);
        if (st == WEFT_OK && found == NAME_OURS) {
            close(*fd);
            *fd = -1;
            return WEFT_OK;
        }
        if (found == NAME_FOREIGN) {
            break;
        }
        nanosleep(&pause, NULL);
    }
    if (st == WEFT_OK && found == NAME_SILENT) {
        *holder = (wf_boot_holder){silent_holder(name), geteuid()};
        if (holder->pid != 0) {
            return WEFT_OK;
        }
    }
    return st != WEFT_OK ? st : stand_in_listen(name, fd, holder);
}
