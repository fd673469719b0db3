/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest program that uses weft from C: every rank adds up all ranks.
 *
 *     cc examples/allreduce.c $(pkg-config --cflags --libs weft) -o allreduce
 *     ./allreduce                         one rank
 *     mpirun -n 2 ./allreduce             two, or by torchrun --no-python, srun
 */
#include <stdio.h>
#include <weft/weft.h>

static int failed(const char *what, weft_status status)
{
    fprintf(stderr, "%s: %s: %s\n", what, weft_status_name(status),
            weft_error_detail());
    return 1;
}

int main(void)
{
    weft_world *world = NULL;
    weft_status status = weft_world_create(NULL, &world);
    float x[2];

    if (status != WEFT_OK) {
        return failed("weft_world_create", status);
    }
    x[0] = (float)weft_world_rank(world);
    x[1] = 1.0f;
    status =
        weft_allreduce(weft_world_comm(world), x, x, 2, WEFT_F32, WEFT_SUM);
    if (status != WEFT_OK) {
        weft_world_destroy(world);
        return failed("weft_allreduce", status);
    }
    printf("rank %u of %u: the ranks add up to %g, and are %g\n",
           weft_world_rank(world), weft_world_size(world), x[0], x[1]);
    weft_world_destroy(world);
    return 0;
}
