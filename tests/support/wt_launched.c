/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "wt_launched.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/library.h"
#include "wt_board.h"
#include "wt_cmocka.h"

/* The file: a barrier of all processes, and the board of the job. */
typedef struct launched_page {
    _Atomic uint32_t come;
    _Atomic uint32_t turns;
    wt_board board;
} launched_page;

static launched_page *page;
static unsigned self;
static unsigned processes;

static unsigned number_of(const char *a, const char *b)
{
    const char *text = getenv(a) != NULL ? getenv(a) : getenv(b);

    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : 0;
}

bool wt_launched(void)
{
    return getenv("WT_LAUNCHED") != NULL;
}

/* ThreadSanitizer knows nothing of the locks inside MPI. */
int wt_launch_self(unsigned ranks)
{
    static const char *const abis[] = {"openmpi", "mpich"};
    char self_path[1024] = "";
    char line[2048];
    int worst = WT_EXIT_SKIP;

    if (WT_TSAN ||
        readlink("/proc/self/exe", self_path, sizeof(self_path) - 1) < 0) {
        printf("skipped: MPI does not run under this sanitizer\n");
        return worst;
    }
    for (size_t i = 0; i < sizeof(abis) / sizeof(abis[0]); i++) {
        int code;

        printf("under %s:\n", abis[i]);
        fflush(stdout);
        snprintf(line, sizeof(line), "%s %s %u %d '%s'", WT_UNDER_MPIRUN,
                 abis[i], ranks, (int)(120 * WT_SLOWDOWN), self_path);
        code = system(line);
        code = WIFEXITED(code) ? WEXITSTATUS(code) : 1;
        if (worst == WT_EXIT_SKIP || (code != WT_EXIT_SKIP && code != 0)) {
            worst = code;
        }
    }
    return worst;
}

/* One process speaks for all, from the start. */
__attribute__((constructor)) static void launched_hush(void)
{
    self = number_of("OMPI_COMM_WORLD_RANK", "PMI_RANK");
    if (wt_launched() && self != 0 &&
        freopen("/dev/null", "w", stdout) == NULL) {
        exit(1);
    }
}

static void launched_open(void)
{
    int fd = open(getenv("WT_LAUNCHED"), O_RDWR | O_CLOEXEC);

    processes = number_of("OMPI_COMM_WORLD_SIZE", "PMI_SIZE");
    if (fd < 0 || processes == 0 || ftruncate(fd, sizeof(*page)) != 0) {
        perror("WT_LAUNCHED");
        exit(1);
    }
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page == MAP_FAILED) {
        perror("WT_LAUNCHED");
        exit(1);
    }
    wt_the_board = &page->board;
    wt_process_speaks_for(self);
}

const wt_mpi_raw_calls *wt_launched_raw(void)
{
    const void *found = NULL;
    char file[1024];

    snprintf(file, sizeof(file), "%s_%s.so", WT_MPI_RAW, getenv("WEFT_MPI"));
    WT_OK(wf_library_find(NULL, file, WT_MPI_RAW_SYMBOL, &found));
    return found;
}

/* MPI may give more than it was asked for. */
static void launched_level(void)
{
    const char *level = getenv("WT_MPI_LEVEL");

    if (level != NULL && strcmp(level, "serialized") == 0 &&
        !wt_launched_raw()->begin_serialized()) {
        printf("skipped: this MPI has no MPI_THREAD_SERIALIZED\n");
        exit(WT_EXIT_SKIP);
    }
}

/* MPI_Init waits for all processes, also those that no job uses. */
static void launched_start(void)
{
    const wf_transport *t = wt_launched_load();
    wf_address address = {.of = t->name};
    wf_settings settings;
    wf_port *port = NULL;

    launched_level();
    WT_OK(wf_settings_load("TRANSPORTS=mpi", &settings));
    WT_OK(t->prepare(&settings, &port, &address));
    t->close(port);
}

const wf_transport *wt_launched_load(void)
{
    const char *file = NULL;
    const void *found = NULL;
    wf_settings settings;

    if (wf_settings_load(NULL, &settings) != WEFT_OK ||
        wt_transport_mpi.locate(&settings, &file) != WEFT_OK ||
        wf_library_find(NULL, file, WF_TRANSPORT_SYMBOL, &found) != WEFT_OK) {
        printf("skipped: %s\n", weft_error_detail());
        exit(WT_EXIT_SKIP);
    }
    return found;
}

static bool far_reaches(const wf_host *host, uint32_t rank)
{
    return rank < host->ranks &&
           host->peer[rank].node != host->peer[host->rank].node &&
           wt_launched_load()->reaches(host, rank);
}

const wf_transport *wt_launched_far(void)
{
    static wf_transport far;

    far = *wt_launched_load();
    far.reaches = far_reaches;
    return &far;
}

static void launched_meet(void)
{
    uint32_t turn = atomic_load(&page->turns);

    if (atomic_fetch_add(&page->come, 1) + 1 == processes) {
        atomic_store(&page->come, 0);
        atomic_fetch_add(&page->turns, 1);
        wt_futex_wake(&page->turns);
        return;
    }
    wt_futex_await(&page->turns, turn + 1);
}

static void board_begin(const wt_job *job)
{
    wt_board *b = &page->board;
    uint64_t random = 0;

    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
        WT_FAIL("no random numbers");
    }
    memset(b, 0, sizeof(*b));
    b->ranks = job->ranks;
    snprintf(b->name, sizeof(b->name), "wt-%016llx",
             (unsigned long long)random);
}

void wt_launched_skip(void)
{
    wt_parts = NULL; /* the test does not come to its end */
    skip();
}

void wt_launched_run(const wt_job *job)
{
    if (page == NULL) {
        launched_open();
        launched_start();
    }
    if (job->ranks > processes || job->doomed != 0 || wt_parts != NULL) {
        wt_launched_skip();
    }
    wt_child_signals();
    launched_meet();
    if (self == 0) {
        board_begin(job);
    }
    launched_meet();
    if (self < job->ranks) {
        wt_rank_run(job, self);
    }
    launched_meet();
}
