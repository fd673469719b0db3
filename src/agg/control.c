/* SPDX-License-Identifier: Apache-2.0 */
#include "agg/control.h"

#include <string.h>

#include "agg/slot.h"

const char *wf_agg_status_text(uint32_t status)
{
    static const char *const texts[WF_AGG_STATUSES] = {
        [WF_AGG_JOINED_OK] = "joined",
        [WF_AGG_REFUSED_KEY] = "the keys differ",
        [WF_AGG_REFUSED_BAD] = "it cannot serve such a job",
        [WF_AGG_REFUSED_QUOTA] = "it has no room for this job",
        [WF_AGG_REFUSED_DIFFER] = "ranks of the job disagree",
        [WF_AGG_REFUSED_GONE] = "a rank of the job left, or did not come",
    };

    return status < WF_AGG_STATUSES ? texts[status] : "?";
}

/* A hash of a message without its proof, of the peer's nonce, and of what kind
 * of message it is, so that none is taken for another. */
static uint64_t proof_of(const wf_secret *key, uint64_t label,
                         const uint64_t nonce[2], const void *message,
                         size_t bytes)
{
    unsigned char text[3 * 8 + sizeof(wf_agg_join)];

    memcpy(text, &label, 8);
    memcpy(text + 8, nonce, 16);
    memcpy(text + 24, message, bytes);
    return wf_keyed_hash(key, text, 24 + bytes);
}

static uint64_t join_proof(const wf_secret *key, const uint64_t nonce[2],
                           const wf_agg_join *join)
{
    return proof_of(key, 1, nonce, join, offsetof(wf_agg_join, proof));
}

static uint64_t joined_proof(const wf_secret *key, const uint64_t nonce[2],
                             const wf_agg_joined *joined)
{
    return proof_of(key, 2, nonce, joined, offsetof(wf_agg_joined, proof));
}

void wf_agg_join_prove(const wf_secret *key, const uint64_t nonce[2],
                       wf_agg_join *join)
{
    join->magic = WF_AGG_CONTROL_MAGIC;
    join->format = WF_AGG_CONTROL_FORMAT;
    join->proof = join_proof(key, nonce, join);
}

wf_agg_status wf_agg_join_check(const wf_secret *key, const uint64_t nonce[2],
                                const wf_agg_join *join)
{
    const wf_agg_shape shape = {
        .ranks = join->ranks, .slots = join->slots, .payload = join->payload};

    if (join->magic != WF_AGG_CONTROL_MAGIC ||
        join->format != WF_AGG_CONTROL_FORMAT) {
        return WF_AGG_REFUSED_BAD;
    }
    if (join->proof != join_proof(key, nonce, join)) {
        return WF_AGG_REFUSED_KEY;
    }
    return join->rank < join->ranks && wf_agg_pool_bytes(&shape) != 0 &&
                   join->port != 0 && join->whole < 2 && join->zero == 0 &&
                   join->zero2 == 0
               ? WF_AGG_JOINED_OK
               : WF_AGG_REFUSED_BAD;
}

void wf_agg_joined_prove(const wf_secret *key, const uint64_t nonce[2],
                         wf_agg_joined *joined)
{
    joined->magic = WF_AGG_CONTROL_MAGIC;
    joined->format = WF_AGG_CONTROL_FORMAT;
    joined->proof = joined_proof(key, nonce, joined);
}

bool wf_agg_joined_check(const wf_secret *key, const uint64_t nonce[2],
                         const wf_agg_join *join, const wf_agg_joined *joined)
{
    if (joined->magic != WF_AGG_CONTROL_MAGIC ||
        joined->format != WF_AGG_CONTROL_FORMAT ||
        joined->proof != joined_proof(key, nonce, joined)) {
        return false;
    }
    if (joined->status != WF_AGG_JOINED_OK) {
        return joined->status < WF_AGG_STATUSES;
    }
    for (unsigned i = 0; i < joined->shards && i < WF_AGG_SHARDS; i++) {
        if (joined->port[i] == 0) {
            return false;
        }
    }
    return joined->slots > 0 && joined->slots <= join->slots &&
           joined->shards > 0 && joined->shards <= WF_AGG_SHARDS;
}

wf_secret wf_agg_derive(const wf_secret *key, const uint64_t group[2],
                        const wf_agg_joined *joined)
{
    uint64_t text[6] = {3,
                        group[0],
                        group[1],
                        joined->salt[0],
                        joined->salt[1],
                        (uint64_t)joined->job << 32 | joined->epoch};
    wf_secret out;

    out.k[0] = wf_keyed_hash(key, text, sizeof(text));
    text[0] = 4;
    out.k[1] = wf_keyed_hash(key, text, sizeof(text));
    return out;
}
