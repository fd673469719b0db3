/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold in every state, and when everything has come to rest. */
#include <ctype.h>
#include <string.h>

#include "world.h"

static bool with_deaths(const plan *p)
{
    return p->deaths + p->host_deaths > 0;
}

/* Every push is there once or not at all, and one set at most. */
static bool row_is_sound(int64_t row)
{
    unsigned sets = 0;

    for (unsigned digit = 0; digit < 16; digit++) {
        unsigned times = (unsigned)(row >> 4 * digit & 15);
        if (times > 1) {
            return false;
        }
        sets += digit >= SET_DIGIT ? times : 0;
    }
    return sets <= 1;
}

static bool is_to_server(const flight *f)
{
    return f->where >= PARKED || f->where % NODES < FIRST_WORKER;
}

static void check_owners(const plan *p, const world *w, unsigned key)
{
    unsigned owners = 0;
    unsigned moving = 0;
    unsigned kept = 0;

    for (unsigned h = 0; h < HOSTS; h++) {
        owners += w->key[h][key].role == WF_OWNER;
        kept += w->key[h][key].kept != WF_NO_SLOT;
    }
    for (unsigned i = 0; i < w->flights; i++) {
        const wf_message *m = &w->flight[i].m;
        moving += m->key == key && m->kind == WF_MSG_GRANT &&
                  m->grant == WF_GRANT_OWN;
    }
    if (owners > 1 || (!with_deaths(p) && owners + moving > 1)) {
        world_fail("a key has two owners");
    } else if (owners + (with_deaths(p) ? kept : moving) == 0 &&
               p->host_deaths == 0) {
        world_fail("a key has no owner");
    }
}

/* Without sets: what the owner has, what is on its way there and what waits in
 * copies is what was pushed. */
static void check_sum(const plan *p, const world *w, unsigned key)
{
    int64_t sum = 0;

    for (unsigned h = 0; h < HOSTS; h++) {
        const wf_key_state *k = &w->key[h][key];
        if (k->role != WF_ABSENT) {
            const slot *at = &w->slot[h][k->slot];
            sum += at->row - (k->role == WF_COPY ? at->base : 0);
        }
    }
    for (unsigned i = 0; i < w->flights; i++) {
        const wf_message *m = &w->flight[i].m;
        if (m->key != key || !is_to_server(&w->flight[i])) {
            continue;
        }
        if (m->kind == WF_MSG_SYNC && wf_message_is(m, WF_MSG_DIFFERENCE)) {
            sum += (int64_t)m->data;
        } else if (m->kind == WF_MSG_GRANT && m->grant == WF_GRANT_OWN) {
            sum += (int64_t)m->data;
        } else if (m->kind == WF_MSG_OP && m->op == WF_OP_PUSH) {
            sum += digit_value((unsigned)m->data);
        }
    }
    for (unsigned n = 0; n < p->workers; n++) {
        for (unsigned s = 0; s < w->worker[n].pc; s++) {
            if (p->step[n][s] == (key == 0 ? 'U' : 'u')) {
                sum -= digit_value(p->digit[n][s]);
            }
        }
    }
    if (sum != 0) {
        world_fail("a push is lost or there twice");
    }
}

static void check_exchanges(const world *w, unsigned key)
{
    unsigned under_way[HOSTS] = {0};

    for (unsigned i = 0; i < w->flights; i++) {
        const wf_message *m = &w->flight[i].m;
        if (m->kind == WF_MSG_SYNC && m->key == key) {
            under_way[m->origin]++;
        }
    }
    for (unsigned h = 0; h < HOSTS; h++) {
        const wf_key_state *k = &w->key[h][key];
        const wf_key_state *owner = &w->key[k->owner][key];
        if (under_way[h] > (wf_key_is(k, WF_KEY_ASKED) ? 1u : 0u)) {
            world_fail("two exchanges of a key are under way");
        }
        if (k->role == WF_COPY && !wf_key_is(k, WF_KEY_ASKED) &&
            (owner->role != WF_OWNER || !wf_hosts_has(&owner->wants, h))) {
            world_fail("an owner does not know of a copy");
        }
    }
}

void check_state(const plan *p, const world *w)
{
    for (unsigned key = 0; key < p->keys && world_fault == NULL; key++) {
        check_owners(p, w, key);
        for (unsigned h = 0; h < HOSTS; h++) {
            const wf_key_state *k = &w->key[h][key];
            if (k->role != WF_ABSENT &&
                !row_is_sound(w->slot[h][k->slot].row)) {
                world_fail("a row has a push or a set twice");
            }
        }
        if (!with_deaths(p)) {
            check_exchanges(w, key);
            if (!plan_sets(p, key) && !p->optimizer) {
                check_sum(p, w, key);
            }
        }
    }
}

bool world_is_quiet(const plan *p, const world *w)
{
    for (unsigned n = 0; n < p->workers; n++) {
        if (worker_can_step(p, w, n)) {
            return false;
        }
    }
    /* What is parked comes before what is packed. */
    return w->flights == 0 || w->flight[0].where >= PARKED;
}

/* --- the end -------------------------------------------------------------- */

static bool lives(const world *w, unsigned host)
{
    return w->dead[host] != 2;
}

/* Do everything there is to do, in one order. */
static void let_run(const plan *p, world *w)
{
    for (unsigned n = 0; n < 1000 && world_fault == NULL; n++) {
        bool any = false;
        for (unsigned a = 0; a < ACTIONS && world_fault == NULL; a++) {
            bool rounds = a >= ACT_ROUND && a < ACT_HEAR;
            if (!rounds && !(a >= ACT_DIE && a < ACT_DELIVER)) {
                any = world_act(p, w, a) || any;
            }
        }
        if (!any) {
            return;
        }
    }
    world_fail("it does not come to rest");
}

static void all_rounds(const plan *p, world *w)
{
    let_run(p, w);
    for (unsigned n = 0; n < 4 && world_fault == NULL; n++) {
        for (unsigned h = 0; h < HOSTS; h++) {
            for (unsigned k = 0; k < p->keys && lives(w, h); k++) {
                wf_protocol_tick(world_env(p, w, h), &w->key[h][k], true);
                world_forget(w, h, k);
            }
        }
        let_run(p, w);
    }
}

static const wf_key_state *owner_of(const world *w, unsigned key, unsigned *at)
{
    for (unsigned h = 0; h < HOSTS; h++) {
        if (lives(w, h) && w->key[h][key].role == WF_OWNER) {
            *at = h;
            return &w->key[h][key];
        }
    }
    return NULL;
}

static void check_copies(const plan *p, const world *w, unsigned key)
{
    unsigned at = 0;
    const wf_key_state *owner = owner_of(w, key, &at);
    int64_t row = owner == NULL ? 0 : w->slot[at][owner->slot].row;

    if (owner == NULL) {
        if (p->host_deaths == 0) {
            world_fail("in the end a key has no owner");
        }
        return;
    }
    for (unsigned h = 0; h < HOSTS; h++) {
        const wf_key_state *k = &w->key[h][key];
        bool copy = lives(w, h) && k->role == WF_COPY;
        if (copy && w->slot[h][k->slot].row != row) {
            world_fail("in the end a copy is not as the owner's row");
        }
        if (wf_hosts_has(&owner->wants, h) != copy) {
            world_fail("in the end the owner is wrong about who has copies");
        }
        if (lives(w, h) && k->kept != WF_NO_SLOT) {
            world_fail("in the end a row is kept that was given away");
        }
        if (lives(w, h) && (wf_key_is(k, WF_KEY_ASKED | WF_KEY_UNSETTLED))) {
            world_fail("in the end something is under way");
        }
    }
}

static void check_workers(const plan *p, const world *w)
{
    for (unsigned n = 0; n < p->workers; n++) {
        const worker *me = &w->worker[n];
        if (lives(w, p->host[n]) &&
            (p->step[n][me->pc] != 0 || me->busy[0] != 0 || me->busy[1] != 0)) {
            world_fail("in the end a worker waits for an answer");
        }
        for (unsigned s = 0; s < me->pc && !with_deaths(p); s++) {
            if (me->done[s] == 2 && p->room > 0) {
                world_fail("an operation failed");
            }
        }
    }
    if (w->flights > 0) {
        world_fail("in the end a message is parked");
    }
}

/* Is this push, by the order of its worker and of the set that counts, in the
 * row? 0: no, 1: yes, 2: either. */
static unsigned expected(const plan *p, const world *w, unsigned n, unsigned s,
                         int64_t row)
{
    char set = islower((unsigned char)p->step[n][s]) ? 's' : 'S';

    for (unsigned t = 0; p->step[n][t] != 0; t++) {
        if (p->step[n][t] == set && (row >> 4 * p->digit[n][t] & 15) == 1) {
            return t < s ? 1 : 0;
        }
    }
    if (row >> 4 * SET_DIGIT != 0 || w->worker[n].done[s] != 1) {
        return 2;
    }
    return 1;
}

static void check_row(const plan *p, const world *w, unsigned key)
{
    unsigned at = 0;
    const wf_key_state *owner = owner_of(w, key, &at);
    bool may_lose = p->host_deaths > 0 || w->lost[key] != 0;
    int64_t row;

    if (owner == NULL) {
        return;
    }
    row = w->slot[at][owner->slot].row;
    for (unsigned n = 0; n < p->workers; n++) {
        for (unsigned s = 0; s < w->worker[n].pc; s++) {
            unsigned there = (unsigned)(row >> 4 * p->digit[n][s] & 15);
            unsigned should = expected(p, w, n, s, row);
            if (p->step[n][s] == (key == 0 ? 'U' : 'u') && should != 2 &&
                there != should && !(there == 0 && may_lose)) {
                world_fail("in the end a push is not in the row, or was not "
                           "overwritten by a later set");
            }
        }
    }
    if (!with_deaths(p) && plan_sets(p, key) && row >> 4 * SET_DIGIT == 0) {
        world_fail("in the end a set is not in the row");
    }
}

static void check_home(const world *w, unsigned key)
{
    unsigned at = 0;

    if (owner_of(w, key, &at) != NULL && lives(w, key) &&
        w->key[key][key].owner != at) {
        world_fail("in the end the home does not know the owner");
    }
}

void check_end(const plan *p, const world *start)
{
    static world w;

    w = *start;
    w.deaths = 0;
    all_rounds(p, &w);
    check_workers(p, &w);
    for (unsigned k = 0; k < p->keys && world_fault == NULL; k++) {
        check_copies(p, &w, k);
        check_row(p, &w, k);
        check_home(&w, k);
    }
    for (unsigned h = 0; h < HOSTS; h++) {
        for (unsigned k = 0; k < p->keys && lives(&w, h); k++) {
            wf_protocol_intent(world_env(p, &w, h), &w.key[h][k], false);
            world_forget(&w, h, k);
        }
    }
    all_rounds(p, &w);
    for (unsigned k = 0; k < p->keys && world_fault == NULL; k++) {
        check_copies(p, &w, k);
        check_row(p, &w, k);
        for (unsigned h = 0; h < HOSTS; h++) {
            if (w.key[h][k].role == WF_COPY) {
                world_fail("a copy stays although nobody wants it");
            }
        }
    }
}
