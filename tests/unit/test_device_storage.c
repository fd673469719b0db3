/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA memory of a region, on the double: two states in one process are two
 * ranks, whose descriptors go from hand to hand. Whatever fails leaves nothing
 * behind. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/log.h>

#include "base/alloc.h"
#include "cuda_double/double.h"
#include "region/cuda/storage.h"
#include "wt_cmocka.h"
#include "wt_proc.h"

#define PAGE ((uint64_t)4096)
#define RESERVE (16 * PAGE)
#define assert_detail(text) assert_non_null(strstr(weft_error_detail(), text))

static const wf_storage *const cuda = &wf_storage_cuda;
static unsigned fds_before;
static unsigned logged;

static void count_log(weft_log_level level, const char *text, void *ctx)
{
    (void)ctx;
    if (level <= WEFT_LOG_WARN) {
        fprintf(stderr, "logged: %s\n", text);
        logged++;
    }
}

static void begin(wf_double_options options)
{
    options.granule = PAGE;
    options.tag = (uint32_t)getpid();
    fds_before = wt_count_fds();
    wf_driver_use(wf_double_start(&options));
    logged = 0;
    weft_log_to(count_log, NULL);
}

static void expect_no_holdings(void)
{
    wf_double_counts c = wf_double_count();

    assert_int_equal(c.contexts, 0);
    assert_int_equal(c.handles, 0);
    assert_int_equal(c.ranges, 0);
    assert_int_equal(c.mappings, 0);
    assert_int_equal(c.depth, 0);
    assert_int_equal(wt_count_fds(), fds_before);
    assert_int_equal(logged, 0);
}

/* The same, and no process at all has memory of the device; that takes longer
 * to find out. */
static void expect_nothing_held(void)
{
    expect_no_holdings();
    assert_int_equal(wf_double_used((uint32_t)getpid(), 0), 0);
}

static wf_storage_spec spec_on(int device)
{
    return (wf_storage_spec){.what = "a region of a test",
                             .driver = "auto",
                             .device = device,
                             .granule = PAGE};
}

typedef struct rank {
    wf_storage_spec spec;
    char *base;
    void *state;
} rank;

static weft_status rank_open(rank *r, int device)
{
    void *base = NULL;
    weft_status st;

    memset(r, 0, sizeof(*r));
    r->spec = spec_on(device);
    st = cuda->open(&r->spec, RESERVE, &base, &r->state);
    r->base = base;
    return st;
}

/* Rank `a` backs [0, 2) pages, rank `b` [2, 3); both map all. */
static weft_status share(rank *a, rank *b)
{
    int fd = -1;
    weft_status st = cuda->create(a->state, 0, 2 * PAGE, &fd);

    if (st == WEFT_OK) {
        st = cuda->attach(b->state, 0, 2 * PAGE, fd);
    }
    if (st == WEFT_OK) {
        st = cuda->create(b->state, 2 * PAGE, PAGE, &fd);
    }
    if (st == WEFT_OK) {
        st = cuda->attach(a->state, 2 * PAGE, PAGE, fd);
    }
    if (st == WEFT_OK) {
        st = cuda->commit(a->state, 0, 2 * PAGE);
    }
    if (st == WEFT_OK) {
        st = cuda->access(a->state, 3 * PAGE);
    }
    return st == WEFT_OK ? cuda->access(b->state, 3 * PAGE) : st;
}

static void pair_open(rank *a, rank *b)
{
    assert_int_equal(rank_open(a, 0), WEFT_OK);
    assert_int_equal(rank_open(b, 0), WEFT_OK);
    assert_int_equal(share(a, b), WEFT_OK);
}

/* Does reading (or writing) there end a process? */
static bool faults(volatile char *at, bool writing)
{
    struct rlimit no_core = {0, 0};
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        if (writing) {
            *at = 1;
        } else {
            (void)*at;
        }
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status);
}

static void the_unit_is_the_drivers(void **state)
{
    wf_storage_spec spec = spec_on(-1);
    uint64_t unit = 0;

    (void)state;
    begin((wf_double_options){0});
    assert_int_equal(cuda->granule(&spec, &unit), WEFT_OK);
    assert_int_equal(unit, PAGE);
    spec.device = 1;
    assert_int_equal(cuda->granule(&spec, &unit), WEFT_ERR_INVALID);
    assert_detail("CUDA device 1");
    expect_nothing_held();
}

static void parts_of_two_ranks_are_one_zeroed_range(void **state)
{
    rank a;
    rank b;

    (void)state;
    begin((wf_double_options){0});
    pair_open(&a, &b);
    assert_ptr_not_equal(a.base, b.base);
    for (uint64_t i = 0; i < 3 * PAGE; i++) {
        assert_int_equal(a.base[i], 0);
        a.base[i] = (char)(i % 251);
    }
    assert_memory_equal(a.base, b.base, 3 * PAGE);
    assert_true(faults(a.base + 3 * PAGE, false));
    cuda->close(a.state);
    assert_int_equal(b.base[2 * PAGE - 1], (char)((2 * PAGE - 1) % 251));
    cuda->close(b.state);
    expect_nothing_held();
}

static void nobody_gets_a_descriptor_of_one_who_is_alone(void **state)
{
    rank a;
    int fd = 7;

    (void)state;
    begin((wf_double_options){0});
    assert_int_equal(rank_open(&a, 0), WEFT_OK);
    cuda->close(a.state);
    a.spec.alone = true;
    assert_int_equal(cuda->open(&a.spec, RESERVE, (void **)&a.base, &a.state),
                     WEFT_OK);
    assert_int_equal(cuda->create(a.state, 0, PAGE, &fd), WEFT_OK);
    assert_int_equal(fd, -1);
    cuda->close(a.state);
    expect_nothing_held();
}

static void growth_keeps_what_is_there_and_can_be_undone(void **state)
{
    rank a;
    rank b;
    int fd = -1;

    (void)state;
    begin((wf_double_options){0});
    pair_open(&a, &b);
    a.base[0] = 42;
    assert_int_equal(cuda->create(b.state, 3 * PAGE, 5 * PAGE, &fd), WEFT_OK);
    assert_int_equal(cuda->attach(a.state, 3 * PAGE, 5 * PAGE, fd), WEFT_OK);
    b.base[8 * PAGE - 1] = 43;
    assert_int_equal(a.base[8 * PAGE - 1], 43);
    cuda->truncate(a.state, 3 * PAGE);
    cuda->truncate(b.state, 3 * PAGE);
    assert_true(faults(a.base + 3 * PAGE, false));
    assert_int_equal(b.base[0], 42);
    assert_int_equal(cuda->create(b.state, 3 * PAGE, PAGE, &fd), WEFT_OK);
    close(fd);
    assert_int_equal(b.base[3 * PAGE], 0);
    cuda->close(a.state);
    cuda->close(b.state);
    expect_nothing_held();
}

static void rows_behind_the_end_are_closed_and_cleared(void **state)
{
    rank a;
    rank b;

    (void)state;
    begin((wf_double_options){0});
    pair_open(&a, &b);
    memset(a.base, 1, 3 * PAGE);
    assert_int_equal(cuda->access(a.state, 2 * PAGE), WEFT_OK);
    assert_int_equal(cuda->access(b.state, 2 * PAGE), WEFT_OK);
    assert_true(faults(a.base + 2 * PAGE, false));
    assert_false(faults(a.base + 2 * PAGE - 1, true));
    cuda->discard(b.state, PAGE + 5, 2 * PAGE - 5);
    assert_true(faults(b.base + 2 * PAGE, false));
    assert_int_equal(cuda->access(a.state, 3 * PAGE), WEFT_OK);
    assert_int_equal(a.base[PAGE + 4], 1);
    for (uint64_t i = PAGE + 5; i < 3 * PAGE; i++) {
        assert_int_equal(a.base[i], 0);
    }
    cuda->close(a.state);
    cuda->close(b.state);
    expect_nothing_held();
}

static void a_view_can_be_read_only(void **state)
{
    rank a;
    rank b;
    void *view = NULL;
    const char *seen;

    (void)state;
    begin((wf_double_options){0});
    pair_open(&a, &b);
    assert_int_equal(cuda->view(a.state, 2 * PAGE + 1, &view), WEFT_OK);
    seen = view;
    b.base[2 * PAGE] = 9;
    b.base[1] = 8;
    assert_int_equal(seen[2 * PAGE], 9);
    assert_int_equal(seen[1], 8);
    assert_true(faults(view, true));
    assert_false(faults(a.base, true));
    assert_int_equal(wf_double_access(view, 0), WF_CU_READ);
    cuda->unview(a.state, view, 2 * PAGE + 1);
    assert_int_equal(wf_double_count().mappings, 4);
    assert_int_equal(cuda->view(a.state, 1, &view), WEFT_OK);
    cuda->unview(a.state, view, 1);
    cuda->close(a.state);
    cuda->close(b.state);
    expect_nothing_held();
}

static void another_device_is_granted_access_when_asked_for(void **state)
{
    rank a;
    rank b;
    int fd = -1;

    (void)state;
    begin((wf_double_options){.devices = 2});
    assert_int_equal(rank_open(&a, 0), WEFT_OK);
    assert_int_equal(rank_open(&b, 1), WEFT_OK);
    assert_int_equal(share(&a, &b), WEFT_OK);
    assert_int_equal(wf_cuda_device_of(b.state), 1);
    assert_int_equal(wf_double_access(a.base, 1), 0);
    assert_int_equal(wf_cuda_grant(a.state, 0), WEFT_OK);
    assert_int_equal(wf_double_access(a.base, 1), 0);
    assert_int_equal(wf_cuda_grant(a.state, 1), WEFT_OK);
    assert_int_equal(wf_cuda_grant(a.state, 1), WEFT_OK);
    assert_int_equal(wf_double_access(a.base, 1), WF_CU_READWRITE);
    assert_int_equal(wf_double_access(a.base + 2 * PAGE, 1), WF_CU_READWRITE);
    assert_int_equal(cuda->create(a.state, 3 * PAGE, PAGE, &fd), WEFT_OK);
    close(fd);
    assert_int_equal(wf_double_access(a.base + 3 * PAGE, 1), WF_CU_READWRITE);
    assert_int_equal(wf_cuda_grant(a.state, 2), WEFT_ERR_INVALID);
    cuda->close(b.state);
    cuda->close(a.state);
    expect_nothing_held();
}

static void devices_that_cannot_reach_each_other_are_named(void **state)
{
    rank a;
    rank b;
    int fd = -1;

    (void)state;
    begin((wf_double_options){.devices = 2, .no_peers = true});
    assert_int_equal(rank_open(&a, 0), WEFT_OK);
    assert_int_equal(rank_open(&b, 1), WEFT_OK);
    assert_int_equal(cuda->create(a.state, 0, PAGE, &fd), WEFT_OK);
    assert_int_equal(wf_cuda_grant(a.state, 1), WEFT_ERR_UNSUPPORTED);
    assert_detail("CUDA device 1 cannot reach the memory of device 0");
    assert_int_equal(cuda->attach(b.state, 0, PAGE, fd), WEFT_ERR_UNSUPPORTED);
    assert_detail("no peer access");
    cuda->close(a.state);
    cuda->close(b.state);
    expect_nothing_held();
}

static void too_much_is_told_of_with_numbers(void **state)
{
    rank a;
    int fd = -1;

    (void)state;
    begin((wf_double_options){.bytes = 1024 * PAGE});
    assert_int_equal(rank_open(&a, 0), WEFT_OK);
    cuda->close(a.state);
    assert_int_equal(
        cuda->open(&a.spec, 4096 * PAGE, (void **)&a.base, &a.state), WEFT_OK);
    assert_int_equal(cuda->create(a.state, 0, 2048 * PAGE, &fd),
                     WEFT_ERR_NOMEM);
    assert_detail("needs 8.0 MiB of CUDA device 0, of which 4.0 of 4.0 MiB");
    assert_int_equal(fd, -1);
    cuda->close(a.state);
    expect_nothing_held();
}

static void a_strange_descriptor_is_refused(void **state)
{
    rank a;
    rank b;
    int fd = -1;

    (void)state;
    begin((wf_double_options){0});
    pair_open(&a, &b);
    assert_int_equal(cuda->attach(a.state, 4 * PAGE, PAGE,
                                  open("/dev/null", O_RDWR | O_CLOEXEC)),
                     WEFT_ERR_PROTOCOL);
    assert_int_equal(cuda->create(b.state, 4 * PAGE, PAGE, &fd), WEFT_OK);
    /* Another size than was agreed; a place that is taken; outside. */
    assert_int_equal(cuda->attach(a.state, 4 * PAGE, 2 * PAGE, dup(fd)),
                     WEFT_ERR_INVALID);
    assert_int_equal(cuda->attach(a.state, 2 * PAGE, PAGE, dup(fd)),
                     WEFT_ERR_INVALID);
    assert_int_equal(cuda->attach(a.state, RESERVE, PAGE, dup(fd)),
                     WEFT_ERR_INVALID);
    assert_int_equal(cuda->attach(a.state, 4 * PAGE, PAGE, fd), WEFT_OK);
    cuda->close(a.state);
    cuda->close(b.state);
    expect_nothing_held();
}

/* All that a region does once. The descriptor of a failed step is not lost. */
static weft_status live_once(void)
{
    rank a;
    rank b;
    void *view = NULL;
    weft_status st = rank_open(&a, 0);

    if (st != WEFT_OK) {
        return st;
    }
    st = rank_open(&b, 1);
    if (st == WEFT_OK) {
        st = share(&a, &b);
        if (st == WEFT_OK) {
            st = wf_cuda_grant(a.state, 1);
        }
        if (st == WEFT_OK) {
            st = cuda->view(a.state, 3 * PAGE, &view);
        }
        if (st == WEFT_OK) {
            cuda->unview(a.state, view, 3 * PAGE);
        }
        cuda->close(b.state);
    }
    cuda->close(a.state);
    return st;
}

static void any_call_may_fail_and_leaves_nothing(void **state)
{
    static const int errors[] = {WF_CU_NO_MEMORY, WF_CU_INVALID, 999};

    (void)state;
    for (size_t e = 0; e < 3; e++) {
        unsigned nth = 0;
        unsigned failed = 0;

        begin((wf_double_options){.devices = 2});
        do {
            wf_double_fail_nth(++nth, errors[e]);
            failed += live_once() != WEFT_OK;
            expect_no_holdings();
        } while (wf_double_fail_nth(0, 0) == 0);
        expect_nothing_held();
        assert_true(failed > 40);
    }
}

static void a_create_that_failed_can_be_repeated(void **state)
{
    unsigned nth = 0;
    int fd = -1;
    rank a;

    (void)state;
    begin((wf_double_options){0});
    assert_int_equal(rank_open(&a, 0), WEFT_OK);
    do {
        wf_double_fail_nth(++nth, WF_CU_NO_MEMORY);
        if (cuda->create(a.state, 0, PAGE, &fd) == WEFT_OK) {
            close(fd);
            cuda->truncate(a.state, 0);
        }
        assert_int_equal(wf_double_count().mappings, 0);
        assert_int_equal(wf_double_count().handles, 0);
    } while (wf_double_fail_nth(0, 0) == 0);
    assert_true(nth > 5);
    cuda->close(a.state);
    expect_nothing_held();
}

static void any_allocation_may_fail_and_leaves_nothing(void **state)
{
    unsigned nth = 0;
    weft_status st;

    (void)state;
    begin((wf_double_options){.devices = 2});
    do {
        wf_alloc_fail_nth(++nth);
        st = live_once();
        wf_alloc_fail_nth(0);
        assert_true(st == WEFT_OK || st == WEFT_ERR_NOMEM);
        expect_no_holdings();
    } while (st != WEFT_OK);
    expect_nothing_held();
    assert_true(nth > 10);
}

static void a_forked_child_lets_go_of_its_own_only(void **state)
{
    rank a;
    rank b;
    void *view = NULL;
    int status = 0;
    pid_t child;

    (void)state;
    begin((wf_double_options){0});
    pair_open(&a, &b);
    assert_int_equal(cuda->view(a.state, PAGE, &view), WEFT_OK);
    child = fork();
    if (child == 0) {
        wf_double_counts before = wf_double_count();
        wf_double_counts after;

        cuda->unview(a.state, view, PAGE);
        cuda->truncate(b.state, 0);
        cuda->close(a.state);
        cuda->close(b.state);
        after = wf_double_count();
        _exit(memcmp(&before, &after, sizeof(after)) == 0 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    a.base[0] = 5;
    assert_int_equal(b.base[0], 5);
    cuda->unview(a.state, view, PAGE);
    cuda->close(a.state);
    cuda->close(b.state);
    expect_nothing_held();
}

/* Kernels run on both devices; nothing was taken from them. */
static void expect_untouched(void)
{
    assert_int_equal(wf_double_count().torn, 0);
    assert_false(wf_double_busy(0));
    assert_false(wf_double_busy(1));
    assert_int_equal(wf_double_count().capture_mode, 0);
    wf_double_launch(0);
    wf_double_launch(1);
}

static void memory_goes_when_the_devices_are_done_with_it(void **state)
{
    rank a;
    rank b;
    void *view = NULL;

    (void)state;
    begin((wf_double_options){.devices = 2});
    pair_open(&a, &b);
    assert_int_equal(wf_cuda_grant(a.state, 1), WEFT_OK);
    assert_int_equal(wf_cuda_grant(b.state, 1), WEFT_OK);
    assert_int_equal(cuda->view(a.state, PAGE, &view), WEFT_OK);
    expect_untouched();
    cuda->unview(a.state, view, PAGE);
    expect_untouched();
    assert_int_equal(cuda->access(a.state, 2 * PAGE), WEFT_OK);
    expect_untouched();
    cuda->truncate(a.state, 2 * PAGE);
    expect_untouched();
    cuda->close(b.state);
    expect_untouched();
    assert_int_equal(cuda->view(a.state, PAGE, &view), WEFT_OK);
    cuda->close(a.state);
    expect_untouched();
    expect_nothing_held();
}

/* What grows or shows more takes nothing away, and waits for nobody. */
static void kernels_run_on_while_memory_comes(void **state)
{
    rank a;
    rank b;
    void *view = NULL;

    (void)state;
    begin((wf_double_options){.devices = 2});
    wf_double_launch(0);
    pair_open(&a, &b);
    assert_int_equal(wf_cuda_grant(a.state, 1), WEFT_OK);
    assert_int_equal(cuda->view(a.state, PAGE, &view), WEFT_OK);
    assert_true(wf_double_busy(0));
    assert_int_equal(wf_double_count().torn, 0);
    cuda->close(a.state);
    cuda->close(b.state);
    expect_nothing_held();
}

static void the_end_of_the_driver_is_no_error(void **state)
{
    rank a;
    rank b;
    void *view = NULL;

    (void)state;
    begin((wf_double_options){.devices = 2});
    pair_open(&a, &b);
    assert_int_equal(wf_cuda_grant(a.state, 1), WEFT_OK);
    assert_int_equal(cuda->view(a.state, PAGE, &view), WEFT_OK);
    wf_double_end();
    cuda->unview(a.state, view, PAGE);
    cuda->close(b.state);
    cuda->close(a.state);
    assert_int_equal(logged, 0);
    begin((wf_double_options){0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_unit_is_the_drivers),
        cmocka_unit_test(parts_of_two_ranks_are_one_zeroed_range),
        cmocka_unit_test(nobody_gets_a_descriptor_of_one_who_is_alone),
        cmocka_unit_test(growth_keeps_what_is_there_and_can_be_undone),
        cmocka_unit_test(rows_behind_the_end_are_closed_and_cleared),
        cmocka_unit_test(a_view_can_be_read_only),
        cmocka_unit_test(another_device_is_granted_access_when_asked_for),
        cmocka_unit_test(devices_that_cannot_reach_each_other_are_named),
        cmocka_unit_test(too_much_is_told_of_with_numbers),
        cmocka_unit_test(a_strange_descriptor_is_refused),
        cmocka_unit_test(any_call_may_fail_and_leaves_nothing),
        cmocka_unit_test(a_create_that_failed_can_be_repeated),
        cmocka_unit_test(any_allocation_may_fail_and_leaves_nothing),
        cmocka_unit_test(a_forked_child_lets_go_of_its_own_only),
        cmocka_unit_test(memory_goes_when_the_devices_are_done_with_it),
        cmocka_unit_test(kernels_run_on_while_memory_comes),
        cmocka_unit_test(the_end_of_the_driver_is_no_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
