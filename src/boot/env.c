/* SPDX-License-Identifier: Apache-2.0 */
/* The table that the environment describes. Which launcher counts, and in what
 * order they are looked for, is in boot/launcher.c; then:
 *
 *   one rank          a table in private memory, whatever else is set
 *   WEFT_BOOT_DIR     a directory, for any number of hosts
 *   one host          weft_boot_open_local
 *   several hosts     an error that says what to do
 */
#include <stdatomic.h>
#include <stdio.h>

#include "base/log.h"
#include "base/status.h"
#include "boot/boot.h"
#include "boot/launcher.h"

/* How many tables this process has opened from its environment. A job may form
 * a world, end it and form another; a rank that is quick must not meet the
 * table of the last time, so each time has a name of its own. All ranks count
 * alike, as forming a world is collective. The count belongs to the process
 * because what it completes, the environment, does too. */
static atomic_uint env_opened;

static weft_status env_open(const wf_boot_launch *launch, const char *name,
                            weft_boot **out)
{
    const char *path = wf_boot_env("WEFT_BOOT_DIR");

    if (path != NULL) {
        return weft_boot_open_dir(path, name, launch->rank, launch->ranks, out);
    }
    if (launch->several_hosts) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s started ranks on several hosts, which need a common "
                       "key-value store: set WEFT_BOOT_DIR to a directory that "
                       "all of them see, or pass a torch Store from Python",
                       launch->launcher);
    }
    return weft_boot_open_local(name, launch->rank, launch->ranks, out);
}

weft_status weft_boot_rank(uint32_t *rank, uint32_t *ranks)
{
    wf_boot_launch launch;
    weft_status st = rank == NULL || ranks == NULL
                         ? wf_fail(WEFT_ERR_INVALID, "rank or ranks is NULL")
                         : wf_boot_read_launch(&launch);

    if (st == WEFT_OK) {
        *rank = launch.rank;
        *ranks = launch.ranks;
    }
    return st;
}

weft_status weft_boot_open_env(weft_boot **out)
{
    wf_boot_launch launch;
    char name[sizeof(launch.job) + 32];
    weft_status st = wf_boot_read_launch(&launch);

    if (st == WEFT_OK) {
        st = wf_boot_check_rank(launch.rank, launch.ranks, out);
    }
    if (st != WEFT_OK) {
        return st;
    }
    snprintf(name, sizeof(name), "%s:%s#%u", launch.launcher, launch.job,
             atomic_fetch_add(&env_opened, 1) + 1);
    wf_log(WEFT_LOG_INFO, "rank %u of %u, started by %s, job %s", launch.rank,
           launch.ranks, launch.launcher, name);
    return launch.ranks == 1 ? wf_boot_open_alone(out)
                             : env_open(&launch, name, out);
}
