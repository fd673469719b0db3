/* SPDX-License-Identifier: Apache-2.0 */
/* The launchers and what they say. Each needs something that differs between
 * two jobs on one host; WEFT_JOB overrides that under every launcher. */
#include "boot/launcher.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/boot.h>

#include "base/status.h"
#include "boot/mpi.h"

const char *wf_boot_env(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

static weft_status env_number(const char *name, uint32_t *out)
{
    const char *text = wf_boot_env(name);
    char *end;
    unsigned long long v;

    if (text == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "%s is not set", name);
    }
    errno = 0;
    v = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 ||
        v > UINT32_MAX) {
        return wf_fail(WEFT_ERR_INVALID, "%s is '%s', not a whole number", name,
                       text);
    }
    *out = (uint32_t)v;
    return WEFT_OK;
}

/* --- what identifies a job ------------------------------------------------ */

static weft_status job_add(wf_boot_launch *launch, const char *text)
{
    size_t n = strlen(launch->job);
    size_t room = sizeof(launch->job) - n;
    int put = snprintf(launch->job + n, room, "%s%s", n > 0 ? "/" : "", text);

    if (put < 0 || (size_t)put >= room) {
        return wf_fail(WEFT_ERR_INVALID,
                       "the variables of %s that identify the job have more "
                       "than %zu characters; set WEFT_JOB to a shorter name",
                       launch->launcher, sizeof(launch->job) - 1);
    }
    return WEFT_OK;
}

static weft_status job_add_env(wf_boot_launch *launch, const char *name)
{
    const char *value = wf_boot_env(name);

    return job_add(launch, value != NULL ? value : "");
}

static weft_status job_fail(const wf_boot_launch *launch, const char *name)
{
    return wf_fail(WEFT_ERR_INVALID,
                   "%s is not set, so this job of %s cannot be distinguished "
                   "from others on this host; set it, or set WEFT_JOB to one "
                   "name on all ranks of the job",
                   name, launch->launcher);
}

/* One variable without the other is an error, not a job of one rank. */
static bool weft_is_it(void)
{
    return wf_boot_env("WEFT_RANK") != NULL ||
           wf_boot_env("WEFT_RANKS") != NULL;
}

/* In a directory of its own a job needs no name. */
static weft_status weft_job(wf_boot_launch *launch)
{
    if (wf_boot_env("WEFT_BOOT_DIR") != NULL) {
        return job_add(launch, "job");
    }
    return wf_fail(WEFT_ERR_INVALID,
                   "WEFT_JOB is not set, so this job cannot be distinguished "
                   "from others on this host; set it to one name on all ranks "
                   "of the job");
}

/* The run id alone is "none" unless the user gives one; the port is taken for
 * as long as the job runs, and the count changes when workers are restarted. */
static weft_status torchrun_job(wf_boot_launch *launch)
{
    static const char *const parts[] = {"MASTER_PORT", "MASTER_ADDR",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT"};
    weft_status st = wf_boot_env("MASTER_PORT") != NULL
                         ? WEFT_OK
                         : job_fail(launch, "MASTER_PORT");

    for (size_t i = 0; i < 4 && st == WEFT_OK; i++) {
        st = job_add_env(launch, parts[i]);
    }
    return st;
}

static weft_status openmpi_job(wf_boot_launch *launch)
{
    const char *id = wf_boot_env("PMIX_NAMESPACE");

    if (id == NULL) {
        id = wf_boot_env("OMPI_MCA_ess_base_jobid");
    }
    return id != NULL ? job_add(launch, id)
                      : job_fail(launch, "PMIX_NAMESPACE");
}

/* The name and the parent of a process. */
static bool proc_read(pid_t pid, char name[16], pid_t *parent)
{
    char path[64];
    char text[512];
    char *open_at;
    char *close_at;
    FILE *f;
    size_t n;
    int ppid;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    /* "12 (a name) S 11 ..."; the name itself may have brackets in it. */
    open_at = strchr(text, '(');
    close_at = strrchr(text, ')');
    if (open_at == NULL || close_at == NULL ||
        sscanf(close_at, ") %*c %d", &ppid) != 1) {
        return false;
    }
    *close_at = '\0';
    snprintf(name, 16, "%s", open_at + 1);
    *parent = (pid_t)ppid;
    return true;
}

pid_t wf_boot_parent_of(pid_t pid)
{
    pid_t parent = 0;
    char name[16];

    return proc_read(pid, name, &parent) ? parent : 0;
}

/* MPICH gives its ranks no job id that we could read without taking part in
 * their protocol, but on one host they all descend from one proxy, which has no
 * others. A shell or profiler may stand between it and us. 0: there is none;
 * a parent of another kind may have started several jobs. */
static pid_t mpich_proxy(void)
{
    static const char *const proxies[] = {"hydra_pmi_proxy", "pmi_proxy"};
    char name[16];
    pid_t pid = getppid();
    pid_t parent;

    while (pid > 1 && proc_read(pid, name, &parent)) {
        for (size_t i = 0; i < sizeof(proxies) / sizeof(proxies[0]); i++) {
            if (strcmp(name, proxies[i]) == 0) {
                return pid;
            }
        }
        pid = parent;
    }
    return 0;
}

size_t wf_boot_proxy_line(char *line, size_t room)
{
    pid_t proxy = mpich_proxy();
    char path[64];
    FILE *f;
    size_t n;

    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)proxy);
    f = proxy != 0 ? fopen(path, "re") : NULL;
    if (f == NULL) {
        return 0;
    }
    n = fread(line, 1, room - 1, f);
    fclose(f);
    line[n] = '\0';
    return n;
}

static weft_status mpich_job(wf_boot_launch *launch)
{
    char text[320];
    char host[256] = "";
    pid_t proxy;

    if (wf_boot_env("PMI_JOBID") != NULL) {
        return job_add_env(launch, "PMI_JOBID");
    }
    if (launch->several_hosts && wf_boot_env("WEFT_BOOT_DIR") == NULL) {
        return WEFT_OK; /* names are for one host, or a directory */
    }
    if (launch->several_hosts && wf_boot_mpi_job() != 0) {
        snprintf(text, sizeof(text), "%016llx",
                 (unsigned long long)wf_boot_mpi_job());
        return job_add(launch, text);
    }
    proxy = launch->several_hosts ? 0 : mpich_proxy();
    if (proxy == 0) {
        return job_fail(launch, "PMI_JOBID");
    }
    gethostname(host, sizeof(host) - 1);
    snprintf(text, sizeof(text), "%s/%d", host, (int)proxy);
    return job_add(launch, text);
}

static weft_status slurm_job(wf_boot_launch *launch)
{
    weft_status st = wf_boot_env("SLURM_JOB_ID") != NULL
                         ? job_add_env(launch, "SLURM_JOB_ID")
                         : job_fail(launch, "SLURM_JOB_ID");

    return st != WEFT_OK ? st : job_add_env(launch, "SLURM_STEP_ID");
}

/* A batch script and an interactive shell also have a SLURM_PROCID, but they
 * are no rank of anything: they have no step, or one of the reserved numbers
 * at the end of the range. */
static bool slurm_is_step(void)
{
    uint32_t step = 0;

    return wf_boot_env("SLURM_PROCID") != NULL &&
           wf_boot_env("SLURM_STEP_ID") != NULL &&
           env_number("SLURM_STEP_ID", &step) == WEFT_OK && step < 0xfffffff0u;
}

static bool env_equal(const char *a, const char *b)
{
    uint32_t of_a;
    uint32_t of_b;

    return wf_boot_env(a) != NULL && wf_boot_env(b) != NULL &&
           env_number(a, &of_a) == WEFT_OK && env_number(b, &of_b) == WEFT_OK &&
           of_a == of_b;
}

/* srun --mpi=pmi2 sets MPICH's variables, too, but not the number of ranks on
 * this host: Slurm's own say whether there are several hosts. MPICH's mpirun
 * may have been started in a step of Slurm, and has numbers of its own. */
static bool mpich_is_it(void)
{
    return wf_boot_env("PMI_RANK") != NULL &&
           !(slurm_is_step() && wf_boot_env("MPI_LOCALNRANKS") == NULL &&
             env_equal("PMI_RANK", "SLURM_PROCID") &&
             env_equal("PMI_SIZE", "SLURM_NTASKS"));
}

static weft_status slurm_hosts(wf_boot_launch *launch)
{
    const char *name = wf_boot_env("SLURM_STEP_NUM_NODES") != NULL
                           ? "SLURM_STEP_NUM_NODES"
                           : "SLURM_NNODES";
    uint32_t nodes = 1;
    weft_status st =
        wf_boot_env(name) != NULL ? env_number(name, &nodes) : WEFT_OK;

    launch->several_hosts = nodes > 1;
    return st;
}

const wf_launcher wf_launchers[] = {
    /* Said by hand, so it wins over everything. */
    {"weft", "WEFT_RANK", "WEFT_RANKS", NULL, weft_is_it, NULL, weft_job,
     "pass a table of your own"},
    /* May itself have been started by the ones below. */
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", NULL, NULL,
     torchrun_job,
     "weft.init() in Python uses torchrun's own; from C pass a table"},
    /* Often started inside a Slurm job, as the next. */
    {"openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, NULL, openmpi_job,
     "install libpmix (Debian: libpmix2)"},
    /* Also Intel MPI. */
    {"mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", mpich_is_it, NULL,
     mpich_job, "build libweft_mpi_mpich with MPICH's headers"},
    {"slurm", "SLURM_PROCID", "SLURM_NTASKS", NULL, slurm_is_step, slurm_hosts,
     slurm_job,
     "use srun --mpi=pmix (srun --mpi=list says whether it is there), or "
     "torchrun on each host"},
    {0},
};

static const wf_launcher *launcher_find(void)
{
    for (const wf_launcher *l = wf_launchers; l->name != NULL; l++) {
        if (l->is_it != NULL ? l->is_it() : wf_boot_env(l->rank) != NULL) {
            return l;
        }
    }
    return NULL;
}

const char *weft_boot_launcher(void)
{
    const wf_launcher *l = launcher_find();

    return l != NULL ? l->name : "alone";
}

uint32_t weft_boot_rank_hint(void)
{
    const wf_launcher *l = launcher_find();
    uint32_t rank = 0;

    return l != NULL && env_number(l->rank, &rank) == WEFT_OK ? rank : 0;
}

static weft_status launch_numbers(const wf_launcher *l, wf_boot_launch *launch)
{
    uint32_t local = 0;
    weft_status st = env_number(l->rank, &launch->rank);

    if (st == WEFT_OK) {
        st = env_number(l->ranks, &launch->ranks);
    }
    if (st != WEFT_OK) {
        return st;
    }
    if (launch->rank >= launch->ranks) {
        return wf_fail(WEFT_ERR_INVALID, "%s is %u, but %s is %u", l->rank,
                       launch->rank, l->ranks, launch->ranks);
    }
    if (l->local_ranks != NULL && wf_boot_env(l->local_ranks) != NULL) {
        st = env_number(l->local_ranks, &local);
        launch->several_hosts = st == WEFT_OK && local < launch->ranks;
    }
    return st == WEFT_OK && l->hosts != NULL ? l->hosts(launch) : st;
}

const char *wf_boot_job_name(void)
{
    static const char *const names[] = {"WEFT_JOB", "TORCHELASTIC_RUN_ID",
                                        "SLURM_JOB_ID", "PMIX_NAMESPACE"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *name = wf_boot_env(names[i]);

        /* That is torchrun's word for no id. */
        if (name != NULL && strcmp(name, "none") != 0) {
            return name;
        }
    }
    return NULL;
}

weft_status wf_boot_read_launch(wf_boot_launch *out)
{
    const wf_launcher *l = launcher_find();
    wf_boot_launch launch = {.launcher = "alone", .ranks = 1};
    weft_status st = WEFT_OK;

    if (l != NULL) {
        launch.launcher = l->name;
        launch.advice = l->advice;
        st = launch_numbers(l, &launch);
    }
    if (st == WEFT_OK && launch.ranks > 1) {
        st = wf_boot_env("WEFT_JOB") != NULL ? job_add_env(&launch, "WEFT_JOB")
                                             : l->job(&launch);
    }
    if (st == WEFT_OK) {
        *out = launch;
    }
    return st;
}
