/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/spans.h"

#include <string.h>
#include <sys/mman.h>

#include "base/status.h"

/* So many spans of a bin are looked at before one of the next bin is cut:
 * blocks of the same size that come and go find each other again. */
#define LOOKS 16u

/* --- bins ----------------------------------------------------------------- */

/* Up to 16 pages each size has its bin; above that each power of two has 16. */
static uint32_t bin_of(uint32_t pages)
{
    uint32_t level;

    if (pages < 16) {
        return pages;
    }
    level = 31u - (uint32_t)__builtin_clz(pages);
    return (level - 3) * 16 + ((pages >> (level - 4)) & 15);
}

static void bins_init(wf_span_bins *b)
{
    memset(b, 0, sizeof(*b));
    for (uint32_t i = 0; i < WF_SPAN_BINS; i++) {
        b->head[i] = WF_SPAN_NONE;
    }
}

static void bins_add(wf_spans *x, wf_span_bins *b, uint32_t first)
{
    wf_span *e = &x->span[first];
    uint32_t bin = bin_of(e->pages);

    e->prev = WF_SPAN_NONE;
    e->next = b->head[bin];
    if (e->next != WF_SPAN_NONE) {
        x->span[e->next].prev = first;
    }
    b->head[bin] = first;
    b->bins[bin / 16] |= (uint16_t)(1u << bin % 16);
    b->levels |= 1u << bin / 16;
}

static void bins_remove(wf_spans *x, wf_span_bins *b, uint32_t first)
{
    const wf_span *e = &x->span[first];
    uint32_t bin = bin_of(e->pages);

    if (e->next != WF_SPAN_NONE) {
        x->span[e->next].prev = e->prev;
    }
    if (e->prev != WF_SPAN_NONE) {
        x->span[e->prev].next = e->next;
        return;
    }
    b->head[bin] = e->next;
    if (e->next == WF_SPAN_NONE) {
        b->bins[bin / 16] &= (uint16_t) ~(1u << bin % 16);
        if (b->bins[bin / 16] == 0) {
            b->levels &= ~(1u << bin / 16);
        }
    }
}

/* The first bin after `bin` that has any, all of which are large enough. */
static uint32_t bins_above(const wf_span_bins *b, uint32_t bin)
{
    uint32_t level = bin / 16;
    uint32_t bins = b->bins[level] & ~((2u << bin % 16) - 1);
    uint32_t levels;

    if (bins != 0) {
        return level * 16 + (uint32_t)__builtin_ctz(bins);
    }
    levels = level < 31 ? b->levels & ~((2u << level) - 1) : 0;
    if (levels == 0) {
        return WF_SPAN_BINS;
    }
    level = (uint32_t)__builtin_ctz(levels);
    return level * 16 + (uint32_t)__builtin_ctz(b->bins[level]);
}

static uint32_t bins_find(const wf_spans *x, const wf_span_bins *b,
                          uint32_t pages, uint32_t looks)
{
    uint32_t bin = bin_of(pages);
    uint32_t at = b->head[bin];

    for (; at != WF_SPAN_NONE && looks > 0; looks--) {
        if (x->span[at].pages >= pages) {
            return at;
        }
        at = x->span[at].next;
    }
    bin = bins_above(b, bin);
    return bin < WF_SPAN_BINS ? b->head[bin] : WF_SPAN_NONE;
}

/* --- spans -------------------------------------------------------------- */

static void span_set(wf_spans *x, uint32_t first, uint32_t pages,
                     wf_span_state state)
{
    x->span[first].pages = pages;
    x->span[first].state = state;
    x->span[first + pages - 1].first = first;
}

static void age_add(wf_spans *x, uint32_t first)
{
    wf_span *e = &x->span[first];

    e->newer = WF_SPAN_NONE;
    e->older = x->newest;
    if (x->newest != WF_SPAN_NONE) {
        x->span[x->newest].newer = first;
    } else {
        x->oldest = first;
    }
    x->newest = first;
}

static void age_remove(wf_spans *x, uint32_t first)
{
    const wf_span *e = &x->span[first];

    if (e->newer != WF_SPAN_NONE) {
        x->span[e->newer].older = e->older;
    } else {
        x->newest = e->older;
    }
    if (e->older != WF_SPAN_NONE) {
        x->span[e->older].newer = e->newer;
    } else {
        x->oldest = e->newer;
    }
}

/* A free span leaves its bin. */
static void free_remove(wf_spans *x, uint32_t first)
{
    if (x->span[first].state == WF_SPAN_KEPT) {
        bins_remove(x, &x->kept_bins, first);
        age_remove(x, first);
        x->kept -= x->span[first].pages;
    } else {
        bins_remove(x, &x->clean_bins, first);
    }
}

/* Add a free span, merged with neighbours of its kind. */
static void free_add(wf_spans *x, uint32_t first, uint32_t pages,
                     wf_span_state state)
{
    uint32_t after = first + pages;

    if (after < x->pages && x->span[after].state == state) {
        free_remove(x, after);
        pages += x->span[after].pages;
        x->span[after].state = WF_SPAN_INSIDE;
    }
    if (first > 0) {
        uint32_t before = x->span[first - 1].first;

        if (x->span[before].state == state) {
            free_remove(x, before);
            x->span[first].state = WF_SPAN_INSIDE;
            pages += x->span[before].pages;
            first = before;
        }
    }
    span_set(x, first, pages, state);
    if (state == WF_SPAN_KEPT) {
        bins_add(x, &x->kept_bins, first);
        age_add(x, first);
        x->kept += pages;
    } else {
        bins_add(x, &x->clean_bins, first);
    }
}

void wf_spans_trim(wf_spans *x, uint32_t pages)
{
    while (x->kept > pages) {
        uint32_t first = x->oldest;
        uint32_t n = x->span[first].pages;

        if (!x->clean(x->ctx, first, n)) {
            return; /* a kernel that cannot: all stays kept */
        }
        free_remove(x, first);
        x->span[first].state = WF_SPAN_INSIDE;
        free_add(x, first, n, WF_SPAN_CLEAN);
    }
}

weft_status wf_spans_init(wf_spans *x, uint32_t pages, uint32_t keep,
                          wf_span_clean_fn *clean, void *ctx)
{
    void *at =
        mmap(NULL, (size_t)pages * sizeof(wf_span), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    memset(x, 0, sizeof(*x));
    if (at == MAP_FAILED) {
        return wf_fail_errno("the table of %u pages", pages);
    }
    (void)madvise(at, (size_t)pages * sizeof(wf_span), MADV_NOHUGEPAGE);
    x->span = at;
    x->pages = pages;
    x->keep = keep;
    x->newest = WF_SPAN_NONE;
    x->oldest = WF_SPAN_NONE;
    x->hold = WF_SPAN_NONE;
    x->clean = clean;
    x->ctx = ctx;
    bins_init(&x->kept_bins);
    bins_init(&x->clean_bins);
    free_add(x, 0, pages, WF_SPAN_CLEAN);
    return WEFT_OK;
}

void wf_spans_fini(wf_spans *x)
{
    if (x->span != NULL) {
        munmap(x->span, (size_t)x->pages * sizeof(wf_span));
        x->span = NULL;
    }
}

static uint32_t find(wf_spans *x, uint32_t pages)
{
    uint32_t at = bins_find(x, &x->kept_bins, pages, LOOKS);

    if (at == WF_SPAN_NONE) {
        at = bins_find(x, &x->clean_bins, pages, LOOKS);
    }
    if (at == WF_SPAN_NONE) {
        /* What is kept and what is clean may lie side by side. */
        wf_spans_trim(x, 0);
        at = bins_find(x, &x->clean_bins, pages, UINT32_MAX);
    }
    if (at == WF_SPAN_NONE) { /* a kernel that cannot clean */
        at = bins_find(x, &x->kept_bins, pages, UINT32_MAX);
    }
    return at;
}

bool wf_spans_take(wf_spans *x, uint32_t pages, uint32_t *first, bool *kept)
{
    uint32_t at = pages <= x->pages ? find(x, pages) : WF_SPAN_NONE;
    wf_span_state state;
    uint32_t rest;

    if (at == WF_SPAN_NONE) {
        return false;
    }
    state = (wf_span_state)x->span[at].state;
    rest = x->span[at].pages - pages;
    free_remove(x, at);
    span_set(x, at, pages, WF_SPAN_USED);
    if (rest > 0) {
        free_add(x, at + pages, rest, state);
    }
    x->used += pages;
    x->blocks++;
    *first = at;
    *kept = state == WF_SPAN_KEPT;
    return true;
}

bool wf_spans_is_used(const wf_spans *x, uint32_t first)
{
    return first < x->pages && x->span[first].state == WF_SPAN_USED;
}

void wf_spans_give(wf_spans *x, uint32_t first, wf_span_state state)
{
    wf_span *e = &x->span[first];

    x->used -= e->pages;
    x->blocks--;
    if (state == WF_SPAN_HELD) {
        e->state = WF_SPAN_HELD;
        e->next = x->hold;
        x->hold = first;
        x->held += e->pages;
        return;
    }
    e->state = WF_SPAN_INSIDE;
    free_add(x, first, e->pages, state);
    wf_spans_trim(x, x->keep);
}

void wf_spans_release(wf_spans *x, bool (*over)(void *ctx, const wf_span *e),
                      void *ctx)
{
    uint32_t *at = &x->hold;

    while (*at != WF_SPAN_NONE) {
        uint32_t first = *at;
        wf_span *e = &x->span[first];

        if (!over(ctx, e)) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        x->held -= e->pages;
        e->state = WF_SPAN_INSIDE;
        free_add(x, first, e->pages, WF_SPAN_KEPT);
    }
    wf_spans_trim(x, x->keep);
}

uint32_t wf_spans_top(const wf_spans *x)
{
    uint32_t top = x->pages;

    while (top > 0) {
        uint32_t first = x->span[top - 1].first;

        if (x->span[first].state == WF_SPAN_USED ||
            x->span[first].state == WF_SPAN_HELD) {
            break;
        }
        top = first;
    }
    return top;
}
