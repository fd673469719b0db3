/* SPDX-License-Identifier: Apache-2.0 */
/* The caller's side: questions go out as far as the windows allow, answers are
 * put in their places and make room for the next questions. All under
 * world->drive. Rows travel in the type of the table; they are converted
 * here. */
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/time.h"
#include "base/types.h"
#include "comm/comm.h"
#include "region/remote/remote.h"

static weft_world *world_of(const wf_rows_block *b)
{
    return b->call->table.region->world;
}

/* With the error detail. */
static void block_fail(wf_rows_block *b, weft_status st)
{
    if (atomic_load(&b->failed) == 0) {
        b->why = wf_failure_of(st);
        atomic_store(&b->failed, 1);
    }
}

/* The caller's array as a table whose rows are named by the block's order. */
static wf_rows_call near_call(const wf_rows_block *b, wf_rows_op op,
                              uint32_t first, uint32_t n, uint64_t at,
                              uint64_t bytes, void *wire)
{
    const wf_rows_call *call = b->call;
    uint64_t far_size = wf_dtype_bytes(call->table.type);
    uint64_t near_size = wf_dtype_bytes(call->rows.type);

    return (wf_rows_call){
        .op = op,
        .table = {.at = (char *)call->rows.at + b->base * call->rows.pitch,
                  .rows = WF_ROWS_BLOCK,
                  .pitch = call->rows.pitch,
                  .skip = at / far_size * near_size,
                  .width = bytes / far_size,
                  .type = call->rows.type},
        .ids = {.at = b->order + first, .type = WEFT_I32, .n = n},
        .rows = {.at = wire, .pitch = bytes, .type = call->table.type},
        .options = {.threads = 1},
        .limit = WF_ROWS_BLOCK,
        .far_bytes = bytes / far_size * near_size,
        .near_bytes = bytes};
}

/* --- questions ------------------------------------------------------------ */

/* What the next question to a target is about. */
static void choose_next(const wf_rows_block *b, const wf_rows_target *t,
                        wf_rows_ask *ask)
{
    const wf_rows_call *call = b->call;
    bool reads = call->op == WF_ROWS_GATHER;
    uint64_t most = reads ? WF_ROWS_ANSWER_PAYLOADS * t->payload : t->payload;
    uint64_t left = call->far_bytes - t->at;
    uint64_t fit;

    ask->first = t->next;
    ask->skip = call->table.skip + t->at;
    ask->bytes = wf_least(left, most);
    ask->rows = 1;
    if (call->far_bytes <= most) {
        fit = reads ? most / ask->bytes : most / (sizeof(int64_t) + ask->bytes);
        fit = wf_least(fit, t->payload / sizeof(int64_t));
        fit = fit > 1 ? fit : 1;
        ask->rows = (uint32_t)wf_least(t->end - t->next, fit);
    }
}

static int64_t row_at(const wf_rows_block *b, uint32_t number)
{
    const wf_rows_call *call = b->call;
    uint64_t at = b->base + (uint64_t)b->order[number];

    return (int64_t)call->table.first + wf_id_at(&call->ids, at);
}

/* A question, whom it is for, and of which block. */
typedef struct question {
    const wf_rows_block *b;
    const wf_rows_target *t;
    const wf_rows_ask *ask;
} question;

/* The numbers of the rows and, to write, the rows. */
static void fill_question(void *ctx, void *payload)
{
    const question *q = ctx;
    const wf_rows_ask *ask = q->ask;
    int64_t *number = payload;
    wf_rows_call pack;

    for (uint32_t i = 0; ask->rows > 1 && i < ask->rows; i++) {
        number[i] = row_at(q->b, ask->first + i);
    }
    if (ask->op != WF_ROWS_GATHER) {
        pack =
            near_call(q->b, WF_ROWS_GATHER, ask->first, ask->rows, q->t->at,
                      ask->bytes, (char *)payload + wf_rows_numbers(ask->rows));
        wf_rows_run(&pack);
    }
}

static weft_status ask(const wf_rows_block *b, const wf_rows_target *t,
                       const wf_rows_ask *header)
{
    weft_world *world = world_of(b);
    uint32_t to = b->call->table.region->member[t->rank];
    weft_status st = wf_host_check(world->host, to);
    question q = {.b = b, .t = t, .ask = header};
    size_t n = wf_rows_numbers(header->rows);

    if (header->op != WF_ROWS_GATHER) {
        n += header->rows * header->bytes;
    }
    return st != WEFT_OK
               ? st
               : wf_ports_am_fill(world, to, WF_AM_ROWS_ASK, header,
                                  sizeof(*header), n, fill_question, &q);
}

static void target_advance(const wf_rows_block *b, wf_rows_target *t,
                           const wf_rows_ask *asked)
{
    t->owed += asked->rows * asked->bytes;
    wf_flow_sent(t->flow, asked->rows * asked->bytes, wf_now_ns());
    t->at += asked->bytes;
    if (t->at == b->call->far_bytes) {
        t->next += asked->rows;
        t->at = 0;
    }
}

static void target_ask(wf_rows_block *b, wf_rows_target *t)
{
    const wf_rows_call *call = b->call;
    wf_rows_ask header = {.region = call->table.region->id,
                          .token = b->token,
                          .op = call->op,
                          .type = call->table.type};
    weft_status st = WEFT_OK;

    while (t->next < t->end && st == WEFT_OK) {
        choose_next(b, t, &header);
        if (!wf_flow_room(t->flow, t->owed, header.rows * header.bytes)) {
            return;
        }
        header.row = row_at(b, header.first);
        st = ask(b, t, &header);
        if (st == WEFT_OK) {
            target_advance(b, t, &header);
        }
    }
    if (st != WEFT_OK) {
        block_fail(b, st);
    }
}

void wf_rows_block_begin(wf_rows_block *b)
{
    weft_world *world = world_of(b);
    wf_region_world *own = wf_region_world_of(world);

    pthread_mutex_lock(&world->drive);
    b->token = ++own->tokens;
    b->next = own->blocks;
    own->blocks = b;
    for (uint32_t i = 0; i < b->targets && atomic_load(&b->failed) == 0; i++) {
        wf_rows_target *t = &b->target[i];
        uint32_t rank = b->call->table.region->member[t->rank];

        t->payload = wf_ports_am_payload(world, rank);
        t->flow = wf_ports_flow(world, rank);
        target_ask(b, t);
    }
    pthread_mutex_unlock(&world->drive);
}

void wf_rows_block_end(wf_rows_block *b)
{
    weft_world *world = world_of(b);
    wf_region_world *own = wf_region_world_of(world);
    wf_rows_block **at = &own->blocks;

    pthread_mutex_lock(&world->drive);
    while (*at != b) {
        at = &(*at)->next;
    }
    *at = b->next;
    for (uint32_t i = 0; i < b->targets; i++) {
        if (b->target[i].owed > 0) { /* it failed */
            wf_flow_lost(b->target[i].flow, b->target[i].owed);
        }
    }
    pthread_mutex_unlock(&world->drive);
}

/* --- answers -------------------------------------------------------------- */

static wf_rows_block *find_block(const weft_world *world, uint64_t token)
{
    const wf_region_world *own = wf_region_world_of(world);
    wf_rows_block *b = own->blocks;

    while (b != NULL && b->token != token) {
        b = b->next;
    }
    return b;
}

static wf_rows_target *find_target(const wf_rows_block *b, uint32_t job_rank)
{
    const weft_region *region = b->call->table.region;
    uint32_t i = 0;

    while (i < b->targets && region->member[b->target[i].rank] != job_rank) {
        i++;
    }
    return i < b->targets ? &b->target[i] : NULL;
}

/* Is it about rows that this rank was asked for? */
static bool answers(const wf_rows_block *b, const wf_rows_target *t,
                    const wf_rows_answer *a, size_t payload_bytes)
{
    const wf_rows_call *call = b->call;
    uint32_t asked = t->next - t->begin + (t->at > 0 ? 1 : 0);
    uint64_t inside = wf_dtype_bytes(call->table.type) - 1; /* its bits */
    uint64_t at = a->skip - call->table.skip;

    return a->first >= t->begin && a->first - t->begin <= asked &&
           a->rows <= asked - (a->first - t->begin) && a->rows > 0 &&
           a->skip >= call->table.skip && at <= call->far_bytes &&
           a->bytes <= call->far_bytes - at && (at & inside) == 0 &&
           (a->bytes & inside) == 0 && a->bytes > 0 &&
           a->bytes <= WF_ROWS_ANSWER_MAX && a->rows * a->bytes <= t->owed &&
           payload_bytes ==
               (call->op == WF_ROWS_GATHER ? a->rows * a->bytes : 0);
}

static weft_status refusal(const wf_rows_block *b, uint32_t from,
                           weft_status st)
{
    const wf_peer *who = &world_of(b)->host->peer[from];
    const char *why = st == WEFT_ERR_CLOSED    ? "has given the region up"
                      : st == WEFT_ERR_NOMEM   ? "has no memory for an answer"
                      : st == WEFT_ERR_INVALID ? "has it for reading only"
                      : st == WEFT_ERR_PROTOCOL
                          ? "does not have the rows that it was asked for"
                          : "cannot answer";

    return wf_fail(st, "rows of a region: rank %u (pid %d on %s) %s", from,
                   who->pid, who->host, why);
}

static void put_rows(const wf_rows_block *b, const wf_rows_answer *a,
                     const void *payload)
{
    wf_rows_call put =
        near_call(b, WF_ROWS_SCATTER, a->first, a->rows,
                  a->skip - b->call->table.skip, a->bytes, (void *)payload);

    wf_rows_run(&put);
}

static void target_answered(wf_rows_block *b, wf_rows_target *t, uint64_t bytes)
{
    t->owed -= bytes;
    wf_flow_answered(t->flow, bytes, wf_now_ns());
    target_ask(b, t);
    atomic_fetch_add_explicit(&b->moved, 1, memory_order_relaxed);
    if (t->owed == 0 && t->next == t->end) {
        /* Publishes the rows; pairs with the acquire in wf_rows_block_wait. */
        atomic_fetch_sub_explicit(&b->unfinished, 1, memory_order_release);
    }
}

void wf_rows_on_answer(void *ctx, uint32_t from, const void *header,
                       size_t header_bytes, const void *payload,
                       size_t payload_bytes)
{
    weft_world *world = ctx;
    wf_rows_block *b;
    wf_rows_target *t;
    wf_rows_answer a;

    if (header_bytes != sizeof(a)) {
        return;
    }
    memcpy(&a, header, sizeof(a));
    b = find_block(world, a.token);
    t = b != NULL ? find_target(b, from) : NULL;
    if (t == NULL || atomic_load(&b->failed) != 0) {
        return;
    }
    if (a.status != WEFT_OK) {
        block_fail(b, refusal(b, from, wf_status_parse(a.status)));
        return;
    }
    if (!answers(b, t, &a, payload_bytes)) {
        block_fail(b, wf_fail(WEFT_ERR_PROTOCOL,
                              "rank %u sent rows that it was not asked for",
                              from));
        return;
    }
    if (b->call->op == WF_ROWS_GATHER) {
        put_rows(b, &a, payload);
    }
    target_answered(b, t, a.rows * a.bytes);
}

/* Rows whose type is the caller's are copied byte by byte, so they need not be
 * aligned. Anything else, errors above all, is left to the handler. */
bool wf_rows_on_answer_early(void *ctx, uint32_t from, const void *header,
                             size_t header_bytes, const void *payload,
                             size_t payload_bytes)
{
    const wf_rows_block *b;
    wf_rows_answer a;

    if (header_bytes != sizeof(a) || payload_bytes == 0) {
        return false;
    }
    memcpy(&a, header, sizeof(a));
    b = find_block(ctx, a.token);
    if (b == NULL || b->call->table.type != b->call->rows.type) {
        return false;
    }
    wf_rows_on_answer(ctx, from, &a, sizeof(a), payload, payload_bytes);
    return true;
}
