/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of settings. An option given in code wins over WEFT_* in the
 * environment, which wins over the default. */
#ifndef WEFT_SETTINGS_H
#define WEFT_SETTINGS_H

#include <weft/status.h>

WEFT_BEGIN_DECLS

typedef struct weft_setting_info {
    const char *name;     /* "WEFT_TIMEOUT" */
    const char *value;    /* as it would be used by a world made now */
    const char *source;   /* "default" or "environment" */
    const char *fallback; /* the default value */
    const char *help;
} weft_setting_info;

/**
 * The setting number `index`, counted from 0, as the environment has it now.
 * Returns WEFT_ERR_INVALID past the last one. The strings are valid until the
 * next call on this thread.
 */
WEFT_API weft_status weft_setting_get(size_t index, weft_setting_info *out);

WEFT_END_DECLS

#endif
