/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the parameter store do again and again. */
#ifndef WT_STORE_H
#define WT_STORE_H

#include <stdbool.h>
#include <weft/store.h>
#include <weft/weft.h>

/* `n` keys and values of `length` elements in all. */
static inline weft_pairs wt_pairs(const int64_t *keys, uint64_t n, void *values,
                                  uint64_t length)
{
    return (weft_pairs){.keys = {.at = keys, .type = WEFT_I64, .n = n},
                        .values = values,
                        .length = length};
}

/* Elements of 8 bytes that a row has to have, so that calls of `keys` keys of
 * one of at most three hosts are about twice as much as may be under way at
 * first, and more: whatever the length of a message of the transport is. */
uint64_t wt_long_length(const weft_world *world, uint64_t keys);

/* All ranks: wait until everybody sees what was pushed before. */
void wt_store_settle(weft_store *store, weft_worker *worker);

/* All ranks: wait for each other, and end both. */
void wt_store_finish(weft_store *store, weft_worker *worker);

/* Does the detail of the last error contain this? */
bool wt_said(const char *text);

/* The next random number (xorshift). `seed` is not 0. */
uint64_t wt_random(uint64_t *seed);

#endif
