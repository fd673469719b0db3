/* SPDX-License-Identifier: Apache-2.0 */
/* Row operations on GPUs: from the calls of rows/rows.h and rows/update.h to
 * those of libweft_cuda.so (abi.h). That library is opened when the first call
 * comes, from the folder that libweft is in or as WEFT_CUDA_LIBRARY says, and
 * then stays. */
#ifndef WF_REGION_CUDA_ROWS_H
#define WF_REGION_CUDA_ROWS_H

#include <weft/update.h>

/* Arguments of these have been found good as rows/rows.h says, defaults filled
 * in. WEFT_ERR_UNSUPPORTED says what to install if there are no kernels. */
weft_status wf_cuda_gather(const weft_table *table, const weft_ids *ids,
                           const weft_rows *out,
                           const weft_rows_options *options);
weft_status wf_cuda_scatter(const weft_table *table, const weft_ids *ids,
                            const weft_rows *from,
                            const weft_rows_options *options);
weft_status wf_cuda_scatter_add(const weft_table *table, const weft_ids *ids,
                                const weft_rows *from,
                                const weft_rows_options *options);
weft_status wf_cuda_rows_check(void *stream);

/* `state` has WEFT_UPDATE_STATES entries, NULL where there is none. */
weft_status wf_cuda_update(const weft_table *weights,
                           const weft_table *const *state, const weft_ids *ids,
                           const weft_rows *grads, const weft_update *update,
                           const weft_rows_options *options);
weft_status wf_cuda_unique(const weft_ids *ids, const weft_rows *grads,
                           uint64_t width, uint64_t rows, void *out_ids,
                           const weft_rows *out_grads, uint64_t *out_count,
                           const weft_rows_options *options);

#endif
