/* SPDX-License-Identifier: Apache-2.0 */
/* A buffer with guard bytes on both sides, at any offset from alignment. */
#ifndef WT_BUFFER_H
#define WT_BUFFER_H

#include <stddef.h>

typedef struct wt_buffer {
    char *base;
    char *data; /* what the test uses */
    size_t bytes;
} wt_buffer;

/* `offset` bytes past a 64-byte boundary. Ends the rank if there is no
 * memory. */
void wt_buffer_init(wt_buffer *b, size_t bytes, size_t offset);
void wt_buffer_fini(wt_buffer *b);

/* End the rank if somebody wrote past either end. */
void wt_buffer_check(const wt_buffer *b);

#endif
