/* SPDX-License-Identifier: Apache-2.0 */
/* src/base: errors, settings, allocation, log and the keyed hash. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <weft/log.h>
#include <weft/settings.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/time.h"
#include "wt_cmocka.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* --- status -------------------------------------------------------------- */

static void every_status_has_its_own_name_and_text(void **state)
{
    static const weft_status all[] = {
#define ITEM(name, number, text) WEFT_##name,
        WEFT_STATUS_TABLE(ITEM)
#undef ITEM
    };

    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(all[i], all[j]);
            assert_string_not_equal(weft_status_text(all[i]),
                                    weft_status_text(all[j]));
        }
        assert_true(all[i] <= 0);
        assert_true(strncmp(weft_status_name(all[i]), "WEFT_", 5) == 0);
    }
    assert_string_equal(weft_status_name(WEFT_ERR_PEER), "WEFT_ERR_PEER");
    assert_string_equal(weft_status_name((weft_status)-999), "WEFT_UNKNOWN");
    assert_non_null(weft_status_text((weft_status)-999));
}

static void only_known_numbers_are_taken_as_a_status(void **state)
{
    (void)state;
    assert_int_equal(wf_status_parse(0), WEFT_OK);
    assert_int_equal(wf_status_parse(-1), WEFT_ERR_INVALID);
    assert_int_equal(wf_status_parse(WEFT_ERR_ABORTED), WEFT_ERR_ABORTED);
    assert_int_equal(wf_status_parse(1), WEFT_ERR_PROTOCOL);
    assert_int_equal(wf_status_parse(-999), WEFT_ERR_PROTOCOL);
    assert_int_equal(wf_status_parse(INT32_MIN), WEFT_ERR_PROTOCOL);
}

static void a_failure_records_its_detail(void **state)
{
    (void)state;
    assert_int_equal(wf_fail(WEFT_ERR_PEER, "rank %u of %s", 3u, "a"),
                     WEFT_ERR_PEER);
    assert_string_equal(weft_error_detail(), "rank 3 of a");
    wf_fail(WEFT_ERR_INVALID, "then: %s", weft_error_detail());
    assert_string_equal(weft_error_detail(), "then: rank 3 of a");
}

static void a_detail_that_is_too_long_is_cut_off(void **state)
{
    char text[2 * WF_DETAIL_MAX];

    (void)state;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    wf_fail(WEFT_ERR_INVALID, "%s", text);
    assert_int_equal(strlen(weft_error_detail()), WF_DETAIL_MAX - 1);
}

static void *detail_of_a_new_thread(void *arg)
{
    *(size_t *)arg = strlen(weft_error_detail());
    return NULL;
}

static void details_belong_to_their_thread(void **state)
{
    pthread_t thread;
    size_t length = 1;

    (void)state;
    wf_fail(WEFT_ERR_INVALID, "mine");
    assert_int_equal(
        pthread_create(&thread, NULL, detail_of_a_new_thread, &length), 0);
    pthread_join(thread, NULL);
    assert_int_equal(length, 0);
    assert_string_equal(weft_error_detail(), "mine");
}

static void errno_picks_the_status(void **state)
{
    static const struct {
        int err;
        weft_status st;
    } cases[] = {{ENOMEM, WEFT_ERR_NOMEM},  {EPERM, WEFT_ERR_DENIED},
                 {EACCES, WEFT_ERR_DENIED}, {ETIMEDOUT, WEFT_ERR_TIMEOUT},
                 {ENOSPC, WEFT_ERR_SYSTEM}, {EMFILE, WEFT_ERR_SYSTEM}};

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        errno = cases[i].err;
        assert_int_equal(wf_fail_errno("open %s", "f"), cases[i].st);
        assert_non_null(strstr(weft_error_detail(), "open f: "));
        assert_non_null(strstr(weft_error_detail(), strerror(cases[i].err)));
    }
}

/* --- settings ------------------------------------------------------------ */

static void sizes_are_read_with_their_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},           {"4096", 4096},
                {"64K", 65536},     {"64k", 65536},
                {"2M", 2u << 20},   {"1G", 1u << 30},
                {"1T", 1ull << 40}, {"18446744073709551615", UINT64_MAX}};
    static const char *const bad[] = {"",
                                      "K",
                                      "-1",
                                      "1KB",
                                      "1 K",
                                      "0x10x",
                                      "1P",
                                      "99999999999999999999",
                                      "17179869184G"};
    uint64_t v;

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_int_equal(wf_parse_bytes(good[i].text, &v), WEFT_OK);
        assert_true(v == good[i].bytes);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        v = 7;
        assert_int_equal(wf_parse_bytes(bad[i], &v), WEFT_ERR_INVALID);
        assert_true(v == 7);
    }
}

static void durations_are_read_with_their_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {{"0", 0},
                {"50us", 50000},
                {"20ms", 20 * WF_MS},
                {"5s", 5 * WF_SEC},
                {"5", 5 * WF_SEC},
                {"1.5s", 1500 * WF_MS},
                {"30m", 1800 * WF_SEC},
                {"1h", 3600 * WF_SEC}};
    static const char *const bad[] = {"",     "s",   "-1s", "5 s", "5sec",
                                      "1e99", "nan", "inf", "5d"};
    uint64_t v;

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_int_equal(wf_parse_duration(good[i].text, &v), WEFT_OK);
        assert_true(v == good[i].ns);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        v = 7;
        assert_int_equal(wf_parse_duration(bad[i], &v), WEFT_ERR_INVALID);
        assert_true(v == 7);
    }
}

static int without_settings(void **state)
{
    weft_setting_info info;

    (void)state;
    for (size_t i = 0; weft_setting_get(i, &info) == WEFT_OK; i++) {
        unsetenv(info.name);
    }
    return 0;
}

static void code_wins_over_environment_wins_over_default(void **state)
{
    wf_settings s;

    (void)state;
    assert_int_equal(wf_settings_load(NULL, &s), WEFT_OK);
    assert_true(s.timeout_ns == 1800 * WF_SEC);
    assert_true(s.spin_ns == UINT64_MAX);
    assert_int_equal(s.huge, WF_HUGE_THP);
    assert_true(s.cma);

    setenv("WEFT_TIMEOUT", "7s", 1);
    setenv("WEFT_SHM_CMA", "0", 1);
    assert_int_equal(wf_settings_load("", &s), WEFT_OK);
    assert_true(s.timeout_ns == 7 * WF_SEC);
    assert_false(s.cma);

    assert_int_equal(wf_settings_load("  TIMEOUT=9s   NODE=left ", &s),
                     WEFT_OK);
    assert_true(s.timeout_ns == 9 * WF_SEC);
    assert_string_equal(s.node, "left");
    assert_false(s.cma);
}

static void an_empty_variable_is_as_good_as_none(void **state)
{
    wf_settings s;

    (void)state;
    setenv("WEFT_TIMEOUT", "", 1);
    assert_int_equal(wf_settings_load(NULL, &s), WEFT_OK);
    assert_true(s.timeout_ns == 1800 * WF_SEC);
}

static void a_bad_setting_is_named_and_nothing_is_written(void **state)
{
    static const char *const bad[][2] = {
        {"TIMEOUT=soon", "WEFT_TIMEOUT"},
        {"SHM_RING_BYTES=many", "WEFT_SHM_RING_BYTES"},
        {"HUGE=yes", "WEFT_HUGE"},
        {"SHM_CMA=maybe", "WEFT_SHM_CMA"},
        {"MESH_RANKS=-1", "WEFT_MESH_RANKS"},
        {"SPIN=never", "WEFT_SPIN"},
        {"LOG=loud", "WEFT_LOG"},
        {"NOSUCH=1", "NOSUCH"},
        {"RANK=1", "RANK"}, /* cannot be given in code */
        {"TIMEOUT", "TIMEOUT"},
        {"=", "''"},
    };
    wf_settings before;
    wf_settings s;

    (void)state;
    memset(&before, 0x5a, sizeof(before));
    for (size_t i = 0; i < COUNT(bad); i++) {
        s = before;
        assert_int_equal(wf_settings_load(bad[i][0], &s), WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_detail(), bad[i][1]));
        assert_memory_equal(&s, &before, sizeof(s));
    }
    setenv("WEFT_TIMEOUT", "soon", 1);
    assert_int_equal(wf_settings_load(NULL, &s), WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "WEFT_TIMEOUT"));
}

static void a_value_longer_than_its_field_is_refused(void **state)
{
    char text[512] = "NODE=";
    wf_settings s;

    (void)state;
    memset(text + 5, 'n', 100);
    assert_int_equal(wf_settings_load(text, &s), WEFT_ERR_INVALID);
    memset(text + 5, 'n', 400);
    assert_int_equal(wf_settings_load(text, &s), WEFT_ERR_INVALID);
}

static void every_setting_has_help_and_a_good_default(void **state)
{
    weft_setting_info info;
    size_t n = 0;

    (void)state;
    for (; weft_setting_get(n, &info) == WEFT_OK; n++) {
        assert_true(strncmp(info.name, "WEFT_", 5) == 0);
        assert_string_equal(info.source, "default");
        assert_string_equal(info.value, info.fallback);
        assert_true(strlen(info.help) > 10);
    }
    assert_true(n > 10);
    assert_int_equal(weft_setting_get(n, &info), WEFT_ERR_INVALID);
    assert_int_equal(weft_setting_get(SIZE_MAX, &info), WEFT_ERR_INVALID);
    assert_int_equal(weft_setting_get(0, NULL), WEFT_ERR_INVALID);
}

static void the_table_shows_what_the_environment_says(void **state)
{
    weft_setting_info info;
    bool seen = false;

    (void)state;
    setenv("WEFT_TIMEOUT", "7s", 1);
    for (size_t i = 0; weft_setting_get(i, &info) == WEFT_OK; i++) {
        if (strcmp(info.name, "WEFT_TIMEOUT") == 0) {
            assert_string_equal(info.value, "7s");
            assert_string_equal(info.source, "environment");
            seen = true;
        }
    }
    assert_true(seen);
}

/* --- log ----------------------------------------------------------------- */

typedef struct heard {
    int lines;
    weft_log_level level;
    char text[1024];
} heard;

static void hear(weft_log_level level, const char *text, void *ctx)
{
    heard *h = ctx;

    h->lines++;
    h->level = level;
    strncpy(h->text, text, sizeof(h->text) - 1);
}

static int restore_log(void **state)
{
    (void)state;
    weft_log_to(NULL, NULL);
    weft_log_set_level(WEFT_LOG_WARN);
    return 0;
}

static void lines_up_to_the_level_go_to_the_sink(void **state)
{
    heard h = {0};

    (void)state;
    weft_log_to(hear, &h);
    weft_log_set_level(WEFT_LOG_INFO);
    wf_log(WEFT_LOG_INFO, "rank %d over %s", 3, "shm");
    assert_int_equal(h.lines, 1);
    assert_int_equal(h.level, WEFT_LOG_INFO);
    assert_string_equal(h.text, "rank 3 over shm");
    wf_log(WEFT_LOG_DEBUG, "not shown");
    assert_int_equal(h.lines, 1);
    assert_true(wf_log_on(WEFT_LOG_ERROR));
    assert_false(wf_log_on(WEFT_LOG_DEBUG));
}

static void modules_write_lines_as_they_are(void **state)
{
    heard h = {0};

    (void)state;
    weft_log_to(hear, &h);
    weft_log_set_level(WEFT_LOG_WARN);
    weft_log_write(WEFT_LOG_WARN, "100 %s of it");
    assert_int_equal(h.lines, 1);
    assert_int_equal(h.level, WEFT_LOG_WARN);
    assert_string_equal(h.text, "100 %s of it");
    weft_log_write(WEFT_LOG_INFO, "not shown");
    weft_log_write(WEFT_LOG_WARN, NULL);
    weft_log_write((weft_log_level)-1, "no level");
    weft_log_write((weft_log_level)5, "no level");
    assert_int_equal(h.lines, 1);
}

static void a_level_set_by_the_program_outlives_the_environments(void **state)
{
    (void)state;
    weft_log_set_level(WEFT_LOG_ERROR);
    wf_log_default_level(WEFT_LOG_TRACE);
    assert_false(wf_log_on(WEFT_LOG_WARN));
}

static void a_setting_that_nobody_knows_is_warned_about(void **state)
{
    heard h = {0};

    (void)state;
    weft_log_to(hear, &h);
    weft_log_set_level(WEFT_LOG_WARN);
    setenv("WEFT_TIMEOUT", "1s", 1);
    setenv("WEFT_TIME_OUT_OF_MIND", "1s", 1);
    wf_settings_warn_unknown();
    unsetenv("WEFT_TIME_OUT_OF_MIND");
    assert_int_equal(h.lines, 1);
    assert_non_null(strstr(h.text, "WEFT_TIME_OUT_OF_MIND"));
}

/* --- allocation ---------------------------------------------------------- */

static void the_nth_allocation_fails_once(void **state)
{
    void *p[4];

    (void)state;
    wf_alloc_fail_nth(3);
    p[0] = wf_alloc(1);
    p[1] = wf_zalloc(1);
    p[2] = wf_alloc(1);
    p[3] = wf_strdup("x");
    assert_non_null(p[0]);
    assert_non_null(p[1]);
    assert_null(p[2]);
    assert_non_null(p[3]);
    for (size_t i = 0; i < COUNT(p); i++) {
        wf_free(p[i]);
    }
}

static void every_way_to_allocate_can_fail(void **state)
{
    void *old = wf_alloc(8);

    (void)state;
    assert_non_null(old);
    wf_alloc_fail_nth(1);
    assert_null(wf_alloc(1));
    wf_alloc_fail_nth(1);
    assert_null(wf_zalloc(1));
    wf_alloc_fail_nth(1);
    assert_null(wf_zalloc_aligned(64, 1));
    wf_alloc_fail_nth(1);
    assert_null(wf_strdup("x"));
    wf_alloc_fail_nth(1);
    assert_null(wf_realloc(old, 16));
    /* The old memory is still there, and still ours to free. */
    wf_free(old);
}

static void a_failure_can_be_called_off(void **state)
{
    void *p;

    (void)state;
    wf_alloc_fail_nth(1);
    wf_alloc_fail_nth(0);
    p = wf_alloc(1);
    assert_non_null(p);
    wf_free(p);
}

static void allocations_of_nothing_are_not_null(void **state)
{
    void *a = wf_alloc(0);
    void *b = wf_zalloc(0);
    void *c = wf_realloc(NULL, 0);

    (void)state;
    assert_non_null(a);
    assert_non_null(b);
    assert_non_null(c);
    wf_free(a);
    wf_free(b);
    wf_free(c);
    wf_free(NULL);
}

static void aligned_memory_is_aligned_and_zero(void **state)
{
    unsigned char *p = wf_zalloc_aligned(4096, 100);

    (void)state;
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % 4096, 0);
    for (size_t i = 0; i < 100; i++) {
        assert_int_equal(p[i], 0);
    }
    wf_free(p);
}

/* --- secret and time ----------------------------------------------------- */

/* The published vectors of SipHash-2-4: the key is 00 01 .. 0f, the input of
 * length n is 00 01 .. n-1. */
static void the_keyed_hash_is_siphash_2_4(void **state)
{
    static const struct {
        size_t n;
        uint64_t hash;
    } vectors[] = {
        {0, 0x726fdb47dd0e0e31u},  {1, 0x74f839c593dc67fdu},
        {2, 0x0d6c8009d9a94f5au},  {3, 0x85676696d7fb7e2du},
        {7, 0xab0200f58b01d137u},  {8, 0x93f5f5799a932462u},
        {15, 0xa129ca6149be45e5u}, {63, 0x958a324ceb064572u},
    };
    const wf_secret key = {{0x0706050403020100u, 0x0f0e0d0c0b0a0908u}};
    unsigned char data[64];

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (unsigned char)i;
    }
    for (size_t i = 0; i < COUNT(vectors); i++) {
        assert_true(wf_keyed_hash(&key, data, vectors[i].n) == vectors[i].hash);
    }
}

static void another_key_gives_another_hash(void **state)
{
    const wf_secret a = {{1, 2}};
    const wf_secret b = {{2, 1}};

    (void)state;
    assert_true(wf_keyed_hash(&a, "weft", 4) != wf_keyed_hash(&b, "weft", 4));
}

static void random_bytes_do_not_repeat(void **state)
{
    unsigned char a[32] = {0};
    unsigned char b[32] = {0};

    (void)state;
    assert_int_equal(wf_random(a, sizeof(a)), WEFT_OK);
    assert_int_equal(wf_random(b, sizeof(b)), WEFT_OK);
    assert_memory_not_equal(a, b, sizeof(a));
}

static void a_deadline_becomes_milliseconds_for_poll(void **state)
{
    (void)state;
    assert_int_equal(wf_ms_until(0), 0);
    assert_int_equal(wf_ms_until(wf_now_ns()), 0);
    assert_true(wf_ms_until(wf_now_ns() + 1000 * WF_SEC) > 0);
    assert_int_equal(wf_ms_until(UINT64_MAX), 3600000);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_name_and_text),
        cmocka_unit_test(only_known_numbers_are_taken_as_a_status),
        cmocka_unit_test(a_failure_records_its_detail),
        cmocka_unit_test(a_detail_that_is_too_long_is_cut_off),
        cmocka_unit_test(details_belong_to_their_thread),
        cmocka_unit_test(errno_picks_the_status),
        cmocka_unit_test(sizes_are_read_with_their_units),
        cmocka_unit_test(durations_are_read_with_their_units),
        cmocka_unit_test_setup(code_wins_over_environment_wins_over_default,
                               without_settings),
        cmocka_unit_test_setup(an_empty_variable_is_as_good_as_none,
                               without_settings),
        cmocka_unit_test_setup(a_bad_setting_is_named_and_nothing_is_written,
                               without_settings),
        cmocka_unit_test_setup(a_value_longer_than_its_field_is_refused,
                               without_settings),
        cmocka_unit_test_setup(every_setting_has_help_and_a_good_default,
                               without_settings),
        cmocka_unit_test_setup(the_table_shows_what_the_environment_says,
                               without_settings),
        cmocka_unit_test_teardown(lines_up_to_the_level_go_to_the_sink,
                                  restore_log),
        cmocka_unit_test_teardown(modules_write_lines_as_they_are, restore_log),
        cmocka_unit_test_teardown(
            a_level_set_by_the_program_outlives_the_environments, restore_log),
        cmocka_unit_test_setup_teardown(
            a_setting_that_nobody_knows_is_warned_about, without_settings,
            restore_log),
        cmocka_unit_test(the_nth_allocation_fails_once),
        cmocka_unit_test(every_way_to_allocate_can_fail),
        cmocka_unit_test(a_failure_can_be_called_off),
        cmocka_unit_test(allocations_of_nothing_are_not_null),
        cmocka_unit_test(aligned_memory_is_aligned_and_zero),
        cmocka_unit_test(the_keyed_hash_is_siphash_2_4),
        cmocka_unit_test(another_key_gives_another_hash),
        cmocka_unit_test(random_bytes_do_not_repeat),
        cmocka_unit_test(a_deadline_becomes_milliseconds_for_poll),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
