/* SPDX-License-Identifier: Apache-2.0 */
/* Receives from any rank and with any tag take messages in the order of the
 * calls: against a model. */
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_data.h"

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
    wt_run_counts("SHM_EAGER=256", model_body);
    wt_run_both(3, NULL, model_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            receives_of_all_kinds_get_messages_in_the_order_of_the_calls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
