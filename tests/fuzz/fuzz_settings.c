/* SPDX-License-Identifier: Apache-2.0 */
/* Settings given in code are text from outside: nothing in it may do more than
 * fail, and what is refused leaves the settings as they were. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "base/status.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

/* Are all bytes of it as they were? */
static bool untouched(const wf_settings *s)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t same = 0;

    while (same < sizeof(*s) && p[same] == 0x5a) {
        same++;
    }
    return same == sizeof(*s);
}

static void try_overrides(const char *text)
{
    wf_settings s;

    memset(&s, 0x5a, sizeof(s));
    if (wf_settings_load(text, &s) != WEFT_OK) {
        must(untouched(&s));
        must(weft_error_detail()[0] != '\0');
        return;
    }
    must(memchr(s.node, '\0', sizeof(s.node)) != NULL);
    must(memchr(s.engine, '\0', sizeof(s.engine)) != NULL);
    must(s.log <= 4 && s.huge <= WF_HUGE_HUGETLB);
}

/* `text` as the value of each setting of the table. */
static void try_values(const char *text)
{
    weft_setting_info info;

    for (size_t i = 0; weft_setting_get(i, &info) == WEFT_OK; i++) {
        const char *name = info.name + strlen("WEFT_");
        size_t room = strlen(name) + strlen(text) + 2;
        char *word = malloc(room);

        must(word != NULL);
        snprintf(word, room, "%s=%s", name, text);
        try_overrides(word);
        free(word);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *text = malloc(n + 1);
    uint64_t v = 0;

    must(text != NULL);
    memcpy(text, data, n);
    text[n] = '\0';
    (void)wf_parse_bytes(text, &v);
    (void)wf_parse_duration(text, &v);
    try_overrides(text);
    try_values(text);
    free(text);
    return 0;
}
