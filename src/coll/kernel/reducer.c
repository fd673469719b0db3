/* SPDX-License-Identifier: Apache-2.0 */
/* Choose a kernel: by the CPU, the type and the operation. */
#include "coll/kernel/reducer.h"

#include "base/cpu.h"
#include "base/status.h"
#include "coll/kernel/table.h"

const wf_kernels *wf_kernels_of(wf_cpu_level level)
{
#if defined(__x86_64__)
    if (level == WF_CPU_AVX512) {
        return &wf_kernels_avx512;
    }
    if (level == WF_CPU_AVX2) {
        return &wf_kernels_avx2;
    }
#endif
    (void)level;
    return &wf_kernels_plain;
}

/* Enumerations can come in with any number, since types and operations reach
 * us from other languages and other processes. */
static weft_status reducer_check(weft_dtype type, weft_op op, uint32_t ranks)
{
    if ((unsigned)type >= WF_DTYPE_COUNT) {
        return wf_fail(WEFT_ERR_INVALID, "unknown dtype %d", (int)type);
    }
    if ((unsigned)op.kind >= WF_OP_COUNT) {
        return wf_fail(WEFT_ERR_INVALID, "unknown operation %d", (int)op.kind);
    }
    if (!weft_op_applies(op.kind, type)) {
        return wf_fail(WEFT_ERR_INVALID, "operation %s is not defined on %s",
                       weft_op_name(op.kind), weft_dtype_name(type));
    }
    if (ranks == 0) {
        return wf_fail(WEFT_ERR_INVALID, "a reduction over 0 ranks");
    }
    return WEFT_OK;
}

weft_status wf_reducer_init(wf_reducer *r, weft_dtype type, weft_op op,
                            uint32_t ranks)
{
    weft_status st = reducer_check(type, op, ranks);

    if (st != WEFT_OK) {
        return st;
    }
    r->fold = wf_kernels_of(wf_cpu_level_used())->fold[type][op.kind];
    r->factor = op.factor;
    r->ranks = ranks;
    r->elem = weft_dtype_size(type);
    r->stream = false;
    return WEFT_OK;
}

const char *wf_reducer_isa(void)
{
    return wf_cpu_level_name(wf_cpu_level_used());
}
