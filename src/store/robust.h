/* SPDX-License-Identifier: Apache-2.0 */
/* A lock in shared memory that outlives its holder: if that dies, the next one
 * gets it, and what it protects must be sound at every moment. */
#ifndef WF_STORE_ROBUST_H
#define WF_STORE_ROBUST_H

#include <errno.h>
#include <pthread.h>

/* Both return 0 or an errno. */
static inline int wf_robust_init(pthread_mutex_t *lock)
{
    pthread_mutexattr_t robust;
    int bad;

    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    bad = pthread_mutex_init(lock, &robust);
    pthread_mutexattr_destroy(&robust);
    return bad;
}

/* `got`: what pthread_mutex_lock or pthread_mutex_timedlock returned. */
static inline int wf_robust_got(pthread_mutex_t *lock, int got)
{
    return got == EOWNERDEAD ? pthread_mutex_consistent(lock) : got;
}

#endif
