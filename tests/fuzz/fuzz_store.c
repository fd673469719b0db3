/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of other hosts write parcels to the server of a store, and its own
 * workers send operations. Whatever is in them, only rows of this host are read
 * and written, every key that is here has a slot of its own, and nothing waits.
 *
 * The input is a byte of choices and then events: a piece of a parcel with any
 * header, a parcel with messages whose fields are likely ones, operations on
 * several keys, an intent, a key's part of a round. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "stage.h"
#include "store/hosts/bulk.h"

enum {
    LENGTHS = 1, /* bits of the first byte */
    OPTIMIZES = 2,
    PUSHES = 4,
    HASHED = 8,
    KEYS = 9,
    LENGTH = 3,
    LONG = 700,
    ASKED = 3,
    WORKER = 0,
    STORE = 77,
    ENTRY_ROOM = 16384,
    EVENTS = 400 /* of one input */
};

typedef struct rig {
    stage s;
    weft_comm comm;
    uint32_t member[STAGE_RANKS];
    weft_store store;
    wf_store_hosts h;
    weft_worker worker;
    void *parcels;
    /* An operation of this rank that is under way. */
    wf_op_place place;
    wf_remote op;
    uint64_t key[ASKED];
    uint64_t offset[ASKED];
    uint32_t word[ASKED];
    uint32_t order[ASKED];
    bool answered[ASKED];
    bool bulk[ASKED];
    wf_share share;
    float values[KEYS * LONG];
} rig;

/* The ranks of a host share rows by regions, which need a world of their own:
 * it has this rank only, and lives as long as the process. */
static weft_comm *alone(void)
{
    static weft_world *world;

    if (world == NULL) {
        weft_world_options o = {.size = sizeof(o)};

        must(weft_world_create(&o, &world) == WEFT_OK);
    }
    return weft_world_comm(world);
}

static uint64_t room_of(void *ctx, uint64_t length, uint64_t keys)
{
    (void)ctx;
    (void)length;
    return 3 * keys;
}

static void make_rows(rig *r, uint8_t choices)
{
    static const int64_t lengths[KEYS] = {3, 0, 1, 3, LONG, 3, 0, 1, LONG};
    weft_update rule = {.size = sizeof(rule), .kind = WEFT_ADAM, .lr = 1};
    wf_slots_options o = {.type = WEFT_F32,
                          .keys = KEYS,
                          .max_keys = KEYS,
                          .length = LENGTH,
                          .lengths = choices & LENGTHS ? lengths : NULL,
                          .optimizer = choices & OPTIMIZES ? &rule : NULL,
                          .room = room_of,
                          .timeout = 5};

    r->store.ids = KEYS;
    r->store.optimizes = o.optimizer != NULL;
    if (choices & HASHED) {
        must(wf_hash_create(alone(), STAGE_RANKS, 0, KEYS / STAGE_RANKS, KEYS,
                            &r->store.hash) == WEFT_OK);
    }
    must(wf_slots_create(alone(), &o, &r->store.slots) == WEFT_OK);
}

static void make_hosts(rig *r)
{
    wf_store_hosts *h = &r->h;

    h->store = &r->store;
    r->store.counts = &r->store.own_counts;
    h->world = &r->s.world;
    h->writer = WF_WRITERS - 1;
    h->serves = true;
    h->server = calloc(STAGE_RANKS, sizeof(*h->server));
    h->dead = calloc(STAGE_RANKS, sizeof(*h->dead));
    h->told = calloc(STAGE_RANKS, sizeof(*h->told));
    h->host_of = calloc(STAGE_RANKS, sizeof(*h->host_of));
    h->out = calloc(STAGE_RANKS, sizeof(*h->out));
    h->unsent = calloc(STAGE_RANKS, sizeof(*h->unsent));
    h->view = calloc(WF_BOOK_WORKERS, sizeof(*h->view));
    h->line = calloc(STAGE_RANKS, sizeof(*h->line));
    must(h->line != NULL && wf_ports_flows(h->world) == WEFT_OK);
    must(h->server != NULL && h->dead != NULL && h->told != NULL &&
         h->host_of != NULL && h->out != NULL && h->unsent != NULL &&
         h->view != NULL);
    for (uint32_t i = 0; i < STAGE_RANKS; i++) {
        h->server[i] = h->host_of[i] = i;
        h->dead[i] = UINT32_MAX;
    }
    wf_serve_init(h);
    must(wf_book_make(&h->book, alone(), KEYS) == WEFT_OK);
    must(wf_book_open(&h->book, alone()) == WEFT_OK);
    pthread_cond_init(&h->wake, NULL);
    h->box = (wf_parcel_box){
        .store = STORE, .read = wf_parcel_arrived, .owner = &r->store};
    must(wf_parcel_box_open(h->world, &h->box) == WEFT_OK);
}

static void settle_keys(rig *r)
{
    for (uint64_t key = 0; key < KEYS; key++) {
        uint32_t home = wf_home_of(&r->store, key);
        uint32_t slot = WF_NO_SLOT;
        wf_key_state k;

        if (home == 0) {
            slot = wf_slot_take(r->store.slots, key);
            must(slot != WF_NO_SLOT);
        }
        wf_key_init(&k, key, 0, home, slot);
        wf_directory_put(r->store.slots, key, wf_key_word(&k, 0));
    }
}

static void make_op(rig *r, uint8_t choices)
{
    wf_remote *op = &r->op;

    op->worker = &r->worker;
    op->kind = choices & PUSHES ? WF_OP_PUSH : WF_OP_PULL;
    op->n = op->left = ASKED;
    op->key = r->key;
    op->offset = r->offset;
    op->word = r->word;
    op->order = r->order;
    op->answered = r->answered;
    op->bulk = r->bulk;
    op->values = (char *)r->values;
    op->status = WF_PENDING;
    op->share = &r->share;
    op->shares = 1;
    r->share = (wf_share){.op = op, .host = 1};
    for (unsigned i = 0; i < ASKED; i++) {
        op->key[i] = i + 1; /* at first two of them are elsewhere */
        op->offset[i] = i * LONG * sizeof(float);
        op->word[i] = wf_directory_get(r->store.slots, op->key[i]);
        if (wf_bulk_takes(&r->h, op->kind, i, op->word[i]) &&
            wf_word_owner(op->word[i]) == 1) {
            op->order[r->share.end++] = i;
        }
    }
    r->place.op = op;
    r->h.op = &r->place;
    r->h.ops = r->h.next_op = 1;
    wf_bulk_send(&r->h, &r->share);
}

static void rig_init(rig *r, uint8_t choices)
{
    static char server; /* no thread is started */

    memset(r, 0, sizeof(*r));
    stage_init(&r->s, STAGE_RANKS, 0, true, NULL);
    r->parcels = calloc(1, wf_store_layer.world_bytes);
    must(r->parcels != NULL);
    r->s.world.layer[WF_LAYER_STORE] = r->parcels;
    r->s.world.server = (void *)&server;
    for (uint32_t i = 0; i < STAGE_RANKS; i++) {
        r->member[i] = i;
    }
    r->comm.world = &r->s.world;
    r->comm.size = STAGE_RANKS;
    r->comm.member = r->member;
    r->comm.timeout_ns = UINT64_MAX / 2;
    r->store.options = (weft_store_options){
        .keys = KEYS, .max_keys = KEYS, .length = LENGTH, .type = WEFT_F32};
    r->store.uniform = (choices & LENGTHS) == 0;
    r->store.comm = &r->comm;
    r->store.host = alone();
    r->store.hosts = STAGE_RANKS;
    r->store.remote = &r->h;
    r->worker.store = &r->store;
    r->worker.count = &r->worker.own_count;
    make_rows(r, choices);
    make_hosts(r);
    settle_keys(r);
    make_op(r, choices);
}

static void rig_fini(rig *r)
{
    wf_store_hosts *h = &r->h;

    wf_free(r->op.text);
    wf_parcel_box_close(h->world, &h->box);
    wf_serve_fini(h);
    wf_intents_fini(h);
    wf_book_close(&h->book);
    for (uint32_t i = 0; i < STAGE_RANKS; i++) {
        wf_free(h->out[i].at);
    }
    free(h->server);
    free(h->dead);
    free(h->told);
    free(h->host_of);
    free(h->out);
    free(h->unsent);
    free(h->view);
    free(h->line);
    pthread_cond_destroy(&h->wake);
    wf_slots_destroy(r->store.slots);
    wf_hash_destroy(r->store.hash);
    free(r->parcels);
    r->s.world.server = NULL;
    stage_fini(&r->s);
}

/* --- events --------------------------------------------------------------- */

/* Any header, and a payload in memory of its own size. */
static void any_piece(rig *r, script *in)
{
    uint32_t from = script_u8(in) % STAGE_RANKS;
    size_t n = script_u16(in) % 2000;
    unsigned char *payload = malloc(n > 0 ? n : 1);
    wf_parcel parcel;

    must(payload != NULL);
    script_bytes(in, &parcel, sizeof(parcel));
    parcel.store = STORE;
    parcel.bytes = script_u8(in) & 1 ? n : parcel.bytes % 5000;
    parcel.at = parcel.bytes > 0 ? parcel.at % parcel.bytes : 0;
    parcel.kind %= 7;
    script_bytes(in, payload, n);
    wf_parcel_on_piece(&r->s.world, from, &parcel, sizeof(parcel),
                       n > 0 ? payload : NULL, n);
    free(payload);
}

static uint64_t data_of(rig *r, const wf_entry *e, uint8_t how)
{
    uint64_t key = e->m.key < KEYS ? e->m.key : 0;

    switch (how % 5) {
    case 0:
        return 0;
    case 1:
        return wf_store_row_bytes(&r->store, key);
    case 2:
        return wf_slots_bytes(r->store.slots, key);
    case 3: /* a SYNC with a difference */
        return 16 + wf_round_up(wf_store_row_bytes(&r->store, key), 8);
    default:
        return how;
    }
}

/* A message whose fields are what they might be. */
static size_t likely_entry(rig *r, script *in, uint32_t from, wf_entry *e)
{
    wf_key_state k;
    uint8_t what;

    memset(e, 0, sizeof(*e));
    e->m.key = script_u8(in) % (KEYS + 1);
    wf_serve_load(&r->h, e->m.key % KEYS, &k);
    what = script_u8(in);
    e->m.kind = what % 16 == 15   ? WF_MSG_ANSWER
                : what % 16 == 14 ? WF_MSG_TOLD
                                  : what % 7;
    e->m.flags = script_u16(in) & 0x1ff;
    e->m.from = (uint16_t)(what & 0x80 ? script_u8(in) % 4 : from);
    e->m.origin = script_u8(in) % 4;
    e->m.owner = script_u8(in) % 4;
    e->m.epoch = (uint16_t)(k.epoch + script_u8(in) % 4 - 1);
    e->m.serial = (uint16_t)(k.serial - script_u8(in) % 3);
    e->m.copy_epoch = k.epoch;
    e->m.version = script_u8(in);
    e->m.op = script_u8(in) % 7;
    e->m.grant = script_u8(in) % 5;
    e->rank = script_u8(in) % 4;
    e->token = script_u8(in) % 3;
    e->position = script_u8(in) % 4;
    e->status = script_u8(in) % 3;
    e->bytes = data_of(r, e, script_u8(in));
    if (e->bytes >= 16 && e->m.kind == WF_MSG_SYNC) {
        uint64_t parts[2] = {script_u8(in) & 1 ? e->bytes - 16 : script_u8(in),
                             0};

        memcpy(e + 1, parts, sizeof(parts));
    }
    return wf_entry_bytes(e->bytes);
}

static void likely_parcel(rig *r, script *in)
{
    uint32_t from = script_u8(in) % STAGE_RANKS;
    uint32_t count = 1 + script_u8(in) % 3;
    unsigned char *body = calloc(count, ENTRY_ROOM);
    wf_parcel parcel = {
        .store = STORE, .kind = WF_PARCEL_ENTRIES, .count = count};

    must(body != NULL);
    for (uint32_t i = 0; i < count; i++) {
        wf_entry *e = (wf_entry *)(void *)(body + parcel.bytes);

        parcel.bytes += likely_entry(r, in, from, e);
    }
    wf_parcel_arrived(&r->store, from, &parcel, body);
    free(body);
}

/* Operations on several keys, or answers to some: lengths are right, or off by
 * some bytes. */
static void bulk(rig *r, script *in)
{
    uint32_t from = script_u8(in) % STAGE_RANKS;
    uint8_t what = script_u8(in);
    uint32_t n = script_u8(in) % 6;
    uint32_t position[6];
    uint16_t epoch[6];
    uint64_t key[6];
    uint64_t rows = 0;
    unsigned char *body = calloc(1, ENTRY_ROOM);
    wf_parcel parcel = {.store = STORE,
                        .kind = what & 1 ? WF_PARCEL_OPS : WF_PARCEL_DONE,
                        .count = n,
                        .token = what >> 1 & 1,
                        .extra = what >> 2 & 7};

    must(body != NULL);
    for (uint32_t i = 0; i < n; i++) {
        wf_key_state k;

        key[i] = script_u8(in) % (KEYS + 1);
        wf_serve_load(&r->h, key[i] % KEYS, &k);
        position[i] = script_u8(in) % (ASKED + 1);
        epoch[i] = (uint16_t)(k.epoch + script_u8(in) % 3 - 1);
        rows += wf_store_row_bytes(&r->store, key[i] % KEYS);
    }
    if (what & 1) {
        memcpy(body, key, n * sizeof(*key));
        memcpy(body + n * 8, position, n * sizeof(*position));
        memcpy(body + n * 12, epoch, n * sizeof(*epoch));
        parcel.bytes = wf_round_up(n * 14, 8);
    } else {
        memcpy(body, position, n * sizeof(*position));
        parcel.bytes = wf_round_up(n * 4, 8);
    }
    parcel.bytes += what & 32 ? rows : 0;
    parcel.bytes = wf_least(parcel.bytes, ENTRY_ROOM - 64);
    if (what & 64) {
        parcel.bytes -= wf_least(parcel.bytes, script_u8(in) % 8);
    } else if (what & 128) {
        parcel.bytes += script_u8(in) % 64;
    }
    /* In memory of its own size. */
    body = realloc(body, parcel.bytes > 0 ? parcel.bytes : 1);
    must(body != NULL);
    wf_parcel_arrived(&r->store, from, &parcel, body);
    free(body);
}

/* Hashed keys are asked for, and their numbers are told. */
static void names(rig *r, script *in)
{
    uint32_t from = script_u8(in) % STAGE_RANKS;
    int64_t keys[8];
    wf_parcel parcel = {.store = STORE,
                        .kind =
                            script_u8(in) & 1 ? WF_PARCEL_ASK : WF_PARCEL_TELL,
                        .count = script_u8(in) % 8};

    for (uint32_t i = 0; i < parcel.count; i++) {
        keys[i] = script_u8(in) % 16;
    }
    parcel.bytes = parcel.count * sizeof(*keys);
    wf_parcel_arrived(&r->store, from, &parcel, keys);
    must(r->store.hash == NULL ||
         wf_hash_made(r->store.hash) <= wf_hash_share(r->store.hash));
}

static void event(rig *r, script *in)
{
    uint64_t key;

    switch (script_u8(in) % 8) {
    case 0:
        any_piece(r, in);
        break;
    case 1:
        key = script_u8(in) % KEYS;
        wf_intent_add(&r->h, WORKER, 0, 1 + script_u8(in) % 4, &key, 1);
        wf_intents_look(&r->h);
        break;
    case 2:
        key = script_u8(in) % KEYS;
        wf_serve_tick(&r->h, key, script_u8(in) & 1);
        atomic_fetch_add(&r->h.book.clock[WORKER], 1);
        break;
    case 3:
        names(r, in);
        break;
    case 4:
        bulk(r, in);
        break;
    default:
        likely_parcel(r, in);
        break;
    }
    wf_out_flush(&r->h);
}

/* No two keys have one slot; what is under way is what is not answered. */
static void check(const rig *r)
{
    bool used[3 * KEYS + 3] = {false};
    uint64_t under_way = 0;

    must(r->op.left <= ASKED && (r->op.left > 0 || r->op.status != WF_PENDING));
    for (uint64_t i = 0; i < ASKED; i++) {
        under_way +=
            r->op.bulk[i]
                ? WF_BULK_OP_BYTES + wf_store_row_bytes(&r->store, r->op.key[i])
                : 0;
    }
    must(r->h.line[1].under_way == under_way);
    for (uint64_t key = 0; key < KEYS; key++) {
        uint32_t word = wf_directory_get(r->store.slots, key);

        if ((word & WF_KEY_HERE) != 0) {
            uint32_t slot = word & ~WF_KEY_HERE;

            must(slot < wf_slots_count(r->store.slots));
            must(!used[slot]);
            used[slot] = true;
        } else {
            must(wf_word_owner(word) < STAGE_RANKS);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    script in = {data, n};
    uint8_t choices = script_u8(&in);
    rig *r = calloc(1, sizeof(*r));

    must(r != NULL);
    rig_init(r, choices);
    atomic_store(&r->h.book.clock[WORKER], 0);
    for (unsigned i = 0; i < EVENTS && in.left > 0; i++) {
        event(r, &in);
        check(r);
    }
    rig_fini(r);
    free(r);
    return 0;
}
