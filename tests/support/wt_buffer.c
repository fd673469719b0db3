/* SPDX-License-Identifier: Apache-2.0 */
#include "wt_buffer.h"

#include <stdlib.h>
#include <string.h>

#include "wt.h"

#define GUARD 64
#define GUARD_BYTE 0xa5

static char *guard_after(const wt_buffer *b)
{
    return b->data + b->bytes;
}

void wt_buffer_init(wt_buffer *b, size_t bytes, size_t offset)
{
    size_t room = GUARD + offset + bytes + GUARD;

    b->base = aligned_alloc(64, (room + 63) / 64 * 64);
    if (b->base == NULL) {
        WT_FAIL("no memory for %zu bytes", bytes);
    }
    b->data = b->base + GUARD + offset;
    b->bytes = bytes;
    memset(b->base, GUARD_BYTE, GUARD + offset);
    memset(guard_after(b), GUARD_BYTE, GUARD);
}

void wt_buffer_fini(wt_buffer *b)
{
    free(b->base);
    b->base = NULL;
}

static void guard_check(const char *guard, size_t n, const char *where)
{
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)guard[i] != GUARD_BYTE) {
            WT_FAIL("a byte %s the buffer was written", where);
        }
    }
}

void wt_buffer_check(const wt_buffer *b)
{
    guard_check(b->base, (size_t)(b->data - b->base), "before");
    guard_check(guard_after(b), GUARD, "after");
}
