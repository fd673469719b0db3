/* SPDX-License-Identifier: Apache-2.0 */
/* The table of operations; see op.h. */
#include "op.h"

#include <stdio.h>
#include <string.h>

static const op_shape shapes[] = {
    [OP_ALLREDUCE] = {.name = "allreduce", .in_place = true},
    [OP_BARRIER] = {.name = "barrier", .in_place = true},
    [OP_BROADCAST] = {.name = "broadcast", .in_place = true, .rooted = true},
    [OP_REDUCE] = {.name = "reduce", .rooted = true},
    [OP_REDUCE_SCATTER] = {.name = "reduce_scatter", .src_for_all = true},
    [OP_ALLGATHER] = {.name = "allgather", .dst_for_all = true},
    [OP_ALLTOALL] = {.name = "alltoall",
                     .src_for_all = true,
                     .dst_for_all = true},
    [OP_GATHER] = {.name = "gather", .dst_for_all = true, .rooted = true},
    [OP_SCATTER] = {.name = "scatter", .src_for_all = true, .rooted = true},
    [OP_SCAN] = {.name = "scan", .in_place = true, .both_ways = true},
    [OP_CYCLE] = {.name = "cycle", .in_place = true},
};

const op_shape *op_shape_of(enum op op)
{
    return &shapes[op];
}

int op_from_name(const char *name, enum op *out)
{
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        if (strcmp(name, shapes[i].name) == 0) {
            *out = (enum op)i;
            return 0;
        }
    }
    fprintf(stderr, "%s is not an operation\n", name);
    return -1;
}

int op_turns(enum op op, int ranks)
{
    return shapes[op].rooted ? ranks : shapes[op].both_ways ? 2 : 1;
}

size_t op_src_blocks(enum op op, int ranks)
{
    return shapes[op].src_for_all ? (size_t)ranks : 1;
}

size_t op_dst_blocks(enum op op, int ranks)
{
    return shapes[op].dst_for_all ? (size_t)ranks : 1;
}
