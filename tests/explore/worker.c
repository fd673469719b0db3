/* SPDX-License-Identifier: Apache-2.0 */
/* Workers: they do in place what they can, send the rest, and check that what
 * they read contains what they wrote. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

enum { DONE = 1, UNKNOWN = 2 };

static unsigned key_of(char letter)
{
    return islower((unsigned char)letter) ? 1 : 0;
}

static char kind_of(char letter)
{
    return (char)toupper((unsigned char)letter);
}

bool worker_can_step(const plan *p, const world *w, unsigned number)
{
    const worker *me = &w->worker[number];
    char letter = p->step[number][me->pc];
    unsigned busy;

    if (number >= p->workers || letter == 0 || w->dead[p->host[number]] == 2) {
        return false;
    }
    busy = me->busy[key_of(letter)];
    /* Its operations on one key are done one after the other; an intent may end
     * while one is under way. */
    return busy == 0 || (kind_of(letter) == 'E' &&
                         kind_of(p->step[number][busy - 1]) != 'L');
}

/* Does another worker overwrite the key? Then what is read says little. */
static bool others_set(const plan *p, unsigned number, unsigned key)
{
    for (unsigned n = 0; n < p->workers; n++) {
        if (n != number && strchr(p->step[n], key == 0 ? 'S' : 's') != NULL) {
            return true;
        }
    }
    return false;
}

/* What a worker reads contains what it has written. */
static void see(const plan *p, const world *w, unsigned number, unsigned key,
                int64_t value)
{
    const worker *me = &w->worker[number];
    bool overwritten = false;

    if (others_set(p, number, key) || p->deaths + p->host_deaths > 0) {
        return;
    }
    for (unsigned s = me->pc; s-- > 0;) {
        char letter = p->step[number][s];
        bool there = (value >> 4 * p->digit[number][s] & 15) == 1;
        if (key_of(letter) != key || me->done[s] != DONE ||
            (kind_of(letter) != 'U' && kind_of(letter) != 'S')) {
            continue;
        }
        if (there == overwritten) {
            world_fail(overwritten ? "a worker sees what it has overwritten"
                                   : "a worker does not see its own push");
        }
        overwritten = overwritten || kind_of(letter) == 'S';
    }
}

static wf_op_kind op_of(char kind)
{
    return kind == 'P'   ? WF_OP_PULL
           : kind == 'U' ? WF_OP_PUSH
           : kind == 'S' ? WF_OP_SET
                         : WF_OP_LOCALIZE;
}

static void complete(world *w, unsigned number, unsigned key, unsigned outcome)
{
    worker *me = &w->worker[number];

    me->done[me->busy[key] - 1] = (uint8_t)outcome;
    me->busy[key] = 0;
    me->sent[key] = 0;
}

static void in_place(const plan *p, world *w, unsigned number, unsigned step)
{
    char letter = p->step[number][step];
    unsigned key = key_of(letter);
    unsigned host = p->host[number];
    slot *at = &w->slot[host][w->key[host][key].slot];

    if (kind_of(letter) == 'P') {
        see(p, w, number, key, at->row);
        return;
    }
    at->row = (kind_of(letter) == 'S' ? 0 : at->row) +
              digit_value(p->digit[number][step]);
    at->version++;
}

static void send_op(const plan *p, world *w, unsigned number, unsigned step,
                    wf_op_kind op)
{
    worker *me = &w->worker[number];
    unsigned key = key_of(p->step[number][step]);
    unsigned host = p->host[number];
    uint32_t word = wf_key_word(&w->key[host][key], host);
    wf_message m;
    uint32_t to = wf_protocol_op(&m, key, op, host, word);
    unsigned node;

    if (w->dead[to] == 2 && (w->heard[host] >> to & 1) != 0) {
        to = host; /* whose server knows what is to be done */
    }
    node = server_node(w, to, host);
    m.data = p->digit[number][step];
    m.tag = number | step << 4 | (uint64_t)me->attempt[key] << 8 |
            (uint64_t)w->key[key][key].epoch << 16;
    me->busy[key] = (uint8_t)(step + 1);
    me->sent[key] = word;
    if (w->dead[to] != 2 && !(node < HOSTS && w->dead[node] != 0)) {
        flight_add(w, (FIRST_WORKER + number) * NODES + node, &m);
    }
}

/* Some worker of the host has an intent for the key. */
static bool wanted(const plan *p, const world *w, unsigned host, unsigned key)
{
    for (unsigned n = 0; n < p->workers; n++) {
        bool on = false;
        for (unsigned s = 0; p->host[n] == host && s < w->worker[n].pc; s++) {
            char kind = kind_of(p->step[n][s]);
            if (key_of(p->step[n][s]) == key && strchr("ILE", kind) != NULL) {
                on = kind != 'E';
            }
        }
        if (on) {
            return true;
        }
    }
    return false;
}

void worker_step(const plan *p, world *w, unsigned number)
{
    worker *me = &w->worker[number];
    unsigned step = me->pc++;
    unsigned host = p->host[number];
    char kind = kind_of(p->step[number][step]);
    unsigned key = key_of(p->step[number][step]);
    wf_key_state *k = &w->key[host][key];
    bool here = (wf_key_word(k, host) & WF_WORD_HERE) != 0;
    bool ordered = k->role == WF_COPY &&
                   ((kind == 'S' && !WF_MISTAKE(WF_SETS_COPY_ONLY)) ||
                    (kind == 'U' && p->optimizer));

    if (kind == 'I' || kind == 'E') {
        me->done[step] = DONE;
        wf_protocol_intent(world_env(p, w, host), k, wanted(p, w, host, key));
        world_forget(w, host, key);
    } else if (kind != 'L' && here && !ordered) {
        in_place(p, w, number, step);
        me->done[step] = DONE;
    } else {
        send_op(p, w, number, step, op_of(kind));
    }
}

/* The directory is taught what the answer says, if there is no record. */
static void learn(const plan *p, world *w, unsigned number, const wf_message *m)
{
    unsigned host = p->host[number];
    wf_key_state *k = &w->key[host][m->key];
    uint32_t word = wf_key_word(k, host);

    if (k->role == WF_ABSENT && k->flags == 0 && k->kept == WF_NO_SLOT &&
        m->owner != host) {
        word = wf_word_learn(word, w->worker[number].sent[m->key], m->owner,
                             m->epoch);
        k->owner = (uint16_t)wf_word_owner(word);
        k->epoch = wf_word_epoch(word);
    }
}

void worker_answer(const plan *p, world *w, unsigned number,
                   const wf_message *m)
{
    worker *me = &w->worker[number];
    unsigned key = (unsigned)m->key;
    unsigned host = p->host[number];
    unsigned step = m->tag >> 4 & 15;
    uint32_t word = wf_key_word(&w->key[host][key], host);
    bool apart = !(word & WF_WORD_HERE) && wf_word_owner(word) != host;

    if (me->busy[key] != step + 1 || me->attempt[key] != (m->tag >> 8 & 255)) {
        return; /* it was given up */
    }
    learn(p, w, number, m);
    if (m->grant != 0) {
        complete(w, number, key, UNKNOWN);
    } else if ((m->op == WF_OP_PUSH || m->op == WF_OP_SET) && m->from != host &&
               !apart && !WF_MISTAKE(MISTAKE_NO_HELD)) {
        send_op(p, w, number, step, WF_OP_HELD);
    } else {
        if (m->op == WF_OP_PULL) {
            see(p, w, number, key, (int64_t)m->data);
        }
        complete(w, number, key, DONE);
    }
}

void worker_hear(const plan *p, world *w, unsigned number, bool own_server)
{
    worker *me = &w->worker[number];

    for (unsigned key = 0; key < KEYS; key++) {
        unsigned step = me->busy[key] - 1u;
        char kind;
        if (me->busy[key] == 0) {
            continue;
        }
        kind = kind_of(p->step[number][step]);
        if (kind == 'P' || (kind == 'L' && own_server)) {
            me->attempt[key]++;
            send_op(p, w, number, step, op_of(kind));
        } else if (kind != 'L') {
            complete(w, number, key, UNKNOWN);
        }
    }
}
