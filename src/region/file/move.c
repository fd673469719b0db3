/* SPDX-License-Identifier: Apache-2.0 */
#include "region/file/move.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"
#include "base/thread.h"
#include "region/file/io.h"
#include "region/file/rows.h"

#define THREADS_MAX 256u

/* A share, and how far the threads are in it. */
typedef struct move_state {
    const wf_file_move *move;
    uint64_t total;
    _Atomic uint64_t done;
    _Atomic bool stop;

    pthread_mutex_t lock; /* what follows */
    uint64_t at;          /* the span that is being taken from, in bytes */
    uint64_t end;
    uint64_t local; /* the next row of this rank's storage */
    uint64_t local_end;
    wf_failure first;
} move_state;

/* --- the share of a rank ------------------------------------------------- */

/* How many of this rank's rows are in the file? They are in order. */
static uint64_t own_rows(const wf_file_move *m)
{
    const wf_partition *p = &m->region->part;
    uint32_t rank = m->region->rank;
    uint64_t low = 0;
    uint64_t high = wf_partition_rows_of(p, rank);

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (wf_partition_row_at(p, rank, middle) < m->rows) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The rows before the share of `rank`, if they are shared out in one piece. */
static uint64_t even_share(uint64_t rows, uint32_t rank, uint32_t ranks)
{
    return rows / ranks * rank + wf_least(rank, rows % ranks);
}

static void share_init(move_state *s)
{
    const wf_file_move *m = s->move;
    const weft_region *r = m->region;

    if (r->part.kind == WEFT_PARTITION_ROUND_ROBIN && wf_region_maps_all(r)) {
        s->at = even_share(m->rows, r->rank, r->ranks) * m->width;
        s->end = even_share(m->rows, r->rank + 1, r->ranks) * m->width;
        s->total = s->end - s->at;
    } else {
        s->local_end = own_rows(m);
        s->total = s->local_end * m->width;
    }
}

/* Go on to the next rows of the own storage. */
static void next_span(move_state *s)
{
    const wf_file_move *m = s->move;
    const wf_partition *p = &m->region->part;
    uint32_t rank = m->region->rank;
    uint64_t row = wf_partition_row_at(p, rank, s->local);
    uint64_t rows =
        wf_least(wf_file_rows_together(p, row, rank), s->local_end - s->local);

    s->local += rows;
    s->at = row * m->width;
    s->end = s->at + rows * m->width;
}

/* Take the next piece of the share; false if there is none. */
static bool take_piece(move_state *s, uint64_t *at, size_t *n)
{
    uint64_t block = s->move->block;
    bool any;

    pthread_mutex_lock(&s->lock);
    while (s->at == s->end && s->local < s->local_end) {
        next_span(s);
    }
    any = s->at < s->end;
    if (any) {
        *at = s->at;
        *n = (size_t)wf_least(s->end - s->at, block - s->at % block);
        s->at += *n;
    }
    pthread_mutex_unlock(&s->lock);
    return any;
}

/* --- threads ------------------------------------------------------------- */

static void note_failure(move_state *s, weft_status status)
{
    pthread_mutex_lock(&s->lock);
    wf_failure_note(&s->first, status);
    pthread_mutex_unlock(&s->lock);
    atomic_store(&s->stop, true);
}

static weft_status move_piece(const wf_file_move *m, uint64_t at,
                              unsigned char *bytes, size_t n)
{
    weft_status st = WEFT_OK;

    if (!m->load) {
        st = wf_file_rows_copy(m, at, bytes, n);
    }
    if (st == WEFT_OK) {
        st = m->piece(m->ctx, at, bytes, n);
    }
    if (st == WEFT_OK && m->load) {
        st = wf_file_rows_copy(m, at, bytes, n);
    }
    return st;
}

static void move_pieces(move_state *s, unsigned char *bytes, bool report)
{
    const wf_file_move *m = s->move;
    uint64_t at;
    size_t n;

    while (!atomic_load(&s->stop) && take_piece(s, &at, &n)) {
        weft_status st = move_piece(m, at, bytes, n);

        if (st != WEFT_OK) {
            note_failure(s, st);
            return;
        }
        atomic_fetch_add(&s->done, n);
        if (report) {
            m->options->progress(m->options->progress_ctx,
                                 atomic_load(&s->done), s->total);
        }
    }
}

/* What each thread does; one of them reports. */
static void work(move_state *s, bool report)
{
    const wf_file_move *m = s->move;
    unsigned char *bytes = wf_zalloc_aligned(WF_FILE_DIRECT_UNIT, m->block);
    weft_status st;

    if (bytes == NULL) {
        note_failure(s,
                     wf_fail_nomem("a buffer of %" PRIu64 " bytes", m->block));
        return;
    }
    st = wf_file_rows_enter(m->region);
    if (st == WEFT_OK) {
        move_pieces(s, bytes, report);
        wf_file_rows_leave(m->region);
    } else {
        note_failure(s, st);
    }
    wf_free(bytes);
}

static void *helper_main(void *arg)
{
    work(arg, false);
    return NULL;
}

/* Threads that cannot be had are done without. */
static uint32_t start_helpers(move_state *s, pthread_t *helper, uint32_t wanted)
{
    uint32_t n = 0;

    while (n < wanted &&
           wf_thread_start("a thread that moves rows", helper_main, s,
                           &helper[n]) == WEFT_OK) {
        n++;
    }
    return n;
}

static uint32_t helpers_wanted(const move_state *s)
{
    uint64_t blocks = s->total / s->move->block + 1;
    uint64_t threads = wf_least(s->move->options->threads, THREADS_MAX);

    return threads > 1 ? (uint32_t)wf_least(threads - 1, blocks - 1) : 0;
}

weft_status wf_file_move_run(const wf_file_move *move)
{
    move_state s = {.move = move};
    bool report = move->options->progress != NULL;
    pthread_t helper[THREADS_MAX];
    uint32_t helpers;

    if (move->rows == 0 || move->width == 0) {
        return WEFT_OK;
    }
    pthread_mutex_init(&s.lock, NULL);
    share_init(&s);
    helpers = start_helpers(&s, helper, helpers_wanted(&s));
    work(&s, report);
    for (uint32_t i = 0; i < helpers; i++) {
        pthread_join(helper[i], NULL);
    }
    pthread_mutex_destroy(&s.lock);
    if (s.first.status != WEFT_OK) {
        return wf_failure_again(&s.first);
    }
    if (report) {
        move->options->progress(move->options->progress_ctx, s.total, s.total);
    }
    return WEFT_OK;
}
