/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of an epoch do when the switch is of no more use: the rules of
 * settle.h, and what must have been kept for them. */
#include "agg/switch.h"
#include "base/log.h"
#include "base/num.h"
#include "base/time.h"
#include "base/types.h"

/* How often words are said again: what came before a rank had the communicator
 * or the epoch was lost there. */
#define SAY_AGAIN_NS (100 * WF_MS)

/* --- what is kept --------------------------------------------------------- */

void switch_keep_input(void *ctx, uint64_t chunk, const void *at, size_t bytes)
{
    switch_state *s = ctx;
    uint64_t i = chunk % s->ring;

    memcpy(s->inputs + i * s->payload, at, bytes);
    s->input_of[i] = chunk + 1;
}

void switch_keep_results(switch_state *s, const wf_coll_op *op)
{
    uint64_t chunks = (op->bytes + s->chunk_bytes - 1) / s->chunk_bytes;
    uint64_t first = chunks > s->ring ? chunks - s->ring : 0;

    s->kept_op = s->settle.op;
    s->kept_from = first * s->chunk_bytes;
    s->kept_bytes = op->bytes - s->kept_from;
    memcpy(s->kept, (const char *)op->dst + s->kept_from, s->kept_bytes);
}

/* Put back what results have been written over, from a chunk on. */
static void restore_inputs(const switch_state *s, const wf_coll_op *op,
                           uint64_t first)
{
    for (uint64_t i = 0; op->src == op->dst && i < s->ring; i++) {
        uint64_t chunk = s->input_of[i] - 1;
        uint64_t at = chunk * s->chunk_bytes;

        if (s->input_of[i] != 0 && chunk >= first) {
            memcpy((char *)op->dst + at, s->inputs + i * s->payload,
                   wf_least(s->chunk_bytes, op->bytes - at));
        }
    }
}

/* --- giving up ------------------------------------------------------------ */

/* This rank's word of the operation that it is in. */
static const wf_settle_word *own_word(const switch_state *s)
{
    return wf_settle_word_of(&s->settle, s->comm->rank, s->settle.op);
}

void switch_say_word(switch_state *s, const wf_settle_word *word)
{
    for (uint32_t m = 0; m < s->comm->size; m++) {
        if (m != s->comm->rank) {
            switch_say(s, m, SWITCH_WORD, word->op, word->first);
        }
    }
}

void switch_give_up(switch_state *s, const char *why)
{
    bool began = s->phase == SWITCH_CALL;
    uint64_t first = 0;
    wf_settle_word word;

    if (began) {
        first =
            s->shares ? switch_hosts_first(s) : wf_agg_client_first(&s->client);
    }

    /* One that refuses will most likely do so again. */
    wf_log(s->refusals > 1 ? WEFT_LOG_INFO : WEFT_LOG_WARN,
           "rank %u: communicator %u goes on without its switch: %s",
           s->comm->rank, s->comm->id, why);
    if (!began) {
        s->chunk_bytes = 0;
    }
    word = wf_settle_say(&s->settle, first);
    s->phase = SWITCH_SETTLE;
    s->said_ns = s->moved_ns = wf_now_ns();
    switch_close_client(s);
    switch_say_word(s, &word);
}

/* --- settling ------------------------------------------------------------- */

static weft_status do_again(switch_state *s, wf_coll_op *op, uint64_t first)
{
    uint64_t from = first * s->chunk_bytes;

    if (s->chunk_bytes > 0) {
        restore_inputs(s, op, first);
    }
    wf_settle_end(&s->settle, WF_SETTLE_REDO);
    switch_epoch_end(s);
    switch_end(s);
    op->src = (const char *)op->src + from;
    op->dst = (char *)op->dst + from;
    op->bytes -= from;
    op->op.call.count -= from / wf_dtype_bytes((weft_dtype)op->op.call.type);
    return wf_coll_hand_on(op);
}

static void fetch(switch_state *s, uint32_t giver)
{
    s->giver = giver;
    s->fetched = own_word(s)->first * s->chunk_bytes;
    s->results = s->fetched;
    s->phase = SWITCH_FETCH;
    switch_say(s, giver, SWITCH_WANTS, s->settle.op, s->fetched);
}

static weft_status fetch_step(switch_state *s, wf_coll_op *op, uint64_t now)
{
    if (s->fetched != s->results) {
        s->results = s->fetched;
        s->moved_ns = now;
        op->op.moved++;
    }
    if (s->fetched < op->bytes) {
        return WF_PENDING;
    }
    switch_keep_results(s, op);
    wf_settle_end(&s->settle, WF_SETTLE_FETCH);
    return WEFT_OK;
}

weft_status switch_settle_step(switch_state *s, wf_coll_op *op, uint64_t now)
{
    wf_settled d;

    if (s->phase == SWITCH_FETCH) {
        return fetch_step(s, op, now);
    }
    d = wf_settle_decide(&s->settle);
    switch (d.way) {
    case WF_SETTLE_REDO:
        return do_again(s, op, d.first);
    case WF_SETTLE_FETCH:
        fetch(s, d.rank);
        return WF_PENDING;
    default:
        break;
    }
    if (now - s->said_ns > SAY_AGAIN_NS) {
        s->said_ns = now;
        switch_say_word(s, own_word(s));
    }
    return WF_PENDING;
}
