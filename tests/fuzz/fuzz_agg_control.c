/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever comes on the control channel, a switch and a rank let through only
 * what has a proof and can be: such a job has memory, and such an answer leads
 * somewhere.
 *
 * The input is a byte of choices, a JOIN and a JOINED. Each is checked as it
 * is, and then with its proof put right, as by a peer that has the key and has
 * gone mad. */
#include <stdlib.h>
#include <string.h>

#include "agg/control.h"
#include "agg/slot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const wf_secret key = {{1, 2}};
static const uint64_t nonce[2] = {3, 4};

/* Bits of the choices. */
enum { PROVE_JOIN = 1, PROVE_JOINED = 2, FIT_JOIN = 4, FIT_JOINED = 8 };

static void must(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void use_join(const wf_agg_join *join)
{
    const wf_agg_shape shape = {
        .ranks = join->ranks, .slots = join->slots, .payload = join->payload};
    wf_agg_status why = wf_agg_join_check(&key, nonce, join);

    must(why < WF_AGG_STATUSES && wf_agg_status_text(why)[0] != '?');
    if (why == WF_AGG_JOINED_OK) {
        must(join->rank < join->ranks && join->ranks <= WF_AGG_RANKS);
        must(wf_agg_pool_bytes(&shape) > 0);
        must(join->port != 0 && join->whole <= 1);
    }
}

static void use_joined(const wf_agg_join *join, const wf_agg_joined *joined)
{
    wf_secret made;

    if (!wf_agg_joined_check(&key, nonce, join, joined)) {
        return;
    }
    must(wf_agg_status_text(joined->status)[0] != '?');
    if (joined->status != WF_AGG_JOINED_OK) {
        return;
    }
    must(joined->slots > 0 && joined->slots <= join->slots);
    must(joined->shards > 0 && joined->shards <= WF_AGG_SHARDS);
    for (unsigned i = 0; i < joined->shards; i++) {
        must(joined->port[i] != 0);
    }
    made = wf_agg_derive(&key, join->group, joined);
    must(made.k[0] != key.k[0] || made.k[1] != key.k[1]);
}

static void fit_join(wf_agg_join *join)
{
    join->ranks = (uint16_t)(join->ranks % (WF_AGG_RANKS + 2));
    join->slots = (uint16_t)(join->slots % (WF_AGG_SLOTS + 2));
    join->payload = (uint16_t)(join->payload / 64 * 64);
    join->whole &= 1;
    join->zero = 0;
    join->zero2 = 0;
}

/* Copy what the input still has, and zeros behind it. */
static void take(const uint8_t **data, size_t *n, void *out, size_t bytes)
{
    size_t have = *n < bytes ? *n : bytes;

    memset(out, 0, bytes);
    memcpy(out, *data, have);
    *data += have;
    *n -= have;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t choices;
    wf_agg_join join;
    wf_agg_joined joined;

    if (n == 0) {
        return 0;
    }
    take(&data, &n, &choices, 1);
    take(&data, &n, &join, sizeof(join));
    take(&data, &n, &joined, sizeof(joined));
    use_join(&join);
    use_joined(&join, &joined);
    if ((choices & FIT_JOIN) != 0) {
        fit_join(&join);
    }
    if ((choices & PROVE_JOIN) != 0) {
        wf_agg_join_prove(&key, nonce, &join);
    }
    if ((choices & FIT_JOINED) != 0) {
        joined.status %= WF_AGG_STATUSES + 1;
        joined.shards %= WF_AGG_SHARDS + 2;
    }
    if ((choices & PROVE_JOINED) != 0) {
        wf_agg_joined_prove(&key, nonce, &joined);
    }
    use_join(&join);
    use_joined(&join, &joined);
    return 0;
}
