/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap table over MPI, under each MPI that there is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "boot/mpi.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_launched.h"

#define RANKS 5

static weft_boot *open_table(void)
{
    const char *file = NULL;
    const void *found = NULL;
    wf_boot_mpi_open_fn *open_it;
    wf_settings settings;
    weft_boot *boot = NULL;

    WT_OK(wf_settings_load(NULL, &settings));
    WT_OK(wt_transport_mpi.locate(&settings, &file));
    WT_OK(wf_library_find(NULL, file, WF_BOOT_MPI_SYMBOL, &found));
    memcpy(&open_it, &found, sizeof(open_it));
    WT_OK(open_it(&boot));
    WT_CHECK(boot->rank == wt_rank() && boot->ranks == wt_ranks());
    return boot;
}

/* --- set and get ---------------------------------------------------------- */

static void exchange_body(void)
{
    for (unsigned round = 0; round < 3; round++) {
        weft_boot *b = open_table();
        char key[32];

        snprintf(key, sizeof(key), "weft/rank/%u", b->rank);
        WT_OK(b->set(b->ctx, key, &round, sizeof(round)));
        for (uint32_t r = 0; r < b->ranks; r++) {
            unsigned got = 99;
            size_t n = sizeof(got);

            snprintf(key, sizeof(key), "weft/rank/%u", r);
            WT_OK(b->get(b->ctx, key, &got, &n, 60000));
            WT_CHECK(n == sizeof(got) && got == round);
        }
        b->done(b->ctx);
        weft_boot_close(b);
    }
}

static void all_ranks_read_what_each_has_set(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = RANKS, .bare = exchange_body});
}

/* The last rank sets it when the others have waited in vain once. */
static void late_body(void)
{
    weft_boot *b = open_table();
    bool sets = b->rank == b->ranks - 1;
    size_t most = WEFT_BOOT_VALUE_MAX;
    unsigned char *value = calloc(1, most);
    size_t n = most;

    WT_CHECK(value != NULL);
    WT_STATUS(b->get(b->ctx, "large", value, &n, 5), WEFT_ERR_TIMEOUT);
    wt_meet();
    if (sets) {
        memset(value, 0x5a, most);
        WT_OK(b->set(b->ctx, "empty", NULL, 0));
        WT_OK(b->set(b->ctx, "large", value, most));
        memset(value, 0, most);
    }
    n = 8;
    WT_OK(b->get(b->ctx, "empty", value, &n, 60000));
    WT_CHECK(n == 0);
    n = most - 1;
    WT_STATUS(b->get(b->ctx, "large", value, &n, 60000), WEFT_ERR_TRUNCATED);
    n = most;
    WT_OK(b->get(b->ctx, "large", value, &n, 60000));
    WT_CHECK(n == most && value[0] == 0x5a && value[most - 1] == 0x5a);
    WT_STATUS(b->get(b->ctx, "never", value, &n, 5), WEFT_ERR_TIMEOUT);
    weft_boot_close(b);
    free(value);
}

static void a_value_that_comes_late_is_found_by_those_who_asked(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = RANKS, .bare = late_body});
}

/* --- a world -------------------------------------------------------------- */

static void world_body(void)
{
    weft_boot *b = open_table();
    weft_world_options options = {
        .size = sizeof(options), .boot = b, .settings = "TRANSPORTS=self,shm"};
    weft_world *world = NULL;
    int32_t sum = 0;
    int32_t one = 1;

    WT_OK(weft_world_create(&options, &world));
    weft_boot_close(b);
    WT_OK(weft_allreduce(weft_world_comm(world), &one, &sum, 1, WEFT_I32,
                         weft_op_of(WEFT_OP_SUM)));
    WT_CHECK(sum == (int32_t)wt_ranks());
    weft_world_destroy(world);
}

static void a_world_forms_over_it(void **state)
{
    (void)state;
    wt_run_job(&(wt_job){.ranks = RANKS, .bare = world_body});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_read_what_each_has_set),
        cmocka_unit_test(a_value_that_comes_late_is_found_by_those_who_asked),
        cmocka_unit_test(a_world_forms_over_it),
    };

    return wt_launched() ? cmocka_run_group_tests(tests, NULL, NULL)
                         : wt_launch_self(RANKS);
}
