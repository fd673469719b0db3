/* SPDX-License-Identifier: Apache-2.0 */
/* The table that the environment describes. Which launcher counts, and in what
 * order they are looked for, is in boot/launcher.c; then:
 *
 *   one rank          a table in private memory, whatever else is set
 *   WEFT_BOOT_DIR     a directory, for any number of hosts
 *   one host          weft_boot_open_local
 *   several hosts     PMIx, where the launcher offers it; else MPI, where the
 *                     launcher is one of MPI; else an error that says what to
 *                     do
 *
 * WEFT_BOOT chooses one of them by name. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/settings.h"
#include "base/status.h"
#include "boot/boot.h"
#include "boot/launcher.h"
#include "boot/mpi.h"
#include "boot/pmix.h"

/* How many tables this process has opened from its environment. A job may form
 * a world, end it and form another; a rank that is quick must not meet the
 * table of the last time, so each time has a name of its own. All ranks count
 * alike, as forming a world is collective. The count belongs to the process
 * because what it completes, the environment, does too. */
static atomic_uint env_opened;

static bool is_named(const char *way, const char *name)
{
    return strcmp(way, name) == 0;
}

/* What WEFT_BOOT says, or what suits best. */
static const char *env_way(const wf_boot_launch *launch)
{
    const char *way = wf_boot_env("WEFT_BOOT");

    if (way != NULL && !is_named(way, "auto")) {
        return way;
    }
    return wf_boot_env("WEFT_BOOT_DIR") != NULL ? "dir"
           : launch->several_hosts              ? "hosts"
                                                : "local";
}

/* A table over MPI has the ranks of MPI_COMM_WORLD. */
static weft_status env_open_mpi(const wf_boot_launch *launch, weft_boot **out)
{
    wf_settings settings;
    weft_boot *table = NULL;
    weft_status st = wf_settings_load(NULL, &settings);

    if (st == WEFT_OK) {
        st = wf_boot_open_mpi(&settings, &table);
    }
    if (st != WEFT_OK) {
        return st;
    }
    if (table->rank != launch->rank || table->ranks != launch->ranks) {
        st = wf_fail(WEFT_ERR_UNSUPPORTED,
                     "this is rank %u of %u, but rank %u of %u for MPI",
                     launch->rank, launch->ranks, table->rank, table->ranks);
        weft_boot_close(table);
        return st;
    }
    *out = table;
    return WEFT_OK;
}

/* Several hosts have nothing in common but what their launcher gives them. */
static weft_status env_open_hosts(const wf_boot_launch *launch, unsigned number,
                                  const char *way, weft_boot **out)
{
    bool is_mpi = is_named(launch->launcher, "openmpi") ||
                  is_named(launch->launcher, "mpich");
    bool try_pmix = is_named(way, "pmix") ||
                    (is_named(way, "hosts") && wf_boot_pmix_offered());
    bool try_mpi = is_named(way, "mpi") || (is_named(way, "hosts") && is_mpi);
    weft_status st = WEFT_ERR_UNSUPPORTED;
    wf_failure pmix = {.text = ""};
    wf_failure mpi = {.text = ""};
    const char *by = "PMIx";

    if (try_pmix) {
        st = wf_boot_open_pmix(number, launch->rank, launch->ranks, out);
        pmix = wf_failure_of(st);
    }
    if (try_mpi && st == WEFT_ERR_UNSUPPORTED) {
        by = "MPI";
        st = env_open_mpi(launch, out);
        mpi = wf_failure_of(st);
    }
    if (st == WEFT_OK) {
        wf_log(WEFT_LOG_INFO, "rank %u meets the others by %s", launch->rank,
               by);
    }
    if (st != WEFT_ERR_UNSUPPORTED) {
        return st;
    }
    return wf_fail(st,
                   "ranks that %s started on several hosts need a common "
                   "key-value store: %s; or set WEFT_BOOT_DIR to a directory "
                   "that all of them see%s%s%s%s",
                   launch->launcher, launch->advice, try_pmix ? ". PMIx: " : "",
                   pmix.text, try_mpi ? ". MPI: " : "", mpi.text);
}

static weft_status env_open(const wf_boot_launch *launch, unsigned number,
                            weft_boot **out)
{
    const char *path = wf_boot_env("WEFT_BOOT_DIR");
    const char *way = env_way(launch);
    char name[sizeof(launch->job) + 32];

    snprintf(name, sizeof(name), "%s:%s#%u", launch->launcher, launch->job,
             number);
    wf_log(WEFT_LOG_INFO, "rank %u of %u, started by %s, job %s, meets by %s",
           launch->rank, launch->ranks, launch->launcher, name, way);
    if (is_named(way, "local")) {
        return weft_boot_open_local(name, launch->rank, launch->ranks, out);
    }
    if (is_named(way, "hosts") || is_named(way, "pmix") ||
        is_named(way, "mpi")) {
        return env_open_hosts(launch, number, way, out);
    }
    if (!is_named(way, "dir") || path == NULL) {
        return wf_fail(WEFT_ERR_INVALID,
                       "WEFT_BOOT is '%s'; it must be auto, local, pmix, mpi, "
                       "or dir with WEFT_BOOT_DIR",
                       way);
    }
    return weft_boot_open_dir(path, name, launch->rank, launch->ranks, out);
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
    weft_status st = wf_boot_read_launch(&launch);

    if (st == WEFT_OK) {
        st = wf_boot_check_rank(launch.rank, launch.ranks, out);
    }
    if (st != WEFT_OK) {
        return st;
    }
    return launch.ranks == 1
               ? wf_boot_open_alone(out)
               : env_open(&launch, atomic_fetch_add(&env_opened, 1) + 1, out);
}
