/* SPDX-License-Identifier: Apache-2.0 */
/* Groups that stand on their own: made out of a communicator whatever state it
 * is in, and without a mark on it. */
#include <dirent.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/time.h"
#include "comm/mail.h"
#include "wt.h"
#include "wt_cmocka.h"

static void expect_works(weft_comm *comm, int64_t size)
{
    int64_t x = 1;

    WT_OK(weft_allreduce(comm, &x, &x, 1, WEFT_I64, WEFT_SUM));
    WT_CHECK(x == size);
    WT_OK(weft_barrier(comm));
}

/* Rank 1 stands aside. */
static void members_body(weft_world *world)
{
    static const uint32_t members[] = {3, 0, 2};
    weft_comm *all = weft_world_comm(world);
    weft_comm *comm = NULL;

    if (weft_world_rank(world) != 1) {
        WT_OK(weft_comm_create_group(all, members, 3, 7, 12.5, &comm));
        WT_CHECK(weft_comm_world_rank(comm, 0) == 3);
        WT_CHECK(weft_comm_timeout(comm) == 12.5);
        expect_works(comm, 3);
        weft_comm_destroy(comm);
        WT_OK(weft_comm_create_group(all, members, 3, 7, 0, &comm));
        WT_CHECK(weft_comm_timeout(comm) == weft_comm_timeout(all));
        weft_comm_destroy(comm);
    }
    expect_works(all, 4);
}

static void its_members_alone_make_a_group_with_its_own_timeout(void **state)
{
    (void)state;
    wt_run_both(4, NULL, members_body);
    wt_run_nodes(2, 2, members_body);
}

/* --- states of the other communicator --------------------------------------
 */

static void broken_body(weft_world *world)
{
    static const uint32_t all[] = {0, 1, 2};
    weft_comm *group = NULL;
    weft_comm *other = NULL;
    weft_comm *dup = NULL;

    WT_OK(weft_comm_dup(weft_world_comm(world), &dup));
    if (weft_world_rank(world) == 0) { /* the others may not know yet */
        weft_comm_abort(dup, "the test");
    }
    WT_OK(weft_comm_create_group(dup, all, 3, 0, 0, &group));
    expect_works(group, 3);
    WT_STATUS(weft_comm_error(dup), WEFT_ERR_ABORTED);
    WT_OK(weft_comm_create_group(group, all, 3, 0, 0, &other));
    weft_comm_abort(group, "the test");
    expect_works(other, 3);
    expect_works(weft_world_comm(world), 3);
    weft_comm_destroy(group);
    weft_comm_destroy(other);
    weft_comm_destroy(dup);
}

static void a_broken_one_makes_groups_and_a_broken_group_breaks_none(void **s)
{
    (void)s;
    wt_run_both(3, NULL, broken_body);
}

/* Rank 2 does not come. */
static void missing_body(weft_world *world)
{
    static const uint32_t all[] = {0, 1, 2};
    weft_comm *comm = weft_world_comm(world);
    weft_comm *group = NULL;

    if (weft_world_rank(world) != 2) {
        WT_STATUS(weft_comm_create_group(comm, all, 3, 1, 0.05, &group),
                  WEFT_ERR_TIMEOUT);
        WT_CHECK(group == NULL);
    }
    expect_works(comm, 3);
    /* Late mail of tag 1 is not taken for that of tag 2. */
    WT_OK(weft_comm_create_group(comm, all, 3, 2, 0, &group));
    expect_works(group, 3);
    weft_comm_destroy(group);
}

static void a_member_that_does_not_come_leaves_the_other_one_whole(void **state)
{
    (void)state;
    wt_run_both(3, NULL, missing_body);
}

/* --- trying again ----------------------------------------------------------
 */

enum { TAG = 1 };

static weft_status try_tag(weft_world *world, double timeout, weft_comm **out)
{
    static const uint32_t all[] = {0, 1, 2};

    return weft_comm_create_group(weft_world_comm(world), all,
                                  weft_world_size(world), TAG, timeout, out);
}

/* The members of a broken communicator, all of whom stay. */
static weft_status try_shrink(weft_world *world, double timeout,
                              weft_comm **out)
{
    weft_comm *whole = weft_world_comm(world);

    weft_comm_set_timeout(whole, timeout);
    return weft_comm_shrink(whole, NULL, 0, out);
}

typedef weft_status attempt(weft_world *world, double timeout, weft_comm **out);

/* All come, whatever they have tried before. */
static void meet_at_last(weft_world *world, attempt *try)
{
    weft_comm *group = NULL;

    WT_OK(try(world, 0, &group));
    expect_works(group, weft_world_size(world));
    weft_comm_destroy(group);
}

/* Rank 1 answers the attempt of rank 0 when that is over, and is not there for
 * the next one, which must not take that answer for its own. */
static void come_late(weft_world *world, attempt *try)
{
    bool leads = weft_world_rank(world) == 0;
    weft_comm *group = NULL;

    if (leads) {
        WT_STATUS(try(world, 0.05, &group), WEFT_ERR_TIMEOUT);
    }
    wt_meet();
    if (!leads) {
        WT_STATUS(try(world, 0.05, &group), WEFT_ERR_TIMEOUT);
    }
    wt_meet();
    if (leads) {
        WT_STATUS(try(world, 0.05, &group), WEFT_ERR_TIMEOUT);
    }
    wt_meet();
    meet_at_last(world, try);
}

static void late_body(weft_world *world)
{
    come_late(world, try_tag);
    wt_meet();
    come_late(world, try_shrink);
}

static void a_late_answer_does_not_count_for_the_next_attempt(void **state)
{
    (void)state;
    wt_run_both(2, NULL, late_body);
    wt_run_nodes(2, 1, late_body);
}

enum { ATTEMPTS = 30 };

/* Each rank tries with timeouts of its own, so that the numbers of attempts
 * differ. What a few of them think they have made gives no wrong results. */
static void unsteady_body(weft_world *world)
{
    unsigned step = 1 + weft_world_rank(world);

    for (unsigned i = 0; i < ATTEMPTS; i++) {
        double timeout = 1e-3 * (double)(1 + i * step % 5);
        weft_comm *group = NULL;
        int64_t x = 1;

        if (try_tag(world, timeout, &group) != WEFT_OK) {
            continue;
        }
        if (weft_allreduce(group, &x, &x, 1, WEFT_I64, WEFT_SUM) == WEFT_OK) {
            WT_CHECK(x == weft_world_size(world));
        }
        weft_comm_destroy(group);
    }
    wt_meet();
    meet_at_last(world, try_tag);
}

static void members_that_try_unequally_often_meet_at_last(void **state)
{
    (void)state;
    wt_run_both(2, NULL, unsteady_body);
    wt_run_both(3, NULL, unsteady_body);
}

/* Words of the board. */
enum { COMING = 0, CALLED };

/* Let those who come first get into their calls. What is to be proved does not
 * depend on it, only that a mistake shows. */
static void let_them_call(uint32_t count)
{
    struct timespec t = {.tv_nsec = 50000000};

    wt_word_await(CALLED, count);
    nanosleep(&t, NULL);
}

/* Those of `present` try in vain; then all come, the last member first and the
 * leader last, and each call succeeds. `turn` counts these from 0. */
static void rounds(weft_world *world, attempt *try, unsigned members,
                   unsigned present, unsigned turn)
{
    unsigned number =
        weft_world_rank(world) > 0
            ? weft_world_rank(world) + members - weft_world_size(world)
            : 0;
    weft_comm *group = NULL;
    uint32_t before = turn * members + members - 1 - number;

    wt_meet();
    if ((present >> number & 1) != 0) {
        WT_STATUS(try(world, 0.05, &group), WEFT_ERR_TIMEOUT);
    }
    wt_meet();
    let_them_call(before);
    wt_word_add(CALLED, 1);
    WT_OK(try(world, 0, &group));
    expect_works(group, members);
    weft_comm_destroy(group);
}

static void rounds_body(weft_world *world)
{
    rounds(world, try_tag, 2, 1, 0);
    rounds(world, try_shrink, 2, 1, 1);
    rounds(world, try_shrink, 2, 1, 2);
}

static weft_status try_three(weft_world *world, double timeout, weft_comm **out)
{
    static const uint32_t three[] = {0, 2, 3};

    return weft_comm_create_group(weft_world_comm(world), three, 3, 1, timeout,
                                  out);
}

/* Rank 1 takes no part; 2 and 3 are on another node. */
static void node_rounds_body(weft_world *world)
{
    unsigned end = wt_full() ? 7 : 4; /* without the last member */

    for (unsigned present = 1, turn = 0; present < end; present++, turn++) {
        if (weft_world_rank(world) != 1) {
            rounds(world, try_three, 3, present, turn);
        } else {
            wt_meet();
            wt_meet();
        }
    }
}

static void all_who_come_again_meet_whoever_was_missing_before(void **state)
{
    (void)state;
    wt_run_both(2, NULL, rounds_body);
    wt_run_nodes(2, 1, rounds_body);
    wt_run_nodes(2, 2, node_rounds_body);
}

static void former_reason_body(weft_world *world)
{
    weft_comm *group = NULL;

    if (weft_world_rank(world) == 0) {
        WT_STATUS(try_tag(world, 0.05, &group), WEFT_ERR_TIMEOUT);
    }
    wt_meet();
    if (weft_world_rank(world) == 1) {
        WT_STATUS(try_tag(world, 0.3, &group), WEFT_ERR_TIMEOUT);
        WT_CHECK(wt_names_rank(weft_error_detail(), 0));
        WT_CHECK(strstr(weft_error_detail(), "gave up before") != NULL);
    }
    wt_meet();
}

static void who_comes_in_vain_is_told_that_the_others_gave_up(void **state)
{
    (void)state;
    wt_run_both(2, NULL, former_reason_body);
    wt_run_nodes(2, 1, former_reason_body);
}

/* --- what is left behind ---------------------------------------------------
 */

static unsigned open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    WT_CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

/* Rank 1 is not there. Once it has the answer of rank 0 it has all that was
 * sent before. */
static void absent_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_comm *group = NULL;
    unsigned before = open_descriptors();

    wt_meet();
    for (unsigned i = 0; weft_world_rank(world) == 0 && i < 50; i++) {
        WT_STATUS(try_tag(world, 0.001, &group), WEFT_ERR_TIMEOUT);
    }
    WT_OK(weft_comm_dup(comm, &group));
    WT_CHECK(open_descriptors() < before + 10);
    weft_comm_destroy(group);
    wt_meet();
    WT_OK(try_tag(world, 0, &group));
    expect_works(group, 2);
    weft_comm_destroy(group);
}

static void attempts_leave_one_descriptor_with_who_is_missing(void **state)
{
    (void)state;
    wt_run(2, NULL, absent_body);
}

/* --- what cannot be understood ---------------------------------------------
 */

static uint64_t key_of(const wf_mail_group *g, enum wf_mail_step step)
{
    return wf_mail_key(g->member, g->size, TAG, step);
}

/* Rank 0 sends `n` bytes in the place of a ticket. The answer is about the id
 * that they begin with. */
static void malformed(weft_world *world, size_t n)
{
    static const uint32_t all[] = {0, 1};
    const wf_mail_group group = {.world = world,
                                 .member = all,
                                 .size = 2,
                                 .deadline_ns = wf_now_ns() + 60 * WF_SEC};
    const uint32_t id = 4712;
    unsigned char bytes[WF_MAIL_MAX];
    weft_comm *made = NULL;
    weft_status theirs = WEFT_OK;

    if (weft_world_rank(world) == 1) {
        WT_STATUS(wf_comm_build(world, NULL, all, 2, TAG, 60 * WF_SEC, &made),
                  WEFT_ERR_PROTOCOL);
        return;
    }
    memset(bytes, 'x', sizeof(bytes));
    memset(bytes, 0, sizeof(int32_t));
    memcpy(bytes + sizeof(int32_t), &id, sizeof(id));
    WT_OK(
        wf_mail_post(&group, 1, key_of(&group, WF_MAIL_TICKET), bytes, n, -1));
    WT_OK(wf_mail_take_status(&group, 1, key_of(&group, WF_MAIL_REPLY), id,
                              &theirs));
    WT_STATUS(theirs, WEFT_ERR_PROTOCOL);
    WT_OK(wf_mail_post_status(&group, 1, key_of(&group, WF_MAIL_VERDICT), id,
                              theirs, "the test"));
}

static void malformed_body(weft_world *world)
{
    malformed(world, 64);
    malformed(world, WF_MAIL_MAX);
}

static void a_ticket_that_cannot_be_understood_is_answered(void **state)
{
    (void)state;
    wt_run_both(2, NULL, malformed_body);
}

/* --- threads ---------------------------------------------------------------
 */

enum { THREADS = 3, ROUNDS = 10 };

typedef struct maker {
    weft_comm *comm;
    unsigned rank;
    unsigned number;
} maker;

/* Thread 0 computes on the communicator out of which the others make groups. */
static void *maker_main(void *arg)
{
    static const uint32_t all[] = {0, 1, 2};
    const maker *m = arg;

    wt_speak_for(m->rank);
    for (unsigned i = 0; i < ROUNDS; i++) {
        weft_comm *group = NULL;

        if (m->number == 0) {
            expect_works(m->comm, 3);
            continue;
        }
        WT_OK(weft_comm_create_group(m->comm, all, 3, m->number, 0, &group));
        expect_works(group, 3);
        weft_comm_destroy(group);
    }
    return NULL;
}

static void threads_body(weft_world *world)
{
    pthread_t thread[THREADS];
    maker m[THREADS];

    for (unsigned i = 0; i < THREADS; i++) {
        m[i] = (maker){weft_world_comm(world), weft_world_rank(world), i};
        WT_CHECK(pthread_create(&thread[i], NULL, maker_main, &m[i]) == 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
    }
}

static void threads_make_groups_of_different_tags_while_one_computes(void **s)
{
    (void)s;
    wt_run_both(3, NULL, threads_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_members_alone_make_a_group_with_its_own_timeout),
        cmocka_unit_test(
            a_broken_one_makes_groups_and_a_broken_group_breaks_none),
        cmocka_unit_test(
            a_member_that_does_not_come_leaves_the_other_one_whole),
        cmocka_unit_test(a_late_answer_does_not_count_for_the_next_attempt),
        cmocka_unit_test(members_that_try_unequally_often_meet_at_last),
        cmocka_unit_test(all_who_come_again_meet_whoever_was_missing_before),
        cmocka_unit_test(who_comes_in_vain_is_told_that_the_others_gave_up),
        cmocka_unit_test(attempts_leave_one_descriptor_with_who_is_missing),
        cmocka_unit_test(a_ticket_that_cannot_be_understood_is_answered),
        cmocka_unit_test(
            threads_make_groups_of_different_tags_while_one_computes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
