/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the boards of a job as somebody who takes no part in it. Nothing that
 * lies there is trusted: sizes and numbers are checked before they are used,
 * and texts are cut and escaped. The job goes on meanwhile, so that fields that
 * are read one after the other need not fit together. */
#ifndef WF_COMM_VIEW_H
#define WF_COMM_VIEW_H

#include <weft/view.h>

#include "comm/text.h"
#include "mem/board.h"

/* The boards of a segment, once they are found sound. */
typedef struct wf_boards {
    const char *base;
    uint64_t size; /* of each */
    uint32_t count;
    uint32_t ranks;
    uint32_t shelves; /* the fewest that any of them has */
} wf_boards;

weft_status wf_boards_check(const void *memory, size_t bytes, wf_boards *out);

/* All of it as JSON; `now_ns` is the time, of the monotonic clock. */
void wf_boards_json(const wf_boards *boards, uint64_t now_ns, wf_text *t);

/* --- in view_things.c ------------------------------------------------------
 */

/* ,"regions":[...],"stores":[...] of a shelf; NULL: none. */
void wf_view_things(const wf_shelf *shelf, wf_text *t);
/* A text that may be anything, with its quotes. */
void wf_view_string(wf_text *t, const char *text, size_t room);

#endif
