/* SPDX-License-Identifier: Apache-2.0 */
/* What every public header needs: linkage, and the attribute of exported
 * functions. */
#ifndef WEFT_API_H
#define WEFT_API_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#define WEFT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define WEFT_API
#define WEFT_PRINTF(fmt, args)
#endif

#define WEFT_VERSION_MAJOR 0
#define WEFT_VERSION_MINOR 1
#define WEFT_VERSION_PATCH 0

#ifdef __cplusplus
#define WEFT_BEGIN_DECLS extern "C" {
#define WEFT_END_DECLS }
#else
#define WEFT_BEGIN_DECLS
#define WEFT_END_DECLS
#endif

WEFT_BEGIN_DECLS

/** The library's version, as "0.1.0"; a static string. */
WEFT_API const char *weft_version(void);

WEFT_END_DECLS

#endif
