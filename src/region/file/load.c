/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a saved region: every rank reads its own rows; the checksums of what
 * they read are put together and compared on rank 0, so that no byte is read
 * twice for it. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "region/file/agree.h"
#include "region/file/io.h"
#include "region/file/move.h"
#include "region/file/sums.h"
#include <weft/coll.h>

typedef struct load {
    weft_region *region;
    weft_comm *comm;
    weft_file_options options;
    wf_file file;
    wf_file_header header;
    wf_file_sums sums;
} load;

/* Can these rows go into this region? */
static weft_status check_fit(const load *l)
{
    const weft_region *r = l->region;
    const wf_file_header *h = &l->header;

    if (wf_file_type(h) != r->type || h->row_bytes != r->row_bytes) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s has rows of %" PRIu64
                       " bytes, type %s, the region of %" PRIu64 ", type %s",
                       l->file.name, h->row_bytes, h->type, r->row_bytes,
                       weft_dtype_name(r->type));
    }
    if (h->shape[0] > r->part.rows) {
        return wf_fail(WEFT_ERR_INVALID,
                       "%s has %" PRIu64 " rows, the region %" PRIu64,
                       l->file.name, h->shape[0], r->part.rows);
    }
    return r->read_only ? wf_fail(WEFT_ERR_DENIED, "the region is read-only")
                        : WEFT_OK;
}

static weft_status open_file(load *l, const char *path)
{
    uint64_t bytes;
    weft_status st = wf_file_open(path, false, &l->file, &bytes);

    if (st == WEFT_OK) {
        st = wf_file_read_header(&l->file, bytes, &l->header);
    }
    if (st == WEFT_OK) {
        st = check_fit(l);
    }
    if (st == WEFT_OK && !l->options.no_verify) {
        st = wf_file_check_clean(path, &l->header);
    }
    if (st == WEFT_OK && l->options.direct) {
        wf_file_go_direct(&l->file, false);
    }
    return st;
}

/* Ranks on several machines may see different files under one name. */
static weft_status check_same(const load *l, const wf_file_header *first)
{
    if (memcmp(first, &l->header, sizeof(*first)) != 0) {
        return wf_fail(WEFT_ERR_MISMATCH,
                       "%s is another file here than on rank 0", l->file.name);
    }
    return WEFT_OK;
}

static weft_status read_piece(void *ctx, uint64_t at, unsigned char *bytes,
                              size_t n)
{
    load *l = ctx;
    weft_status st = wf_file_read(&l->file, l->header.data_at + at, bytes, n);

    if (st == WEFT_OK && !l->options.no_verify) {
        wf_file_sums_add(&l->sums, at, bytes, n);
    }
    return st;
}

static weft_status read_rows(load *l)
{
    wf_file_move move = {.region = l->region,
                         .load = true,
                         .rows = l->header.shape[0],
                         .width = l->header.row_bytes,
                         .block = l->header.block_bytes,
                         .piece = read_piece,
                         .ctx = l,
                         .options = &l->options};

    return wf_file_move_run(&move);
}

/* Rank 0: are the checksums those of the file? */
static weft_status compare(const load *l, const uint32_t *got)
{
    uint64_t blocks = l->header.blocks;
    uint32_t *want = wf_alloc(blocks * sizeof(*want));
    weft_status st;

    if (want == NULL) {
        return wf_fail_nomem("checksums of %" PRIu64 " blocks", blocks);
    }
    st = wf_file_read_table(&l->file, &l->header, want);
    for (uint64_t i = 0; st == WEFT_OK && i < blocks; i++) {
        if (got[i] != want[i]) {
            st =
                wf_file_bad_block(l->file.name, &l->header, i, got[i], want[i]);
        }
    }
    wf_free(want);
    return st;
}

static weft_status verify(load *l)
{
    const uint32_t *got = NULL;
    weft_status st = wf_file_sums_join(&l->sums, l->comm, &got);

    if (st != WEFT_OK) {
        return st;
    }
    return wf_file_agree(l->comm,
                         l->comm->rank == 0 ? compare(l, got) : WEFT_OK);
}

/* With the file open on all ranks. */
static weft_status load_from(load *l)
{
    wf_file_header first = l->header;
    weft_status st = weft_broadcast(l->comm, &first, sizeof(first), WEFT_U8, 0);

    if (st != WEFT_OK) {
        return st;
    }
    st = check_same(l, &first);
    if (st == WEFT_OK) {
        st = wf_file_sums_init(&l->header, &l->sums);
    }
    if (st == WEFT_OK) {
        st = read_rows(l);
    }
    st = wf_file_agree(l->comm, st);
    if (st == WEFT_OK && !l->options.no_verify) {
        st = verify(l);
    }
    wf_file_sums_fini(&l->sums);
    return st;
}

weft_status weft_region_load(weft_region *region, weft_comm *comm,
                             const char *path, const weft_file_options *options)
{
    load l = {.region = region, .comm = comm, .file = {-1, -1, path}};
    weft_status st = wf_file_begin(region, comm, path, options, &l.options);

    if (st != WEFT_OK) {
        return st;
    }
    st = wf_file_agree(comm, open_file(&l, path));
    if (st == WEFT_OK) {
        st = load_from(&l);
    }
    wf_file_close(&l.file);
    return st;
}
