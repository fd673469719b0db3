/* SPDX-License-Identifier: Apache-2.0 */
/* Slots that are lent (rule C4 of src/coll/shm/area.h): whoever has brought its
 * data is through before all have taken it, the next operation waits for those
 * that still take it, and none of them gets anything else.
 *
 * Rank HELD begins the first operation and is kept from moving on: nobody may
 * drive its world. */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"

#define HELD 1u
#define WATCHER 0u /* of the others, the one that tells HELD to go on */

enum { BEGUN, GO, THROUGH }; /* words */

/* Small enough for one chunk each, and for two. */
static const size_t sizes[] = {10000, 30000};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* What lends, and what needs slots after it. In alltoallv HELD would not have
 * brought anything before all calls had come. */
static const wt_coll_kind lenders[] = {
    WT_BROADCAST, WT_SCATTER,  WT_GATHER,  WT_ALLGATHER,
    WT_ALLTOALL,  WT_SCATTERV, WT_GATHERV, WT_REDUCE_SCATTER};
#define LENDERS (sizeof(lenders) / sizeof(lenders[0]))

static const wt_coll_kind borrowers[] = {
    WT_BROADCAST, WT_SCATTER,   WT_GATHER, WT_ALLGATHER,      WT_ALLTOALL,
    WT_SCATTERV,  WT_ALLREDUCE, WT_REDUCE, WT_REDUCE_SCATTER, WT_SCAN};
#define BORROWERS (sizeof(borrowers) / sizeof(borrowers[0]))

/* Elements of a block: all of its data that is in a slot makes one chunk, or
 * two where HELD does not bring the second. */
static size_t block_of(wt_coll_kind kind, unsigned size)
{
    switch (kind) {
    case WT_BROADCAST:
    case WT_GATHER:
    case WT_GATHERV:
        return sizes[size];
    case WT_SCATTER:
    case WT_SCATTERV:
        return sizes[size] / (wt_ranks() - 1);
    default:
        return sizes[0] / wt_ranks() + 2100;
    }
}

/* HELD takes in it, and brings a first chunk at most. */
static wt_coll first_call(wt_coll_kind kind, unsigned size, uint64_t seed)
{
    bool gathers = kind == WT_GATHER || kind == WT_GATHERV;

    return (wt_coll){.kind = kind,
                     .type = WEFT_U8,
                     .op = WEFT_MAX,
                     .root = gathers ? HELD : WATCHER,
                     .n = block_of(kind, size),
                     .lengths = WT_EVEN,
                     .seed = seed};
}

/* The others bring something in it, as far as they can. */
static wt_coll second_call(wt_coll_kind kind, unsigned size, uint64_t seed)
{
    wt_coll c = first_call(kind, 0, seed + 1);

    c.n = sizes[size];
    return c;
}

/* Post the call of the first operation, and let nobody drive this world. */
static weft_request *begin_held(weft_world *world, wt_call *call)
{
    weft_request *request = NULL;
    int done = 0;

    WT_OK(wt_call_start(call, &request));
    WT_OK(weft_request_test(request, &done));
    WT_CHECK(!done);
    pthread_mutex_lock(&world->drive);
    return request;
}

static void end_held(wt_call *call, weft_request *request)
{
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
    wt_call_check(call);
}

/* The first operation, which HELD has begun and the others have finished. */
static weft_request *lend_to_held(weft_world *world, wt_call *call)
{
    weft_request *request = NULL;

    if (wt_rank() == HELD) {
        request = begin_held(world, call);
        wt_word_add(BEGUN, 1);
    } else {
        wt_word_await(BEGUN, atomic_load(wt_word(THROUGH)) + 1);
        WT_OK(wt_call_run(call));
        wt_call_check(call);
    }
    wt_meet();
    return request;
}

/* Drive the second operation until it has done all that it may: it is not over,
 * for HELD has not come to it. */
static void run_second(wt_call *call)
{
    weft_request *request = NULL;
    int done = 0;

    WT_OK(wt_call_start(call, &request));
    for (unsigned i = 0; i < 200; i++) {
        WT_OK(weft_request_test(request, &done));
        WT_CHECK(!done);
    }
    wt_word_add(GO, 1);
    WT_OK(weft_request_wait(request, 0));
    weft_request_release(request);
}

/* The others wait in it when HELD goes on, or have it behind a request. */
static void await_others(const weft_comm *comm, uint32_t turn, bool blocking)
{
    const wf_board_rank *other = comm->entry[WATCHER];

    if (!blocking) {
        wt_word_await(GO, (turn + 1) * (wt_ranks() - 1));
        return;
    }
    while (atomic_load(&other->waiting) == 0) {
        sched_yield();
    }
}

static void run_two(weft_world *world, uint32_t turn, const wt_coll *first,
                    const wt_coll *second, bool blocking)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *request;
    wt_call call[2];

    wt_call_init(&call[0], comm, first, NULL);
    wt_call_init(&call[1], comm, second, NULL);
    request = lend_to_held(world, &call[0]);
    if (request != NULL) {
        await_others(comm, turn, blocking);
        pthread_mutex_unlock(&world->drive);
        end_held(&call[0], request);
    }
    if (request != NULL || blocking) {
        WT_OK(wt_call_run(&call[1]));
    } else {
        run_second(&call[1]);
    }
    wt_call_check(&call[1]);
    wt_call_fini(&call[1]);
    wt_call_fini(&call[0]);
    wt_meet();
    if (wt_rank() == WATCHER) {
        wt_word_set(THROUGH, turn + 1);
        if (blocking) {
            wt_word_add(GO, wt_ranks() - 1);
        }
    }
    wt_meet();
}

static void ahead_body(weft_world *world)
{
    uint32_t turn = 0;

    for (unsigned i = 0; i < LENDERS * BORROWERS * SIZES;
         i += wt_full() ? 1 : 3) {
        wt_coll first = first_call(lenders[i % LENDERS], i / 7 % SIZES, i);
        wt_coll second = second_call(borrowers[i / LENDERS % BORROWERS],
                                     i / (LENDERS * BORROWERS), i);

        run_two(world, turn++, &first, &second, i / 3 % 2 != 0);
    }
}

static void a_rank_ahead_by_a_call_overwrites_nothing(void **state)
{
    static const unsigned ranks[] = {2, 3, 5, 8};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        wt_run_both(ranks[i], "TIMEOUT=600s SHM_CMA=0", ahead_body);
    }
}

/* Of one slot, of both, and of several times both; each root, nobody held. */
static void row_body(weft_world *world)
{
    static const size_t bytes[] = {3000, 10000, 30000, 100000};
    weft_comm *comm = weft_world_comm(world);

    for (unsigned i = 0; i < (wt_full() ? 1000 : 150); i++) {
        wt_coll what = first_call(i % 3 == 0 ? lenders[i / 3 % LENDERS]
                                             : borrowers[i % BORROWERS],
                                  0, i);

        what.root = i / 2 % wt_ranks();
        what.n = wt_scaled(bytes[i / 5 % 4]);
        wt_coll_carry_out(comm, &what, NULL, i % 7 != 0);
    }
}

static void calls_in_a_row_give_what_they_should(void **state)
{
    static const unsigned ranks[] = {2, 3, 5, 8};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        wt_run_both(ranks[i],
                    i % 2 == 0 ? "TIMEOUT=600s"
                               : "TIMEOUT=600s SHM_CMA=0 CHUNK_BYTES=16K",
                    row_body);
    }
}

/* --- a call that has come early ----------------------------------------------
 */

/* HELD has called gatherv behind the first operation. That may be over on those
 * who bring, while HELD still takes what the first one lent. */
static void begin_two(weft_world *world, wt_call *call, weft_request **request)
{
    WT_OK(wt_call_start(&call[0], &request[0]));
    WT_OK(wt_call_start(&call[1], &request[1]));
    pthread_mutex_lock(&world->drive);
    wt_word_add(BEGUN, 1);
    wt_meet();
}

static void end_two(weft_world *world, wt_call *call, weft_request **request)
{
    pthread_mutex_unlock(&world->drive);
    end_held(&call[0], request[0]);
    end_held(&call[1], request[1]);
}

static void run_three(weft_world *world, const wt_coll *what)
{
    weft_request *request[2];
    wt_call call[3];

    for (unsigned i = 0; i < 3; i++) {
        wt_call_init(&call[i], weft_world_comm(world), &what[i], NULL);
    }
    if (wt_rank() == HELD) {
        begin_two(world, call, request);
        wt_word_await(GO, atomic_load(wt_word(BEGUN)) * (wt_ranks() - 1));
        end_two(world, call, request);
        WT_OK(wt_call_run(&call[2]));
    } else {
        (void)lend_to_held(world, &call[0]);
        WT_OK(wt_call_start(&call[1], &request[1]));
        run_second(&call[2]);
        end_held(&call[1], request[1]);
    }
    wt_call_check(&call[2]);
    for (unsigned i = 0; i < 3; i++) {
        wt_call_fini(&call[i]);
    }
    wt_meet();
}

static void early_body(weft_world *world)
{
    for (unsigned i = 0; i < LENDERS * SIZES; i++) {
        wt_coll what[3] = {first_call(lenders[i % LENDERS], i / LENDERS, i),
                           second_call(WT_GATHERV, 0, i),
                           second_call(WT_BROADCAST, i / LENDERS, i + 1)};

        what[1].root = wt_ranks() - 1;
        run_three(world, what);
        if (wt_rank() == WATCHER) {
            wt_word_set(THROUGH, i + 1);
        }
        wt_meet();
    }
}

static void what_was_lent_outlives_a_call_that_came_early(void **state)
{
    static const unsigned ranks[] = {2, 3, 5};

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        wt_run_both(ranks[i], "TIMEOUT=600s SHM_CMA=0", early_body);
    }
}

/* --- what may happen while slots are lent -----------------------------------
 */

/* Operation i of those that lend, which HELD has begun and the others have
 * finished, on a communicator of its own. */
typedef struct lent {
    weft_comm *comm;
    wt_call call;
    weft_request *request; /* HELD's */
} lent;

static void lent_init(lent *l, weft_world *world, unsigned i)
{
    wt_coll what = first_call(lenders[i % LENDERS], i % SIZES, i);

    WT_OK(weft_comm_dup(weft_world_comm(world), &l->comm));
    wt_call_init(&l->call, l->comm, &what, NULL);
    l->request = lend_to_held(world, &l->call);
}

static weft_status next_call(lent *l)
{
    wt_coll what = second_call(WT_ALLGATHER, 1, 99);
    weft_status st;
    wt_call call;

    wt_call_init(&call, l->comm, &what, NULL);
    st = wt_call_run(&call);
    wt_call_fini(&call);
    return st;
}

static void go_on(lent *l, weft_world *world)
{
    pthread_mutex_unlock(&world->drive);
    end_held(&l->call, l->request);
}

static unsigned chosen; /* which operation lends; set before the ranks run */

static void death_body(weft_world *world)
{
    lent l;

    lent_init(&l, world, chosen);
    if (wt_rank() == HELD) {
        kill(getpid(), SIGKILL);
    }
    WT_STATUS(next_call(&l), WEFT_ERR_PEER);
    WT_CHECK(wt_names_rank(weft_error_detail(), HELD));
    weft_comm_destroy(l.comm);
    wt_call_fini(&l.call);
}

static void the_next_call_tells_of_a_taker_that_died(void **state)
{
    (void)state;
    for (chosen = 0; chosen < LENDERS; chosen++) {
        wt_run_job(&(wt_job){.ranks = 2 + (chosen + 1) % 3,
                             .settings = "TIMEOUT=600s SHM_CMA=0",
                             .body = death_body,
                             .doomed = 1u << HELD});
    }
}

/* All but HELD have brought what they have to the next operation, so that
 * WATCHER waits for HELD alone. */
static void await_all_but_held(const weft_comm *comm)
{
    for (uint32_t r = 0; r < wt_ranks(); r++) {
        while (r != WATCHER && r != HELD &&
               atomic_load(&comm->entry[r]->waiting) == 0) {
            sched_yield();
        }
    }
}

/* WATCHER alone gives up soon, and knows whom it has waited for. */
static void late_body(weft_world *world)
{
    for (unsigned i = 0; i < LENDERS; i++) {
        lent l;

        lent_init(&l, world, i);
        if (wt_rank() == WATCHER) {
            await_all_but_held(l.comm);
            weft_comm_set_timeout(l.comm, 0.2);
            WT_STATUS(next_call(&l), WEFT_ERR_TIMEOUT);
            WT_CHECK(wt_names_rank(weft_error_detail(), HELD));
            WT_CHECK(!wt_names_rank(weft_error_detail(), 2));
        } else if (wt_rank() != HELD) {
            WT_STATUS(next_call(&l), WEFT_ERR_TIMEOUT);
        }
        wt_meet();
        if (wt_rank() == HELD) {
            pthread_mutex_unlock(&world->drive);
            (void)weft_request_wait(l.request, 0);
            weft_request_release(l.request);
        }
        weft_comm_destroy(l.comm);
        wt_call_fini(&l.call);
        if (wt_rank() == WATCHER) {
            wt_word_set(THROUGH, i + 1);
        }
        wt_meet();
    }
}

static void a_taker_that_is_late_is_named(void **state)
{
    (void)state;
    wt_run_both(3, "TIMEOUT=600s SHM_CMA=0", late_body);
}

/* HELD's call came early, so that nobody waits for that. */
static void late_early_body(weft_world *world)
{
    wt_coll what[2] = {first_call(WT_ALLGATHER, 0, 1),
                       second_call(WT_GATHERV, 0, 1)};
    weft_comm *comm = weft_world_comm(world);
    weft_request *request[2];
    wt_call call[2];

    what[1].root = 3; /* which is in the name of the call */
    wt_call_init(&call[0], comm, &what[0], NULL);
    wt_call_init(&call[1], comm, &what[1], NULL);
    if (wt_rank() == HELD) {
        begin_two(world, call, request);
        wt_word_await(GO, 1);
        pthread_mutex_unlock(&world->drive);
        for (unsigned i = 0; i < 2; i++) {
            (void)weft_request_wait(request[i], 0);
            weft_request_release(request[i]);
        }
    } else {
        (void)lend_to_held(world, &call[0]);
        if (wt_rank() == WATCHER) {
            await_all_but_held(comm);
            weft_comm_set_timeout(comm, 0.2);
        }
        WT_STATUS(wt_call_run(&call[1]), WEFT_ERR_TIMEOUT);
        WT_CHECK(wt_names_rank(weft_error_detail(), HELD));
        WT_CHECK(!wt_names_rank(weft_error_detail(), 2));
        wt_word_set(GO, 1);
    }
    wt_call_fini(&call[1]);
    wt_call_fini(&call[0]);
}

static void a_taker_that_is_late_is_named_though_its_call_came_early(void **s)
{
    (void)s;
    wt_run_both(4, "TIMEOUT=600s SHM_CMA=0", late_early_body);
}

/* The others close the communicator, and then leave the job. */
static void leave_body(weft_world *world)
{
    lent l;

    lent_init(&l, world, chosen);
    if (wt_rank() != HELD) {
        weft_comm_destroy(l.comm);
    }
    wt_meet();
    if (wt_rank() == HELD) {
        go_on(&l, world);
        WT_STATUS(next_call(&l), WEFT_ERR_PEER);
        weft_comm_destroy(l.comm);
    }
    wt_call_fini(&l.call);
}

static void what_was_lent_outlives_the_lenders_communicator(void **state)
{
    (void)state;
    for (chosen = 0; chosen < LENDERS; chosen++) {
        wt_run_both(2 + (chosen + 1) % 3, "TIMEOUT=600s SHM_CMA=0", leave_body);
    }
}

static void killed_body(weft_world *world)
{
    lent l;

    lent_init(&l, world, chosen);
    if (wt_rank() != HELD) {
        kill(getpid(), SIGKILL);
    }
    for (unsigned r = 0; r < wt_ranks(); r++) {
        if (r != HELD) {
            wt_await_gone(r);
        }
    }
    go_on(&l, world);
    WT_STATUS(next_call(&l), WEFT_ERR_PEER);
    weft_comm_destroy(l.comm);
    wt_call_fini(&l.call);
}

static void what_was_lent_outlives_the_lender(void **state)
{
    (void)state;
    for (chosen = 0; chosen < LENDERS; chosen++) {
        unsigned ranks = 2 + (chosen + 1) % 3;

        wt_run_job(&(wt_job){.ranks = ranks,
                             .settings = "TIMEOUT=600s SHM_CMA=0",
                             .body = killed_body,
                             .doomed = ((1u << ranks) - 1) & ~(1u << HELD)});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_ahead_by_a_call_overwrites_nothing),
        cmocka_unit_test(calls_in_a_row_give_what_they_should),
        cmocka_unit_test(what_was_lent_outlives_a_call_that_came_early),
        cmocka_unit_test(the_next_call_tells_of_a_taker_that_died),
        cmocka_unit_test(a_taker_that_is_late_is_named),
        cmocka_unit_test(
            a_taker_that_is_late_is_named_though_its_call_came_early),
        cmocka_unit_test(what_was_lent_outlives_the_lenders_communicator),
        cmocka_unit_test(what_was_lent_outlives_the_lender),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
