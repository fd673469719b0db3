/* SPDX-License-Identifier: Apache-2.0 */
/* Bad arguments are WEFT_ERR_INVALID with a reason, on the rank that gave them
 * and there only; the communicator stays good for everybody. */
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"

/* The reason must say something, and nothing may be broken. */
static void check_refused(weft_comm *comm, weft_status st, const char *file,
                          int line, const char *text)
{
    wt_check_status(file, line, text, st, WEFT_ERR_INVALID);
    if (weft_error_detail()[0] == '\0') {
        wt_fail_at(file, line, "%s: no reason given", text);
    }
    wt_check_ok(file, line, text, weft_comm_error(comm));
}

#define REFUSED(comm, call)                                                    \
    check_refused((comm), (call), __FILE__, __LINE__, #call)

static const weft_dtype no_type = (weft_dtype)99;

static void bad_allreduces(weft_comm *c)
{
    weft_op no_op = {(weft_op_kind)99, 1};
    weft_request *r = NULL;
    double x[16] = {0};

    REFUSED(c, weft_allreduce(c, NULL, x, 1, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_allreduce(c, x, NULL, 1, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_allreduce(c, x, x, 1, no_type, WEFT_SUM));
    REFUSED(c, weft_allreduce(c, x, x, 1, (weft_dtype)-1, WEFT_SUM));
    REFUSED(c, weft_allreduce(c, x, x, 1, WEFT_F64, no_op));
    REFUSED(c, weft_allreduce(c, x, x, 1, WEFT_F64, WEFT_BAND));
    REFUSED(c, weft_allreduce(c, x, x, 1, WEFT_C64, WEFT_MIN));
    REFUSED(c, weft_allreduce(c, x, x, 1, WEFT_C128, WEFT_LOR));
    REFUSED(c, weft_allreduce(c, x, x, 1, WEFT_BOOL, WEFT_AVG));
    REFUSED(c, weft_allreduce(c, x, x, 1, WEFT_I32, weft_premul_sum(2)));
    REFUSED(c, weft_allreduce(c, x, x + 1, 4, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_allreduce(c, x + 3, x, 4, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_allreduce(c, x, x, SIZE_MAX / 4, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_iallreduce(c, x, x, 1, WEFT_F64, WEFT_SUM, NULL));
    REFUSED(c, weft_iallreduce(c, x, x + 1, 4, WEFT_F64, WEFT_SUM, &r));
    REFUSED(c, weft_iallreduce(c, x, x, 1, WEFT_F32, WEFT_BXOR, &r));
    WT_CHECK(r == NULL);
}

static void bad_broadcasts(weft_comm *c)
{
    uint32_t size = weft_comm_size(c);
    weft_request *r = NULL;
    double x[16] = {0};

    REFUSED(c, weft_broadcast(c, NULL, 1, WEFT_F64, 0));
    REFUSED(c, weft_broadcast(c, x, 1, no_type, 0));
    REFUSED(c, weft_broadcast(c, x, 1, WEFT_F64, size));
    REFUSED(c, weft_broadcast(c, x, 1, WEFT_F64, UINT32_MAX));
    REFUSED(c, weft_broadcast(c, x, SIZE_MAX / 2, WEFT_F64, 0));
    REFUSED(c, weft_ibroadcast(c, x, 1, WEFT_F64, size, &r));
    REFUSED(c, weft_ibroadcast(c, x, 1, WEFT_F64, 0, NULL));
    REFUSED(c, weft_ibarrier(c, NULL));
    WT_CHECK(r == NULL);
}

/* reduce to rank 0, scan and exscan; the caller is not rank 0. */
static void bad_reductions(weft_comm *c)
{
    weft_op no_op = {(weft_op_kind)99, 1};
    uint32_t size = weft_comm_size(c);
    uint32_t me = weft_comm_rank(c);
    weft_request *r = NULL;
    double x[16] = {0};

    REFUSED(c, weft_reduce(c, NULL, x, 1, WEFT_F64, WEFT_SUM, 0));
    REFUSED(c, weft_reduce(c, x, NULL, 1, WEFT_F64, WEFT_SUM, me));
    REFUSED(c, weft_reduce(c, x, x, 1, no_type, WEFT_SUM, 0));
    REFUSED(c, weft_reduce(c, x, x, 1, WEFT_F64, no_op, 0));
    REFUSED(c, weft_reduce(c, x, x, 1, WEFT_C64, WEFT_MAX, 0));
    REFUSED(c, weft_reduce(c, x, x, 1, WEFT_F64, WEFT_SUM, size));
    REFUSED(c, weft_reduce(c, x, x + 1, 4, WEFT_F64, WEFT_SUM, me));
    REFUSED(c, weft_reduce(c, x, x, SIZE_MAX / 8, WEFT_F64, WEFT_SUM, 0));
    REFUSED(c, weft_ireduce(c, x, x, 1, WEFT_F64, WEFT_SUM, 0, NULL));
    REFUSED(c, weft_ireduce(c, x, x, 1, WEFT_F32, WEFT_BOR, 0, &r));

    REFUSED(c, weft_scan(c, NULL, x, 1, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_scan(c, x, NULL, 1, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_scan(c, x, x, 1, WEFT_F64, WEFT_AVG));
    REFUSED(c, weft_scan(c, x, x, 1, no_type, WEFT_SUM));
    REFUSED(c, weft_scan(c, x + 1, x, 2, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_iscan(c, x, x, 1, WEFT_F64, WEFT_AVG, &r));
    REFUSED(c, weft_iscan(c, x, x, 1, WEFT_F64, WEFT_SUM, NULL));
    REFUSED(c, weft_exscan(c, x, NULL, 1, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_exscan(c, x, x, 1, WEFT_I32, WEFT_AVG));
    REFUSED(c, weft_exscan(c, x, x, 1, WEFT_I32, weft_premul_sum(2)));
    REFUSED(c, weft_iexscan(c, x, x, SIZE_MAX, WEFT_U8, WEFT_SUM, &r));
    REFUSED(c, weft_iexscan(c, x, x, 1, WEFT_F64, WEFT_SUM, NULL));
    WT_CHECK(r == NULL);
}

static void bad_reduce_scatters(weft_comm *c)
{
    uint32_t size = weft_comm_size(c);
    weft_request *r = NULL;
    double x[16] = {0};
    double y[4] = {0};
    weft_part good[] = {{x, 2}, {x + 2, 2}, {x + 4, 2}};
    weft_part null[] = {{x, 2}, {NULL, 2}, {x + 4, 2}};
    weft_part huge[] = {{x, SIZE_MAX / 16}, {x, SIZE_MAX / 16}, {x, 2}};

    REFUSED(c, weft_reduce_scatter(c, NULL, y, 1, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_reduce_scatter(c, x, NULL, 1, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_reduce_scatter(c, x, y, 1, no_type, WEFT_SUM));
    REFUSED(c, weft_reduce_scatter(c, x, y, 1, WEFT_BOOL, WEFT_AVG));
    REFUSED(c, weft_reduce_scatter(c, x, y, SIZE_MAX / 16, WEFT_F64, WEFT_SUM));
    /* Rank 1's block is the second one. */
    REFUSED(c, weft_reduce_scatter(c, x, x, 2, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_reduce_scatter(c, x, x + 3, 2, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_ireduce_scatter(c, x, y, 1, WEFT_F64, WEFT_SUM, NULL));
    REFUSED(c, weft_ireduce_scatter(c, x, x, 2, WEFT_F64, WEFT_SUM, &r));

    REFUSED(c, weft_reduce_scatterv(c, NULL, y, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_reduce_scatterv(c, good, NULL, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_reduce_scatterv(c, good, y, no_type, WEFT_SUM));
    REFUSED(c, weft_reduce_scatterv(c, good, y, WEFT_F32, WEFT_BAND));
    REFUSED(c, weft_reduce_scatterv(c, good, x + 5, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_reduce_scatterv(c, null, y, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_reduce_scatterv(c, huge, y, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_ireduce_scatterv(c, good, y, WEFT_F64, WEFT_SUM, NULL));
    REFUSED(c, weft_ireduce_scatterv(c, null, y, WEFT_F64, WEFT_SUM, &r));
    WT_CHECK(r == NULL && size == 3);
}

static void bad_allgathers(weft_comm *c)
{
    weft_request *r = NULL;
    double x[16] = {0};
    double y[4] = {0};
    weft_part good[] = {{x, 2}, {x + 2, 2}, {x + 4, 2}};
    weft_part null[] = {{NULL, 2}, {x + 2, 2}, {x + 4, 2}};
    weft_part huge[] = {{x, 2}, {x, 2}, {x, SIZE_MAX / 8}};

    REFUSED(c, weft_allgather(c, NULL, x, 1, WEFT_F64));
    REFUSED(c, weft_allgather(c, y, NULL, 1, WEFT_F64));
    REFUSED(c, weft_allgather(c, y, x, 1, no_type));
    REFUSED(c, weft_allgather(c, y, x, SIZE_MAX / 16, WEFT_F64));
    REFUSED(c, weft_allgather(c, x, x, 2, WEFT_F64));
    REFUSED(c, weft_allgather(c, x + 3, x, 2, WEFT_F64));
    REFUSED(c, weft_iallgather(c, y, x, 1, WEFT_F64, NULL));
    REFUSED(c, weft_iallgather(c, x + 4, x, 2, WEFT_F64, &r));

    REFUSED(c, weft_allgatherv(c, y, NULL, WEFT_F64));
    REFUSED(c, weft_allgatherv(c, NULL, good, WEFT_F64));
    REFUSED(c, weft_allgatherv(c, y, good, no_type));
    REFUSED(c, weft_allgatherv(c, x + 1, good, WEFT_F64));
    REFUSED(c, weft_allgatherv(c, y, null, WEFT_F64));
    REFUSED(c, weft_allgatherv(c, y, huge, WEFT_F64));
    REFUSED(c, weft_iallgatherv(c, y, good, WEFT_F64, NULL));
    REFUSED(c, weft_iallgatherv(c, y, huge, WEFT_F64, &r));
    WT_CHECK(r == NULL);
}

static void bad_gathers(weft_comm *c)
{
    uint32_t size = weft_comm_size(c);
    uint32_t me = weft_comm_rank(c);
    weft_request *r = NULL;
    double x[16] = {0};
    double y[4] = {0};
    weft_part good[] = {{x, 2}, {x + 2, 2}, {x + 4, 2}};
    weft_part null[] = {{x, 2}, {x + 2, 2}, {NULL, 2}};
    weft_part huge[] = {{x, 2}, {x, 2}, {x, SIZE_MAX / 8}};
    weft_part both[] = {{x + 8, 2}, {x + 7, 2}, {x, 2}}; /* get a byte */

    REFUSED(c, weft_gather(c, NULL, x, 1, WEFT_F64, 0));
    REFUSED(c, weft_gather(c, y, NULL, 1, WEFT_F64, me));
    REFUSED(c, weft_gather(c, y, x, 1, no_type, 0));
    REFUSED(c, weft_gather(c, y, x, 1, WEFT_F64, size));
    REFUSED(c, weft_gather(c, y, x, SIZE_MAX / 16, WEFT_F64, 0));
    REFUSED(c, weft_gather(c, x, x, 2, WEFT_F64, me));
    REFUSED(c, weft_igather(c, y, x, 1, WEFT_F64, UINT32_MAX, &r));
    REFUSED(c, weft_igather(c, y, x, 1, WEFT_F64, 0, NULL));

    REFUSED(c, weft_gatherv(c, NULL, 2, good, WEFT_F64, 0));
    REFUSED(c, weft_gatherv(c, y, 2, NULL, WEFT_F64, me));
    REFUSED(c, weft_gatherv(c, y, 2, good, no_type, me));
    REFUSED(c, weft_gatherv(c, y, 2, good, WEFT_F64, size));
    /* Its own part has another length than n. */
    REFUSED(c, weft_gatherv(c, y, 1, good, WEFT_F64, me));
    REFUSED(c, weft_gatherv(c, x + 3, 2, good, WEFT_F64, me));
    REFUSED(c, weft_gatherv(c, y, 2, null, WEFT_F64, me));
    REFUSED(c, weft_gatherv(c, y, 2, both, WEFT_F64, me));
    REFUSED(c, weft_gatherv(c, y, 2, huge, WEFT_F64, me));
    REFUSED(c, weft_gatherv(c, y, SIZE_MAX / 8, NULL, WEFT_F64, 0));
    REFUSED(c, weft_igatherv(c, y, 2, good, WEFT_F64, me, NULL));
    REFUSED(c, weft_igatherv(c, y, 3, good, WEFT_F64, me, &r));
    WT_CHECK(r == NULL);
}

static void bad_scatters(weft_comm *c)
{
    uint32_t size = weft_comm_size(c);
    uint32_t me = weft_comm_rank(c);
    weft_request *r = NULL;
    double x[16] = {0};
    double y[4] = {0};
    weft_part good[] = {{x, 2}, {x + 2, 2}, {x + 4, 2}};
    weft_part null[] = {{x, 2}, {x + 2, 2}, {NULL, 2}};
    weft_part huge[] = {{x, SIZE_MAX / 8}, {x, 2}, {x, 2}};

    REFUSED(c, weft_scatter(c, NULL, y, 1, WEFT_F64, me));
    REFUSED(c, weft_scatter(c, x, NULL, 1, WEFT_F64, 0));
    REFUSED(c, weft_scatter(c, x, y, 1, no_type, 0));
    REFUSED(c, weft_scatter(c, x, y, 1, WEFT_F64, size));
    REFUSED(c, weft_scatter(c, x, y, SIZE_MAX / 16, WEFT_F64, 0));
    REFUSED(c, weft_scatter(c, x, x, 2, WEFT_F64, me));
    REFUSED(c, weft_iscatter(c, x, x + 1, 2, WEFT_F64, me, &r));
    REFUSED(c, weft_iscatter(c, x, y, 1, WEFT_F64, 0, NULL));

    REFUSED(c, weft_scatterv(c, NULL, y, 2, WEFT_F64, me));
    REFUSED(c, weft_scatterv(c, good, NULL, 2, WEFT_F64, 0));
    REFUSED(c, weft_scatterv(c, good, y, 2, no_type, me));
    REFUSED(c, weft_scatterv(c, good, y, 2, WEFT_F64, size));
    REFUSED(c, weft_scatterv(c, good, y, 1, WEFT_F64, me));
    REFUSED(c, weft_scatterv(c, good, x + 3, 2, WEFT_F64, me));
    REFUSED(c, weft_scatterv(c, null, y, 2, WEFT_F64, me));
    REFUSED(c, weft_scatterv(c, huge, y, 2, WEFT_F64, me));
    REFUSED(c, weft_iscatterv(c, good, y, 2, WEFT_F64, me, NULL));
    REFUSED(c, weft_iscatterv(c, good, y, 3, WEFT_F64, me, &r));
    WT_CHECK(r == NULL);
}

static void bad_alltoalls(weft_comm *c)
{
    weft_request *r = NULL;
    double x[16] = {0};
    double y[16] = {0};
    weft_part src[] = {{x, 2}, {x + 2, 2}, {x + 4, 2}};
    weft_part dst[] = {{y, 2}, {y + 2, 2}, {y + 4, 2}};
    weft_part over[] = {{y, 2}, {x + 3, 2}, {y + 4, 2}};
    weft_part null[] = {{y, 2}, {NULL, 2}, {y + 4, 2}};
    weft_part huge[] = {{y, 2}, {y, SIZE_MAX / 8}, {y, 2}};

    REFUSED(c, weft_alltoall(c, NULL, y, 1, WEFT_F64));
    REFUSED(c, weft_alltoall(c, x, NULL, 1, WEFT_F64));
    REFUSED(c, weft_alltoall(c, x, y, 1, no_type));
    REFUSED(c, weft_alltoall(c, x, y, SIZE_MAX / 16, WEFT_F64));
    REFUSED(c, weft_alltoall(c, x, x, 1, WEFT_F64));
    REFUSED(c, weft_alltoall(c, x, x + 5, 2, WEFT_F64));
    REFUSED(c, weft_ialltoall(c, x + 5, x, 2, WEFT_F64, &r));
    REFUSED(c, weft_ialltoall(c, x, y, 1, WEFT_F64, NULL));

    REFUSED(c, weft_alltoallv(c, NULL, dst, WEFT_F64));
    REFUSED(c, weft_alltoallv(c, src, NULL, WEFT_F64));
    REFUSED(c, weft_alltoallv(c, src, dst, no_type));
    REFUSED(c, weft_alltoallv(c, src, src, WEFT_F64));
    REFUSED(c, weft_alltoallv(c, src, over, WEFT_F64));
    REFUSED(c, weft_alltoallv(c, src, null, WEFT_F64));
    REFUSED(c, weft_alltoallv(c, null, src, WEFT_F64));
    REFUSED(c, weft_alltoallv(c, src, huge, WEFT_F64));
    REFUSED(c, weft_ialltoallv(c, src, dst, WEFT_F64, NULL));
    REFUSED(c, weft_ialltoallv(c, src, over, WEFT_F64, &r));
    WT_CHECK(r == NULL);
}

static void no_comm(weft_comm *c)
{
    weft_part part[] = {{NULL, 0}};
    weft_request *r = NULL;
    double x[2] = {0};
    double *y = x + 1;

    REFUSED(c, weft_reduce(NULL, x, y, 1, WEFT_F64, WEFT_SUM, 0));
    REFUSED(c, weft_scan(NULL, x, y, 1, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_exscan(NULL, x, y, 1, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_reduce_scatter(NULL, x, y, 1, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_reduce_scatterv(NULL, part, y, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_allgather(NULL, x, y, 1, WEFT_F64));
    REFUSED(c, weft_allgatherv(NULL, x, part, WEFT_F64));
    REFUSED(c, weft_gather(NULL, x, y, 1, WEFT_F64, 0));
    REFUSED(c, weft_gatherv(NULL, x, 1, part, WEFT_F64, 0));
    REFUSED(c, weft_scatter(NULL, x, y, 1, WEFT_F64, 0));
    REFUSED(c, weft_scatterv(NULL, part, y, 1, WEFT_F64, 0));
    REFUSED(c, weft_alltoall(NULL, x, y, 1, WEFT_F64));
    REFUSED(c, weft_alltoallv(NULL, part, part, WEFT_F64));
    REFUSED(c, weft_ialltoallv(NULL, part, part, WEFT_F64, &r));
    WT_CHECK(r == NULL);
}

static void bad_messages(weft_comm *c)
{
    uint32_t size = weft_comm_size(c);
    weft_request *r = NULL;
    double x[16] = {0};
    weft_message_info n;
    int found;

    REFUSED(c, weft_send(c, x, 8, size, 0));
    REFUSED(c, weft_send(c, NULL, 8, 0, 0));
    REFUSED(c, weft_recv(c, x, 8, size, 0, &n));
    REFUSED(c, weft_recv(c, NULL, 8, 0, 0, &n));
    REFUSED(c, weft_isend(c, x, 8, UINT32_MAX, 0, &r));
    REFUSED(c, weft_isend(c, x, 8, 0, 0, NULL));
    REFUSED(c, weft_irecv(c, x, 8, size, 0, &n, &r));
    REFUSED(c, weft_irecv(c, x, 8, 0, 0, &n, NULL));
    REFUSED(c, weft_send(c, x, 8, 0, WEFT_ANY_TAG));
    REFUSED(c, weft_isend(c, x, 8, 0, WEFT_ANY_TAG, &r));
    REFUSED(c, weft_send(c, x, 8, WEFT_ANY_SOURCE, 0));
    REFUSED(c, weft_irecv(c, NULL, 8, WEFT_ANY_SOURCE, 0, &n, &r));
    REFUSED(c, weft_sendrecv(c, x, 8, size, 0, x + 1, 8, 0, 0, &n));
    REFUSED(c, weft_sendrecv(c, x, 8, 0, WEFT_ANY_TAG, x + 1, 8, 0, 0, &n));
    REFUSED(c, weft_sendrecv(c, x, 8, 0, 0, x + 1, 8, size, 0, &n));
    REFUSED(c, weft_sendrecv(c, NULL, 8, 0, 0, x + 1, 8, 0, 0, &n));
    REFUSED(c, weft_sendrecv(c, x, 8, 0, 0, NULL, 8, 0, 0, &n));
    REFUSED(c, weft_isendrecv(c, x, 8, 0, 0, x + 1, 8, size, 0, &n, &r));
    REFUSED(c, weft_isendrecv(c, x, 8, 0, 0, x + 1, 8, 0, 0, &n, NULL));
    REFUSED(c, weft_probe(c, size, 0, &n));
    REFUSED(c, weft_iprobe(c, size, 0, &found, &n));
    REFUSED(c, weft_iprobe(c, 0, 0, NULL, &n));
    WT_CHECK(r == NULL);
}

static void bad_groups(weft_comm *c)
{
    const uint32_t twice[] = {0, 1, 0};
    const uint32_t beyond[] = {0, 1, 3};
    const uint32_t without_me[] = {0, 2};
    const uint32_t good[] = {0, 1};
    weft_comm *out = NULL;

    REFUSED(c, weft_comm_split(c, 0, 0, NULL));
    REFUSED(c, weft_comm_dup(c, NULL));
    REFUSED(c, weft_comm_subset(c, good, 2, NULL));
    REFUSED(c, weft_comm_subset(c, NULL, 2, &out));
    REFUSED(c, weft_comm_subset(c, good, 0, &out));
    REFUSED(c, weft_comm_subset(c, twice, 3, &out));
    REFUSED(c, weft_comm_subset(c, beyond, 3, &out));
    REFUSED(c, weft_comm_subset(c, without_me, 2, &out));
    REFUSED(c, weft_comm_create_group(c, good, 2, 0, 0, NULL));
    REFUSED(c, weft_comm_create_group(c, NULL, 2, 0, 0, &out));
    REFUSED(c, weft_comm_create_group(c, without_me, 2, 0, 0, &out));
    WT_CHECK(out == NULL);
}

static void no_objects(weft_world *world)
{
    weft_comm *c = weft_world_comm(world);
    weft_request *r = NULL;
    weft_comm *out = NULL;
    weft_peer peer;
    double x = 0;
    int done = 0;

    REFUSED(c, weft_barrier(NULL));
    REFUSED(c, weft_ibarrier(NULL, &r));
    REFUSED(c, weft_broadcast(NULL, &x, 1, WEFT_F64, 0));
    REFUSED(c, weft_allreduce(NULL, &x, &x, 1, WEFT_F64, WEFT_SUM));
    REFUSED(c, weft_send(NULL, &x, 8, 0, 0));
    REFUSED(c, weft_recv(NULL, &x, 8, 0, 0, NULL));
    REFUSED(c, weft_sendrecv(NULL, &x, 0, 0, 0, &x, 0, 0, 0, NULL));
    REFUSED(c, weft_probe(NULL, 0, 0, NULL));
    REFUSED(c, weft_comm_split(NULL, 0, 0, &out));
    REFUSED(c, weft_comm_dup(NULL, &out));
    REFUSED(c, weft_request_test(NULL, &done));
    REFUSED(c, weft_request_wait(NULL, 0));
    REFUSED(c, weft_world_peer(world, weft_world_size(world), &peer));
    REFUSED(c, weft_world_peer(world, 0, NULL));
}

static void bad_calls_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    int64_t x = 1;

    if (weft_world_rank(world) == 1) {
        bad_allreduces(comm);
        bad_broadcasts(comm);
        bad_reductions(comm);
        bad_reduce_scatters(comm);
        bad_allgathers(comm);
        bad_gathers(comm);
        bad_scatters(comm);
        bad_alltoalls(comm);
        no_comm(comm);
        bad_messages(comm);
        bad_groups(comm);
        no_objects(world);
    }
    WT_OK(weft_allreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM));
    WT_CHECK(x == weft_world_size(world));
}

static void a_bad_argument_is_refused_and_breaks_nothing(void **state)
{
    (void)state;
    wt_run_both(3, NULL, bad_calls_body);
    wt_run_both(3, "ENGINE=message", bad_calls_body);
}

/* --- what looks odd but is fine ------------------------------------------ */

static void odd_but_good_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    double x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    weft_request *r = NULL;

    WT_OK(weft_allreduce(comm, NULL, NULL, 0, WEFT_F32, WEFT_SUM));
    WT_OK(weft_broadcast(comm, NULL, 0, WEFT_F32, 0));
    WT_OK(weft_iallreduce(comm, NULL, NULL, 0, WEFT_F32, WEFT_SUM, &r));
    WT_OK(weft_request_wait(r, 0));
    weft_request_release(r);
    /* Side by side is not overlap. */
    WT_OK(weft_allreduce(comm, x, x + 4, 4, WEFT_F64, WEFT_SUM));
    WT_CHECK(x[4] == weft_world_size(world) && x[3] == 4);
    weft_world_destroy(NULL);
    weft_boot_close(NULL);
}

/* Nothing at all, with no memory to put it in. */
static void nothing_body(weft_world *world)
{
    weft_comm *c = weft_world_comm(world);
    weft_part none[8] = {{NULL, 0}};

    WT_OK(weft_reduce(c, NULL, NULL, 0, WEFT_F32, WEFT_SUM, 0));
    WT_OK(weft_scan(c, NULL, NULL, 0, WEFT_F32, WEFT_SUM));
    WT_OK(weft_exscan(c, NULL, NULL, 0, WEFT_F32, WEFT_SUM));
    WT_OK(weft_reduce_scatter(c, NULL, NULL, 0, WEFT_F32, WEFT_SUM));
    WT_OK(weft_reduce_scatterv(c, none, NULL, WEFT_F32, WEFT_SUM));
    WT_OK(weft_allgather(c, NULL, NULL, 0, WEFT_F32));
    WT_OK(weft_allgatherv(c, NULL, none, WEFT_F32));
    WT_OK(weft_gather(c, NULL, NULL, 0, WEFT_F32, 0));
    WT_OK(weft_gatherv(c, NULL, 0, none, WEFT_F32, 0));
    WT_OK(weft_scatter(c, NULL, NULL, 0, WEFT_F32, 0));
    WT_OK(weft_scatterv(c, none, NULL, 0, WEFT_F32, 0));
    WT_OK(weft_alltoall(c, NULL, NULL, 0, WEFT_F32));
    WT_OK(weft_alltoallv(c, none, none, WEFT_F32));
}

static void nothing_can_be_moved_and_reduced(void **state)
{
    (void)state;
    wt_run_both(1, NULL, nothing_body);
    wt_run_both(3, NULL, nothing_body);
    wt_run_both(3, "ENGINE=message", nothing_body);
}

static void empty_operations_and_neighbouring_buffers_are_fine(void **state)
{
    (void)state;
    wt_run_both(1, NULL, odd_but_good_body);
    wt_run_both(3, NULL, odd_but_good_body);
}

/* --- making a world ------------------------------------------------------ */

static void refuse_world(const char *settings, const char *word)
{
    weft_world *world = NULL;

    WT_STATUS(wt_join(settings, 0, &world), WEFT_ERR_INVALID);
    WT_CHECK(world == NULL);
    if (strstr(weft_error_detail(), word) == NULL) {
        WT_FAIL("%s is refused without saying \"%s\": %s", settings, word,
                weft_error_detail());
    }
}

static weft_status create_with_boot(weft_boot *boot)
{
    weft_world_options options = {.size = sizeof(options), .boot = boot};
    weft_world *world = NULL;
    weft_status st = weft_world_create(&options, &world);

    weft_world_destroy(world);
    return st;
}

static void bad_world_body(void)
{
    weft_world_options no_size = {0};
    weft_world *world = NULL;
    weft_boot *boot = NULL;
    weft_boot bad;
    char name[64];

    refuse_world("FROBNICATE=1", "FROBNICATE");
    refuse_world("TIMEOUT=soon", "TIMEOUT");
    refuse_world("SHM_RING_BYTES=12Q", "SHM_RING_BYTES");
    refuse_world("TIMEOUT", "TIMEOUT");
    WT_STATUS(weft_world_create(NULL, NULL), WEFT_ERR_INVALID);
    WT_STATUS(weft_world_create(&no_size, &world), WEFT_ERR_INVALID);

    wt_job_name(9, name, sizeof(name));
    WT_STATUS(weft_boot_open_local(name, 1, 1, &boot), WEFT_ERR_INVALID);
    WT_STATUS(weft_boot_open_local(name, 0, 0, &boot), WEFT_ERR_INVALID);
    WT_STATUS(weft_boot_open_local(NULL, 0, 1, &boot), WEFT_ERR_INVALID);
    WT_STATUS(weft_boot_open_local(name, 0, 1, NULL), WEFT_ERR_INVALID);
    WT_OK(weft_boot_open_local(name, 0, 1, &boot));
    bad = *boot;
    bad.rank = 5;
    WT_STATUS(create_with_boot(&bad), WEFT_ERR_INVALID);
    bad = *boot;
    bad.ranks = 2;
    bad.get = NULL;
    WT_STATUS(create_with_boot(&bad), WEFT_ERR_INVALID);
    bad = *boot;
    bad.size = 3;
    WT_STATUS(create_with_boot(&bad), WEFT_ERR_INVALID);
    weft_boot_close(boot);
}

static void a_world_with_bad_options_is_refused(void **state)
{
    (void)state;
    wt_run_job_both(&(wt_job){.ranks = 1, .bare = bad_world_body});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bad_argument_is_refused_and_breaks_nothing),
        cmocka_unit_test(empty_operations_and_neighbouring_buffers_are_fine),
        cmocka_unit_test(nothing_can_be_moved_and_reduced),
        cmocka_unit_test(a_world_with_bad_options_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
