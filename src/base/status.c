/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char detail[WF_DETAIL_MAX];

const char *weft_version(void)
{
#define STR(x) #x
#define XSTR(x) STR(x)
    return XSTR(WEFT_VERSION_MAJOR) "." XSTR(WEFT_VERSION_MINOR) "." XSTR(
        WEFT_VERSION_PATCH);
#undef XSTR
#undef STR
}

const char *weft_status_text(weft_status status)
{
    switch (status) {
#define TEXT(name, number, text)                                               \
    case WEFT_##name:                                                          \
        return text;
        WEFT_STATUS_TABLE(TEXT)
#undef TEXT
    }
    return "unknown status";
}

const char *weft_status_name(weft_status status)
{
    switch (status) {
#define NAME(name, number, text)                                               \
    case WEFT_##name:                                                          \
        return "WEFT_" #name;
        WEFT_STATUS_TABLE(NAME)
#undef NAME
    }
    return "WEFT_UNKNOWN";
}

weft_status wf_status_parse(int32_t number)
{
    switch (number) {
#define KNOWN(name, number, text) case (number):
        WEFT_STATUS_TABLE(KNOWN)
#undef KNOWN
        return (weft_status)number;
    default:
        return WEFT_ERR_PROTOCOL;
    }
}

const char *weft_error_detail(void)
{
    return detail;
}

weft_status wf_fail(weft_status status, const char *fmt, ...)
{
    /* The arguments may point into the old detail, hence the copy. */
    char text[WF_DETAIL_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    memcpy(detail, text, sizeof(detail));
    return status;
}

weft_status wf_fail_nomem(const char *fmt, ...)
{
    char what[WF_DETAIL_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    return wf_fail(WEFT_ERR_NOMEM, "no memory for %s", what);
}

wf_failure wf_failure_of(weft_status status)
{
    wf_failure failure = {.status = status};

    memcpy(failure.text, detail, sizeof(detail));
    return failure;
}

void wf_failure_note(wf_failure *first, weft_status status)
{
    if (status != WEFT_OK && first->status == WEFT_OK) {
        *first = wf_failure_of(status);
    }
}

weft_status wf_failure_again(const wf_failure *failure)
{
    return wf_fail(failure->status, "%s", failure->text);
}

static weft_status status_of_errno(int err)
{
    switch (err) {
    case ENOMEM:
        return WEFT_ERR_NOMEM;
    case EPERM:
    case EACCES:
        return WEFT_ERR_DENIED;
    case ETIMEDOUT:
        return WEFT_ERR_TIMEOUT;
    default:
        return WEFT_ERR_SYSTEM;
    }
}

weft_status wf_fail_errno(const char *fmt, ...)
{
    int err = errno;
    char text[WF_DETAIL_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (err == EMFILE || err == ENFILE) {
        return wf_fail(WEFT_ERR_SYSTEM, "%s: %s (raise the limit: ulimit -n)",
                       text, strerror(err));
    }
    return wf_fail(status_of_errno(err), "%s: %s", text, strerror(err));
}

void wf_add_word(char *list, size_t room, const char *word)
{
    size_t used = strlen(list);

    snprintf(list + used, room - used, "%s%s", used > 0 ? ", " : "", word);
}
