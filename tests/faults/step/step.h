/* SPDX-License-Identifier: Apache-2.0 */
/* Something happens to a rank at one of its system calls. The program that uses
 * this has functions of its own in place of those of the C library, so that the
 * calls that the library makes on the thread that asked for it are counted:
 * sendmsg (mail), memfd_create, open and close. */
#ifndef STEP_H
#define STEP_H

#include <stdbool.h>

typedef enum wt_step_kind {
    WT_STEP_KILL,  /* kill -9, before the call is made */
    WT_STEP_DENY,  /* a sendmsg fails; other calls are not counted */
    WT_STEP_STALL, /* a sendmsg waits for word WT_STEP_GO; likewise */
} wt_step_kind;

/* The words of the board that a stall uses: it has come, it may go on. */
enum { WT_STEP_STALLED = 126, WT_STEP_GO = 127 };

/* At the nth call from now, on this thread. */
void wt_step_arm(wt_step_kind kind, unsigned nth);

/* Switch it off. True if it was still waiting, so that there were fewer than
 * nth calls. */
bool wt_step_disarm(void);

#endif
