/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/mpi/net.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "boot/mpi.h"

/* For MPI_Comm_create_group, whose messages go over MPI_COMM_WORLD. */
#define GROUP_TAG 0x5745

/* How many communicators that are no longer used are kept. */
#define CLOSED 16

/* A request that outlived its port. */
typedef struct net_kept {
    struct net_kept *next;
    MPI_Request request;
    void *memory;
} net_kept;

/* MPI belongs to the process, and so does this. */
static struct {
    pthread_mutex_t start;
    pthread_mutex_t calls;
    bool started;
    bool ours;   /* we have initialised it */
    bool shared; /* it allows one thread at a time only */
    int rank;
    int size;
    pid_t pid;
    net_kept *kept;
    MPI_Comm closed[CLOSED]; /* communicators of ports that were closed */
    unsigned closings;
} net = {.start = PTHREAD_MUTEX_INITIALIZER,
         .calls = PTHREAD_MUTEX_INITIALIZER};

void mp_net_lock(void)
{
    if (net.shared) {
        pthread_mutex_lock(&net.calls);
    }
}

void mp_net_unlock(void)
{
    if (net.shared) {
        pthread_mutex_unlock(&net.calls);
    }
}

weft_status mp_net_fail(weft_status status, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;

    MPI_Error_string(code, text, &n);
    return wf_fail(status, "%s: %s", what, text);
}

bool mp_net_is_too_long(int code)
{
    int class = MPI_SUCCESS;

    return code != MPI_SUCCESS &&
           MPI_Error_class(code, &class) == MPI_SUCCESS &&
           class == MPI_ERR_TRUNCATE;
}

/* --- requests that nobody waits for --------------------------------------- */

/* Free what is over; how many are left. Called under the lock. */
static unsigned kept_test(void)
{
    net_kept **at = &net.kept;
    unsigned left = 0;

    while (*at != NULL) {
        net_kept *k = *at;
        int over = 0;

        if (MPI_Test(&k->request, &over, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
            !over) {
            left++;
            at = &k->next;
        } else {
            *at = k->next;
            wf_free(k->memory);
            wf_free(k);
        }
    }
    return left;
}

static void kept_add(MPI_Request request, void *memory)
{
    net_kept *k = wf_alloc(sizeof(*k));

    if (k != NULL) { /* MPI may be writing there: rather a leak */
        *k = (net_kept){net.kept, request, memory};
        net.kept = k;
    }
}

void mp_net_keep(MPI_Request request, void *memory)
{
    pthread_mutex_lock(&net.start);
    kept_add(request, memory);
    pthread_mutex_unlock(&net.start);
}

/* --- start and end -------------------------------------------------------- */

/* Receive and throw away what has come to a port that is closed. */
static void comm_drain(MPI_Comm comm)
{
    MPI_Message message;
    MPI_Request request;
    MPI_Status status;
    int there = 1;

    while (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &there, &message,
                       &status) == MPI_SUCCESS &&
           there) {
        int n = 0;
        void *scrap;

        MPI_Get_count(&status, MPI_BYTE, &n);
        scrap = wf_alloc((size_t)n + 1);
        if (MPI_Imrecv(scrap, scrap != NULL ? n : 0, MPI_BYTE, &message,
                       &request) == MPI_SUCCESS) {
            kept_add(request, scrap);
        }
    }
}

/* A rank that fails does not finalize: MPI_Finalize would wait for the others,
 * who wait for this rank. Its launcher ends the job. */
static void at_exit(int code, void *arg)
{
    uint64_t until = wf_now_ns() + WF_SEC;
    unsigned left;
    int over = 0;

    (void)arg;
    if (code != 0 || getpid() != net.pid ||
        MPI_Finalized(&over) != MPI_SUCCESS || over) {
        return;
    }
    for (unsigned i = 0; i < CLOSED; i++) {
        if (net.closed[i] != MPI_COMM_NULL) {
            comm_drain(net.closed[i]);
        }
    }
    do {
        left = kept_test();
    } while (left > 0 && wf_now_ns() < until);
    if (left > 0) {
        wf_log(WEFT_LOG_INFO, "rank %d of MPI: %u messages were never received",
               net.rank, left);
    }
    mp_net_finalize(net.rank);
}

static weft_status net_init(bool insist)
{
    int level = MPI_THREAD_SINGLE;
    int code;
    weft_status st = wf_boot_mpi_wanted(insist);

    if (st != WEFT_OK) {
        return st;
    }
    /* A program may use MPI, too, without knowing of our threads. */
    code = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (code != MPI_SUCCESS) {
        return mp_net_fail(WEFT_ERR_UNSUPPORTED, "MPI_Init_thread", code);
    }
    net.ours = true;
    net.pid = getpid();
    /* MPICH reports what fails in MPI_Testsome to these, whatever communicator
     * the requests belong to. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (on_exit(at_exit, NULL) != 0) {
        wf_log(WEFT_LOG_WARN, "MPI will not be finalized: no room for on_exit");
    }
    return WEFT_OK;
}

static weft_status net_check_level(void)
{
    int level = MPI_THREAD_SINGLE;

    MPI_Query_thread(&level);
    net.shared = level == MPI_THREAD_SERIALIZED;
    return level == MPI_THREAD_SERIALIZED || level == MPI_THREAD_MULTIPLE
               ? WEFT_OK
               : wf_fail(WEFT_ERR_UNSUPPORTED,
                         "MPI was initialised for %s, and transport mpi needs "
                         "MPI_THREAD_SERIALIZED at least: call MPI_Init_thread "
                         "with MPI_THREAD_MULTIPLE",
                         level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
                                                      : "MPI_THREAD_SINGLE");
}

static weft_status net_begin(bool insist)
{
    int flag = 0;
    weft_status st = WEFT_OK;

    MPI_Finalized(&flag);
    if (flag) {
        return wf_fail(WEFT_ERR_UNSUPPORTED, "MPI was finalized before");
    }
    MPI_Initialized(&flag);
    if (!flag) {
        st = net_init(insist);
    }
    if (st == WEFT_OK) {
        st = net_check_level();
    }
    if (st != WEFT_OK) {
        return st;
    }
    net.pid = getpid();
    for (unsigned i = 0; i < CLOSED; i++) {
        net.closed[i] = MPI_COMM_NULL;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &net.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &net.size);
    net.started = true;
    return WEFT_OK;
}

weft_status mp_net_start(bool insist, mp_address *out)
{
    weft_status st = WEFT_OK;
    int over = 0;

    pthread_mutex_lock(&net.start);
    if (!net.started) {
        st = net_begin(insist);
    } else if (getpid() != net.pid) {
        st = wf_fail(WEFT_ERR_UNSUPPORTED,
                     "MPI cannot be used in a forked child");
    } else if (MPI_Finalized(&over) != MPI_SUCCESS || over) {
        st = wf_fail(WEFT_ERR_UNSUPPORTED, "MPI was finalized before");
    }
    pthread_mutex_unlock(&net.start);
    if (st == WEFT_OK && net.size == 1) {
        st = wf_fail(WEFT_ERR_UNSUPPORTED,
                     "this MPI job has one process: mpirun of another MPI "
                     "library, or none, has started it");
    }
    if (st == WEFT_OK) {
        *out = (mp_address){.version = MP_ADDRESS_VERSION,
                            .rank = (uint32_t)net.rank,
                            .job = wf_boot_mpi_job()};
    }
    return st;
}

int mp_net_size(void)
{
    return net.size;
}

/* --- communicators -------------------------------------------------------- */

static int group_create(const int *ranks, int n, MPI_Comm *out)
{
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Group some = MPI_GROUP_NULL;
    int code = MPI_Comm_group(MPI_COMM_WORLD, &all);

    if (code == MPI_SUCCESS) {
        code = MPI_Group_incl(all, n, ranks, &some);
        MPI_Group_free(&all);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_create_group(MPI_COMM_WORLD, some, GROUP_TAG, out);
        MPI_Group_free(&some);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
    }
    return code;
}

weft_status mp_net_group(const int *ranks, int n, MPI_Comm *out)
{
    int code;

    mp_net_lock();
    code = group_create(ranks, n, out);
    mp_net_unlock();
    return code == MPI_SUCCESS
               ? WEFT_OK
               : mp_net_fail(WEFT_ERR_SYSTEM, "a communicator of MPI", code);
}

/* Peers may have frames under way to a port that closes. Open MPI would hand
 * them to the next communicator that gets the number of this one, and index
 * arrays with the rank of their sender there; so it keeps its number. MPICH has
 * fewer numbers, but delivers such frames, and the number of the job in each
 * shows what they are; so the oldest ones are freed. */
#ifdef OPEN_MPI
static const bool comms_are_freed = false;
#else
static const bool comms_are_freed = true;
#endif

/* Called under the lock. */
static void comm_close(MPI_Comm comm)
{
    unsigned at = net.closings++ % CLOSED;

    if (net.closed[at] != MPI_COMM_NULL && comms_are_freed) {
        comm_drain(net.closed[at]);
        MPI_Comm_free(&net.closed[at]);
    }
    net.closed[at] = comm;
}

void mp_net_free(MPI_Comm *comm)
{
    int over = 0;

    if (MPI_Finalized(&over) != MPI_SUCCESS || over) {
        return;
    }
    pthread_mutex_lock(&net.start);
    mp_net_lock();
    (void)kept_test();
    if (*comm != MPI_COMM_NULL) {
        comm_close(*comm);
    }
    mp_net_unlock();
    pthread_mutex_unlock(&net.start);
}
