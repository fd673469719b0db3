/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"

#include <string.h>

#include "base/num.h"
#include "base/status.h"

/* No version of any struct is longer; a size that was never set may be. */
#define BYTES_MAX 4096u

static weft_status check_rest(const unsigned char *at, const char *name,
                              size_t from, size_t size)
{
    for (size_t i = from; i < size; i++) {
        if (at[i] != 0) {
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "%s has a field at byte %zu that this version of "
                           "the library does not know",
                           name, i);
        }
    }
    return WEFT_OK;
}

weft_status wf_options_read(const void *given, const char *name, void *out,
                            size_t bytes)
{
    size_t size = 0;

    memset(out, 0, bytes);
    memcpy(out, &bytes, sizeof(bytes));
    if (given == NULL) {
        return WEFT_OK;
    }
    memcpy(&size, given, sizeof(size));
    if (size < sizeof(size) || size > BYTES_MAX) {
        return wf_fail(
            WEFT_ERR_INVALID,
            "%s.size is %zu; set it to sizeof(%s), which is %zu here", name,
            size, name, bytes);
    }
    memcpy((char *)out + sizeof(size), (const char *)given + sizeof(size),
           wf_least(size, bytes) - sizeof(size));
    return check_rest(given, name, bytes, size);
}
