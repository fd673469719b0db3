/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include "control.h"

typedef struct row {
    const char *name;
    const char *key;
    const sim_spread *of;
} row;

enum { ROWS = 7 };

static void rows_of(const sim_summary *s, row rows[ROWS])
{
    rows[0] = (row){"messages sent", "messages", &s->messages};
    rows[1] = (row){"bytes sent", "bytes", &s->bytes};
    rows[2] = (row){"to other hosts", "far_bytes", &s->far};
    rows[3] = (row){"bytes received", "received", &s->inflow};
    rows[4] = (row){"memory, bytes", "memory", &s->memory};
    rows[5] = (row){"endpoints", "endpoints", &s->endpoints};
    rows[6] = (row){"time", "seconds", &s->seconds};
}

/* "12.3 us" */
static const char *time_text(double seconds, char *text, size_t room)
{
    if (seconds < 1e-3) {
        snprintf(text, room, "%.1f us", seconds * 1e6);
    } else if (seconds < 1) {
        snprintf(text, room, "%.2f ms", seconds * 1e3);
    } else {
        snprintf(text, room, "%.2f s", seconds);
    }
    return text;
}

static void print_row(const row *r, bool is_time, FILE *out)
{
    const double value[3] = {r->of->least, r->of->mean, r->of->most};
    char text[40];

    fprintf(out, "  %-16s", r->name);
    for (unsigned i = 0; i < 3; i++) {
        if (is_time) {
            time_text(value[i], text, sizeof(text));
        } else {
            snprintf(text, sizeof(text), "%.15g",
                     (double)(uint64_t)(value[i] + 0.5));
        }
        fprintf(out, "%16s", text);
    }
    fprintf(out, "\n");
}

void sim_report_table(const sim_model *model, const sim_title *title,
                      const sim_result *result, FILE *out)
{
    row rows[ROWS];

    rows_of(&result->summary, rows);
    if (title->op[0] != '\0') {
        fprintf(out, "%s of %llu bytes", title->op,
                (unsigned long long)title->bytes);
    } else {
        fprintf(out, "%s", title->what);
    }
    fprintf(out, " by %s among %s: %u ranks on %u hosts\n", result->how,
            result->among, model->ranks, sim_model_hosts(model));
    fprintf(out, "  %-16s%16s%16s%16s\n", "a rank's", "least", "mean", "most");
    for (unsigned i = 0; i < ROWS; i++) {
        print_row(&rows[i], &result->summary.seconds == rows[i].of, out);
    }
    fprintf(out, "  in all %.6g messages, %.6g bytes; a board has %llu bytes\n",
            result->summary.all_messages, result->summary.all_bytes,
            (unsigned long long)sim_board_bytes(model->ranks));
    if (result->part < 1) {
        fprintf(out, "  from the first %.3g %% of all steps, which are alike\n",
                result->part * 100);
    }
    if (result->stuck > 0) {
        fprintf(out, "  %u did not come to an end\n", result->stuck);
    }
}

void sim_report_json(const sim_model *model, const sim_title *title,
                     const sim_result *result, FILE *out)
{
    row rows[ROWS];

    rows_of(&result->summary, rows);
    fprintf(
        out,
        "{\"what\": \"%s\", \"op\": \"%s\", \"bytes\": %llu, "
        "\"how\": \"%s\", \"among\": \"%s\", \"ranks\": %u, \"hosts\": %u, ",
        title->what, title->op, (unsigned long long)title->bytes, result->how,
        result->among, model->ranks, sim_model_hosts(model));
    for (unsigned i = 0; i < ROWS; i++) {
        fprintf(out, "\"%s\": [%.9g, %.9g, %.9g], ", rows[i].key,
                rows[i].of->least, rows[i].of->mean, rows[i].of->most);
    }
    fprintf(out,
            "\"all_messages\": %.9g, \"all_bytes\": %.9g, "
            "\"board_bytes\": %llu, \"part\": %.9g, \"stuck\": %u}\n",
            result->summary.all_messages, result->summary.all_bytes,
            (unsigned long long)sim_board_bytes(model->ranks), result->part,
            result->stuck);
}
