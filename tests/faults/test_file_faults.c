/* SPDX-License-Identifier: Apache-2.0 */
/* Saving where it cannot end well: no room, no permission, no memory, a rank
 * that is killed. The old file stays, nothing is left of the new one, and all
 * ranks that live are told. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "wt_cmocka.h"
#include "wt_deny.h"
#include "wt_fault.h"
#include "wt_file.h"

enum { ROWS = 40001, COLUMNS = 12 }; /* not quite two blocks */

static void expect(weft_status got, weft_status want, const char *text)
{
    if (got != want || strstr(weft_error_detail(), text) == NULL) {
        WT_FAIL("%s, \"%s\" instead of %s about \"%s\"", weft_status_name(got),
                weft_error_detail(), weft_status_name(want), text);
    }
}

static weft_region *make(weft_comm *comm, uint64_t rows)
{
    uint64_t shape[] = {rows, COLUMNS};
    weft_region *region = NULL;

    WT_OK(weft_region_create(comm, 2, shape, WEFT_F32, NULL, &region));
    return region;
}

/* A file with rows of seed 1 at `path`. */
static void save_old(weft_region *region, weft_comm *comm, const char *path)
{
    if (weft_comm_rank(comm) == 0) {
        (void)unlink(path);
    }
    wt_rows_fill(region, 1);
    WT_OK(weft_region_save(region, comm, path, NULL));
    wt_rows_fill(region, 2);
    WT_OK(weft_barrier(comm));
}

/* It is still that. */
static void check_old(weft_region *region, weft_comm *comm, const char *path)
{
    WT_OK(weft_region_load(region, comm, path, NULL));
    WT_OK(weft_barrier(comm));
    wt_rows_check(region, 0, ROWS, 1);
    WT_OK(weft_barrier(comm));
}

/* --- no room ------------------------------------------------------------- */

static char small[600];

/* A file system that has room for one file of ours and not for two. */
static bool mount_small(void)
{
    snprintf(small, sizeof(small), "%s", wt_path("small"));
    return mkdir(small, 0700) == 0 && unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("small", small, "tmpfs", 0, "size=3m") == 0;
}

static void full_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(comm, ROWS);
    weft_region *mapped = NULL;
    uint64_t shape[] = {ROWS, COLUMNS};
    char path[700];

    snprintf(path, sizeof(path), "%s/t.weft", small);
    save_old(region, comm, path);
    expect(weft_region_save(region, comm, path, NULL), WEFT_ERR_SYSTEM,
           "rank 0: no room for the");
    expect(weft_region_open_new(comm, path, 2, shape, WEFT_F32, &mapped),
           WEFT_ERR_SYSTEM, "rank 0: no room for the");
    check_old(region, comm, path);
    weft_region_destroy(region);
}

/* As some file systems, this one cannot take the room beforehand. */
static void late_full_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(comm, ROWS);
    char path[700];

    snprintf(path, sizeof(path), "%s/t.weft", small);
    save_old(region, comm, path);
    wt_deny_syscall(SYS_fallocate, EOPNOTSUPP);
    WT_OK(weft_barrier(comm));
    expect(weft_region_save(region, comm, path, NULL), WEFT_ERR_SYSTEM,
           "cannot write");
    check_old(region, comm, path);
    weft_region_destroy(region);
}

static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    if (!mount_small()) {
        skip();
    }
    wt_run_both(1, "", full_body);
    wt_run_both(3, "", full_body);
    if (!WT_TSAN) {
        wt_run(3, "", late_full_body);
    }
    umount(small);
    rmdir(small);
}

/* A write past it would be a signal. */
static void limit_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(comm, ROWS);
    struct rlimit limit;

    save_old(region, comm, wt_path("t.weft"));
    WT_CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = 1000000;
    if (weft_comm_rank(comm) == weft_comm_size(comm) - 1) {
        WT_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    expect(weft_region_save(region, comm, wt_path("t.weft"), NULL),
           WEFT_ERR_SYSTEM, "ulimit -f");
    check_old(region, comm, wt_path("t.weft"));
    weft_region_destroy(region);
}

static void a_limit_on_files_leaves_the_old_file(void **state)
{
    (void)state;
    if (WT_TSAN) {
        skip();
    }
    wt_run(1, "", limit_body);
    wt_run(3, "", limit_body);
    assert_int_equal(wt_folder_count(), 1);
}

/* --- no permission ------------------------------------------------------- */

static void denied_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(comm, ROWS);
    bool root = geteuid() == 0;

    save_old(region, comm, wt_path("t.weft"));
    if (weft_comm_rank(comm) == 0) {
        WT_CHECK(chmod(wt_path("."), 0555) == 0);
    }
    WT_OK(weft_barrier(comm));
    WT_CHECK(!root || seteuid(65534) == 0);
    expect(weft_region_save(region, comm, wt_path("t.weft"), NULL),
           WEFT_ERR_DENIED, "rank 0: cannot make a file for");
    WT_CHECK(!root || seteuid(0) == 0);
    WT_OK(weft_barrier(comm));
    if (weft_comm_rank(comm) == 0) {
        WT_CHECK(chmod(wt_path("."), 0700) == 0);
    }
    expect(weft_region_save(region, comm, wt_path("no/t.weft"), NULL),
           WEFT_ERR_SYSTEM, "rank 0: cannot make a file for");
    expect(weft_region_save(region, comm, wt_path("t.weft/t.weft"), NULL),
           WEFT_ERR_SYSTEM, "rank 0: cannot make a file for");
    expect(weft_region_save(region, comm, wt_path("."), NULL), WEFT_ERR_INVALID,
           "no regular file");
    expect(weft_region_save(region, comm, "/dev/null", NULL), WEFT_ERR_INVALID,
           "no regular file");
    check_old(region, comm, wt_path("t.weft"));
    weft_region_destroy(region);
}

static void a_folder_one_may_not_write_to_is_told_of(void **state)
{
    (void)state;
    if (WT_TSAN) {
        skip();
    }
    wt_run(1, "", denied_body);
    wt_run(3, "", denied_body);
    assert_int_equal(wt_folder_count(), 1);
}

/* Without O_TMPFILE there is a name, which must go, too. */
static void named_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(comm, ROWS);

    save_old(region, comm, wt_path("t.weft"));
    if (weft_comm_rank(comm) == weft_comm_size(comm) - 1) {
        wt_deny_syscall(SYS_pwrite64, EIO);
    }
    expect(weft_region_save(region, comm, wt_path("t.weft"), NULL),
           WEFT_ERR_SYSTEM, "cannot write");
    WT_CHECK(wt_names_rank(weft_error_detail(), weft_comm_size(comm) - 1));
    check_old(region, comm, wt_path("t.weft"));
    weft_region_destroy(region);
}

static const char *node_of(unsigned rank)
{
    return rank == 0 ? "NODE=a" : "NODE=b";
}

static void a_failed_write_of_one_rank_leaves_nothing(void **state)
{
    wt_job job = {.ranks = 2, .settings_of = node_of, .body = named_body};

    (void)state;
    if (WT_TSAN) {
        skip();
    }
    wt_run_job(&job);
    assert_int_equal(wt_folder_count(), 1);
    wt_run(3, "", named_body);
    assert_int_equal(wt_folder_count(), 1);
}

/* --- no memory ----------------------------------------------------------- */

enum { SAVE, LOAD, OPEN_NEW, OPEN, CALLS };

static weft_status call(unsigned which, weft_comm *comm, weft_region *region)
{
    const uint64_t shape[] = {1000, COLUMNS};
    const char *path = wt_path("t.weft");
    weft_region *opened = NULL;
    weft_status st;

    switch (which) {
    case SAVE:
        st = weft_region_save(region, comm, path, NULL);
        break;
    case LOAD:
        st = weft_region_load(region, comm, path, NULL);
        break;
    case OPEN_NEW:
        st = weft_region_open_new(comm, path, 2, shape, WEFT_F32, &opened);
        break;
    default:
        st = weft_region_open(comm, path, 1, &opened);
        break;
    }
    WT_CHECK(st == WEFT_OK || opened == NULL);
    weft_region_destroy(opened);
    return st;
}

static void alloc_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(comm, 1000);

    for (unsigned which = 0; which < CALLS; which++) {
        weft_status st;
        unsigned nth = 0;

        do {
            wf_alloc_fail_nth(++nth);
            st = call(which, comm, region);
            wf_alloc_fail_nth(0);
            WT_CHECK(st == WEFT_OK || st == WEFT_ERR_NOMEM);
        } while (st != WEFT_OK);
        WT_CHECK(nth > 2);
    }
    weft_region_destroy(region);
}

static void a_failed_allocation_is_told_of(void **state)
{
    (void)state;
    wt_run_both(1, "", alloc_body);
    assert_int_equal(wt_folder_count(), 1);
}

/* --- death --------------------------------------------------------------- */

static unsigned victim;
static unsigned strike_at;

static void strike(void *ctx, uint64_t done, uint64_t bytes)
{
    unsigned *calls = ctx;

    (void)done;
    (void)bytes;
    if (wt_rank() == victim && (*calls)++ == strike_at) {
        wt_strike(WT_BLOW_KILL);
    }
}

static void save_and_be_struck(weft_comm *comm)
{
    weft_region *region = make(comm, 8 * ROWS);
    unsigned calls = 0;
    weft_file_options options = {
        .size = sizeof(options), .progress = strike, .progress_ctx = &calls};

    wt_rows_fill(region, 2);
    expect(weft_region_save(region, comm, wt_path("t.weft"), &options),
           WEFT_ERR_PEER, "");
    WT_CHECK(wt_names_rank(weft_error_detail(), victim));
    weft_region_destroy(region);
}

static void death_body(weft_world *world)
{
    save_and_be_struck(weft_world_comm(world));
}

static void old_body(weft_world *world)
{
    weft_region *region = make(weft_world_comm(world), ROWS);

    save_old(region, weft_world_comm(world), wt_path("t.weft"));
    weft_region_destroy(region);
}

static void check_old_body(weft_world *world)
{
    weft_region *region = make(weft_world_comm(world), ROWS);

    check_old(region, weft_world_comm(world), wt_path("t.weft"));
    weft_region_destroy(region);
}

static void a_killed_rank_leaves_the_old_file_and_no_other(void **state)
{
    (void)state;
    if (WT_TSAN) {
        skip();
    }
    wt_run(2, "", old_body);
    for (victim = 0; victim < 3; victim++) {
        for (strike_at = 0; strike_at < 6; strike_at += 3) {
            wt_run_job(&(wt_job){
                .ranks = 3, .body = death_body, .doomed = 1u << victim});
            assert_int_equal(wt_folder_count(), 1);
            wt_run(1, "", check_old_body);
        }
    }
}

/* Even if nobody is left who could clean up. A rank that takes no part looks
 * on. */
static void all_die_body(weft_world *world)
{
    weft_comm *comm = NULL;
    bool looks_on = wt_rank() == 2;

    WT_OK(weft_comm_split(weft_world_comm(world), looks_on ? -1 : 0, 0, &comm));
    if (looks_on) {
        wt_await_gone(0);
        wt_await_gone(1);
        return;
    }
    victim = wt_rank();
    save_and_be_struck(comm);
}

static bool nameless_files(void)
{
    int fd = open(wt_path("."), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

static void killed_ranks_leave_the_old_file_and_no_other(void **state)
{
    (void)state;
    if (WT_TSAN || !nameless_files()) {
        skip();
    }
    wt_run(2, "", old_body);
    for (strike_at = 0; strike_at < 6; strike_at += 2) {
        wt_run_job(&(wt_job){.ranks = 3, .body = all_die_body, .doomed = 3});
        assert_int_equal(wt_folder_count(), 1);
        wt_run(1, "", check_old_body);
    }
}

/* --- files that are regions ---------------------------------------------- */

static void sync_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint64_t shape[] = {ROWS, COLUMNS};
    weft_region *region = NULL;
    weft_file_info info;

    WT_OK(weft_region_open_new(comm, wt_path("s.weft"), 2, shape, WEFT_F32,
                               &region));
    wt_rows_fill(region, 1);
    WT_OK(weft_region_barrier(region, 0));
    if (wt_rank() == victim) {
        wt_strike(WT_BLOW_KILL);
    }
    expect(weft_region_sync(region), WEFT_ERR_PEER, "");
    WT_CHECK(wt_names_rank(weft_error_detail(), victim));
    /* What it wrote is there, and that nobody has vouched for it. */
    wt_rows_check(region, 0, ROWS, 1);
    WT_OK(weft_file_describe(wt_path("s.weft"), &info));
    WT_CHECK(info.stale == 1);
    weft_region_destroy(region);
}

static void a_death_before_a_sync_is_told_of(void **state)
{
    (void)state;
    if (WT_TSAN) {
        skip();
    }
    for (victim = 0; victim < 3; victim += 2) {
        wt_run_job(
            &(wt_job){.ranks = 3, .body = sync_body, .doomed = 1u << victim});
    }
    assert_int_equal(unlink(wt_path("s.weft")), 0);
}

/* Rows change after a first sync; then `victim` dies in the second one, as it
 * makes the system call `fatal`. */
static int fatal;

static void second_sync_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    uint64_t shape[] = {4 * ROWS, COLUMNS};
    weft_region *region = NULL;

    WT_OK(weft_region_open_new(comm, wt_path("s.weft"), 2, shape, WEFT_F32,
                               &region));
    wt_rows_fill(region, 1);
    WT_OK(weft_region_sync(region));
    WT_OK(weft_file_verify(wt_path("s.weft")));
    WT_OK(weft_region_barrier(region, 0));
    wt_rows_fill(region, 2);
    if (wt_rank() == victim) {
        wt_die_at_syscall(fatal);
    }
    expect(weft_region_sync(region), WEFT_ERR_PEER, "");
    WT_CHECK(wt_names_rank(weft_error_detail(), victim));
    weft_region_destroy(region);
}

/* It is known to be out of date; one sync is all that it needs. */
static void sync_again_body(weft_world *world)
{
    weft_region *region = NULL;
    weft_file_info info;

    WT_OK(weft_file_describe(wt_path("s.weft"), &info));
    WT_CHECK(info.stale == 1);
    expect(weft_file_verify(wt_path("s.weft")), WEFT_ERR_PROTOCOL,
           "not synced since");
    WT_OK(weft_region_open(weft_world_comm(world), wt_path("s.weft"), 1,
                           &region));
    wt_rows_check(region, 0, 4 * ROWS, 2);
    WT_OK(weft_region_sync(region));
    weft_region_destroy(region);
    WT_OK(weft_file_verify(wt_path("s.weft")));
}

static void a_death_in_a_second_sync_leaves_no_damaged_file(void **state)
{
    static const int calls[] = {SYS_fsync, SYS_pwrite64};

    (void)state;
    if (WT_TSAN) {
        skip();
    }
    for (int i = 0; i < 2; i++) {
        /* The rank that speaks for the file, and one that has a share of it. */
        victim = i == 0 ? 0 : 1;
        fatal = calls[i];
        wt_run_job(&(wt_job){
            .ranks = 2, .body = second_sync_body, .doomed = 1u << victim});
        wt_run(1, "", sync_again_body);
    }
    assert_int_equal(unlink(wt_path("s.weft")), 0);
}

#ifdef SYS_rename
enum { RENAME = SYS_rename };
#else
enum { RENAME = SYS_renameat };
#endif

/* Save rows of seed `seed`; rank 0 dies if it renames a file. */
static weft_status save_without_rename(weft_comm *comm, uint64_t seed)
{
    weft_region *region = make(comm, ROWS);
    weft_status st;

    wt_rows_fill(region, seed);
    if (wt_rank() == 0) {
        wt_die_at_syscall(RENAME);
    }
    st = weft_region_save(region, comm, wt_path("t.weft"), NULL);
    weft_region_destroy(region);
    return st;
}

static void save_first_body(weft_world *world)
{
    WT_OK(save_without_rename(weft_world_comm(world), 1));
}

static void save_and_die_body(weft_world *world)
{
    expect(save_without_rename(weft_world_comm(world), 2), WEFT_ERR_PEER, "");
}

static void replace_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_region *region = make(comm, ROWS);

    wt_rows_fill(region, 1);
    WT_OK(weft_region_save(region, comm, wt_path("t.weft"), NULL));
    weft_region_destroy(region);
}

/* A file that there was none of has no moment between naming and renaming; what
 * a death leaves then, the next save takes away. */
static void a_death_before_the_rename_leaves_nothing_for_long(void **state)
{
    (void)state;
    if (WT_TSAN || !nameless_files()) {
        skip();
    }
    (void)unlink(wt_path("t.weft"));
    wt_run(2, "", save_first_body);
    assert_int_equal(wt_folder_count(), 1);
    wt_run_job(&(wt_job){.ranks = 2, .body = save_and_die_body, .doomed = 1});
    assert_int_equal(wt_folder_count(), 2);
    wt_run(1, "", check_old_body);
    wt_run(2, "", replace_body);
    assert_int_equal(wt_folder_count(), 1);
    wt_run(1, "", check_old_body);
}

static void
a_file_that_another_job_is_about_to_rename_is_left_alone(void **state)
{
    int fd;

    (void)state;
    if (!nameless_files()) {
        skip();
    }
    wt_run(1, "", replace_body);
    fd = open(wt_path(".t.weft.weft-new"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    wt_run(1, "", replace_body);
    assert_int_equal(wt_folder_count(), 2);
    assert_int_equal(unlink(wt_path(".t.weft.weft-new")), 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_on_files_leaves_the_old_file),
        cmocka_unit_test(a_folder_one_may_not_write_to_is_told_of),
        cmocka_unit_test(a_failed_write_of_one_rank_leaves_nothing),
        cmocka_unit_test(a_failed_allocation_is_told_of),
        cmocka_unit_test(a_killed_rank_leaves_the_old_file_and_no_other),
        cmocka_unit_test(killed_ranks_leave_the_old_file_and_no_other),
        cmocka_unit_test(a_death_before_a_sync_is_told_of),
        cmocka_unit_test(a_death_in_a_second_sync_leaves_no_damaged_file),
        cmocka_unit_test(a_death_before_the_rename_leaves_nothing_for_long),
        cmocka_unit_test(
            a_file_that_another_job_is_about_to_rename_is_left_alone),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
    };

    return cmocka_run_group_tests(tests, wt_folder_make, wt_folder_remove);
}
