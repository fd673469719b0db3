/* SPDX-License-Identifier: Apache-2.0 */
/* The shared page of a benchmark job; see page.h. */
#include "page.h"

#include <fcntl.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    PROBE_SAMPLES = 15,
    PROBE_TRIPS = 24,
    LINE_WORDS = 15, /* payload of a line: 60 bytes beside its number */
    SPINS_BEFORE_YIELD = 2000,
};

struct line {
    alignas(128) _Atomic uint32_t number;
    uint32_t payload[LINE_WORDS];
};

/* What all ranks map. Each word that two ranks write has 128 bytes of its own,
 * because neighbouring lines are fetched in pairs. */
struct shared {
    struct line ping;
    struct line pong;
    alignas(128) _Atomic uint32_t waiting;
    alignas(128) _Atomic uint32_t generation;
    alignas(128) _Atomic uint64_t agreed;
    alignas(128) _Atomic uint64_t arrived;
};
_Static_assert(sizeof(struct shared) <= PAGE_HEAD, "the head has room");

struct page {
    struct shared *shared;
    int rank;
    int ranks;
    int cores;
};

uint64_t page_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

double page_median(double *values, uint64_t n)
{
    qsort(values, n, sizeof(*values), by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

struct page *page_open(const char *path, int rank, int ranks, int cores)
{
    struct page *page;
    void *at;
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0) {
        perror(path);
        return NULL;
    }
    at = mmap(NULL, page_bytes(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
              0);
    close(fd);
    if (at == MAP_FAILED) {
        perror("mmap of the shared page");
        return NULL;
    }
    page = malloc(sizeof(*page));
    if (page == NULL) {
        perror("malloc");
        munmap(at, page_bytes(ranks));
        return NULL;
    }
    page->shared = at;
    page->rank = rank;
    page->ranks = ranks;
    page->cores = cores;
    return page;
}

void page_close(struct page *page)
{
    if (page != NULL) {
        munmap(page->shared, page_bytes(page->ranks));
        free(page);
    }
}

void page_sync(struct page *page)
{
    struct shared *s = page->shared;
    uint32_t now = atomic_load_explicit(&s->generation, memory_order_acquire);
    uint32_t before =
        atomic_fetch_add_explicit(&s->waiting, 1, memory_order_acq_rel);

    if (before + 1 == (uint32_t)page->ranks) {
        atomic_store_explicit(&s->waiting, 0, memory_order_relaxed);
        /* Publishes everything that came before; pairs with the loads below. */
        atomic_store_explicit(&s->generation, now + 1, memory_order_release);
        return;
    }
    for (uint64_t spins = 0;
         atomic_load_explicit(&s->generation, memory_order_acquire) == now;
         spins++) {
        if (page->ranks > page->cores || spins > SPINS_BEFORE_YIELD) {
            sched_yield();
        }
    }
}

uint64_t page_agree(struct page *page, uint64_t value)
{
    _Atomic uint64_t *agreed = &page->shared->agreed;

    if (page->rank == 0) {
        atomic_store_explicit(agreed, value, memory_order_relaxed);
    }
    page_sync(page);
    value = atomic_load_explicit(agreed, memory_order_relaxed);
    /* Nobody may overwrite the number before all have read it. */
    page_sync(page);
    return value;
}

void page_arrive(struct page *page)
{
    atomic_fetch_add_explicit(&page->shared->arrived, 1, memory_order_relaxed);
}

uint64_t page_arrived(struct page *page)
{
    return atomic_load_explicit(&page->shared->arrived, memory_order_relaxed);
}

void *page_slot(struct page *page, int rank)
{
    return (char *)page->shared + PAGE_HEAD + (uint64_t)rank * PAGE_SLOT;
}

/* Write and read `words` words of payload with the number. With none this is
 * the bare ping-pong. */
static void line_put(struct line *line, uint32_t number, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) {
        line->payload[i] = number + i;
    }
    atomic_store_explicit(&line->number, number, memory_order_release);
}

static uint32_t line_take(struct line *line, uint32_t number, uint32_t words)
{
    uint32_t sum = 0;

    while (atomic_load_explicit(&line->number, memory_order_acquire) !=
           number) {
    }
    for (uint32_t i = 0; i < words; i++) {
        sum += line->payload[i];
    }
    return sum;
}

/* One way in ns between the two ranks that call it, one with each `side`. */
static double pair_probe(struct shared *s, int side, uint32_t words)
{
    double sample[PROBE_SAMPLES];
    volatile uint32_t sink;
    uint32_t n = 0;

    for (int k = 0; k < PROBE_SAMPLES; k++) {
        uint64_t start = page_now();
        uint32_t sum = 0;
        for (int i = 0; i < PROBE_TRIPS; i++) {
            n++;
            if (side == 0) {
                line_put(&s->ping, n, words);
                sum += line_take(&s->pong, n, words);
            } else {
                sum += line_take(&s->ping, n, words);
                line_put(&s->pong, n, words);
            }
        }
        sink = sum;
        sample[k] = (double)(page_now() - start) / (2 * PROBE_TRIPS);
    }
    (void)sink;
    return page_median(sample, PROBE_SAMPLES);
}

static double probe_with(struct page *page, int other, uint32_t words)
{
    struct shared *s = page->shared;
    double ns = 0;

    if (page->rank == 0) {
        atomic_store_explicit(&s->ping.number, 0, memory_order_relaxed);
        atomic_store_explicit(&s->pong.number, 0, memory_order_relaxed);
    }
    page_sync(page);
    if (page->rank == 0 || page->rank == other) {
        ns = pair_probe(s, page->rank == 0 ? 0 : 1, words);
    }
    page_sync(page);
    return ns;
}

static double slowest_pair(struct page *page, uint32_t words)
{
    double slowest = 0;

    for (int other = 1; other < page->ranks; other++) {
        double ns = probe_with(page, other, words);
        slowest = ns > slowest ? ns : slowest;
    }
    return slowest;
}

double page_probe(struct page *page)
{
    return page->ranks > page->cores ? 0 : slowest_pair(page, 0);
}

double page_handover(struct page *page)
{
    return slowest_pair(page, LINE_WORDS);
}
