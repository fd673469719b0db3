/* SPDX-License-Identifier: Apache-2.0 */
/* Counters that come round again: ids of communicators, numbers of collectives,
 * of shared buffers and of the board's alarm. Tests set them to shortly before
 * their end. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "coll/choose.h"
#include "coll/shm/area.h"
#include "comm/ids.h"
#include "wt.h"
#include "wt_cmocka.h"

enum { TAG = 3, MANY = 40 };

/* --- ids -------------------------------------------------------------------
 */

static void near_the_end(weft_world *world, uint32_t left)
{
    world->ids.next = wf_ids_limit(world->host->ranks) - left;
}

/* A message on each communicator gets there and nowhere else. */
static void check_apart(weft_world *world, weft_comm **all, int count)
{
    uint32_t n = wt_ranks();
    uint32_t to = (wt_rank() + 1) % n;
    uint32_t from = (wt_rank() + n - 1) % n;

    for (int i = 0; i < count; i++) {
        int sent = 100 * i + (int)wt_rank();

        WT_OK(weft_send(all[i], &sent, sizeof(sent), to, TAG));
    }
    for (int i = count - 1; i >= 0; i--) {
        int got = -1;
        int found = 0;

        WT_OK(weft_recv(all[i], &got, sizeof(got), from, TAG, NULL));
        WT_CHECK(got == 100 * i + (int)from);
        WT_OK(weft_iprobe(all[i], WEFT_ANY_SOURCE, WEFT_ANY_TAG, &found, NULL));
        WT_CHECK(found == 0);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
}

/* Some stay, the others go, over several turns of a few ids. */
static void ids_body(weft_world *world)
{
    weft_comm *all[MANY] = {weft_world_comm(world)};

    for (int turn = 0; turn < 3; turn++) {
        near_the_end(world, 3);
        for (int i = 1; i < MANY; i++) {
            bool stays = i % 3 == 0 && turn == 0;

            if (all[i] != NULL && all[i] != all[i / 3 * 3]) {
                weft_comm_destroy(all[i]);
            }
            if (stays || all[i] == NULL || i % 3 != 0) {
                WT_OK(weft_comm_dup(all[i / 2], &all[i]));
            }
            for (int k = 0; k < i; k++) {
                WT_CHECK(all[k]->id != all[i]->id);
            }
        }
        check_apart(world, all, MANY);
    }
    for (int i = 1; i < MANY; i++) {
        weft_comm_destroy(all[i]);
    }
}

static void no_two_communicators_have_one_id(void **s)
{
    (void)s;
    wt_run_both(1, "TIMEOUT=60s", ids_body);
    wt_run_both(3, "TIMEOUT=60s", ids_body);
    wt_run_both(2, "TIMEOUT=60s ENGINE=message", ids_body);
}

/* The leader has closed what the others still have: its id is not used again,
 * and messages on it do not get to others. */
static void left_open_body(weft_world *world)
{
    weft_comm *world_comm = weft_world_comm(world);
    weft_comm *old = NULL;
    weft_comm *next = NULL;
    int found = 0;
    int x = 5;

    WT_OK(weft_comm_dup(world_comm, &old)); /* number 1 of rank 0 */
    if (wt_rank() == 0) {
        weft_comm_destroy(old);
    } else {
        WT_OK(weft_send(old, &x, sizeof(x), 0, TAG));
    }
    WT_OK(weft_barrier(world_comm));
    near_the_end(world, 0);
    WT_OK(weft_comm_dup(world_comm, &next));
    if (wt_rank() != 0) {
        WT_CHECK(next->id != old->id && next->id != world_comm->id);
        WT_OK(weft_send(old, &x, sizeof(x), 0, TAG));
    }
    WT_OK(weft_barrier(world_comm));
    WT_OK(weft_iprobe(next, WEFT_ANY_SOURCE, WEFT_ANY_TAG, &found, NULL));
    WT_CHECK(found == 0);
    if (wt_rank() != 0) {
        weft_comm_destroy(old);
    }
    WT_OK(weft_barrier(world_comm));
    weft_comm_destroy(next);
    near_the_end(world, 0);
    WT_OK(weft_comm_dup(world_comm, &next)); /* now it can be */
    WT_OK(weft_barrier(next));
    WT_OK(weft_iprobe(next, WEFT_ANY_SOURCE, WEFT_ANY_TAG, &found, NULL));
    WT_CHECK(found == 0);
    weft_comm_destroy(next);
    wt_meet(); /* nobody leaves before all have looked */
}

static void an_id_that_one_rank_still_has_is_not_used_again(void **s)
{
    (void)s;
    wt_run_both(3, "TIMEOUT=60s", left_open_body);
    wt_run_both(2, "TIMEOUT=60s ENGINE=message", left_open_body);
}

/* --- messages that nobody receives ------------------------------------------
 */

static size_t kept_by(weft_world *world)
{
    size_t n = 0;

    pthread_mutex_lock(&world->drive);
    for (uint32_t i = 0; i < WF_WORLD_BUCKETS; i++) {
        n += world->open[i] != NULL;
    }
    pthread_mutex_unlock(&world->drive);
    return n;
}

static void unreceived_body(weft_world *world)
{
    enum { ROUNDS = 200, BYTES = 4000 };
    weft_comm *world_comm = weft_world_comm(world);
    uint32_t other = 1 - wt_rank();
    size_t before = 0;
    char x[BYTES] = {0};

    for (int i = 0; i < ROUNDS; i++) {
        weft_comm *comm = NULL;

        WT_OK(weft_comm_dup(world_comm, &comm));
        for (int k = 0; k < 5; k++) { /* one at least comes after the close */
            WT_OK(weft_send(comm, x, sizeof(x), other, TAG));
            WT_OK(weft_send(comm, x, sizeof(x), wt_rank(), TAG));
        }
        weft_comm_destroy(comm);
        WT_OK(weft_barrier(world_comm));
        if (i == ROUNDS / 4) {
            before = mallinfo2().uordblks;
        }
    }
    WT_CHECK(kept_by(world) == 1);
    if (mallinfo2().uordblks > before + 20 * BYTES && WT_SLOWDOWN == 1.0) {
        WT_FAIL("%zu bytes are kept", mallinfo2().uordblks - before);
    }
}

static void messages_of_closed_communicators_are_let_go(void **s)
{
    (void)s;
    wt_run(2, "TIMEOUT=60s", unreceived_body);
    wt_run(2, "TIMEOUT=60s ENGINE=message", unreceived_body);
}

/* --- numbers of collectives --------------------------------------------------
 */

static void set_sequence(weft_comm *comm, uint32_t to)
{
    WT_OK(weft_barrier(comm));
    wt_meet();
    comm->sequence = to;
    if (comm->done != NULL) {
        shm_state *s = wf_coll_meets(wf_coll_of(comm))->state;

        atomic_store(&comm->done[comm->rank].count, to);
        s->free_until = to + SHM_CELLS;
    }
    wt_meet();
}

static void sequence_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    int64_t n = wt_ranks();
    float *large = malloc(30000 * sizeof(*large));

    WT_CHECK(large != NULL);
    set_sequence(comm, UINT32_MAX - 11);
    for (int i = 0; i < 12; i++) {
        int64_t x = wt_rank() + i;
        weft_request *r[2];
        void *buffer = NULL;
        weft_comm *made = NULL;

        WT_OK(weft_allreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM));
        WT_CHECK(x == n * (n - 1) / 2 + n * i);
        x = 1;
        large[0] = large[29999] = (float)wt_rank();
        WT_OK(weft_iallreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM, &r[0]));
        WT_OK(weft_ibroadcast(comm, large, 30000, WEFT_F32, 0, &r[1]));
        for (int k = 0; k < 2; k++) {
            WT_OK(weft_request_wait(r[k], 0));
            weft_request_release(r[k]);
        }
        WT_CHECK(x == n && large[0] == 0 && large[29999] == 0);
        WT_OK(weft_alloc(comm, 3000 * sizeof(float), &buffer));
        memset(buffer, 0, 3000 * sizeof(float));
        WT_OK(weft_allreduce(comm, buffer, buffer, 3000, WEFT_F32, WEFT_SUM));
        WT_OK(weft_comm_split(comm, 0, 0, &made));
        WT_OK(weft_barrier(made));
        weft_comm_destroy(made);
        weft_free(comm, buffer);
    }
    free(large);
}

static void collectives_go_on_when_their_number_comes_round(void **s)
{
    (void)s;
    wt_run_both(3, "TIMEOUT=60s", sequence_body);
    wt_run_both(3, "TIMEOUT=60s ENGINE=message", sequence_body);
    wt_run_both(4, "TIMEOUT=60s CHUNK_BYTES=4K", sequence_body);
}

/* --- the alarm
 * ----------------------------------------------------------------- */

static void alarm_body(weft_world *world)
{
    weft_comm *comm = NULL;
    weft_request *r = NULL;
    float x = 1;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    wt_meet();
    if (wt_rank() == 0) {
        atomic_store(&world->host->board->alarm, UINT32_MAX - 1);
    }
    wt_meet();
    if (wt_rank() == 1) {
        weft_comm_destroy(comm); /* the alarm is UINT32_MAX then */
    }
    wt_meet();
    if (wt_rank() == 0) {
        WT_OK(weft_iallreduce(comm, &x, &x, 1, WEFT_F32, WEFT_SUM, &r));
        WT_STATUS(weft_request_wait(r, 0), WEFT_ERR_PEER);
        weft_request_release(r);
        weft_comm_destroy(comm);
    }
    wt_meet();
}

static void an_alarm_that_comes_round_is_heard(void **s)
{
    (void)s;
    wt_run_both(2, "TIMEOUT=10m", alarm_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_communicators_have_one_id),
        cmocka_unit_test(an_id_that_one_rank_still_has_is_not_used_again),
        cmocka_unit_test(messages_of_closed_communicators_are_let_go),
        cmocka_unit_test(collectives_go_on_when_their_number_comes_round),
        cmocka_unit_test(an_alarm_that_comes_round_is_heard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
