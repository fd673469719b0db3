/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers of one operation on one rank, and what belongs into them. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include "buffer.h"
#include "op.h"
#include "work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The memory of the two buffers of a case. */
typedef struct data_memory {
    bool huge;  /* of the kernel: ask for huge pages instead of refusing them */
    bool arena; /* of the library under test */
} data_memory;

/* This rank's place, for what the data should be. */
typedef struct data_place {
    int rank;
    int ranks;
    int root; /* or which way, of a scan */
    uint32_t seed;
} data_place;

typedef struct data {
    data_memory memory;
    buffer src_buffer;
    buffer dst_buffer;
    float *src;
    float *dst; /* the same as src when in place */
    size_t n;   /* floats in a block */
    size_t src_n;
    size_t dst_n;
} data;

/* 0, -1, or WORK_LACKS. Where memory is the library's, all ranks call both in
 * the same order. */
int data_init(data *d, enum op op, int ranks, size_t bytes, data_memory memory,
              bool in_place);
void data_fini(data *d);

/* Whole numbers from 1 to 1024 that tell rank, element and seed apart, so that
 * a sum over a few thousand ranks is exact in whatever order it is added. */
void data_fill(float *at, size_t n, uint32_t seed, int rank);

/* Does `got` hold what `op` must have left on this rank? Says on stderr what
 * does not. Blocks have `n` floats. Of large data one element in 61 is looked
 * at, which meets every offset into a line and every chunk. */
int data_expect(enum op op, const data_place *at, const float *got, size_t n);

#endif
