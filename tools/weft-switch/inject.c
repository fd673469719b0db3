/* SPDX-License-Identifier: Apache-2.0 */
#include "inject.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_word(const char *word, sw_inject_options *out)
{
    const char *value = strchr(word, '=');
    char *end;
    double x;

    if (value == NULL) {
        return false;
    }
    x = strtod(value + 1, &end);
    if (end == value + 1 || *end != 0 || !(x >= 0)) {
        return false;
    }
    if (strncmp(word, "seed=", 5) == 0) {
        out->seed = (uint64_t)x;
        return true;
    }
    if (x > 0.9) {
        return false;
    }
    if (strncmp(word, "loss=", 5) == 0) {
        out->loss = x;
    } else if (strncmp(word, "repeat=", 7) == 0) {
        out->repeat = x;
    } else if (strncmp(word, "reorder=", 8) == 0) {
        out->reorder = x;
    } else {
        return false;
    }
    return true;
}

bool sw_inject_parse(const char *text, sw_inject_options *out)
{
    char words[200];
    char *rest = NULL;

    if (strlen(text) >= sizeof(words)) {
        return false;
    }
    (void)snprintf(words, sizeof(words), "%s", text);
    for (char *word = strtok_r(words, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        if (!parse_word(word, out)) {
            return false;
        }
    }
    return out->loss + out->repeat + out->reorder <= 1;
}

static uint32_t of_2_32(double x)
{
    return (uint32_t)(x * 4294967295.0);
}

void sw_inject_init(sw_inject *inject, const sw_inject_options *options,
                    uint32_t shard)
{
    *inject = (sw_inject){.state = (options->seed + 1) * 0x9e3779b97f4a7c15u +
                                   shard * 0xbf58476d1ce4e5b9u,
                          .loss = of_2_32(options->loss),
                          .repeat = of_2_32(options->repeat),
                          .reorder = of_2_32(options->reorder)};
    inject->on =
        inject->loss != 0 || inject->repeat != 0 || inject->reorder != 0;
}

/* SplitMix64. */
static uint32_t next_random(sw_inject *inject)
{
    uint64_t z = inject->state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z >> 32);
}

sw_fate sw_inject_next(sw_inject *inject)
{
    uint32_t x;
    sw_fate fate = SW_PASS;

    if (!inject->on) {
        return SW_PASS;
    }
    x = next_random(inject);
    if (x < inject->loss) {
        fate = SW_LOSE;
    } else if (x - inject->loss < inject->repeat) {
        fate = SW_TWICE;
    } else if (x - inject->loss - inject->repeat < inject->reorder) {
        fate = SW_LATE;
    }
    inject->count[fate]++;
    return fate;
}
