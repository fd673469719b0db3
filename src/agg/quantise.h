/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of floats in fixed point: each block of 64 numbers is sent as integers
 * of 32 bits with one exponent, and the integers are added. A pure module.
 *
 *   rank     e: the least exponent with |x| < 2^e for all finite x of a block
 *            q = round(x 2^(P-e)),  P = 30 - ceil(log2 ranks)
 *   switch   E = max e over the ranks
 *            sum of round(q 2^(e-E))
 *   rank     x = sum 2^(E-P), rounded to f32; an average is divided before
 *
 * All roundings are to nearest, ties to even.
 *
 * Promised, for any order in which parts arrive:
 *
 *   - the same bits; E is a maximum and the sum is one of integers, and each
 *     rounding depends on one rank's part and on E alone
 *   - |result - sum| <= 3/4 ranks 2^(E-P), and one rounding to f32 (of an
 *     average, one to f64 before); if all ranks have the same e, 1/2 instead of
 *     3/4. 2^E is at most twice the largest finite |x| of the block on any rank
 *   - an element that is NaN on any rank, or Inf on one and -Inf on another, is
 *     NaN; one that is Inf or -Inf on some is that; all others are not affected
 *   - a finite sum that f32 cannot hold is Inf or -Inf, as it is in IEEE 754
 *   - denormals are numbers like any other; -0 becomes 0
 *
 * A quantised array of n numbers is n integers, then an exponent of 16 bits for
 * each block: 2 e, plus 1 if some number of the block is not finite. The last
 * block may be short. What came from outside may hold any bits: results are
 * then meaningless, and nothing else. */
#ifndef WF_AGG_QUANTISE_H
#define WF_AGG_QUANTISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/types.h>

#define WF_QUANT_BLOCK 64u

/* Are elements of this type and operation sent in fixed point? Sums of f32 and
 * of complex f32 are. 30 bits are not a double; f16 and bf16 would be sent with
 * twice their bytes. */
bool wf_quantises(weft_dtype type, weft_op_kind op);

/* Bytes of n numbers, and how many numbers fit into so many bytes. */
size_t wf_quantised_bytes(size_t n);
size_t wf_quantised_fits(size_t bytes);

/* Quantise n numbers; `out` is of wf_quantised_bytes, aligned to 4. */
void wf_quantise(const float *src, size_t n, uint32_t ranks, void *out);

/* Add the arrays of all ranks into another one; all are aligned to 4. */
void wf_quantised_sum(const void *const part[], uint32_t ranks, size_t n,
                      void *out);

/* Turn the sum of `ranks` arrays into n numbers, divided by `divisor`. */
void wf_dequantise(const void *sum, size_t n, uint32_t ranks, uint32_t divisor,
                   float *out);

#endif
