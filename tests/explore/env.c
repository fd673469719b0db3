/* SPDX-License-Identifier: Apache-2.0 */
/* What the protocol acts through, in the small world. */
#include "world.h"

typedef struct side {
    const plan *p;
    world *w;
    unsigned host;
    int64_t pulled; /* by the last operation that was applied */
} side;

static slot *slot_of(const side *s, const wf_key_state *k)
{
    static slot nowhere;

    if (k->slot >= SLOTS) {
        world_fail("a row is used that has no slot");
        return &nowhere;
    }
    return &s->w->slot[s->host][k->slot];
}

static uint32_t env_home(void *ctx, uint64_t key)
{
    (void)ctx;
    return (uint32_t)key;
}

static void env_save(void *ctx, const wf_key_state *k)
{
    const side *s = ctx;

    if (wf_key_word(k, s->host) & WF_WORD_HERE) {
        slot_of(s, k)->epoch = k->epoch;
    }
}

static uint32_t env_serial(void *ctx)
{
    const side *s = ctx;

    return WF_MISTAKE(MISTAKE_SERIAL_AGAIN) ? 1 : ++s->w->serial[s->host];
}

void world_forget(world *w, unsigned host, uint64_t key)
{
    wf_key_state *k = &w->key[host][key];
    uint32_t word = wf_key_word(k, host);
    uint32_t at = word & ~WF_WORD_HERE;
    uint16_t epoch =
        word & WF_WORD_HERE && at < SLOTS ? w->slot[host][at].epoch : 0;

    if (wf_key_plain(k)) {
        wf_key_load(k, key, word, epoch, host);
    }
}

/* A message that was forwarded too often; see protocol_route.c. The epoch that
 * the home knew when it was sent is in its tag. */
static void check_hops(const side *s, const wf_message *m)
{
    unsigned latest = 0;

    for (unsigned h = 0; h < HOSTS; h++) {
        unsigned epoch = s->w->key[h][m->key].epoch;
        latest = epoch > latest ? epoch : latest;
    }
    if (m->hops > 2 + latest - (m->tag >> 16 & 0xff)) {
        world_fail("a message is forwarded too often");
    }
}

static void env_send(void *ctx, uint32_t to, const wf_message *m)
{
    side *s = ctx;
    unsigned from = server_node(s->w, s->host, s->host);
    unsigned node = server_node(s->w, to, s->host);
    wf_message copy = *m;

    if (to == s->host || to >= HOSTS) {
        world_fail("a server sends a message to itself or to nobody");
        return;
    }
    if (m->kind == WF_MSG_SYNC && m->hops == 0) {
        copy.tag |= (uint64_t)s->w->key[m->key][m->key].epoch << 16;
    }
    if (m->kind <= WF_MSG_SYNC && s->p->moves == 0 &&
        s->p->deaths + s->p->host_deaths == 0) {
        check_hops(s, &copy);
    }
    if (s->w->dead[to] == 2 || (node < HOSTS && s->w->dead[node] != 0)) {
        return; /* to a rank that is dead */
    }
    flight_add(s->w, from * NODES + node, &copy);
}

static void env_answer(void *ctx, const wf_key_state *k, const wf_message *op,
                       weft_status status)
{
    side *s = ctx;
    unsigned from = server_node(s->w, s->host, s->host);
    wf_message m = *op;

    m.from = (uint16_t)s->host;
    m.owner = k->owner;
    m.epoch = k->epoch;
    m.grant = status != WEFT_OK;
    m.flags = 0;
    m.hops = 0;
    if (op->op == WF_OP_PULL && status == WEFT_OK) {
        m.data = (uint64_t)s->pulled;
    }
    if (s->w->dead[op->origin] != 2) {
        flight_add(s->w, from * NODES + FIRST_WORKER + (op->tag & 15), &m);
    }
}

static unsigned park_of(const side *s, uint64_t key)
{
    return PARKED + s->host * KEYS + (unsigned)key;
}

static unsigned pack_of(const side *s, uint64_t key)
{
    return PACKED + s->host * KEYS + (unsigned)key;
}

static void env_park(void *ctx, const wf_message *m)
{
    side *s = ctx;

    flight_add(s->w, park_of(s, m->key), m);
}

static bool env_unpark(void *ctx, uint64_t key, wf_message *out)
{
    side *s = ctx;
    unsigned index = flight_find(s->w, park_of(s, key));

    if (index == FLIGHT) {
        return false;
    }
    *out = flight_take(s->w, index);
    return true;
}

static unsigned env_parked(void *ctx, uint64_t key)
{
    side *s = ctx;

    return flight_count(s->w, park_of(s, key));
}

/* Kind and digit of each operation go into the tag, from bit 32 on. */
static bool env_pack(void *ctx, wf_message *sync)
{
    side *s = ctx;
    unsigned n = 0;
    unsigned i = 0;

    while (i < s->w->flights) {
        const wf_message *m = &s->w->flight[i].m;
        bool takes =
            s->w->flight[i].where == park_of(s, sync->key) &&
            m->kind == WF_MSG_OP && m->origin == s->host &&
            (m->op == WF_OP_SET || m->op == WF_OP_HELD || m->op == WF_OP_PUSH);
        if (takes) {
            wf_message op = flight_take(s->w, i);
            sync->tag |= (uint64_t)(op.op | op.data << 4) << (32 + 8 * n++);
            flight_add(s->w, pack_of(s, sync->key), &op);
        } else {
            i++;
        }
    }
    return n > 0;
}

static void env_unpack(void *ctx, const wf_key_state *k, weft_status status)
{
    side *s = ctx;
    unsigned index = flight_find(s->w, pack_of(s, k->key));

    while (index != FLIGHT) {
        wf_message op = flight_take(s->w, index);
        env_answer(ctx, k, &op, status);
        index = flight_find(s->w, pack_of(s, k->key));
    }
}

static uint32_t env_reserve(void *ctx, uint64_t key)
{
    side *s = ctx;
    unsigned used = 0;
    uint32_t found = WF_NO_SLOT;

    (void)key;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (s->w->slot[s->host][i].used == 0) {
            found = found == WF_NO_SLOT ? i : found;
        } else {
            used++;
        }
    }
    /* A host has room for the keys of its own, and some. */
    if (found == WF_NO_SLOT ||
        used >= s->p->room + (s->host < s->p->keys ? 1 : 0)) {
        return WF_NO_SLOT;
    }
    s->w->slot[s->host][found].used = 1;
    return found;
}

static void env_release(void *ctx, uint64_t key, uint32_t number)
{
    side *s = ctx;

    (void)key;
    if (s->w->slot[s->host][number].used == 0) {
        world_fail("a slot is freed twice");
    }
    s->w->slot[s->host][number] = (slot){0};
}

static void do_op(slot *at, unsigned op, unsigned digit)
{
    if (op == WF_OP_PUSH) {
        at->row += digit_value(digit);
        at->version++;
    } else if (op == WF_OP_SET) {
        at->row = digit_value(digit);
        at->version++;
    }
}

static void env_apply(void *ctx, const wf_key_state *k, const wf_message *op)
{
    side *s = ctx;

    s->pulled = slot_of(s, k)->row;
    do_op(slot_of(s, k), op->op, (unsigned)op->data);
}

static void env_merge(void *ctx, const wf_key_state *k, const wf_message *sync)
{
    side *s = ctx;
    slot *at = slot_of(s, k);

    if (wf_message_is(sync, WF_MSG_DIFFERENCE)) {
        at->row += (int64_t)sync->data;
        at->version++;
    }
    if (wf_message_is(sync, WF_MSG_OPS)) {
        for (uint64_t ops = sync->tag >> 32; ops != 0; ops >>= 8) {
            do_op(at, ops & 15, ops >> 4 & 15);
        }
    }
}

static bool env_differs(void *ctx, const wf_key_state *k)
{
    const slot *at = slot_of(ctx, k);

    return at->row != at->base;
}

static void env_put_difference(void *ctx, const wf_key_state *k,
                               wf_message *sync)
{
    slot *at = slot_of(ctx, k);

    sync->data = (uint64_t)(at->row - at->base);
    if (!WF_MISTAKE(MISTAKE_SENT_STAYS)) {
        at->base = at->row;
    }
}

static void env_put_row(void *ctx, const wf_key_state *k, uint32_t number,
                        wf_message *grant)
{
    side *s = ctx;

    (void)k;
    if (s->w->slot[s->host][number].used == 0) {
        world_fail("a row is sent from a slot that is free");
    }
    grant->data = (uint64_t)s->w->slot[s->host][number].row;
}

static void env_land_copy(void *ctx, const wf_key_state *k,
                          const wf_message *grant, bool fresh)
{
    slot *at = slot_of(ctx, k);
    int64_t since = fresh ? 0 : at->row - at->base;

    at->base = (int64_t)grant->data;
    at->row = at->base + since;
    at->version++;
}

static void env_land_owner(void *ctx, const wf_key_state *k,
                           const wf_message *grant, bool fresh)
{
    slot *at = slot_of(ctx, k);
    int64_t since = fresh ? 0 : at->row - at->base;

    at->row = (int64_t)grant->data + since;
    at->base = 0;
    at->version++;
}

static uint32_t env_version(void *ctx, const wf_key_state *k)
{
    return slot_of(ctx, k)->version;
}

static void env_happened(void *ctx, const wf_key_state *k, wf_happened what)
{
    side *s = ctx;

    if (what == WF_LOST) {
        s->w->lost[k->key] = 1;
    }
    walk_happened(what);
}

const wf_protocol_env *world_env(const plan *p, world *w, unsigned host)
{
    static side here;
    static wf_protocol_env env = {
        .ctx = &here,
        .home = env_home,
        .save = env_save,
        .serial = env_serial,
        .send = env_send,
        .answer = env_answer,
        .park = env_park,
        .unpark = env_unpark,
        .parked = env_parked,
        .pack = env_pack,
        .unpack = env_unpack,
        .reserve = env_reserve,
        .release = env_release,
        .apply = env_apply,
        .merge = env_merge,
        .differs = env_differs,
        .put_difference = env_put_difference,
        .put_row = env_put_row,
        .land_copy = env_land_copy,
        .land_owner = env_land_owner,
        .version = env_version,
        .happened = env_happened,
    };

    here = (side){.p = p, .w = w, .host = host};
    env.host = host;
    env.hosts = HOSTS;
    env.techniques = p->techniques;
    env.optimizer = p->optimizer;
    env.gone = (wf_hosts){{0}};
    for (unsigned h = 0; h < HOSTS; h++) {
        if (w->dead[h] == 2 && (w->heard[host] >> h & 1) != 0) {
            wf_hosts_add(&env.gone, h);
        }
    }
    return &env;
}
