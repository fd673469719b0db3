/* SPDX-License-Identifier: Apache-2.0 */
#include "region/partition.h"

#include <string.h>

#include "base/alloc.h"
#include "base/num.h"
#include "base/status.h"

/* Of the first `rows` rows that are dealt in turn, how many go to `rank`? */
static uint64_t dealt_to(const wf_partition *p, uint64_t rows, uint32_t rank)
{
    uint64_t round = p->run * p->ranks;
    uint64_t rest = rows % round;
    uint64_t before = p->run * rank;

    return rows / round * p->run +
           (rest > before ? wf_least(rest - before, p->run) : 0);
}

void wf_partition_init(wf_partition *p, weft_partition kind, uint32_t ranks,
                       uint64_t run, uint64_t pitch, uint64_t granule,
                       bool aligned)
{
    *p = (wf_partition){.kind = kind,
                        .ranks = ranks,
                        .run = run > 0 ? run : 1,
                        .pitch = pitch,
                        .granule = granule,
                        .aligned = aligned};
}

static void stretch_fini(wf_stretch *s)
{
    wf_free(s->first);
    wf_free(s->at);
}

void wf_partition_fini(wf_partition *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        stretch_fini(&p->stretch[i]);
    }
    wf_free(p->stretch);
    memset(p, 0, sizeof(*p));
}

static void stretch_deal(const wf_partition *p, wf_stretch *s,
                         const uint64_t *given)
{
    bool in_turn = p->kind == WEFT_PARTITION_ROUND_ROBIN;

    if (given == NULL && !in_turn) {
        s->rows_per_rank = s->rows / p->ranks + (s->rows % p->ranks != 0);
    }
    s->first[0] = 0;
    for (uint32_t r = 0; r < p->ranks; r++) {
        uint64_t rows = in_turn ? dealt_to(p, s->rows, r)
                        : given != NULL
                            ? given[r]
                            : wf_least(s->rows_per_rank, s->rows - s->first[r]);

        s->first[r + 1] = s->first[r] + rows;
    }
}

static void stretch_lay_out(const wf_partition *p, wf_stretch *s, uint64_t from)
{
    for (uint32_t r = 0; r < p->ranks; r++) {
        s->at[r] = p->aligned ? wf_round_up(from, p->granule) : from;
        from = s->at[r] + (s->first[r + 1] - s->first[r]) * p->pitch;
    }
    s->at[p->ranks] = from;
}

static weft_status stretch_alloc(const wf_partition *p, wf_stretch *s)
{
    size_t n = ((size_t)p->ranks + 1) * sizeof(uint64_t);

    s->first = wf_alloc(n);
    s->at = wf_alloc(n);
    if (s->first == NULL || s->at == NULL) {
        stretch_fini(s);
        return wf_fail_nomem("the partition of a region");
    }
    return WEFT_OK;
}

weft_status wf_partition_add(wf_partition *p, uint64_t rows,
                             const uint64_t *given)
{
    wf_stretch s = {.row = p->rows, .rows = rows};
    wf_stretch *grown;
    weft_status st;

    if (rows == 0) {
        return WEFT_OK;
    }
    st = stretch_alloc(p, &s);
    if (st != WEFT_OK) {
        return st;
    }
    grown = wf_realloc(p->stretch, (p->count + 1) * sizeof(s));
    if (grown == NULL) {
        stretch_fini(&s);
        return wf_fail_nomem("the partition of a region");
    }
    p->stretch = grown;
    stretch_deal(p, &s, given);
    stretch_lay_out(p, &s, wf_partition_bytes(p));
    p->stretch[p->count++] = s;
    p->rows += rows;
    return WEFT_OK;
}

/* Where the last stretch would end if all its rows were there. */
static uint64_t rows_dealt(const wf_partition *p)
{
    const wf_stretch *last;

    if (p->count == 0) {
        return 0;
    }
    last = &p->stretch[p->count - 1];
    return last->row + last->rows;
}

weft_status wf_partition_resize(wf_partition *p, uint64_t rows)
{
    while (p->count > 0 && p->stretch[p->count - 1].row >= rows) {
        stretch_fini(&p->stretch[--p->count]);
    }
    p->rows = wf_least(rows, rows_dealt(p));
    return wf_partition_add(p, rows - p->rows, NULL);
}

static weft_status copy_stretch(const wf_partition *p, const wf_stretch *from,
                                wf_stretch *to)
{
    size_t n = ((size_t)p->ranks + 1) * sizeof(uint64_t);
    weft_status st;

    *to = *from;
    st = stretch_alloc(p, to);
    if (st == WEFT_OK) {
        memcpy(to->first, from->first, n);
        memcpy(to->at, from->at, n);
    }
    return st;
}

weft_status wf_partition_resized(const wf_partition *p, uint64_t rows,
                                 wf_partition *out)
{
    wf_partition copy = *p;
    weft_status st = WEFT_OK;

    copy.count = 0;
    copy.stretch = wf_zalloc((p->count + 1) * sizeof(*copy.stretch));
    if (copy.stretch == NULL) {
        return wf_fail_nomem("the partition of a region");
    }
    while (copy.count < p->count && st == WEFT_OK) {
        st =
            copy_stretch(p, &p->stretch[copy.count], &copy.stretch[copy.count]);
        copy.count += st == WEFT_OK;
    }
    if (st == WEFT_OK) {
        st = wf_partition_resize(&copy, rows);
    }
    if (st != WEFT_OK) {
        wf_partition_fini(&copy);
        return st;
    }
    *out = copy;
    return WEFT_OK;
}

uint64_t wf_partition_bytes(const wf_partition *p)
{
    return p->count == 0 ? 0 : p->stretch[p->count - 1].at[p->ranks];
}

static bool stretch_is_flat(const wf_partition *p, const wf_stretch *s)
{
    for (uint32_t r = 0; r < p->ranks; r++) {
        if (s->first[r] != s->first[r + 1] &&
            s->at[r] != (s->row + s->first[r]) * p->pitch) {
            return false;
        }
    }
    return true;
}

bool wf_partition_is_flat(const wf_partition *p)
{
    if (p->kind == WEFT_PARTITION_ROUND_ROBIN && p->ranks > 1) {
        return false;
    }
    for (uint32_t i = 0; i < p->count; i++) {
        if (!stretch_is_flat(p, &p->stretch[i])) {
            return false;
        }
    }
    return true;
}

const wf_stretch *wf_partition_stretch(const wf_partition *p, uint64_t row)
{
    uint32_t low = 0;
    uint32_t high = p->count - 1;

    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;

        if (p->stretch[mid].row <= row) {
            low = mid;
        } else {
            high = mid - 1;
        }
    }
    return &p->stretch[low];
}

/* The last rank whose rows begin at or before `row`: those without rows begin
 * where the next one does, and are passed over. */
static uint32_t search_owner(const wf_partition *p, const wf_stretch *s,
                             uint64_t row)
{
    uint32_t low = 0;
    uint32_t high = p->ranks - 1;

    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;

        if (s->first[mid] <= row) {
            low = mid;
        } else {
            high = mid - 1;
        }
    }
    return low;
}

/* Owner of a row of a stretch, and its number in the owner's part of it. */
static uint64_t place_in(const wf_partition *p, const wf_stretch *s,
                         uint64_t row, uint32_t *owner)
{
    uint64_t in = row - s->row;

    if (p->kind == WEFT_PARTITION_ROUND_ROBIN) {
        uint64_t number = in / p->run;

        *owner = (uint32_t)(number % p->ranks);
        return number / p->ranks * p->run + in % p->run;
    }
    *owner = s->rows_per_rank != 0 ? (uint32_t)(in / s->rows_per_rank)
                                   : search_owner(p, s, in);
    return in - s->first[*owner];
}

uint32_t wf_partition_owner(const wf_partition *p, uint64_t row)
{
    uint32_t owner;

    (void)place_in(p, wf_partition_stretch(p, row), row, &owner);
    return owner;
}

void wf_partition_find_span(const wf_partition *p, uint64_t row,
                            wf_row_span *span)
{
    const wf_stretch *s = wf_partition_stretch(p, row);
    uint64_t there = wf_least(s->rows, p->rows - s->row);
    uint64_t in = row - s->row;
    uint64_t begin;
    uint64_t end;

    (void)place_in(p, s, row, &span->owner);
    if (p->kind == WEFT_PARTITION_ROUND_ROBIN) {
        begin = in - in % p->run;
        end = begin + p->run;
    } else {
        begin = s->first[span->owner];
        end = s->first[span->owner + 1];
    }
    span->row = s->row + begin;
    span->rows = wf_least(end, there) - begin;
}

uint64_t wf_partition_local(const wf_partition *p, uint64_t row,
                            uint32_t *owner)
{
    const wf_stretch *s = wf_partition_stretch(p, row);
    uint64_t local = place_in(p, s, row, owner);

    while (s-- > p->stretch) {
        local += s->first[*owner + 1] - s->first[*owner];
    }
    return local;
}

uint64_t wf_partition_offset(const wf_partition *p, uint64_t row,
                             uint32_t *owner)
{
    const wf_stretch *s = wf_partition_stretch(p, row);
    uint64_t local = place_in(p, s, row, owner);

    return s->at[*owner] + local * p->pitch;
}

uint64_t wf_stretch_rows_of(const wf_partition *p, const wf_stretch *s,
                            uint32_t rank)
{
    uint64_t there = wf_least(s->rows, p->rows - s->row);

    if (p->kind == WEFT_PARTITION_ROUND_ROBIN) {
        return dealt_to(p, there, rank);
    }
    return there > s->first[rank]
               ? wf_least(there, s->first[rank + 1]) - s->first[rank]
               : 0;
}

uint64_t wf_partition_rows_of(const wf_partition *p, uint32_t rank)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < p->count; i++) {
        rows += wf_stretch_rows_of(p, &p->stretch[i], rank);
    }
    return rows;
}

/* Row of the region that is number `local` of a rank's part of a stretch. */
static uint64_t row_in(const wf_partition *p, const wf_stretch *s,
                       uint32_t rank, uint64_t local)
{
    if (p->kind == WEFT_PARTITION_ROUND_ROBIN) {
        return s->row + (local / p->run * p->ranks + rank) * p->run +
               local % p->run;
    }
    return s->row + s->first[rank] + local;
}

uint64_t wf_partition_row_at(const wf_partition *p, uint32_t rank,
                             uint64_t local)
{
    const wf_stretch *s = p->stretch;

    while (local >= s->first[rank + 1] - s->first[rank]) {
        local -= s->first[rank + 1] - s->first[rank];
        s++;
    }
    return row_in(p, s, rank, local);
}

/* Does `next` continue `r` both in rows and in memory? */
static bool continues(const wf_partition *p, const wf_range *r,
                      const wf_range *next)
{
    return (p->kind != WEFT_PARTITION_ROUND_ROBIN || p->ranks == 1) &&
           r->row + r->rows == next->row &&
           r->at + r->rows * p->pitch == next->at;
}

/* Walk the ranges of a rank; returns how many there are, and fills in number
 * `index`. */
static uint32_t walk(const wf_partition *p, uint32_t rank, uint32_t index,
                     wf_range *out)
{
    wf_range now = {0};
    uint32_t count = 0;

    for (uint32_t i = 0; i < p->count; i++) {
        const wf_stretch *s = &p->stretch[i];
        wf_range next = {.row = row_in(p, s, rank, 0),
                         .rows = wf_stretch_rows_of(p, s, rank),
                         .at = s->at[rank]};

        if (next.rows == 0) {
            continue;
        }
        if (count > 0 && continues(p, &now, &next)) {
            now.rows += next.rows;
        } else {
            now = next;
            count++;
        }
        if (count == index + 1) {
            *out = now;
        }
    }
    return count;
}

uint32_t wf_partition_ranges(const wf_partition *p, uint32_t rank)
{
    wf_range unused;
    uint32_t count = walk(p, rank, 0, &unused);

    return count > 0 ? count : 1;
}

bool wf_partition_range(const wf_partition *p, uint32_t rank, uint32_t index,
                        wf_range *out)
{
    wf_range found = {.row = p->rows};
    uint32_t count;

    if (p->count > 0) {
        const wf_stretch *s = &p->stretch[0];

        /* For a rank without rows: where they would begin. */
        found.row = wf_least(row_in(p, s, rank, 0), p->rows);
        found.at = s->at[rank];
    }
    count = walk(p, rank, index, &found);
    if (index >= count && index > 0) {
        return false;
    }
    *out = found;
    return true;
}

/* Where the granules of one rank of one stretch begin and end, given where
 * those of its domain before it end. */
static wf_extent extent_of(const wf_partition *p, const wf_stretch *s,
                           uint32_t rank, uint64_t backed)
{
    uint64_t end =
        s->at[rank] + (s->first[rank + 1] - s->first[rank]) * p->pitch;
    uint64_t from = s->at[rank] / p->granule * p->granule;
    uint64_t until = wf_round_up(end, p->granule);

    if (end == s->at[rank]) {
        return (wf_extent){0};
    }
    from = from > backed ? from : backed;
    return (wf_extent){from, until > from ? until - from : 0};
}

wf_extent wf_partition_extent(const wf_partition *p, const uint32_t *domain,
                              uint32_t rank, uint32_t stretch)
{
    wf_extent e = {0};
    uint64_t backed = 0;

    for (uint32_t i = 0; i <= stretch; i++) {
        uint32_t last = i == stretch ? rank : p->ranks - 1;

        for (uint32_t r = 0; r <= last; r++) {
            if (domain[r] == domain[rank]) {
                e = extent_of(p, &p->stretch[i], r, backed);
                backed = e.bytes > 0 ? e.at + e.bytes : backed;
            }
        }
    }
    return e;
}

uint64_t wf_partition_backed(const wf_partition *p, const uint32_t *domain,
                             uint32_t rank)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < p->count; i++) {
        bytes += wf_partition_extent(p, domain, rank, i).bytes;
    }
    return bytes;
}
