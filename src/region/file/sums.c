/* SPDX-License-Identifier: Apache-2.0 */
#include "region/file/sums.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/status.h"
#include <weft/coll.h>

_Static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t),
               "they are reduced as plain words once all threads are done");

weft_status wf_file_sums_init(const wf_file_header *header, wf_file_sums *out)
{
    out->header = header;
    out->piece = wf_zalloc(header->blocks * sizeof(*out->piece));
    if (out->piece == NULL) {
        return wf_fail_nomem("checksums of %" PRIu64 " blocks", header->blocks);
    }
    return WEFT_OK;
}

void wf_file_sums_fini(wf_file_sums *sums)
{
    wf_free((void *)sums->piece);
    sums->piece = NULL;
}

void wf_file_sums_add(wf_file_sums *sums, uint64_t at, const void *bytes,
                      size_t n)
{
    uint64_t block = at / sums->header->block_bytes;
    uint64_t in = at % sums->header->block_bytes;
    uint64_t all = wf_file_block_bytes(sums->header, block);
    uint32_t sum = wf_crc32c_piece(bytes, n, all - in - n);

    /* Threads may add to one block; who joins them has waited for all. */
    atomic_fetch_xor_explicit(&sums->piece[block], sum, memory_order_relaxed);
}

weft_status wf_file_sums_join(wf_file_sums *sums, weft_comm *comm,
                              const uint32_t **table)
{
    uint32_t *sum = (uint32_t *)(void *)sums->piece;
    uint64_t blocks = sums->header->blocks;
    weft_status st;

    st = weft_reduce(comm, sum, sum, blocks, WEFT_I32, WEFT_BXOR, 0);
    if (st != WEFT_OK) {
        return st;
    }
    for (uint64_t i = 0; comm->rank == 0 && i < blocks; i++) {
        sum[i] = wf_crc32c_join(sum[i], wf_file_block_bytes(sums->header, i));
    }
    *table = sum;
    return WEFT_OK;
}
