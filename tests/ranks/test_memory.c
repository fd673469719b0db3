/* SPDX-License-Identifier: Apache-2.0 */
/* weft_alloc: buffers that all ranks see, and collectives on them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"

enum { N = 100003 };

static float element(uint32_t rank, size_t i)
{
    return (float)((i * 7 + rank * 13) % 1000);
}

static void fill(float *x, size_t n, uint32_t rank)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = element(rank, i);
    }
}

static void check_sum(const float *x, size_t n, uint32_t ranks)
{
    for (size_t i = 0; i < n; i++) {
        float want = 0;

        for (uint32_t r = 0; r < ranks; r++) {
            want += element(r, i);
        }
        if (x[i] != want) {
            WT_FAIL("element %zu is %g instead of %g", i, (double)x[i],
                    (double)want);
        }
    }
}

static void in_place_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint32_t rank = weft_comm_rank(comm);
    float *x = NULL;

    WT_OK(weft_alloc(comm, N * sizeof(float), (void **)&x));
    for (size_t i = 0; i < N; i++) {
        WT_CHECK(x[i] == 0);
    }
    for (unsigned round = 0; round < 3; round++) {
        fill(x, N, rank);
        WT_OK(weft_allreduce(comm, x, x, N, WEFT_F32, WEFT_SUM));
        check_sum(x, N, weft_comm_size(comm));
    }
    weft_free(comm, x);
}

static void a_shared_buffer_is_reduced_in_place(void **state)
{
    (void)state;
    for (unsigned ranks = 1; ranks <= 5; ranks++) {
        wt_run_both(ranks, "", in_place_body);
    }
}

static void two_buffers_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint32_t rank = weft_comm_rank(comm);
    weft_request *request = NULL;
    float *x = NULL;
    float *y = NULL;

    WT_OK(weft_alloc(comm, N * sizeof(float), (void **)&x));
    WT_OK(weft_alloc(comm, 2 * N * sizeof(float), (void **)&y));
    fill(x, N, rank);
    /* At another place on each rank. */
    WT_OK(weft_iallreduce(comm, x, y + rank, N, WEFT_F32, WEFT_SUM, &request));
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
    check_sum(y + rank, N, weft_comm_size(comm));
    for (size_t i = 0; i < N; i++) {
        WT_CHECK(x[i] == element(rank, i));
    }
    weft_free(comm, y);
    weft_free(comm, x);
}

static void source_and_destination_may_be_two_shared_buffers(void **state)
{
    (void)state;
    wt_run_both(2, "", two_buffers_body);
    wt_run_both(3, "", two_buffers_body);
}

/* Only some ranks use their shared buffer: all still get the same bits. */
static void mixed_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint32_t rank = weft_comm_rank(comm);
    float *own = malloc(N * sizeof(float));
    float *x = NULL;

    WT_CHECK(own != NULL);
    WT_OK(weft_alloc(comm, N * sizeof(float), (void **)&x));
    for (uint32_t odd = 0; odd <= weft_comm_size(comm); odd++) {
        float *at = rank < odd ? own : x;

        fill(at, N, rank);
        WT_OK(weft_allreduce(comm, at, at, N, WEFT_F32, WEFT_SUM));
        check_sum(at, N, weft_comm_size(comm));
    }
    if (rank == 0) {
        weft_free(comm, x); /* the others keep theirs */
        x = NULL;
    }
    fill(x != NULL ? x : own, N, rank);
    WT_OK(weft_allreduce(comm, x != NULL ? x : own, x != NULL ? x : own, N,
                         WEFT_F32, WEFT_SUM));
    check_sum(x != NULL ? x : own, N, weft_comm_size(comm));
    weft_free(comm, x);
    free(own);
}

static void shared_and_private_buffers_mix(void **state)
{
    (void)state;
    wt_run_both(2, "", mixed_body);
    wt_run_both(4, "", mixed_body);
    wt_run_both(3, "ENGINE=message", mixed_body);
}

static void bits_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint32_t rank = weft_comm_rank(comm);
    uint16_t *own = malloc(N * sizeof(uint16_t));
    uint16_t *x = NULL;

    WT_CHECK(own != NULL);
    WT_OK(weft_alloc(comm, N * sizeof(uint16_t), (void **)&x));
    for (size_t i = 0; i < N; i++) {
        /* bf16 of all magnitudes, so that the order of additions shows */
        own[i] =
            (uint16_t)(0x3000 + (i * 2654435761u + rank * 40503u) % 0x1800);
        x[i] = own[i];
    }
    WT_OK(weft_allreduce(comm, own, own, N, WEFT_BF16, WEFT_AVG));
    WT_OK(weft_allreduce(comm, x, x, N, WEFT_BF16, WEFT_AVG));
    WT_CHECK(memcmp(own, x, N * sizeof(uint16_t)) == 0);
    weft_free(comm, x);
    free(own);
}

static void where_a_buffer_lies_does_not_change_a_bit(void **state)
{
    (void)state;
    wt_run_both(2, "", bits_body);
    wt_run_both(5, "", bits_body);
}

static void refused_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *dup = NULL;
    void *x = NULL;

    WT_STATUS(weft_alloc(NULL, 1, &x), WEFT_ERR_INVALID);
    WT_STATUS(weft_alloc(comm, 1, NULL), WEFT_ERR_INVALID);
    WT_STATUS(weft_alloc(comm, SIZE_MAX, &x), WEFT_ERR_INVALID);
    WT_STATUS(weft_alloc(comm, (size_t)1 << 46, &x), WEFT_ERR_NOMEM);
    weft_free(comm, NULL);
    WT_OK(weft_barrier(comm));
    WT_OK(weft_alloc(comm, 0, &x));
    weft_free(comm, x);
    WT_OK(weft_comm_dup(comm, &dup));
    if (weft_comm_size(comm) > 1) {
        WT_STATUS(weft_alloc(dup, 100 + weft_comm_rank(comm), &x),
                  WEFT_ERR_MISMATCH);
    }
    weft_comm_destroy(dup);
}

static void what_cannot_be_had_is_an_error_on_all_ranks(void **state)
{
    (void)state;
    wt_run_both(1, "", refused_body);
    wt_run_both(3, "", refused_body);
}

enum { FREED = 100 };

typedef struct freeing {
    weft_comm *comm;
    void *buffer[FREED];
} freeing;

static void *free_all(void *ctx)
{
    freeing *f = ctx;

    for (unsigned i = 0; i < FREED; i++) {
        weft_free(f->comm, f->buffer[i]);
    }
    return NULL;
}

static void free_meanwhile_body(weft_world *world)
{
    freeing f = {.comm = weft_world_comm(world)};
    uint32_t rank = weft_comm_rank(f.comm);
    pthread_t thread;
    float *x = NULL;

    /* The first is last in the list, so that looking for it walks over all. */
    WT_OK(weft_alloc(f.comm, N * sizeof(float), (void **)&x));
    for (unsigned i = 0; i < FREED; i++) {
        WT_OK(weft_alloc(f.comm, 1, &f.buffer[i]));
    }
    WT_CHECK(pthread_create(&thread, NULL, free_all, &f) == 0);
    for (unsigned round = 0; round < 50; round++) {
        fill(x, N, rank);
        WT_OK(weft_allreduce(f.comm, x, x, N, WEFT_F32, WEFT_SUM));
        check_sum(x, N, weft_comm_size(f.comm));
    }
    pthread_join(thread, NULL);
    weft_free(f.comm, x);
    WT_OK(weft_alloc(f.comm, 1, &f.buffer[0]));
    weft_free(f.comm, f.buffer[0]);
}

static void
a_buffer_may_be_freed_while_another_thread_communicates(void **state)
{
    (void)state;
    wt_run_both(2, "", free_meanwhile_body);
    wt_run_both(3, "", free_meanwhile_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_buffer_is_reduced_in_place),
        cmocka_unit_test(source_and_destination_may_be_two_shared_buffers),
        cmocka_unit_test(shared_and_private_buffers_mix),
        cmocka_unit_test(where_a_buffer_lies_does_not_change_a_bit),
        cmocka_unit_test(what_cannot_be_had_is_an_error_on_all_ranks),
        cmocka_unit_test(
            a_buffer_may_be_freed_while_another_thread_communicates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
