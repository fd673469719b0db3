/* SPDX-License-Identifier: Apache-2.0 */
/* Logging. Silent when all is well; WEFT_LOG=info shows what was chosen. */
#ifndef WEFT_LOG_H
#define WEFT_LOG_H

#include <weft/api.h>

WEFT_BEGIN_DECLS

typedef enum weft_log_level {
    WEFT_LOG_ERROR = 0, /* it failed */
    WEFT_LOG_WARN = 1,  /* it went on; the default */
    WEFT_LOG_INFO = 2,  /* what was chosen and why */
    WEFT_LOG_DEBUG = 3, /* each object */
    WEFT_LOG_TRACE = 4  /* each message */
} weft_log_level;

typedef void weft_log_sink(weft_log_level level, const char *text, void *ctx);

/**
 * Send log lines to `sink` instead of stderr; NULL restores stderr. The sink
 * may be called from any thread, several at once, and must not call weft.
 */
WEFT_API void weft_log_to(weft_log_sink *sink, void *ctx);

/** Show lines up to `level`. Overrides WEFT_LOG. */
WEFT_API void weft_log_set_level(weft_log_level level);

/**
 * Write a line to the log, if its level is shown: for modules that stand on the
 * library and go on where it failed. Any thread may call it. Does nothing for
 * NULL, or a level that is none.
 */
WEFT_API void weft_log_write(weft_log_level level, const char *text);

WEFT_END_DECLS

#endif
