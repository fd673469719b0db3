/* SPDX-License-Identifier: Apache-2.0 */
/* Names of this host under which processes of one user find each other, and
 * which no other user can take away.
 *
 * A name is an abstract Unix address with the user's number and a hash of what
 * both sides know. It needs no file and vanishes with its holder, but other
 * users can compute it and bind it first, or fill its backlog. So:
 *
 *  1. The listener binds the name itself if it is free. If a process of another
 *     user has it, or one that does not answer, the listener binds a fallback
 *     instead: the name followed by a random number.
 *  2. A client tries the name, then the fallbacks that the kernel lists in
 *     /proc/self/net/unix.
 *  3. The kernel reports the owner of a connected socket (SO_PEERCRED). Sockets
 *     of other users are ignored, however many there are. Where a full backlog
 *     prevents connecting, the owner is found in /proc, among the open files of
 *     this user's processes. */
#ifndef WF_BOOT_NAME_H
#define WF_BOOT_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <weft/status.h>

typedef struct wf_boot_name {
    struct sockaddr_un address;
    socklen_t n;
} wf_boot_name;

/* The process at the other end. */
typedef struct wf_boot_holder {
    pid_t pid; /* 0: unknown, or there is none */
    uid_t uid;
} wf_boot_holder;

/* The name of this user for `n` bytes of any content; `kind` is a prefix that
 * separates the purposes of names. */
void wf_boot_name_of(const char *kind, const void *bytes, size_t n,
                     wf_boot_name *out);

/* Listen at the name or at a fallback. `*fd` is the socket, or -1 if the
 * process `*holder` of this user listens there. WEFT_ERR_DENIED names another
 * user's process that has the name, where no fallback could be bound. */
weft_status wf_boot_name_listen(const wf_boot_name *name, int *fd,
                                wf_boot_holder *holder);

/* Try once to connect to the process of this user that listens there.
 * Fallbacks are tried only if `search` is set or another user has the name.
 * `*fd` is -1 if there is no such process; `*holder` is then a process of
 * another user that has the name, if there is one. */
weft_status wf_boot_name_connect(const wf_boot_name *name, bool search, int *fd,
                                 wf_boot_holder *holder);

/* Is this line of /proc/self/net/unix ("address: references protocol flags type
 * state inode @text") a listening fallback for `name`? Any user may have chosen
 * the text. */
bool wf_boot_name_parse(const char *line, const wf_boot_name *name,
                        wf_boot_name *out);

#endif
