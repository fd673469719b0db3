/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Hexadecimal digits of the random number of a stand-in. */
enum { RANDOM_DIGITS = 32 };

static const char list_path[] = "/proc/self/net/unix";

typedef enum name_found {
    NAME_NOBODY, /* nobody listens */
    NAME_OURS,
    NAME_FOREIGN,
    NAME_SILENT /* its queue is full, so it cannot be told whose it is */
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
    } else if (errno != ECONNREFUSED && errno != EINTR) {
        st = wf_fail_errno("connect to %s", name_text(name));
    }
    if (st != WEFT_OK || found != NAME_OURS) {
        close(*fd);
        *fd = -1;
    }
    *out = found;
    return st;
}

bool wf_boot_name_parse(const char *line, const wf_boot_name *name,
                        wf_boot_name *out)
{
    static const unsigned long listens = 0x10000;
    size_t n = strlen(name_text(name));
    char text[sizeof(out->address.sun_path)];
    unsigned long flags = 0;

    if (sscanf(line, "%*s %*s %*s %lx %*s %*s %*s @%106s", &flags, text) != 2 ||
        (flags & listens) == 0 || strncmp(text, name_text(name), n) != 0 ||
        text[n] != '-' ||
        strspn(text + n + 1, "0123456789abcdef") != RANDOM_DIGITS ||
        text[n + 1 + RANDOM_DIGITS] != '\0') {
        return false;
    }
    name_set(out, text);
    return true;
}

/* Go through the stand-ins until one is ours. */
static weft_status stand_ins_try(const wf_boot_name *name, int *fd,
                                 wf_boot_holder *holder)
{
    FILE *list = fopen(list_path, "re");
    weft_status st = WEFT_OK;
    char *line = NULL;
    size_t room = 0;

    while (list != NULL && st == WEFT_OK && *fd < 0 &&
           getline(&line, &room, list) > 0) {
        wf_boot_holder other;
        wf_boot_name one;
        name_found found = NAME_NOBODY;

        if (wf_boot_name_parse(line, name, &one)) {
            st = name_try(&one, fd, &other, &found);
        }
        if (found == NAME_OURS) {
            *holder = other;
        }
    }
    free(line);
    if (list != NULL) {
        fclose(list);
    }
    return st;
}

static weft_status name_look(const wf_boot_name *name, bool search, int *fd,
                             wf_boot_holder *holder, name_found *out)
{
    weft_status st = name_try(name, fd, holder, out);

    if (st != WEFT_OK || *out == NAME_OURS ||
        (*out == NAME_NOBODY && !search)) {
        return st;
    }
    st = stand_ins_try(name, fd, holder);
    *out = *fd >= 0 ? NAME_OURS : *out;
    return st;
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

/* Can others find it? */
static bool stand_in_is_listed(const wf_boot_name *name,
                               const wf_boot_name *own)
{
    FILE *list = fopen(list_path, "re");
    bool found = false;
    char *line = NULL;
    size_t room = 0;

    while (list != NULL && !found && getline(&line, &room, list) > 0) {
        wf_boot_name one;

        found = wf_boot_name_parse(line, name, &one) &&
                strcmp(name_text(&one), name_text(own)) == 0;
    }
    free(line);
    if (list != NULL) {
        fclose(list);
    }
    return found;
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
    if (st == WEFT_OK && *fd >= 0 && stand_in_is_listed(name, &own)) {
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
    return st != WEFT_OK ? st : stand_in_listen(name, fd, holder);
}
