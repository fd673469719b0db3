/* SPDX-License-Identifier: Apache-2.0 */
/* Receives from any rank and with any tag: what they take. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"

/* --- everybody sends, one takes ------------------------------------------ */

enum { EACH = 40, LONGEST = 3000 };

/* The i-th message of a rank: some are empty, some wait for their receive. */
static size_t length_of(unsigned i)
{
    return i % 5 == 4 ? 0 : i % 3 == 2 ? LONGEST : 8 + i;
}

static void send_all(weft_comm *comm, weft_request **request, char *buf)
{
    for (unsigned i = 0; i < EACH; i++) {
        memset(buf + i * LONGEST, (int)i, LONGEST);
        WT_OK(weft_isend(comm, buf + i * LONGEST, length_of(i), 0, i,
                         &request[i]));
    }
}

/* Messages of one rank come in the order sent; each tag says which it is. */
static void take_one(weft_comm *comm, unsigned *next)
{
    char in[LONGEST];
    weft_message_info info = {0};
    unsigned i;

    WT_OK(
        weft_recv(comm, in, sizeof(in), WEFT_ANY_SOURCE, WEFT_ANY_TAG, &info));
    WT_CHECK(info.from < weft_comm_size(comm));
    i = next[info.from]++;
    WT_CHECK(info.tag == i && info.n == length_of(i));
    for (size_t k = 0; k < info.n; k++) {
        WT_CHECK(in[k] == (char)i);
    }
}

static void gather_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);
    char *buf = malloc((size_t)EACH * LONGEST);
    weft_request *request[EACH];
    unsigned next[8] = {0};

    WT_CHECK(buf != NULL);
    send_all(comm, request, buf);
    for (unsigned i = 0; i < EACH * ranks && weft_comm_rank(comm) == 0; i++) {
        take_one(comm, next);
    }
    for (unsigned i = 0; i < EACH; i++) {
        WT_OK(weft_request_wait(request[i], 0));
        weft_request_release(request[i]);
    }
    free(buf);
}

static void a_receive_from_any_rank_takes_from_itself_and_others(void **state)
{
    (void)state;
    wt_run_counts(NULL, gather_body);
    wt_run_counts("SHM_EAGER=256 SHM_RING_BYTES=4K", gather_body);
}

/* Each rank has all its receives posted before anybody sends. */
static void posted_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);
    unsigned me = weft_comm_rank(comm);
    weft_request *in[8];
    weft_request *out[8];
    weft_message_info info[8];
    unsigned got[8];
    unsigned seen = 0;

    for (unsigned i = 0; i < ranks; i++) {
        WT_OK(weft_irecv(comm, &got[i], sizeof(got[i]), WEFT_ANY_SOURCE, 3,
                         &info[i], &in[i]));
    }
    wt_meet();
    for (unsigned i = 0; i < ranks; i++) {
        WT_OK(weft_isend(comm, &me, sizeof(me), i, 3, &out[i]));
    }
    for (unsigned i = 0; i < ranks; i++) {
        WT_OK(weft_request_wait(in[i], 0));
        WT_OK(weft_request_wait(out[i], 0));
        weft_request_release(in[i]);
        weft_request_release(out[i]);
        WT_CHECK(info[i].from == got[i] && info[i].tag == 3);
        WT_CHECK(info[i].n == sizeof(me));
        seen |= 1u << got[i];
    }
    WT_CHECK(seen == (1u << ranks) - 1);
    /* To one that has not sent itself its message yet, those who leave are
     * those who could still send. */
    wt_meet();
}

static void requests_from_any_rank_get_one_message_each(void **state)
{
    (void)state;
    wt_run_counts(NULL, posted_body);
}

/* Communicators with other ranks, in another order. */
static void other_comm_body(weft_world *world)
{
    const uint32_t members[] = {2, 0};
    weft_comm *pair = NULL;
    weft_comm *comm = weft_world_comm(world);
    unsigned me = weft_comm_rank(comm);
    unsigned x = 7;
    weft_message_info info = {0};

    if (me != 1) {
        WT_OK(weft_comm_subset(comm, members, 2, &pair));
    }
    if (me == 2) {
        WT_OK(weft_recv(pair, &x, sizeof(x), WEFT_ANY_SOURCE, WEFT_ANY_TAG,
                        &info));
        WT_CHECK(info.from == 1 && info.tag == 9 && x == 0);
        WT_OK(weft_recv(comm, &x, sizeof(x), WEFT_ANY_SOURCE, WEFT_ANY_TAG,
                        &info));
        WT_CHECK(info.from == 0 && info.tag == 8 && x == 1);
    } else if (me == 0) {
        x = 1;
        WT_OK(weft_send(comm, &x, sizeof(x), 2, 8));
        x = 0;
        WT_OK(weft_send(pair, &x, sizeof(x), 0, 9));
    }
    weft_comm_destroy(pair);
}

static void any_rank_is_one_of_the_communicator(void **state)
{
    (void)state;
    wt_run_both(3, NULL, other_comm_body);
}

/* --- turns --------------------------------------------------------------- */

/* However many messages a rank has for itself, one of another rank is not kept
 * waiting for all of them. */
static void turns_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned me = weft_comm_rank(comm);
    weft_message_info info[2];
    unsigned x = me;

    if (me == 1) {
        WT_OK(weft_send(comm, &x, sizeof(x), 0, 1));
        return;
    }
    for (unsigned i = 0; i < 50; i++) {
        WT_OK(weft_send(comm, &x, sizeof(x), 0, 1));
    }
    WT_OK(weft_probe(comm, 1, 1, NULL));
    for (unsigned i = 0; i < 2; i++) {
        WT_OK(weft_recv(comm, &x, sizeof(x), WEFT_ANY_SOURCE, 1, &info[i]));
    }
    WT_CHECK(info[0].from + info[1].from == 1);
    for (unsigned i = 0; i < 49; i++) {
        WT_OK(weft_recv(comm, &x, sizeof(x), WEFT_ANY_SOURCE, 1, &info[0]));
        WT_CHECK(info[0].from == 0);
    }
}

static void messages_to_itself_do_not_starve_those_of_others(void **state)
{
    (void)state;
    wt_run_both(2, NULL, turns_body);
}

/* --- threads ------------------------------------------------------------- */

enum { THREADS = 4, PER_RANK = 100 };

typedef struct taker {
    weft_comm *comm;
    unsigned rank;
    unsigned takes;
    _Atomic unsigned *seen;
} taker;

static void *taker_main(void *arg)
{
    taker *t = arg;

    wt_speak_for(t->rank);
    for (unsigned i = 0; i < t->takes; i++) {
        unsigned x = 0;
        weft_message_info info;
        bool blocks = i % 2 == 0;
        weft_request *request = NULL;

        if (blocks) {
            WT_OK(weft_recv(t->comm, &x, sizeof(x), WEFT_ANY_SOURCE,
                            WEFT_ANY_TAG, &info));
        } else {
            WT_OK(weft_irecv(t->comm, &x, sizeof(x), WEFT_ANY_SOURCE,
                             WEFT_ANY_TAG, &info, &request));
            WT_OK(weft_request_wait(request, 0));
            weft_request_release(request);
        }
        WT_CHECK(x / PER_RANK == info.from && x % PER_RANK == info.tag);
        atomic_fetch_add(&t->seen[x], 1);
    }
    return NULL;
}

static void threads_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);
    unsigned me = weft_comm_rank(comm);
    static _Atomic unsigned seen[8 * PER_RANK];
    taker t = {comm, me, ranks * PER_RANK / THREADS, seen};
    pthread_t thread[THREADS];

    for (unsigned i = 0; i < ranks * PER_RANK && me == 0; i++) {
        atomic_store(&seen[i], 0);
    }
    for (unsigned i = 0; i < THREADS && me == 0; i++) {
        WT_CHECK(pthread_create(&thread[i], NULL, taker_main, &t) == 0);
    }
    for (unsigned i = 0; i < PER_RANK; i++) {
        unsigned x = me * PER_RANK + i;

        WT_OK(weft_send(comm, &x, sizeof(x), 0, i));
    }
    for (unsigned i = 0; i < THREADS && me == 0; i++) {
        pthread_join(thread[i], NULL);
    }
    for (unsigned i = 0; i < ranks * PER_RANK && me == 0; i++) {
        WT_CHECK(atomic_load(&seen[i]) == 1);
    }
    wt_meet();
}

static void several_threads_take_each_message_once(void **state)
{
    (void)state;
    wt_run_counts(NULL, threads_body);
}

/* The first thread's receive comes first, though it blocks and sleeps. */
static void *first_main(void *arg)
{
    taker *t = arg;
    unsigned x = 0;

    wt_speak_for(t->rank);
    WT_OK(weft_recv(t->comm, &x, sizeof(x), WEFT_ANY_SOURCE, 5, NULL));
    WT_CHECK(x == 1);
    return NULL;
}

static bool dump_has(weft_world *world, const char *what)
{
    char text[4096];

    weft_dump(world, text, sizeof(text));
    return strstr(text, what) != NULL;
}

static void blocked_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    taker t = {.comm = comm, .rank = weft_comm_rank(comm)};
    weft_request *request = NULL;
    weft_message_info info;
    unsigned in = 0;
    unsigned x = 1;
    pthread_t thread;

    WT_CHECK(pthread_create(&thread, NULL, first_main, &t) == 0);
    while (!dump_has(world, ": in receive of 4 bytes from any rank")) {
    }
    WT_OK(weft_irecv(comm, &in, sizeof(in), t.rank, 5, &info, &request));
    WT_OK(weft_send(comm, &x, sizeof(x), t.rank, 5));
    x = 2;
    WT_OK(weft_send(comm, &x, sizeof(x), t.rank, 5));
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
    pthread_join(thread, NULL);
    WT_CHECK(in == 2 && info.from == t.rank);
}

static void a_blocked_receive_is_shown_and_comes_first(void **state)
{
    (void)state;
    wt_run_both(1, "SPIN=0us YIELD=0us", blocked_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receive_from_any_rank_takes_from_itself_and_others),
        cmocka_unit_test(requests_from_any_rank_get_one_message_each),
        cmocka_unit_test(any_rank_is_one_of_the_communicator),
        cmocka_unit_test(messages_to_itself_do_not_starve_those_of_others),
        cmocka_unit_test(several_threads_take_each_message_once),
        cmocka_unit_test(a_blocked_receive_is_shown_and_comes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
