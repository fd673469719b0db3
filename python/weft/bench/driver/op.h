/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that are measured, and the shape of their data.
 *
 * A case has a size: the bytes of one block. Where an operation has a block for
 * each rank, its buffer is that many times as large:
 *
 *   allreduce, scan           one vector, in place
 *   reduce                    one vector
 *   broadcast                 one vector, the same buffer on all ranks
 *   allgather, gather         what each rank brings
 *   scatter                   what each rank gets
 *   reduce_scatter            what each rank gets: its result
 *   alltoall                  what each rank sends to each
 *   cycle                     one vector: written, reduced in place, read
 */
#ifndef BENCH_OP_H
#define BENCH_OP_H

#include <stdbool.h>
#include <stddef.h>

enum op {
    OP_ALLREDUCE,
    OP_BARRIER,
    OP_BROADCAST,
    OP_REDUCE,
    OP_REDUCE_SCATTER,
    OP_ALLGATHER,
    OP_ALLTOALL,
    OP_GATHER,
    OP_SCATTER,
    OP_SCAN,
    OP_CYCLE,
};

typedef struct op_shape {
    const char *name;
    bool src_for_all; /* the source has a block for each rank */
    bool dst_for_all; /* the destination has one from each rank */
    bool in_place;    /* source and destination are one buffer when timed */
    bool rooted;      /* the root is another rank at each call */
    bool both_ways;   /* up the ranks and down again; a "root" of 1 is down */
} op_shape;

const op_shape *op_shape_of(enum op op);

/* 0, or -1 with a line on stderr for a name that is not an operation. */
int op_from_name(const char *name, enum op *out);

/* Calls until every rank has played every part: one from each root, or one each
 * way. Without it a library could run ahead, for nobody would wait for the rank
 * that is done last. */
int op_turns(enum op op, int ranks);

/* Blocks in the two buffers of one rank. */
size_t op_src_blocks(enum op op, int ranks);
size_t op_dst_blocks(enum op op, int ranks);

#endif
