/* SPDX-License-Identifier: Apache-2.0 */
/* Segments: memory passed by descriptor. What a peer sends is checked before
 * it is mapped, and whatever fails leaves no descriptor and no mapping. */
#include "mem/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <weft/log.h>

#include "base/alloc.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_deny.h"
#include "wt_proc.h"

#define NAME "weft-test-segment"

static const int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

/* How often this process has memory of NAME mapped. Mappings of the allocator
 * or of a sanitizer come and go, so only ours are counted. */
static unsigned count_our_mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned n = 0;

    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        n += strstr(line, NAME) != NULL;
    }
    fclose(f);
    return n;
}

static unsigned fds_before;
static unsigned mappings_before;

static int count_before(void **state)
{
    (void)state;
    fds_before = wt_count_fds();
    mappings_before = count_our_mappings();
    return 0;
}

/* Runs after each test. */
static int expect_nothing_left(void **state)
{
    (void)state;
    if (wt_count_fds() != fds_before ||
        count_our_mappings() != mappings_before) {
        fprintf(stderr, "descriptors or mappings are left\n");
        wt_print_fds();
        return -1;
    }
    return 0;
}

static wf_segment make(size_t bytes)
{
    wf_segment seg = {0};

    assert_int_equal(wf_segment_create(NAME, bytes, WF_HUGE_OFF, &seg),
                     WEFT_OK);
    return seg;
}

static int copy_of(int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    assert_true(copy >= 0);
    return copy;
}

/* A memfd that somebody else might send. */
static int memfd_of(size_t bytes, int seals)
{
    int fd = memfd_create(NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static bool all_zero(const wf_segment *seg)
{
    const unsigned char *at = seg->base;

    for (size_t i = 0; i < seg->bytes; i++) {
        if (at[i] != 0) {
            return false;
        }
    }
    return true;
}

static void sizes_are_rounded_up_to_whole_units(void **state)
{
    (void)state;
    assert_int_equal(wf_round_up(0, 4096), 0);
    assert_int_equal(wf_round_up(1, 4096), 4096);
    assert_int_equal(wf_round_up(4096, 4096), 4096);
    assert_int_equal(wf_round_up(4097, 4096), 8192);
    assert_int_equal(wf_segment_page() & (wf_segment_page() - 1), 0);
}

static void a_segment_is_whole_pages_of_zero_with_its_seals(void **state)
{
    const size_t sizes[] = {1, 100, wf_segment_page(), wf_segment_page() + 1,
                            (size_t)3 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        wf_segment seg = make(sizes[i]);

        assert_int_equal(seg.bytes, wf_round_up(sizes[i], wf_segment_page()));
        assert_true(seg.writable);
        assert_true(all_zero(&seg));
        memset(seg.base, 0xa5, seg.bytes);
        assert_int_equal(fcntl(seg.fd, F_GET_SEALS) & size_seals, size_seals);
        assert_int_equal(ftruncate(seg.fd, 0), -1);
        assert_int_equal(ftruncate(seg.fd, 1 << 30), -1);
        assert_int_equal(fcntl(seg.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
        wf_segment_close(&seg);
        assert_null(seg.base);
        assert_int_equal(seg.fd, -1);
    }
}

static void closing_takes_a_zeroed_and_a_closed_segment(void **state)
{
    wf_segment zero = {0};
    wf_segment seg = make(1);

    (void)state;
    wf_segment_close_fd(&zero);
    wf_segment_close(&zero);
    assert_true(is_open(0));
    wf_segment_close(&seg);
    wf_segment_close_fd(&seg);
    wf_segment_close(&seg);
}

static void who_attaches_sees_what_the_other_wrote(void **state)
{
    wf_segment a = make(10000);
    wf_segment b = {0};

    (void)state;
    assert_int_equal(wf_segment_attach(NAME, copy_of(a.fd), 10000, true, &b),
                     WEFT_OK);
    assert_int_equal(b.bytes, a.bytes);
    strcpy((char *)a.base + 9000, "from a");
    assert_string_equal((char *)b.base + 9000, "from a");
    strcpy((char *)b.base, "from b");
    assert_string_equal((char *)a.base, "from b");
    wf_segment_close(&a);
    assert_string_equal((char *)b.base, "from b");
    wf_segment_close(&b);
}

static void a_mapping_outlives_its_descriptor(void **state)
{
    wf_segment seg = make(100);
    int fd = seg.fd;

    (void)state;
    wf_segment_close_fd(&seg);
    assert_false(is_open(fd));
    assert_int_equal(seg.fd, -1);
    wf_segment_close_fd(&seg);
    strcpy(seg.base, "still here");
    assert_string_equal((char *)seg.base, "still here");
    assert_int_equal(wf_segment_populate(&seg, 0, 100), WEFT_OK);
    wf_segment_close(&seg);
}

/* Attach what must be refused: the descriptor is gone, `out` is as it was. */
static void expect_refused(int fd, size_t bytes, bool writable,
                           weft_status want, const char *why)
{
    wf_segment seg = {-7, NULL, 77, false};

    assert_int_equal(wf_segment_attach(NAME, fd, bytes, writable, &seg), want);
    assert_non_null(strstr(weft_error_detail(), why));
    assert_false(is_open(fd));
    assert_int_equal(seg.fd, -7);
    assert_int_equal(seg.bytes, 77);
}

static void a_descriptor_that_is_too_small_is_refused(void **state)
{
    size_t page = wf_segment_page();

    (void)state;
    expect_refused(memfd_of(page, size_seals), page + 1, true,
                   WEFT_ERR_PROTOCOL, "bytes instead of");
    expect_refused(memfd_of(0, size_seals), 1, true, WEFT_ERR_PROTOCOL,
                   "has 0 bytes");
    /* Less than the page that it would be mapped with. */
    expect_refused(memfd_of(100, size_seals), 100, false, WEFT_ERR_PROTOCOL,
                   "has 100 bytes");
}

static void a_descriptor_without_both_seals_is_refused(void **state)
{
    size_t page = wf_segment_page();

    (void)state;
    expect_refused(memfd_of(page, 0), page, true, WEFT_ERR_PROTOCOL,
                   "not sealed");
    expect_refused(memfd_of(page, F_SEAL_GROW), page, true, WEFT_ERR_PROTOCOL,
                   "not sealed");
    expect_refused(memfd_of(page, F_SEAL_SHRINK), page, true, WEFT_ERR_PROTOCOL,
                   "not sealed");
}

static void a_descriptor_of_something_else_is_refused(void **state)
{
    int ends[2];

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    close(ends[1]);
    expect_refused(ends[0], 1, false, WEFT_ERR_PROTOCOL, "not sealed");
    expect_refused(open("/dev/zero", O_RDWR | O_CLOEXEC), 1, true,
                   WEFT_ERR_PROTOCOL, "not sealed");
    expect_refused(-1, 1, true, WEFT_ERR_SYSTEM, "fstat");
}

/* Its maker has closed it, so this is the only way to the memory. */
static void a_read_only_descriptor_cannot_be_mapped_writable(void **state)
{
    wf_segment seg = make(100);
    wf_segment view = {0};
    int fd = -1;

    (void)state;
    strcpy(seg.base, "seen");
    assert_int_equal(wf_segment_readonly_fd(&seg, &fd), WEFT_OK);
    wf_segment_close(&seg);
    assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    expect_refused(copy_of(fd), 100, true, WEFT_ERR_DENIED, "mapping");
    assert_int_equal(wf_segment_attach(NAME, fd, 100, false, &view), WEFT_OK);
    assert_false(view.writable);
    assert_int_equal(mprotect(view.base, view.bytes, PROT_READ | PROT_WRITE),
                     -1);
    assert_int_equal(errno, EACCES);
    assert_string_equal((char *)view.base, "seen");
    wf_segment_close(&view);
}

static void there_is_no_read_only_descriptor_of_a_closed_one(void **state)
{
    wf_segment seg = make(100);
    int fd = -7;

    (void)state;
    wf_segment_close_fd(&seg);
    assert_int_not_equal(wf_segment_readonly_fd(&seg, &fd), WEFT_OK);
    assert_int_equal(fd, -7);
    wf_segment_close(&seg);
}

static bool is_resident(const wf_segment *seg, size_t page)
{
    unsigned char there = 0;
    char *at = (char *)seg->base + page * wf_segment_page();

    assert_int_equal(mincore(at, wf_segment_page(), &there), 0);
    return (there & 1) != 0;
}

static void
populating_allocates_the_pages_of_a_range_and_no_others(void **state)
{
    size_t page = wf_segment_page();
    wf_segment seg = make(8 * page);

    (void)state;
    ((char *)seg.base)[3 * page] = 'k';
    assert_false(is_resident(&seg, 2));
    assert_int_equal(wf_segment_populate(&seg, 2 * page + 5, page), WEFT_OK);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(is_resident(&seg, i), i == 2 || i == 3);
    }
    assert_int_equal(((char *)seg.base)[3 * page], 'k');
    assert_int_equal(wf_segment_populate(&seg, 0, 8 * page), WEFT_OK);
    assert_int_equal(wf_segment_populate(&seg, 8 * page, 0), WEFT_OK);
    wf_segment_close(&seg);
}

/* Whether the kernel has huge pages or not, it is memory like any other. */
static void collapsed_memory_keeps_what_is_in_it(void **state)
{
    size_t page = wf_segment_page();
    wf_segment seg = make(3 * WF_HUGE_PAGE);
    char *at = seg.base;

    (void)state;
    at[5] = 'x';
    wf_segment_collapse(&seg, 3 * page, seg.bytes - 3 * page);
    wf_segment_collapse(&seg, 0, 0);
    wf_segment_collapse(&seg, 0, page);
    assert_int_equal(wf_segment_populate(&seg, 0, seg.bytes), WEFT_OK);
    assert_int_equal(at[5], 'x');
    for (size_t i = 6; i < seg.bytes; i++) {
        assert_int_equal(at[i], 0);
    }
    wf_segment_close(&seg);
}

static void a_range_outside_of_the_segment_is_not_populated(void **state)
{
    size_t page = wf_segment_page();
    wf_segment seg = make(2 * page);

    (void)state;
    assert_int_equal(wf_segment_populate(&seg, 0, 2 * page + 1),
                     WEFT_ERR_INVALID);
    assert_int_equal(wf_segment_populate(&seg, 2 * page, 1), WEFT_ERR_INVALID);
    assert_int_equal(wf_segment_populate(&seg, page, SIZE_MAX - 2 * page),
                     WEFT_ERR_INVALID);
    assert_int_equal(wf_segment_populate(&seg, SIZE_MAX - page, 2 * page),
                     WEFT_ERR_INVALID);
    assert_false(is_resident(&seg, 0));
    assert_false(is_resident(&seg, 1));
    wf_segment_close(&seg);
}

/* The end of such a range wraps around to lie inside of the segment. */
static void a_range_that_ends_past_all_addresses_is_not_populated(void **state)
{
    wf_segment seg = make(1);

    (void)state;
    assert_int_equal(wf_segment_populate(&seg, 0, SIZE_MAX), WEFT_ERR_INVALID);
    assert_int_equal(wf_segment_populate(&seg, 100, SIZE_MAX - 50),
                     WEFT_ERR_INVALID);
    wf_segment_close(&seg);
}

static void a_read_only_segment_cannot_be_populated(void **state)
{
    wf_segment seg = make(1);
    wf_segment view = {0};

    (void)state;
    assert_int_equal(wf_segment_attach(NAME, copy_of(seg.fd), 1, false, &view),
                     WEFT_OK);
    assert_int_not_equal(wf_segment_populate(&view, 0, 1), WEFT_OK);
    wf_segment_close(&view);
    wf_segment_close(&seg);
}

static void expect_too_big(size_t bytes)
{
    wf_segment seg = {-7, NULL, 77, false};
    unsigned fds = wt_count_fds();

    assert_int_equal(wf_segment_create(NAME, bytes, WF_HUGE_OFF, &seg),
                     WEFT_ERR_NOMEM);
    assert_non_null(strstr(weft_error_detail(), NAME " needs"));
    assert_int_equal(seg.fd, -7);
    assert_int_equal(wt_count_fds(), fds);
}

static void more_than_there_is_is_refused_before_it_is_allocated(void **state)
{
    uint64_t room = wf_memory_available();

    (void)state;
    assert_true(room > 0);
    assert_true(room < UINT64_MAX);
    expect_too_big((size_t)room * 2);
    expect_too_big((size_t)1 << 60);
}

/* Rounding such a size up to whole pages wraps around to 0. */
static void more_than_all_addresses_is_refused_as_too_big(void **state)
{
    (void)state;
    expect_too_big(SIZE_MAX);
}

static void a_size_that_wraps_when_rounded_up_is_not_attached(void **state)
{
    (void)state;
    expect_refused(memfd_of(wf_segment_page(), size_seals), SIZE_MAX, true,
                   WEFT_ERR_PROTOCOL, "bytes instead of");
}

static _Atomic unsigned fallbacks;

static void count_fallbacks(weft_log_level level, const char *text, void *ctx)
{
    (void)level;
    (void)ctx;
    fallbacks += strstr(text, "no reserved huge pages") != NULL;
}

static void without_reserved_huge_pages_there_are_plain_ones(void **state)
{
    const size_t bytes = (size_t)3 << 20;
    wf_segment seg = {0};

    (void)state;
    fallbacks = 0;
    weft_log_to(count_fallbacks, NULL);
    weft_log_set_level(WEFT_LOG_INFO);
    assert_int_equal(wf_segment_create(NAME, bytes, WF_HUGE_HUGETLB, &seg),
                     WEFT_OK);
    weft_log_set_level(WEFT_LOG_WARN);
    weft_log_to(NULL, NULL);
    /* Where the machine has them set aside, it is two of them instead. */
    assert_int_equal(seg.bytes, fallbacks == 1 ? bytes : (size_t)4 << 20);
    assert_int_equal(wf_segment_populate(&seg, 0, bytes), WEFT_OK);
    assert_true(all_zero(&seg));
    wf_segment_close(&seg);
}

static void asking_for_transparent_huge_pages_does_no_harm(void **state)
{
    wf_segment seg = {0};

    (void)state;
    assert_int_equal(wf_segment_create(NAME, 5000, WF_HUGE_THP, &seg), WEFT_OK);
    assert_int_equal(seg.bytes, wf_round_up(5000, wf_segment_page()));
    assert_true(all_zero(&seg));
    wf_segment_close(&seg);
}

/* Fail the 1st, 2nd... allocation of a process that makes one: all are
 * told of, none leaks. */
static void segments_survive_any_failed_allocation(void **state)
{
    weft_status st;
    unsigned nth = 0;

    (void)state;
    do {
        wf_segment seg = {0};

        wf_alloc_fail_nth(++nth);
        st = wf_segment_create(NAME, 100, WF_HUGE_OFF, &seg);
        wf_alloc_fail_nth(0);
        assert_true(st == WEFT_OK || st == WEFT_ERR_NOMEM);
        wf_segment_close(&seg);
    } while (st != WEFT_OK);
}

/* --- system calls that fail, each in a process of its own ------------------
 */

static void create_fails(weft_status want)
{
    wf_segment seg = {-7, NULL, 77, false};
    unsigned fds = wt_count_fds();
    unsigned mappings = count_our_mappings();

    WT_STATUS(wf_segment_create(NAME, 100, WF_HUGE_HUGETLB, &seg), want);
    WT_CHECK(wt_count_fds() == fds);
    WT_CHECK(count_our_mappings() == mappings);
    WT_CHECK(seg.fd == -7 && seg.bytes == 77);
}

static void without_memfd(void)
{
    wt_deny_syscall(SYS_memfd_create, ENOSYS);
    create_fails(WEFT_ERR_SYSTEM);
}

static void without_truncation(void)
{
    wt_deny_syscall(SYS_ftruncate, EPERM);
    create_fails(WEFT_ERR_DENIED);
}

/* As on a file system that has no seals. */
static void without_seals(void)
{
    wf_segment seg = {0};
    int fd = -1;

    WT_OK(wf_segment_create(NAME, 100, WF_HUGE_OFF, &seg));
    WT_OK(wf_segment_readonly_fd(&seg, &fd));
    close(fd);
    wf_segment_close(&seg);
    wt_deny_syscall(SYS_fcntl, EINVAL);
    create_fails(WEFT_ERR_SYSTEM);
}

static void without_descriptors(void)
{
    wf_segment seg = {0};
    unsigned long limit;
    weft_status st;
    int fd = -7;

    WT_OK(wf_segment_create(NAME, 100, WF_HUGE_OFF, &seg));
    limit = wt_limit_fds(0);
    WT_STATUS(wf_segment_readonly_fd(&seg, &fd), WEFT_ERR_SYSTEM);
    WT_CHECK(fd == -7);
    wf_segment_close_fd(&seg);
    wf_segment_close(&seg);
    /* Closing it made room for one. */
    WT_OK(wf_segment_create(NAME, 100, WF_HUGE_OFF, &seg));
    st = wf_segment_create(NAME, 100, WF_HUGE_OFF, &(wf_segment){0});
    wt_restore_fds(limit);
    wf_segment_close(&seg);
    WT_CHECK(st == WEFT_ERR_SYSTEM || st == WEFT_ERR_NOMEM);
}

static void without_addresses(void)
{
    wf_segment seg = {0};
    unsigned fds = wt_count_fds();
    unsigned long limit = wt_limit_memory(1 << 20);
    weft_status st =
        wf_segment_create(NAME, (size_t)64 << 20, WF_HUGE_OFF, &seg);

    wt_restore_memory(limit);
    WT_STATUS(st, WEFT_ERR_NOMEM);
    WT_CHECK(wt_count_fds() == fds);
}

static void
any_system_call_that_fails_is_told_of_and_leaves_nothing(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = 1, .bare = without_memfd});
    wt_run_job(&(wt_job){.ranks = 1, .bare = without_truncation});
    wt_run_job(&(wt_job){.ranks = 1, .bare = without_seals});
    wt_run_job(&(wt_job){.ranks = 1, .bare = without_descriptors});
}

static void too_few_addresses_are_out_of_memory_and_leave_nothing(void **state)
{
    (void)state;
    /* Sanitizers need terabytes of addresses. */
    if (!WT_ASAN && !WT_TSAN) {
        wt_run_job(&(wt_job){.ranks = 1, .bare = without_addresses});
    }
}

#define HOLDS(test)                                                            \
    cmocka_unit_test_setup_teardown(test, count_before, expect_nothing_left)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOLDS(sizes_are_rounded_up_to_whole_units),
        HOLDS(a_segment_is_whole_pages_of_zero_with_its_seals),
        HOLDS(closing_takes_a_zeroed_and_a_closed_segment),
        HOLDS(who_attaches_sees_what_the_other_wrote),
        HOLDS(a_mapping_outlives_its_descriptor),
        HOLDS(a_descriptor_that_is_too_small_is_refused),
        HOLDS(a_descriptor_without_both_seals_is_refused),
        HOLDS(a_descriptor_of_something_else_is_refused),
        HOLDS(a_read_only_descriptor_cannot_be_mapped_writable),
        HOLDS(there_is_no_read_only_descriptor_of_a_closed_one),
        HOLDS(populating_allocates_the_pages_of_a_range_and_no_others),
        HOLDS(collapsed_memory_keeps_what_is_in_it),
        HOLDS(a_range_outside_of_the_segment_is_not_populated),
        HOLDS(a_range_that_ends_past_all_addresses_is_not_populated),
        HOLDS(a_read_only_segment_cannot_be_populated),
        HOLDS(more_than_there_is_is_refused_before_it_is_allocated),
        HOLDS(more_than_all_addresses_is_refused_as_too_big),
        HOLDS(a_size_that_wraps_when_rounded_up_is_not_attached),
        HOLDS(without_reserved_huge_pages_there_are_plain_ones),
        HOLDS(asking_for_transparent_huge_pages_does_no_harm),
        HOLDS(segments_survive_any_failed_allocation),
        HOLDS(any_system_call_that_fails_is_told_of_and_leaves_nothing),
        HOLDS(too_few_addresses_are_out_of_memory_and_leave_nothing),
    };

    return cmocka_run_group_tests_name("segment", tests, NULL, NULL);
}
