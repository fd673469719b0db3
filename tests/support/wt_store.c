/* SPDX-License-Identifier: Apache-2.0 */
#include "wt_store.h"

#include <string.h>

#include "comm/flow.h"
#include "comm/ports.h"
#include "wt.h"

void wt_store_settle(weft_store *store, weft_worker *worker)
{
    for (int i = 0; i < 2; i++) {
        WT_OK(weft_store_wait_sync(worker));
        WT_OK(weft_store_barrier(store));
    }
}

void wt_store_finish(weft_store *store, weft_worker *worker)
{
    WT_OK(weft_store_barrier(store));
    weft_worker_destroy(worker);
    weft_store_destroy(store);
}

bool wt_said(const char *text)
{
    return strstr(weft_error_detail(), text) != NULL;
}

uint64_t wt_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

uint64_t wt_long_length(const weft_world *world, uint64_t keys)
{
    size_t payload = 0;

    for (uint32_t rank = 0; rank < weft_world_size(world); rank++) {
        size_t most = wf_ports_am_payload(world, rank);

        payload = most > payload ? most : payload;
    }
    return 3 * 2 * WF_FLOW_FIRST * payload / (keys * sizeof(int64_t));
}
