/* SPDX-License-Identifier: Apache-2.0 */
/* What runs inside a rank: making its world, waiting for other ranks without
 * the library's help, and saying what went wrong. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/library.h"
#include "socket/socket.h"
#include "weft.h"
#include "wt.h"
#include "wt_board.h"
#include "wt_data.h"
#include "wt_launched.h"

wt_board *wt_the_board;

/* A thread that is no rank speaks for the process's one, if it has one. */
static _Thread_local unsigned thread_rank = UINT32_MAX;
static unsigned process_rank = UINT32_MAX;

unsigned wt_rank(void)
{
    return thread_rank != UINT32_MAX ? thread_rank : process_rank;
}

unsigned wt_ranks(void)
{
    return wt_the_board->ranks;
}

void wt_speak_for(unsigned rank)
{
    thread_rank = rank;
}

void wt_process_speaks_for(unsigned rank)
{
    process_rank = rank;
}

bool wt_over(const char *kind)
{
    const char *text = getenv("WT_TRANSPORT");

    return text != NULL && strcmp(text, kind) == 0;
}

bool wt_full(void)
{
    const char *full = getenv("WT_FULL");

    return full != NULL && strcmp(full, "1") == 0;
}

size_t wt_scaled(size_t n)
{
    return WT_TSAN && n > 4096 ? 4096 + n / 64 : n;
}

double wt_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- failing ------------------------------------------------------------- */

/* "rank 3: ", or nothing for a thread that is no rank. */
static const char *speaker(char *text, size_t room)
{
    text[0] = '\0';
    if (wt_rank() != UINT32_MAX) {
        snprintf(text, room, "rank %u: ", wt_rank());
    }
    return text;
}

void wt_note(const char *fmt, ...)
{
    char text[1024];
    char who[24];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    fprintf(stderr, "wt: %s%s\n", speaker(who, sizeof(who)), text);
}

/* The first reason of a run is the one that counts: what fails after it is
 * most often its echo. */
static void rank_tell(const char *text)
{
    wt_board *b = wt_the_board;
    uint32_t nobody = 0;
    char who[24];

    if (b != NULL && atomic_compare_exchange_strong(&b->failed, &nobody, 1)) {
        snprintf(b->reason, sizeof(b->reason), "%s%s",
                 speaker(who, sizeof(who)), text);
    }
}

void wt_fail_at(const char *file, int line, const char *fmt, ...)
{
    char why[1024];
    char text[1280];
    const char *name = strrchr(file, '/');
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    snprintf(text, sizeof(text), "%s:%d: %s", name != NULL ? name + 1 : file,
             line, why);
    rank_tell(text);
    wt_note("%s", text);
    _exit(1);
}

void wt_skip(const char *why)
{
    rank_tell(why);
    wt_note("skipped: %s", why);
    _exit(WT_EXIT_SKIP);
}

void wt_check_ok(const char *file, int line, const char *text, weft_status st)
{
    if (st != WEFT_OK) {
        wt_fail_at(file, line, "%s: %s: %s", text, weft_status_name(st),
                   weft_error_detail());
    }
}

void wt_check_status(const char *file, int line, const char *text,
                     weft_status got, weft_status want)
{
    if (got != want) {
        wt_fail_at(file, line, "%s: %s instead of %s (%s)", text,
                   weft_status_name(got), weft_status_name(want),
                   got == WEFT_OK ? "no error" : weft_error_detail());
    }
}

bool wt_names_rank(const char *text, unsigned rank)
{
    char want[24];
    int n = snprintf(want, sizeof(want), "rank %u", rank);

    for (const char *p = strstr(text, want); p != NULL;
         p = strstr(p + 1, want)) {
        if (!isdigit((unsigned char)p[n])) {
            return true;
        }
    }
    return false;
}

/* --- waiting ------------------------------------------------------------- */

static void futex_sleep(_Atomic uint32_t *word, uint32_t seen)
{
    /* EAGAIN and EINTR are both seen by the caller's next look at the word. */
    (void)syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

void wt_futex_await(_Atomic uint32_t *word, uint32_t at_least)
{
    uint32_t seen = atomic_load(word);

    while (seen < at_least) {
        futex_sleep(word, seen);
        seen = atomic_load(word);
    }
}

void wt_futex_wake(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE, INT_MAX, NULL, NULL,
                  0);
}

_Atomic uint32_t *wt_word(unsigned index)
{
    return &wt_the_board->word[index];
}

void wt_word_await(unsigned index, uint32_t at_least)
{
    wt_futex_await(wt_word(index), at_least);
}

void wt_word_set(unsigned index, uint32_t value)
{
    atomic_store(wt_word(index), value);
    wt_futex_wake(wt_word(index));
}

void wt_word_add(unsigned index, uint32_t value)
{
    atomic_fetch_add(wt_word(index), value);
    wt_futex_wake(wt_word(index));
}

void wt_meet(void)
{
    wt_board *b = wt_the_board;
    uint32_t meeting = atomic_load(&b->meetings);

    if (atomic_fetch_add(&b->met, 1) + 1 == b->ranks) {
        atomic_store(&b->met, 0);
        atomic_fetch_add(&b->meetings, 1);
        wt_futex_wake(&b->meetings);
        return;
    }
    wt_futex_await(&b->meetings, meeting + 1);
}

void wt_await_gone(unsigned rank)
{
    wt_futex_await(&wt_the_board->gone[rank], 1);
}

/* --- the world ----------------------------------------------------------- */

void wt_job_name(unsigned round, char *text, size_t room)
{
    snprintf(text, room, "%s-%u", wt_the_board->name, round);
}

const wf_parts *wt_parts;

/* The library lies in the build folder, and not beside the test. */
static weft_status mpi_library(const wf_settings *settings, const char **file)
{
    const char *mpich = WT_MODULES "/libweft_mpi_mpich.so";
    const char *openmpi = WT_MODULES "/libweft_mpi_openmpi.so";

    *file = strcmp(settings->mpi, "mpich") == 0 ? mpich : openmpi;
    return WEFT_OK;
}

const wf_transport wt_transport_mpi = {
    .abi = WF_TRANSPORT_ABI, .name = "mpi", .locate = mpi_library};

static const wf_transport wt_transport_ucx = {.abi = WF_TRANSPORT_ABI,
                                              .name = "ucx",
                                              .library =
                                                  WT_MODULES "/libweft_ucx.so"};

static bool reaches_far(const wf_host *host, uint32_t rank)
{
    return rank < host->ranks &&
           host->peer[rank].node != host->peer[host->rank].node;
}

static wf_transport far_ucx;

static void load_far_ucx(void)
{
    const void *found = NULL;

    WT_OK(wf_library_find(NULL, wt_transport_ucx.library, WF_TRANSPORT_SYMBOL,
                          &found));
    far_ucx = *(const wf_transport *)found;
    far_ucx.reaches = reaches_far;
}

/* UCX between nodes, shared memory inside them. */
static const wf_transport *const *ucx_far(void)
{
    static const wf_transport *const all[] = {&wf_transport_self, &far_ucx,
                                              &wf_transport_shm, NULL};
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load_far_ucx);
    return all;
}

/* The library's parts with other transports, if the environment says so. */
static const wf_parts *parts_of_run(wf_parts *room)
{
    static const wf_transport *const far[] = {
        &wf_transport_self, &wt_transport_far, &wf_transport_shm, NULL};
    static const wf_transport *const socket[] = {&wf_transport_self,
                                                 &wt_transport_socket, NULL};
    static const wf_transport *const library[] = {&wf_transport_self,
                                                  &wt_transport_library, NULL};
    static const wf_transport *const mpi[] = {&wf_transport_self,
                                              &wt_transport_mpi, NULL};
    static const wf_transport *const ucx[] = {&wf_transport_self,
                                              &wt_transport_ucx, NULL};
    static const wf_transport *mpi_far[] = {&wf_transport_self, NULL,
                                            &wf_transport_shm, NULL};
    const char *kind = getenv("WT_TRANSPORT");

    if (wt_parts != NULL || kind == NULL) {
        return wt_parts != NULL ? wt_parts : &wf_weft_parts;
    }
    if (strcmp(kind, "mpi_far") == 0) {
        mpi_far[1] = wt_launched_far();
    }
    *room = wf_weft_parts;
    room->transports = strcmp(kind, "far") == 0       ? far
                       : strcmp(kind, "library") == 0 ? library
                       : strcmp(kind, "mpi") == 0     ? mpi
                       : strcmp(kind, "ucx") == 0     ? ucx
                       : strcmp(kind, "ucx_far") == 0 ? ucx_far()
                       : strcmp(kind, "mpi_far") == 0 ? mpi_far
                                                      : socket;
    return room;
}

weft_status wt_join(const char *settings, unsigned round, weft_world **out)
{
    weft_world_options options = {.size = sizeof(options),
                                  .settings = settings};
    static _Thread_local wf_parts parts; /* the world goes on using them */
    const wf_parts *use;
    weft_boot *boot = NULL;
    weft_status st;
    char name[64];

    wt_job_name(round, name, sizeof(name));
    st = weft_boot_open_local(name, wt_rank(), wt_ranks(), &boot);
    if (st != WEFT_OK) {
        return st;
    }
    options.boot = boot;
    use = parts_of_run(&parts);
    boot->one_host = use == &wf_weft_parts; /* others are there to be used */
    st = wf_world_create(&options, use, out);
    weft_boot_close(boot);
    return st;
}

weft_boot *wt_boot(unsigned round)
{
    weft_boot *boot = NULL;
    char name[64];

    wt_job_name(round, name, sizeof(name));
    if (wt_rank() != 0) {
        wt_meet(); /* rank 0 listens now */
    }
    WT_OK(weft_boot_open_local(name, wt_rank(), wt_ranks(), &boot));
    if (wt_rank() == 0) {
        wt_meet();
    } else {
        snprintf(name, sizeof(name), "rank %u is here", wt_rank());
        WT_OK(boot->set(boot->ctx, name, name, 1));
    }
    wt_meet();
    return boot;
}

void wt_check_same(weft_world *world, const void *bytes, size_t n)
{
    unsigned rank = weft_world_rank(world);
    _Atomic uint64_t *hash = wt_the_board->hash;

    atomic_store(&hash[rank], wt_hash(bytes, n));
    WT_OK(weft_barrier(weft_world_comm(world)));
    if (atomic_load(&hash[rank]) != atomic_load(&hash[0])) {
        WT_FAIL("%zu bytes differ from those of rank 0", n);
    }
    WT_OK(weft_barrier(weft_world_comm(world)));
}

static void rank_with_world(const wt_job *job)
{
    const char *settings =
        job->settings_of != NULL ? job->settings_of(wt_rank()) : job->settings;
    weft_world *world = NULL;

    WT_OK(wt_join(settings, 0, &world));
    if (job->doomed != 0) {
        wt_meet(); /* nobody dies while another one is joining */
    }
    job->body(world);
    weft_world_destroy(world);
}

void wt_rank_main(unsigned rank)
{
    wt_rank_run(wt_the_board->job, rank);
}

void wt_rank_run(const wt_job *job, unsigned rank)
{
    wt_speak_for(rank);
    if (job->bare != NULL) {
        job->bare();
    } else {
        rank_with_world(job);
    }
}
