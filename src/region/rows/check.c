/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of row operations. Types and enumerations come from other
 * languages, so any number may be in them. */
#include "region/rows/rows.h"

#include <assert.h>
#include <string.h>

#include "base/options.h"
#include "base/status.h"
#include "base/types.h"
#include "region/region.h"

/* More than any row or table has, and more ids than fit into memory; products
 * of them never wrap. */
#define BYTES_MAX (1ull << 62)
#define IDS_MAX (1ull << 46)

static bool are_both(weft_dtype a, weft_dtype b, unsigned classes)
{
    return wf_dtype_is(a, classes) && wf_dtype_is(b, classes);
}

static weft_status check_types(wf_rows_op op, weft_dtype table, weft_dtype rows)
{
    if ((unsigned)table >= WF_DTYPE_COUNT || (unsigned)rows >= WF_DTYPE_COUNT) {
        return wf_fail(WEFT_ERR_INVALID, "unknown dtype %d",
                       (unsigned)table >= WF_DTYPE_COUNT ? (int)table
                                                         : (int)rows);
    }
    if (op == WF_ROWS_ADD && !weft_op_applies(WEFT_OP_SUM, table)) {
        return wf_fail(WEFT_ERR_INVALID, "scatter_add: %s cannot be added",
                       weft_dtype_name(table));
    }
    if (table == rows) {
        return WEFT_OK;
    }
    if (op == WF_ROWS_ADD) {
        return wf_fail(WEFT_ERR_INVALID,
                       "scatter_add of %s rows to a table of %s: both must "
                       "have the same type",
                       weft_dtype_name(rows), weft_dtype_name(table));
    }
    if (!are_both(table, rows, WF_WHOLE) && !are_both(table, rows, WF_FLOAT) &&
        !are_both(table, rows, WF_COMPLEX)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "cannot convert between a table of %s and rows of %s: "
                       "floating types convert to floating, integers to "
                       "integers, complex to complex types",
                       weft_dtype_name(table), weft_dtype_name(rows));
    }
    return WEFT_OK;
}

static weft_status check_ids(const weft_ids *ids)
{
    if (ids->type != WEFT_I32 && ids->type != WEFT_I64) {
        return wf_fail(WEFT_ERR_INVALID, "ids must be i32 or i64, not %s",
                       weft_dtype_name(ids->type));
    }
    if (ids->n > IDS_MAX) {
        return wf_fail(WEFT_ERR_INVALID, "%llu ids are too many",
                       (unsigned long long)ids->n);
    }
    if (ids->n > 0 && ids->at == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "ids is NULL");
    }
    if ((uintptr_t)ids->at % wf_dtype_bytes(ids->type) != 0) {
        return wf_fail(WEFT_ERR_INVALID, "ids must be aligned to %zu bytes",
                       wf_dtype_bytes(ids->type));
    }
    return WEFT_OK;
}

static weft_status check_options(const weft_rows_options *options,
                                 weft_rows_options *out)
{
    weft_status st =
        wf_options_read(options, "weft_rows_options", out, sizeof(*out));

    if (st != WEFT_OK) {
        return st;
    }
    if ((unsigned)out->bounds > WEFT_BOUNDS_UNCHECKED) {
        return wf_fail(WEFT_ERR_INVALID, "unknown bounds %d", (int)out->bounds);
    }
    return WEFT_OK;
}

/* What a region says of itself takes the place of what is said of memory. */
static weft_status fill_region(wf_rows_call *call, bool writes)
{
    const weft_region *region = call->table.region;
    uint64_t room = region->row_bytes;

    call->table.at = region->base;
    call->table.rows = region->part.rows;
    call->table.pitch = region->part.pitch;
    call->table.place = region->place;
    if (call->table.skip > room || call->far_bytes > room - call->table.skip) {
        return wf_fail(WEFT_ERR_INVALID,
                       "columns from byte %llu to %llu are out of range (rows "
                       "have %llu bytes)",
                       (unsigned long long)call->table.skip,
                       (unsigned long long)(call->table.skip + call->far_bytes),
                       (unsigned long long)room);
    }
    if (writes && region->read_only) {
        return wf_fail(WEFT_ERR_INVALID,
                       "the region was opened for reading only");
    }
    return WEFT_OK;
}

static weft_status check_memory(const wf_rows_call *call, bool writes)
{
    const weft_table *t = &call->table;

    if (t->at == NULL && t->rows > 0 && call->far_bytes > 0) {
        return wf_fail(WEFT_ERR_INVALID,
                       "the table has neither a region nor memory");
    }
    if (t->pitch > BYTES_MAX || t->skip > BYTES_MAX ||
        (t->pitch > 0 && t->rows > BYTES_MAX / t->pitch)) {
        return wf_fail(
            WEFT_ERR_INVALID, "a table of %llu rows of %llu bytes is too large",
            (unsigned long long)t->rows, (unsigned long long)t->pitch);
    }
    if (writes && t->rows > 1 && t->pitch < call->far_bytes) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rows of %llu bytes that begin every %llu bytes "
                       "overlap and cannot be written",
                       (unsigned long long)call->far_bytes,
                       (unsigned long long)t->pitch);
    }
    return WEFT_OK;
}

/* Which of the table's rows ids count. */
static weft_status check_view(wf_rows_call *call)
{
    const weft_table *t = &call->table;
    uint64_t left;

    if (t->first > t->rows) {
        return wf_fail(WEFT_ERR_INVALID, "row %llu is out of range (%llu rows)",
                       (unsigned long long)t->first,
                       (unsigned long long)t->rows);
    }
    left = t->rows - t->first;
    if (t->limit > left) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%llu rows from row %llu on are out of range (%llu "
                       "rows)",
                       (unsigned long long)t->limit,
                       (unsigned long long)t->first,
                       (unsigned long long)t->rows);
    }
    call->limit = t->limit == 0 ? left : t->limit;
    return WEFT_OK;
}

static weft_status check_near(wf_rows_call *call)
{
    weft_rows *rows = &call->rows;

    if (rows->pitch == 0) {
        rows->pitch = call->near_bytes;
    }
    if (call->ids.n > 1 && rows->pitch < call->near_bytes) {
        return wf_fail(WEFT_ERR_INVALID,
                       "rows of %llu bytes do not fit into a pitch of %llu",
                       (unsigned long long)call->near_bytes,
                       (unsigned long long)rows->pitch);
    }
    if (rows->at == NULL && call->ids.n > 0 && call->near_bytes > 0) {
        return wf_fail(WEFT_ERR_INVALID, "the array of rows is NULL");
    }
    return WEFT_OK;
}

static weft_status check_places(const wf_rows_call *call)
{
    if ((unsigned)call->ids.place > WEFT_CUDA ||
        (unsigned)call->rows.place > WEFT_CUDA ||
        (unsigned)call->table.place > WEFT_CUDA) {
        return wf_fail(WEFT_ERR_INVALID, "place is out of range");
    }
    if (call->ids.place != call->rows.place) {
        return wf_fail(WEFT_ERR_INVALID,
                       "ids and rows must be both on the host or both on the "
                       "GPU");
    }
    if (call->table.place == WEFT_CUDA && call->ids.place == WEFT_HOST) {
        return wf_fail(WEFT_ERR_INVALID,
                       "the table is on a GPU: ids and rows must be, too");
    }
    return WEFT_OK;
}

/* Elements are exchanged whole, so they must lie as such. */
static weft_status check_alignment(const wf_rows_call *call)
{
    const weft_table *t = &call->table;
    uint64_t part = wf_dtype_bytes(wf_dtype_part(t->type));

    assert(part > 0);
    if (call->op == WF_ROWS_ADD &&
        (((uintptr_t)t->at + t->skip) % part != 0 || t->pitch % part != 0)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "scatter_add: the elements of the table are not "
                       "aligned to %llu bytes",
                       (unsigned long long)part);
    }
    return WEFT_OK;
}

/* Bytes from an address on, in which rows lie `pitch` apart. */
typedef struct stretch {
    uintptr_t from;
    uint64_t bytes;
    uint64_t pitch; /* 0: no gaps that others may use */
    uint64_t width; /* of each row */
} stretch;

static stretch stretch_of_rows(uintptr_t at, uint64_t rows, uint64_t pitch,
                               uint64_t width)
{
    return (stretch){at, rows == 0 ? 0 : (rows - 1) * pitch + width, pitch,
                     width};
}

static stretch stretch_of_table(const wf_rows_call *call)
{
    const weft_table *t = &call->table;

    if (t->region != NULL && !wf_partition_is_flat(&t->region->part)) {
        return (stretch){.from = (uintptr_t)t->at,
                         .bytes = wf_partition_bytes(&t->region->part)};
    }
    return stretch_of_rows((uintptr_t)t->at + t->first * t->pitch + t->skip,
                           call->limit, t->pitch, call->far_bytes);
}

/* Other columns of the same rows are apart, too. */
static bool columns_are_apart(const stretch *a, const stretch *b)
{
    const stretch *low = a->from < b->from ? a : b;
    const stretch *high = low == a ? b : a;
    /* A row by itself has any pitch. */
    uint64_t pitch = low->bytes > low->width ? low->pitch : high->pitch;
    uint64_t step;

    if (pitch == 0 || (high->bytes > high->width && high->pitch != pitch)) {
        return false;
    }
    step = (high->from - low->from) % pitch;
    return step >= low->width && step + high->width <= pitch;
}

static bool overlap(const stretch *a, const stretch *b)
{
    return a->bytes > 0 && b->bytes > 0 && a->from < b->from + b->bytes &&
           b->from < a->from + a->bytes && !columns_are_apart(a, b);
}

/* On a GPU one memory may have several addresses, which tell nothing. Rows
 * without a byte are apart from everything, wherever they begin. */
static weft_status check_apart(const wf_rows_call *call)
{
    bool gathers = call->op == WF_ROWS_GATHER;
    stretch table = stretch_of_table(call);
    stretch rows = stretch_of_rows((uintptr_t)call->rows.at, call->ids.n,
                                   call->rows.pitch, call->near_bytes);
    stretch ids = {.from = (uintptr_t)call->ids.at,
                   .bytes = call->ids.n * wf_dtype_bytes(call->ids.type)};

    if (call->ids.place == WEFT_CUDA || call->far_bytes == 0) {
        return WEFT_OK;
    }
    if (overlap(&table, &rows)) {
        return wf_fail(WEFT_ERR_INVALID,
                       "the table and the array of rows overlap in memory; "
                       "use a copy");
    }
    return overlap(&ids, gathers ? &rows : &table)
               ? wf_fail(WEFT_ERR_INVALID,
                         "ids lie in memory that would be written to; use a "
                         "copy")
               : WEFT_OK;
}

static weft_status check_table(wf_rows_call *call)
{
    bool writes = call->op != WF_ROWS_GATHER;
    weft_status st;

    if (call->table.width > BYTES_MAX / 16) {
        return wf_fail(WEFT_ERR_INVALID, "rows of %llu elements are too wide",
                       (unsigned long long)call->table.width);
    }
    call->far_bytes = call->table.width * wf_dtype_bytes(call->table.type);
    call->near_bytes = call->table.width * wf_dtype_bytes(call->rows.type);
    st = call->table.region != NULL ? fill_region(call, writes)
                                    : check_memory(call, writes);
    if (st == WEFT_OK) {
        st = check_view(call);
    }
    return st;
}

weft_status wf_rows_check(wf_rows_op op, const weft_table *table,
                          const weft_ids *ids, const weft_rows *rows,
                          const weft_rows_options *options, wf_rows_call *out)
{
    weft_status st;

    if (table == NULL || ids == NULL || rows == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "%s is NULL",
                       table == NULL ? "table"
                       : ids == NULL ? "ids"
                                     : "the array of rows");
    }
    *out =
        (wf_rows_call){.op = op, .table = *table, .ids = *ids, .rows = *rows};
    if ((st = check_options(options, &out->options)) != WEFT_OK ||
        (st = check_types(op, table->type, rows->type)) != WEFT_OK ||
        (st = check_ids(ids)) != WEFT_OK ||
        (st = check_table(out)) != WEFT_OK ||
        (st = check_near(out)) != WEFT_OK ||
        (st = check_places(out)) != WEFT_OK) {
        return st;
    }
    st = check_alignment(out);
    return st == WEFT_OK ? check_apart(out) : st;
}
