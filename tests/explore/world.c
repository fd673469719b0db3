/* SPDX-License-Identifier: Apache-2.0 */
/* Messages on their way, deaths, and the actions of which a history is made. */
#include "world.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *world_fault;
bool world_talks;
int wf_mistake_made;

void world_fail(const char *what)
{
    if (world_fault == NULL) {
        world_fault = what;
    }
}

/* --- plans ---------------------------------------------------------------- */

static void plan_number_digits(plan *p)
{
    unsigned pushes = 0;
    unsigned sets = SET_DIGIT;

    for (unsigned n = 0; n < p->workers; n++) {
        for (unsigned s = 0; p->step[n][s] != 0; s++) {
            char what = (char)toupper(p->step[n][s]);
            p->keys = islower(p->step[n][s]) ? 2 : p->keys;
            if (what == 'U') {
                p->digit[n][s] = (uint8_t)pushes++;
            } else if (what == 'S') {
                p->digit[n][s] = (uint8_t)sets++;
            }
        }
    }
}

void plan_read(plan *p, const char *text)
{
    const char *at = text;

    *p = (plan){.text = text, .keys = 1, .rounds = 1, .room = 2};
    while (*at != 0 && p->workers < WORKERS) {
        unsigned n = 0;
        p->host[p->workers] = (uint8_t)(*at++ - '0');
        at++; /* the colon */
        while (*at != 0 && *at != ' ' && n < STEPS) {
            p->step[p->workers][n++] = *at++;
        }
        at += *at == ' ';
        p->workers++;
    }
    plan_number_digits(p);
}

bool plan_sets(const plan *p, unsigned key)
{
    for (unsigned n = 0; n < p->workers; n++) {
        if (strchr(p->step[n], key == 0 ? 'S' : 's') != NULL) {
            return true;
        }
    }
    return false;
}

/* --- messages ------------------------------------------------------------- */

int64_t digit_value(unsigned digit)
{
    return (int64_t)1 << 4 * digit;
}

unsigned flight_find(const world *w, unsigned where)
{
    for (unsigned i = 0; i < w->flights; i++) {
        if (w->flight[i].where == where) {
            return i;
        }
    }
    return FLIGHT;
}

unsigned flight_count(const world *w, unsigned where)
{
    unsigned n = 0;

    for (unsigned i = 0; i < w->flights; i++) {
        n += w->flight[i].where == where;
    }
    return n;
}

void flight_add(world *w, unsigned where, const wf_message *m)
{
    unsigned i = w->flights;

    if (i == FLIGHT) {
        world_fail("more messages than there is room for");
        return;
    }
    for (; i > 0 && w->flight[i - 1].where > where; i--) {
        w->flight[i] = w->flight[i - 1];
    }
    w->flight[i].where = (uint16_t)where;
    w->flight[i].m = *m;
    w->flights++;
}

wf_message flight_take(world *w, unsigned index)
{
    wf_message m = w->flight[index].m;

    w->flights--;
    memmove(&w->flight[index], &w->flight[index + 1],
            (w->flights - index) * sizeof(w->flight[0]));
    memset(&w->flight[w->flights], 0, sizeof(w->flight[0]));
    return m;
}

unsigned server_node(const world *w, unsigned of, unsigned as_known_by)
{
    bool successor = of == as_known_by ? w->dead[of] == 1
                                       : (w->heard[as_known_by] >> of & 1) != 0;

    return successor ? SUCCESSOR + of : of;
}

static bool node_is_dead(const world *w, unsigned node)
{
    return node < HOSTS && w->dead[node] != 0;
}

/* --- the world ------------------------------------------------------------ */

void world_init(const plan *p, world *w)
{
    memset(w, 0, sizeof(*w));
    for (unsigned h = 0; h < HOSTS; h++) {
        w->rounds[h] = (uint8_t)p->rounds;
        for (unsigned k = 0; k < KEYS; k++) {
            wf_key_init(&w->key[h][k], k, h, k, k);
            w->key[h][k].epoch = (uint16_t)(h == k ? p->moves : 0);
            w->slot[h][k].epoch = w->key[h][k].epoch;
            w->slot[h][k].used = h == k && k < p->keys;
        }
    }
    w->deaths = (uint8_t)(p->deaths + p->host_deaths);
    w->again = w->deaths;
}

static bool act_round(const plan *p, world *w, unsigned host)
{
    bool changed = false;

    if (w->rounds[host] == 0 || w->dead[host] == 2) {
        return false;
    }
    for (unsigned k = 0; k < p->keys; k++) {
        wf_key_state *state = &w->key[host][k];
        uint32_t serial = w->serial[host];
        unsigned flights = w->flights;
        wf_protocol_tick(world_env(p, w, host), state, false);
        world_forget(w, host, k);
        changed = changed || w->serial[host] != serial || w->flights != flights;
    }
    w->rounds[host]--;
    return changed;
}

/* Messages that were on their way to a node, or parked with it. */
static void lose_at(world *w, unsigned host, unsigned node)
{
    for (unsigned i = w->flights; i-- > 0;) {
        unsigned where = w->flight[i].where;
        bool to = where < PARKED && where % NODES == node;
        bool parked =
            where >= PARKED && (where - PARKED) / KEYS % HOSTS == host;
        if (to || (parked && node < HOSTS)) {
            flight_take(w, i);
        }
    }
}

static void lose_from(world *w, unsigned node)
{
    for (unsigned i = w->flights; i-- > 0;) {
        unsigned where = w->flight[i].where;
        if (where < PARKED && where / NODES == node) {
            flight_take(w, i);
        }
    }
}

static void host_vanishes(const plan *p, world *w, unsigned host, bool lose)
{
    w->dead[host] = 2;
    for (unsigned n = 0; n < p->workers; n++) {
        if (p->host[n] == host) {
            lose_at(w, host, FIRST_WORKER + n);
            if (lose) {
                lose_from(w, FIRST_WORKER + n);
            }
        }
    }
    for (unsigned k = 0; k < KEYS; k++) {
        memset(&w->key[host][k], 0, sizeof(w->key[host][k]));
        w->key[host][k].kept = WF_NO_SLOT;
    }
    memset(w->slot[host], 0, sizeof(w->slot[host]));
}

static bool act_die(const plan *p, world *w, unsigned host, bool lose)
{
    if (w->deaths == 0 || w->dead[host] != 0) {
        return false;
    }
    w->deaths--;
    lose_at(w, host, host);
    if (lose) {
        lose_from(w, host);
    }
    if (p->host_deaths > 0) {
        host_vanishes(p, w, host, lose);
        return true;
    }
    w->dead[host] = 1;
    for (unsigned k = 0; k < p->keys; k++) {
        wf_protocol_server_died(world_env(p, w, host), &w->key[host][k], host);
        world_forget(w, host, k);
    }
    for (unsigned n = 0; n < p->workers; n++) {
        if (p->host[n] == host) {
            worker_hear(p, w, n, true);
        }
    }
    return true;
}

static bool all_have_heard(const world *w, unsigned dead)
{
    for (unsigned h = 0; h < HOSTS; h++) {
        if (h != dead && w->dead[h] != 2 && (w->heard[h] >> dead & 1) == 0) {
            return false;
        }
    }
    return true;
}

/* A host hears of a death, and again when all have heard of it: what was sent
 * between may have gone through one that had not, to the dead. Since hosts do
 * not know when that is, they may also do so too early. */
static bool act_hear(const plan *p, world *w, unsigned host, unsigned dead)
{
    bool first = host != dead && (w->heard[host] >> dead & 1) == 0;
    bool early = !first && !all_have_heard(w, dead);
    unsigned bit = first ? dead : dead + HOSTS;

    if (w->dead[dead] == 0 || w->dead[host] == 2 ||
        (w->heard[host] >> bit & 1) != 0 || (early && w->again == 0)) {
        return false;
    }
    if (early) {
        w->again--;
    } else {
        w->heard[host] = (uint8_t)(w->heard[host] | 1u << bit);
    }
    for (unsigned k = 0; k < p->keys; k++) {
        if (w->dead[dead] == 2) {
            wf_protocol_host_died(world_env(p, w, host), &w->key[host][k],
                                  dead);
        } else {
            wf_protocol_server_died(world_env(p, w, host), &w->key[host][k],
                                    dead);
        }
        world_forget(w, host, k);
    }
    for (unsigned n = 0; n < p->workers; n++) {
        if (p->host[n] == host) {
            worker_hear(p, w, n, false);
        }
    }
    return true;
}

static bool act_deliver(const plan *p, world *w, unsigned where)
{
    unsigned index = flight_find(w, where);
    unsigned to = where % NODES;
    wf_message m;

    if (index == FLIGHT) {
        return false;
    }
    m = flight_take(w, index);
    if (to >= FIRST_WORKER) {
        worker_answer(p, w, to - FIRST_WORKER, &m);
    } else if (!node_is_dead(w, to)) {
        unsigned host = to % HOSTS;
        unsigned from = where / NODES;
        if (from >= SUCCESSOR && from < FIRST_WORKER &&
            (w->heard[host] >> from % HOSTS & 1) == 0) {
            /* A message of the second server says that the first is dead. */
            act_hear(p, w, host, from % HOSTS);
        }
        if (!wf_protocol_possible(&w->key[host][m.key], &m)) {
            world_fail("a message is taken for an impossible one");
            return true;
        }
        wf_protocol_receive(world_env(p, w, host), &w->key[host][m.key], &m);
        world_forget(w, host, m.key);
    }
    return true;
}

bool world_act(const plan *p, world *w, unsigned action)
{
    if (action >= ACT_DELIVER) {
        return act_deliver(p, w, action - ACT_DELIVER);
    }
    if (action >= ACT_DIE) {
        return act_die(p, w, (action - ACT_DIE) / 2, (action - ACT_DIE) % 2);
    }
    if (action >= ACT_HEAR) {
        return act_hear(p, w, (action - ACT_HEAR) / HOSTS,
                        (action - ACT_HEAR) % HOSTS);
    }
    if (action >= ACT_ROUND) {
        return act_round(p, w, action - ACT_ROUND);
    }
    if (worker_can_step(p, w, action)) {
        worker_step(p, w, action);
        return true;
    }
    return false;
}

/* --- in words ------------------------------------------------------------- */

static void say_node(const plan *p, unsigned node)
{
    if (node >= FIRST_WORKER) {
        unsigned n = node - FIRST_WORKER;
        printf("worker %u of host %u", n, p->host[n]);
    } else {
        printf("%s %u", node < HOSTS ? "server" : "second server",
               node % HOSTS);
    }
}

static void say_message(const wf_message *m)
{
    static const char *const kinds[] = {"",     "OP",      "SYNC",  "GRANT",
                                        "NEWS", "SETTLED", "RETURN"};
    static const char *const ops[] = {"",    "pull",     "push",
                                      "set", "localize", "held"};
    static const char *const grants[] = {"none", "copy", "own", "gone"};

    printf("%s%s%s of key %u", kinds[m->kind],
           m->kind == WF_MSG_OP || m->kind == WF_MSG_GRANT ? " " : "",
           m->kind == WF_MSG_OP      ? ops[m->op]
           : m->kind == WF_MSG_GRANT ? grants[m->grant]
                                     : "",
           (unsigned)m->key);
    printf(" (origin %u epoch %u serial %u version %u%s%s%s%s%s, data %llx)",
           m->origin, m->epoch, m->serial, (unsigned)m->version,
           wf_message_is(m, WF_MSG_WANTS) ? " wants" : "",
           wf_message_is(m, WF_MSG_DIFFERENCE) ? " difference" : "",
           wf_message_is(m, WF_MSG_OPS) ? " ops" : "",
           wf_message_is(m, WF_MSG_ROW) ? " row" : "",
           wf_message_is(m, WF_MSG_MARKED) ? " marked" : "",
           (unsigned long long)m->data);
}

static void say_states(const plan *p, const world *w)
{
    static const char *const roles[] = {"absent", "copy", "owner"};

    for (unsigned k = 0; k < p->keys; k++) {
        for (unsigned h = 0; h < HOSTS; h++) {
            const wf_key_state *s = &w->key[h][k];
            printf("      key %u host %u: %s owner %u epoch %u flags %02x", k,
                   h, roles[s->role], s->owner, s->epoch, s->flags);
            if (s->role != WF_ABSENT) {
                printf(" row %llx base %llx version %u",
                       (unsigned long long)w->slot[h][s->slot].row,
                       (unsigned long long)w->slot[h][s->slot].base,
                       w->slot[h][s->slot].version);
            }
            printf(" wants %x%s\n", (unsigned)s->wants.word[0],
                   s->kept != WF_NO_SLOT ? ", keeps the row" : "");
        }
    }
}

void world_say_action(const plan *p, const world *w, unsigned action)
{
    say_states(p, w);
    if (action >= ACT_DELIVER) {
        unsigned where = action - ACT_DELIVER;
        say_node(p, where / NODES);
        printf(" -> ");
        say_node(p, where % NODES);
        printf(": ");
        say_message(&w->flight[flight_find(w, where)].m);
    } else if (action >= ACT_DIE) {
        printf("%s %u dies%s", p->host_deaths > 0 ? "host" : "server",
               (action - ACT_DIE) / 2,
               (action - ACT_DIE) % 2 ? ", with what it had sent" : "");
    } else if (action >= ACT_HEAR) {
        printf("host %u hears (that all have heard) of the death of %u",
               (action - ACT_HEAR) / HOSTS, (action - ACT_HEAR) % HOSTS);
    } else if (action >= ACT_ROUND) {
        printf("round of host %u", action - ACT_ROUND);
    } else {
        printf("worker %u of host %u: %c", action, p->host[action],
               p->step[action][w->worker[action].pc]);
    }
    printf("\n");
}
