/* SPDX-License-Identifier: Apache-2.0 */
/* Counting ids that are negative, past the end, or of the caller's own part.
 * Plain loops without a branch, which compilers turn into vectors. */
#ifndef WF_REGION_ROWS_KERNEL_SURVEY_H
#define WF_REGION_ROWS_KERNEL_SURVEY_H

#include "region/rows/kernel/rows.h"

static void survey_i64(const void *ids, size_t n, int64_t rows, int64_t low,
                       int64_t high, wf_survey *out)
{
    const int64_t *id = ids;
    int64_t negative = 0;
    int64_t past = 0;
    int64_t own = 0;

    for (size_t i = 0; i < n; i++) {
        negative += id[i] < 0;
        past += id[i] >= rows;
        own += (id[i] >= low) & (id[i] < high);
    }
    out->negative += (uint64_t)negative;
    out->past += (uint64_t)past;
    out->own += (uint64_t)own;
}

/* Rows may be more than 32-bit numbers can count, so these are compared as
 * wide ones. */
static void survey_i32(const void *ids, size_t n, int64_t rows, int64_t low,
                       int64_t high, wf_survey *out)
{
    const int32_t *id = ids;
    int64_t negative = 0;
    int64_t past = 0;
    int64_t own = 0;

    for (size_t i = 0; i < n; i++) {
        int64_t wide = id[i];

        negative += wide < 0;
        past += wide >= rows;
        own += (wide >= low) & (wide < high);
    }
    out->negative += (uint64_t)negative;
    out->past += (uint64_t)past;
    out->own += (uint64_t)own;
}

#endif
