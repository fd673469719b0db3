/* SPDX-License-Identifier: Apache-2.0 */
/* Looking at a running job from outside, as `weft top` does.
 *
 * Each rank keeps a descriptor of its host's board, open for reading, which
 * /proc/PID/fd lists as "/memfd:the weft board (deleted)". The kernel lets
 * processes of the same user open it there. The job does not notice: nothing of
 * it runs, is stopped or written to. */
#ifndef WEFT_VIEW_H
#define WEFT_VIEW_H

#include <weft/status.h>

WEFT_BEGIN_DECLS

typedef struct weft_view weft_view;

/**
 * Map the board behind `fd`, which stays the caller's, for reading. It lasts
 * until weft_view_close, also if the job ends.
 *
 * WEFT_ERR_PROTOCOL if it is no board, or one that makes no sense;
 * WEFT_ERR_UNSUPPORTED if it is one of another version of weft.
 */
WEFT_API weft_status weft_view_open(int fd, weft_view **out);
/** Unmap it. Takes NULL. */
WEFT_API void weft_view_close(weft_view *view);

/**
 * What the board shows now, as JSON: the job, and of each rank its state, what
 * it does, whom it waits for, its counters, regions and stores; what each field
 * means is in docs/guide/top.md. Counters count from the beginning. Writes at
 * most `room` bytes, always terminated, and returns the length the whole text
 * has. Callable from any thread.
 */
WEFT_API size_t weft_view_json(const weft_view *view, char *text, size_t room);

WEFT_END_DECLS

#endif
