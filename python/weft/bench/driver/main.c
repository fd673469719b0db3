/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a benchmark job.
 *
 *     driver --serve SOCKET PAGE CORES
 *         Say "hello RANK RANKS" on the coordinator's socket, then do what it
 *         says until it closes. Between commands the rank sleeps in the
 *         kernel, so that it does not disturb the job whose turn it is.
 *
 *     driver OP BYTES 4k|thp|arena MS
 *         By hand: check, time one block, and print it. Start all ranks with
 *         the library's own launcher.
 *
 * A command is "check|block OP BYTES 4k|thp|arena MS SEED"; the answer is "ok",
 * with the figures of a block, "failed", or "lacks": there is no memory of the
 * library's own for it. */
#define _GNU_SOURCE
#include "work.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MESSAGE_MAX = 256 };

static int case_from(const char *text, char *verb, work_case *out)
{
    char op[16];
    char pages[8];

    if (sscanf(text, "%15s %15s %zu %7s %lf %" SCNu32, verb, op, &out->bytes,
               pages, &out->ms, &out->seed) != 6) {
        fprintf(stderr, "not a command: %s\n", text);
        return -1;
    }
    out->huge = strcmp(pages, "thp") == 0;
    out->arena = strcmp(pages, "arena") == 0;
    return op_from_name(op, &out->op);
}

/* `cores` is a list as "0,1,5"; rank r takes number r of it, cyclically. */
static int pin(const char *cores, int rank, int *count)
{
    int core[CPU_SETSIZE];
    cpu_set_t set;
    int n = 0;

    for (const char *at = cores; *at != '\0' && n < CPU_SETSIZE; n++) {
        char *end;
        core[n] = (int)strtol(at, &end, 10);
        if (end == at) {
            fprintf(stderr, "not a list of cores: %s\n", cores);
            return -1;
        }
        at = *end == ',' ? end + 1 : end;
    }
    if (n == 0) {
        fprintf(stderr, "the list of cores is empty\n");
        return -1;
    }
    CPU_ZERO(&set);
    CPU_SET((size_t)core[rank % n], &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0) {
        fprintf(stderr, "core %d: %s\n", core[rank % n], strerror(errno));
        return -1;
    }
    *count = n;
    return 0;
}

static int dial(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0 || strlen(path) >= sizeof(to.sun_path)) {
        fprintf(stderr, "no socket for %s\n", path);
        return -1;
    }
    memcpy(to.sun_path, path, strlen(path) + 1);
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        perror(path);
        close(fd);
        return -1;
    }
    return fd;
}

static void obey(struct page *page, const char *text, char *answer)
{
    char verb[16];
    work_case c;
    work_result r = {0};
    bool check = false;
    int rc = case_from(text, verb, &c);

    if (rc == 0) {
        check = strcmp(verb, "check") == 0;
        rc = check ? work_check(page, &c) : work_block(page, &c, &r);
    }
    if (rc != 0) {
        snprintf(answer, MESSAGE_MAX, rc == WORK_LACKS ? "lacks" : "failed");
    } else if (check) {
        snprintf(answer, MESSAGE_MAX, "ok");
    } else {
        snprintf(answer, MESSAGE_MAX, "ok %.2f %.2f %.2f %.2f %.2f %" PRIu64,
                 r.probe_before, r.probe_after, r.median, r.low, r.high,
                 r.calls);
    }
}

static int serve(int fd, struct page *page, int rank, int ranks)
{
    char text[MESSAGE_MAX];
    char answer[MESSAGE_MAX];
    ssize_t n;

    n = snprintf(text, sizeof(text), "hello %d %d", rank, ranks);
    while (send(fd, text, (size_t)n, MSG_NOSIGNAL) == n) {
        ssize_t got = recv(fd, text, sizeof(text) - 1, 0);
        if (got <= 0) {
            return got == 0 ? 0 : -1;
        }
        text[got] = '\0';
        obey(page, text, answer);
        n = snprintf(text, sizeof(text), "%s", answer);
    }
    return -1;
}

static int run_served(char **arg, int rank, int ranks)
{
    struct page *page;
    int cores;
    int rc = -1;
    int fd;

    if (pin(arg[2], rank, &cores) != 0) {
        return -1;
    }
    fd = dial(arg[0]);
    if (fd < 0) {
        return -1;
    }
    page = page_open(arg[1], rank, ranks, cores);
    if (page != NULL) {
        rc = serve(fd, page, rank, ranks);
        page_close(page);
    }
    close(fd);
    return rc;
}

/* Rank 0 makes the page and keeps its descriptor, through which the others
 * open it, until all are done. */
static int make_page(int rank, int ranks, char *path, size_t room)
{
    memset(path, 0, room);
    if (rank == 0) {
        int fd = memfd_create("weft-bench", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)page_bytes(ranks)) != 0) {
            perror("memfd_create");
            return -1;
        }
        snprintf(path, room, "/proc/%d/fd/%d", (int)getpid(), fd);
    }
    return work_share_path(path, room);
}

static int report_by_hand(struct page *page, const char *text, int rank)
{
    char answer[MESSAGE_MAX];
    char verb[16];
    work_case c;

    if (case_from(text, verb, &c) != 0 || work_check(page, &c) != 0) {
        return -1;
    }
    obey(page, text, answer);
    if (rank == 0) {
        printf("rank 0: %s\n", text);
        printf("probe before, after; median, low, high (ns); calls: %s\n",
               answer);
    }
    page_sync(page);
    return strncmp(answer, "ok", 2) == 0 ? 0 : -1;
}

static int run_by_hand(char **arg, int rank, int ranks)
{
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    struct page *page;
    char list[16];
    char path[64];
    char text[MESSAGE_MAX];
    int one;
    int rc;

    snprintf(list, sizeof(list), "%d", rank % cores);
    if (pin(list, rank, &one) != 0 ||
        make_page(rank, ranks, path, sizeof(path)) != 0) {
        return -1;
    }
    page = page_open(path, rank, ranks, cores);
    if (page == NULL) {
        return -1;
    }
    snprintf(text, sizeof(text), "block %s %s %s %s %u", arg[0], arg[1], arg[2],
             arg[3], (unsigned)page_agree(page, page_now() % 1000000));
    rc = report_by_hand(page, text, rank);
    page_close(page);
    return rc;
}

int main(int argc, char **argv)
{
    int rank = 0;
    int ranks = 1;
    int rc;

    /* A rank does not outlive its launcher. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (work_init(&argc, &argv, &rank, &ranks) != 0) {
        return 1;
    }
    if (argc == 5 && strcmp(argv[1], "--serve") == 0) {
        rc = run_served(argv + 2, rank, ranks);
    } else if (argc == 5) {
        rc = run_by_hand(argv + 1, rank, ranks);
    } else {
        fprintf(stderr, "usage: %s OP BYTES 4k|thp|arena MS\n", argv[0]);
        rc = -1;
    }
    if (rc == 0) {
        work_fini();
    }
    return rc == 0 ? 0 : 1;
}
