/* SPDX-License-Identifier: Apache-2.0 */
/* The log: the only global state of the library. */
#ifndef WF_BASE_LOG_H
#define WF_BASE_LOG_H

#include <stdbool.h>
#include <weft/log.h>

#include "base/export.h"

/* Is this level shown? For work that only a log line needs. */
bool wf_log_on(weft_log_level level);

WF_API void wf_log(weft_log_level level, const char *fmt, ...)
    WEFT_PRINTF(2, 3);

/* The level that WEFT_LOG asks for, unless the program set one. */
void wf_log_default_level(weft_log_level level);

#endif
