/* SPDX-License-Identifier: Apache-2.0 */
/* What src/boot/pmix_abi.h declares is what pmix.h does, where that is
 * installed. */
#include "boot/pmix_abi.h"

#include <stdint.h>

#include "wt_cmocka.h"

#if __has_include(<pmix.h>)
#include <pmix.h>

static void structures_have_the_layout_of_the_header(void **state)
{
    (void)state;
    assert_int_equal(sizeof(wf_pmix_proc), sizeof(pmix_proc_t));
    assert_int_equal(offsetof(wf_pmix_proc, rank), offsetof(pmix_proc_t, rank));
    assert_true(sizeof(wf_pmix_value) >= sizeof(pmix_value_t));
    assert_int_equal(offsetof(wf_pmix_value, is), offsetof(pmix_value_t, data));
    assert_int_equal(offsetof(wf_pmix_value, is.bytes.n),
                     offsetof(pmix_value_t, data.bo.size));
    assert_int_equal(offsetof(wf_pmix_info, flags),
                     offsetof(pmix_info_t, flags));
    assert_int_equal(offsetof(wf_pmix_info, value),
                     offsetof(pmix_info_t, value));
}

static void constants_have_the_values_of_the_header(void **state)
{
    (void)state;
    assert_int_equal(WF_PMIX_OK, PMIX_SUCCESS);
    assert_int_equal(WF_PMIX_NOT_FOUND, PMIX_ERR_NOT_FOUND);
    assert_int_equal(WF_PMIX_BOOL, PMIX_BOOL);
    assert_int_equal(WF_PMIX_BYTES, PMIX_BYTE_OBJECT);
    assert_int_equal(WF_PMIX_GLOBAL, PMIX_GLOBAL);
#ifdef PMIX_GET_REFRESH_CACHE
    assert_string_equal(WF_PMIX_REFRESH, PMIX_GET_REFRESH_CACHE);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structures_have_the_layout_of_the_header),
        cmocka_unit_test(constants_have_the_values_of_the_header),
    };

    return cmocka_run_group_tests_name("pmix_abi", tests, NULL, NULL);
}

#else

int main(void)
{
    return 77; /* there is no pmix.h to compare with */
}

#endif
