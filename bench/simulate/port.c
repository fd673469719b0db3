/* SPDX-License-Identifier: Apache-2.0 */
#include "port.h"

#include <stdlib.h>

enum { EAGER, OFFER, WANT, DATA };

void sim_port_init(wf_port *port, sim *s)
{
    *port = (wf_port){.sim = s};
    port->end = sim_alloc(s->model.ranks, sizeof(*port->end));
}

void sim_port_fini(wf_port *port)
{
    for (uint32_t r = 0; r < port->sim->model.ranks; r++) {
        sim_end *end = &port->end[r];

        while (end->first != NULL) {
            sim_message *m = end->first;

            end->first = m->next;
            sim_message_free(port->sim, m);
        }
    }
    free(port->end);
}

/* --- the receiving side --------------------------------------------------- */

/* An offer has met its receive: ask for the data. */
static void want(const wf_port *port, sim_message *offer, wf_msg *receive)
{
    sim_message *m = sim_message_new(port->sim, offer->to, offer->from);

    m->kind = WANT;
    m->length = offer->length;
    m->tag = offer->tag;
    m->sender = offer->sender;
    m->receiver = receive;
    sim_post(port->sim, m);
}

static void finish_receive(const wf_port *port, uint32_t rank, wf_msg *msg,
                           const sim_message *m)
{
    msg->from = m->from;
    msg->tag = m->tag;
    msg->n = m->length;
    if (m->content != NULL) {
        wf_copy(msg->buf, m->content,
                m->length < msg->room ? m->length : msg->room);
    }
    wf_msg_finish(msg, m->length > msg->room ? WEFT_ERR_TRUNCATED : WEFT_OK);
    sim_count_received(port->sim, rank, m->length);
}

static void meet(const wf_port *port, uint32_t rank, wf_msg *msg,
                 sim_message *m)
{
    if (m->kind == OFFER) {
        want(port, m, msg);
    } else {
        finish_receive(port, rank, msg, m);
    }
}

static wf_msg *posted_for(sim_end *end, const sim_message *m)
{
    wf_msg *before = NULL;

    for (wf_msg *p = end->posted.head; p != NULL; before = p, p = p->next) {
        if (p->peer == m->from && p->tag == m->tag) {
            wf_queue_cut(&end->posted, before, p);
            return p;
        }
    }
    return NULL;
}

static sim_message *early_for(sim_end *end, uint32_t from, uint64_t tag)
{
    sim_message *before = NULL;

    for (sim_message *m = end->first; m != NULL; before = m, m = m->next) {
        if (m->from == from && m->tag == tag) {
            if (before == NULL) {
                end->first = m->next;
            } else {
                before->next = m->next;
            }
            end->last = end->last == m ? before : end->last;
            return m;
        }
    }
    return NULL;
}

static void keep(sim_end *end, sim_message *m)
{
    m->next = NULL;
    if (end->first == NULL) {
        end->first = m;
    } else {
        end->last->next = m;
    }
    end->last = m;
}

static weft_status sim_recv(wf_port *port, uint32_t from, uint64_t tag,
                            uint64_t mask, void *buf, size_t room, wf_msg *msg)
{
    sim_end *end = &port->end[port->rank];
    sim_message *m = early_for(end, from, tag);

    *msg = (wf_msg){
        .peer = from, .tag = tag, .mask = mask, .buf = buf, .room = room};
    if (m == NULL) {
        wf_queue_push(&end->posted, msg);
        return WEFT_OK;
    }
    meet(port, port->rank, msg, m);
    sim_message_free(port->sim, m);
    return WEFT_OK;
}

/* --- the sending side ----------------------------------------------------- */

static weft_status sim_send(wf_port *port, uint32_t to, uint64_t tag,
                            const void *buf, size_t n, wf_msg *msg)
{
    sim_message *m = sim_message_new(port->sim, port->rank, to);
    bool eager = (double)n <= port->sim->model.eager;

    *msg = (wf_msg){.peer = to, .tag = tag};
    m->kind = eager ? EAGER : OFFER;
    m->bytes = eager ? n : 0;
    m->length = n;
    m->tag = tag;
    m->sender = msg;
    if (port->content && n <= SIM_CONTENT_MAX) {
        m->content = sim_alloc(1, n);
        wf_copy(m->content, buf, n);
    }
    sim_count_sent(port->sim, port->rank, to, n);
    sim_post(port->sim, m);
    if (eager) {
        wf_msg_finish(msg, WEFT_OK);
    }
    return WEFT_OK;
}

static void send_data(const wf_port *port, const sim_message *wanted)
{
    sim_message *m = sim_message_new(port->sim, wanted->to, wanted->from);

    m->kind = DATA;
    m->bytes = wanted->length;
    m->length = wanted->length;
    m->tag = wanted->tag;
    m->sender = wanted->sender;
    m->receiver = wanted->receiver;
    sim_post(port->sim, m);
}

bool sim_port_arrived(wf_port *port, uint32_t rank, sim_message *m)
{
    sim_end *end = &port->end[rank];
    wf_msg *msg;

    switch (m->kind) {
    case WANT:
        send_data(port, m);
        return true;
    case DATA:
        finish_receive(port, rank, m->receiver, m);
        wf_msg_finish(m->sender, WEFT_OK);
        sim_wake(port->sim, m->from, port->sim->now);
        return true;
    default:
        msg = posted_for(end, m);
        if (msg == NULL) {
            keep(end, m);
            return false;
        }
        meet(port, rank, msg, m);
        return true;
    }
}

static void sim_drop(wf_port *port, wf_msg *msg)
{
    (void)wf_queue_remove(&port->end[port->rank].posted, msg);
}

const wf_transport sim_transport = {
    .abi = WF_TRANSPORT_ABI,
    .name = "simulated",
    .send = sim_send,
    .recv = sim_recv,
    .drop = sim_drop,
};
