/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of communicators, in jobs of any size. */
#include "comm/ids.h"

#include "boot/boot.h"
#include "wt_cmocka.h"

static const uint32_t sizes[] = {
    1, 2, 3, 1000, 32768, 32769, 100000, 1000000, WF_BOOT_RANKS_MAX};

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static void every_rank_has_ids_in_jobs_of_any_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        assert_true(wf_ids_limit(sizes[i]) >= 2048);
    }
}

/* The last id of the last rank is the largest; nothing has wrapped. */
static void ids_are_even_and_tell_who_leads_them(void **state)
{
    (void)state;
    for (size_t i = 0; i < SIZES; i++) {
        uint32_t n = sizes[i];
        const uint32_t ranks[] = {0, n / 2, n - 1};
        const uint32_t ks[] = {0, 1, wf_ids_limit(n) - 1};

        for (size_t r = 0; r < 3; r++) {
            for (size_t k = 0; k < 3; k++) {
                uint32_t id = wf_ids_number(ranks[r], n, ks[k]);

                assert_int_equal(id % 2, 0);
                assert_int_equal(id / 2, ranks[r] + (uint64_t)n * ks[k]);
                assert_int_equal(wf_ids_leader(id, n), ranks[r]);
            }
        }
    }
}

static void no_two_ids_are_equal(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 7; n++) {
        for (uint32_t id = 0, next = 0; id < 100; id++, next += 2) {
            assert_int_equal(wf_ids_number(id % n, n, id / n), next);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_ids_in_jobs_of_any_size),
        cmocka_unit_test(ids_are_even_and_tell_who_leads_them),
        cmocka_unit_test(no_two_ids_are_equal),
    };

    return cmocka_run_group_tests_name("ids", tests, NULL, NULL);
}
