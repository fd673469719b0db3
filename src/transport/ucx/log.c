/* SPDX-License-Identifier: Apache-2.0 */
/* What UCX logs while it works for us. A connection that cannot be made,
 * because its peer has just died or left, is an error to UCX's TCP, which
 * prints a line. The endpoint's error handler hears of it as well, and the core
 * knows whether anything is wrong; so the line goes to our log, at debug. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <ucs/debug/log_def.h>

#include "base/log.h"
#include "transport/ucx/ucx.h"

/* Others in this process may use UCX, too, and hear what they always did. */
static _Thread_local unsigned ours;

static bool is_of_tcp(const char *file)
{
    const char *slash = strrchr(file, '/');

    return strncmp(slash != NULL ? slash + 1 : file, "tcp_", 4) == 0;
}

static ucs_log_func_rc_t on_log(const char *file, unsigned line,
                                const char *function, ucs_log_level_t level,
                                const ucs_log_component_config_t *component,
                                const char *message, va_list ap)
{
    char text[256];

    (void)component;
    if (ours == 0 || level != UCS_LOG_LEVEL_ERROR || !is_of_tcp(file)) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }
    vsnprintf(text, sizeof(text), message, ap);
    wf_log(WEFT_LOG_DEBUG, "UCX: %s:%u %s: %s", file, line, function, text);
    return UCS_LOG_FUNC_RC_STOP;
}

static void take(void)
{
    ucs_log_push_handler(on_log);
}

/* It stays until the process ends, as does this library. */
void ucx_log_take(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, take);
}

void ucx_log_begin(void)
{
    ours++;
}

void ucx_log_end(void)
{
    ours--;
}
