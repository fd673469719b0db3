/* SPDX-License-Identifier: Apache-2.0 */
/* The chooser of the message engine, and the setting that overrules it. */
#include <string.h>
#include <weft/status.h>

#include "coll/message/table.h"
#include "wt_cmocka.h"

static bool moves_data(unsigned kind)
{
    return wf_call_is((uint8_t)kind, WF_HAS_DATA) &&
           !wf_call_is((uint8_t)kind, WF_MESSAGE);
}

static void every_call_gets_an_algorithm_that_applies(void **state)
{
    static const uint64_t bytes[] = {0,      1,        513,       5000,
                                     100000, 1u << 30, UINT64_MAX};

    (void)state;
    for (unsigned kind = 0; kind < WF_CALL_KINDS; kind++) {
        for (uint32_t ranks = 2; ranks <= 130; ranks++) {
            for (unsigned i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++) {
                const wf_choice *c =
                    wf_message_choose((wf_call_kind)kind, bytes[i], ranks);

                assert_true((c != NULL) == moves_data(kind));
                assert_true(
                    c == NULL ||
                    wf_algorithm_applies((wf_call_kind)kind, c->how, ranks));
                assert_true(c == NULL || strlen(c->why) > 0);
            }
        }
    }
}

static void
small_data_takes_few_rounds_and_large_data_moves_little(void **state)
{
    (void)state;
    assert_int_equal(wf_message_choose(WF_CALL_ALLREDUCE, 8, 5)->how,
                     WF_BY_DOUBLING);
    assert_int_equal(wf_message_choose(WF_CALL_ALLREDUCE, 100000, 5)->how,
                     WF_BY_HALVING);
    assert_int_equal(wf_message_choose(WF_CALL_ALLREDUCE, 1u << 30, 5)->how,
                     WF_BY_RING);
    assert_int_equal(wf_message_choose(WF_CALL_ALLREDUCE, 1u << 20, 4)->how,
                     WF_BY_RING);
    assert_int_equal(wf_message_choose(WF_CALL_ALLREDUCE, 1u << 20, 8)->how,
                     WF_BY_HALVING);
    assert_int_equal(wf_message_choose(WF_CALL_ALLGATHER, 8, 8)->how,
                     WF_BY_DOUBLING);
    assert_int_equal(wf_message_choose(WF_CALL_ALLGATHER, 8, 7)->how,
                     WF_BY_BRUCK);
}

static void the_setting_names_an_algorithm_for_some_operations(void **state)
{
    wf_algorithm forced[WF_CALL_KINDS];

    (void)state;
    assert_int_equal(
        wf_algorithms_parse("allreduce=ring,gatherv=linear", forced), WEFT_OK);
    assert_int_equal(forced[WF_CALL_ALLREDUCE], WF_BY_RING);
    assert_int_equal(forced[WF_CALL_GATHERV], WF_BY_LINEAR);
    assert_int_equal(forced[WF_CALL_GATHER], WF_ALGORITHMS);
    assert_int_equal(wf_algorithms_parse("auto", forced), WEFT_OK);
    assert_int_equal(forced[WF_CALL_ALLREDUCE], WF_ALGORITHMS);
    assert_int_equal(wf_algorithms_parse("", forced), WEFT_OK);
}

static void what_it_cannot_mean_is_refused_with_what_it_could(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } bad[] = {{"ring", "allreduce=ring"},
               {"allreduce", "allreduce=ring"},
               {"allreduce=", "double_tree, ring, doubling, halving"},
               {"scan=ring", "(doubling)"},
               {"gatherv=binomial", "(linear)"},
               {"barrier=ring", "broadcast, allreduce"},
               {"send=ring", "broadcast, allreduce"},
               {"allreduce=ring,,x=y", "'x'"}};
    wf_algorithm forced[WF_CALL_KINDS];

    (void)state;
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(wf_algorithms_parse(bad[i].text, forced),
                         WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_detail(), bad[i].says));
        assert_non_null(strstr(weft_error_detail(), "WEFT_ALGORITHM"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_gets_an_algorithm_that_applies),
        cmocka_unit_test(
            small_data_takes_few_rounds_and_large_data_moves_little),
        cmocka_unit_test(the_setting_names_an_algorithm_for_some_operations),
        cmocka_unit_test(what_it_cannot_mean_is_refused_with_what_it_could),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
