/* SPDX-License-Identifier: Apache-2.0 */
#include "boot/boot.h"

#include <stdlib.h>
#include <string.h>

weft_status weft_boot_fail(weft_status status, const char *text)
{
    return wf_fail(status, "%s", text != NULL ? text : "");
}

void weft_boot_close(weft_boot *boot)
{
    wf_boot *own = (wf_boot *)boot;
    /* A failure often comes before it, and its text shall stay. */
    wf_failure before = wf_failure_of(WEFT_OK);

    if (own != NULL) {
        own->close(own);
        wf_failure_again(&before);
    }
}

weft_status wf_boot_check_rank(uint32_t rank, uint32_t ranks, weft_boot **out)
{
    if (out == NULL) {
        return wf_fail(WEFT_ERR_INVALID, "out is NULL");
    }
    if (ranks == 0 || ranks > WF_BOOT_RANKS_MAX) {
        return wf_fail(WEFT_ERR_INVALID, "ranks is %u; it must be 1 to %u",
                       ranks, WF_BOOT_RANKS_MAX);
    }
    if (rank >= ranks) {
        return wf_fail(WEFT_ERR_INVALID, "rank %u is out of range (size %u)",
                       rank, ranks);
    }
    return WEFT_OK;
}

bool wf_boot_is_key(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] < 0x20 || text[i] > 0x7e) {
            return false;
        }
    }
    return n > 0 && n <= WF_BOOT_KEY_MAX;
}

static weft_status boot_check_key(const char *key)
{
    if (key == NULL || !wf_boot_is_key(key, strlen(key))) {
        return wf_fail(WEFT_ERR_INVALID,
                       "a boot key must have 1 to %u printable characters",
                       WF_BOOT_KEY_MAX);
    }
    return WEFT_OK;
}

uint32_t wf_boot_key_owner(const char *key)
{
    const char *slash = strrchr(key, '/');
    const char *number = slash != NULL ? slash + 1 : "";
    char *end;
    unsigned long v = strtoul(number, &end, 10);

    return number[0] >= '0' && number[0] <= '9' &&
                   (*end == '\0' || *end == '.') && v < UINT32_MAX
               ? (uint32_t)v
               : 0;
}

weft_status wf_boot_check_entry(const char *key, const void *value, size_t n)
{
    weft_status st = boot_check_key(key);

    if (st != WEFT_OK) {
        return st;
    }
    if (value == NULL && n > 0) {
        return wf_fail(WEFT_ERR_INVALID, "the value of boot key '%s' is NULL",
                       key);
    }
    if (n > WEFT_BOOT_VALUE_MAX) {
        return wf_fail(WEFT_ERR_INVALID,
                       "the value of boot key '%s' has %zu bytes; the limit is "
                       "%u",
                       key, n, WEFT_BOOT_VALUE_MAX);
    }
    return WEFT_OK;
}

weft_status wf_boot_check_room(const char *key, const void *value,
                               const size_t *n)
{
    weft_status st = boot_check_key(key);

    if (st == WEFT_OK && (n == NULL || (value == NULL && *n > 0))) {
        st = wf_fail(WEFT_ERR_INVALID, "the buffer for boot key '%s' is NULL",
                     key);
    }
    return st;
}

weft_status wf_boot_fail_room(const char *key, size_t have, size_t room)
{
    return wf_fail(WEFT_ERR_TRUNCATED,
                   "the value of boot key '%s' has %zu bytes, the buffer has "
                   "%zu",
                   key, have, room);
}

weft_status wf_boot_copy_out(const char *key, const void *from, size_t have,
                             void *value, size_t *n)
{
    if (have > *n) {
        return wf_boot_fail_room(key, have, *n);
    }
    if (have > 0) {
        memcpy(value, from, have);
    }
    *n = have;
    return WEFT_OK;
}
