/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t installed = PTHREAD_ONCE_INIT;
static weft_log_sink *sink;
static void *sink_ctx;
static atomic_int shown = WEFT_LOG_WARN;
static atomic_bool set_by_program;

static void lock(void)
{
    pthread_mutex_lock(&sink_lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&sink_lock);
}

/* A child must not find it locked by a thread that it does not have. */
static void install(void)
{
    pthread_atfork(lock, unlock, unlock);
}

void weft_log_to(weft_log_sink *to, void *ctx)
{
    pthread_once(&installed, install);
    lock();
    sink = to;
    sink_ctx = ctx;
    unlock();
}

void weft_log_set_level(weft_log_level level)
{
    atomic_store(&set_by_program, true);
    atomic_store(&shown, (int)level);
}

void wf_log_default_level(weft_log_level level)
{
    if (!atomic_load(&set_by_program)) {
        atomic_store(&shown, (int)level);
    }
}

bool wf_log_on(weft_log_level level)
{
    return (int)level <= atomic_load_explicit(&shown, memory_order_relaxed);
}

void wf_log(weft_log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug",
                                        "trace"};
    char text[1024];
    weft_log_sink *to;
    void *ctx;
    va_list args;

    if (!wf_log_on(level)) {
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    pthread_once(&installed, install);
    lock();
    to = sink;
    ctx = sink_ctx;
    unlock();
    if (to != NULL) {
        to(level, text, ctx);
    } else {
        /* One write per line, so that lines of several ranks do not mix. */
        dprintf(STDERR_FILENO, "weft[%d] %s: %s\n", (int)getpid(), names[level],
                text);
    }
}

void weft_log_write(weft_log_level level, const char *text)
{
    if (text != NULL && (unsigned)level <= WEFT_LOG_TRACE) {
        wf_log(level, "%s", text);
    }
}
