/* SPDX-License-Identifier: Apache-2.0 */
/* The boards of a job are another process's memory: whatever lies there, the
 * reader looks at nothing behind it, and what it says ends where it says. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/view.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { ROOM = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    /* Of exactly this length, and where a mapping could begin. */
    char *whole = malloc(n + 64);
    char *memory = whole + 64 - (uintptr_t)whole % 64;
    char *text = malloc(ROOM);
    wf_boards boards;

    if (whole == NULL || text == NULL) {
        abort();
    }
    if (n > 0) {
        memcpy(memory, data, n);
    }
    if (wf_boards_check(memory, n, &boards) == WEFT_OK &&
        boards.ranks <= 1024) {
        wf_text t = wf_text_at(text, ROOM);

        wf_boards_json(&boards, 1, &t);
        if (strlen(text) != (t.length < ROOM ? t.length : ROOM - 1)) {
            abort();
        }
    }
    free(text);
    free(whole);
    return 0;
}
