/* SPDX-License-Identifier: Apache-2.0 */
/* What another user of the machine may do to us. Only root can be two users. */
#ifndef WT_USER_H
#define WT_USER_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#define WT_NOBODY 65534u

/* A process of another user that listens at an address until it is killed.
 * `full`: it has filled its own queue, so that nobody can connect any more. */
pid_t wt_other_user_listens(const struct sockaddr_un *address, socklen_t n,
                            bool full);

/* Another user connects to an address until the queue there is full. */
void wt_other_user_fills(const struct sockaddr_un *address, socklen_t n);

#endif
