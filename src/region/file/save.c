/* SPDX-License-Identifier: Apache-2.0 */
/* Saving: every rank writes its rows into one new file, rank 0 writes what is
 * said about them, and then gives the file its name. Whoever fails, all fail,
 * and the old file is as it was. */
#include "base/crc32c.h"
#include "base/status.h"
#include "region/file/agree.h"
#include "region/file/io.h"
#include "region/file/move.h"
#include "region/file/sums.h"
#include "region/file/temp.h"

typedef struct save {
    weft_region *region;
    weft_comm *comm;
    weft_file_options options;
    wf_file_header header;
    wf_temp temp;
    wf_file_sums sums;
} save;

static weft_status lay_out(save *s)
{
    const weft_region *r = s->region;
    uint64_t shape[WEFT_REGION_DIMS_MAX];
    wf_file_shape what = {.dims = r->dims,
                          .shape = shape,
                          .type = r->type,
                          .partition = r->part.kind,
                          .run = r->part.run,
                          .parts = r->ranks};

    for (uint32_t d = 0; d < r->dims; d++) {
        shape[d] = r->shape[d];
    }
    shape[0] = r->part.rows;
    return wf_file_layout(&what, &s->header);
}

static weft_status write_piece(void *ctx, uint64_t at, unsigned char *bytes,
                               size_t n)
{
    save *s = ctx;

    wf_file_sums_add(&s->sums, at, bytes, n);
    return wf_file_write(&s->temp.file, s->header.data_at + at, bytes, n);
}

/* Every rank: its rows. */
static weft_status write_rows(save *s)
{
    wf_file_move move = {.region = s->region,
                         .rows = s->header.shape[0],
                         .width = s->header.row_bytes,
                         .block = s->header.block_bytes,
                         .piece = write_piece,
                         .ctx = s,
                         .options = &s->options};
    weft_status st;

    if (s->options.direct) {
        wf_file_go_direct(&s->temp.file, true);
    }
    st = wf_file_move_run(&move);
    return st == WEFT_OK ? wf_file_flush(&s->temp.file) : st;
}

/* Rank 0: everything else, and the name. */
static weft_status finish(save *s, const uint32_t *table)
{
    const wf_file *file = &s->temp.file;
    size_t bytes = (size_t)s->header.blocks * sizeof(*table);
    weft_status st = wf_file_write_parts(file, &s->header, &s->region->part);

    if (st == WEFT_OK) {
        s->header.table_crc = wf_crc32c(0, table, bytes);
        st = wf_file_write(file, s->header.table_at, table, bytes);
    }
    if (st == WEFT_OK) {
        st = wf_file_write_header(file, &s->header);
    }
    return st == WEFT_OK ? wf_temp_publish(&s->temp) : st;
}

/* With the file open on all ranks. */
static weft_status save_into(save *s)
{
    const uint32_t *table = NULL;
    weft_status st = wf_file_sums_init(&s->header, &s->sums);

    if (st == WEFT_OK) {
        st = write_rows(s);
    }
    st = wf_file_agree(s->comm, st);
    if (st == WEFT_OK) {
        st = wf_file_sums_join(&s->sums, s->comm, &table);
    }
    if (st == WEFT_OK) {
        st = wf_file_agree(s->comm,
                           s->comm->rank == 0 ? finish(s, table) : WEFT_OK);
    }
    wf_file_sums_fini(&s->sums);
    return st;
}

weft_status weft_region_save(weft_region *region, weft_comm *comm,
                             const char *path, const weft_file_options *options)
{
    save s = {.region = region, .comm = comm, .temp.file = {-1, -1, path}};
    weft_status st = wf_file_begin(region, comm, path, options, &s.options);

    if (st != WEFT_OK) {
        return st;
    }
    st = lay_out(&s);
    if (st == WEFT_OK && comm->rank == 0) {
        st = wf_temp_create(path, wf_file_bytes(&s.header), !comm->one_node,
                            &s.temp);
    }
    st = wf_temp_share(comm, path, st, &s.temp);
    if (st == WEFT_OK) {
        st = save_into(&s);
    }
    wf_temp_close(&s.temp);
    return st;
}
