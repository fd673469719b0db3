/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the ranks of one benchmark job share, outside the library under
 * test: a barrier of its own, agreement on one number, and the placement
 * probe. The coordinator makes it and hands its path to every rank. It goes
 * away with the last process that has it, whatever dies.
 *
 * The file also builds as a shared object, so that a driver in Python has the
 * very same probe. */
#ifndef BENCH_PAGE_H
#define BENCH_PAGE_H

#include <stdint.h>

/* Behind the first PAGE_HEAD bytes lie slots of PAGE_SLOT bytes, one for each
 * rank; only the limit driver touches them, and memory that nobody touches
 * costs nothing. */
#define PAGE_HEAD ((uint64_t)65536)
#define PAGE_SLOT ((uint64_t)32 << 20)

/* The length of the file behind a page. */
static inline uint64_t page_bytes(int ranks)
{
    return PAGE_HEAD + (uint64_t)ranks * PAGE_SLOT;
}

struct page;

/* Map the page at `path` as rank `rank` of `ranks`, which run on `cores`
 * cores. NULL, with a line on stderr, when it cannot be had. */
struct page *page_open(const char *path, int rank, int ranks, int cores);
void page_close(struct page *page);

/* Return when all ranks have called it. */
void page_sync(struct page *page);

/* Rank 0's `value`, on every rank. */
uint64_t page_agree(struct page *page, uint64_t value);

/* Count this rank in, and the number counted in so far. */
void page_arrive(struct page *page);
uint64_t page_arrived(struct page *page);

/* One way of a core-to-core ping-pong in ns, the slowest between rank 0 and
 * any other rank; 0 when it means nothing: one rank, or more ranks than cores.
 * All ranks call it; rank 0's result is the one that counts. */
double page_probe(struct page *page);

/* The same with full 64-byte lines, whatever the number of cores. */
double page_handover(struct page *page);

/* The slot of a rank. */
void *page_slot(struct page *page, int rank);

/* Nanoseconds of a clock that never steps. */
uint64_t page_now(void);

/* The median of `n` values, which it sorts. */
double page_median(double *values, uint64_t n);

#endif
