/* SPDX-License-Identifier: Apache-2.0 */
/* Recording why something failed. Whoever first knows the cause records it;
 * callers above pass the status on and add nothing. */
#ifndef WF_BASE_STATUS_H
#define WF_BASE_STATUS_H

#include <stdint.h>
#include <weft/status.h>

#include "base/export.h"

#define WF_DETAIL_MAX 1024

/* Record the detail for this thread and return `status`. */
WF_API weft_status wf_fail(weft_status status, const char *fmt, ...)
    WEFT_PRINTF(2, 3);

/* WEFT_ERR_NOMEM, "no memory for ...". */
WF_API weft_status wf_fail_nomem(const char *fmt, ...) WEFT_PRINTF(1, 2);

/* Like wf_fail, but takes the status from errno and appends its text. */
WF_API weft_status wf_fail_errno(const char *fmt, ...) WEFT_PRINTF(1, 2);

/* A failure that is kept while other calls may leave another detail. */
typedef struct wf_failure {
    weft_status status;
    char text[WF_DETAIL_MAX];
} wf_failure;

/* `status` with the detail of this thread. */
wf_failure wf_failure_of(weft_status status);
/* Keep the first failure of several: `first` begins as zero. */
void wf_failure_note(wf_failure *first, weft_status status);
/* Record the detail again and return the status. */
weft_status wf_failure_again(const wf_failure *failure);

/* The status that another process sent as this number: WEFT_OK or a failure;
 * what is neither is WEFT_ERR_PROTOCOL. */
weft_status wf_status_parse(int32_t number);

/* Put a word at the end of a list: "auto, shm". */
void wf_add_word(char *list, size_t room, const char *word);

#endif
