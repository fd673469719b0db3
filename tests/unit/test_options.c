/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of older and of newer programs. */
#include "base/options.h"

#include <stddef.h>
#include <string.h>
#include <weft/weft.h>

#include "wt_cmocka.h"

typedef struct version_1 {
    size_t size;
    int a;
    int b;
} version_1;

typedef struct version_2 {
    size_t size;
    int a;
    int b;
    double c;
} version_2;

static void an_older_struct_has_defaults_for_what_is_new(void **state)
{
    version_1 old = {sizeof(old), 1, 2};
    version_2 out = {0, 9, 9, 9};

    (void)state;
    assert_int_equal(wf_options_read(&old, "options", &out, sizeof(out)),
                     WEFT_OK);
    assert_int_equal(out.size, sizeof(out));
    assert_true(out.a == 1 && out.b == 2 && out.c == 0);
}

static void a_newer_struct_is_taken_while_what_is_new_is_zero(void **state)
{
    version_2 newer = {sizeof(newer), 1, 2, 0};
    version_1 out;

    (void)state;
    assert_int_equal(wf_options_read(&newer, "options", &out, sizeof(out)),
                     WEFT_OK);
    assert_true(out.size == sizeof(out) && out.a == 1 && out.b == 2);
    newer.c = 0.5;
    assert_int_equal(wf_options_read(&newer, "options", &out, sizeof(out)),
                     WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(weft_error_detail(), "options has a field at byte"));
}

static void no_struct_is_all_defaults(void **state)
{
    version_1 out = {0, 9, 9};

    (void)state;
    assert_int_equal(wf_options_read(NULL, "options", &out, sizeof(out)),
                     WEFT_OK);
    assert_true(out.size == sizeof(out) && out.a == 0 && out.b == 0);
}

static void a_size_that_was_not_set_is_an_error(void **state)
{
    static const size_t bad[] = {0, sizeof(size_t) - 1, SIZE_MAX};
    version_1 given = {0, 1, 2};
    version_1 out;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        given.size = bad[i];
        assert_int_equal(wf_options_read(&given, "options", &out, sizeof(out)),
                         WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_detail(), "sizeof(options)"));
        assert_true(out.a == 0 && out.b == 0);
    }
}

/* The structs of the public calls, as a program of an earlier version has
 * them: with the first field behind the size only. */
static void public_calls_take_structs_of_older_programs(void **state)
{
    weft_world_options made = {.size = offsetof(weft_world_options, settings)};
    weft_region_options place = {.size = offsetof(weft_region_options, device)};
    weft_rows_options bounds = {.size = offsetof(weft_rows_options, threads)};
    uint64_t shape[2] = {3, 2};
    float at[2] = {0};
    int64_t id = 1;
    weft_table table;
    weft_world *world = NULL;
    weft_region *region = NULL;

    (void)state;
    assert_int_equal(weft_world_create(&made, &world), WEFT_OK);
    assert_int_equal(weft_region_create(weft_world_comm(world), 2, shape,
                                        WEFT_F32, &place, &region),
                     WEFT_OK);
    table = (weft_table){.region = region, .width = 2, .type = WEFT_F32};
    assert_int_equal(
        weft_rows_gather(&table, &(weft_ids){&id, WEFT_I64, 1, WEFT_HOST},
                         &(weft_rows){at, 0, WEFT_F32, WEFT_HOST}, &bounds),
        WEFT_OK);
    weft_region_destroy(region);
    weft_world_destroy(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_struct_has_defaults_for_what_is_new),
        cmocka_unit_test(a_newer_struct_is_taken_while_what_is_new_is_zero),
        cmocka_unit_test(no_struct_is_all_defaults),
        cmocka_unit_test(a_size_that_was_not_set_is_an_error),
        cmocka_unit_test(public_calls_take_structs_of_older_programs),
    };

    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
