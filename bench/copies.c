/* SPDX-License-Identifier: Apache-2.0 */
/* What the copies of collectives among many ranks cost by themselves: the same
 * copies as src/coll/shm makes, between processes that do nothing else but look
 * at each other's counters.
 *
 *     copies [ranks]
 *
 *   slots    through two slots of each rank, as private buffers go
 *   direct   out of the others' buffers, as those in arenas go
 *
 * Bytes are those that a rank has for one other, or for all of them if all get
 * the same. Microseconds a call, the median of several rounds of calls one
 * after the other; each rank has a core.
 *
 * Then ways in which each rank can sum its block of what all have, straight out
 * of the others' buffers, and parts of that:
 *
 *   ordinary  stores, which read the lines of the result first
 *   block     into a block in the L1 cache, which is then streamed from there
 *   stream    streaming stores
 *   reads     of the sources alone
 *   copies    streamed, of as many bytes as a sum reads and writes: the bound
 *             of `weft bench` */
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/stream.h"
#include "base/time.h"
#include "coll/shm/area.h"

#define MOST_RANKS 64u
#define MOST_BYTES ((size_t)4 << 20)
#define CHUNK ((size_t)64 << 10) /* of a sum, and of a block for one rank */
#define BIG_CHUNK ((size_t)256 << 10) /* of a block for all */
#define SLOT_SHIFT 1088u              /* as the library's, against aliasing */
#define ROUNDS 9u
#define WHOLE_BYTES ((size_t)64 << 20) /* blocks of all ranks together */
#define FOLD_BYTES 8192u               /* folded into the L1 cache */

typedef struct counters {
    alignas(128) _Atomic uint64_t in;
    alignas(128) _Atomic uint64_t red;
    alignas(128) _Atomic uint64_t out;
    alignas(128) _Atomic uint64_t met;
} counters;

static counters *all; /* by rank, shared */
static unsigned ranks;
static unsigned rank;
static unsigned char *slot[MOST_RANKS];
static unsigned char *src[MOST_RANKS];
static unsigned char *dst[MOST_RANKS];
static uint64_t base; /* chunks so far */
static uint64_t met;  /* meetings so far */

static void await(const _Atomic uint64_t *counter, uint64_t value)
{
    while (atomic_load_explicit(counter, memory_order_acquire) < value) {
        wf_cpu_relax();
    }
}

static void tell(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_release);
}

static void meet(void)
{
    tell(&all[rank].met, ++met);
    for (unsigned r = 0; r < ranks; r++) {
        await(&all[r].met, met);
    }
}

static void await_out(uint64_t value)
{
    for (unsigned r = 0; r < ranks; r++) {
        if (r != rank) {
            await(&all[r].out, value);
        }
    }
}

static unsigned after(unsigned by)
{
    return (rank + by) % ranks;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- a block for all ----------------------------------------------------- */

static void gather_bring(size_t bytes, uint64_t chunk)
{
    size_t at = chunk * BIG_CHUNK;

    if (at < bytes) {
        await_out(base + (chunk < 2 ? 0 : chunk - 1));
        memcpy(slot[rank] + chunk % 2 * BIG_CHUNK, src[rank] + at,
               least(bytes - at, BIG_CHUNK));
        tell(&all[rank].in, base + chunk + 1);
    }
}

static void allgather_slots(size_t bytes)
{
    uint64_t chunks = (bytes + BIG_CHUNK - 1) / BIG_CHUNK;

    gather_bring(bytes, 0);
    memcpy(dst[rank] + rank * bytes, src[rank], bytes);
    for (uint64_t c = 0; c < chunks; c++) {
        gather_bring(bytes, c + 1);
        for (unsigned i = 1; i < ranks; i++) {
            unsigned r = after(i);

            await(&all[r].in, base + c + 1);
            memcpy(dst[rank] + r * bytes + c * BIG_CHUNK,
                   slot[r] + c % 2 * BIG_CHUNK,
                   least(bytes - c * BIG_CHUNK, BIG_CHUNK));
        }
        tell(&all[rank].out, base + c + 1);
    }
    await_out(base + chunks);
    base += chunks;
}

static void allgather_direct(size_t bytes)
{
    meet();
    for (unsigned i = 0; i < ranks; i++) {
        memcpy(dst[rank] + after(i) * bytes, src[after(i)], bytes);
    }
    meet();
}

/* --- a block for each ---------------------------------------------------- */

static unsigned char *subslot(unsigned from, unsigned to, uint64_t chunk)
{
    return slot[from] + (chunk % 2 * ranks + to) * CHUNK;
}

static void alltoall_bring(size_t bytes, uint64_t chunk)
{
    size_t at = chunk * CHUNK;

    if (at < bytes) {
        await_out(base + (chunk < 2 ? 0 : chunk - 1));
        for (unsigned i = 1; i < ranks; i++) {
            memcpy(subslot(rank, after(i), chunk),
                   src[rank] + after(i) * bytes + at, least(bytes - at, CHUNK));
        }
        tell(&all[rank].in, base + chunk + 1);
    }
}

static void alltoall_slots(size_t bytes)
{
    uint64_t chunks = (bytes + CHUNK - 1) / CHUNK;

    alltoall_bring(bytes, 0);
    memcpy(dst[rank] + rank * bytes, src[rank] + rank * bytes, bytes);
    for (uint64_t c = 0; c < chunks; c++) {
        alltoall_bring(bytes, c + 1);
        for (unsigned i = 1; i < ranks; i++) {
            unsigned r = after(i);

            await(&all[r].in, base + c + 1);
            memcpy(dst[rank] + r * bytes + c * CHUNK, subslot(r, rank, c),
                   least(bytes - c * CHUNK, CHUNK));
        }
        tell(&all[rank].out, base + c + 1);
    }
    await_out(base + chunks);
    base += chunks;
}

static void alltoall_direct(size_t bytes)
{
    meet();
    for (unsigned i = 0; i < ranks; i++) {
        memcpy(dst[rank] + after(i) * bytes, src[after(i)] + rank * bytes,
               bytes);
    }
    meet();
}

/* --- sums ---------------------------------------------------------------- */

static void fold(float *const to[], unsigned ndst, const float *const from[],
                 size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        float sum[16];

        memcpy(sum, from[0] + i, sizeof(sum));
        for (unsigned r = 1; r < ranks; r++) {
            for (unsigned k = 0; k < 16; k++) {
                sum[k] += from[r][i + k];
            }
        }
        for (unsigned d = 0; d < ndst; d++) {
            memcpy(to[d] + i, sum, sizeof(sum));
        }
    }
}

/* The same share of every source, into the same of every destination. */
static void fold_share(unsigned char *const from[], unsigned char *const to[],
                       size_t at, size_t bytes)
{
    shm_share own = shm_share_of(bytes, rank, ranks);
    const float *sources[MOST_RANKS];
    float *results[MOST_RANKS];

    for (unsigned r = 0; r < ranks; r++) {
        sources[r] = (const float *)(const void *)(from[r] + at + own.from);
        results[r] = (float *)(void *)(to[r] + at + own.from);
    }
    fold(results, ranks, sources, (own.until - own.from) / sizeof(float));
}

static void sum_bring(size_t bytes, uint64_t chunk)
{
    size_t at = chunk * CHUNK;

    if (at < bytes) {
        memcpy(slot[rank] + chunk % 2 * CHUNK, src[rank] + at,
               least(bytes - at, CHUNK));
        tell(&all[rank].in, base + chunk + 1);
    }
}

static void allreduce_slots(size_t bytes)
{
    uint64_t chunks = (bytes + CHUNK - 1) / CHUNK;

    sum_bring(bytes, 0);
    for (uint64_t c = 0; c < chunks; c++) {
        size_t length = least(bytes - c * CHUNK, CHUNK);

        sum_bring(bytes, c + 1);
        for (unsigned r = 0; r < ranks; r++) {
            await(&all[r].in, base + c + 1);
        }
        fold_share(slot, slot, c % 2 * CHUNK, length);
        tell(&all[rank].red, base + c + 1);
        for (unsigned r = 0; r < ranks; r++) {
            await(&all[r].red, base + c + 1);
        }
        memcpy(dst[rank] + c * CHUNK, slot[rank] + c % 2 * CHUNK, length);
    }
    tell(&all[rank].out, base + chunks);
    base += chunks;
}

static void allreduce_direct(size_t bytes)
{
    meet();
    fold_share(src, dst, 0, bytes);
    meet();
}

/* --- sums that outgrow the caches ---------------------------------------- */

static const float *source_of(unsigned r, size_t at, size_t bytes)
{
    return (const float *)(const void *)(src[r] + rank * bytes + at);
}

/* The library's kernel, on `n` bytes from `at` on. */
static void add_all(void *to, size_t at, size_t n, size_t bytes, bool stream)
{
    const void *from[MOST_RANKS];
    wf_reducer sum;

    (void)wf_reducer_init(&sum, WEFT_F32, WEFT_SUM, ranks);
    sum.stream = stream;
    for (unsigned r = 0; r < ranks; r++) {
        from[r] = source_of(r, at, bytes);
    }
    sum.fold(&sum, &to, 1, from, ranks, n / sizeof(float));
}

static void sum_ordinary(size_t bytes)
{
    meet();
    add_all(dst[rank], 0, bytes, bytes, false);
    meet();
}

static void sum_block(size_t bytes)
{
    alignas(64) unsigned char block[FOLD_BYTES];

    meet();
    for (size_t at = 0; at < bytes; at += FOLD_BYTES) {
        size_t n = least(bytes - at, FOLD_BYTES);

        add_all(block, at, n, bytes, false);
        wf_copy_stream(dst[rank] + at, block, n);
    }
    meet();
}

static void sum_stream(size_t bytes)
{
    meet();
    add_all(dst[rank], 0, bytes, bytes, true);
    meet();
}

static volatile float sink;

static void sum_reads(size_t bytes)
{
    meet();
    for (unsigned r = 0; r < ranks; r++) {
        const float *from = source_of(r, 0, bytes);
        float sum[16] = {0};

        for (size_t i = 0; i < bytes / sizeof(float); i += 16) {
            for (unsigned k = 0; k < 16; k++) {
                sum[k] += from[i + k];
            }
        }
        for (unsigned k = 0; k < 16; k++) {
            sink = sum[k];
        }
    }
    meet();
}

static void sum_copies(size_t bytes)
{
    size_t left = (ranks + 1) * bytes / 2;

    meet();
    for (unsigned r = 0; left > 0; r++) {
        size_t n = least(left, bytes);

        wf_copy_stream(dst[rank], source_of(r, 0, bytes), n);
        left -= n;
    }
    meet();
}

/* --- main ---------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static double microseconds(void (*call)(size_t bytes), size_t bytes)
{
    unsigned calls = bytes >= ((size_t)1 << 20) ? 3 : 20;
    double us[ROUNDS];

    meet();
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t start = wf_now_ns();

        for (unsigned k = 0; k < calls; k++) {
            call(bytes);
        }
        us[i] = (double)(wf_now_ns() - start) / 1e3 / calls;
    }
    qsort(us, ROUNDS, sizeof(us[0]), compare);
    return us[ROUNDS / 2];
}

static void compare_ways(const char *name, void (*slots)(size_t bytes),
                         void (*direct)(size_t bytes), size_t bytes)
{
    double through = microseconds(slots, bytes);
    double straight = microseconds(direct, bytes);

    if (rank == 0) {
        printf("%-10s %5zu KiB  slots %9.1f  direct %9.1f\n", name, bytes >> 10,
               through, straight);
    }
}

static void compare_sums(void)
{
    static const struct {
        const char *name;
        void (*call)(size_t bytes);
    } way[] = {{"ordinary", sum_ordinary},
               {"block", sum_block},
               {"stream", sum_stream},
               {"reads", sum_reads},
               {"copies", sum_copies}};
    size_t bytes = WHOLE_BYTES / ranks / 64 * 64;

    for (unsigned i = 0; i < sizeof(way) / sizeof(way[0]); i++) {
        double us = microseconds(way[i].call, bytes);

        if (rank == 0) {
            printf("sum of blocks of %zu KiB  %-8s %9.1f\n", bytes >> 10,
                   way[i].name, us);
        }
    }
}

static size_t source_bytes(void)
{
    size_t most = ranks * MOST_BYTES;

    return most > WHOLE_BYTES ? most : WHOLE_BYTES;
}

static void be_rank(unsigned number)
{
    static const size_t sizes[] = {(size_t)64 << 10, (size_t)512 << 10,
                                   MOST_BYTES};
    cpu_set_t core;

    rank = number;
    CPU_ZERO(&core);
    CPU_SET(number, &core);
    sched_setaffinity(0, sizeof(core), &core);
    memset(slot[rank], 1, 2 * ranks * CHUNK + 2 * BIG_CHUNK);
    memset(src[rank], 1, source_bytes());
    memset(dst[rank], 1, source_bytes());
    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        compare_ways("allreduce", allreduce_slots, allreduce_direct, sizes[i]);
        compare_ways("allgather", allgather_slots, allgather_direct, sizes[i]);
        compare_ways("alltoall", alltoall_slots, alltoall_direct, sizes[i]);
    }
    compare_sums();
}

static void *shared(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        perror("copies: mmap");
        exit(EXIT_FAILURE);
    }
    return at;
}

int main(int argc, char **argv)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    ranks = argc > 1 ? (unsigned)atoi(argv[1]) : (unsigned)cores;
    if (ranks < 2 || ranks > MOST_RANKS || ranks > cores) {
        fprintf(stderr, "copies: from 2 to %ld ranks, a core for each\n",
                cores < (long)MOST_RANKS ? cores : (long)MOST_RANKS);
        return EXIT_FAILURE;
    }
    all = shared(ranks * sizeof(*all));
    for (unsigned r = 0; r < ranks; r++) {
        slot[r] = (unsigned char *)shared(2 * ranks * CHUNK + 2 * BIG_CHUNK +
                                          2 * SLOT_SHIFT) +
                  SLOT_SHIFT;
        src[r] = shared(source_bytes());
        dst[r] = shared(source_bytes());
    }
    for (unsigned r = 1; r < ranks; r++) {
        pid_t child = fork();

        if (child < 0) {
            perror("copies: fork");
            return EXIT_FAILURE;
        }
        if (child == 0) {
            be_rank(r);
            _exit(EXIT_SUCCESS);
        }
    }
    be_rank(0);
    while (wait(NULL) > 0) {
    }
    return EXIT_SUCCESS;
}
