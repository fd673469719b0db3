/* SPDX-License-Identifier: Apache-2.0 */
/* Any user can put a name of its choice into the kernel's list of sockets. What
 * is taken for a fallback is the name that was looked for, and a number. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "boot/name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char base[] = "weft-boot-0-0123456789abcdef";
    wf_boot_name name = {.address.sun_family = AF_UNIX};
    wf_boot_name found;
    char *line = malloc(n + 1);

    must(line != NULL);
    memcpy(line, data, n);
    line[n] = '\0';
    memcpy(name.address.sun_path + 1, base, sizeof(base));
    name.n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + sizeof(base));
    if (wf_boot_name_parse(line, &name, &found)) {
        const char *text = found.address.sun_path + 1;

        must(found.address.sun_path[0] == '\0');
        must(found.n == name.n + 33);
        must(strncmp(text, base, sizeof(base) - 1) == 0);
        must(strlen(text) == sizeof(base) - 1 + 33);
    }
    free(line);
    return 0;
}
