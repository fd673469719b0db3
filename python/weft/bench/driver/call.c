/* SPDX-License-Identifier: Apache-2.0 */
/* From the name of an operation to the library's call; see call.h. */
#include "call.h"

#include "backend.h"

int call_once(enum op op, const float *src, float *dst, size_t n, int root)
{
    switch (op) {
    case OP_BARRIER:
        return backend.barrier();
    case OP_BROADCAST:
        return backend.broadcast(dst, n * sizeof(float), root);
    case OP_REDUCE:
        return backend.reduce(src, dst, n, root);
    case OP_REDUCE_SCATTER:
        return backend.reduce_scatter(src, dst, n);
    case OP_ALLGATHER:
        return backend.allgather(src, dst, n);
    case OP_ALLTOALL:
        return backend.alltoall(src, dst, n);
    case OP_GATHER:
        return backend.gather(src, dst, n, root);
    case OP_SCATTER:
        return backend.scatter(src, dst, n, root);
    case OP_SCAN:
        return backend.scan(src, dst, n, root != 0);
    case OP_ALLREDUCE:
    case OP_CYCLE:
        break;
    }
    return backend.allreduce(src, dst, n);
}
