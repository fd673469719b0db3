/* SPDX-License-Identifier: Apache-2.0 */
/* broadcast: the root's bytes, and no others, arrive on every rank. */
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_buffer.h"
#include "wt_cmocka.h"
#include "wt_data.h"

/* The first ones are tried with all settings even in the short run. */
static const unsigned rank_counts[] = {2, 5, 1, 3, 4, 8};

enum { RANK_COUNTS = 6, SHORT_RANK_COUNTS = 2 };

static void broadcast_once(weft_comm *comm, void *buf, size_t n,
                           weft_dtype type, unsigned root, bool blocking)
{
    weft_request *request = NULL;

    if (blocking) {
        WT_OK(weft_broadcast(comm, buf, n, type, root));
        return;
    }
    WT_OK(weft_ibroadcast(comm, buf, n, type, root, &request));
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
}

static void run_case(weft_world *world, size_t n, weft_dtype type,
                     unsigned root, bool blocking)
{
    unsigned rank = weft_world_rank(world);
    size_t elem = weft_dtype_size(type);
    uint64_t seed = n * 16 + root;
    wt_buffer buf;
    wt_buffer want;

    wt_buffer_init(&buf, n * elem, (rank % 3) * elem);
    wt_buffer_init(&want, n * elem, 0);
    wt_fill_bytes(want.data, want.bytes, seed, root);
    wt_fill_bytes(buf.data, buf.bytes, seed, rank);
    broadcast_once(weft_world_comm(world), buf.data, n, type, root, blocking);
    if (memcmp(buf.data, want.data, buf.bytes) != 0) {
        WT_FAIL("broadcast of %zu %s from rank %u: wrong bytes", n,
                weft_dtype_name(type), root);
    }
    wt_buffer_check(&buf);
    wt_buffer_fini(&buf);
    wt_buffer_fini(&want);
}

/* Every root for small data; in the short run, one root for each large size,
 * and each type with one of them. */
static bool case_is_due(unsigned t, unsigned s, unsigned root, unsigned ranks)
{
    return wt_full() || s < 4 ||
           (root == (t + s) % ranks && (t + s + ranks) % 3 == 0);
}

static void all_cases(weft_world *world)
{
    const size_t sizes[] = {
        0, 1, 17, 1023, 4096, 65536, wt_scaled(1u << 20) + 3};
    unsigned ranks = weft_world_size(world);

    for (unsigned t = 0; t < WF_DTYPE_COUNT; t++) {
        weft_dtype type = (weft_dtype)t;

        for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            size_t n = sizes[s] > 4000 ? sizes[s] / weft_dtype_size(type) + 3
                                       : sizes[s];

            for (unsigned root = 0; root < ranks; root++) {
                if (case_is_due(t, s, root, ranks)) {
                    run_case(world, n, type, root, (t + s + root) % 2 == 0);
                }
            }
        }
    }
}

static void run_all_cases(const char *settings, unsigned counts)
{
    for (unsigned i = 0; i < (wt_full() ? RANK_COUNTS : counts); i++) {
        wt_run_job_both(&(wt_job){.ranks = rank_counts[i],
                                  .settings = settings,
                                  .body = all_cases,
                                  .deadline = wt_full() ? 600 : 120});
    }
}

static void every_root_reaches_every_rank_with_every_type(void **state)
{
    (void)state;
    run_all_cases(NULL, RANK_COUNTS);
}

static void small_chunks_reach_every_rank(void **state)
{
    (void)state;
    run_all_cases("CHUNK_BYTES=4K", SHORT_RANK_COUNTS);
}

static void the_message_engine_reaches_every_rank(void **state)
{
    (void)state;
    run_all_cases("ENGINE=message", SHORT_RANK_COUNTS);
}

/* A root may be several operations ahead of the slowest rank; what it sent
 * must not be overwritten by what it sends next. */
static void running_root_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned rounds = wt_full() ? 20000 : 1000;
    unsigned root = weft_world_size(world) - 1;

    for (unsigned i = 0; i < rounds; i++) {
        uint64_t x[100];

        for (unsigned k = 0; k < 100; k++) {
            x[k] = weft_world_rank(world) == root ? i + k : 0;
        }
        WT_OK(weft_broadcast(comm, x, 100, WEFT_I64, root));
        for (unsigned k = 0; k < 100; k++) {
            WT_CHECK(x[k] == i + k);
        }
    }
}

static void a_root_that_runs_ahead_overwrites_nothing(void **state)
{
    (void)state;
    wt_run_both(2, NULL, running_root_body);
    wt_run_both(5, NULL, running_root_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_root_reaches_every_rank_with_every_type),
        cmocka_unit_test(small_chunks_reach_every_rank),
        cmocka_unit_test(the_message_engine_reaches_every_rank),
        cmocka_unit_test(a_root_that_runs_ahead_overwrites_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
