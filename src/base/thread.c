/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <signal.h>
#include <string.h>

#include "base/status.h"

static void all_but_faults(sigset_t *out)
{
    static const int faults[] = {SIGSEGV, SIGBUS,  SIGFPE,
                                 SIGILL,  SIGTRAP, SIGSYS};

    sigfillset(out);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        sigdelset(out, faults[i]);
    }
}

weft_status wf_thread_start(const char *what, void *(*main)(void *), void *arg,
                            pthread_t *out)
{
    sigset_t blocked;
    sigset_t before;
    int error;

    all_but_faults(&blocked);
    /* A thread is born with the mask of the one that makes it. */
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    error = pthread_create(out, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0
               ? WEFT_OK
               : wf_fail(WEFT_ERR_SYSTEM, "%s: %s", what, strerror(error));
}
