/* SPDX-License-Identifier: Apache-2.0 */
/* The loops over memory, the same for all types and operations, in bytes.
 *
 * A block is folded over all sources in registers before it is stored, so each
 * source is read once, each destination written once, and a destination may be
 * one of the sources. */
#ifndef WF_COLL_KERNEL_FOLD_H
#define WF_COLL_KERNEL_FOLD_H

#include "coll/kernel/lanes.h"

/* Vectors in a block of the operations that have to keep up with memory. */
#define BLOCK_STEPS 4
#define BLOCK_BYTES ((size_t)BLOCK_STEPS * WF_VEC_BYTES)

#define LINE_BYTES 64u
_Static_assert(BLOCK_BYTES >= LINE_BYTES, "a block reaches the next line");

WF_INLINE void fold_block(weft_dtype type, weft_op_kind op, const wf_reducer *r,
                          void *const dst[], size_t ndst,
                          const void *const src[], size_t nsrc, size_t at,
                          int streams)
{
    accumulator acc[BLOCK_STEPS];
    raw out[BLOCK_STEPS];

    for (int i = 0; i < BLOCK_STEPS; i++) {
        const char *from = (const char *)src[0] + at;
        acc[i] = begin(type, op, r, load(from + i * WF_VEC_BYTES));
    }
    for (size_t s = 1; s < nsrc; s++) {
        const char *from = (const char *)src[s] + at;
        for (int i = 0; i < BLOCK_STEPS; i++) {
            raw x = load(from + i * WF_VEC_BYTES);
            acc[i] = add_source(type, op, r, acc[i], x);
        }
    }
    for (int i = 0; i < BLOCK_STEPS; i++) {
        out[i] = finish(type, op, r, acc[i]);
    }
    for (size_t d = 0; d < ndst; d++) {
        char *to = (char *)dst[d] + at;
        for (int i = 0; i < BLOCK_STEPS; i++) {
            if (streams) {
                store_stream(to + i * WF_VEC_BYTES, out[i]);
            } else {
                store(to + i * WF_VEC_BYTES, out[i]);
            }
        }
    }
}

/* Fold all whole blocks; returns how many bytes that is. With two sources, and
 * one or two destinations, their addresses stay in registers. */
WF_INLINE size_t fold_blocks(weft_dtype type, weft_op_kind op,
                             const wf_reducer *r, void *const dst[],
                             size_t ndst, const void *const src[], size_t nsrc,
                             size_t bytes)
{
    size_t end = bytes - bytes % BLOCK_BYTES;

    if (nsrc == 2 && ndst <= 2) {
        const void *const from[2] = {src[0], src[1]};
        void *const to[2] = {dst[0], dst[ndst - 1]};

        for (size_t at = 0; ndst == 1 && at < end; at += BLOCK_BYTES) {
            fold_block(type, op, r, to, 1, from, 2, at, 0);
        }
        for (size_t at = 0; ndst == 2 && at < end; at += BLOCK_BYTES) {
            fold_block(type, op, r, to, 2, from, 2, at, 0);
        }
        return end;
    }
    for (size_t at = 0; at < end; at += BLOCK_BYTES) {
        fold_block(type, op, r, dst, ndst, src, nsrc, at, 0);
    }
    return end;
}

WF_INLINE raw load_some(const void *from, size_t at, size_t size)
{
    const char *first = (const char *)from + at;

    return size == WF_VEC_BYTES ? load(first) : load_part(first, size);
}

WF_INLINE void store_some(void *to, size_t at, raw x, size_t size)
{
    char *first = (char *)to + at;

    if (size == WF_VEC_BYTES) {
        store(first, x);
    } else {
        store_part(first, x, size);
    }
}

/* Fold one vector, or the first `size` bytes of one. */
WF_INLINE void fold_step(weft_dtype type, weft_op_kind op, const wf_reducer *r,
                         void *const dst[], size_t ndst,
                         const void *const src[], size_t nsrc, size_t at,
                         size_t size, int streams)
{
    accumulator acc = begin(type, op, r, load_some(src[0], at, size));
    raw out;

    for (size_t s = 1; s < nsrc; s++) {
        raw x = load_some(src[s], at, size);
        acc = add_source(type, op, r, acc, x);
    }
    out = finish(type, op, r, acc);
    for (size_t d = 0; d < ndst; d++) {
        if (streams) {
            store_stream((char *)dst[d] + at, out);
        } else {
            store_some(dst[d], at, out, size);
        }
    }
}

/* What is worth the code of blocks: gradients are summed or averaged. */
WF_INLINE int is_hot(weft_dtype type, weft_op_kind op)
{
    if (type == WEFT_F16 && !WF_F16_IS_FAST) {
        return 0;
    }
    return op == WEFT_OP_SUM || op == WEFT_OP_PREMUL_SUM ||
           (op == WEFT_OP_AVG && wf_dtype_is(type, WF_FLOAT));
}

/* Fold the bytes before the first whole line of the destination. */
WF_INLINE void fold_head(const wf_reducer *r, void *const dst[],
                         const void *const src[], size_t nsrc, size_t head)
{
    wf_reducer small = *r;

    small.stream = false;
    r->fold(&small, dst, 1, src, nsrc, head / r->elem);
}

/* Fold with streaming stores all whole vectors from `at` on, which is where a
 * line of the destination begins; returns where they end. */
WF_INLINE size_t fold_past_caches(weft_dtype type, weft_op_kind op,
                                  const wf_reducer *r, void *const dst[],
                                  const void *const src[], size_t nsrc,
                                  size_t at, size_t bytes)
{
    size_t step = is_hot(type, op) ? BLOCK_BYTES : WF_VEC_BYTES;

    for (; bytes - at >= step; at += step) {
        if (is_hot(type, op)) {
            fold_block(type, op, r, dst, 1, src, nsrc, at, 1);
        } else {
            fold_step(type, op, r, dst, 1, src, nsrc, at, step, 1);
        }
    }
    stream_end();
    return at;
}

WF_INLINE void fold(weft_dtype type, weft_op_kind op, const wf_reducer *r,
                    void *const dst[], size_t ndst, const void *const src[],
                    size_t nsrc, size_t n)
{
    /* The compiler sees that no store changes a copy of ours. */
    const wf_reducer own = *r;
    size_t bytes = n * own.elem;
    size_t at = 0;

    if (bytes >= BLOCK_BYTES) {
        size_t head = (0 - (uintptr_t)dst[0]) % LINE_BYTES;

        if (own.stream && head % own.elem == 0) {
            fold_head(r, dst, src, nsrc, head);
            at = fold_past_caches(type, op, &own, dst, src, nsrc, head, bytes);
        } else if (is_hot(type, op)) {
            at = fold_blocks(type, op, &own, dst, ndst, src, nsrc, bytes);
        }
    }
    while (at < bytes) {
        size_t left = bytes - at;
        size_t size = left < WF_VEC_BYTES ? left : WF_VEC_BYTES;

        fold_step(type, op, &own, dst, ndst, src, nsrc, at, size, 0);
        at += size;
    }
}

#endif
