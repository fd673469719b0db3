/* SPDX-License-Identifier: Apache-2.0 */
/* The table of driver functions: where it comes from, which device is meant,
 * and that the caller's own context is never changed for good. */
#include "mem/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_double/double.h"
#include "wt.h"
#include "wt_cmocka.h"

#define assert_detail(text) assert_non_null(strstr(weft_error_detail(), text))

static const wf_driver *start(int devices)
{
    wf_double_options options = {
        .devices = devices, .granule = 4096, .tag = (uint32_t)getpid()};

    return wf_double_start(&options);
}

static void a_machine_without_a_driver_is_told_of(void **state)
{
    const wf_driver *driver = NULL;
    weft_status st = wf_driver_open("auto", &driver);

    (void)state;
    if (st == WEFT_OK) {
        assert_non_null(driver);
        skip();
    }
    assert_int_equal(st, WEFT_ERR_UNSUPPORTED);
    assert_null(driver);
    assert_true(strstr(weft_error_detail(), "libcuda.so.1") != NULL ||
                strstr(weft_error_detail(), "cuInit failed") != NULL);
}

static void a_given_table_is_used_whatever_the_name(void **state)
{
    const wf_driver *driver = NULL;
    const wf_driver *given = start(1);

    (void)state;
    wf_driver_use(given);
    assert_int_equal(wf_driver_open("auto", &driver), WEFT_OK);
    assert_ptr_equal(driver, given);
    wf_driver_use(NULL);
}

/* One process has one driver, so the good one comes last. */
static void the_setting_names_a_library_that_stands_in(void **state)
{
    static const char *const bad[] = {"0", "99", "x", "1:2:4097", "1:2:4096:1"};
    const wf_driver *driver = NULL;
    int devices = 0;

    (void)state;
    assert_int_equal(wf_driver_open("/nowhere/lib.so", &driver),
                     WEFT_ERR_UNSUPPORTED);
    assert_detail("/nowhere/lib.so");
    assert_int_equal(wf_driver_open("libm.so.6", &driver),
                     WEFT_ERR_UNSUPPORTED);
    assert_detail("libm.so.6 provides no weft_driver_table");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("CUDA_DOUBLE", bad[i], 1);
        assert_int_equal(wf_driver_open(WT_CUDA_DOUBLE, &driver),
                         WEFT_ERR_UNSUPPORTED);
    }
    setenv("CUDA_DOUBLE", "2:64M:4096", 1);
    assert_int_equal(wf_driver_open(WT_CUDA_DOUBLE, &driver), WEFT_OK);
    assert_int_equal(driver->cuDeviceGetCount(&devices), WF_CU_OK);
    assert_int_equal(devices, 2);
    assert_true(driver->in_host_memory);
    assert_int_equal(wf_driver_open(WT_CUDA_DOUBLE, &driver), WEFT_OK);
    assert_int_equal(wf_driver_open("auto", &driver), WEFT_ERR_INVALID);
    assert_detail("cannot use 'auto' as well");
}

static void the_device_is_the_one_asked_for(void **state)
{
    const wf_driver *driver = start(2);
    int number = -1;

    (void)state;
    assert_int_equal(wf_device_choose(driver, 1, 0, &number), WEFT_OK);
    assert_int_equal(number, 1);
    assert_int_equal(wf_device_choose(driver, 2, 0, &number), WEFT_ERR_INVALID);
    assert_detail("out of range (2 devices)");
    assert_int_equal(wf_device_choose(driver, -2, 0, &number),
                     WEFT_ERR_INVALID);
}

static void ranks_spread_over_the_devices(void **state)
{
    const wf_driver *driver = start(2);
    int number = -1;

    (void)state;
    for (uint32_t local = 0; local < 5; local++) {
        assert_int_equal(wf_device_choose(driver, -1, local, &number), WEFT_OK);
        assert_int_equal(number, local % 2);
    }
}

static void the_current_device_comes_before_that(void **state)
{
    const wf_driver *driver = start(2);
    wf_device one = {0};
    int number = -1;

    (void)state;
    assert_int_equal(wf_device_open(driver, 1, &one), WEFT_OK);
    assert_int_equal(wf_device_enter(&one), WEFT_OK);
    assert_int_equal(wf_device_choose(driver, -1, 0, &number), WEFT_OK);
    assert_int_equal(number, 1);
    wf_device_leave(&one);
    wf_device_close(&one);
}

static void entering_a_device_changes_nothing_for_good(void **state)
{
    const wf_driver *driver = start(2);
    wf_device device[2] = {{0}, {0}};
    wf_cu_context *before = NULL;
    wf_cu_context *after = NULL;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wf_device_open(driver, i, &device[i]), WEFT_OK);
    }
    assert_int_equal(driver->cuCtxPushCurrent(device[0].context), WF_CU_OK);
    driver->cuCtxGetCurrent(&before);
    assert_int_equal(wf_device_enter(&device[1]), WEFT_OK);
    driver->cuCtxGetCurrent(&after);
    assert_ptr_equal(after, device[1].context);
    wf_device_leave(&device[1]);
    driver->cuCtxGetCurrent(&after);
    assert_ptr_equal(after, before);
    driver->cuCtxPopCurrent(&after);
    for (int i = 0; i < 2; i++) {
        wf_device_close(&device[i]);
        wf_device_close(&device[i]);
    }
    assert_int_equal(wf_double_count().contexts, 0);
    assert_int_equal(wf_double_count().depth, 0);
}

static void waiting_is_for_one_device_and_changes_nothing(void **state)
{
    const wf_driver *driver = start(2);
    wf_device device = {0};

    (void)state;
    wf_device_wait(&device);
    assert_int_equal(wf_device_open(driver, 1, &device), WEFT_OK);
    wf_double_launch(0);
    wf_double_launch(1);
    wf_device_wait(&device);
    assert_true(wf_double_busy(0));
    assert_false(wf_double_busy(1));
    assert_int_equal(wf_double_count().depth, 0);
    assert_int_equal(wf_double_count().capture_mode, 0);
    /* A context that is broken: the wait ends, and nobody is told. */
    for (unsigned nth = 1; nth <= 3; nth++) {
        wf_double_fail_nth(nth, WF_CU_ILLEGAL_ADDRESS);
        wf_device_wait(&device);
        assert_int_equal(wf_double_fail_nth(0, 0), 0);
        assert_int_equal(wf_double_count().depth, 0);
        assert_int_equal(wf_double_count().capture_mode, 0);
    }
    wf_device_close(&device);
}

static void opening_survives_any_failed_call(void **state)
{
    const wf_driver *driver = start(1);
    wf_device device = {0};
    unsigned nth = 0;
    weft_status st;

    (void)state;
    do {
        wf_double_fail_nth(++nth, WF_CU_NOT_PERMITTED);
        st = wf_device_open(driver, 0, &device);
        if (st == WEFT_OK) {
            st = wf_device_enter(&device);
            if (st == WEFT_OK) {
                wf_device_leave(&device);
            }
            wf_device_close(&device);
        }
        assert_true(st == WEFT_OK || st == WEFT_ERR_DENIED);
        assert_int_equal(wf_double_count().contexts, 0);
        assert_int_equal(wf_double_count().depth, 0);
    } while (wf_double_fail_nth(0, 0) == 0);
    assert_true(nth > 3);
}

static void an_error_has_its_name(void **state)
{
    const wf_driver *driver = start(1);

    (void)state;
    assert_int_equal(wf_driver_fail(driver, WF_CU_NO_MEMORY, "part %d", 7),
                     WEFT_ERR_NOMEM);
    assert_string_equal(weft_error_detail(),
                        "part 7: CUDA_ERROR_OUT_OF_MEMORY (2)");
    assert_int_equal(wf_driver_fail(driver, 12345, "x"), WEFT_ERR_SYSTEM);
    assert_detail("12345");
}

static void a_forked_child_is_kept_out(void **state)
{
    const wf_driver *driver = start(1);
    wf_device device = {0};
    int status = 0;
    pid_t child;

    (void)state;
    assert_int_equal(wf_device_open(driver, 0, &device), WEFT_OK);
    child = fork();
    if (child == 0) {
        bool ok = wf_device_enter(&device) == WEFT_ERR_UNSUPPORTED;

        wf_device_close(&device);
        _exit(ok && wf_double_count().contexts == 1 ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    wf_device_close(&device);
}

static void an_ended_driver_is_no_error_in_closing(void **state)
{
    const wf_driver *driver = start(1);
    wf_device device = {0};

    (void)state;
    assert_int_equal(wf_device_open(driver, 0, &device), WEFT_OK);
    wf_double_end();
    assert_int_equal(wf_device_enter(&device), WEFT_ERR_CLOSED);
    wf_device_close(&device);
    assert_null(device.driver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_without_a_driver_is_told_of),
        cmocka_unit_test(a_given_table_is_used_whatever_the_name),
        cmocka_unit_test(the_setting_names_a_library_that_stands_in),
        cmocka_unit_test(the_device_is_the_one_asked_for),
        cmocka_unit_test(ranks_spread_over_the_devices),
        cmocka_unit_test(the_current_device_comes_before_that),
        cmocka_unit_test(entering_a_device_changes_nothing_for_good),
        cmocka_unit_test(waiting_is_for_one_device_and_changes_nothing),
        cmocka_unit_test(opening_survives_any_failed_call),
        cmocka_unit_test(an_error_has_its_name),
        cmocka_unit_test(a_forked_child_is_kept_out),
        cmocka_unit_test(an_ended_driver_is_no_error_in_closing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
