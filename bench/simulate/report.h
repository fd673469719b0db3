/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SIM_REPORT_H
#define SIM_REPORT_H

#include "replay.h"

/* What was asked for, in words. */
typedef struct sim_title {
    const char *what;
    const char *op; /* "": none */
    uint64_t bytes;
} sim_title;

void sim_report_table(const sim_model *model, const sim_title *title,
                      const sim_result *result, FILE *out);
/* One line. */
void sim_report_json(const sim_model *model, const sim_title *title,
                     const sim_result *result, FILE *out);

#endif
