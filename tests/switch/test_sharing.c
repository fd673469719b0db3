/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share hosts are added up before they send: what holds of ranks
 * with a host each holds of them. */
#include <string.h>
#include <weft/coll.h>

#include "calls.h"
#include "wt_cmocka.h"

static void ranks_of_a_host_are_added_up_before_they_send(void **state)
{
    static const char *const layouts[] = {"aab", "aabb", "abcabcab",
                                          "aaaaabbbbb"};

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        calls_on_nodes(layouts[i], calls_no_options, "", calls_chunks);
    }
}

/* Rounds are made small, so that little data has many of them. */
static void
every_type_and_operation_is_right_where_ranks_share_hosts(void **state)
{
    (void)state;
    calls_on_nodes("aabb", calls_no_options, "CHUNK_BYTES=1K", calls_values);
    calls_on_nodes("aabab", calls_no_options, "", calls_values);
    calls_on_nodes("abbcc", calls_lossy, "CHUNK_BYTES=8K", calls_values);
    if (wt_full()) { /* each lost packet is waited for */
        calls_on_nodes("abbcc", calls_lossy, "CHUNK_BYTES=1K SWITCH_SLOTS=2",
                       calls_values);
        calls_on_nodes("aabb", calls_lossy, "SWITCH_PAYLOAD=64", calls_values);
    }
    calls_on_nodes("aabb", calls_no_options, "", calls_requests);
}

static void hosts_of_several_ranks_go_back_to_a_switch(void **state)
{
    (void)state;
    calls_on_nodes("aabb", calls_no_options, "LOG=error", calls_killed);
    calls_on_nodes("abb", calls_no_options, "LOG=error CHUNK_BYTES=32K",
                   calls_killed);
}

/* Rank 1 shares a host with rank 0; it averages where others add. */
static void other_operation_body(weft_world *world)
{
    static _Thread_local float x[5000];
    weft_comm *comm = weft_world_comm(world);

    WT_OK(weft_allreduce(comm, x, x, 5000, WEFT_F32, WEFT_SUM));
    wt_meet(); /* an error must not break the call before */
    WT_STATUS(weft_allreduce(comm, x, x, 5000, WEFT_F32,
                             wt_rank() < 2 ? WEFT_AVG : WEFT_SUM),
              WEFT_ERR_MISMATCH);
    WT_CHECK(strstr(weft_error_detail(), "avg") != NULL &&
             strstr(weft_error_detail(), "sum") != NULL);
}

static void calls_that_differ_are_errors_where_ranks_share_hosts(void **state)
{
    (void)state;
    calls_on_nodes("aabb", calls_no_options, "", calls_other_count);
    calls_on_nodes("aabb", calls_no_options, "", calls_other_call);
    calls_on_nodes("abab", calls_no_options, "", calls_other_call);
    calls_on_nodes("aabb", calls_no_options, "", other_operation_body);
}

static void the_death_of_a_rank_that_shares_a_host_is_named(void **state)
{
    static const char *const layouts[] = {"aabb", "abb"};

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        job_run_as(&(job_plan){.ranks = (unsigned)strlen(layouts[i]),
                               .nodes = layouts[i],
                               .options = calls_no_options,
                               .body = calls_death,
                               .doomed = 1u << 1});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_a_host_are_added_up_before_they_send),
        cmocka_unit_test(
            every_type_and_operation_is_right_where_ranks_share_hosts),
        cmocka_unit_test(hosts_of_several_ranks_go_back_to_a_switch),
        cmocka_unit_test(calls_that_differ_are_errors_where_ranks_share_hosts),
        cmocka_unit_test(the_death_of_a_rank_that_shares_a_host_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
