/* SPDX-License-Identifier: Apache-2.0 */
/* Operations whose takers read the memory of others: they give what those
 * through slots give, whoever may not read goes through slots, and a member
 * that dies or gives up meanwhile is an error and never wrong data. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"
#include "wt_deny.h"

#define LARGE (1u << 20) /* bytes of a block: several slices, with odd ends */

static const wt_coll_kind kinds[] = {WT_SCATTER,    WT_SCATTERV,  WT_ALLTOALL,
                                     WT_ALLTOALLV,  WT_BROADCAST, WT_ALLGATHER,
                                     WT_ALLGATHERV, WT_GATHER,    WT_GATHERV};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* All kinds in all sizes, from nothing to several slices; each root, blocking
 * or not, parts of any length in any order, and buffers that are shared
 * anyway. */
static void all_forms_body(weft_world *world)
{
    static const size_t bytes[] = {1,     17,    64,        513,
                                   30000, 65521, 200 << 10, LARGE - 3};
    weft_comm *comm = weft_world_comm(world);
    uint32_t ranks = weft_comm_size(comm);
    wt_pool pool;

    wt_pool_init(&pool, comm, 2 * (size_t)ranks * (LARGE + 64) + 4096);
    for (unsigned i = 0; i < KINDS * 8; i++) {
        wt_coll what = {.kind = kinds[i % KINDS],
                        .type = WEFT_U8,
                        .root = i / 2 % ranks,
                        .n = wt_scaled(bytes[i / KINDS]),
                        .lengths = (wt_lengths)(i / 3 % (WT_LONE + 1)),
                        .placing = (wt_placing)(i / 5 % WT_PLACINGS),
                        .in_place = i / 7 % 2 != 0,
                        .shift = i / 4 % 3,
                        .shared_src = i % 11 == 10 ? UINT32_MAX : 0,
                        .seed = i};

        wt_coll_carry_out(comm, &what, &pool, i / 16 % 2 == 0);
    }
    wt_pool_fini(&pool, comm);
}

static void run_all_forms(const char *settings)
{
    wt_run_both(2, settings, all_forms_body);
    wt_run_threads(3, settings, all_forms_body);
    wt_run_both(5, settings, all_forms_body);
    if (wt_full()) {
        wt_run_both(8, settings, all_forms_body);
    }
}

static void takers_that_read_get_their_blocks(void **state)
{
    (void)state;
    run_all_forms("SHM_CMA=1 FLAT_BYTES=64 CHUNK_BYTES=4K");
}

static void takers_that_do_not_read_get_their_blocks(void **state)
{
    (void)state;
    run_all_forms("SHM_CMA=0");
}

/* --- may not read -------------------------------------------------------- */

static unsigned refusals; /* that this rank has logged */

static void count_refusals(weft_log_level level, const char *text, void *ctx)
{
    (void)level;
    (void)ctx;
    if (strstr(text, "cannot read the memory") != NULL &&
        strstr(text, "goes through shared memory") != NULL) {
        refusals++;
    }
}

static void hear_refusals(void)
{
    refusals = 0;
    weft_log_to(count_refusals, NULL);
    weft_log_set_level(WEFT_LOG_INFO);
}

/* So many operations of the first `of` kinds. */
static void some_operations(weft_world *world, size_t n, unsigned count,
                            unsigned of)
{
    weft_comm *comm = weft_world_comm(world);

    for (unsigned i = 0; i < count; i++) {
        wt_coll what = {.kind = kinds[i % of],
                        .type = WEFT_U8,
                        .root = i / 2 % weft_comm_size(comm),
                        .n = n,
                        .lengths = WT_EVEN,
                        .seed = i};

        wt_coll_carry_out(comm, &what, NULL, i % 3 != 0);
    }
}

/* Which ranks may not read, and what the kernel says; set before they run. */
static struct {
    uint32_t ranks;
    int error;
} denied;

static void deny_if_due(void)
{
    if (denied.ranks >> wt_rank() & 1) {
        wt_deny_syscall(SYS_process_vm_readv, denied.error);
    }
}

/* One refusal is enough for all operations to come. */
static void denied_body(void)
{
    weft_world *world = NULL;

    hear_refusals();
    deny_if_due();
    WT_OK(wt_join("TIMEOUT=1800s SHM_CMA=1", 0, &world));
    some_operations(world, 70001, 27, KINDS);
    WT_CHECK(refusals <= (denied.ranks >> wt_rank() & 1));
    wt_word_add(0, refusals);
    wt_meet();
    WT_CHECK(atomic_load(wt_word(0)) > 0);
    weft_world_destroy(world);
}

static void whoever_may_not_read_is_served_through_slots(void **state)
{
    static const uint32_t who[] = {7, 1, 2, 6};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        denied.ranks = who[i];
        denied.error = i % 2 == 0 ? EPERM : ENOSYS;
        wt_run_job(&(wt_job){.ranks = 3, .bare = denied_body});
    }
}

/* Members that know only their own lengths invite after all calls were seen: by
 * then another member may have refused already. Each communicator is asked
 * anew. */
static void denied_at_first_body(void)
{
    unsigned rounds = wt_full() ? 2000 : 100;
    weft_world *world = NULL;
    weft_comm *comm = NULL;

    deny_if_due();
    WT_OK(wt_join("TIMEOUT=1800s SHM_CMA=1 CHUNK_BYTES=4K", 0, &world));
    for (unsigned i = 0; i < rounds; i++) {
        wt_coll what = {.kind = i % 2 == 0 ? WT_SCATTERV : WT_ALLTOALLV,
                        .type = WEFT_U8,
                        .n = 30001,
                        .lengths = WT_EVEN,
                        .seed = i};

        WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
        wt_coll_carry_out(comm, &what, NULL, true);
        weft_comm_destroy(comm);
    }
    weft_world_destroy(world);
}

static void whoever_comes_when_another_has_refused_gets_its_block(void **state)
{
    (void)state;
    denied.ranks = 2;
    denied.error = EPERM;
    wt_run_job(&(wt_job){.ranks = 3, .bare = denied_at_first_body});
}

/* Reading worked before. A reason that stays is told once, one that may go
 * away in each operation that meets it: of six scatters that rank 1 is in, it
 * is the root of two; then it reads the memory of both others in alltoalls. */
static void taken_away_body(void)
{
    weft_world *world = NULL;

    hear_refusals();
    WT_OK(wt_join("TIMEOUT=1800s SHM_CMA=1", 0, &world));
    some_operations(world, 300001, 9, KINDS);
    WT_CHECK(refusals == 0);
    deny_if_due();
    some_operations(world, 300001, 6, 2);
    if (denied.ranks >> wt_rank() & 1) {
        WT_CHECK(denied.error == EFAULT ? refusals == 4 : refusals == 1);
    } else {
        WT_CHECK(refusals == 0);
    }
    some_operations(world, 300001, 4, 4);
    if (denied.ranks >> wt_rank() & 1) {
        WT_CHECK(denied.error == EFAULT ? refusals == 8 : refusals == 1);
    }
    weft_world_destroy(world);
}

static void whoever_cannot_read_any_more_is_served_through_slots(void **state)
{
    (void)state;
    denied.ranks = 2;
    denied.error = EPERM;
    wt_run_job(&(wt_job){.ranks = 3, .bare = taken_away_body});
    denied.error = EFAULT;
    wt_run_job(&(wt_job){.ranks = 3, .bare = taken_away_body});
}

/* Who is refused must have tried. */
static void tries(const char *settings, unsigned kind, size_t n, bool expected,
                  unsigned round)
{
    weft_comm *comm;
    weft_world *world = NULL;

    refusals = 0;
    WT_OK(wt_join(settings, round, &world));
    comm = weft_world_comm(world);
    for (uint32_t root = 0; root < weft_comm_size(comm); root++) {
        wt_coll what = {
            .kind = kinds[kind], .type = WEFT_U8, .root = root, .n = n};

        wt_coll_carry_out(comm, &what, NULL, true);
    }
    wt_word_add(round, refusals);
    wt_meet();
    WT_CHECK((atomic_load(wt_word(round)) > 0) == expected);
    weft_world_destroy(world);
}

static void choice_body(void)
{
    bool several = wt_ranks() > 2;

    hear_refusals();
    wt_deny_syscall(SYS_process_vm_readv, EPERM);
    tries("TIMEOUT=1800s", 0, 200000, several, 1);
    tries("TIMEOUT=1800s", 0, 3000, false, 2);
    tries("TIMEOUT=1800s SHM_CMA=0", 0, 200000, false, 3);
    for (unsigned kind = 0; kind < KINDS; kind++) {
        tries("TIMEOUT=1800s SHM_CMA=1", kind, 20000, true, 4 + 2 * kind);
        /* Blocks of a scatter that fit into the slots are brought. */
        tries("TIMEOUT=1800s", kind, 70001, several && kind == 1, 5 + 2 * kind);
    }
}

static void what_is_read_follows_kind_size_and_setting(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = 2, .bare = choice_body});
    wt_run_job(&(wt_job){.ranks = 4, .bare = choice_body});
}

/* One of them would wait for a chunk that the other does not bring. */
static void differ_body(void)
{
    weft_world *world = NULL;

    WT_STATUS(wt_join(wt_rank() == 1 ? "SHM_CMA=0" : "SHM_CMA=1", 0, &world),
              WEFT_ERR_MISMATCH);
    WT_CHECK(strstr(weft_error_detail(), "WEFT_SHM_CMA") != NULL);
    WT_STATUS(wt_join(wt_rank() == 1 ? "" : "SHM_CMA=1", 1, &world),
              WEFT_ERR_MISMATCH);
    WT_CHECK(strstr(weft_error_detail(), "'auto' on rank 1") != NULL);
}

static void ranks_that_would_not_read_alike_are_told(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = 3, .bare = differ_body});
}

/* --- who is read goes -------------------------------------------------------
 */

/* It has invited; then it is gone, and there is nothing to read. */
static void death_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    char *src = calloc(wt_ranks(), LARGE);
    char *dst = malloc(LARGE);
    weft_request *request = NULL;
    int done = 0;

    WT_CHECK(src != NULL && dst != NULL);
    if (wt_ranks() > 2) { /* or it is read for the first time */
        WT_OK(weft_scatter(comm, src, dst, LARGE, WEFT_U8, 0));
    }
    /* One that is still in it when another is told would fail, too. */
    wt_meet();
    if (wt_rank() == 0) {
        WT_OK(weft_iscatter(comm, src, dst, LARGE, WEFT_U8, 0, &request));
        WT_OK(weft_request_test(request, &done));
        WT_CHECK(!done);
        kill(getpid(), SIGKILL);
    }
    wt_await_gone(0);
    WT_STATUS(weft_scatter(comm, src, dst, LARGE, WEFT_U8, 0), WEFT_ERR_PEER);
    WT_CHECK(wt_names_rank(weft_error_detail(), 0));
    free(src);
    free(dst);
}

static void a_root_that_dies_before_it_is_read_is_told_of(void **state)
{
    wt_job job = {.ranks = 3,
                  .settings = "TIMEOUT=1800s SHM_CMA=1",
                  .body = death_body,
                  .doomed = 1};

    (void)state;
    wt_run_job(&job);
    job.ranks = 2;
    wt_run_job(&job);
}

/* Starts an operation, looks at it until all have come to it and then a while
 * longer, gives it up, and uses its buffer for something else. */
static weft_status give_up(weft_comm *comm, char *src, char *dst, size_t n,
                           unsigned round)
{
    weft_request *request = NULL;
    weft_status st;
    int done = 0;

    memset(src, 1, n * wt_ranks());
    WT_OK(round % 2 == 0
              ? weft_iscatter(comm, src, src, n, WEFT_U8, 0, &request)
              : weft_ialltoall(comm, src, dst, n, WEFT_U8, &request));
    wt_word_await(1, (round + 1) * (wt_ranks() - 1));
    for (unsigned i = 0; i < round * 16; i++) {
        WT_OK(weft_request_test(request, &done));
    }
    weft_comm_abort(comm, "enough");
    st = weft_request_wait(request, 0);
    memset(src, 2, n * wt_ranks());
    weft_request_release(request);
    return st;
}

/* Nobody takes what is in it then for its block. */
static void abort_round(weft_comm *all, char *src, char *dst, unsigned round)
{
    size_t n = wt_scaled(LARGE);
    weft_comm *comm = NULL;
    weft_status st;

    WT_OK(weft_comm_dup(all, &comm));
    if (wt_rank() == 0) {
        st = give_up(comm, src, dst, n, round);
    } else {
        wt_word_add(1, 1);
        st = round % 2 == 0 ? weft_scatter(comm, NULL, dst, n, WEFT_U8, 0)
                            : weft_alltoall(comm, src, dst, n, WEFT_U8);
        for (size_t i = 0; st == WEFT_OK && i < n; i++) {
            WT_CHECK(dst[i] == 1);
        }
    }
    WT_CHECK(st == WEFT_OK || st == WEFT_ERR_ABORTED);
    weft_comm_destroy(comm);
}

static void abort_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    char *src = malloc((size_t)wt_ranks() * LARGE);
    char *dst = malloc((size_t)wt_ranks() * LARGE);

    WT_CHECK(src != NULL && dst != NULL);
    memset(src, 3, (size_t)wt_ranks() * LARGE);
    for (unsigned round = 0; round < (wt_full() ? 400 : 40); round++) {
        abort_round(comm, src, dst, round);
        WT_OK(weft_barrier(comm));
    }
    free(src);
    free(dst);
}

static void nobody_takes_what_a_member_wrote_after_it_gave_up(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=1800s SHM_CMA=1", abort_body);
    wt_run_both(3, "TIMEOUT=1800s SHM_CMA=0", abort_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takers_that_read_get_their_blocks),
        cmocka_unit_test(takers_that_do_not_read_get_their_blocks),
        cmocka_unit_test(whoever_may_not_read_is_served_through_slots),
        cmocka_unit_test(whoever_comes_when_another_has_refused_gets_its_block),
        cmocka_unit_test(whoever_cannot_read_any_more_is_served_through_slots),
        cmocka_unit_test(what_is_read_follows_kind_size_and_setting),
        cmocka_unit_test(ranks_that_would_not_read_alike_are_told),
        cmocka_unit_test(a_root_that_dies_before_it_is_read_is_told_of),
        cmocka_unit_test(nobody_takes_what_a_member_wrote_after_it_gave_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
