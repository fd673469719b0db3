/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of the bootstrap tables. Each table is a struct that begins with
 * a wf_boot; the caller holds a pointer to its first member. */
#ifndef WF_BOOT_BOOT_H
#define WF_BOOT_BOOT_H

#include <stdbool.h>
#include <weft/boot.h>

#include "base/status.h"

/* Longest key, without the terminating zero. */
#define WF_BOOT_KEY_MAX 127u

/* A job of more ranks than this is refused. */
#define WF_BOOT_RANKS_MAX (1u << 20)

typedef struct wf_boot {
    weft_boot api; /* first, so that a weft_boot of ours is also a wf_boot */
    void (*close)(struct wf_boot *boot); /* ends and frees all of it */
} wf_boot;

/* WEFT_ERR_INVALID unless rank < ranks, ranks is within its limits and `out` is
 * not NULL. */
weft_status wf_boot_check_rank(uint32_t rank, uint32_t ranks, weft_boot **out);

/* Are these 1 to WF_BOOT_KEY_MAX printable characters? */
bool wf_boot_is_key(const char *text, size_t n);

/* The rank that sets `key`, for tables where one has to know whom to ask: the
 * number behind its last slash, up to a dot (weft/rank/7, weft/rank/7.1), or 0
 * where there is none. */
uint32_t wf_boot_key_owner(const char *key);

/* WEFT_ERR_INVALID if an argument of set() or of get() is not valid. */
WF_API weft_status wf_boot_check_entry(const char *key, const void *value,
                                       size_t n);
WF_API weft_status wf_boot_check_room(const char *key, const void *value,
                                      const size_t *n);

/* WEFT_ERR_TRUNCATED: the value has `have` bytes, more than `room`. */
weft_status wf_boot_fail_room(const char *key, size_t have, size_t room);

/* The last step of get(): copy `have` bytes to the caller's buffer of `*n`
 * bytes, or fail with wf_boot_fail_room. */
weft_status wf_boot_copy_out(const char *key, const void *from, size_t have,
                             void *value, size_t *n);

/* A table for a job of one rank, in private memory. */
weft_status wf_boot_open_alone(weft_boot **out);

#endif
