/* SPDX-License-Identifier: Apache-2.0 */
/* Host storage of regions, by itself: what it maps, what it refuses, when
 * memory is there and when it goes. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mem/segment.h"
#include "region/storage.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_proc.h"

enum { PAGES = 16 };

static const wf_storage *const host = &wf_storage_host;

static wf_storage_spec spec_of(bool alone)
{
    return (wf_storage_spec){.what = "a region of the test",
                             .huge = WF_HUGE_OFF,
                             .granule = wf_segment_page(),
                             .alone = alone};
}

typedef struct pair {
    wf_storage_spec spec;
    uint64_t bytes;
    char *base[2];
    void *state[2];
} pair;

/* Two ranks in one process: the first makes the object, the second attaches. */
static void pair_open(pair *p)
{
    int fd = -1;

    *p = (pair){.spec = spec_of(false), .bytes = PAGES * wf_segment_page()};
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(host->open(&p->spec, p->bytes,
                                    (void **)(void *)&p->base[i], &p->state[i]),
                         WEFT_OK);
    }
    assert_int_equal(host->create(p->state[0], 0, p->bytes, &fd), WEFT_OK);
    assert_true(fd >= 0);
    assert_int_equal(host->attach(p->state[1], 0, p->bytes, fd), WEFT_OK);
}

static void pair_close(pair *p)
{
    host->close(p->state[0]);
    host->close(p->state[1]);
}

static unsigned resident(const char *at)
{
    unsigned char there[PAGES];
    unsigned n = 0;

    assert_int_equal(
        mincore((void *)(uintptr_t)at, PAGES * wf_segment_page(), there), 0);
    for (unsigned i = 0; i < PAGES; i++) {
        n += there[i] & 1;
    }
    return n;
}

/* Does a child that touches this byte die of it? */
static bool is_fatal(char *at)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        *(volatile char *)at = 1;
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status != 0;
}

static void what_one_commits_both_see_and_only_that_takes_memory(void **state)
{
    size_t page = wf_segment_page();
    pair p;

    (void)state;
    pair_open(&p);
    assert_int_equal(resident(p.base[0]), 0);
    assert_int_equal(host->commit(p.state[0], 2 * page, 3 * page), WEFT_OK);
    assert_int_equal(host->commit(p.state[1], 5 * page, page), WEFT_OK);
    assert_int_equal(host->commit(p.state[1], 0, 0), WEFT_OK);
    assert_int_equal(resident(p.base[0]), 4);
    p.base[0][2 * page] = 'a';
    p.base[1][5 * page] = 'b';
    assert_int_equal(p.base[1][2 * page], 'a');
    assert_int_equal(p.base[0][5 * page], 'b');
    pair_close(&p);
}

static void only_bytes_before_the_end_can_be_touched(void **state)
{
    size_t page = wf_segment_page();
    pair p;

    (void)state;
    if (WT_TSAN) {
        skip(); /* it does not let a child die in peace */
    }
    pair_open(&p);
    assert_int_equal(host->access(p.state[0], 4 * page), WEFT_OK);
    assert_false(is_fatal(p.base[0] + 4 * page - 1));
    assert_true(is_fatal(p.base[0] + 4 * page));
    /* Growing opens them, shrinking closes them again. */
    assert_int_equal(host->commit(p.state[0], 4 * page, 4 * page), WEFT_OK);
    assert_int_equal(host->access(p.state[0], 8 * page), WEFT_OK);
    assert_false(is_fatal(p.base[0] + 8 * page - 1));
    assert_int_equal(host->access(p.state[0], page), WEFT_OK);
    assert_true(is_fatal(p.base[0] + page));
    assert_int_equal(host->access(p.state[0], 0), WEFT_OK);
    assert_true(is_fatal(p.base[0]));
    pair_close(&p);
}

static void discarded_bytes_are_zero_and_their_pages_free(void **state)
{
    size_t page = wf_segment_page();
    pair p;

    (void)state;
    pair_open(&p);
    memset(p.base[0], 'x', p.bytes);
    assert_int_equal(resident(p.base[0]), PAGES);
    host->discard(p.state[1], page + 10, 3 * page);
    assert_int_equal(resident(p.base[0]), PAGES - 2);
    for (size_t i = 0; i < p.bytes; i++) {
        bool gone = i >= page + 10 && i < 4 * page + 10;

        assert_int_equal(p.base[0][i], gone ? 0 : 'x');
    }
    /* Less than a page, and nothing. */
    host->discard(p.state[0], 7, 5);
    host->discard(p.state[0], 100, 0);
    assert_int_equal(p.base[1][6], 'x');
    assert_int_equal(p.base[1][7], 0);
    assert_int_equal(p.base[1][11], 0);
    assert_int_equal(p.base[1][12], 'x');
    assert_int_equal(p.base[1][100], 'x');
    pair_close(&p);
}

static void a_view_shows_the_same_and_cannot_be_made_writable(void **state)
{
    size_t page = wf_segment_page();
    char *view = NULL;
    pair p;

    (void)state;
    pair_open(&p);
    assert_int_equal(host->view(p.state[1], 3 * page, (void **)(void *)&view),
                     WEFT_OK);
    p.base[0][2 * page] = 'v';
    assert_int_equal(view[2 * page], 'v');
    assert_int_equal(mprotect(view, page, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(errno, EACCES);
    host->unview(p.state[1], view, 3 * page);
    pair_close(&p);
}

static void expect_refused(int fd, uint64_t bytes)
{
    wf_storage_spec spec = spec_of(false);
    unsigned fds = wt_count_fds();
    void *state = NULL;
    void *base = NULL;

    assert_int_equal(host->open(&spec, bytes, &base, &state), WEFT_OK);
    assert_int_equal(host->attach(state, 0, bytes, fd), WEFT_ERR_PROTOCOL);
    assert_int_equal(wt_count_fds(), fds - 1); /* it took it over */
    host->close(state);
}

static void what_a_peer_sends_is_checked_before_it_is_mapped(void **state)
{
    size_t page = wf_segment_page();
    int fd = -1;
    int pipes[2];

    (void)state;
    assert_int_equal(wf_segment_make_fd("short", page, false, &fd), WEFT_OK);
    expect_refused(fd, 2 * page);
    fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, (off_t)(2 * page)), 0);
    expect_refused(fd, 2 * page);
    assert_int_equal(pipe(pipes), 0);
    expect_refused(pipes[0], page);
    close(pipes[1]);
}

static void one_who_is_alone_sends_nothing(void **state)
{
    wf_storage_spec spec = spec_of(true);
    void *storage = NULL;
    char *base = NULL;
    int fd = -1;

    (void)state;
    assert_int_equal(
        host->open(&spec, wf_segment_page(), (void **)(void *)&base, &storage),
        WEFT_OK);
    assert_int_equal(host->create(storage, 0, wf_segment_page(), &fd), WEFT_OK);
    assert_int_equal(fd, -1);
    base[0] = 'x';
    host->close(storage);
}

/* A reserve may be far larger than the memory there is. */
static void a_reserve_costs_addresses_only(void **state)
{
    wf_storage_spec spec = spec_of(true);
    uint64_t bytes = 1ull << 42;
    void *storage = NULL;
    char *base = NULL;
    int fd = -1;

    (void)state;
    if (WT_ASAN || WT_TSAN) {
        skip();
    }
    assert_int_equal(host->open(&spec, bytes, (void **)(void *)&base, &storage),
                     WEFT_OK);
    assert_int_equal((uintptr_t)base % WF_HUGE_PAGE, 0);
    assert_int_equal(host->create(storage, 0, bytes, &fd), WEFT_OK);
    assert_int_equal(
        host->commit(storage, bytes - wf_segment_page(), wf_segment_page()),
        WEFT_OK);
    base[bytes - 1] = 'x';
    host->close(storage);
}

static void memory_is_counted_before_it_is_taken(void **state)
{
    wf_storage_spec spec = spec_of(true);
    wf_storage_need need = {.bytes = 1 << 20};

    (void)state;
    need.groups.count = 2;
    need.groups.group[0] = (wf_cgroup){.id = 1, .room = 1 << 20};
    need.groups.group[1] = (wf_cgroup){.id = 2, .room = 2 << 20};
    need.in_group[0] = 1 << 20;
    need.in_group[1] = 2 << 20;
    assert_int_equal(host->room(&spec, &need), WEFT_OK);
    need.in_group[1]++;
    assert_int_equal(host->room(&spec, &need), WEFT_ERR_NOMEM);
    assert_non_null(strstr(weft_error_detail(), "control group"));
    assert_non_null(strstr(weft_error_detail(), "needs 2049 KiB"));
    assert_non_null(strstr(weft_error_detail(), "only 2048 KiB"));
    need.in_group[1] = 0;
    need.bytes = wf_memory_available() * 2;
    assert_int_equal(host->room(&spec, &need), WEFT_ERR_NOMEM);
    assert_non_null(strstr(weft_error_detail(), "a region of the test needs"));
    spec.granule = WF_HUGE_PAGE;
    need.bytes = wf_memory_huge_free() + WF_HUGE_PAGE;
    assert_int_equal(host->room(&spec, &need), WEFT_ERR_NOMEM);
}

static void memory_goes_to_a_numa_node_that_exists(void **state)
{
    size_t page = wf_segment_page();
    pair p;

    (void)state;
    pair_open(&p);
    p.spec.numa = 1;
    assert_int_equal(host->commit(p.state[0], 0, page), WEFT_OK);
    p.spec.numa = 900;
    assert_int_equal(host->commit(p.state[0], 0, page), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "NUMA node 899"));
    p.spec.numa = INT32_MAX;
    assert_int_equal(host->commit(p.state[0], 0, page), WEFT_ERR_INVALID);
    pair_close(&p);
}

static unsigned fds_before;
static unsigned mappings_before;

static int count_before(void **state)
{
    (void)state;
    fds_before = wt_count_fds();
    mappings_before = wt_count_mappings();
    return 0;
}

static int expect_nothing_left(void **state)
{
    (void)state;
    return wt_count_fds() == fds_before &&
                   (WT_ASAN || WT_TSAN ||
                    wt_count_mappings() <= mappings_before + 1)
               ? 0
               : -1;
}

#define HOLDS(test)                                                            \
    cmocka_unit_test_setup_teardown(test, count_before, expect_nothing_left)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOLDS(what_one_commits_both_see_and_only_that_takes_memory),
        HOLDS(only_bytes_before_the_end_can_be_touched),
        HOLDS(discarded_bytes_are_zero_and_their_pages_free),
        HOLDS(a_view_shows_the_same_and_cannot_be_made_writable),
        HOLDS(what_a_peer_sends_is_checked_before_it_is_mapped),
        HOLDS(one_who_is_alone_sends_nothing),
        HOLDS(a_reserve_costs_addresses_only),
        HOLDS(memory_is_counted_before_it_is_taken),
        HOLDS(memory_goes_to_a_numa_node_that_exists),
    };

    return cmocka_run_group_tests_name("region host", tests, NULL, NULL);
}
