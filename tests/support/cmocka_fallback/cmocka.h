/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for cmocka, for machines that do not have it: the part of its
 * interface that the tests use, with the same meaning. A failed assertion
 * prints where and what, and leaves the test by longjmp; the program exits
 * with the number of tests that failed.
 *
 * As with cmocka itself, the jump leads to the thread that runs the tests, so
 * assertions belong into that thread. The few variables are weak, so that all
 * files of one program share them though each includes this header. */
#ifndef WEFT_CMOCKA_FALLBACK_H
#define WEFT_CMOCKA_FALLBACK_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*CMUnitTestFunction)(void **state);
typedef int (*CMFixtureFunction)(void **state);

struct CMUnitTest {
    const char *name;
    CMUnitTestFunction test_func;
    CMFixtureFunction setup_func;
    CMFixtureFunction teardown_func;
    void *initial_state;
};

/* The one from which all others come. */
#define cmocka_unit_test_prestate_setup_teardown(f, setup, teardown, state)    \
    {                                                                          \
        .name = #f, .test_func = f, .setup_func = setup,                       \
        .teardown_func = teardown, .initial_state = state                      \
    }
#define cmocka_unit_test_setup_teardown(f, setup, teardown)                    \
    cmocka_unit_test_prestate_setup_teardown(f, setup, teardown, NULL)
#define cmocka_unit_test_prestate(f, state)                                    \
    cmocka_unit_test_prestate_setup_teardown(f, NULL, NULL, state)
#define cmocka_unit_test_setup(f, setup)                                       \
    cmocka_unit_test_setup_teardown(f, setup, NULL)
#define cmocka_unit_test_teardown(f, teardown)                                 \
    cmocka_unit_test_setup_teardown(f, NULL, teardown)
#define cmocka_unit_test(f) cmocka_unit_test_setup_teardown(f, NULL, NULL)

enum { CMF_PASSED = 0, CMF_FAILED = 1, CMF_SKIPPED = 2 };

/* Where the running test is left to; meaningful only while one runs. */
__attribute__((weak)) jmp_buf cmf_leave;
__attribute__((weak)) int cmf_running;

__attribute__((noreturn, unused)) static void cmf_end_test(int how)
{
    fflush(NULL);
    if (cmf_running) {
        longjmp(cmf_leave, how);
    }
    exit(how == CMF_SKIPPED ? 77 : 1);
}

__attribute__((format(printf, 1, 2), unused)) static void
print_message(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    fflush(stdout);
}

__attribute__((format(printf, 1, 2), unused)) static void
print_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
}

__attribute__((noreturn, format(printf, 3, 4), unused)) static void
cmf_fail(const char *file, int line, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n%s:%d: error: Failure!\n\n", file, line);
    cmf_end_test(CMF_FAILED);
}

#define fail_msg(...) cmf_fail(__FILE__, __LINE__, __VA_ARGS__)
#define fail() fail_msg("fail() was called")
#define skip() cmf_end_test(CMF_SKIPPED)

__attribute__((unused)) static void cmf_true(int holds, const char *text,
                                             const char *file, int line)
{
    if (!holds) {
        cmf_fail(file, line, "%s does not hold", text);
    }
}

/* `equal` says which of the two relations is wanted. */
__attribute__((unused)) static void
cmf_integers(uintmax_t a, uintmax_t b, int equal, const char *file, int line)
{
    if ((a == b) != equal) {
        cmf_fail(file, line, "%#" PRIxMAX " %s %#" PRIxMAX, a,
                 equal ? "!=" : "==", b);
    }
}

__attribute__((unused)) static void
cmf_strings(const char *a, const char *b, int equal, const char *file, int line)
{
    if ((strcmp(a, b) == 0) != equal) {
        cmf_fail(file, line, "\"%s\" %s \"%s\"", a, equal ? "!=" : "==", b);
    }
}

__attribute__((unused)) static void cmf_memory(const void *a, const void *b,
                                               size_t n, int equal,
                                               const char *file, int line)
{
    const unsigned char *x = a;
    const unsigned char *y = b;
    size_t i = 0;

    while (i < n && x[i] == y[i]) {
        i++;
    }
    if (equal && i < n) {
        cmf_fail(file, line, "byte %zu of %zu: 0x%02x != 0x%02x", i, n, x[i],
                 y[i]);
    }
    if (!equal && i == n) {
        cmf_fail(file, line, "%zu bytes are the same", n);
    }
}

__attribute__((unused)) static void cmf_range(uintmax_t value, uintmax_t low,
                                              uintmax_t high, int inside,
                                              const char *file, int line)
{
    if ((value >= low && value <= high) != inside) {
        cmf_fail(file, line, "%" PRIuMAX " is %s %" PRIuMAX "..%" PRIuMAX,
                 value, inside ? "not in" : "in", low, high);
    }
}

__attribute__((unused)) static void cmf_floats(double a, double b,
                                               double epsilon, int equal,
                                               const char *file, int line)
{
    double distance = a > b ? a - b : b - a;

    if ((a == b || distance <= epsilon) != equal) {
        cmf_fail(file, line, "%.17g %s %.17g", a, equal ? "!=" : "==", b);
    }
}

#define CMF_HERE __FILE__, __LINE__

#define assert_true(c) cmf_true((c) ? 1 : 0, #c, CMF_HERE)
#define assert_false(c) cmf_true((c) ? 0 : 1, "!(" #c ")", CMF_HERE)
#define assert_non_null(p) cmf_true((p) != NULL, #p " != NULL", CMF_HERE)
#define assert_null(p) cmf_true((p) == NULL, #p " == NULL", CMF_HERE)
#define assert_ptr_equal(a, b)                                                 \
    cmf_integers((uintptr_t)(a), (uintptr_t)(b), 1, CMF_HERE)
#define assert_ptr_not_equal(a, b)                                             \
    cmf_integers((uintptr_t)(a), (uintptr_t)(b), 0, CMF_HERE)
#define assert_int_equal(a, b)                                                 \
    cmf_integers((uintmax_t)(a), (uintmax_t)(b), 1, CMF_HERE)
#define assert_int_not_equal(a, b)                                             \
    cmf_integers((uintmax_t)(a), (uintmax_t)(b), 0, CMF_HERE)
#define assert_float_equal(a, b, epsilon) cmf_floats(a, b, epsilon, 1, CMF_HERE)
#define assert_float_not_equal(a, b, epsilon)                                  \
    cmf_floats(a, b, epsilon, 0, CMF_HERE)
#define assert_string_equal(a, b) cmf_strings(a, b, 1, CMF_HERE)
#define assert_string_not_equal(a, b) cmf_strings(a, b, 0, CMF_HERE)
#define assert_memory_equal(a, b, n) cmf_memory(a, b, n, 1, CMF_HERE)
#define assert_memory_not_equal(a, b, n) cmf_memory(a, b, n, 0, CMF_HERE)
#define assert_in_range(value, low, high)                                      \
    cmf_range((uintmax_t)(value), (uintmax_t)(low), (uintmax_t)(high), 1,      \
              CMF_HERE)
#define assert_not_in_range(value, low, high)                                  \
    cmf_range((uintmax_t)(value), (uintmax_t)(low), (uintmax_t)(high), 0,      \
              CMF_HERE)
#define assert_return_code(code, error)                                        \
    cmf_true((code) >= 0, #code " >= 0", CMF_HERE)

/* Run one test between its fixtures. A separate function, so that nothing of
 * the caller is kept in a register across the jump. */
__attribute__((unused)) static int cmf_run_one(const struct CMUnitTest *test,
                                               void **state)
{
    int how;

    if (test->setup_func != NULL && test->setup_func(state) != 0) {
        print_error("%s: its setup failed\n", test->name);
        return CMF_FAILED;
    }
    how = setjmp(cmf_leave);
    if (how == CMF_PASSED) {
        cmf_running = 1;
        test->test_func(state);
    }
    cmf_running = 0;
    if (test->teardown_func != NULL && test->teardown_func(state) != 0) {
        print_error("%s: its teardown failed\n", test->name);
        return CMF_FAILED;
    }
    return how;
}

__attribute__((unused)) static int
cmf_run_group(const char *group, const struct CMUnitTest *tests, size_t n,
              CMFixtureFunction setup, CMFixtureFunction teardown)
{
    static const char *const words[] = {"      OK", "  FAILED", " SKIPPED"};
    void *group_state = NULL;
    int failed = 0;

    print_message("[==========] %s: Running %zu test(s).\n", group, n);
    if (setup != NULL && setup(&group_state) != 0) {
        print_error("%s: the group's setup failed\n", group);
        return (int)n;
    }
    for (size_t i = 0; i < n; i++) {
        void *state = tests[i].initial_state != NULL ? tests[i].initial_state
                                                     : group_state;
        int how;

        print_message("[ RUN      ] %s\n", tests[i].name);
        how = cmf_run_one(&tests[i], &state);
        print_message("[ %s ] %s\n", words[how], tests[i].name);
        failed += how == CMF_FAILED;
    }
    if (teardown != NULL && teardown(&group_state) != 0) {
        print_error("%s: the group's teardown failed\n", group);
        failed++;
    }
    print_message("[==========] %s: %zu test(s) run, %d failed.\n", group, n,
                  failed);
    return failed;
}

#define cmocka_run_group_tests_name(group, tests, setup, teardown)             \
    cmf_run_group(group, tests, sizeof(tests) / sizeof((tests)[0]), setup,     \
                  teardown)
#define cmocka_run_group_tests(tests, setup, teardown)                         \
    cmocka_run_group_tests_name(#tests, tests, setup, teardown)

#endif
