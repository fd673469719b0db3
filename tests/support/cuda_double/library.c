/* SPDX-License-Identifier: Apache-2.0 */
/* The double as a library that WEFT_CUDA_DRIVER names, for tests of programs
 * that are not linked with it, such as Python's. The environment says what the
 * machine has: CUDA_DOUBLE=devices[:bytes[:granule]]; processes with the same
 * text share its devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/settings.h"
#include "cuda_double/double.h"

/* Any number that differs for different texts, mostly. */
static uint32_t tag_of(const char *text)
{
    uint32_t tag = 2166136261u;

    for (; *text != '\0'; text++) {
        tag = (tag ^ (unsigned char)*text) * 16777619u;
    }
    return tag;
}

/* Take the number that `*at` begins with, and the ':' behind it. An empty text
 * leaves `*out` as it is. */
static bool take_number(const char **at, uint64_t *out)
{
    size_t n = strcspn(*at, ":");
    char word[32];

    if (**at == '\0') {
        return true;
    }
    if (n == 0 || n >= sizeof(word)) {
        return false;
    }
    memcpy(word, *at, n);
    word[n] = '\0';
    *at += n + ((*at)[n] == ':');
    return wf_parse_bytes(word, out) == WEFT_OK;
}

static bool options_read(const char *text, wf_double_options *out)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t devices = 1;

    memset(out, 0, sizeof(*out));
    out->tag = tag_of(text);
    if (!take_number(&text, &devices) || !take_number(&text, &out->bytes) ||
        !take_number(&text, &out->granule) || *text != '\0') {
        return false;
    }
    out->devices = (int)devices;
    return devices >= 1 && devices <= WF_DOUBLE_DEVICES &&
           out->granule % page == 0;
}

const wf_driver *weft_driver_table(void)
{
    const char *text = getenv("CUDA_DOUBLE");
    wf_double_options options;

    if (!options_read(text != NULL ? text : "", &options)) {
        fprintf(stderr,
                "CUDA_DOUBLE is not devices[:bytes[:granule]] with 1 to %d "
                "devices and a granule of whole pages\n",
                WF_DOUBLE_DEVICES);
        return NULL;
    }
    return wf_double_start(&options);
}
