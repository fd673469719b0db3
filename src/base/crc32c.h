/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C (Castagnoli), also of blocks whose pieces several ranks hold.
 *
 * The CRC of a block is linear but for a constant that depends on its length:
 * it is the exclusive or of what each piece would give if all other bytes were
 * zero. So ranks need not see each other's bytes to know the CRC of a block
 * that they fill together. */
#ifndef WF_BASE_CRC32C_H
#define WF_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continue `crc` (0 at the start) with `n` bytes. */
uint32_t wf_crc32c(uint32_t crc, const void *data, size_t n);

/* What `n` bytes with `after` more behind them contribute to a CRC. */
uint32_t wf_crc32c_piece(const void *data, size_t n, uint64_t after);

/* The CRC of `n` bytes from the exclusive or of all contributions. */
uint32_t wf_crc32c_join(uint32_t pieces, uint64_t n);

/* For tests: the two implementations, without the inversions. The second is
 * NULL if this CPU has no instruction for it, or WEFT_CPU forbids it. */
typedef uint32_t wf_crc32c_fn(uint32_t state, const void *data, size_t n);
wf_crc32c_fn *wf_crc32c_plain(void);
wf_crc32c_fn *wf_crc32c_hardware(void);

#endif
