/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of a range are in use: an allocator of spans, whole pages, that
 * never touches the range itself.
 *
 * The range may be shared with processes that must not be able to confuse the
 * allocator, and it is not copied on write by a fork. So all that is known of
 * a span stands in private memory, in an array with an entry for each page
 * of the range, of which only the entries of first and last pages of spans
 * are ever touched.
 *
 * Free spans are of two kinds: *kept* ones have memory, which is quick to use
 * again; *clean* ones have none. Neighbours of one kind are merged. Both kinds
 * are found by size, in bins of 16 for each power of two, in constant time. If
 * more pages are kept than allowed, the spans that were freed first are
 * cleaned, and then merged with their neighbours.
 *
 * A span that is given back on *hold* is neither, until it is released: a
 * forked child may be reading it. Nothing here locks. */
#ifndef WF_MEM_SPANS_H
#define WF_MEM_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/status.h>

#define WF_SPAN_NONE UINT32_MAX
#define WF_SPAN_BINS 512u
#define WF_SPAN_LEVELS (WF_SPAN_BINS / 16)

typedef enum wf_span_state {
    WF_SPAN_INSIDE, /* no span begins at this page */
    WF_SPAN_USED,
    WF_SPAN_KEPT,  /* free, with memory */
    WF_SPAN_CLEAN, /* free, without */
    WF_SPAN_HELD   /* given back, but not to be used yet */
} wf_span_state;

typedef struct wf_span {
    uint32_t pages; /* of the span that begins here */
    uint32_t first; /* of the span that ends here */
    uint32_t next;  /* in its bin, or of the held ones */
    uint32_t prev;
    uint32_t newer; /* kept ones, in the order in which they were freed */
    uint32_t older;
    uint32_t tag; /* the caller's, while it is used or held */
    uint32_t state;
} wf_span;

/* Free spans of one kind, by size. */
typedef struct wf_span_bins {
    uint32_t levels; /* a bit for each level that has any */
    uint16_t bins[WF_SPAN_LEVELS];
    uint32_t head[WF_SPAN_BINS];
} wf_span_bins;

/* Give the memory of these pages back to the kernel; false if it cannot be. */
typedef bool wf_span_clean_fn(void *ctx, uint32_t first, uint32_t pages);

typedef struct wf_spans {
    wf_span *span;  /* by page */
    uint32_t pages; /* of the range */
    uint32_t used;  /* pages */
    uint32_t kept;
    uint32_t held;
    uint32_t blocks; /* spans that are used */
    uint32_t keep;   /* pages that may be kept */
    uint32_t newest; /* of those that are kept */
    uint32_t oldest;
    uint32_t hold; /* the first that is held */
    wf_span_bins kept_bins;
    wf_span_bins clean_bins;
    wf_span_clean_fn *clean;
    void *ctx;
} wf_spans;

/* A range of `pages`, all clean. */
weft_status wf_spans_init(wf_spans *x, uint32_t pages, uint32_t keep,
                          wf_span_clean_fn *clean, void *ctx);
/* Takes a zeroed one, too. */
void wf_spans_fini(wf_spans *x);

/* Take `pages`, at least 1. `*kept` says whether they have memory. False: there
 * is no room, even after all that was kept is cleaned. */
bool wf_spans_take(wf_spans *x, uint32_t pages, uint32_t *first, bool *kept);

/* Is it the first page of a span that is used? */
bool wf_spans_is_used(const wf_spans *x, uint32_t first);

/* Give back one that is used; `state` is KEPT, CLEAN (its memory was never
 * there), or HELD. */
void wf_spans_give(wf_spans *x, uint32_t first, wf_span_state state);

/* Release all that is held and for which `over` is true: now it is kept. */
void wf_spans_release(wf_spans *x, bool (*over)(void *ctx, const wf_span *e),
                      void *ctx);

/* Clean the oldest of what is kept until at most `pages` are. */
void wf_spans_trim(wf_spans *x, uint32_t pages);

/* The end of the last span that is used or held, in pages. */
uint32_t wf_spans_top(const wf_spans *x);

#endif
