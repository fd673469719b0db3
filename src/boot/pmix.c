/* SPDX-License-Identifier: Apache-2.0 */
/* A rank puts its values at the server of its own host. Others get them by
 * direct modex: their server asks that of the rank, and waits until the rank
 * has put something. So a get needs the rank that sets the key, which the key
 * tells (wf_boot_key_owner).
 *
 * Servers remember what a rank had put when they asked first. A key that came
 * later is then not found, and has to be asked for again, with the word that
 * what is remembered is out of date.
 *
 * A get may not outlast its timeout, which PMIx counts in seconds; so it is
 * asked without waiting. What was asked goes on when the timeout passes, and
 * the next get of the same key waits for that answer. */
#include "boot/pmix.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/library.h"
#include "base/log.h"
#include "base/num.h"
#include "base/status.h"
#include "base/time.h"
#include "boot/boot.h"
#include "boot/launcher.h"
#include "boot/pmix_abi.h"

/* How long after a key was not found it is asked for again, at first and at
 * most. */
#define AGAIN_NS (2 * WF_MS)
#define AGAIN_MOST_NS (50 * WF_MS)

typedef char pmix_key[WF_BOOT_KEY_MAX + 32];

/* PMIx in this process, which has one connection to its server. It stays until
 * the process ends: libraries count who uses it, and after the last one has
 * finalized it, Open MPI in the same process could not begin. */
static struct {
    pthread_mutex_t lock;
    bool is_open;
    pid_t pid; /* children inherit this, and no connection */
    wf_pmix_proc self;
    wf_pmix_calls call;
} pmix = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A question to the server, held by who asks and by PMIx. */
typedef struct question {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    atomic_uint holders;
    pmix_key key;
    bool is_answered;
    int status;
    void *data;
    size_t n;
} question;

typedef struct pmix_table {
    wf_boot boot;
    unsigned number;
    bool refresh; /* something was not found at first */
    question *asked;
} pmix_table;

bool wf_boot_pmix_offered(void)
{
    return wf_boot_env("PMIX_NAMESPACE") != NULL &&
           wf_boot_env("PMIX_RANK") != NULL;
}

static weft_status pmix_fail(const char *what, int status)
{
    const char *text = pmix.call.error_string(status);

    return wf_fail(WEFT_ERR_SYSTEM, "PMIx: %s: %s (%d)", what,
                   text != NULL ? text : "unknown", status);
}

/* --- the library ---------------------------------------------------------- */

static weft_status pmix_load(wf_pmix_calls *calls)
{
    static const char *const names[] = {"PMIx_Init",   "PMIx_Finalize",
                                        "PMIx_Put",    "PMIx_Commit",
                                        "PMIx_Get_nb", "PMIx_Error_string"};
    void *slots[] = {&calls->init,   &calls->finalize, &calls->put,
                     &calls->commit, &calls->get_nb,   &calls->error_string};
    weft_status st = WEFT_OK;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && st == WEFT_OK;
         i++) {
        const void *found = NULL;

        st = wf_library_find(WF_PMIX_LIBRARY, NULL, names[i], &found);
        memcpy(slots[i], &found, sizeof(found));
    }
    return st;
}

/* A launcher takes a process that ends without this for one that has failed. */
static void pmix_leave(void)
{
    if (pmix.is_open && pmix.pid == getpid()) {
        (void)pmix.call.finalize(NULL, 0);
    }
}

static weft_status pmix_start(void)
{
    weft_status st = pmix_load(&pmix.call);
    int status;

    if (st != WEFT_OK) {
        return st;
    }
    status = pmix.call.init(&pmix.self, NULL, 0);
    if (status != WF_PMIX_OK) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "the PMIx server of this host cannot be reached: %s "
                       "(%d)",
                       pmix.call.error_string(status), status);
    }
    pmix.pid = getpid();
    pmix.is_open = true;
    if (atexit(pmix_leave) != 0) {
        wf_log(WEFT_LOG_WARN, "PMIx will not be told when this rank ends");
    }
    return WEFT_OK;
}

static weft_status pmix_open(void)
{
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&pmix.lock);
    if (!pmix.is_open) {
        st = pmix_start();
    } else if (pmix.pid != getpid()) {
        st = wf_fail(WEFT_ERR_UNSUPPORTED,
                     "this process is a child of a rank, to whose connection "
                     "to PMIx it has no right");
    }
    pthread_mutex_unlock(&pmix.lock);
    return st;
}

/* --- questions ------------------------------------------------------------ */

static void question_release(question *q)
{
    if (q != NULL && atomic_fetch_sub(&q->holders, 1) == 1) {
        pthread_cond_destroy(&q->answered);
        pthread_mutex_destroy(&q->lock);
        wf_free(q->data);
        wf_free(q);
    }
}

static question *question_create(const char *key)
{
    question *q = wf_zalloc(sizeof(*q));
    pthread_condattr_t attr;

    if (q != NULL) {
        pthread_mutex_init(&q->lock, NULL);
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&q->answered, &attr);
        pthread_condattr_destroy(&attr);
        atomic_init(&q->holders, 2);
        snprintf(q->key, sizeof(q->key), "%s", key);
    }
    return q;
}

/* On a thread of PMIx; `value` is valid during the call. */
static void question_answer(int status, wf_pmix_value *value, void *ctx)
{
    question *q = ctx;

    pthread_mutex_lock(&q->lock);
    q->status = status;
    if (status == WF_PMIX_OK && value != NULL && value->type == WF_PMIX_BYTES) {
        q->n = value->is.bytes.n;
        q->data = wf_alloc(q->n > 0 ? q->n : 1);
        if (q->data != NULL && q->n > 0) {
            memcpy(q->data, value->is.bytes.data, q->n);
        }
    }
    q->is_answered = true;
    pthread_cond_signal(&q->answered);
    pthread_mutex_unlock(&q->lock);
    question_release(q);
}

/* Ask for `key`, which `owner` sets. */
static weft_status ask(pmix_table *t, const char *key, uint32_t owner)
{
    wf_pmix_info refresh = {.key = WF_PMIX_REFRESH};
    wf_pmix_proc proc = pmix.self;
    question *q = question_create(key);
    int status;

    if (q == NULL) {
        return wf_fail_nomem("boot key '%s'", key);
    }
    proc.rank = owner;
    refresh.value.type = WF_PMIX_BOOL;
    refresh.value.is.flag = true;
    t->asked = q;
    status = pmix.call.get_nb(&proc, key, &refresh, t->refresh ? 1 : 0,
                              question_answer, q);
    if (status != WF_PMIX_OK) {
        question_answer(status, NULL, q); /* nobody else will */
    }
    return WEFT_OK;
}

/* Wait for the answer; false if it has not come at `deadline`. */
static bool await(question *q, uint64_t deadline)
{
    struct timespec until = {.tv_sec = (time_t)(deadline / WF_SEC),
                             .tv_nsec = (long)(deadline % WF_SEC)};
    bool is_answered;

    pthread_mutex_lock(&q->lock);
    while (!q->is_answered && wf_now_ns() < deadline) {
        pthread_cond_timedwait(&q->answered, &q->lock, &until);
    }
    is_answered = q->is_answered;
    pthread_mutex_unlock(&q->lock);
    return is_answered;
}

static void forget(pmix_table *t)
{
    question_release(t->asked);
    t->asked = NULL;
}

/* --- the table ------------------------------------------------------------ */

static void full_key(const pmix_table *t, const char *key, char *out)
{
    snprintf(out, sizeof(pmix_key), "weft.%u/%s", t->number, key);
}

static weft_status pmix_set(void *ctx, const char *key, const void *value,
                            size_t n)
{
    const pmix_table *t = ctx;
    wf_pmix_value v = {.type = WF_PMIX_BYTES};
    weft_status st = wf_boot_check_entry(key, value, n);
    pmix_key full;
    int status;

    if (st != WEFT_OK) {
        return st;
    }
    full_key(t, key, full);
    memcpy(&v.is.bytes.data, &value, sizeof(value)); /* it is only read */
    v.is.bytes.n = n;
    status = pmix.call.put(WF_PMIX_GLOBAL, full, &v);
    if (status == WF_PMIX_OK) {
        status = pmix.call.commit();
    }
    return status == WF_PMIX_OK ? WEFT_OK : pmix_fail(key, status);
}

static weft_status answer_of(const question *q, const char *key, void *value,
                             size_t *n)
{
    if (q->status != WF_PMIX_OK) {
        return pmix_fail(key, q->status);
    }
    return q->data == NULL
               ? wf_fail(WEFT_ERR_NOMEM, "boot key '%s' has no value", key)
               : wf_boot_copy_out(key, q->data, q->n, value, n);
}

/* Ask once, or wait for what was asked before. WEFT_ERR_TIMEOUT: there is no
 * answer yet. */
static weft_status get_once(pmix_table *t, const char *key, const char *full,
                            uint64_t deadline)
{
    weft_status st = WEFT_OK;

    if (t->asked != NULL && strcmp(t->asked->key, full) != 0) {
        forget(t);
    }
    if (t->asked == NULL) {
        st = ask(t, full, wf_boot_key_owner(key));
    }
    return st == WEFT_OK && !await(t->asked, deadline) ? WEFT_ERR_TIMEOUT : st;
}

static weft_status pmix_get(void *ctx, const char *key, void *value, size_t *n,
                            uint32_t timeout_ms)
{
    pmix_table *t = ctx;
    uint64_t deadline = wf_now_ns() + timeout_ms * WF_MS;
    uint64_t again = AGAIN_NS;
    weft_status st = wf_boot_check_room(key, value, n);
    pmix_key full;

    full_key(t, key, full);
    while (st == WEFT_OK) {
        st = get_once(t, key, full, deadline);
        if (st == WEFT_OK && t->asked->status != WF_PMIX_NOT_FOUND) {
            st = answer_of(t->asked, key, value, n);
            forget(t);
            return st;
        }
        if (st == WEFT_OK) {
            forget(t);
            t->refresh = true;
            st = wf_now_ns() + again < deadline ? WEFT_OK : WEFT_ERR_TIMEOUT;
            usleep((useconds_t)(wf_least(again, wf_ns_until(deadline)) / 1000));
            again = wf_least(2 * again, AGAIN_MOST_NS);
        }
    }
    return st == WEFT_ERR_TIMEOUT
               ? wf_fail(st, "boot key '%s' was not set in time", key)
               : st;
}

static void pmix_close(wf_boot *boot)
{
    pmix_table *t = (pmix_table *)boot;

    forget(t);
    wf_free(t);
}

weft_status wf_boot_open_pmix(unsigned number, uint32_t rank, uint32_t ranks,
                              weft_boot **out)
{
    pmix_table *t;
    weft_status st = pmix_open();

    if (st == WEFT_OK && pmix.self.rank != rank) {
        st = wf_fail(WEFT_ERR_UNSUPPORTED,
                     "this is rank %u, but PMIx counts it as rank %u", rank,
                     pmix.self.rank);
    }
    if (st != WEFT_OK) {
        return st;
    }
    t = wf_zalloc(sizeof(*t));
    if (t == NULL) {
        return wf_fail_nomem("the boot table");
    }
    t->number = number;
    t->boot.close = pmix_close;
    t->boot.api = (weft_boot){
        .size = sizeof(weft_boot),
        .rank = rank,
        .ranks = ranks,
        .ctx = t,
        .set = pmix_set,
        .get = pmix_get,
    };
    *out = &t->boot.api;
    return WEFT_OK;
}
