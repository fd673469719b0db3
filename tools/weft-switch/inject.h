/* SPDX-License-Identifier: Apache-2.0 */
/* Faults for tests: loss, repetition and reordering of single packets, before
 * any are merged for the kernel and after those that came merged are cut. What
 * happens to the nth packet of a shard follows from the seed. */
#ifndef SW_INJECT_H
#define SW_INJECT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sw_inject_options {
    double loss;
    double repeat;
    double reorder;
    uint64_t seed;
} sw_inject_options;

typedef enum sw_fate {
    SW_PASS,
    SW_LOSE,
    SW_TWICE,
    SW_LATE /* after the next one */
} sw_fate;

typedef struct sw_inject {
    bool on;
    uint64_t state;
    uint32_t loss; /* of 2^32 */
    uint32_t repeat;
    uint32_t reorder;
    uint64_t count[SW_LATE + 1];
} sw_inject;

/* "loss=0.01,repeat=0.01,reorder=0.05,seed=7": false if it is not that. */
bool sw_inject_parse(const char *text, sw_inject_options *out);

void sw_inject_init(sw_inject *inject, const sw_inject_options *options,
                    uint32_t shard);
sw_fate sw_inject_next(sw_inject *inject);

#endif
