/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of other nodes ask for rows, and answer. Whatever they send, only rows
 * that are mapped here are read or written, only rows of a call that is under
 * way are filled in, and each question has answers of a bounded size.
 *
 * The input is a byte of choices and then messages: who sent it, how long its
 * payload is, its header and its payload. */
#include <stdlib.h>
#include <string.h>

#include "region/remote/remote.h"
#include "stage.h"

enum {
    ANSWERS = 1, /* bits of the first byte */
    WRITES = 2,
    CONVERTS = 4,
    DEALT = 8,
    LONG_ROWS = 16,
    ROWS = 40,
    IDS = 24,
    REGION = 7,
    WINDOW = WF_FLOW_FIRST * WF_AM_PAYLOAD_MAX, /* at first */
    MAPPED = 2 /* the first ranks' parts are here; the others' are not */
};

typedef struct table {
    weft_region region;
    uint32_t member[STAGE_RANKS];
    uint32_t node[STAGE_RANKS];
    wf_region_world own;
} table;

/* Memory is there for the parts that are mapped, and not for a byte more. */
static void table_init(table *t, stage *s, uint8_t choices)
{
    weft_region *region = &t->region;
    uint64_t width = choices & LONG_ROWS ? 5000 : 6;
    uint64_t pitch = width * sizeof(float);

    memset(t, 0, sizeof(*t));
    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        t->member[r] = r;
        t->node[r] = r >= MAPPED;
    }
    wf_partition_init(&region->part,
                      choices & DEALT ? WEFT_PARTITION_ROUND_ROBIN
                                      : WEFT_PARTITION_EQUAL,
                      STAGE_RANKS, choices & DEALT ? 3 : 0, pitch, 4096, false);
    must(wf_partition_add(&region->part, ROWS, NULL) == WEFT_OK);
    region->id = REGION;
    region->world = &s->world;
    region->ranks = STAGE_RANKS;
    region->member = t->member;
    region->node = t->node;
    region->domain = t->node;
    region->type = WEFT_F32;
    region->row_bytes = pitch;
    region->timeout_ns = UINT64_MAX / 2;
    region->base = calloc(1, region->part.stretch[0].at[MAPPED]);
    must(region->base != NULL);
    region->remote = calloc(1, sizeof(*region->remote));
    must(region->remote != NULL);
    region->remote->region = region;
    t->own.remotes = region->remote;
    must(wf_ports_flows(&s->world) == WEFT_OK);
    s->world.layer[WF_LAYER_REGION] = &t->own;
}

static void table_fini(table *t)
{
    free(t->region.remote);
    free(t->region.base);
    wf_partition_fini(&t->region.part);
}

/* Let `fn` have the messages of the input, each in memory of its own size. */
static void handle_all(script *in, weft_world *world, wf_am_fn *fn,
                       size_t header_bytes)
{
    while (in->left > 0) {
        uint8_t from = script_u8(in) % STAGE_RANKS;
        size_t n = script_u16(in) % (WF_AM_PAYLOAD_MAX + 1);
        unsigned char header[WF_AM_HEADER_MAX];
        unsigned char *payload = malloc(n > 0 ? n : 1);
        size_t got = script_bytes(in, header, header_bytes);

        must(payload != NULL);
        script_bytes(in, payload, n);
        fn(world, from, header, got, n > 0 ? payload : NULL, n);
        free(payload);
    }
}

/* As a transport does that offers messages early, where they are not aligned.
 */
static void on_answer(void *ctx, uint32_t from, const void *header,
                      size_t header_bytes, const void *payload,
                      size_t payload_bytes)
{
    unsigned char *shifted = malloc(payload_bytes + 1);

    must(shifted != NULL);
    if (payload_bytes > 0) {
        memcpy(shifted + 1, payload, payload_bytes);
    }
    if (!wf_rows_on_answer_early(ctx, from, header, header_bytes, shifted + 1,
                                 payload_bytes)) {
        wf_rows_on_answer(ctx, from, header, header_bytes, payload,
                          payload_bytes);
    }
    free(shifted);
}

static void fuzz_questions(stage *s, table *t, script *in)
{
    handle_all(in, &s->world, wf_rows_on_ask, sizeof(wf_rows_ask));
    (void)t;
}

/* All rows of the other node, some of them twice, by a call that waits. */
static void call_init(wf_rows_call *call, table *t, uint8_t choices,
                      int64_t *ids)
{
    weft_dtype near = choices & CONVERTS ? WEFT_F64 : WEFT_F32;
    uint64_t width = t->region.row_bytes / sizeof(float);
    uint64_t bytes = width * weft_dtype_size(near);
    uint32_t n = 0;

    for (int64_t row = 0; row < ROWS && n < IDS; row++) {
        if (wf_partition_owner(&t->region.part, (uint64_t)row) >= MAPPED) {
            ids[n++] = row;
        }
    }
    *call = (wf_rows_call){
        .op = choices & WRITES ? WF_ROWS_SCATTER : WF_ROWS_GATHER,
        .table = {.region = &t->region,
                  .rows = ROWS,
                  .pitch = t->region.part.pitch,
                  .width = width,
                  .type = WEFT_F32},
        .ids = {.at = ids, .type = WEFT_I64, .n = n},
        .rows = {.at = calloc(n, bytes), .pitch = bytes, .type = near},
        .limit = ROWS,
        .far_bytes = t->region.row_bytes,
        .near_bytes = bytes};
    must(call->rows.at != NULL);
}

static void fuzz_answers(stage *s, table *t, script *in, uint8_t choices)
{
    int64_t ids[IDS];
    int32_t order[IDS];
    wf_rows_call call;
    wf_rows_target target = {.rank = MAPPED};
    wf_rows_block b = {
        .call = &call, .order = order, .target = &target, .targets = 1};

    call_init(&call, t, choices, ids);
    target.end = (uint32_t)call.ids.n;
    for (uint32_t i = 0; i < target.end; i++) {
        order[i] = (int32_t)(target.end - 1 - i);
    }
    atomic_store(&b.unfinished, 1);
    wf_rows_block_begin(&b);
    must(atomic_load(&b.failed) == 0 && target.owed <= WINDOW);
    handle_all(in, &s->world, on_answer, sizeof(wf_rows_answer));
    must(atomic_load(&b.unfinished) <= 1);
    must(target.owed <= call.ids.n * call.far_bytes);
    must(atomic_load(&b.unfinished) == 1 ||
         (target.next == target.end && target.owed == 0));
    must(atomic_load(&b.failed) == 0 || b.why.status != WEFT_OK);
    wf_rows_block_end(&b);
    free(call.rows.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    script in = {data, n};
    uint8_t choices = script_u8(&in);
    stage s;
    table t;

    stage_init(&s, STAGE_RANKS, 0, false, NULL);
    table_init(&t, &s, choices);
    if (choices & ANSWERS) {
        fuzz_answers(&s, &t, &in, choices);
    } else {
        fuzz_questions(&s, &t, &in);
    }
    table_fini(&t);
    stage_fini(&s);
    return 0;
}
