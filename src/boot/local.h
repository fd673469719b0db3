/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a host meet. */
#ifndef WF_BOOT_LOCAL_H
#define WF_BOOT_LOCAL_H

#include <sys/socket.h>
#include <sys/un.h>
#include <weft/status.h>

/* The abstract address of job `name` of this user, and its length. Names of
 * any length and content will do: the address has a hash of it. */
socklen_t wf_boot_local_address(const char *name, struct sockaddr_un *out);

#endif
