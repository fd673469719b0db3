/* SPDX-License-Identifier: Apache-2.0 */
/* What the copies of collectives among many ranks cost by themselves: the same
 * copies as src/coll/shm makes, between processes that do nothing else but look
 * at each other's counters.
 *
 *     copies [ranks [operation]]
 *
 *   slots    through two slots of each rank, as private buffers go
 *   direct   out of the others' buffers, as those in arenas go
 *
 * and forms of them that tell what a part costs or would save:
 *
 *   compared      a broadcast ends when all ranks have come to it, as the
 *                 library's does (rule C1 in area.h)
 *   taken         each rank takes the shares of a sum out of the slots of those
 *                 who folded them; the library stores them into its slot
 *   other stores  results go past the caches, or, where the library streams
 *                 them, do not
 *   groups        one rank of a group reads the root's copy, the others theirs
 *
 * Bytes are those that a rank has for one other, or for all of them if all get
 * the same. The forms of an operation take turns; each broadcast has the next
 * root, and one buffer on each rank, so that what is read was written by the
 * call before. What is read and written is counted where it is copied: means of
 * all ranks, a call; "others'" is what of both lies in another rank's memory.
 *
 * The last operation sums blocks that outgrow the caches: each rank folds its
 * own straight out of the others' buffers. Its forms, and parts of it:
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
#define SMALL_CHUNK ((size_t)16 << 10) /* of a broadcast, at least */
#define CHUNK ((size_t)64 << 10)       /* of a sum, of a block for one rank */
#define BIG_CHUNK ((size_t)256 << 10)  /* of a block for all */
#define SLOT_SHIFT 1088u               /* as the library's, against aliasing */
#define ROUNDS 15u
#define ROUND_US 3000.0
#define MOST_CALLS 512u
#define MOST_WAYS 8u
#define GROUP 4u                       /* where all cores share one cache */
#define WHOLE_BYTES ((size_t)64 << 20) /* blocks of all ranks together */
#define FOLD_BYTES 8192u               /* folded into the L1 cache */

typedef struct moved {
    uint64_t read;
    uint64_t written;
    uint64_t others; /* of both, in the memory of another rank */
} moved;

typedef struct counters {
    alignas(128) _Atomic uint64_t in;
    alignas(128) _Atomic uint64_t red;
    alignas(128) _Atomic uint64_t out;
    alignas(128) _Atomic uint64_t met;
    alignas(128) moved sum; /* these two are for rank 0's report */
    unsigned calls;
} counters;

static counters *all; /* by rank, shared */
static unsigned ranks;
static unsigned rank;
static unsigned group; /* ranks in one */
static int cores[MOST_RANKS];
static unsigned char *slot[MOST_RANKS];
static unsigned char *src[MOST_RANKS];
static unsigned char *dst[MOST_RANKS];
static uint64_t base; /* chunks so far */
static uint64_t met;  /* meetings so far */
static moved own;     /* in the calls that are counted */
static wf_reducer sum;

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

static void come(void)
{
    tell(&all[rank].met, ++met);
}

static void await_come(void)
{
    for (unsigned r = 0; r < ranks; r++) {
        await(&all[r].met, met);
    }
}

static void meet(void)
{
    come();
    await_come();
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

static uint64_t chunks_of(size_t bytes, size_t chunk)
{
    return (bytes + chunk - 1) / chunk;
}

static unsigned char *slot_of(unsigned r, uint64_t chunk)
{
    return slot[r] + chunk % 2 * BIG_CHUNK;
}

/* Does the library store a result of so many bytes past the caches? */
static bool streams(size_t bytes)
{
    return bytes >= WF_STREAM_FROM_BYTES / ranks;
}

/* Copy, out of the memory of rank `from_rank`. */
static void copy(void *to, const void *from, size_t n, unsigned from_rank,
                 bool stream)
{
    if (stream) {
        wf_copy_stream(to, from, n);
    } else {
        memcpy(to, from, n);
    }
    own.read += n;
    own.written += n;
    own.others += from_rank == rank ? 0 : n;
}

/* Fold `n` bytes of all ranks; of the results `others` are other ranks'. */
static void fold(void *const to[], unsigned nto, unsigned others,
                 const void *const from[], size_t n)
{
    sum.fold(&sum, to, nto, from, ranks, n / sizeof(float));
    own.read += n * ranks;
    own.written += n * nto;
    own.others += n * (ranks - 1 + others);
}

/* --- a broadcast --------------------------------------------------------- */

typedef struct spread {
    bool direct;
    bool compared;
    bool other_stores;
    unsigned group; /* 0: all read the root's copy */
} spread;

/* Until when, and for whom, what is in our slots is needed. */
static struct {
    uint64_t until;
    uint64_t whom;
} lent[2];
static unsigned root;

static unsigned feeder_of(unsigned r, unsigned in_group)
{
    unsigned first = in_group == 0 ? 0 : r - r % in_group;
    bool of_root = in_group == 0 || (root >= first && root - first < in_group);

    return of_root || r == first ? root : first;
}

/* As a set of bits. */
static uint64_t fed_by_us(unsigned in_group)
{
    uint64_t fed = 0;

    for (unsigned r = 0; r < ranks; r++) {
        if (r != root && r != rank && feeder_of(r, in_group) == rank) {
            fed |= (uint64_t)1 << r;
        }
    }
    return fed;
}

static void await_those(uint64_t whom, uint64_t value)
{
    for (; whom != 0; whom &= whom - 1) {
        await(&all[__builtin_ctzll(whom)].out, value);
    }
}

/* Our slot for this chunk, once nobody needs what is in it; `whom` will. */
static unsigned char *slot_for(uint64_t chunk, uint64_t whom)
{
    await_those(lent[chunk % 2].whom, lent[chunk % 2].until);
    lent[chunk % 2].whom = whom;
    lent[chunk % 2].until = chunk + 1;
    return slot_of(rank, chunk);
}

static void spread_give(const spread *how, size_t at, size_t n, uint64_t chunk,
                        uint64_t fed)
{
    if (!how->direct) {
        copy(slot_for(chunk, fed), dst[rank] + at, n, rank, false);
    }
    tell(&all[rank].in, chunk + 1);
}

/* Take a chunk, and hand it on to those who take it from us. */
static void spread_take(const spread *how, size_t at, size_t n, uint64_t chunk,
                        uint64_t fed, bool stream)
{
    unsigned feeder = feeder_of(rank, how->group);
    const unsigned char *from =
        how->direct ? dst[feeder] + at : slot_of(feeder, chunk);

    await(&all[feeder].in, chunk + 1);
    if (fed != 0 && !how->direct) {
        unsigned char *to = slot_for(chunk, fed);

        copy(to, from, n, feeder, false);
        from = to;
        feeder = rank;
        tell(&all[rank].in, chunk + 1);
    }
    copy(dst[rank] + at, from, n, feeder, stream);
    tell(&all[rank].in, chunk + 1);
    tell(&all[rank].out, chunk + 1);
}

static void broadcast(size_t bytes, const spread *how)
{
    size_t quarter = bytes / 4 < BIG_CHUNK ? bytes / 4 : BIG_CHUNK;
    size_t piece = quarter > SMALL_CHUNK ? quarter : SMALL_CHUNK;
    uint64_t fed = fed_by_us(how->group);
    bool stream = streams(bytes) != how->other_stores;

    if (rank != root && how->compared) {
        come();
    }
    for (size_t at = 0; at < bytes; at += piece) {
        if (rank != root) {
            spread_take(how, at, least(bytes - at, piece), base++, fed, stream);
            continue;
        }
        spread_give(how, at, least(bytes - at, piece), base++, fed);
        if (at == 0 && how->compared) {
            come();
        }
    }
    if (how->direct) {
        await_those(fed, base);
    }
    if (how->compared) {
        await_come();
    }
    tell(&all[rank].out, base);
    root = (root + 1) % ranks;
}

static void broadcast_slots(size_t bytes)
{
    broadcast(bytes, &(spread){0});
}

static void broadcast_compared(size_t bytes)
{
    broadcast(bytes, &(spread){.compared = true});
}

static void broadcast_stores(size_t bytes)
{
    broadcast(bytes, &(spread){.other_stores = true});
}

static void broadcast_groups(size_t bytes)
{
    broadcast(bytes, &(spread){.group = group});
}

static void broadcast_direct(size_t bytes)
{
    broadcast(bytes, &(spread){.direct = true});
}

static void broadcast_direct_groups(size_t bytes)
{
    broadcast(bytes, &(spread){.direct = true, .group = group});
}

/* --- a block for all ----------------------------------------------------- */

static void gather_bring(size_t bytes, uint64_t chunk)
{
    size_t at = chunk * BIG_CHUNK;

    if (at < bytes) {
        await_out(base + (chunk < 2 ? 0 : chunk - 1));
        copy(slot_of(rank, chunk), src[rank] + at, least(bytes - at, BIG_CHUNK),
             rank, false);
        tell(&all[rank].in, base + chunk + 1);
    }
}

static void allgather_slots(size_t bytes)
{
    uint64_t chunks = chunks_of(bytes, BIG_CHUNK);

    gather_bring(bytes, 0);
    copy(dst[rank] + rank * bytes, src[rank], bytes, rank, streams(bytes));
    for (uint64_t c = 0; c < chunks; c++) {
        gather_bring(bytes, c + 1);
        for (unsigned i = 1; i < ranks; i++) {
            unsigned r = after(i);

            await(&all[r].in, base + c + 1);
            copy(dst[rank] + r * bytes + c * BIG_CHUNK, slot_of(r, c),
                 least(bytes - c * BIG_CHUNK, BIG_CHUNK), r, streams(bytes));
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
        copy(dst[rank] + after(i) * bytes, src[after(i)], bytes, after(i),
             streams(bytes));
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
            copy(subslot(rank, after(i), chunk),
                 src[rank] + after(i) * bytes + at, least(bytes - at, CHUNK),
                 rank, false);
        }
        tell(&all[rank].in, base + chunk + 1);
    }
}

static void alltoall_slots(size_t bytes)
{
    uint64_t chunks = chunks_of(bytes, CHUNK);

    alltoall_bring(bytes, 0);
    copy(dst[rank] + rank * bytes, src[rank] + rank * bytes, bytes, rank,
         streams(bytes));
    for (uint64_t c = 0; c < chunks; c++) {
        alltoall_bring(bytes, c + 1);
        for (unsigned i = 1; i < ranks; i++) {
            unsigned r = after(i);

            await(&all[r].in, base + c + 1);
            copy(dst[rank] + r * bytes + c * CHUNK, subslot(r, rank, c),
                 least(bytes - c * CHUNK, CHUNK), r, streams(bytes));
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
        copy(dst[rank] + after(i) * bytes, src[after(i)] + rank * bytes, bytes,
             after(i), streams(bytes));
    }
    meet();
}

/* --- an allreduce -------------------------------------------------------- */

/* Copy all but our share. */
static void copy_around(unsigned char *to, const unsigned char *from, size_t n,
                        bool stream)
{
    shm_share ours = shm_share_of(n, rank, ranks);

    copy(to, from, ours.from, rank, stream);
    copy(to + ours.until, from + ours.until, n - ours.until, rank, stream);
}

static void sum_bring(size_t bytes, uint64_t chunk)
{
    size_t at = chunk * CHUNK;

    if (at < bytes) {
        copy_around(slot_of(rank, base + chunk), src[rank] + at,
                    least(bytes - at, CHUNK), false);
        tell(&all[rank].in, base + chunk + 1);
    }
}

/* Fold our share of a chunk into the slots of all; or, if they take it, into
 * our own. */
static void sum_fold(size_t at, size_t n, uint64_t chunk, bool taken)
{
    shm_share ours = shm_share_of(n, rank, ranks);
    const void *from[MOST_RANKS];
    void *to[MOST_RANKS];

    for (unsigned r = 0; r < ranks; r++) {
        await(&all[r].in, chunk + 1);
        from[r] = slot_of(r, chunk) + ours.from;
        to[r] = slot_of(r, chunk) + ours.from;
    }
    from[rank] = src[rank] + at + ours.from;
    if (taken) {
        to[0] = slot_of(rank, chunk) + ours.from;
        to[1] = dst[rank] + at + ours.from;
        fold(to, 2, 0, from, ours.until - ours.from);
    } else {
        to[rank] = dst[rank] + at + ours.from;
        fold(to, ranks, ranks - 1, from, ours.until - ours.from);
    }
    tell(&all[rank].red, chunk + 1);
}

static void sum_slots(size_t bytes, bool stream)
{
    uint64_t chunks = chunks_of(bytes, CHUNK);

    sum_bring(bytes, 0);
    for (uint64_t c = 0; c < chunks; c++) {
        size_t at = c * CHUNK;
        size_t n = least(bytes - at, CHUNK);

        sum_bring(bytes, c + 1);
        sum_fold(at, n, base + c, false);
        for (unsigned r = 0; r < ranks; r++) {
            await(&all[r].red, base + c + 1);
        }
        copy_around(dst[rank] + at, slot_of(rank, base + c), n, stream);
    }
    tell(&all[rank].out, base + chunks);
    base += chunks;
}

static void allreduce_slots(size_t bytes)
{
    sum_slots(bytes, false);
}

static void allreduce_stores(size_t bytes)
{
    sum_slots(bytes, true);
}

static void allreduce_taken(size_t bytes)
{
    uint64_t chunks = chunks_of(bytes, CHUNK);

    await_out(base - (base > 0));
    sum_bring(bytes, 0);
    for (uint64_t c = 0; c < chunks; c++) {
        size_t at = c * CHUNK;
        size_t n = least(bytes - at, CHUNK);

        await_out(base + c);
        sum_bring(bytes, c + 1);
        sum_fold(at, n, base + c, true);
        for (unsigned i = 1; i < ranks; i++) {
            unsigned r = after(i);
            shm_share theirs = shm_share_of(n, r, ranks);

            await(&all[r].red, base + c + 1);
            copy(dst[rank] + at + theirs.from,
                 slot_of(r, base + c) + theirs.from, theirs.until - theirs.from,
                 r, false);
        }
        tell(&all[rank].out, base + c + 1);
    }
    base += chunks;
}

static void allreduce_direct(size_t bytes)
{
    shm_share ours = shm_share_of(bytes, rank, ranks);
    const void *from[MOST_RANKS];
    void *to[MOST_RANKS];

    for (unsigned r = 0; r < ranks; r++) {
        from[r] = src[r] + ours.from;
        to[r] = dst[r] + ours.from;
    }
    meet();
    fold(to, ranks, ranks - 1, from, ours.until - ours.from);
    meet();
}

/* --- sums that outgrow the caches ---------------------------------------- */

static const float *source_of(unsigned r, size_t at, size_t bytes)
{
    return (const float *)(const void *)(src[r] + rank * bytes + at);
}

static void add_all(void *to, size_t at, size_t n, size_t bytes, bool stream)
{
    const void *from[MOST_RANKS];

    for (unsigned r = 0; r < ranks; r++) {
        from[r] = source_of(r, at, bytes);
    }
    sum.stream = stream;
    fold(&to, 1, 0, from, n);
    sum.stream = false;
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
        float some[16] = {0};

        for (size_t i = 0; i < bytes / sizeof(float); i += 16) {
            for (unsigned k = 0; k < 16; k++) {
                some[k] += from[i + k];
            }
        }
        for (unsigned k = 0; k < 16; k++) {
            sink = some[k];
        }
        own.read += bytes;
        own.others += r == rank ? 0 : bytes;
    }
    meet();
}

static void sum_copies(size_t bytes)
{
    size_t left = (ranks + 1) * bytes / 2;

    meet();
    for (unsigned r = 0; left > 0; r++) {
        size_t n = least(left, bytes);

        copy(dst[rank], source_of(r, 0, bytes), n, r, true);
        left -= n;
    }
    meet();
}

/* --- measuring ----------------------------------------------------------- */

typedef struct way {
    const char *name;
    void (*call)(size_t bytes);
} way;

typedef struct operation {
    const char *name;
    way ways[MOST_WAYS];
} operation;

static const operation operations[] = {
    {"allreduce",
     {{"slots", allreduce_slots},
      {"slots, other stores", allreduce_stores},
      {"slots, taken", allreduce_taken},
      {"direct", allreduce_direct}}},
    {"broadcast",
     {{"slots", broadcast_slots},
      {"slots, compared", broadcast_compared},
      {"slots, other stores", broadcast_stores},
      {"slots, groups", broadcast_groups},
      {"direct", broadcast_direct},
      {"direct, groups", broadcast_direct_groups}}},
    {"allgather", {{"slots", allgather_slots}, {"direct", allgather_direct}}},
    {"alltoall", {{"slots", alltoall_slots}, {"direct", alltoall_direct}}},
};

static const operation big_sum = {"sum of blocks",
                                  {{"ordinary", sum_ordinary},
                                   {"block", sum_block},
                                   {"stream", sum_stream},
                                   {"reads", sum_reads},
                                   {"copies", sum_copies}}};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Microseconds a call. */
static double time_calls(const way *w, size_t bytes, unsigned calls)
{
    uint64_t start;

    meet();
    start = wf_now_ns();
    for (unsigned k = 0; k < calls; k++) {
        w->call(bytes);
    }
    return (double)(wf_now_ns() - start) / 1e3 / calls;
}

/* As many as a round has time for, of which rank 0 decides. */
static unsigned calls_for(const way *w, size_t bytes)
{
    double us = time_calls(w, bytes, 2);

    if (rank == 0) {
        double calls = ROUND_US / us;

        all[0].calls = calls < 2            ? 2
                       : calls < MOST_CALLS ? (unsigned)calls
                                            : MOST_CALLS;
    }
    meet();
    return all[0].calls;
}

/* What two calls move, as a mean of all ranks and of both. */
static moved count(const way *w, size_t bytes)
{
    moved mean = {0};

    own = (moved){0};
    (void)time_calls(w, bytes, 2);
    all[rank].sum = own;
    meet();
    for (unsigned r = 0; r < ranks; r++) {
        mean.read += all[r].sum.read;
        mean.written += all[r].sum.written;
        mean.others += all[r].sum.others;
    }
    meet();
    mean.read /= 2 * ranks;
    mean.written /= 2 * ranks;
    mean.others /= 2 * ranks;
    return mean;
}

static void report(const operation *op, const way *w, size_t bytes,
                   double us[ROUNDS])
{
    moved m = count(w, bytes);

    qsort(us, ROUNDS, sizeof(us[0]), compare);
    if (rank == 0) {
        printf("%-13s %5zu  %-19s %9.1f %9.1f %9.1f %8.0f %8.0f %8.0f\n",
               op->name, bytes >> 10, w->name, us[ROUNDS / 4], us[ROUNDS / 2],
               us[ROUNDS * 3 / 4], (double)m.read / 1024,
               (double)m.written / 1024, (double)m.others / 1024);
    }
}

static void measure(const operation *op, size_t bytes)
{
    double us[MOST_WAYS][ROUNDS];
    unsigned calls[MOST_WAYS];
    unsigned n = 0;

    for (; n < MOST_WAYS && op->ways[n].call != NULL; n++) {
        calls[n] = calls_for(&op->ways[n], bytes);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned k = 0; k < n; k++) {
            us[k][i] = time_calls(&op->ways[k], bytes, calls[k]);
        }
    }
    for (unsigned k = 0; k < n; k++) {
        report(op, &op->ways[k], bytes, us[k]);
    }
}

static bool wanted(const operation *op, const char *only)
{
    return only == NULL || strcmp(op->name, only) == 0;
}

static void measure_all(const char *only)
{
    static const size_t sizes[] = {(size_t)64 << 10, (size_t)512 << 10,
                                   MOST_BYTES};

    for (unsigned o = 0; o < sizeof(operations) / sizeof(operations[0]); o++) {
        for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            if (wanted(&operations[o], only)) {
                measure(&operations[o], sizes[i]);
            }
        }
    }
    if (wanted(&big_sum, only)) {
        measure(&big_sum, WHOLE_BYTES / ranks / 64 * 64);
    }
}

/* --- main ---------------------------------------------------------------- */

/* The cores that share a cache of this level with our first, as the kernel
 * writes it: 0-7,16. Counts those that a rank runs on. */
static unsigned sharing(unsigned level, char *text, int n)
{
    char path[96];
    unsigned count = 0;
    FILE *file;

    snprintf(path, sizeof(path),
             "/sys/devices/system/cpu/cpu%d/cache/index%u/shared_cpu_list",
             cores[0], level);
    file = fopen(path, "r");
    if (file == NULL || fgets(text, n, file) == NULL) {
        snprintf(text, (size_t)n, "?");
    }
    text[strcspn(text, "\n")] = '\0';
    if (file != NULL) {
        fclose(file);
    }
    for (char *at = text; *at >= '0' && *at <= '9';) {
        long from = strtol(at, &at, 10);
        long until = *at == '-' ? strtol(at + 1, &at, 10) : from;

        for (unsigned r = 0; r < ranks; r++) {
            count += cores[r] >= from && cores[r] <= until;
        }
        at += *at == ',';
    }
    return count;
}

static void choose_groups(void)
{
    char l2[64];
    char l3[64];
    unsigned near = sharing(3, l3, sizeof(l3));

    (void)sharing(2, l2, sizeof(l2));
    group = near >= 2 && near < ranks ? near : GROUP;
    printf("%u ranks, each on a core of its own; core %d shares its L2 with "
           "%s, its L3 with %s; groups of %u\n"
           "us a call: median of %u rounds between its quartiles; KiB a rank "
           "and call\n\n"
           "%-13s %5s  %-19s %9s %9s %9s %8s %8s %8s\n",
           ranks, cores[0], l2, l3, group, ROUNDS, "operation", "KiB", "", "q1",
           "us", "q3", "read", "written", "others'");
    fflush(stdout);
}

static size_t source_bytes(void)
{
    size_t most = ranks * MOST_BYTES;

    return most > WHOLE_BYTES ? most : WHOLE_BYTES;
}

static void be_rank(unsigned number, const char *only)
{
    cpu_set_t core;

    rank = number;
    CPU_ZERO(&core);
    CPU_SET(cores[number], &core);
    sched_setaffinity(0, sizeof(core), &core);
    (void)wf_reducer_init(&sum, WEFT_F32, WEFT_SUM, ranks);
    memset(slot[rank], 1, 2 * ranks * CHUNK + 2 * BIG_CHUNK);
    memset(src[rank], 1, source_bytes());
    memset(dst[rank], 1, source_bytes());
    measure_all(only);
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

/* The cores that we may run on, up to MOST_RANKS. */
static unsigned find_cores(void)
{
    cpu_set_t set;
    unsigned found = 0;

    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        perror("copies: sched_getaffinity");
        exit(EXIT_FAILURE);
    }
    for (int c = 0; c < CPU_SETSIZE && found < MOST_RANKS; c++) {
        if (CPU_ISSET(c, &set)) {
            cores[found++] = c;
        }
    }
    return found;
}

int main(int argc, char **argv)
{
    unsigned found = find_cores();
    const char *only = argc > 2 ? argv[2] : NULL;

    ranks = argc > 1 ? (unsigned)atoi(argv[1]) : found;
    if (ranks < 2 || ranks > found) {
        fprintf(stderr, "copies: from 2 to %u ranks, a core for each\n", found);
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
    choose_groups();
    for (unsigned r = 1; r < ranks; r++) {
        pid_t child = fork();

        if (child < 0) {
            perror("copies: fork");
            return EXIT_FAILURE;
        }
        if (child == 0) {
            be_rank(r, only);
            _exit(EXIT_SUCCESS);
        }
    }
    be_rank(0, only);
    while (wait(NULL) > 0) {
    }
    return EXIT_SUCCESS;
}
