/* SPDX-License-Identifier: Apache-2.0 */
/* Text that is put together in a caller's buffer, of which the length is
 * counted also where it does not fit. */
#ifndef WF_COMM_TEXT_H
#define WF_COMM_TEXT_H

#include <stdarg.h>
#include <stdio.h>
#include <weft/status.h>

typedef struct wf_text {
    char *at;
    size_t room;
    size_t length; /* of the whole */
} wf_text;

/* Begin: there is a terminated text at any time. */
static inline wf_text wf_text_at(char *at, size_t room)
{
    wf_text t = {at, at != NULL ? room : 0, 0};

    if (t.room > 0) {
        at[0] = '\0';
    }
    return t;
}

static inline void wf_text_add(wf_text *t, const char *fmt, ...)
    WEFT_PRINTF(2, 3);
static inline void wf_text_add(wf_text *t, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(t->length < t->room ? t->at + t->length : NULL,
                  t->length < t->room ? t->room - t->length : 0, fmt, args);
    va_end(args);
    t->length += n > 0 ? (size_t)n : 0;
}

#endif
