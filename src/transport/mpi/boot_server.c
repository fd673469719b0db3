/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of rank 0 that has the bootstrap table. It alone touches it. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"
#include "base/time.h"
#include "boot/table.h"
#include "transport/mpi/boot.h"

/* What the server knows of a rank: the question that it cannot answer yet, and
 * the answer that is on its way. */
typedef struct asker {
    bool done;
    bool waits;
    uint64_t id;
    char key[WF_BOOT_KEY_MAX + 1];
    mp_boot_answer answer;
    MPI_Request sent[2]; /* the answer and the value */
} asker;

struct mp_boot_server {
    MPI_Comm comm;
    int ranks;
    int left; /* ranks that are not done */
    unsigned waiting;
    bool failed;
    wf_boot_table table;
    pthread_t thread;
    _Atomic uint64_t until; /* when to give up; UINT64_MAX: never */
    asker asker[];
};

/* --- answers -------------------------------------------------------------- */

/* Is nothing on its way to this rank? */
static bool asker_idle(asker *a)
{
    MPI_Status status[2];
    int over = 0;

    mp_net_lock();
    MPI_Testall(2, a->sent, &over, status);
    mp_net_unlock();
    return over != 0;
}

/* A rank asks again only when it has the last answer, or has given it up and
 * will throw it away; either way it takes it. */
static void answer(mp_boot_server *s, int rank, const wf_boot_entry *e)
{
    asker *a = &s->asker[rank];

    while (!asker_idle(a)) {
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    mp_net_lock();
    a->answer = (mp_boot_answer){.id = a->id, .n = e->n};
    MPI_Isend(&a->answer, sizeof(a->answer), MPI_BYTE, rank, MP_BOOT_ANSWER,
              s->comm, &a->sent[0]);
    MPI_Isend(e->value, (int)e->n, MPI_BYTE, rank, MP_BOOT_VALUE, s->comm,
              &a->sent[1]);
    mp_net_unlock();
}

static void answer_waiting(mp_boot_server *s, const char *key)
{
    const wf_boot_entry *e = wf_boot_table_find(&s->table, key);

    for (int r = 0; r < s->ranks && s->waiting > 0 && e != NULL; r++) {
        asker *a = &s->asker[r];

        if (a->waits && strcmp(a->key, key) == 0) {
            a->waits = false;
            s->waiting--;
            answer(s, r, e);
        }
    }
}

/* --- questions ------------------------------------------------------------ */

static weft_status serve_set(mp_boot_server *s, const mp_boot_head *h,
                             const void *value)
{
    weft_status st = wf_boot_table_put(&s->table, h->key, value, h->n);

    if (st == WEFT_OK) {
        answer_waiting(s, h->key);
    }
    return st;
}

static void serve_get(mp_boot_server *s, int rank, const mp_boot_head *h)
{
    const wf_boot_entry *e = wf_boot_table_find(&s->table, h->key);
    asker *a = &s->asker[rank];

    a->id = h->id;
    if (e != NULL) {
        s->waiting -= a->waits;
        a->waits = false;
        answer(s, rank, e);
        return;
    }
    s->waiting += !a->waits;
    a->waits = true;
    memcpy(a->key, h->key, sizeof(a->key));
}

/* `n` bytes from a rank; WEFT_ERR_PROTOCOL if they are none of ours. */
static weft_status serve(mp_boot_server *s, int rank, const void *data,
                         size_t n)
{
    const mp_boot_head *h = data;
    asker *a = &s->asker[rank];

    if (!mp_wire_check_boot(data, n) || a->done) {
        return wf_fail(WEFT_ERR_PROTOCOL, "a malformed message");
    }
    switch ((mp_boot_verb)h->verb) {
    case MP_BOOT_SET:
        return serve_set(s, h, h + 1);
    case MP_BOOT_GET:
        serve_get(s, rank, h);
        return WEFT_OK;
    case MP_BOOT_DONE:
        s->waiting -= a->waits;
        a->waits = false;
        a->done = true;
        s->left--;
        break;
    }
    return WEFT_OK;
}

/* --- the thread ----------------------------------------------------------- */

/* Read and serve one message, if there is one. */
static bool serve_next(mp_boot_server *s)
{
    MPI_Message message;
    MPI_Status status;
    void *data = NULL;
    int there = 0;
    int n = 0;
    weft_status st;

    mp_net_lock();
    if (MPI_Improbe(MPI_ANY_SOURCE, MP_BOOT_ASK, s->comm, &there, &message,
                    &status) != MPI_SUCCESS) {
        there = 0;
    }
    if (there) {
        MPI_Get_count(&status, MPI_BYTE, &n);
        data = wf_alloc((size_t)n + 1);
        MPI_Mrecv(data, data != NULL ? n : 0, MPI_BYTE, &message, &status);
    }
    mp_net_unlock();
    if (!there) {
        return false;
    }
    st = data == NULL ? wf_fail_nomem("a message of %d bytes", n)
                      : serve(s, status.MPI_SOURCE, data, (size_t)n);
    if (st != WEFT_OK) {
        s->failed = true;
        wf_log(WEFT_LOG_ERROR, "boot table, message of rank %d: %s",
               status.MPI_SOURCE, weft_error_detail());
    }
    wf_free(data);
    return true;
}

static void *server_main(void *arg)
{
    mp_boot_server *s = arg;
    struct timespec pause = {0, 20000};

    while (s->left > 0 && wf_now_ns() < atomic_load(&s->until)) {
        if (serve_next(s)) {
            pause.tv_nsec = 20000;
        } else {
            nanosleep(&pause, NULL);
            pause.tv_nsec =
                pause.tv_nsec < 1000000 ? pause.tv_nsec * 2 : 1000000;
        }
    }
    return NULL;
}

weft_status mp_boot_server_start(MPI_Comm comm, int ranks, mp_boot_server **out)
{
    mp_boot_server *s =
        wf_zalloc(sizeof(*s) + (size_t)ranks * sizeof(s->asker[0]));
    weft_status st;

    if (s == NULL) {
        return wf_fail_nomem("the boot table of %d ranks", ranks);
    }
    s->comm = comm;
    s->ranks = ranks;
    s->left = ranks;
    atomic_store(&s->until, UINT64_MAX);
    for (int r = 0; r < ranks; r++) {
        s->asker[r].sent[0] = MPI_REQUEST_NULL;
        s->asker[r].sent[1] = MPI_REQUEST_NULL;
    }
    st = wf_thread_start("the thread of the boot table", server_main, s,
                         &s->thread);
    if (st != WEFT_OK) {
        wf_free(s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

bool mp_boot_server_end(mp_boot_server *s, uint64_t until)
{
    bool clean = true;

    if (s == NULL) {
        return true;
    }
    atomic_store(&s->until, until);
    pthread_join(s->thread, NULL);
    clean = s->left == 0;
    for (int r = 0; r < s->ranks && clean; r++) {
        clean = asker_idle(&s->asker[r]);
    }
    if (clean) {
        wf_boot_table_fini(&s->table);
        wf_free(s);
    }
    return clean;
}
