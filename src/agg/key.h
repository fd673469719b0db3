/* SPDX-License-Identifier: Apache-2.0 */
/* The key that a switch and its jobs share, in a file that only its owner can
 * read: one line, "weft-switch-key 1" and 32 hexadecimal digits. */
#ifndef WF_AGG_KEY_H
#define WF_AGG_KEY_H

#include <weft/status.h>

#include "base/secret.h"

/* Write a new random key to `path`, which must not exist; mode 600. */
weft_status wf_agg_key_create(const char *path);

/* WEFT_ERR_INVALID if others than the owner may read it, or if it is no key. */
weft_status wf_agg_key_read(const char *path, wf_secret *out);

#endif
