/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/wire.h"

#include <string.h>

#include "agg/quantise.h"
#include "base/types.h"
#include "comm/call.h"

const char *wf_agg_refusal_name(wf_agg_refusal why)
{
    switch (why) {
#define NAME(name, text)                                                       \
    case WF_AGG_BAD_##name:                                                    \
        return text;
        WF_AGG_REFUSAL_TABLE(NAME)
#undef NAME
    default:
        return "good";
    }
}

bool wf_agg_reduces(weft_dtype type, weft_op_kind op)
{
    return wf_op_applies(op, type) && op != WEFT_OP_PREMUL_SUM;
}

size_t wf_agg_numbers(const wf_agg_head *head)
{
    return head->count * wf_dtype_bytes((weft_dtype)head->type) / sizeof(float);
}

static size_t data_bytes(const wf_agg_head *head)
{
    size_t bytes = (head->flags & WF_AGG_QUANTISED) != 0
                       ? wf_quantised_bytes(wf_agg_numbers(head))
                       : head->count * wf_dtype_bytes((weft_dtype)head->type);

    return bytes <= WF_AGG_PAYLOAD_MAX ? bytes : SIZE_MAX;
}

size_t wf_agg_payload(const wf_agg_head *head)
{
    switch (head->kind) {
    case WF_AGG_DATA:
    case WF_AGG_RESULT:
        return data_bytes(head);
    case WF_AGG_WAIT:
        return 0;
    case WF_AGG_MISMATCH:
        return 2 * sizeof(wf_agg_called);
    default:
        return SIZE_MAX;
    }
}

bool wf_agg_job(const void *packet, size_t n, uint32_t *job)
{
    wf_agg_head head;

    if (n < sizeof(head)) {
        return false;
    }
    memcpy(&head, packet, sizeof(head));
    *job = head.job;
    return head.magic == WF_AGG_MAGIC && head.format == WF_AGG_FORMAT;
}

/* --- tags ----------------------------------------------------------------- */

/* A hash of the payload takes the tag's place while the head is hashed, under
 * another key, so that neither is ever taken for the other. */
static uint64_t tag_of(const wf_agg_key *key, const wf_agg_head *head,
                       const void *payload)
{
    wf_secret other = {
        {key->secret.k[0] ^ 0x64616f6c796170u, key->secret.k[1]}};
    wf_agg_head sealed = *head;

    sealed.tag =
        key->whole ? wf_keyed_hash(&other, payload, wf_agg_payload(head)) : 0;
    return wf_keyed_hash(&key->secret, &sealed, sizeof(sealed));
}

void wf_agg_seal(const wf_agg_key *key, wf_agg_head *head, const void *payload)
{
    head->magic = WF_AGG_MAGIC;
    head->format = WF_AGG_FORMAT;
    head->flags = (uint8_t)(head->flags & ~WF_AGG_WHOLE);
    if (key->whole) {
        head->flags |= WF_AGG_WHOLE;
    }
    head->tag = tag_of(key, head, payload);
}

/* --- checks --------------------------------------------------------------- */

static bool call_is_good(const wf_agg_head *head)
{
    return head->call < WF_CALL_KINDS && wf_call_is(head->call, WF_REDUCES) &&
           wf_agg_reduces((weft_dtype)head->type, (weft_op_kind)head->op) &&
           ((head->flags & WF_AGG_QUANTISED) == 0 ||
            wf_quantises((weft_dtype)head->type, (weft_op_kind)head->op)) &&
           head->total > 0;
}

static bool rank_is_good(const wf_agg_head *head)
{
    bool one = head->rank < head->ranks;

    if (head->ranks == 0 || head->ranks > WF_AGG_RANKS) {
        return false;
    }
    switch (head->kind) {
    case WF_AGG_DATA:
        return one && head->count > 0 && head->count <= head->total;
    case WF_AGG_RESULT:
        return head->rank == WF_AGG_ALL && head->count > 0 &&
               head->count <= head->total;
    case WF_AGG_WAIT:
        return one && head->count > 0 && head->count < head->ranks;
    default:
        return head->rank == WF_AGG_ALL;
    }
}

static bool fields_are_good(const wf_agg_head *head)
{
    return (head->flags & ~WF_AGG_FLAGS) == 0 && head->version < 2 &&
           head->slot < WF_AGG_SLOTS && head->lane < WF_AGG_LANES &&
           (head->kind == WF_AGG_DATA || head->rtt == 0) &&
           call_is_good(head) && rank_is_good(head);
}

wf_agg_refusal wf_agg_open(const wf_agg_key *key, const void *packet, size_t n,
                           wf_agg_head *out)
{
    wf_agg_head head;
    size_t payload;

    if (n < sizeof(head)) {
        return WF_AGG_BAD_LENGTH;
    }
    memcpy(&head, packet, sizeof(head));
    if (head.magic != WF_AGG_MAGIC) {
        return WF_AGG_BAD_MAGIC;
    }
    if (head.format != WF_AGG_FORMAT) {
        return WF_AGG_BAD_FORMAT;
    }
    payload = wf_agg_payload(&head);
    if (payload != n - sizeof(head)) {
        return WF_AGG_BAD_LENGTH;
    }
    if (((head.flags & WF_AGG_WHOLE) != 0) != key->whole ||
        head.tag != tag_of(key, &head, (const char *)packet + sizeof(head))) {
        return WF_AGG_BAD_TAG;
    }
    if (!fields_are_good(&head)) {
        return WF_AGG_BAD_FIELD;
    }
    *out = head;
    return WF_AGG_GOOD;
}
