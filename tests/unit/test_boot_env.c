/* SPDX-License-Identifier: Apache-2.0 */
/* What the launchers put into the environment, and what becomes of it. Each
 * case runs in a process of its own that starts with none of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <weft/boot.h>

#include "boot/launcher.h"
#include "wt.h"
#include "wt_cmocka.h"

/* Longer than anything takes; a test never waits for it to pass. */
#define LONG_MS 60000u

/* Start anew with "A=1 B=2". */
static void environment(const char *text)
{
    char copy[512];
    char *rest = copy;
    char *word;

    WT_CHECK(clearenv() == 0);
    snprintf(copy, sizeof(copy), "%s", text);
    while ((word = strtok_r(rest, " ", &rest)) != NULL) {
        char *eq = strchr(word, '=');

        WT_CHECK(eq != NULL);
        *eq = '\0';
        WT_CHECK(setenv(word, eq + 1, 1) == 0);
    }
}

static void run_once(void (*body)(void))
{
    wt_run_job_threads(&(const wt_job){.ranks = 1, .bare = body});
}

/* --- what is found ------------------------------------------------------- */

static wf_boot_launch launch_of(const char *env)
{
    wf_boot_launch launch;

    environment(env);
    WT_OK(wf_boot_read_launch(&launch));
    return launch;
}

static void find_each(void)
{
    static const struct {
        const char *env;
        const char *launcher;
        uint32_t rank;
        uint32_t ranks;
        const char *job;
        bool several_hosts;
    } cases[] = {
        {"", "alone", 0, 1, "", false},
        {"WEFT_RANK=2 WEFT_RANKS=3 WEFT_JOB=mine", "weft", 2, 3, "mine", false},
        {"WEFT_RANK=2 WEFT_RANKS=3 WEFT_BOOT_DIR=/d", "weft", 2, 3, "job",
         false},
        {"WEFT_RANK=0 WEFT_RANKS=1", "weft", 0, 1, "", false},
        {"RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 "
         "MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none "
         "TORCHELASTIC_RESTART_COUNT=2",
         "torchrun", 1, 4, "29500/127.0.0.1/none/2", false},
        {"RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_PORT=29500", "torchrun",
         1, 4, "29500///", true},
        {"RANK=0 WORLD_SIZE=1", "torchrun", 0, 1, "", false},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
         "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=2003632129",
         "openmpi", 1, 2, "2003632129", false},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
         "OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_MCA_ess_base_jobid=77",
         "openmpi", 1, 2, "77", true},
        {"PMI_RANK=3 PMI_SIZE=4 PMI_JOBID=9.0 MPI_LOCALNRANKS=4", "mpich", 3, 4,
         "9.0", false},
        {"PMI_RANK=3 PMI_SIZE=4 WEFT_JOB=j MPI_LOCALNRANKS=2", "mpich", 3, 4,
         "j", true},
        {"SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_JOB_ID=12 SLURM_STEP_ID=0 "
         "SLURM_NNODES=1",
         "slurm", 5, 8, "12/0", false},
        {"SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_JOB_ID=12 SLURM_STEP_ID=3 "
         "SLURM_NNODES=2",
         "slurm", 5, 8, "12/3", true},
        {"SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_JOB_ID=12 SLURM_STEP_ID=3 "
         "SLURM_NNODES=2 SLURM_STEP_NUM_NODES=1",
         "slurm", 5, 8, "12/3", false},
        /* srun --mpi=pmi2, as Slurm 22.05 sets it. */
        {"SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_JOB_ID=12 SLURM_STEP_ID=3 "
         "SLURM_STEP_NUM_NODES=2 SLURM_MPI_TYPE=pmi2 PMI_RANK=5 PMI_SIZE=8 "
         "PMI_FD=11 PMI_JOBID=12.3",
         "slurm", 5, 8, "12/3", true},
        /* MPICH's mpirun that srun has started its proxies for. */
        {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=12 SLURM_STEP_ID=3 "
         "SLURM_STEP_NUM_NODES=2 PMI_RANK=1 PMI_SIZE=2 PMI_JOBID=9 "
         "MPI_LOCALNRANKS=1",
         "mpich", 1, 2, "9", true},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        wf_boot_launch launch = launch_of(cases[i].env);
        uint32_t rank = 77;
        uint32_t ranks = 77;

        WT_CHECK(strcmp(launch.launcher, cases[i].launcher) == 0);
        WT_CHECK(strcmp(weft_boot_launcher(), cases[i].launcher) == 0);
        WT_CHECK(launch.rank == cases[i].rank &&
                 launch.ranks == cases[i].ranks);
        WT_CHECK(weft_boot_rank_hint() == cases[i].rank);
        WT_OK(weft_boot_rank(&rank, &ranks));
        WT_CHECK(rank == cases[i].rank && ranks == cases[i].ranks);
        WT_CHECK(strcmp(launch.job, cases[i].job) == 0);
        WT_CHECK(launch.several_hosts == cases[i].several_hosts);
    }
}

static void every_launcher_is_understood(void **state)
{
    (void)state;
    run_once(find_each);
}

#define SLURM "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_JOB_ID=12 SLURM_STEP_ID=0 "
#define MPICH "PMI_RANK=4 PMI_SIZE=8 PMI_JOBID=1 "
#define OPENMPI                                                                \
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 PMIX_NAMESPACE=1 "
#define TORCHRUN "RANK=2 WORLD_SIZE=8 MASTER_PORT=1 "
#define WEFT "WEFT_RANK=1 WEFT_RANKS=8 "

static void find_nested(void)
{
    WT_CHECK(launch_of(SLURM).rank == 5);
    WT_CHECK(launch_of(SLURM MPICH).rank == 4);
    WT_CHECK(launch_of(SLURM MPICH OPENMPI).rank == 3);
    WT_CHECK(launch_of(SLURM MPICH OPENMPI TORCHRUN).rank == 2);
    WT_CHECK(launch_of(SLURM MPICH OPENMPI TORCHRUN WEFT "WEFT_JOB=j").rank ==
             1);
}

static void the_inner_launcher_wins_and_weft_over_all(void **state)
{
    (void)state;
    run_once(find_nested);
}

static void find_scripts(void)
{
    static const char *const scripts[] = {
        "SLURM_NTASKS=8 SLURM_JOB_ID=12",
        "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=12",
        /* The step of a batch script, and that of an interactive shell. */
        "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=1 SLURM_STEP_ID=4294967291",
        "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=1 SLURM_STEP_ID=4294967290",
    };

    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        WT_CHECK(strcmp(launch_of(scripts[i]).launcher, "alone") == 0);
    }
}

static void a_slurm_script_itself_is_alone(void **state)
{
    (void)state;
    run_once(find_scripts);
}

static void find_empty(void)
{
    environment("");
    WT_CHECK(setenv("RANK", "", 1) == 0);
    WT_CHECK(setenv("WEFT_RANK", "", 1) == 0);
    WT_CHECK(strcmp(weft_boot_launcher(), "alone") == 0);
}

static void an_empty_variable_is_as_good_as_none(void **state)
{
    (void)state;
    run_once(find_empty);
}

/* --- what is refused ----------------------------------------------------- */

static void refuse_each(void)
{
    static const char *const cases[][2] = {
        {"RANK=abc WORLD_SIZE=2 MASTER_PORT=1", "RANK is 'abc'"},
        {"RANK=-1 WORLD_SIZE=2 MASTER_PORT=1", "RANK is '-1'"},
        {"RANK=1x WORLD_SIZE=2 MASTER_PORT=1", "RANK is '1x'"},
        {"RANK=4294967296 WORLD_SIZE=2 MASTER_PORT=1", "RANK is '4294967296'"},
        {"RANK=99999999999999999999 WORLD_SIZE=2", "RANK is '9999"},
        {"RANK=0", "WORLD_SIZE is not set"},
        {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE is 0"},
        {"RANK=2 WORLD_SIZE=2", "RANK is 2"},
        {"RANK=0 WORLD_SIZE=2", "MASTER_PORT is not set"},
        {"RANK=0 WORLD_SIZE=4294967295 MASTER_PORT=1", "ranks is 4294967295"},
        {"RANK=0 WORLD_SIZE=2 MASTER_PORT=1 LOCAL_WORLD_SIZE=x",
         "LOCAL_WORLD_SIZE is 'x'"},
        {"WEFT_RANK=0 WEFT_RANKS=2", "WEFT_JOB is not set"},
        {"WEFT_RANK=0", "WEFT_RANKS is not set"},
        {"WEFT_RANKS=2", "WEFT_RANK is not set"},
        {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE is not set"},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2",
         "PMIX_NAMESPACE is not set"},
        {"PMI_RANK=0 PMI_SIZE=many", "PMI_SIZE is 'many'"},
        {"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=2 WEFT_BOOT_DIR=/",
         "PMI_JOBID is not set"},
        {"RANK=0 WORLD_SIZE=2 MASTER_PORT=1 WEFT_BOOT=telepathy",
         "WEFT_BOOT is 'telepathy'"},
        {"RANK=0 WORLD_SIZE=2 MASTER_PORT=1 WEFT_BOOT=dir",
         "WEFT_BOOT is 'dir'"},
        /* Two jobs of one parent that is no proxy would be one. */
        {"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=4", "PMI_JOBID is not set"},
        {"SLURM_PROCID=0 SLURM_STEP_ID=0", "SLURM_NTASKS is not set"},
        {"SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=2",
         "SLURM_JOB_ID is not set"},
        {"SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_JOB_ID=1 "
         "SLURM_NNODES=?",
         "SLURM_NNODES is '?'"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weft_boot *b = NULL;

        environment(cases[i][0]);
        WT_STATUS(weft_boot_open_env(&b), WEFT_ERR_INVALID);
        WT_CHECK(strstr(weft_error_detail(), cases[i][1]) != NULL);
        WT_CHECK(b == NULL);
    }
    environment("RANK=3 WORLD_SIZE=two");
    WT_CHECK(weft_boot_rank_hint() == 3);
    environment("RANK=three WORLD_SIZE=4");
    WT_CHECK(weft_boot_rank_hint() == 0);
    environment("");
    WT_STATUS(weft_boot_open_env(NULL), WEFT_ERR_INVALID);
    WT_STATUS(weft_boot_rank(NULL, NULL), WEFT_ERR_INVALID);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    run_once(refuse_each);
}

static void refuse_several_hosts(void)
{
    /* And what else than a directory they are advised to use. */
    static const char *const cases[][2] = {
        {TORCHRUN "LOCAL_WORLD_SIZE=4", "weft.init() in Python"},
        {OPENMPI "OMPI_COMM_WORLD_LOCAL_SIZE=4", "libpmix"},
        {MPICH "MPI_LOCALNRANKS=4", "MPI: "},
        {"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=2", "MPI: "},
        {SLURM "SLURM_NNODES=2", "srun --mpi=pmix"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        weft_boot *b = NULL;

        environment(cases[i][0]);
        WT_STATUS(weft_boot_open_env(&b), WEFT_ERR_UNSUPPORTED);
        WT_CHECK(strstr(weft_error_detail(), "WEFT_BOOT_DIR") != NULL);
        WT_CHECK(strstr(weft_error_detail(), cases[i][1]) != NULL);
        WT_CHECK(b == NULL);
    }
}

static void several_hosts_need_a_common_store_and_are_told_which(void **state)
{
    (void)state;
    run_once(refuse_several_hosts);
}

static void refuse_endless(void)
{
    static char text[4096];
    weft_boot *b = NULL;

    environment("RANK=0 WORLD_SIZE=2 MASTER_PORT=1");
    memset(text, 'x', sizeof(text) - 1);
    WT_CHECK(setenv("TORCHELASTIC_RUN_ID", text, 1) == 0);
    WT_STATUS(weft_boot_open_env(&b), WEFT_ERR_INVALID);
    WT_CHECK(strstr(weft_error_detail(), "WEFT_JOB") != NULL && b == NULL);
}

static void a_job_id_without_end_is_refused(void **state)
{
    (void)state;
    run_once(refuse_endless);
}

/* --- jobs ---------------------------------------------------------------- */

static void be_alone(void)
{
    weft_boot *b = NULL;
    char text[8];
    size_t n = sizeof(text);

    environment("");
    WT_OK(weft_boot_open_env(&b));
    WT_CHECK(b->rank == 0 && b->ranks == 1);
    WT_OK(b->set(b->ctx, "key", "alone", 6));
    WT_OK(b->get(b->ctx, "key", text, &n, LONG_MS));
    WT_CHECK(n == 6 && strcmp(text, "alone") == 0);
    /* Nobody else can set it, so this does not wait. */
    WT_STATUS(b->get(b->ctx, "none", text, &n, LONG_MS), WEFT_ERR_TIMEOUT);
    weft_boot_close(b);
}

static void without_a_launcher_a_job_has_one_rank(void **state)
{
    (void)state;
    run_once(be_alone);
}

static void exchange(void)
{
    weft_boot *b = NULL;
    char key[32];

    WT_OK(weft_boot_open_env(&b));
    WT_CHECK(b->rank == wt_rank() && b->ranks == wt_ranks());
    snprintf(key, sizeof(key), "rank.%u", b->rank);
    WT_OK(b->set(b->ctx, key, &b->rank, sizeof(b->rank)));
    for (uint32_t i = 0; i < b->ranks; i++) {
        uint32_t got = UINT32_MAX;
        size_t n = sizeof(got);

        snprintf(key, sizeof(key), "rank.%u", i);
        WT_OK(b->get(b->ctx, key, &got, &n, LONG_MS));
        WT_CHECK(got == i);
    }
    if (b->done != NULL) {
        b->done(b->ctx);
    }
    weft_boot_close(b);
}

static void set_number(const char *name, uint32_t value)
{
    char text[16];

    snprintf(text, sizeof(text), "%u", value);
    WT_CHECK(setenv(name, text, 1) == 0);
}

/* How ranks of each launcher are told of their job, in the order of the table.
 * Without a variable for it they are children of one process, a proxy. */
static const struct way {
    const char *launcher;
    const char *job;
    const char *more;
} ways[] = {
    {"weft", "WEFT_JOB", ""},
    {"torchrun", "TORCHELASTIC_RUN_ID", "MASTER_PORT=29500"},
    {"openmpi", "PMIX_NAMESPACE", ""},
    {"mpich", NULL, ""},
    {"slurm", "SLURM_JOB_ID", "SLURM_STEP_ID=0"},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]), TORCHRUN_WAY = 1 };

/* One launcher's variables for this rank, with a job id that no other run of
 * this test has. */
static void be_rank(unsigned way)
{
    const wf_launcher *l = &wf_launchers[way];
    char job[64];

    wt_job_name(0, job, sizeof(job));
    environment(ways[way].more);
    set_number(l->rank, wt_rank());
    set_number(l->ranks, wt_ranks());
    if (l->local_ranks != NULL) {
        set_number(l->local_ranks, wt_ranks());
    }
    if (ways[way].job != NULL) {
        WT_CHECK(setenv(ways[way].job, job, 1) == 0);
    }
}

/* Three tables in a row, which must not meet. */
static void join_three_times(void)
{
    for (int i = 0; i < 3; i++) {
        exchange();
    }
}

static unsigned tried; /* by all ranks that are started next */

static void join(void)
{
    be_rank(tried);
    WT_CHECK(strcmp(weft_boot_launcher(), ways[tried].launcher) == 0);
    join_three_times();
}

/* The environment belongs to the process, so ranks are processes here. */
static void ranks_of_every_launcher_meet_again_and_again(void **state)
{
    char name[16] = "";

    (void)state;
    assert_null(wf_launchers[WAYS].name);
    assert_int_equal(prctl(PR_GET_NAME, name), 0);
    assert_int_equal(prctl(PR_SET_NAME, "hydra_pmi_proxy"), 0);
    for (tried = 0; tried < WAYS; tried++) {
        wt_run_job(&(const wt_job){.ranks = 4, .bare = join});
    }
    assert_int_equal(prctl(PR_SET_NAME, name), 0);
}

static char directory[64];

static void join_over_a_directory(void)
{
    be_rank(TORCHRUN_WAY);
    WT_CHECK(setenv("LOCAL_WORLD_SIZE", "1", 1) == 0);
    WT_CHECK(setenv("WEFT_BOOT_DIR", directory, 1) == 0);
    join_three_times();
}

static void ranks_of_several_hosts_meet_in_a_directory(void **state)
{
    (void)state;
    if (WT_TSAN) {
        skip();
    }
    snprintf(directory, sizeof(directory), "/tmp/weft-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    wt_run_job(&(const wt_job){.ranks = 4, .bare = join_over_a_directory});
    assert_int_equal(rmdir(directory), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launcher_is_understood),
        cmocka_unit_test(the_inner_launcher_wins_and_weft_over_all),
        cmocka_unit_test(a_slurm_script_itself_is_alone),
        cmocka_unit_test(an_empty_variable_is_as_good_as_none),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(several_hosts_need_a_common_store_and_are_told_which),
        cmocka_unit_test(a_job_id_without_end_is_refused),
        cmocka_unit_test(without_a_launcher_a_job_has_one_rank),
        cmocka_unit_test(ranks_of_every_launcher_meet_again_and_again),
        cmocka_unit_test(ranks_of_several_hosts_meet_in_a_directory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
