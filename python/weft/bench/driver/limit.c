/* SPDX-License-Identifier: Apache-2.0 */
/* The physical limit of two ranks, from what the machine itself can do:
 *
 *   hand-over  one cache line with its payload goes from core to core;
 *   read       this core reads bytes that the other core has just written;
 *   update     both cores multiply their own memory in place, at once.
 *
 *   up to a line            hand-over
 *   below 8 KiB             hand-over + read of the further lines
 *   below 32 MiB            2 hand-overs + read + update
 *   from 32 MiB             update, out of a buffer that no cache holds: every
 *                           byte in and out of DRAM once
 *
 * It is a reference, not a strict bound: hand-overs of the two directions may
 * overlap, and caches can beat DRAM at 32 MiB. */
#include "buffer.h"
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE = 64,
    COPIES_FROM = 8 << 10, /* smaller data rides along with its flags */
    DRAM_FROM = 32 << 20,
    DRAM_BYTES = 128 << 20,
    UPDATE_BYTES = 1 << 20, /* small buffers are updated until this is done */
    MAX_SAMPLES = 201,
};

static int my_rank;
static volatile uint32_t sink;

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
    if (*ranks != 2 || *rank < 0 || *rank > 1) {
        fprintf(stderr, "the limit is measured with BENCH_RANKS=2 and "
                        "BENCH_RANK=0 or 1\n");
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

static uint32_t sum_of(const uint32_t *at, size_t n)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        sum += at[i];
    }
    return sum;
}

/* What two readings of the clock cost by themselves. */
static double clock_cost(void)
{
    double sample[MAX_SAMPLES];

    for (int k = 0; k < MAX_SAMPLES; k++) {
        uint64_t start = page_now();
        sample[k] = (double)(page_now() - start);
    }
    return page_median(sample, MAX_SAMPLES);
}

static uint64_t samples_within(double ms, size_t bytes)
{
    /* 8 bytes per ns is slower than any read or update here. */
    double fit = ms * 1e6 / ((double)bytes / 8 + 2000);

    return fit < 5 ? 5 : fit > MAX_SAMPLES ? MAX_SAMPLES : (uint64_t)fit;
}

static double read_ns(struct page *page, size_t bytes, double ms)
{
    uint32_t *mine = page_slot(page, my_rank);
    const uint32_t *theirs = page_slot(page, 1 - my_rank);
    size_t n = bytes / sizeof(*mine);
    uint64_t samples = page_agree(page, samples_within(ms, bytes));
    double sample[MAX_SAMPLES];
    double clock = clock_cost();

    for (uint64_t k = 0; k < samples; k++) {
        uint64_t start;
        for (size_t i = 0; i < n; i++) {
            mine[i] = (uint32_t)(k + i) | 1;
        }
        page_sync(page);
        start = page_now();
        sink = sum_of(theirs, n);
        sample[k] = (double)(page_now() - start) - clock;
        page_sync(page);
    }
    return page_median(sample, samples);
}

static void update(float *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        at[i] *= -1.0f;
    }
}

static double update_ns(struct page *page, float *at, size_t bytes, double ms)
{
    size_t n = bytes / sizeof(*at);
    size_t turns = bytes < UPDATE_BYTES ? UPDATE_BYTES / bytes : 1;
    uint64_t samples = page_agree(page, samples_within(ms, turns * bytes));
    double sample[MAX_SAMPLES];

    update(at, n);
    for (uint64_t k = 0; k < samples; k++) {
        uint64_t start;
        page_sync(page);
        start = page_now();
        for (size_t turn = 0; turn < turns; turn++) {
            update(at, n);
            /* Keep the turns apart; two of them would cancel out. */
            __asm__ volatile("" : : "r"(at) : "memory");
        }
        sample[k] = (double)(page_now() - start) / (double)turns;
    }
    page_sync(page);
    return page_median(sample, samples);
}

/* `at` has `room` bytes, the operation's or more. */
static double floor_ns(struct page *page, const work_case *c, float *at,
                       size_t room)
{
    double hand = page_handover(page);

    if (c->op == WORK_BARRIER || c->bytes <= LINE) {
        return hand;
    }
    if (c->bytes < COPIES_FROM) {
        return hand + read_ns(page, c->bytes - LINE, c->ms);
    }
    if (c->op == WORK_BROADCAST) {
        return hand + read_ns(page, c->bytes, c->ms);
    }
    if (c->bytes >= DRAM_FROM) {
        return update_ns(page, at, room, c->ms) * (double)c->bytes /
               (double)room;
    }
    return 2 * hand + read_ns(page, c->bytes, c->ms / 2) +
           update_ns(page, at, c->bytes, c->ms / 2);
}

int work_block(struct page *page, const work_case *c, work_result *out)
{
    bool dram = c->op == WORK_ALLREDUCE && c->bytes >= DRAM_FROM;
    size_t room = dram && c->bytes < DRAM_BYTES ? DRAM_BYTES : c->bytes;
    buffer b;

    if (c->bytes > PAGE_SLOT && !dram) {
        fprintf(stderr,
                "the limit of this operation is not known for %zu "
                "bytes\n",
                c->bytes);
        return -1;
    }
    /* A limit has the better kind of pages, whatever the case asks for. */
    if (buffer_init(&b, room, true) != 0) {
        return -1;
    }
    for (size_t i = 0; i < room / sizeof(float); i++) {
        ((float *)b.at)[i] = (float)(1 + (i + c->seed) % 1024);
    }
    page_sync(page);
    out->probe_before = page_probe(page);
    out->median = floor_ns(page, c, b.at, room);
    out->low = out->median;
    out->high = out->median;
    out->calls = 1;
    out->probe_after = page_probe(page);
    buffer_fini(&b);
    return 0;
}
