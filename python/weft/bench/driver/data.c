/* SPDX-License-Identifier: Apache-2.0 */
/* The data of an operation; see data.h. */
#include "data.h"

#include "backend.h"

#include <stdio.h>

enum {
    ALL_CHECKED = 4 << 20, /* floats of which every one is looked at */
    STRIDE = 61,
};

static int take(const data_memory *memory, buffer *b, size_t bytes)
{
    if (!memory->arena) {
        return buffer_init(b, bytes, memory->huge);
    }
    if (backend.alloc == NULL) {
        fprintf(stderr, "this library has no memory of its own to offer\n");
        return WORK_LACKS;
    }
    b->at = backend.alloc(bytes);
    return b->at == NULL ? WORK_LACKS : 0;
}

static void give_back(const data_memory *memory, buffer *b)
{
    if (memory->arena) {
        backend.release(b->at);
    } else {
        buffer_fini(b);
    }
}

int data_init(data *d, enum op op, int ranks, size_t bytes, data_memory memory,
              bool in_place)
{
    int rc;

    d->memory = memory;
    d->n = bytes / sizeof(float);
    d->src_n = d->n * op_src_blocks(op, ranks);
    d->dst_n = d->n * op_dst_blocks(op, ranks);
    rc = take(&memory, &d->src_buffer, d->src_n * sizeof(float));
    if (rc != 0) {
        return rc;
    }
    d->src = d->src_buffer.at;
    d->dst = d->src;
    d->dst_buffer = (buffer){.at = NULL};
    if (in_place) {
        return 0;
    }
    rc = take(&memory, &d->dst_buffer, d->dst_n * sizeof(float));
    if (rc != 0) {
        give_back(&memory, &d->src_buffer);
        return rc;
    }
    d->dst = d->dst_buffer.at;
    return 0;
}

void data_fini(data *d)
{
    if (d->dst_buffer.at != NULL) {
        give_back(&d->memory, &d->dst_buffer);
    }
    give_back(&d->memory, &d->src_buffer);
}

static float value_of(uint32_t seed, int rank, size_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)rank * 0x9e3779b9u;

    x = (x + seed) * 0x2c1b3c6du;
    x ^= x >> 15;
    return (float)(1 + (x >> 8) % 1024);
}

void data_fill(float *at, size_t n, uint32_t seed, int rank)
{
    for (size_t i = 0; i < n; i++) {
        at[i] = value_of(seed, rank, i);
    }
}

/* The sum over ranks `first` to `last` of element `i` of their sources. */
static float sum_of(uint32_t seed, int first, int last, size_t i)
{
    float sum = 0;

    for (int r = first; r <= last; r++) {
        sum += value_of(seed, r, i);
    }
    return sum;
}

static float expected(enum op op, const data_place *at, size_t n, size_t i)
{
    size_t mine = (size_t)at->rank * n; /* where this rank's block starts */
    int from = (int)(i / n);            /* the rank that a block came from */

    switch (op) {
    case OP_BROADCAST:
        return value_of(at->seed, at->root, i);
    case OP_SCAN:
        return at->root == 0 ? sum_of(at->seed, 0, at->rank, i)
                             : sum_of(at->seed, at->rank, at->ranks - 1, i);
    case OP_REDUCE_SCATTER:
        return sum_of(at->seed, 0, at->ranks - 1, mine + i);
    case OP_ALLGATHER:
    case OP_GATHER:
        return value_of(at->seed, from, i % n);
    case OP_ALLTOALL:
        return value_of(at->seed, from, mine + i % n);
    case OP_SCATTER:
        return value_of(at->seed, at->root, mine + i);
    default:
        return sum_of(at->seed, 0, at->ranks - 1, i);
    }
}

int data_expect(enum op op, const data_place *at, const float *got, size_t n)
{
    size_t count = n * op_dst_blocks(op, at->ranks);
    size_t step = count > ALL_CHECKED ? STRIDE : 1;

    for (size_t i = 0; i < count; i += step) {
        float want = expected(op, at, n, i);
        if (got[i] != want) {
            fprintf(stderr,
                    "%s of %zu bytes, root %d: element %zu on rank %d is %g, "
                    "should be %g\n",
                    op_shape_of(op)->name, n * sizeof(float), at->root, i,
                    at->rank, got[i], want);
            return -1;
        }
    }
    return 0;
}
