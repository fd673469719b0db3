/* SPDX-License-Identifier: Apache-2.0 */
/* Included before every file that clang-tidy looks at, save the one that
 * defines these functions. Their bodies are in another file, so the analyzer
 * would think that they may return WEFT_OK, and follow paths that do not
 * exist. */
#ifndef WEFT_ANALYZE_H
#define WEFT_ANALYZE_H

#include "base/status.h"

#define wf_fail(status, ...) (wf_fail(status, __VA_ARGS__), (status))
#define wf_fail_nomem(...) (wf_fail_nomem(__VA_ARGS__), WEFT_ERR_NOMEM)
#define wf_fail_errno(...) (wf_fail_errno(__VA_ARGS__), WEFT_ERR_SYSTEM)

#endif
