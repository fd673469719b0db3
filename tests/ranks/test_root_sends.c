/* SPDX-License-Identifier: Apache-2.0 */
/* Operations in which a root sends: its data is taken as soon as its call has
 * been seen, and the operation is over when all members have called the same.
 */
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"

#define RANKS 5u
#define LATE 3u    /* the rank that comes last */
#define WATCHER 1u /* the rank that tells it when to come */
#define BYTES (60u << 10)

static bool scatters; /* else broadcasts; set before the ranks are forked */

typedef struct buffers {
    unsigned char *src; /* a block for each rank */
    unsigned char *dst;
} buffers;

static buffers buffers_new(unsigned rank)
{
    buffers b = {malloc(RANKS * BYTES), calloc(1, BYTES)};

    WT_CHECK(b.src != NULL && b.dst != NULL);
    for (unsigned r = 0; r < RANKS; r++) {
        memset(b.src + r * BYTES, (int)(100 + r), BYTES);
    }
    if (!scatters && rank == 0) {
        memset(b.dst, (int)(100 + rank), BYTES);
    }
    return b;
}

static void buffers_free(buffers b)
{
    free(b.src);
    free(b.dst);
}

static weft_request *begin(weft_comm *comm, buffers b)
{
    weft_request *request = NULL;

    if (scatters) {
        WT_OK(weft_iscatter(comm, b.src, b.dst, BYTES, WEFT_U8, 0, &request));
    } else {
        WT_OK(weft_ibroadcast(comm, b.dst, BYTES, WEFT_U8, 0, &request));
    }
    return request;
}

static unsigned char byte_for(unsigned rank)
{
    return (unsigned char)(100 + (scatters ? rank : 0));
}

/* The root's data is there: drive for a while, and see that the operation is
 * not over. */
static void watch(weft_request *request)
{
    int done = 0;

    for (unsigned i = 0; i < 2000; i++) {
        WT_OK(weft_request_test(request, &done));
        WT_CHECK(!done);
    }
}

/* All but LATE begin; it goes on when WATCHER has watched. NULL: it is LATE. */
static weft_request *begin_before(weft_world *world, weft_comm *comm, buffers b)
{
    unsigned rank = weft_world_rank(world);
    weft_request *request = NULL;

    if (rank == LATE) {
        wt_word_await(0, 1);
        return NULL;
    }
    request = begin(comm, b);
    wt_word_add(1, 1);
    if (rank == WATCHER) {
        wt_word_await(1, RANKS - 1);
        watch(request);
        wt_word_set(0, 1);
    }
    return request;
}

static void late_body(weft_world *world)
{
    unsigned rank = weft_world_rank(world);
    buffers b = buffers_new(rank);
    weft_comm *comm = NULL;
    weft_request *request;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    request = begin_before(world, comm, b);
    if (request == NULL) {
        request = begin(comm, b);
    }
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
    for (size_t i = 0; i < BYTES; i++) {
        WT_CHECK(b.dst[i] == byte_for(rank));
    }
    weft_comm_destroy(comm);
    buffers_free(b);
}

static void other_call_body(weft_world *world)
{
    buffers b = buffers_new(weft_world_rank(world));
    weft_comm *comm = NULL;
    weft_request *request;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    request = begin_before(world, comm, b);
    if (request == NULL) {
        WT_STATUS(weft_barrier(comm), WEFT_ERR_MISMATCH);
    } else {
        WT_STATUS(weft_request_wait(request, 0), WEFT_ERR_MISMATCH);
        weft_request_release(request);
    }
    weft_comm_destroy(comm);
    buffers_free(b);
}

static void for_all(wt_body *body)
{
    static const char *const settings[] = {"TIMEOUT=600s SHM_CMA=0",
                                           "TIMEOUT=600s SHM_CMA=1"};

    for (unsigned i = 0; i < 4; i++) {
        scatters = i % 2 != 0;
        wt_run_both(RANKS, settings[i / 2], body);
    }
}

static void nobody_is_through_before_the_last_rank_has_called(void **state)
{
    (void)state;
    for_all(late_body);
}

static void another_call_of_the_last_rank_is_an_error_of_all(void **state)
{
    (void)state;
    for_all(other_call_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_is_through_before_the_last_rank_has_called),
        cmocka_unit_test(another_call_of_the_last_rank_is_an_error_of_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
