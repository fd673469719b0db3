/* SPDX-License-Identifier: Apache-2.0 */
/* The physical limit of an operation, from what the machine itself can do:
 *
 *   hand-over  one cache line with its payload goes from core to core;
 *   read       each core reads bytes that another core has just written;
 *   update     each core multiplies its own memory in place;
 *   copy       each core copies its own memory, in the fastest way;
 *
 * the last three with all cores at once. `need_of` says how much of each the
 * busiest rank must do, with R ranks and blocks of n bytes.
 *
 *   crossing up to a line   hand-overs
 *   crossing below 8 KiB    a hand-over + read of the further lines
 *   all buffers fit into
 *   the last cache, and
 *   a rank's into 32 MiB    hand-overs + read + update or copy
 *   else                    everything goes to memory, and memory is the limit:
 *                           the bytes of all ranks over the rate at which all
 *                           cores together copy (allreduce: update)
 *
 * In the last row a copied byte is one that is read and one that is written; a
 * sum reads more for each that it writes, and k bytes read for one written
 * count as (k + 1) / 2 copied.
 *
 * It is a reference, not a strict bound: hand-overs of the two directions may
 * overlap, caches can beat memory at 32 MiB, and several ranks that read one
 * block may find it in a cache. */
#include "buffer.h"
#include "rate.h"
#include "work.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    LINE = 64,
    COPIES_FROM = 8 << 10, /* smaller data rides along with its flags */
    DRAM_FROM = 32 << 20,
    DRAM_BYTES = 128 << 20, /* no cache holds it */
};

static int my_rank;
static int all_ranks;

static int number_from(const char *name)
{
    const char *text = getenv(name);

    return text == NULL ? -1 : atoi(text);
}

int work_init(int *argc, char ***argv, int *rank, int *ranks)
{
    (void)argc;
    (void)argv;
    *rank = number_from("BENCH_RANK");
    *ranks = number_from("BENCH_RANKS");
    my_rank = *rank;
    all_ranks = *ranks;
    if (*ranks < 2 || *rank < 0 || *rank >= *ranks) {
        fprintf(stderr, "the limit is measured with BENCH_RANKS from 2 and "
                        "BENCH_RANK below that\n");
        return -1;
    }
    return 0;
}

void work_fini(void)
{
}

int work_share_path(char *path, size_t room)
{
    (void)path;
    (void)room;
    fprintf(stderr, "the limit needs the coordinator: "
                    "weft bench collectives --systems limit\n");
    return -1;
}

int work_check(struct page *page, const work_case *c)
{
    (void)page;
    (void)c;
    return 0;
}

/* What an operation needs at least; the first four of the busiest rank, and
 * the last of all ranks together. In blocks, but for the hand-overs. */
typedef struct need {
    double hands;
    double read;
    double update;
    double copy;
    double copied; /* through memory; 0: it is `update` of every rank */
} need;

static need need_of(enum op op, int ranks)
{
    double r = ranks;

    switch (op) {
    case OP_BROADCAST:
        return (need){.hands = 1, .read = 1, .copied = r - 1};
    case OP_REDUCE:
        return (need){
            .hands = 1, .read = r - 1, .copy = 1, .copied = (r + 1) / 2};
    case OP_SCAN:
        return (need){
            .hands = 1, .read = 1, .update = 1, .copied = 1.5 * (r - 1)};
    case OP_REDUCE_SCATTER:
        return (need){
            .hands = 1, .read = r - 1, .copy = 1, .copied = r * (r + 1) / 2};
    case OP_ALLGATHER:
    case OP_ALLTOALL:
        return (need){.hands = 1, .read = r - 1, .copy = 1, .copied = r * r};
    case OP_GATHER:
        return (need){.hands = 1, .read = r - 1, .copy = 1, .copied = r};
    case OP_SCATTER:
        return (need){.hands = 1, .read = 1, .copied = r};
    case OP_ALLREDUCE:
        /* Everybody adds its share of the others', and gets theirs back. */
        return (need){.hands = 2, .read = 2 * (r - 1) / r, .update = 1};
    default:
        return (need){.hands = 1};
    }
}

/* Of data that stays in caches. Both buffers have room for a block. */
static double cached_ns(struct page *page, const work_case *c, float *a,
                        float *b)
{
    need must = need_of(c->op, all_ranks);
    double hand = page_handover(page);
    double block = (double)c->bytes;
    size_t crossing = (size_t)(must.read * block) & ~(size_t)3;
    double ns;

    if (crossing <= LINE) {
        return hand;
    }
    if (crossing < COPIES_FROM) {
        return hand +
               rate_read(page, my_rank, all_ranks, crossing - LINE, c->ms);
    }
    ns = must.hands * hand +
         rate_read(page, my_rank, all_ranks, crossing, c->ms / 2);
    if (must.update > 0) {
        ns += rate_update(page, a, c->bytes, c->ms / 2);
    }
    if (must.copy > 0) {
        ns += rate_copy(page, b, a, c->bytes, c->ms / 2);
    }
    return ns;
}

/* Of data that goes through memory. Both buffers have `room` bytes. */
static double memory_ns(struct page *page, const work_case *c, float *a,
                        float *b, size_t room)
{
    need must = need_of(c->op, all_ranks);
    double blocks = (double)c->bytes / (double)room;

    if (must.copied == 0) {
        return rate_update(page, a, room, c->ms) * blocks;
    }
    return rate_copy(page, b, a, room, c->ms) * blocks * must.copied /
           all_ranks;
}

/* Bytes of the last cache that cores share. The kernel's figure: sysconf may
 * give that of another machine where this one is virtual. */
static size_t last_cache(void)
{
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    size_t kib = 0;

    if (f != NULL) {
        if (fscanf(f, "%zuK", &kib) != 1) {
            kib = 0;
        }
        fclose(f);
    }
    return kib > 0 ? kib << 10 : DRAM_FROM;
}

/* Do the buffers outgrow the caches? */
static bool through_memory(const work_case *c)
{
    size_t blocks = op_src_blocks(c->op, all_ranks);

    if (!op_shape_of(c->op)->in_place) {
        blocks += op_dst_blocks(c->op, all_ranks);
    }
    return blocks * c->bytes >= DRAM_FROM ||
           all_ranks * blocks * c->bytes >= last_cache();
}

static void touch(float *at, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes / sizeof(*at); i++) {
        at[i] = (float)(1 + (i + seed) % 1024);
    }
}

int work_block(struct page *page, const work_case *c, work_result *out)
{
    bool memory = through_memory(c);
    size_t room = memory ? DRAM_BYTES : c->bytes;
    buffer a;
    buffer b;

    /* A limit has the better kind of pages, whatever the case asks for. */
    if (buffer_init(&a, room, true) != 0) {
        return -1;
    }
    if (buffer_init(&b, room, true) != 0) {
        buffer_fini(&a);
        return -1;
    }
    touch(a.at, room, c->seed);
    touch(b.at, room, c->seed + 1);
    page_sync(page);
    out->probe_before = page_probe(page);
    out->median = memory ? memory_ns(page, c, a.at, b.at, room)
                         : cached_ns(page, c, a.at, b.at);
    out->low = out->median;
    out->high = out->median;
    out->calls = 1;
    out->probe_after = page_probe(page);
    buffer_fini(&b);
    buffer_fini(&a);
    return 0;
}
