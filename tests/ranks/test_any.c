/* SPDX-License-Identifier: Apache-2.0 */
/* Receives from any rank and with any tag: what they take, in which order, and
 * how they end. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_data.h"
#include "wt_fault.h"

static const unsigned rank_counts[] = {1, 2, 3, 5, 8};

static void run_counts(const char *settings, wt_body *body)
{
    for (unsigned i = 0; i < sizeof(rank_counts) / sizeof(*rank_counts); i++) {
        wt_run_both(rank_counts[i], settings, body);
    }
}

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
    run_counts(NULL, gather_body);
    run_counts("SHM_EAGER=256 SHM_RING_BYTES=4K", gather_body);
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
}

static void requests_from_any_rank_get_one_message_each(void **state)
{
    (void)state;
    run_counts(NULL, posted_body);
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

/* --- order: a model ------------------------------------------------------ */

/* Rank 0 posts receives and has messages sent to it, by itself and by others,
 * one after the other, as chance wants it, and keeps account of what must match
 * what. */
enum {
    STEPS = 600,
    PENDING = 12,
    KEPT = 12,
    TAGS = 3,
    SHORT = 8,
    LONG = 700,
    STOP = 1000
};

/* Words by rank: the number of the last order, its tag, and of the last order
 * that was carried out. */
#define ORDER(rank) (3 * (rank))
#define ORDER_TAG(rank) (3 * (rank) + 1)
#define ORDER_DONE(rank) (3 * (rank) + 2)

typedef struct mail {
    uint32_t from;
    uint32_t tag;
    uint64_t id;
} mail;

typedef struct posted {
    uint32_t from;
    uint32_t tag;
    uint64_t in[LONG / 8 + 1];
    weft_message_info info;
    weft_request *request;
} posted;

typedef struct model {
    weft_comm *comm;
    uint64_t chance;
    uint64_t sent;
    posted *pending[PENDING]; /* in the order posted */
    unsigned pendings;
    mail kept[KEPT]; /* in the order arrived */
    unsigned kepts;
    weft_request *own[STEPS + 1]; /* sends to itself */
    uint64_t *own_buf[STEPS + 1];
    unsigned owns;
} model;

static unsigned pick(model *m, unsigned n)
{
    return (unsigned)(wt_mix(m->chance++, 0, 0) % n);
}

static size_t mail_bytes(uint32_t tag)
{
    return tag == 0 ? LONG : SHORT;
}

static bool wants(uint32_t from, uint32_t tag, const mail *msg)
{
    return (from == WEFT_ANY_SOURCE || from == msg->from) &&
           (tag == WEFT_ANY_TAG || tag == msg->tag);
}

static void forget_mail(model *m, unsigned i)
{
    memmove(&m->kept[i], &m->kept[i + 1],
            (--m->kepts - i) * sizeof(m->kept[0]));
}

/* The i-th message that is kept has been received. It must have been the first
 * of those wanted that came through its port. */
static void check_taken(model *m, uint32_t from, uint32_t tag,
                        const weft_message_info *info, uint64_t id)
{
    unsigned i = 0;

    while (i < m->kepts && m->kept[i].id != id) {
        i++;
    }
    WT_CHECK(i < m->kepts && wants(from, tag, &m->kept[i]));
    WT_CHECK(info->from == m->kept[i].from && info->tag == m->kept[i].tag);
    WT_CHECK(info->n == mail_bytes(info->tag));
    for (unsigned k = 0; k < i; k++) {
        bool same_port = (m->kept[k].from == 0) == (m->kept[i].from == 0);

        WT_CHECK(!same_port || !wants(from, tag, &m->kept[k]));
    }
    forget_mail(m, i);
}

static void check_ended(posted *p, const mail *msg)
{
    WT_OK(weft_request_wait(p->request, 0));
    WT_CHECK(p->info.from == msg->from && p->info.tag == msg->tag);
    WT_CHECK(p->in[0] == msg->id && p->info.n == mail_bytes(msg->tag));
    weft_request_release(p->request);
    free(p);
}

/* The oldest receive that wants it gets it, else it is kept. */
static void model_arrived(model *m, const mail *msg)
{
    unsigned i = 0;

    while (i < m->pendings &&
           !wants(m->pending[i]->from, m->pending[i]->tag, msg)) {
        i++;
    }
    if (i == m->pendings) {
        m->kept[m->kepts++] = *msg;
        return;
    }
    check_ended(m->pending[i], msg);
    for (m->pendings--; i < m->pendings; i++) {
        m->pending[i] = m->pending[i + 1];
    }
}

static void send_to_itself(model *m, const mail *msg)
{
    uint64_t *buf = calloc(1, LONG);

    WT_CHECK(buf != NULL);
    buf[0] = msg->id;
    WT_OK(weft_isend(m->comm, buf, mail_bytes(msg->tag), 0, msg->tag,
                     &m->own[m->owns]));
    m->own_buf[m->owns++] = buf;
}

static void order_mail(const mail *msg)
{
    unsigned done = atomic_load(wt_word(ORDER_DONE(msg->from)));

    atomic_store(wt_word(ORDER_TAG(msg->from)), msg->tag);
    wt_word_set(ORDER(msg->from), (uint32_t)msg->id);
    while (atomic_load(wt_word(ORDER_DONE(msg->from))) == done) {
        wt_word_await(ORDER_DONE(msg->from), done + 1);
    }
}

static void step_send(model *m)
{
    mail msg = {pick(m, weft_comm_size(m->comm)), pick(m, TAGS), ++m->sent};
    int found;

    if (msg.from == 0) {
        send_to_itself(m, &msg);
    } else {
        order_mail(&msg);
    }
    /* It is in the ring by now; any call brings it in. */
    WT_OK(weft_iprobe(m->comm, 0, STOP, &found, NULL));
    WT_CHECK(found == 0);
    model_arrived(m, &msg);
}

static bool is_kept(const model *m, uint32_t from, uint32_t tag)
{
    unsigned i = 0;

    while (i < m->kepts && !wants(from, tag, &m->kept[i])) {
        i++;
    }
    return i < m->kepts;
}

static void check_probe(model *m, uint32_t from, uint32_t tag)
{
    weft_message_info info;
    int found = -1;

    WT_OK(weft_iprobe(m->comm, from, tag, &found, &info));
    WT_CHECK(found == is_kept(m, from, tag));
    if (found) {
        mail like = {info.from, info.tag, 0};

        WT_CHECK(wants(from, tag, &like) && is_kept(m, info.from, info.tag));
    }
}

static void step_receive(model *m)
{
    posted *p = calloc(1, sizeof(*p));
    bool here;

    WT_CHECK(p != NULL);
    p->from = pick(m, weft_comm_size(m->comm) + 2);
    p->from = p->from < weft_comm_size(m->comm) ? p->from : WEFT_ANY_SOURCE;
    p->tag = pick(m, TAGS + 1);
    p->tag = p->tag < TAGS ? p->tag : WEFT_ANY_TAG;
    check_probe(m, p->from, p->tag);
    here = is_kept(m, p->from, p->tag);
    if (here && pick(m, 2) == 0) {
        WT_OK(weft_recv(m->comm, p->in, sizeof(p->in), p->from, p->tag,
                        &p->info));
        check_taken(m, p->from, p->tag, &p->info, p->in[0]);
        free(p);
        return;
    }
    WT_OK(weft_irecv(m->comm, p->in, sizeof(p->in), p->from, p->tag, &p->info,
                     &p->request));
    if (!here) {
        m->pending[m->pendings++] = p;
        return;
    }
    WT_OK(weft_request_wait(p->request, 0));
    check_taken(m, p->from, p->tag, &p->info, p->in[0]);
    weft_request_release(p->request);
    free(p);
}

static void step_take(model *m, uint32_t from, uint32_t tag)
{
    uint64_t in[LONG / 8 + 1];
    weft_message_info info;

    WT_OK(weft_recv(m->comm, in, sizeof(in), from, tag, &info));
    check_taken(m, from, tag, &info, in[0]);
}

/* Take what is kept, and let the others go. */
static void model_end(model *m)
{
    while (m->kepts > 0) {
        step_take(m, WEFT_ANY_SOURCE, WEFT_ANY_TAG);
    }
    for (unsigned i = 0; i < m->owns; i++) {
        WT_OK(weft_request_wait(m->own[i], 0));
        weft_request_release(m->own[i]);
        free(m->own_buf[i]);
    }
    for (unsigned r = 1; r < weft_comm_size(m->comm); r++) {
        order_mail(&(mail){r, STOP, ++m->sent});
    }
}

static void model_main(weft_comm *comm)
{
    static _Thread_local model m;
    unsigned steps = WT_TSAN ? STEPS / 4 : STEPS;

    m = (model){.comm = comm, .chance = 1 + weft_comm_size(comm)};
    for (unsigned i = 0; i < steps; i++) {
        if (m.kepts == KEPT) {
            step_take(&m, m.kept[0].from, m.kept[0].tag);
        } else if (m.pendings == PENDING || pick(&m, 2) == 0) {
            step_send(&m);
        } else {
            step_receive(&m);
        }
    }
    model_end(&m);
    weft_comm_destroy(comm);
    for (unsigned i = 0; i < m.pendings; i++) {
        WT_STATUS(weft_request_wait(m.pending[i]->request, 0), WEFT_ERR_CLOSED);
        weft_request_release(m.pending[i]->request);
        free(m.pending[i]);
    }
}

static void servant_main(weft_comm *comm)
{
    unsigned me = weft_comm_rank(comm);
    static _Thread_local uint64_t buf[STEPS][LONG / 8 + 1];
    static _Thread_local weft_request *request[STEPS];
    unsigned n = 0;
    uint32_t order = 0;

    for (;;) {
        uint32_t tag;

        wt_word_await(ORDER(me), order + 1);
        order = atomic_load(wt_word(ORDER(me)));
        tag = atomic_load(wt_word(ORDER_TAG(me)));
        if (tag == STOP) {
            break;
        }
        buf[n][0] = order;
        WT_OK(weft_isend(comm, buf[n], mail_bytes(tag), 0, tag, &request[n]));
        n++;
        wt_word_add(ORDER_DONE(me), 1);
    }
    for (unsigned i = 0; i < n; i++) {
        WT_OK(weft_request_wait(request[i], 0));
        weft_request_release(request[i]);
    }
    wt_word_add(ORDER_DONE(me), 1);
}

static void model_body(weft_world *world)
{
    weft_comm *comm = NULL;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    if (weft_comm_rank(comm) == 0) {
        model_main(comm);
    } else {
        servant_main(comm);
        weft_comm_destroy(comm);
    }
    wt_meet();
}

static void
receives_of_all_kinds_get_messages_in_the_order_of_the_calls(void **state)
{
    (void)state;
    run_counts("SHM_EAGER=256", model_body);
    wt_run_both(3, NULL, model_body);
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
    run_counts(NULL, threads_body);
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

/* --- how they end -------------------------------------------------------- */

static void truncated_body(weft_world *world)
{
    const size_t sizes[] = {100, 20000};
    weft_comm *comm = weft_world_comm(world);
    unsigned ranks = weft_comm_size(comm);
    unsigned to = (weft_comm_rank(comm) + 1) % ranks;
    char small[64];
    char *large = calloc(1, 20000);
    weft_message_info info;

    WT_CHECK(large != NULL);
    for (unsigned i = 0; i < 4; i++) {
        weft_request *request = NULL;

        WT_OK(weft_isend(comm, large, sizes[i % 2], to, i, &request));
        memset(small, 1, sizeof(small));
        WT_STATUS(
            weft_recv(comm, small, i < 2 ? 32 : 0, WEFT_ANY_SOURCE, i, &info),
            WEFT_ERR_TRUNCATED);
        WT_CHECK(info.from == (weft_comm_rank(comm) + ranks - 1) % ranks);
        WT_CHECK(info.n == sizes[i % 2] && info.tag == i && small[32] == 1);
        WT_CHECK(wt_names_rank(weft_error_detail(), info.from));
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
    }
    WT_OK(weft_comm_error(comm));
    WT_OK(weft_barrier(comm));
    free(large);
}

static void a_message_from_any_rank_may_be_too_long(void **state)
{
    (void)state;
    run_counts(NULL, truncated_body);
}

static void aborted_body(weft_world *world)
{
    weft_comm *comm = NULL;
    weft_request *request[3];
    char in[3];

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    WT_OK(weft_irecv(comm, &in[0], 1, WEFT_ANY_SOURCE, 1, NULL, &request[0]));
    WT_OK(weft_irecv(comm, &in[1], 1, 0, WEFT_ANY_TAG, NULL, &request[1]));
    WT_OK(weft_isendrecv(comm, NULL, 0, weft_comm_rank(comm), 2, &in[2], 1,
                         WEFT_ANY_SOURCE, 3, NULL, &request[2]));
    wt_meet();
    if (weft_comm_rank(comm) == 0) {
        /* It has sent itself what this one takes. */
        WT_OK(weft_request_wait(request[1], 0));
        weft_comm_abort(comm, "for a test");
    }
    for (unsigned i = 0; i < 3; i++) {
        bool filled = i == 1 && weft_comm_rank(comm) == 0;

        WT_STATUS(weft_request_wait(request[i], 0),
                  filled ? WEFT_OK : WEFT_ERR_ABORTED);
        weft_request_release(request[i]);
    }
    WT_STATUS(weft_recv(comm, in, 1, WEFT_ANY_SOURCE, 1, NULL),
              WEFT_ERR_ABORTED);
    weft_comm_destroy(comm);
}

static void an_abort_ends_receives_from_any_rank(void **state)
{
    (void)state;
    run_counts(NULL, aborted_body);
}

static void late_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *request = NULL;
    char in;

    if (weft_comm_rank(comm) == 1) {
        weft_comm_set_timeout(comm, 0.2);
        if (wt_ranks() == 3) {
            WT_STATUS(weft_recv(comm, &in, 1, WEFT_ANY_SOURCE, 1, NULL),
                      WEFT_ERR_TIMEOUT);
        } else {
            WT_OK(weft_irecv(comm, &in, 1, WEFT_ANY_SOURCE, 1, NULL, &request));
            WT_STATUS(weft_request_wait(request, 0), WEFT_ERR_TIMEOUT);
            weft_request_release(request);
        }
        WT_CHECK(strstr(weft_error_detail(), "from any rank") != NULL);
        for (unsigned r = 0; r < wt_ranks(); r++) {
            WT_CHECK(wt_names_rank(weft_error_detail(), r));
        }
    }
    wt_meet();
}

static void a_timeout_names_all_who_could_have_sent(void **state)
{
    (void)state;
    wt_run_both(3, NULL, late_body);
    wt_run_both(4, NULL, late_body);
}

/* --- death --------------------------------------------------------------- */

static bool by_request;

/* Of three, rank 1 dies at once, rank 2 after it has sent something. */
static void dying_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *request = NULL;
    weft_message_info info;
    char in;

    if (weft_comm_rank(comm) != 0) {
        if (weft_comm_rank(comm) == 2) {
            wt_await_gone(1);
            WT_OK(weft_send(comm, "x", 1, 0, 6));
            WT_OK(weft_send(comm, "y", 1, 0, 7));
        }
        wt_strike(WT_BLOW_KILL);
    }
    for (unsigned i = 0; i < 2; i++) {
        WT_OK(weft_recv(comm, &in, 1, WEFT_ANY_SOURCE, WEFT_ANY_TAG, &info));
        WT_CHECK(info.from == 2 && info.tag == 6 + i);
    }
    if (by_request) {
        WT_OK(weft_irecv(comm, &in, 1, WEFT_ANY_SOURCE, 1, NULL, &request));
        WT_STATUS(weft_request_wait(request, 0), WEFT_ERR_PEER);
        weft_request_release(request);
    } else {
        WT_STATUS(weft_recv(comm, &in, 1, WEFT_ANY_SOURCE, 1, NULL),
                  WEFT_ERR_PEER);
    }
    WT_CHECK(wt_names_rank(weft_error_detail(), 1));
}

static void a_receive_from_any_rank_fails_when_nobody_is_left(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        by_request = i == 1;
        wt_run_job(&(wt_job){.ranks = 3, .body = dying_body, .doomed = 6});
    }
}

/* One that leaves as it should is gone as well. */
static void leaving_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_message_info info;
    char in;

    if (weft_comm_rank(comm) > 0) {
        WT_OK(weft_send(comm, "x", 1, 0, 1));
        return;
    }
    for (unsigned i = 1; i < weft_comm_size(comm); i++) {
        WT_OK(weft_recv(comm, &in, 1, WEFT_ANY_SOURCE, 1, &info));
    }
    WT_STATUS(weft_recv(comm, &in, 1, WEFT_ANY_SOURCE, 1, &info),
              WEFT_ERR_PEER);
}

static void ranks_that_left_are_not_waited_for(void **state)
{
    (void)state;
    wt_run_both(2, NULL, leaving_body);
    wt_run_both(5, NULL, leaving_body);
}

/* Rank 2 leaves; what waits for it fails, and nothing else does. */
static void alone_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_message_info info;
    char in;

    if (weft_comm_rank(comm) == 0) {
        WT_STATUS(weft_recv(comm, &in, 1, 2, 1, &info), WEFT_ERR_PEER);
        WT_STATUS(weft_probe(comm, 2, 1, &info), WEFT_ERR_PEER);
        WT_OK(weft_send(comm, "x", 1, 1, 1));
    } else if (weft_comm_rank(comm) == 1) {
        WT_OK(weft_recv(comm, &in, 1, 0, 1, &info));
    }
}

static void a_receive_from_a_rank_that_left_fails_alone(void **state)
{
    (void)state;
    wt_run_both(3, NULL, alone_body);
}

/* A receive that stands behind one from any rank learns of a death, too. */
static void behind_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *any = NULL;
    weft_request *named = NULL;
    char in[2];

    if (weft_comm_rank(comm) == 1) {
        wt_strike(WT_BLOW_KILL);
    }
    if (weft_comm_rank(comm) == 0) {
        WT_OK(weft_irecv(comm, &in[0], 1, WEFT_ANY_SOURCE, 1, NULL, &any));
        WT_OK(weft_irecv(comm, &in[1], 1, 1, 1, NULL, &named));
        WT_STATUS(weft_request_wait(named, 0), WEFT_ERR_PEER);
        WT_CHECK(wt_names_rank(weft_error_detail(), 1));
        WT_STATUS(weft_request_wait(any, 0), WEFT_ERR_PEER);
        weft_request_release(any);
        weft_request_release(named);
        wt_word_set(0, 1);
    } else {
        wt_word_await(0, 1);
    }
}

static void a_receive_in_line_is_told_of_the_death_of_its_sender(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = 3, .body = behind_body, .doomed = 2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receive_from_any_rank_takes_from_itself_and_others),
        cmocka_unit_test(requests_from_any_rank_get_one_message_each),
        cmocka_unit_test(any_rank_is_one_of_the_communicator),
        cmocka_unit_test(
            receives_of_all_kinds_get_messages_in_the_order_of_the_calls),
        cmocka_unit_test(messages_to_itself_do_not_starve_those_of_others),
        cmocka_unit_test(several_threads_take_each_message_once),
        cmocka_unit_test(a_blocked_receive_is_shown_and_comes_first),
        cmocka_unit_test(a_message_from_any_rank_may_be_too_long),
        cmocka_unit_test(an_abort_ends_receives_from_any_rank),
        cmocka_unit_test(a_timeout_names_all_who_could_have_sent),
        cmocka_unit_test(a_receive_from_any_rank_fails_when_nobody_is_left),
        cmocka_unit_test(ranks_that_left_are_not_waited_for),
        cmocka_unit_test(a_receive_from_a_rank_that_left_fails_alone),
        cmocka_unit_test(a_receive_in_line_is_told_of_the_death_of_its_sender),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
