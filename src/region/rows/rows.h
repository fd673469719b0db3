/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations inside the library.
 *
 *   rows.c         the public calls: who does the work
 *   check.c   arguments
 *   run.c     ids to addresses, blocks, threads
 *   kernel/        copying, converting and adding rows
 *   pool.c         the threads
 */
#ifndef WF_REGION_ROWS_ROWS_H
#define WF_REGION_ROWS_ROWS_H

#include <stdbool.h>
#include <weft/rows.h>

typedef enum wf_rows_op {
    WF_ROWS_GATHER,
    WF_ROWS_SCATTER,
    WF_ROWS_ADD
} wf_rows_op;

/* A call whose arguments have been checked, with all defaults filled in. */
typedef struct wf_rows_call {
    wf_rows_op op;
    weft_table table; /* of a region: `rows` and `pitch` are the region's, and
                         `at` its base here, which may be NULL */
    weft_ids ids;
    weft_rows rows; /* pitch is never 0, unless a row has no bytes */
    weft_rows_options options;
    uint64_t limit;      /* ids from here on are past the end */
    uint64_t far_bytes;  /* of a row in the table */
    uint64_t near_bytes; /* of a row in `rows` */
} wf_rows_call;

/* Check the arguments and fill in the call. `options` may be NULL. */
weft_status wf_rows_check(wf_rows_op op, const weft_table *table,
                          const weft_ids *ids, const weft_rows *rows,
                          const weft_rows_options *options, wf_rows_call *out);

static inline int64_t wf_id_at(const weft_ids *ids, uint64_t i)
{
    return ids->type == WEFT_I64 ? ((const int64_t *)ids->at)[i]
                                 : ((const int32_t *)ids->at)[i];
}

/* Check all ids before anything is written, as the bounds ask, and count the
 * rows for the statistics of a region. Host ids. `*left_out`, if options.clear:
 * are there any whose rows are not moved? */
weft_status wf_rows_survey(const wf_rows_call *call, bool *left_out);

/* Move the rows, all of which are mapped here, in host memory. Ids past the end
 * are skipped, unless the bounds are UNCHECKED. */
void wf_rows_run(const wf_rows_call *call);

/* Threads that a call may use. */
uint32_t wf_rows_threads(const wf_rows_call *call);

/* Rows of a region whose parts are not all mapped here; not surveyed yet. In
 * remote/remote.c. */
weft_status wf_rows_remote(const wf_rows_call *call);

#endif
