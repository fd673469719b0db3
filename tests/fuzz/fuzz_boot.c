/* SPDX-License-Identifier: Apache-2.0 */
/* The messages by which the ranks of a host find each other come from another
 * process. Whatever it sends, the parser stays within the bytes it was given;
 * what it accepts is exactly what we would have written ourselves; and it can
 * tell from the beginning of a message what it says of the whole. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "boot/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

static void check_written_back(const wf_wire_msg *msg, const uint8_t *data,
                               size_t used)
{
    uint8_t *copy = malloc(used);

    must(copy != NULL);
    must(wf_wire_size(msg) == used);
    wf_wire_write(msg, copy);
    must(memcmp(copy, data, used) == 0);
    free(copy);
}

/* Each part of it, in memory of its own size, so that a read past its end is
 * seen. Long ones are cut in a few places only. */
static void check_parts(const uint8_t *data, size_t used)
{
    size_t step = used / 64 + 1;

    for (size_t part = 0; part < used; part += step) {
        uint8_t *copy = malloc(part > 0 ? part : 1);
        wf_wire_msg msg;
        size_t ignored;

        must(copy != NULL);
        memcpy(copy, data, part);
        must(wf_wire_parse(copy, part, &msg, &ignored) == WF_WIRE_PART);
        free(copy);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    wf_wire_msg msg;
    size_t used = 0;

    while (wf_wire_parse(data, n, &msg, &used) == WF_WIRE_WHOLE) {
        must(used > 0 && used <= n);
        must(strlen(msg.key) <= WF_BOOT_KEY_MAX);
        must(msg.n <= WEFT_BOOT_VALUE_MAX);
        must((const uint8_t *)msg.value + msg.n == data + used);
        check_written_back(&msg, data, used);
        check_parts(data, used);
        data += used;
        n -= used;
    }
    return 0;
}
