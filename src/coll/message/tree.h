/* SPDX-License-Identifier: Apache-2.0 */
/* Who talks to whom: pure functions, tested without any communication.
 *
 * Ranks are numbered from the root on, so the root is number 0. In a binomial
 * tree, number v hangs below v less its lowest set bit, and has below it those
 * that it reaches by adding a smaller power of two. */
#ifndef WF_COLL_MESSAGE_TREE_H
#define WF_COLL_MESSAGE_TREE_H

#include <stdint.h>

/* A rank's number when counting from `root`, and back. */
static inline uint32_t tree_number(uint32_t rank, uint32_t root, uint32_t size)
{
    return rank >= root ? rank - root : rank + size - root;
}

static inline uint32_t tree_rank(uint32_t number, uint32_t root, uint32_t size)
{
    uint32_t r = number + root;

    return r >= size ? r - size : r;
}

/* The lowest set bit of a number; for 0, the first power of two that is not
 * below `size`. A number has children at all smaller powers of two. */
static inline uint32_t tree_span(uint32_t number, uint32_t size)
{
    uint32_t span = 1;

    if (number != 0) {
        return number & (0u - number);
    }
    while (span < size) {
        span <<= 1;
    }
    return span;
}

#endif
