/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of types, and which operations are defined on them, as tables that the
 * fast path reads without a function call. */
#ifndef WF_BASE_TYPES_H
#define WF_BASE_TYPES_H

#include <stdbool.h>
#include <weft/types.h>

#define WF_COUNT_ROW(...) +1
enum {
    WF_DTYPE_COUNT = 0 WEFT_DTYPE_TABLE(WF_COUNT_ROW),
    WF_OP_COUNT = 0 WEFT_OP_TABLE(WF_COUNT_ROW),
};
#undef WF_COUNT_ROW

/* wf_op_types has a bit for each type. */
_Static_assert(WF_DTYPE_COUNT <= 16, "types fit into a mask of 16 bits");

extern const uint8_t wf_dtype_bytes_table[WF_DTYPE_COUNT];
/* For each operation, the types it is defined on. */
extern const uint16_t wf_op_types[WF_OP_COUNT];

static inline size_t wf_dtype_bytes(weft_dtype type)
{
    return (unsigned)type < WF_DTYPE_COUNT ? wf_dtype_bytes_table[type] : 0;
}

static inline bool wf_op_applies(weft_op_kind kind, weft_dtype type)
{
    return (unsigned)kind < WF_OP_COUNT && (unsigned)type < WF_DTYPE_COUNT &&
           (wf_op_types[kind] >> type & 1) != 0;
}

#endif
