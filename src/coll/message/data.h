/* SPDX-License-Identifier: Apache-2.0 */
/* Where the pieces of a plan lie in memory: in the caller's buffers and in
 * scratch; and what happens to data before and after the messages. */
#ifndef WF_COLL_MESSAGE_DATA_H
#define WF_COLL_MESSAGE_DATA_H

#include "coll/engine.h"
#include "coll/message/plan.h"

/* Steps under way at once. Enough for one chunk to come, one to be folded and
 * one to leave, in both trees. */
#define WF_FLIGHTS 8

typedef struct wf_data wf_data;

/* The chunk that a step is about, of a piece that is a run. */
typedef wf_block wf_data_fn(const wf_data *data, const wf_coll_op *op,
                            const wf_step *step, wf_piece piece);

struct wf_data {
    wf_data_fn *at;
    const void *ctx; /* of `at` */
    const wf_plan *plan;
    size_t elem;        /* bytes */
    size_t chunk_bytes; /* of the largest chunk of any piece */
    bool src_blocks;    /* this rank's source has a block for each rank */
    bool dst_blocks;
    wf_reducer partial; /* folds two partial results */

    /* A factor was applied to the source first: the copy. Its blocks lie one
     * behind the other. NULL: the source is as it came. */
    unsigned char *scaled;

    /* Scratch; offsets until wf_data_place_scratch makes them addresses. */
    unsigned char *base;
    size_t scaled_at;
    size_t work_at;
    size_t slots_at;
    size_t landing_at;
    size_t landing_bytes; /* of one landing */
    size_t packed_at;
    size_t scratch_bytes; /* of all */
};

/* Bytes that all ranks know: of the buffer, or of a block, on average. */
uint64_t wf_data_bytes(const wf_coll_op *op);

/* How many pieces a double tree cuts each half into. */
uint32_t wf_data_pieces(const wf_coll_op *op);

/* Cut the plan into chunks and see how much scratch this rank needs. */
void wf_data_init(wf_data *data, const wf_coll_op *op, wf_plan *plan);

/* Give it `scratch_bytes` of scratch. */
void wf_data_place_scratch(wf_data *data, void *scratch);

/* Copy and scale what does not travel. */
void wf_data_prepare(wf_data *data, wf_coll_op *op);
void wf_data_finish(wf_data *data, wf_coll_op *op);

/* The result of one contribution alone: a logical operation makes it 0 or 1. */
void wf_data_fold_one(const wf_reducer *reducer, void *dst, const void *src,
                      size_t bytes);

/* What folds partial results of a call: an average is divided in the end, and
 * factors were applied before. */
wf_reducer wf_data_partial(const wf_call *call);

/* Blocks of a piece that is not a run, to or from one place. */
size_t wf_data_packed_bytes(const wf_data *data, const wf_coll_op *op,
                            wf_piece piece);
void wf_data_pack(const wf_data *data, const wf_coll_op *op, wf_piece piece,
                  unsigned char *packed);
void wf_data_unpack(const wf_data *data, const wf_coll_op *op, wf_piece piece,
                    const unsigned char *packed);

/* Where flight number `flight` lands what it does not store. */
static inline unsigned char *wf_data_landing(const wf_data *data,
                                             unsigned flight)
{
    return data->base + data->landing_at + flight * data->landing_bytes;
}

#endif
