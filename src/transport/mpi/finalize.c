/* SPDX-License-Identifier: Apache-2.0 */
/* MPI_Finalize at the end of the process, and words for somebody who waits
 * there. MPICH before 4.2 over UCX can wait without end, in any program: ranks
 * that have closed their connections stop in a barrier of its process manager,
 * where they do not answer the ranks that are still closing theirs. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/thread.h"
#include "transport/mpi/net.h"

#define PATIENCE_SEC 10

typedef struct watch {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over;
    int rank;
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
} watch;

/* Releases of MPICH name their device in what they say of themselves. */
static bool may_hang(const char *version)
{
    unsigned major = 0;
    unsigned minor = 0;
    const char *at = strstr(version, "MPICH Version:");

    return at != NULL &&
           sscanf(at, "MPICH Version: %u.%u", &major, &minor) == 2 &&
           (major < 4 || (major == 4 && minor < 2)) &&
           strstr(version, "ch4:ucx") != NULL;
}

static void tell(const watch *w)
{
    wf_log(WEFT_LOG_WARN,
           "rank %d of MPI has been in MPI_Finalize for %d s; %s", w->rank,
           PATIENCE_SEC,
           may_hang(w->version)
               ? "MPICH before 4.2 over UCX can wait there without end, in any "
                 "program of three hosts and more: use a later one, Open MPI's "
                 "mpirun or torchrun"
               : "it waits for ranks that have not called it");
}

static void *watch_main(void *arg)
{
    watch *w = arg;
    struct timespec until;
    int st = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_SEC;
    pthread_mutex_lock(&w->lock);
    while (!w->over && st == 0) {
        st = pthread_cond_timedwait(&w->ended, &w->lock, &until);
    }
    if (!w->over) {
        tell(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

void mp_net_finalize(int rank)
{
    watch w = {.lock = PTHREAD_MUTEX_INITIALIZER,
               .ended = PTHREAD_COND_INITIALIZER,
               .rank = rank};
    pthread_t thread;
    int n = 0;
    bool watched;

    MPI_Get_library_version(w.version, &n);
    watched = wf_thread_start("watching MPI_Finalize", watch_main, &w,
                              &thread) == WEFT_OK;
    MPI_Finalize(); /* or others would wait there for this rank */
    if (watched) {
        pthread_mutex_lock(&w.lock);
        w.over = true;
        pthread_cond_signal(&w.ended);
        pthread_mutex_unlock(&w.lock);
        pthread_join(thread, NULL);
    }
}
