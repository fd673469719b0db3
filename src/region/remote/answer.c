/* SPDX-License-Identifier: Apache-2.0 */
/* Answering questions for rows that this rank maps. All of it runs in handlers,
 * under world->drive; regions leave the list under that lock before their
 * memory goes, and change their partition under it. */
#include <string.h>

#include "base/log.h"
#include "base/num.h"
#include "base/types.h"
#include "region/remote/remote.h"

typedef struct question {
    weft_world *world;
    weft_region *region;
    uint32_t from;  /* in the job */
    size_t payload; /* the longest one of a message to it */
    wf_rows_ask ask;
    const int64_t *row; /* ask.rows of them */
    const void *data;   /* of a write: the rows behind them */
} question;

static weft_status answer(const question *q, const wf_rows_answer *header,
                          const void *payload, size_t n)
{
    return wf_ports_am(q->world, q->from, WF_AM_ROWS_ANSWER, header,
                       sizeof(*header), payload, n);
}

/* A caller that gets no answer at all waits until its deadline. */
static void answer_only(const question *q, weft_status st)
{
    wf_rows_answer header = {.token = q->ask.token,
                             .skip = q->ask.skip,
                             .bytes = q->ask.bytes,
                             .first = q->ask.first,
                             .rows = q->ask.rows,
                             .status = (int32_t)st};

    if (answer(q, &header, NULL, 0) != WEFT_OK) {
        wf_log(WEFT_LOG_DEBUG, "rank %u gets no answer: %s", q->from,
               weft_error_detail());
    }
}

/* --- checking ------------------------------------------------------------- */

static weft_region *find_region(const weft_world *world, uint64_t id)
{
    const wf_region_remote *r = wf_region_world_of(world)->remotes;

    while (r != NULL && r->region->id != id) {
        r = r->next;
    }
    return r != NULL ? r->region : NULL;
}

static bool is_member(const weft_region *region, uint32_t job_rank)
{
    uint32_t r = 0;

    while (r < region->ranks && region->member[r] != job_rank) {
        r++;
    }
    return r < region->ranks;
}

static bool adds_up(const question *q, size_t payload_bytes)
{
    const wf_rows_ask *ask = &q->ask;
    uint64_t room = q->region->row_bytes;
    uint64_t numbers;

    if (ask->op > WF_ROWS_ADD || ask->rows == 0 || ask->bytes == 0 ||
        ask->bytes > WF_ROWS_ANSWER_MAX ||
        ask->rows > WF_ROWS_ANSWER_MAX / ask->bytes || ask->skip > room ||
        ask->bytes > room - ask->skip) {
        return false;
    }
    numbers = wf_rows_numbers(ask->rows);
    return payload_bytes == (ask->op == WF_ROWS_GATHER
                                 ? numbers
                                 : numbers + ask->rows * ask->bytes);
}

static bool can_add(const question *q)
{
    const wf_rows_ask *ask = &q->ask;
    uint64_t unit;

    if (!wf_op_applies(WEFT_OP_SUM, (weft_dtype)ask->type)) {
        return false;
    }
    unit = wf_dtype_bytes(wf_dtype_part((weft_dtype)ask->type));
    return ask->bytes % weft_dtype_size((weft_dtype)ask->type) == 0 &&
           ask->skip % unit == 0 && q->region->part.pitch % unit == 0;
}

static bool has_rows(const question *q)
{
    const weft_region *region = q->region;
    wf_row_span span = {0};

    for (uint32_t i = 0; i < q->ask.rows; i++) {
        uint64_t row = (uint64_t)q->row[i];

        if (row >= region->part.rows ||
            !wf_region_maps(
                region, wf_partition_owner_next(&region->part, row, &span))) {
            return false;
        }
    }
    return true;
}

static weft_status check(const question *q, size_t payload_bytes)
{
    if (q->region == NULL) {
        return WEFT_ERR_CLOSED;
    }
    if (!is_member(q->region, q->from) || !adds_up(q, payload_bytes) ||
        !has_rows(q) || (q->ask.op == WF_ROWS_ADD && !can_add(q))) {
        return WEFT_ERR_PROTOCOL;
    }
    return q->ask.op != WF_ROWS_GATHER && q->region->read_only
               ? WEFT_ERR_INVALID
               : WEFT_OK;
}

/* --- doing ---------------------------------------------------------------- */

/* Rows `first` to `first + n` of the question, from or to `near`. */
static void move_rows(const question *q, uint32_t first, uint32_t n, void *near)
{
    const weft_region *region = q->region;
    wf_rows_op op = (wf_rows_op)q->ask.op;
    weft_dtype type = op == WF_ROWS_ADD ? (weft_dtype)q->ask.type : WEFT_U8;
    wf_rows_call call = {
        .op = op,
        .table = {.region = q->region,
                  .at = region->base,
                  .rows = region->part.rows,
                  .pitch = region->part.pitch,
                  .skip = q->ask.skip,
                  .width = q->ask.bytes / weft_dtype_size(type),
                  .type = type},
        .ids = {.at = q->row + first, .type = WEFT_I64, .n = n},
        .rows = {.at = near, .pitch = q->ask.bytes, .type = type},
        .options = {.threads = 1, .deterministic = 1},
        .limit = region->part.rows,
        .far_bytes = q->ask.bytes,
        .near_bytes = q->ask.bytes};

    wf_rows_run(&call);
}

/* Some rows of a question, which one answer has. */
typedef struct share {
    const question *q;
    uint32_t first;
    uint32_t rows;
} share;

static void fill_answer(void *ctx, void *payload)
{
    const share *s = ctx;

    move_rows(s->q, s->first, s->rows, payload);
}

/* Short rows, as many at a time as fit into a payload. */
static weft_status send_rows(const question *q)
{
    uint32_t most = (uint32_t)(q->payload / q->ask.bytes);
    weft_status st = WEFT_OK;

    for (uint32_t i = 0; i < q->ask.rows && st == WEFT_OK; i += most) {
        uint32_t n = wf_least(q->ask.rows - i, most);
        wf_rows_answer header = {.token = q->ask.token,
                                 .skip = q->ask.skip,
                                 .bytes = q->ask.bytes,
                                 .first = q->ask.first + i,
                                 .rows = n};
        share s = {.q = q, .first = i, .rows = n};

        st =
            wf_ports_am_fill(q->world, q->from, WF_AM_ROWS_ANSWER, &header,
                             sizeof(header), n * q->ask.bytes, fill_answer, &s);
    }
    return st;
}

/* A long one, in pieces if need be, from where it lies. */
static weft_status send_pieces(const question *q, uint32_t i)
{
    const weft_region *region = q->region;
    uint32_t owner;
    const char *row =
        region->base +
        wf_partition_offset(&region->part, (uint64_t)q->row[i], &owner) +
        q->ask.skip;
    weft_status st = WEFT_OK;

    for (uint64_t at = 0; at < q->ask.bytes && st == WEFT_OK;
         at += q->payload) {
        uint64_t left = q->ask.bytes - at;
        size_t n = wf_least(left, q->payload);
        wf_rows_answer header = {.token = q->ask.token,
                                 .skip = q->ask.skip + at,
                                 .bytes = n,
                                 .first = q->ask.first + i,
                                 .rows = 1};

        st = answer(q, &header, row + at, n);
    }
    return st;
}

static void answer_gather(const question *q)
{
    weft_status st = WEFT_OK;

    if (q->ask.bytes <= q->payload / 2) {
        st = send_rows(q);
    } else {
        for (uint32_t i = 0; i < q->ask.rows && st == WEFT_OK; i++) {
            st = send_pieces(q, i);
        }
    }
    if (st != WEFT_OK) {
        answer_only(q, st);
    }
}

static void answer_write(const question *q)
{
    move_rows(q, 0, q->ask.rows, (void *)q->data);
    answer_only(q, WEFT_OK);
}

void wf_rows_on_ask(void *ctx, uint32_t from, const void *header,
                    size_t header_bytes, const void *payload,
                    size_t payload_bytes)
{
    question q = {
        .world = ctx, .from = from, .payload = wf_ports_am_payload(ctx, from)};
    weft_status st;

    if (header_bytes != sizeof(q.ask)) {
        wf_log(WEFT_LOG_ERROR,
               "rank %u asked for rows with a header of %zu bytes; dropped",
               from, header_bytes);
        return;
    }
    memcpy(&q.ask, header, sizeof(q.ask));
    q.row = q.ask.rows == 1 ? &q.ask.row : payload;
    q.region = find_region(q.world, q.ask.region);
    st = check(&q, payload_bytes);
    if (st != WEFT_OK) {
        answer_only(&q, st);
        return;
    }
    if (q.ask.op == WF_ROWS_GATHER) {
        answer_gather(&q);
    } else {
        q.data = (const char *)payload + wf_rows_numbers(q.ask.rows);
        answer_write(&q);
    }
}
