/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wt_data.h"

/* Set before the ranks are forked. */
static const char *nodes;
static const char *more = "";

void dr_settings(const char *text)
{
    more = text;
}

static const char *settings_of(unsigned rank)
{
    static _Thread_local char text[128];

    snprintf(text, sizeof(text), "NODE=%c %s", nodes[rank], more);
    return text;
}

void dr_run(const char *layout, wt_body *body)
{
    nodes = layout;
    wt_run_job_both(&(wt_job){.ranks = (unsigned)strlen(layout),
                              .settings_of = settings_of,
                              .body = body});
}

/* --- elements ------------------------------------------------------------- */

void dr_set(void *at, weft_dtype type, int value)
{
    switch (type) {
    case WEFT_BOOL:
        *(uint8_t *)at = value % 2 != 0;
        break;
    case WEFT_U8:
    case WEFT_I8:
        *(int8_t *)at = (int8_t)value;
        break;
    case WEFT_I16:
        *(int16_t *)at = (int16_t)value;
        break;
    case WEFT_I32:
        *(int32_t *)at = value;
        break;
    case WEFT_I64:
        *(int64_t *)at = value;
        break;
    case WEFT_F16:
    case WEFT_BF16:
    case WEFT_F32:
    case WEFT_F64:
    case WEFT_C64:
    case WEFT_C128:
        wt_put(at, 0, type, value, -value);
        break;
    case WEFT_PAIR_F32:
        *(weft_pair_f32 *)at = (weft_pair_f32){(float)value, -value};
        break;
    case WEFT_PAIR_F64:
        *(weft_pair_f64 *)at = (weft_pair_f64){value, -value};
        break;
    case WEFT_PAIR_I32:
        *(weft_pair_i32 *)at = (weft_pair_i32){value, -value};
        break;
    case WEFT_PAIR_I64:
        *(weft_pair_i64 *)at = (weft_pair_i64){value, -value};
        break;
    }
}

/* The second half of an element that has two must be what dr_set made it. */
int dr_get(const void *at, weft_dtype type)
{
    unsigned char want[16];
    double re;
    double im;
    int value = 0;

    switch (type) {
    case WEFT_BOOL:
    case WEFT_U8:
        return *(const uint8_t *)at;
    case WEFT_I8:
        return *(const int8_t *)at;
    case WEFT_I16:
        return *(const int16_t *)at;
    case WEFT_I32:
        return *(const int32_t *)at;
    case WEFT_I64:
        return (int)*(const int64_t *)at;
    case WEFT_F16:
    case WEFT_BF16:
    case WEFT_F32:
    case WEFT_F64:
    case WEFT_C64:
    case WEFT_C128:
        wt_get(at, 0, type, &re, &im);
        value = (int)re;
        break;
    case WEFT_PAIR_F32:
        value = (int)*(const float *)at;
        break;
    case WEFT_PAIR_F64:
        value = (int)*(const double *)at;
        break;
    case WEFT_PAIR_I32:
        value = *(const int32_t *)at;
        break;
    case WEFT_PAIR_I64:
        value = (int)*(const int64_t *)at;
        break;
    }
    dr_set(want, type, value);
    return memcmp(at, want, weft_dtype_size(type)) == 0 ? value : -1000;
}

int dr_as(weft_dtype type, int value)
{
    return type == WEFT_BOOL ? value % 2 != 0 : value;
}

int dr_value(uint64_t row, uint64_t column)
{
    return (int)((row * 7 + column * 3) % 101);
}

/* --- regions -------------------------------------------------------------- */

/* Unequal parts, the second one of no rows. */
static void give(uint64_t rows, uint32_t ranks, uint64_t *part)
{
    uint64_t left = rows;

    for (uint32_t r = 0; r < ranks; r++) {
        part[r] = r == 1 ? 0 : left < rows / 3 ? left : rows / 3;
        left -= part[r];
    }
    part[ranks - 1] += left;
}

weft_region *dr_create(weft_world *world, const dr_shape *shape)
{
    return dr_create_on(weft_world_comm(world), shape);
}

weft_region *dr_create_on(weft_comm *comm, const dr_shape *shape)
{
    uint64_t dims[2] = {shape->rows, shape->width};
    uint64_t given[WT_MAX_RANKS] = {0};
    weft_region *region = NULL;
    weft_region_options options = {
        .size = sizeof(options),
        .reach = shape->reach,
        .partition = shape->partition,
        .part_rows = given,
        .run = shape->run,
        .max_rows = shape->max_rows,
        .row_pitch = shape->gap == 0 ? 0
                                     : (shape->width + shape->gap) *
                                           weft_dtype_size(shape->type)};

    give(shape->rows, weft_comm_size(comm), given);
    WT_OK(weft_region_create(comm, 2, dims, shape->type, &options, &region));
    dr_fill(region);
    WT_OK(weft_region_barrier(region, 0));
    return region;
}

char *dr_own_row(weft_region *region, uint64_t row)
{
    weft_region_info info;
    uint64_t before = 0;
    uint64_t local;
    uint32_t owner;

    weft_region_describe(region, &info);
    WT_OK(weft_region_locate(region, row, &owner, &local));
    if (owner != info.rank) {
        return NULL;
    }
    for (uint32_t i = 0; i < weft_region_parts(region, owner); i++) {
        weft_region_part part;

        WT_OK(weft_region_part_of(region, owner, i, &part));
        if (local < before + part.rows) {
            return (char *)part.at + (local - before) * info.row_pitch;
        }
        before += part.rows;
    }
    WT_FAIL("row %llu is in no part", (unsigned long long)row);
}

void dr_fill(weft_region *region)
{
    weft_region_info info;

    weft_region_describe(region, &info);
    for (uint64_t row = 0; row < info.shape[0]; row++) {
        char *at = dr_own_row(region, row);

        for (uint64_t c = 0; at != NULL && c < info.shape[1]; c++) {
            dr_set(at + c * weft_dtype_size(info.type), info.type,
                   dr_value(row, c));
        }
    }
}

weft_table dr_table(weft_region *region)
{
    weft_region_info info;

    weft_region_describe(region, &info);
    return (weft_table){
        .region = region, .width = info.shape[1], .type = info.type};
}

void dr_check_gather(weft_region *region, const int64_t *ids, uint64_t n)
{
    weft_table table = dr_table(region);
    size_t size = weft_dtype_size(table.type);
    char *out = calloc(n * table.width + 1, size);

    WT_CHECK(out != NULL);
    WT_OK(weft_rows_gather(&table,
                           &(weft_ids){.at = ids, .type = WEFT_I64, .n = n},
                           &(weft_rows){.at = out, .type = table.type}, NULL));
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t c = 0; c < table.width; c++) {
            int want = ids[i] < 0
                           ? 0
                           : dr_as(table.type, dr_value((uint64_t)ids[i], c));
            int got = dr_get(out + (i * table.width + c) * size, table.type);

            if (got != want) {
                WT_FAIL("%s: position %llu, row %lld, column %llu is %d and "
                        "not %d",
                        weft_dtype_name(table.type), (unsigned long long)i,
                        (long long)ids[i], (unsigned long long)c, got, want);
            }
        }
    }
    free(out);
}

void dr_check_all(weft_region *region)
{
    weft_region_info info;
    int64_t *ids;

    weft_region_describe(region, &info);
    ids = malloc((info.shape[0] + 1) * sizeof(*ids));
    WT_CHECK(ids != NULL);
    for (uint64_t i = 0; i < info.shape[0]; i++) {
        ids[i] = (int64_t)(info.shape[0] - 1 - i);
    }
    dr_check_gather(region, ids, info.shape[0]);
    free(ids);
}
