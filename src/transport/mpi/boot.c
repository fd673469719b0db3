/* SPDX-License-Identifier: Apache-2.0 */
/* A bootstrap table over MPI, for launchers that offer nothing but MPI itself.
 *
 * A thread of rank 0 has the table (boot_server.c); all ranks, rank 0 too, ask
 * it by messages on a communicator of the table's own. A rank has one question
 * at a time: a new one takes the place of the old one. */
#include "transport/mpi/boot.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/time.h"
#include "boot/mpi.h"

/* How long the end waits until what was said has left. */
#define LEAVE_NS (5 * WF_SEC)

/* A message of ours that MPI is sending. */
typedef struct said {
    struct said *next;
    MPI_Request request;
    mp_boot_head head; /* and the value behind it */
} said;

typedef struct mp_boot {
    wf_boot boot;
    MPI_Comm comm;
    mp_boot_server *server; /* in rank 0 only */
    said *said;
    bool done;
    /* The question that has no answer yet. */
    char key[WF_BOOT_KEY_MAX + 1];
    uint64_t id;
    bool asked;
    MPI_Request answer;
    mp_boot_answer got;
} mp_boot;

/* --- asking --------------------------------------------------------------- */

static void said_test(mp_boot *b)
{
    said **at = &b->said;

    while (*at != NULL) {
        said *s = *at;
        int over = 0;

        mp_net_lock();
        MPI_Test(&s->request, &over, MPI_STATUS_IGNORE);
        mp_net_unlock();
        if (over) {
            *at = s->next;
            wf_free(s);
        } else {
            at = &s->next;
        }
    }
}

static weft_status say(mp_boot *b, mp_boot_verb verb, const char *key,
                       const void *value, size_t n)
{
    said *s = wf_zalloc(sizeof(*s) + n);
    int code;

    if (s == NULL) {
        return wf_fail_nomem("a message to rank 0");
    }
    said_test(b);
    s->head.verb = verb;
    s->head.id = b->id;
    s->head.n = n;
    strncpy(s->head.key, key, WF_BOOT_KEY_MAX);
    if (n > 0) {
        memcpy(s + 1, value, n);
    }
    mp_net_lock();
    code = MPI_Isend(&s->head, (int)(sizeof(s->head) + n), MPI_BYTE, 0,
                     MP_BOOT_ASK, b->comm, &s->request);
    mp_net_unlock();
    if (code != MPI_SUCCESS) {
        wf_free(s);
        return mp_net_fail(WEFT_ERR_PEER, "a message to rank 0", code);
    }
    s->next = b->said;
    b->said = s;
    return WEFT_OK;
}

static weft_status boot_set(void *ctx, const char *key, const void *value,
                            size_t n)
{
    weft_status st = wf_boot_check_entry(key, value, n);

    return st != WEFT_OK ? st : say(ctx, MP_BOOT_SET, key, value, n);
}

/* Test until it is over or the time has come, more and more seldom. */
static bool wait_for(MPI_Request *request, uint64_t until)
{
    struct timespec pause = {0, 20000};
    int over = 0;

    for (;;) {
        mp_net_lock();
        MPI_Test(request, &over, MPI_STATUS_IGNORE);
        mp_net_unlock();
        if (over || wf_now_ns() >= until) {
            return over != 0;
        }
        nanosleep(&pause, NULL);
        pause.tv_nsec = pause.tv_nsec < 1000000 ? pause.tv_nsec * 2 : 1000000;
    }
}

static void post_answer(mp_boot *b)
{
    mp_net_lock();
    MPI_Irecv(&b->got, sizeof(b->got), MPI_BYTE, 0, MP_BOOT_ANSWER, b->comm,
              &b->answer);
    mp_net_unlock();
}

/* The value that comes behind an answer; thrown away if it is not wanted. */
static weft_status take_value(mp_boot *b, const char *key, void *value,
                              size_t *n)
{
    bool wanted = value != NULL && b->got.n <= *n;
    void *to = wanted ? value : wf_alloc(b->got.n + 1);
    MPI_Request request;

    if (to == NULL) {
        return wf_fail_nomem("the value of boot key '%s'", key);
    }
    mp_net_lock();
    MPI_Irecv(to, (int)b->got.n, MPI_BYTE, 0, MP_BOOT_VALUE, b->comm, &request);
    mp_net_unlock();
    (void)wait_for(&request, UINT64_MAX); /* it is on its way */
    if (!wanted) {
        wf_free(to);
        return value == NULL ? WEFT_OK
                             : wf_fail(WEFT_ERR_TRUNCATED,
                                       "the value of boot key '%s' has %zu "
                                       "bytes, the buffer has %zu",
                                       key, (size_t)b->got.n, *n);
    }
    *n = b->got.n;
    return WEFT_OK;
}

/* WEFT_OK once the answer to our last question is in b->got. */
static weft_status await_answer(mp_boot *b, uint64_t until)
{
    while (wait_for(&b->answer, until)) {
        weft_status st = WEFT_OK;

        if (b->got.n > WEFT_BOOT_VALUE_MAX) {
            return wf_fail(WEFT_ERR_PROTOCOL, "rank 0 answers with %zu bytes",
                           (size_t)b->got.n);
        }
        if (b->got.id == b->id) {
            return WEFT_OK;
        }
        st = take_value(b, "", NULL, NULL); /* of an earlier question */
        post_answer(b);
        if (st != WEFT_OK) {
            return st;
        }
    }
    return WEFT_ERR_TIMEOUT;
}

static weft_status boot_get(void *ctx, const char *key, void *value, size_t *n,
                            uint32_t timeout_ms)
{
    mp_boot *b = ctx;
    uint64_t until = wf_now_ns() + timeout_ms * WF_MS;
    weft_status st = wf_boot_check_room(key, value, n);

    if (st == WEFT_OK && (!b->asked || strcmp(b->key, key) != 0)) {
        b->id++;
        strncpy(b->key, key, WF_BOOT_KEY_MAX);
        b->asked = true;
        st = say(b, MP_BOOT_GET, key, NULL, 0);
    }
    said_test(b);
    if (st == WEFT_OK) {
        st = await_answer(b, until);
    }
    if (st == WEFT_ERR_TIMEOUT) {
        return wf_fail(st, "boot key '%s' was not set within %u ms", key,
                       timeout_ms);
    }
    if (st == WEFT_OK) {
        b->asked = false;
        st = take_value(b, key, value, n);
        post_answer(b);
    }
    return st;
}

static void boot_done(void *ctx)
{
    mp_boot *b = ctx;

    if (!b->done) {
        b->done = say(b, MP_BOOT_DONE, "", NULL, 0) == WEFT_OK;
    }
}

/* --- open and close ------------------------------------------------------- */

/* An answer may still come to a rank that did not wait for it, so the receive
 * is cancelled, and the communicator stays if that cannot be. */
static void boot_close(wf_boot *boot)
{
    mp_boot *b = (mp_boot *)boot;
    uint64_t until = wf_now_ns() + LEAVE_NS;
    bool clean = !b->asked;

    boot_done(b);
    while (b->said != NULL && wf_now_ns() < until) {
        said_test(b);
    }
    clean = clean && b->said == NULL;
    mp_net_lock();
    if (b->answer != MPI_REQUEST_NULL) {
        MPI_Cancel(&b->answer);
    }
    mp_net_unlock();
    (void)wait_for(&b->answer, until);
    clean = mp_boot_server_end(b->server, until) && clean;
    if (clean) {
        mp_net_lock();
        MPI_Comm_free(&b->comm);
        mp_net_unlock();
        wf_free(b);
    } /* else MPI may still use that memory */
}

static weft_status boot_dup(MPI_Comm *out)
{
    int code;

    mp_net_lock();
    code = MPI_Comm_dup(MPI_COMM_WORLD, out);
    if (code == MPI_SUCCESS) {
        MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN);
    }
    mp_net_unlock();
    return code == MPI_SUCCESS
               ? WEFT_OK
               : mp_net_fail(WEFT_ERR_SYSTEM, "MPI_Comm_dup", code);
}

WF_API wf_boot_mpi_open_fn wf_boot_mpi_module;

weft_status wf_boot_mpi_module(weft_boot **out)
{
    mp_boot *b = wf_zalloc(sizeof(*b));
    mp_address self;
    weft_status st =
        b != NULL ? mp_net_start(true, &self) : wf_fail_nomem("the boot table");

    if (st == WEFT_OK) {
        st = boot_dup(&b->comm);
    }
    if (st == WEFT_OK && self.rank == 0) {
        st = mp_boot_server_start(b->comm, mp_net_size(), &b->server);
    }
    if (st != WEFT_OK) {
        wf_free(b);
        return st;
    }
    b->boot.close = boot_close;
    b->boot.api = (weft_boot){.size = sizeof(weft_boot),
                              .rank = self.rank,
                              .ranks = (uint32_t)mp_net_size(),
                              .ctx = b,
                              .set = boot_set,
                              .get = boot_get,
                              .done = boot_done};
    post_answer(b);
    *out = &b->boot.api;
    return WEFT_OK;
}
