/* SPDX-License-Identifier: Apache-2.0 */
/* Data for collectives, and what must come out of them.
 *
 * wt_fill makes values that depend on (seed, rank, index) only, and on which
 * every operation is exact in f32 whatever its order, for up to 8 ranks: so
 * the reference, plain scalar C in the order of the ranks, must be met bit by
 * bit. wt_fill_rough makes floating values on which the order does matter. */
#ifndef WT_DATA_H
#define WT_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/types.h"

/* A good 64-bit hash of bytes / of three numbers. */
uint64_t wt_hash(const void *bytes, size_t n);
uint64_t wt_mix(uint64_t seed, uint64_t rank, uint64_t index);

void wt_fill_bytes(void *buf, size_t n, uint64_t seed, unsigned rank);
void wt_fill(void *buf, size_t n, weft_dtype type, weft_op_kind kind,
             uint64_t seed, unsigned rank);
void wt_fill_rough(void *buf, size_t n, weft_dtype type, uint64_t seed,
                   unsigned rank);

/* What an allreduce of wt_fill over `ranks` ranks must leave in `dst`. */
void wt_reference(void *dst, size_t n, weft_dtype type, weft_op op,
                  uint64_t seed, unsigned ranks);

/* The index of the first element in which the two differ, or n. Floating
 * values are compared as numbers, so that +0 is -0 and NaN is NaN. */
size_t wt_first_difference(const void *got, const void *want, size_t n,
                           weft_dtype type);

/* One element as text, for messages. */
void wt_element_text(const void *buf, size_t index, weft_dtype type, char *text,
                     size_t room);

/* Conversions, written for clarity. Rounding is to nearest, ties to even. */
float wt_from_f16(uint16_t bits);
uint16_t wt_to_f16(float value);
float wt_from_bf16(uint16_t bits);
uint16_t wt_to_bf16(float value);

/* A floating or complex element's parts as doubles (`im` is 0 if real). */
void wt_get(const void *buf, size_t index, weft_dtype type, double *re,
            double *im);
void wt_put(void *buf, size_t index, weft_dtype type, double re, double im);
bool wt_is_floating(weft_dtype type);
bool wt_is_complex(weft_dtype type);
/* A float that is calculated in f32 and rounded. */
bool wt_is_narrow(weft_dtype type);

/* Can its elements be added? */
bool wt_adds(weft_dtype type);

/* Pairs, and what their two halves are. */
bool wt_is_pair(weft_dtype type);
weft_dtype wt_pair_value(weft_dtype type);
weft_dtype wt_pair_index(weft_dtype type);

/* Every (type, op) that is defined, numbered from 0; false past the last. */
bool wt_type_and_op(unsigned index, weft_dtype *type, weft_op *op);

#endif
