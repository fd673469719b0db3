/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status.h"
#include "base/time.h"
#include "mem/arenas.h"
#include "mem/cgroup.h"
#include "mem/segment.h"
#include "mem/share_maps.h"

/* Address space of a node, of which there are 128 TiB for all that a process
 * maps. */
#define NODE_BYTES ((uint64_t)4 << 40)
/* Part of the host's memory that its ranks keep together, unless it is set. */
#define KEPT_PART 8
/* What was found to be free counts as that so long, and so many bytes. */
#define CREDIT_NS (100 * WF_MS)
#define CREDIT_BYTES ((uint64_t)64 << 20)
/* Allocated in one step, at most and at least, and how long a step may take. As
 * much as the least is left to the kernel. */
#define FILL_BYTES ((size_t)64 << 20)
#define FILL_LEAST ((size_t)1 << 20)
#define FILL_NS (10 * WF_SEC)
/* What a rank can have said, with some threads: no peer can make it more. */
#define PROMISE_MOST ((uint64_t)1 << 40)

#define BLOCK "a block of the arena"

uint64_t wf_arena_range(const wf_settings *settings, uint32_t ranks)
{
    uint64_t most = NODE_BYTES / ranks;
    uint64_t wanted = settings->arena_bytes;

    if (wanted == UINT64_MAX) {
        wanted = wf_memory_of_host();
    }
    /* Whole huge pages, so that each range can have them. */
    wanted = wf_least(wanted, most);
    return wf_round_up((size_t)wanted, WF_HUGE_PAGE);
}

weft_status wf_arena_make_fd(uint64_t range, uint32_t ranks, int *out)
{
    return wf_segment_make_fd("weft arena", (size_t)range * ranks, false, out);
}

static void *page_at(const wf_arena *a, uint32_t first)
{
    return a->own + (size_t)first * wf_segment_page();
}

static bool clean(void *ctx, uint32_t first, uint32_t pages)
{
    const wf_arena *a = ctx;
    size_t page = wf_segment_page();

    return fallocate(a->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     (off_t)((size_t)(a->own - a->base) + first * page),
                     (off_t)(pages * page)) == 0;
}

static weft_status arena_map(wf_arena *a, uint32_t self, wf_huge huge)
{
    size_t bytes = a->range * a->ranges;
    weft_status st = wf_segment_check_fd("the arena", a->fd, bytes);
    void *base;

    if (st != WEFT_OK) {
        return st;
    }
    base = wf_map_shared(a->fd, bytes, PROT_READ | PROT_WRITE);
    if (base == MAP_FAILED) {
        return wf_fail_errno("mapping %zu bytes", bytes);
    }
    a->base = base;
    a->own = a->base + self * a->range;
    /* A core file would have all pages of all ranks. */
    (void)madvise(a->base, bytes, MADV_DONTDUMP);
    if (huge != WF_HUGE_OFF) {
        /* Only advice: a kernel without huge pages for shmem refuses. */
        (void)madvise(a->base, bytes, MADV_HUGEPAGE);
    }
    return WEFT_OK;
}

static void arena_free(wf_arena *a)
{
    for (wf_arena_lease *l = a->leases, *next; l != NULL; l = next) {
        next = l->next;
        wf_close(l->fd);
        wf_free(l);
    }
    if (a->base != NULL) {
        wf_unmap_shared(a->base, a->range * a->ranges);
    }
    wf_close(a->fd);
    wf_spans_fini(&a->spans);
    pthread_mutex_destroy(&a->lock);
    wf_free(a);
}

weft_status wf_arena_open(const wf_settings *settings, int fd, uint64_t range,
                          uint32_t ranges, uint32_t self, uint32_t ranks,
                          wf_arena *a)
{
    weft_status st;

    *a = (wf_arena){.base = NULL};
    pthread_mutex_init(&a->lock, NULL);
    a->fd = fd;
    a->range = (size_t)range;
    a->ranges = ranges;
    a->keep_bytes = settings->arena_keep_bytes;
    a->sharers = ranks;
    a->open = true;
    a->lease[0] = a->lease[1] = -1;
    st = arena_map(a, self, (wf_huge)settings->huge);
    if (st == WEFT_OK) {
        st = wf_spans_init(&a->spans, (uint32_t)(a->range / wf_segment_page()),
                           0, clean, a);
    }
    if (st != WEFT_OK) {
        arena_free(a);
        return st;
    }
    wf_arenas_add(a);
    return WEFT_OK;
}

/* Nobody can reach it any more: no world, and no block. One caller sees that,
 * with its lock, and ends it. */
static bool is_over(const wf_arena *a)
{
    return !a->open && a->spans.blocks == 0 && !a->child;
}

static void arena_end(wf_arena *a)
{
    wf_arenas_remove(a);
    arena_free(a);
}

/* With its lock, after a change. */
static void show(const wf_arena *a)
{
    size_t page = wf_segment_page();

    if (a->shown == NULL || a->child) {
        return;
    }
    atomic_store_explicit(&a->shown->in_use, a->spans.used * page,
                          memory_order_relaxed);
    atomic_store_explicit(&a->shown->kept,
                          ((uint64_t)a->spans.kept + a->spans.held) * page,
                          memory_order_relaxed);
    atomic_store_explicit(&a->shown->blocks, a->spans.blocks,
                          memory_order_relaxed);
}

void wf_arena_show(wf_arena *a, wf_board *board, uint32_t rank)
{
    pthread_mutex_lock(&a->lock);
    a->board = board;
    a->shown = &wf_board_shelf(board, rank)->arena;
    atomic_store(&a->shown->room, a->range);
    show(a);
    pthread_mutex_unlock(&a->lock);
}

void wf_arena_close(wf_arena *a)
{
    bool over;

    if (a == NULL) {
        return;
    }
    pthread_mutex_lock(&a->lock);
    a->open = false;
    a->shown = NULL; /* the board goes with the world */
    if (!a->child) {
        /* Other ranks map it still, so it would not go with our mapping. */
        wf_spans_trim(&a->spans, 0);
        a->spans.keep = 0;
    }
    over = is_over(a);
    pthread_mutex_unlock(&a->lock);
    if (over) {
        arena_end(a);
    }
}

/* --- blocks --------------------------------------------------------------- */

static bool ended(const wf_arena_lease *l)
{
    char byte;

    /* Nobody ever writes: there is nothing to read, or the end. */
    return read(l->fd, &byte, 1) == 0;
}

/* Forget forks whose children are gone. */
static bool leases_end(wf_arena *a)
{
    bool any = false;

    for (wf_arena_lease **at = &a->leases; *at != NULL;) {
        wf_arena_lease *l = *at;

        if (ended(l)) {
            *at = l->next;
            close(l->fd);
            wf_free(l);
            any = true;
        } else {
            at = &l->next;
        }
    }
    return any;
}

/* Does a child live that was forked while a block existed, after fork number
 * `born` and up to number `given`? */
static bool is_read(const wf_arena *a, uint32_t born, uint32_t given)
{
    const wf_arena_lease *l = a->leases;

    if (born < a->endless && born < given) {
        return true;
    }
    while (l != NULL && (l->fork <= born || l->fork > given)) {
        l = l->next;
    }
    return l != NULL;
}

/* A held span has the number of forks before it was given back in `newer`. */
static bool hold_is_over(void *ctx, const wf_span *e)
{
    return !is_read(ctx, e->tag, e->newer);
}

void wf_arena_release(wf_arena *a)
{
    if (a->leases != NULL && leases_end(a)) {
        wf_spans_release(&a->spans, hold_is_over, a);
    }
}

static weft_status no_room(const wf_arena *a, size_t bytes)
{
    return wf_fail(WEFT_ERR_NOMEM,
                   "the arena of this rank has no room for %zu bytes: of its "
                   "%zu, %zu are in use (setting WEFT_ARENA)",
                   bytes, a->range, (size_t)a->spans.used * wf_segment_page());
}

weft_status wf_arena_reserve(wf_arena *a, size_t bytes, wf_arena_block *out)
{
    size_t page = wf_segment_page();
    size_t pages = bytes / page + (bytes % page != 0 || bytes == 0);
    weft_status st = WEFT_OK;
    uint32_t first = 0;
    bool kept = false;
    bool found;

    pthread_mutex_lock(&a->lock);
    if (a->child) {
        st = wf_fail(WEFT_ERR_CLOSED,
                     "this process was forked from a rank: it has no arena");
    } else {
        found = pages <= a->spans.pages &&
                wf_spans_take(&a->spans, (uint32_t)pages, &first, &kept);
        if (!kept && a->spans.held > 0) {
            wf_arena_release(a); /* for the next one, or for this one */
            found = found ||
                    (pages <= a->spans.pages &&
                     wf_spans_take(&a->spans, (uint32_t)pages, &first, &kept));
        }
        if (found) {
            a->spans.span[first].tag = a->forks;
        } else {
            st = no_room(a, bytes);
        }
        show(a);
    }
    pthread_mutex_unlock(&a->lock);
    if (st == WEFT_OK) {
        *out = (wf_arena_block){first, pages * page, kept ? 0 : pages * page};
    }
    return st;
}

void wf_arena_cancel(wf_arena *a, const wf_arena_block *block)
{
    pthread_mutex_lock(&a->lock);
    wf_spans_give(&a->spans, block->first,
                  block->fresh > 0 ? WF_SPAN_CLEAN : WF_SPAN_KEPT);
    show(a);
    pthread_mutex_unlock(&a->lock);
}

static uint32_t pages_to_keep(const wf_arena *a)
{
    uint64_t bytes = a->keep_bytes;
    uint64_t pages;

    if (bytes == UINT64_MAX) {
        wf_cgroups groups;

        wf_cgroups_read("", 0, &groups);
        bytes = wf_least(wf_memory_of_host(), wf_cgroups_limit(&groups)) /
                KEPT_PART / a->sharers;
    }
    pages = bytes / wf_segment_page();
    return pages < UINT32_MAX ? (uint32_t)pages : UINT32_MAX;
}

/* What other ranks of the host have said that they are about to allocate. */
static uint64_t promised_by_others(const wf_arena *a)
{
    uint64_t now = wf_now_ns();
    uint64_t sum = 0;

    for (uint32_t r = 0; a->shown != NULL && r < a->board->ranks; r++) {
        const wf_shelf *shelf = wf_board_shelf(a->board, r);

        if (shelf != NULL && &shelf->arena != a->shown &&
            now < atomic_load(&shelf->arena.promised_until)) {
            sum += wf_least(atomic_load(&shelf->arena.promised), PROMISE_MOST);
        }
    }
    return sum;
}

/* Say what we are about to allocate, before we look what others say (A5). With
 * the lock, as all of these. */
static void promise(wf_arena *a)
{
    if (a->shown != NULL) {
        atomic_store(&a->shown->promised_until,
                     a->filling > 0 ? wf_now_ns() + FILL_NS : a->credit_until);
        atomic_store(&a->shown->promised, a->credit + a->filling);
    }
}

/* Is there memory for all that was said, `times` of our own part of it? */
static weft_status check_promises(const wf_arena *a, uint64_t times)
{
    return wf_memory_check(BLOCK, promised_by_others(a) + FILL_LEAST +
                                      times * (a->credit + a->filling));
}

/* Asking takes longer than allocating a few pages. So where there is much more
 * than needed, each answer is asked to cover some more, for a short time. Is
 * there such an answer? */
static bool has_credit(wf_arena *a, uint64_t bytes)
{
    uint64_t now = wf_now_ns();

    if (now >= a->credit_until) {
        a->credit = 0;
    }
    if (bytes > a->credit && bytes <= CREDIT_BYTES) {
        a->credit = bytes + CREDIT_BYTES;
        a->credit_until = now + CREDIT_NS;
        promise(a);
        if (check_promises(a, (uint64_t)2 * a->sharers) != WEFT_OK) {
            a->credit = 0;
            promise(a);
        }
    }
    return bytes <= a->credit;
}

static bool use_credit(wf_arena *a, uint64_t bytes)
{
    if (!has_credit(a, bytes)) {
        return false;
    }
    a->credit -= bytes;
    a->filling += bytes;
    promise(a);
    if (wf_now_ns() < a->credit_until) {
        return true;
    }
    a->filling -= bytes; /* others may have seen that it is void */
    return false;
}

weft_status wf_arena_check(wf_arena *a, uint64_t bytes)
{
    weft_status st;

    pthread_mutex_lock(&a->lock);
    if (!a->limited) {
        a->limited = true;
        a->spans.keep = pages_to_keep(a);
    }
    st = has_credit(a, bytes) ? WEFT_OK : wf_memory_check(BLOCK, bytes);
    if (st != WEFT_OK && a->spans.kept > 0) {
        wf_spans_trim(&a->spans, 0);
        st = wf_memory_check(BLOCK, bytes);
    }
    pthread_mutex_unlock(&a->lock);
    return st;
}

/* Is there memory for a step of so many bytes? Then they are promised. */
static weft_status step_promise(wf_arena *a, size_t n)
{
    weft_status st;

    a->filling += n;
    promise(a);
    st = check_promises(a, 1);
    if (st != WEFT_OK) {
        a->filling -= n;
        promise(a);
    }
    return st;
}

/* Find memory for the next step of at most `*n` bytes: the scarcer it is, the
 * fewer, so that one rank alone gets nearly all of it. */
static weft_status step_begin(wf_arena *a, size_t *n)
{
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&a->lock);
    if (!use_credit(a, *n)) {
        st = step_promise(a, *n);
        while (st != WEFT_OK && *n > FILL_LEAST) {
            *n = wf_round_up(*n / 2, wf_segment_page());
            st = step_promise(a, *n);
        }
    }
    pthread_mutex_unlock(&a->lock);
    return st;
}

static void step_end(wf_arena *a, size_t n)
{
    pthread_mutex_lock(&a->lock);
    a->filling -= n;
    promise(a);
    pthread_mutex_unlock(&a->lock);
}

/* Allocate the memory of a block, which was found to be there, in steps: other
 * ranks of the host may have been told so of the same memory. */
static weft_status populate(wf_arena *a, const wf_segment *range, size_t at,
                            size_t bytes)
{
    weft_status st = WEFT_OK;
    size_t n = 0;

    for (size_t done = 0; done < bytes && st == WEFT_OK; done += n) {
        n = wf_least(bytes - done, FILL_BYTES);
        st = step_begin(a, &n);
        if (st == WEFT_OK) {
            st = wf_segment_populate(range, at + done, n);
            step_end(a, n);
        }
    }
    return st;
}

weft_status wf_arena_fill(wf_arena *a, const wf_arena_block *block, bool zero,
                          void **out)
{
    wf_segment range = {a->fd, a->base, a->range * a->ranges, true};
    void *at = page_at(a, block->first);
    weft_status st = WEFT_OK;

    if (block->fresh > 0) {
        st = populate(a, &range, (size_t)((unsigned char *)at - a->base),
                      block->bytes);
    } else if (zero) {
        memset(at, 0, block->bytes);
    }
    if (st != WEFT_OK) {
        /* Some of its pages may have memory. */
        pthread_mutex_lock(&a->lock);
        wf_spans_give(&a->spans, block->first, WF_SPAN_KEPT);
        wf_spans_trim(&a->spans, 0);
        show(a);
        pthread_mutex_unlock(&a->lock);
        return st;
    }
    *out = at;
    return WEFT_OK;
}

weft_status wf_arena_take(wf_arena *a, size_t bytes, bool zero, void **out)
{
    wf_arena_block block;
    weft_status st = wf_arena_reserve(a, bytes, &block);

    if (st == WEFT_OK && block.fresh > 0) {
        st = wf_arena_check(a, block.fresh);
        if (st != WEFT_OK) {
            wf_arena_cancel(a, &block);
        }
    }
    return st == WEFT_OK ? wf_arena_fill(a, &block, zero, out) : st;
}

void wf_arena_hold(wf_arena *a)
{
    if (a != NULL) {
        pthread_mutex_lock(&a->lock);
        if (a->spans.blocks > 0) {
            a->forks++; /* like one whose child never ends */
            a->endless = a->forks;
        }
        pthread_mutex_unlock(&a->lock);
    }
}

/* True if there was such a block. */
static bool give(wf_arena *a, const void *block)
{
    size_t from = (size_t)((const unsigned char *)block - a->own);
    uint32_t first = (uint32_t)(from / wf_segment_page());
    wf_span *e = &a->spans.span[first];

    if (from % wf_segment_page() != 0 || !wf_spans_is_used(&a->spans, first)) {
        return false;
    }
    if (e->tag < a->forks && is_read(a, e->tag, a->forks)) {
        wf_arena_release(a);
    }
    if (e->tag < a->forks && is_read(a, e->tag, a->forks)) {
        wf_spans_give(&a->spans, first, WF_SPAN_HELD);
        e->newer = a->forks;
    } else {
        wf_spans_give(&a->spans, first, WF_SPAN_KEPT);
    }
    return true;
}

void weft_arena_free(void *block)
{
    bool known = false;
    bool over = false;
    wf_arena *a;

    if (block == NULL) {
        return;
    }
    /* The block keeps its arena alive. */
    a = wf_arenas_find(block);
    if (a != NULL) {
        pthread_mutex_lock(&a->lock);
        known = a->child || give(a, block);
        show(a);
        over = known && is_over(a);
        pthread_mutex_unlock(&a->lock);
        if (over) {
            arena_end(a);
        }
    }
    if (!known) {
        wf_log(WEFT_LOG_ERROR,
               "weft_arena_free: %p is no block of an arena; nothing done",
               block);
    }
}

int weft_arena_holds(const void *at)
{
    return wf_arenas_find(at) != NULL;
}

void wf_arena_ask(wf_arena *a, weft_arena_info *out)
{
    size_t page = wf_segment_page();

    pthread_mutex_lock(&a->lock);
    if (!a->child && a->spans.held > 0) {
        wf_arena_release(a);
    }
    out->room = a->range;
    out->in_use = (uint64_t)a->spans.used * page;
    out->kept = ((uint64_t)a->spans.kept + a->spans.held) * page;
    out->held = (uint64_t)a->spans.held * page;
    out->blocks = a->spans.blocks;
    pthread_mutex_unlock(&a->lock);
}
