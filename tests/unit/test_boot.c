/* SPDX-License-Identifier: Apache-2.0 */
/* What every bootstrap table promises, over a directory and on this host, with
 * ranks as processes and as threads. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <weft/boot.h>

#include "base/alloc.h"
#include "boot/boot.h"
#include "wt.h"
#include "wt_cmocka.h"

/* Longer than anything takes; a test never waits for it to pass. */
#define LONG_MS 60000u

/* The directory of the run; empty when the table is the one of the host. Set
 * before the ranks are forked. */
static char directory[64];

static weft_status table_open(unsigned round, weft_boot **out)
{
    char name[64];

    wt_job_name(round, name, sizeof(name));
    return directory[0] != '\0'
               ? weft_boot_open_dir(directory, name, wt_rank(), wt_ranks(), out)
               : weft_boot_open_local(name, wt_rank(), wt_ranks(), out);
}

static weft_boot *table(unsigned round)
{
    weft_boot *b = NULL;

    WT_OK(table_open(round, &b));
    WT_CHECK(b->size == sizeof(*b) && b->rank == wt_rank() &&
             b->ranks == wt_ranks());
    return b;
}

static void table_end(weft_boot *b)
{
    if (b->done != NULL) {
        b->done(b->ctx);
    }
    weft_boot_close(b);
}

static void set_text(weft_boot *b, const char *key, const char *text)
{
    WT_OK(b->set(b->ctx, key, text, strlen(text) + 1));
}

static void check_text(weft_boot *b, const char *key, const char *text)
{
    char got[64];
    size_t n = sizeof(got);

    WT_OK(b->get(b->ctx, key, got, &n, LONG_MS));
    WT_CHECK(n == strlen(text) + 1 && memcmp(got, text, n) == 0);
}

static void set_own(weft_boot *b)
{
    char key[32];

    snprintf(key, sizeof(key), "rank.%u", wt_rank());
    set_text(b, key, key);
}

static void check_all(weft_boot *b)
{
    for (unsigned i = 0; i < wt_ranks(); i++) {
        char key[32];

        snprintf(key, sizeof(key), "rank.%u", i);
        check_text(b, key, key);
    }
}

/* --- running one body over all tables ------------------------------------ */

static void count_entry(const char *name, void *ctx)
{
    fprintf(stderr, "left behind: %s\n", name);
    ++*(unsigned *)ctx;
}

static void list_directory(void (*fn)(const char *name, void *ctx), void *ctx)
{
    DIR *list = opendir(directory);
    const struct dirent *e;

    assert_non_null(list);
    while ((e = readdir(list)) != NULL) {
        if (e->d_name[0] != '.') {
            fn(e->d_name, ctx);
        }
    }
    closedir(list);
}

static void make_directory(void)
{
    snprintf(directory, sizeof(directory), "/tmp/weft-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
}

/* A job that has ended leaves an empty directory. */
static void remove_directory(void)
{
    unsigned left = 0;

    list_directory(count_entry, &left);
    assert_int_equal(left, 0);
    assert_int_equal(rmdir(directory), 0);
    directory[0] = '\0';
}

static void run_over_all(unsigned ranks, void (*body)(void))
{
    const wt_job job = {.ranks = ranks, .bare = body};

    directory[0] = '\0';
    wt_run_job_both(&job);
    make_directory();
    wt_run_job_both(&job);
    remove_directory();
}

/* --- the promises -------------------------------------------------------- */

static void exchange(void)
{
    weft_boot *b = table(0);

    set_own(b);
    check_all(b);
    table_end(b);
}

static void every_rank_gets_what_the_others_set(void **state)
{
    static const unsigned sizes[] = {1, 2, 5, 16};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        run_over_all(sizes[i], exchange);
    }
}

static void exchange_many_times(void)
{
    for (unsigned round = 0; round < 20; round++) {
        weft_boot *b = table(round);

        set_own(b);
        check_all(b);
        table_end(b);
    }
}

static void tables_of_one_job_follow_each_other(void **state)
{
    (void)state;
    run_over_all(3, exchange_many_times);
}

static void exchange_without_done(void)
{
    weft_boot *b = table(0);

    set_own(b);
    check_all(b);
    weft_boot_close(b);
}

static void close_alone_is_enough(void **state)
{
    (void)state;
    run_over_all(4, exchange_without_done);
}

static void get_before_set(void)
{
    weft_boot *b = table(0);

    if (wt_rank() == 0) {
        wt_word_await(0, wt_ranks() - 1);
        set_text(b, "late", "it came");
    } else {
        wt_word_add(0, 1);
    }
    check_text(b, "late", "it came");
    table_end(b);
}

static void get_waits_for_a_key_that_is_set_later(void **state)
{
    (void)state;
    run_over_all(4, get_before_set);
}

/* Nobody set the key, and the end of the table does not hide that. */
static void fail_and_leave(void)
{
    weft_boot *b = table(0);
    char text[8];
    char why[256];
    size_t n = sizeof(text);

    WT_STATUS(b->get(b->ctx, "never", text, &n, 1), WEFT_ERR_TIMEOUT);
    snprintf(why, sizeof(why), "%s", weft_error_detail());
    table_end(b);
    WT_CHECK(strcmp(weft_error_detail(), why) == 0);
}

static void the_end_of_a_table_keeps_the_reason_of_a_failure(void **state)
{
    (void)state;
    run_over_all(1, fail_and_leave);
    run_over_all(3, fail_and_leave);
}

/* The answer to the get that was given up must not be taken for that of the
 * next one. */
static void give_up_and_go_on(void)
{
    weft_boot *b = table(0);
    char text[64];
    size_t n = sizeof(text);

    if (wt_rank() == 1) {
        WT_STATUS(b->get(b->ctx, "late", text, &n, 1), WEFT_ERR_TIMEOUT);
        WT_CHECK(strstr(weft_error_detail(), "late") != NULL);
        WT_CHECK(n == sizeof(text));
    }
    wt_meet();
    if (wt_rank() == 0) {
        set_text(b, "late", "late");
    }
    wt_meet();
    set_own(b);
    check_all(b);
    check_text(b, "late", "late");
    table_end(b);
}

static void a_get_that_times_out_leaves_the_table_good(void **state)
{
    (void)state;
    run_over_all(3, give_up_and_go_on);
}

static void exchange_sizes(void)
{
    static const size_t sizes[] = {0, 1, 4097, WEFT_BOOT_VALUE_MAX};
    unsigned char *mine = malloc(WEFT_BOOT_VALUE_MAX);
    unsigned char *theirs = malloc(WEFT_BOOT_VALUE_MAX);
    weft_boot *b = table(0);
    char key[32];

    WT_CHECK(mine != NULL && theirs != NULL);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned from = (wt_rank() + 1) % wt_ranks();
        size_t n = WEFT_BOOT_VALUE_MAX;

        memset(mine, (int)(wt_rank() + 1), sizes[i]);
        snprintf(key, sizeof(key), "%zu.%u", i, wt_rank());
        WT_OK(b->set(b->ctx, key, sizes[i] > 0 ? mine : NULL, sizes[i]));
        snprintf(key, sizeof(key), "%zu.%u", i, from);
        WT_OK(b->get(b->ctx, key, theirs, &n, LONG_MS));
        WT_CHECK(n == sizes[i]);
        for (size_t k = 0; k < n; k++) {
            WT_CHECK(theirs[k] == from + 1);
        }
    }
    table_end(b);
    free(mine);
    free(theirs);
}

static void values_of_all_sizes_arrive_whole(void **state)
{
    (void)state;
    run_over_all(3, exchange_sizes);
}

static void get_into_too_little_room(void)
{
    weft_boot *b = table(0);
    char text[8];
    size_t n = 3;

    if (wt_rank() == 0) {
        set_text(b, "key", "seven c");
    }
    WT_STATUS(b->get(b->ctx, "key", text, &n, LONG_MS), WEFT_ERR_TRUNCATED);
    WT_CHECK(n == 3 && strstr(weft_error_detail(), "8 bytes") != NULL);
    n = 0;
    WT_STATUS(b->get(b->ctx, "key", NULL, &n, LONG_MS), WEFT_ERR_TRUNCATED);
    n = sizeof(text);
    WT_OK(b->get(b->ctx, "key", text, &n, LONG_MS));
    WT_CHECK(strcmp(text, "seven c") == 0);
    table_end(b);
}

static void
a_value_longer_than_the_room_is_told_and_can_be_had_again(void **state)
{
    (void)state;
    run_over_all(2, get_into_too_little_room);
}

static void use_badly(void)
{
    static const char *const keys[] = {"", "a\nb", "\x7f", "\xc3\xa4"};
    char longest[WF_BOOT_KEY_MAX + 2];
    weft_boot *b = table(0);
    char text[8];
    size_t n = sizeof(text);

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        WT_STATUS(b->set(b->ctx, keys[i], "x", 1), WEFT_ERR_INVALID);
        WT_STATUS(b->get(b->ctx, keys[i], text, &n, 0), WEFT_ERR_INVALID);
    }
    memset(longest, '/', sizeof(longest));
    longest[WF_BOOT_KEY_MAX + 1] = '\0';
    WT_STATUS(b->set(b->ctx, longest, "x", 1), WEFT_ERR_INVALID);
    WT_STATUS(b->set(b->ctx, NULL, "x", 1), WEFT_ERR_INVALID);
    WT_STATUS(b->set(b->ctx, "k", NULL, 1), WEFT_ERR_INVALID);
    WT_STATUS(b->set(b->ctx, "k", text, WEFT_BOOT_VALUE_MAX + 1u),
              WEFT_ERR_INVALID);
    WT_STATUS(b->get(b->ctx, "k", text, NULL, 0), WEFT_ERR_INVALID);
    WT_STATUS(b->get(b->ctx, "k", NULL, &n, 0), WEFT_ERR_INVALID);
    WT_CHECK(n == sizeof(text));
    set_own(b);
    check_all(b);
    table_end(b);
}

static void bad_arguments_are_refused_and_do_no_harm(void **state)
{
    (void)state;
    run_over_all(1, use_badly);
    run_over_all(2, use_badly);
}

/* Nothing in a key is special, and keys that look alike are not the same. */
static void exchange_odd_keys(void)
{
    static const char *const keys[] = {"a/b", "a_b", "a b",   "../x",
                                       ".",   "..",  "%2F",   "a%2Fb",
                                       "A",   "a",   "tmp-0", "done-1"};
    enum { KEYS = sizeof(keys) / sizeof(keys[0]) };
    char longest[2][WF_BOOT_KEY_MAX + 1] = {{0}};
    weft_boot *b = table(0);

    memset(longest[0], '/', WF_BOOT_KEY_MAX);
    memset(longest[1], '/', WF_BOOT_KEY_MAX);
    longest[1][WF_BOOT_KEY_MAX - 1] = 'x';
    if (wt_rank() == 0) {
        for (size_t i = 0; i < KEYS; i++) {
            set_text(b, keys[i], keys[i]);
        }
        set_text(b, longest[0], "long 0");
        set_text(b, longest[1], "long 1");
    }
    for (size_t i = 0; i < KEYS; i++) {
        check_text(b, keys[i], keys[i]);
    }
    check_text(b, longest[0], "long 0");
    check_text(b, longest[1], "long 1");
    table_end(b);
}

static void keys_of_any_printable_characters_stay_apart(void **state)
{
    (void)state;
    run_over_all(2, exchange_odd_keys);
}

static void set_twice(void)
{
    weft_boot *b = table(0);

    set_own(b);
    check_all(b);
    wt_meet();
    WT_STATUS(b->set(b->ctx, "rank.0", "again", 5), WEFT_ERR_INVALID);
    WT_CHECK(strstr(weft_error_detail(), "rank.0") != NULL);
    check_all(b);
    table_end(b);
}

static void a_key_can_be_set_only_once(void **state)
{
    (void)state;
    run_over_all(1, set_twice);
    run_over_all(3, set_twice);
}

/* The others have set their values before rank 0 opens the table. */
static void rank_0_last(void)
{
    weft_boot *b;

    if (wt_rank() == 0) {
        wt_word_await(0, wt_ranks() - 1);
    }
    b = table(0);
    set_own(b);
    wt_word_add(0, 1);
    check_all(b);
    table_end(b);
}

static void rank_0_may_come_last(void **state)
{
    (void)state;
    run_over_all(5, rank_0_last);
}

/* All but rank 0 end their table without ever having waited for anything. */
static void set_and_leave(void)
{
    weft_boot *b;

    if (wt_rank() == 0) {
        wt_word_await(0, wt_ranks() - 1);
    }
    b = table(0);
    set_own(b);
    wt_word_add(0, 1);
    if (wt_rank() == 0) {
        check_all(b);
    }
    table_end(b);
}

static void what_a_rank_set_can_be_had_after_it_left(void **state)
{
    (void)state;
    run_over_all(5, set_and_leave);
}

static void rank_0_leaves_at_once(void)
{
    weft_boot *b = table(0);

    if (wt_rank() == 0) {
        set_own(b);
    } else {
        check_text(b, "rank.0", "rank.0");
    }
    table_end(b);
}

static void what_rank_0_set_can_be_had_by_those_who_come_later(void **state)
{
    (void)state;
    run_over_all(5, rank_0_leaves_at_once);
}

static void on_alarm(int signal)
{
    (void)signal;
    wt_word_add(0, 1);
}

/* Rank 1 waits until its get has been interrupted at least three times. */
static void wait_under_signals(void)
{
    const struct sigaction act = {.sa_handler = on_alarm};
    const struct itimerval often = {{0, 1000}, {0, 1000}};
    const struct itimerval never = {{0, 0}, {0, 0}};
    weft_boot *b = table(0);

    if (wt_rank() == 1) {
        WT_CHECK(sigaction(SIGALRM, &act, NULL) == 0);
        WT_CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    } else {
        wt_word_await(0, 3);
        set_text(b, "late", "it came");
    }
    check_text(b, "late", "it came");
    WT_CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    table_end(b);
}

static void signals_do_not_disturb_a_wait(void **state)
{
    const wt_job job = {.ranks = 2, .bare = wait_under_signals};

    (void)state;
    directory[0] = '\0';
    if (!WT_TSAN) {
        wt_run_job(&job);
        make_directory();
        wt_run_job(&job);
        remove_directory();
    }
}

/* Fail the 1st, 2nd, 3rd... allocation of this thread in turn. */
static void open_with_failing_allocations(uint32_t rank)
{
    weft_status st;
    unsigned nth = 0;

    do {
        weft_boot *b = NULL;
        char name[64];

        wt_job_name(nth, name, sizeof(name));
        wf_alloc_fail_nth(++nth);
        st = directory[0] != '\0'
                 ? weft_boot_open_dir(directory, name, 0, 1, &b)
                 : weft_boot_open_local(name, rank, 2, &b);
        WT_CHECK(st == WEFT_OK || (st == WEFT_ERR_NOMEM && b == NULL));
        wf_alloc_fail_nth(0);
        weft_boot_close(b);
    } while (st != WEFT_OK);
    WT_CHECK(nth > 1);
}

static void open_both_ranks_with_failing_allocations(void)
{
    open_with_failing_allocations(0);
    open_with_failing_allocations(1);
}

static void open_survives_any_failed_allocation(void **state)
{
    (void)state;
    run_over_all(1, open_both_ranks_with_failing_allocations);
}

static void use_with_failing_allocations(void)
{
    weft_boot *b = table(0);
    unsigned nth = 0;
    weft_status st;

    if (wt_rank() == 0) {
        do {
            wf_alloc_fail_nth(++nth);
            st = b->set(b->ctx, "rank.0", "rank.0", 7);
            WT_CHECK(st == WEFT_OK || st == WEFT_ERR_NOMEM);
            wf_alloc_fail_nth(0);
        } while (st != WEFT_OK);
    }
    check_text(b, "rank.0", "rank.0");
    table_end(b);
}

static void a_set_that_finds_no_memory_can_be_tried_again(void **state)
{
    (void)state;
    run_over_all(1, use_with_failing_allocations);
    run_over_all(2, use_with_failing_allocations);
}

/* --- opening ------------------------------------------------------------- */

static void a_place_that_cannot_be_is_refused(void **state)
{
    weft_boot *b = NULL;

    (void)state;
    assert_int_equal(weft_boot_open_local("x", 2, 2, &b), WEFT_ERR_INVALID);
    assert_int_equal(weft_boot_open_local("x", 0, 0, &b), WEFT_ERR_INVALID);
    assert_int_equal(weft_boot_open_local("x", 0, UINT32_MAX, &b),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_boot_open_local("x", 0, 1, NULL), WEFT_ERR_INVALID);
    assert_int_equal(weft_boot_open_local("", 0, 2, &b), WEFT_ERR_INVALID);
    assert_int_equal(weft_boot_open_local(NULL, 0, 2, &b), WEFT_ERR_INVALID);
    assert_int_equal(weft_boot_open_dir("/tmp", "x", 2, 2, &b),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_boot_open_dir("/tmp", "", 0, 1, &b),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_boot_open_dir(NULL, "x", 0, 1, &b), WEFT_ERR_INVALID);
    assert_int_equal(weft_boot_open_dir("/tmp", "x", 0, 1, NULL),
                     WEFT_ERR_INVALID);
    assert_null(b);
    weft_boot_close(NULL);
}

static void a_directory_that_is_not_there_is_named(void **state)
{
    weft_boot *b = NULL;

    (void)state;
    assert_int_equal(weft_boot_open_dir("/no/such/place", "x", 0, 1, &b),
                     WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_detail(), "/no/such/place"));
    assert_int_equal(weft_boot_open_dir("/dev/null", "x", 0, 1, &b),
                     WEFT_ERR_SYSTEM);
    assert_null(b);
}

/* Somebody else made the directory of our job before us. */
static void a_job_directory_that_others_can_write_is_refused(void **state)
{
    char path[128];
    weft_boot *b = NULL;

    (void)state;
    make_directory();
    snprintf(path, sizeof(path), "%s/weft-job", directory);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0777), 0);
    assert_int_equal(weft_boot_open_dir(directory, "job", 0, 1, &b),
                     WEFT_ERR_DENIED);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_int_equal(weft_boot_open_dir(directory, "job", 0, 1, &b),
                     WEFT_ERR_SYSTEM);
    assert_int_equal(unlink(path), 0);
    assert_null(b);
    remove_directory();
}

static void jobs_in_one_directory_do_not_meet(void **state)
{
    weft_boot *a = NULL;
    weft_boot *b = NULL;
    char text[8];
    size_t n = sizeof(text);

    (void)state;
    make_directory();
    assert_int_equal(weft_boot_open_dir(directory, "a", 0, 1, &a), WEFT_OK);
    assert_int_equal(weft_boot_open_dir(directory, "b", 0, 1, &b), WEFT_OK);
    assert_int_equal(a->set(a->ctx, "key", "a", 2), WEFT_OK);
    assert_int_equal(b->get(b->ctx, "key", text, &n, 0), WEFT_ERR_TIMEOUT);
    assert_int_equal(b->set(b->ctx, "key", "b", 2), WEFT_OK);
    weft_boot_close(b);
    assert_int_equal(a->get(a->ctx, "key", text, &n, 0), WEFT_OK);
    assert_string_equal(text, "a");
    weft_boot_close(a);
    remove_directory();
}

static void what_an_earlier_job_left_is_told_of(void **state)
{
    weft_boot *dead = NULL;
    weft_boot *b = NULL;

    (void)state;
    make_directory();
    /* Rank 1 of the first job never comes, so its values stay. */
    assert_int_equal(weft_boot_open_dir(directory, "job", 0, 2, &dead),
                     WEFT_OK);
    assert_int_equal(dead->set(dead->ctx, "key", "old", 4), WEFT_OK);
    weft_boot_close(dead);
    assert_int_equal(weft_boot_open_dir(directory, "job", 0, 1, &b), WEFT_OK);
    assert_int_equal(b->set(b->ctx, "key", "new", 4), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), directory));
    /* This one is the last of its job, so it clears up. */
    weft_boot_close(b);
    remove_directory();
}

static void a_boot_function_can_say_why_it_fails(void **state)
{
    (void)state;
    assert_int_equal(weft_boot_fail(WEFT_ERR_PEER, "100% of it"),
                     WEFT_ERR_PEER);
    assert_string_equal(weft_error_detail(), "100% of it");
    assert_int_equal(weft_boot_fail(WEFT_ERR_PEER, NULL), WEFT_ERR_PEER);
}

static void the_owner_of_a_key_is_the_number_behind_its_last_slash(void **state)
{
    (void)state;
    assert_int_equal(wf_boot_key_owner("weft/rank/7"), 7);
    assert_int_equal(wf_boot_key_owner("weft/rank/1048575.12"), 1048575);
    assert_int_equal(wf_boot_key_owner("weft/table"), 0);
    assert_int_equal(wf_boot_key_owner("weft/table.1"), 0);
    assert_int_equal(wf_boot_key_owner("table"), 0);
    assert_int_equal(wf_boot_key_owner("weft/"), 0);
    assert_int_equal(wf_boot_key_owner("weft/7x"), 0);
    assert_int_equal(wf_boot_key_owner("weft/-7"), 0);
    assert_int_equal(wf_boot_key_owner("weft/99999999999999999999999"), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            the_owner_of_a_key_is_the_number_behind_its_last_slash),
        cmocka_unit_test(every_rank_gets_what_the_others_set),
        cmocka_unit_test(tables_of_one_job_follow_each_other),
        cmocka_unit_test(close_alone_is_enough),
        cmocka_unit_test(get_waits_for_a_key_that_is_set_later),
        cmocka_unit_test(a_get_that_times_out_leaves_the_table_good),
        cmocka_unit_test(the_end_of_a_table_keeps_the_reason_of_a_failure),
        cmocka_unit_test(values_of_all_sizes_arrive_whole),
        cmocka_unit_test(
            a_value_longer_than_the_room_is_told_and_can_be_had_again),
        cmocka_unit_test(bad_arguments_are_refused_and_do_no_harm),
        cmocka_unit_test(keys_of_any_printable_characters_stay_apart),
        cmocka_unit_test(a_key_can_be_set_only_once),
        cmocka_unit_test(rank_0_may_come_last),
        cmocka_unit_test(what_a_rank_set_can_be_had_after_it_left),
        cmocka_unit_test(what_rank_0_set_can_be_had_by_those_who_come_later),
        cmocka_unit_test(signals_do_not_disturb_a_wait),
        cmocka_unit_test(open_survives_any_failed_allocation),
        cmocka_unit_test(a_set_that_finds_no_memory_can_be_tried_again),
        cmocka_unit_test(a_place_that_cannot_be_is_refused),
        cmocka_unit_test(a_directory_that_is_not_there_is_named),
        cmocka_unit_test(a_job_directory_that_others_can_write_is_refused),
        cmocka_unit_test(jobs_in_one_directory_do_not_meet),
        cmocka_unit_test(what_an_earlier_job_left_is_told_of),
        cmocka_unit_test(a_boot_function_can_say_why_it_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
