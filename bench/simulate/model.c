/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct number {
    const char *name;
    size_t at;
    double value;
    const char *help;
} number;

static const number numbers[] = {
#define SIM_MODEL_ROW(name, value, help)                                       \
    {#name, offsetof(sim_model, name), value, help},
    SIM_MODEL_TABLE(SIM_MODEL_ROW)
#undef SIM_MODEL_ROW
};

enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

static double *number_of(sim_model *model, unsigned i)
{
    return (double *)(void *)((char *)model + numbers[i].at);
}

void sim_model_init(sim_model *model)
{
    *model = (sim_model){.ranks = 8, .per_host = 1};
    for (unsigned i = 0; i < NUMBERS; i++) {
        *number_of(model, i) = numbers[i].value;
    }
}

bool sim_model_set(sim_model *model, const char *text)
{
    size_t n = strcspn(text, "=");
    char *end = NULL;
    double value;

    if (text[n] != '=') {
        return false;
    }
    value = strtod(text + n + 1, &end);
    if (end == text + n + 1 || *end != '\0' || !isfinite(value) || value < 0) {
        return false;
    }
    for (unsigned i = 0; i < NUMBERS; i++) {
        if (strlen(numbers[i].name) == n &&
            memcmp(numbers[i].name, text, n) == 0) {
            *number_of(model, i) = value;
            return true;
        }
    }
    return false;
}

/* Without blanks and comment. */
static void strip(char *line)
{
    size_t n = 0;

    line[strcspn(line, "#")] = '\0';
    for (const char *c = line; *c != '\0'; c++) {
        if (strchr(" \t\r\n", *c) == NULL) {
            line[n++] = *c;
        }
    }
    line[n] = '\0';
}

bool sim_model_read(sim_model *model, FILE *file, char *line, size_t room)
{
    while (fgets(line, (int)room, file) != NULL) {
        strip(line);
        if (line[0] != '\0' && !sim_model_set(model, line)) {
            return false;
        }
    }
    return true;
}

void sim_model_help(FILE *out)
{
    for (unsigned i = 0; i < NUMBERS; i++) {
        fprintf(out, "    %-17s %-9g %s\n", numbers[i].name, numbers[i].value,
                numbers[i].help);
    }
}
