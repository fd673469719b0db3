/* SPDX-License-Identifier: Apache-2.0 */
/* More than 2^31 elements in a block. Two gigabytes of memory for each block
 * would be too much for many machines, so that most of a block is one piece of
 * memory, mapped again and again:
 *
 *     | head | piece | piece | ... | piece | tail |
 *
 * Data repeats as the memory does; only head and tail, where a count or an
 * offset that wraps around would show, have memory of their own. Sums must not
 * be in place, where a piece would be added to again and again; and an engine
 * that adds up in the destination, as that of messages does, leaves only head
 * and tail to be checked. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"

#define PIECE ((size_t)16 << 20)
#define PIECES 128u
#define EDGE ((size_t)1 << 20) /* of head and tail */
#define BLOCK (EDGE + PIECES * PIECE + EDGE)
_Static_assert(BLOCK > (size_t)1 << 31, "more than an int can count");

enum { RANKS = 2 };

/* Set before the ranks are forked. */
static bool by_messages;

/* --- memory -------------------------------------------------------------- */

static void map_block(char *at)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    int prot = PROT_READ | PROT_WRITE;
    int fd = memfd_create("wide", MFD_CLOEXEC);

    WT_CHECK(fd >= 0 && ftruncate(fd, PIECE) == 0);
    WT_CHECK(mmap(at, EDGE, prot, flags, -1, 0) == at);
    at += EDGE;
    for (unsigned i = 0; i < PIECES; i++, at += PIECE) {
        WT_CHECK(mmap(at, PIECE, prot, MAP_SHARED | MAP_FIXED, fd, 0) == at);
    }
    WT_CHECK(mmap(at, EDGE, prot, flags, -1, 0) == at);
    close(fd);
}

/* With pages around it that nobody may touch. */
static char *wide_alloc(unsigned blocks)
{
    char *base = mmap(NULL, blocks * BLOCK + 2 * EDGE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    WT_CHECK(base != MAP_FAILED);
    for (unsigned i = 0; i < blocks; i++) {
        map_block(base + EDGE + i * BLOCK);
    }
    return base + EDGE;
}

static void wide_free(char *at, unsigned blocks)
{
    munmap(at - EDGE, blocks * BLOCK + 2 * EDGE);
}

/* --- data ---------------------------------------------------------------- */

/* Where in a block the three stretches of memory of its own begin. */
static const size_t stretch_at[] = {0, EDGE, EDGE + PIECES *PIECE};
static const size_t stretch_bytes[] = {EDGE, PIECE, EDGE};

/* What `rank` sends in block `block`. */
static uint8_t value(unsigned rank, unsigned block, unsigned stretch, size_t i)
{
    return (uint8_t)(i + (i >> 8) * 3 + (i >> 16) * 5 + rank * 71u +
                     block * 113u + stretch * 29u);
}

/* Of all ranks, in a sum; of one, as it is. */
static uint8_t expected(int rank, unsigned block, unsigned stretch, size_t i)
{
    return rank >= 0 ? value((unsigned)rank, block, stretch, i)
                     : (uint8_t)(value(0, block, stretch, i) +
                                 value(1, block, stretch, i));
}

static void fill(char *at, unsigned rank, unsigned block)
{
    for (unsigned s = 0; s < 3; s++) {
        for (size_t i = 0; i < stretch_bytes[s]; i++) {
            at[stretch_at[s] + i] = (char)value(rank, block, s, i);
        }
    }
}

/* `from`: the rank whose data it is, or -1 for the sum of all. */
static void check(const char *at, int from, unsigned block, const char *what)
{
    unsigned step = from < 0 && by_messages ? 2 : 1;

    for (unsigned s = 0; s < 3; s += step) {
        for (size_t i = 0; i < stretch_bytes[s]; i++) {
            uint8_t got = (uint8_t)at[stretch_at[s] + i];

            if (got != expected(from, block, s, i)) {
                WT_FAIL("%s: byte %zu is %u instead of %u", what,
                        stretch_at[s] + i, got, expected(from, block, s, i));
            }
        }
    }
}

/* --- the operations ------------------------------------------------------ */

static void wide_broadcast(weft_comm *comm, unsigned rank)
{
    char *x = wide_alloc(1);

    fill(x, rank, 0);
    WT_OK(weft_broadcast(comm, x, BLOCK, WEFT_U8, 1));
    check(x, 1, 0, "broadcast");
    wide_free(x, 1);
}

static void wide_allreduce(weft_comm *comm, unsigned rank)
{
    char *x = wide_alloc(1);
    char *y = wide_alloc(1);

    fill(x, rank, 0);
    WT_OK(weft_allreduce(comm, x, y, BLOCK, WEFT_U8, WEFT_SUM));
    check(y, -1, 0, "allreduce");
    check(x, (int)rank, 0, "source of allreduce");
    wide_free(x, 1);
    wide_free(y, 1);
}

static void wide_allgather(weft_comm *comm, unsigned rank)
{
    char *x = wide_alloc(RANKS);

    fill(x + rank * BLOCK, rank, 0);
    WT_OK(weft_allgather(comm, x + rank * BLOCK, x, BLOCK, WEFT_U8));
    for (unsigned r = 0; r < RANKS; r++) {
        check(x + r * BLOCK, (int)r, 0, "allgather");
    }
    wide_free(x, RANKS);
}

static void wide_gather(weft_comm *comm, unsigned rank)
{
    char *x = wide_alloc(1);
    char *y = rank == 0 ? wide_alloc(RANKS) : NULL;

    fill(x, rank, 0);
    WT_OK(weft_gather(comm, x, y, BLOCK, WEFT_U8, 0));
    for (unsigned r = 0; y != NULL && r < RANKS; r++) {
        check(y + r * BLOCK, (int)r, 0, "gather");
    }
    if (y != NULL) {
        wide_free(y, RANKS);
    }
    wide_free(x, 1);
}

static void wide_scatter(weft_comm *comm, unsigned rank)
{
    char *x = rank == 0 ? wide_alloc(RANKS) : NULL;
    char *y = wide_alloc(1);

    for (unsigned r = 0; x != NULL && r < RANKS; r++) {
        fill(x + r * BLOCK, rank, r);
    }
    WT_OK(weft_scatter(comm, x, y, BLOCK, WEFT_U8, 0));
    check(y, 0, rank, "scatter");
    if (x != NULL) {
        wide_free(x, RANKS);
    }
    wide_free(y, 1);
}

static void wide_alltoall(weft_comm *comm, unsigned rank)
{
    char *x = wide_alloc(RANKS);
    char *y = wide_alloc(RANKS);

    for (unsigned r = 0; r < RANKS; r++) {
        fill(x + r * BLOCK, rank, r);
    }
    WT_OK(weft_alltoall(comm, x, y, BLOCK, WEFT_U8));
    for (unsigned r = 0; r < RANKS; r++) {
        check(y + r * BLOCK, (int)r, rank, "alltoall");
    }
    wide_free(x, RANKS);
    wide_free(y, RANKS);
}

/* Rank 0 sends a wide part to rank 1, which sends one byte to it. */
static void wide_alltoallv(weft_comm *comm, unsigned rank)
{
    char byte = rank == 1 ? 42 : 0;
    weft_part narrow = {&byte, 1};
    weft_part nothing = {NULL, 0};
    weft_part wide = {wide_alloc(1), BLOCK};
    weft_part src[RANKS] = {nothing, nothing};
    weft_part dst[RANKS] = {nothing, nothing};

    fill(wide.at, rank, 0);
    src[1 - rank] = rank == 0 ? wide : narrow;
    dst[1 - rank] = rank == 0 ? narrow : wide;
    WT_OK(weft_alltoallv(comm, src, dst, WEFT_U8));
    check(wide.at, 0, 0, "alltoallv");
    WT_CHECK(byte == 42);
    wide_free(wide.at, 1);
}

static void wide_reduce_scatter(weft_comm *comm, unsigned rank)
{
    char *x = wide_alloc(RANKS);
    char *y = wide_alloc(1);

    for (unsigned r = 0; r < RANKS; r++) {
        fill(x + r * BLOCK, rank, r);
    }
    WT_OK(weft_reduce_scatter(comm, x, y, BLOCK, WEFT_U8, WEFT_SUM));
    check(y, -1, rank, "reduce_scatter");
    wide_free(x, RANKS);
    wide_free(y, 1);
}

static void wide_scan(weft_comm *comm, unsigned rank)
{
    char *x = wide_alloc(1);
    char *y = wide_alloc(1);

    fill(x, rank, 0);
    WT_OK(weft_scan(comm, x, y, BLOCK, WEFT_U8, WEFT_SUM));
    check(y, rank == 0 ? 0 : -1, 0, "scan");
    wide_free(x, 1);
    wide_free(y, 1);
}

static void wide_reduce(weft_comm *comm, unsigned rank)
{
    char *x = wide_alloc(1);
    char *y = rank == 1 ? wide_alloc(1) : NULL;

    fill(x, rank, 0);
    WT_OK(weft_reduce(comm, x, y, BLOCK, WEFT_U8, WEFT_SUM, 1));
    if (y != NULL) {
        check(y, -1, 0, "reduce");
        wide_free(y, 1);
    }
    wide_free(x, 1);
}

/* --- the tests ----------------------------------------------------------- */

typedef void wide_test(weft_comm *comm, unsigned rank);

/* The first ones are run always, the others in the full run. */
static wide_test *const tests_of_width[] = {
    wide_broadcast, wide_alltoallv, wide_allreduce,      wide_allgather,
    wide_gather,    wide_alltoall,  wide_reduce_scatter, wide_scatter,
    wide_scan,      wide_reduce};

enum { ALL_TESTS = 10, SHORT_TESTS = 2 };

static void wide_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned count = wt_full() ? ALL_TESTS : SHORT_TESTS;

    for (unsigned i = 0; i < count; i++) {
        tests_of_width[i](comm, weft_comm_rank(comm));
    }
}

static size_t available_mib(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    size_t kib = 0;

    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "MemAvailable: %zu", &kib) == 1) {
            break;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return kib >> 10;
}

static void more_than_2_to_the_31_elements_are_moved_and_reduced(void **state)
{
    (void)state;
    by_messages = false;
    wt_run_job(&(wt_job){.ranks = RANKS, .body = wide_body, .deadline = 300});
}

/* Messages need memory for the data of others: as much as there is data. */
static void messages_of_more_than_2_to_the_31_elements_are_right(void **state)
{
    (void)state;
    if (!wt_full() || available_mib() < 12000) {
        wt_note("skipped: in the full run only, with 12 GB of free memory");
        skip();
    }
    by_messages = true;
    wt_run_job(&(wt_job){.ranks = RANKS,
                         .settings = "ENGINE=message",
                         .body = wide_body,
                         .deadline = 300});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_than_2_to_the_31_elements_are_moved_and_reduced),
        cmocka_unit_test(messages_of_more_than_2_to_the_31_elements_are_right),
    };

    if (WT_TSAN || (WT_ASAN && !wt_full())) {
        return WT_EXIT_SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
