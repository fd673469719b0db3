/* SPDX-License-Identifier: Apache-2.0 */
/* Where the engine is chosen, and settings that cannot be. */
#include <stdio.h>
#include <string.h>
#include <weft/coll.h>

#include "calls.h"
#include "coll/choose.h"
#include "wt_cmocka.h"

static bool by_switch(const weft_comm *comm, wf_call_kind kind)
{
    const wf_coll_row *row = wf_coll_of(comm)->row[kind];

    return strcmp(row->seat->engine->name, "switch") == 0;
}

static void chosen_body(weft_world *world)
{
    const weft_comm *comm = weft_world_comm(world);
    bool three = comm->tree.nodes >= 3;

    WT_CHECK(by_switch(comm, WF_CALL_ALLREDUCE) == three);
    for (int kind = 0; kind < WF_CALL_KINDS; kind++) {
        WT_CHECK(kind == WF_CALL_ALLREDUCE ||
                 !by_switch(comm, (wf_call_kind)kind));
    }
    for (unsigned i = 0; i < 3; i++) {
        calls_one(world, &(wt_coll){.kind = WT_REDUCE_SCATTER,
                                    .type = WEFT_F32,
                                    .op = WEFT_SUM,
                                    .n = 1 + 1000 * i,
                                    .seed = i});
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
    WT_CHECK(wt_rank() != 0 || job_chunks() == 0);
}

static void
it_is_chosen_for_allreduce_from_three_hosts_on_and_for_no_other(void **state)
{
    static const char *const layouts[] = {"ab", "aabb", "abc", "aabbc"};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        calls_on_nodes(layouts[i], calls_no_options, "ENGINE=auto",
                       chosen_body);
    }
}

static void bad_setting(const char *text, const char *says)
{
    weft_world_options o = {.size = sizeof(o), .settings = text};
    weft_world *world = NULL;

    assert_int_equal(weft_world_create(&o, &world), WEFT_ERR_INVALID);
    if (strstr(weft_error_detail(), says) == NULL) {
        fail_msg("%s", weft_error_detail());
    }
}

static const char *differing;

/* Of rank 1, and of the others. */
static void differ_bare(void)
{
    char settings[200];
    weft_world *world = NULL;

    (void)snprintf(settings, sizeof(settings), "SWITCH_KEY=k TIMEOUT=60s %s%s",
                   wt_rank() == 1 ? "" : "SWITCH=127.0.0.1:1 ",
                   wt_rank() == 1 ? differing : "");
    WT_STATUS(wt_join(settings, 0, &world), WEFT_ERR_MISMATCH);
    WT_CHECK(strstr(weft_error_detail(), "WEFT_") != NULL);
    WT_CHECK(wt_names_rank(weft_error_detail(), 0));
    WT_CHECK(wt_names_rank(weft_error_detail(), 1));
}

static void settings_in_which_ranks_differ_are_named_on_all(void **state)
{
    static const char *const some[] = {"",
                                       "SWITCH=127.0.0.1:2",
                                       "SWITCH=127.0.0.1:1,127.0.0.1:2",
                                       "SWITCH=127.0.0.1:1 SWITCH_SLOTS=8",
                                       "SWITCH=127.0.0.1:1 SWITCH_PAYLOAD=64",
                                       "SWITCH=127.0.0.1:1 ENGINE=switch"};

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        differing = some[i];
        wt_run_job(&(wt_job){.ranks = 3, .bare = differ_bare});
    }
}

static void wrong_settings_are_named(void **state)
{
    (void)state;
    bad_setting("SWITCH=a:1", "WEFT_SWITCH_KEY");
    bad_setting("SWITCH=a:b SWITCH_KEY=k", "'a:b' is not the address");
    bad_setting("SWITCH=::1 SWITCH_KEY=k", "'::1' is not the address");
    bad_setting("SWITCH=:5 SWITCH_KEY=k", "':5' is not the address");
    bad_setting("SWITCH=a:1,b:x SWITCH_KEY=k", "'b:x' is not the address");
    bad_setting("SWITCH=a:1, SWITCH_KEY=k", "'' is not the address");
    bad_setting("SWITCH=a,b,c,d,e,f,g,h,i SWITCH_KEY=k", "at most 8 switches");
    bad_setting("SWITCH=a:1 SWITCH_KEY=k SWITCH_PAYLOAD=100", "multiple of 64");
    bad_setting("SWITCH=a:1 SWITCH_KEY=k SWITCH_SLOTS=4097", "0 to 4096");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            it_is_chosen_for_allreduce_from_three_hosts_on_and_for_no_other),
        cmocka_unit_test(settings_in_which_ranks_differ_are_named_on_all),
        cmocka_unit_test(wrong_settings_are_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
