/* SPDX-License-Identifier: Apache-2.0 */
/* Copies whose result is too large for the caches. */
#ifndef WF_BASE_STREAM_H
#define WF_BASE_STREAM_H

#include <stddef.h>

/* Chosen by measurement, for messages and collectives alike: with results of
 * this size or more it pays to leave the destination out of the caches
 * (docs/design/0003-messages.md, 0004-shared-memory.md). */
#define WF_STREAM_FROM_BYTES ((size_t)16 << 20)

/* memcpy with non-temporal stores, which are done when it returns: a store
 * that publishes the copy may follow. */
void wf_copy_stream(void *to, const void *from, size_t bytes);

#endif
