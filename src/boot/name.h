/* SPDX-License-Identifier: Apache-2.0 */
/* Names of this host under which processes of one user find each other, and
 * which no other user can take away.
 *
 * A name is an abstract Unix address with the user's number and a hash of what
 * both sides know. It needs no file and goes with its holder, but others can
 * work it out and be there first, or fill its queue. So:
 *
 *  1. Whoever is to listen takes the name itself if it is free. If a process of
 *     another user has it, or one that does not answer, it listens at a
 *     stand-in instead: the name with a random number behind it.
 *  2. Whoever looks for the listener tries the name, then the stand-ins that
 *     the kernel lists in /proc/self/net/unix.
 *  3. Whose a socket is, the kernel tells. Those of other users are passed
 *     over, however many there are. A full queue says nothing of that; whose it
 *     is then shows in /proc, among the open files of this user's processes. */
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
    pid_t pid; /* 0: it cannot be told, or there is none */
    uid_t uid;
} wf_boot_holder;

/* The name of this user for `n` bytes of any content; `kind` is a word that
 * tells apart what names are for. */
void wf_boot_name_of(const char *kind, const void *bytes, size_t n,
                     wf_boot_name *out);

/* Listen at the name or at a stand-in. `*fd` is the socket, or -1 if the
 * process `*holder` of this user listens there. WEFT_ERR_DENIED names another
 * user's process that has the name, where no stand-in could be found. */
weft_status wf_boot_name_listen(const wf_boot_name *name, int *fd,
                                wf_boot_holder *holder);

/* Try once to connect to the process of this user that listens there, at the
 * name itself only unless `search` is set or somebody else has that. `*fd` is
 * -1 if there is none; `*holder` is then a process of another user that has
 * the name, if one has. */
weft_status wf_boot_name_connect(const wf_boot_name *name, bool search, int *fd,
                                 wf_boot_holder *holder);

/* The stand-in for `name` that listens by this line of the kernel's list, if it
 * is one: "address: references protocol flags type state inode @text". Anybody
 * may have chosen the text. */
bool wf_boot_name_parse(const char *line, const wf_boot_name *name,
                        wf_boot_name *out);

#endif
