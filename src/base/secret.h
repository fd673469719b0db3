/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers from the kernel, and a keyed hash (SipHash-2-4, 64 bits) with
 * which two ranks prove to each other that they know the job's secret. */
#ifndef WF_BASE_SECRET_H
#define WF_BASE_SECRET_H

#include <weft/status.h>

#include "base/export.h"

typedef struct wf_secret {
    uint64_t k[2];
} wf_secret;

WF_API weft_status wf_random(void *out, size_t n);
WF_API uint64_t wf_keyed_hash(const wf_secret *key, const void *data, size_t n);

#endif
