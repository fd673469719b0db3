/* SPDX-License-Identifier: Apache-2.0 */
/* What would this cost with 100,000 ranks? See README.md. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "aggregate.h"
#include "control.h"
#include "report.h"

typedef struct wanted {
    sim_model model;
    sim_call call;
    sim_control control;
    sim_aggregate aggregate;
    const char *what;
    const char *op;
    uint32_t hosts;
    bool json;
} wanted;

enum {
    RANKS = 'n',
    PER_HOST = 'p',
    HOSTS = 'H',
    WHAT = 'w',
    OP = 'o',
    BYTES = 'b',
    ALGORITHM = 'a',
    MODEL = 'm',
    SET = 's',
    REPEAT = 'r',
    JSON = 'j',
    HELP = 'h',
    LATENCY = 256,
    BANDWIDTH,
    STEPS,
    CHUNK,
    FLAT,
    COLOURS,
    DEAD,
    EVERY,
    TIMEOUT,
    CUT,
    ADDRESS,
    TABLE,
    SWITCHES,
    LINKS,
    PAYLOAD,
    SLOTS,
    LOSS
};

static const struct option options[] = {
    {"ranks", required_argument, NULL, RANKS},
    {"per-host", required_argument, NULL, PER_HOST},
    {"hosts", required_argument, NULL, HOSTS},
    {"what", required_argument, NULL, WHAT},
    {"op", required_argument, NULL, OP},
    {"bytes", required_argument, NULL, BYTES},
    {"algorithm", required_argument, NULL, ALGORITHM},
    {"model", required_argument, NULL, MODEL},
    {"set", required_argument, NULL, SET},
    {"latency", required_argument, NULL, LATENCY},
    {"bandwidth", required_argument, NULL, BANDWIDTH},
    {"repeat", required_argument, NULL, REPEAT},
    {"steps", required_argument, NULL, STEPS},
    {"chunk-bytes", required_argument, NULL, CHUNK},
    {"flat", no_argument, NULL, FLAT},
    {"colours", required_argument, NULL, COLOURS},
    {"dead", required_argument, NULL, DEAD},
    {"every", required_argument, NULL, EVERY},
    {"timeout", required_argument, NULL, TIMEOUT},
    {"cut", required_argument, NULL, CUT},
    {"address", required_argument, NULL, ADDRESS},
    {"table", required_argument, NULL, TABLE},
    {"switches", required_argument, NULL, SWITCHES},
    {"links", required_argument, NULL, LINKS},
    {"payload", required_argument, NULL, PAYLOAD},
    {"slots", required_argument, NULL, SLOTS},
    {"loss", required_argument, NULL, LOSS},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    {0},
};

static const char help[] =
    "bench_simulate [options]\n"
    "\n"
    "  --ranks N           (8)\n"
    "  --per-host N        ranks of a host (1), or\n"
    "  --hosts N           so many hosts\n"
    "  --what WHAT         collective, switch (an allreduce through one),\n"
    "                      create, split, news, idle, cut or join\n"
    "  --op NAME           of a collective (allreduce)\n"
    "  --bytes N           of its buffer, or of a rank's block; 64K, 1M (8)\n"
    "  --algorithm NAME    of a collective: instead of what weft chooses\n"
    "  --flat              one group of all ranks, without a hierarchy\n"
    "  --repeat N          calls one after the other; the time is of one (1)\n"
    "  --chunk-bytes N     as WEFT_CHUNK_BYTES\n"
    "  --steps N           of all ranks: of a ring, whose steps are all "
    "alike,\n"
    "                      only so many are carried out (2e7)\n"
    "  --colours N         of a split (1)\n"
    "  --dead N            ranks of a host that die, of news (1)\n"
    "  --every SECONDS     between heartbeats, of idle and cut (0.5)\n"
    "  --timeout SECONDS   as WEFT_HOST_TIMEOUT, of cut (15)\n"
    "  --cut WHICH         half of the hosts: block (the first ones), others\n"
    "                      (every other one), any\n"
    "  --address N         bytes of a rank's addresses, of join (120)\n"
    "  --table SECONDS     for one key at the table's server, of join (1e-5)\n"
    "  --switches N        of switch: that share the chunks (1)\n"
    "  --links N           of a switch, as wide as a host's (as many as "
    "hosts)\n"
    "  --payload N         as WEFT_SWITCH_PAYLOAD (1088)\n"
    "  --slots N           as WEFT_SWITCH_SLOTS (256)\n"
    "  --loss P            of all packets, each way (0)\n"
    "  --json              one line of JSON\n"
    "\n"
    "The network:\n"
    "\n"
    "  --latency SECONDS, --bandwidth BYTES_A_SECOND\n"
    "  --set NAME=NUMBER   any of those below\n"
    "  --model FILE        lines of such\n"
    "\n";

static void bad(const char *what, const char *text)
{
    fprintf(stderr, "bench_simulate: %s is not %s; see --help\n", text, what);
    exit(2);
}

static double number(const char *text)
{
    char *end = NULL;
    double value = strtod(text, &end);
    const char *units = "KMG";
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;

    for (long i = unit != NULL ? unit - units + 1 : 0; i > 0; i--) {
        value *= 1024;
    }
    if (end == text || !(value >= 0) || end[unit != NULL] != '\0') {
        bad("a number", text);
    }
    return value;
}

static uint32_t count(const char *text)
{
    double value = number(text);

    if (value < 1 || value > 10e6) {
        bad("a number from 1 to 10 million", text);
    }
    return (uint32_t)value;
}

static wf_call_kind kind_of(const char *name)
{
    for (unsigned k = 1; k < WF_CALL_KINDS; k++) {
        bool is = k == WF_CALL_BARRIER ||
                  wf_message_choose((wf_call_kind)k, 0, 2) != NULL;

        if (is && !wf_call_is((uint8_t)k, WF_OWN_LENGTHS | WF_ALL_LENGTHS) &&
            strcmp(wf_call_name((uint8_t)k), name) == 0) {
            return (wf_call_kind)k;
        }
    }
    bad("a collective without parts", name);
    return WF_CALL_NONE;
}

static void set_algorithm(wanted *w, const char *name)
{
    for (unsigned a = 0; a < WF_ALGORITHMS; a++) {
        if (strcmp(wf_algorithm_name((wf_algorithm)a), name) == 0) {
            w->call.how = (wf_algorithm)a;
            return;
        }
    }
    bad("an algorithm", name);
}

static sim_cut_off cut_of(const char *name)
{
    static const char *const names[] = {"block", "others", "any"};

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            return (sim_cut_off)i;
        }
    }
    bad("block, others or any", name);
    return SIM_CUT_BLOCK;
}

static void read_model(sim_model *model, const char *path)
{
    FILE *file = fopen(path, "r");
    char line[200];

    if (file == NULL) {
        bad("a file that can be read", path);
    }
    if (!sim_model_read(model, file, line, sizeof(line))) {
        bad("a line of a model", line);
    }
    fclose(file);
}

static void take_number(wanted *w, int option, double value)
{
    switch (option) {
    case LATENCY:
        w->model.latency = value;
        break;
    case BANDWIDTH:
        w->model.bandwidth = value;
        break;
    case BYTES:
        w->call.bytes = (uint64_t)value;
        break;
    case STEPS:
        w->call.steps = (uint64_t)value;
        break;
    case CHUNK:
        w->call.in_chunk = (uint64_t)value;
        break;
    case EVERY:
        w->control.every = value;
        break;
    case TIMEOUT:
        w->control.timeout = value;
        break;
    case ADDRESS:
        w->control.address = value;
        break;
    case LINKS:
        w->aggregate.links = value;
        break;
    case LOSS:
        w->aggregate.loss = value;
        break;
    default:
        w->control.table = value;
    }
}

static void take_count(wanted *w, int option, uint32_t value)
{
    switch (option) {
    case RANKS:
        w->model.ranks = value;
        break;
    case PER_HOST:
        w->model.per_host = value;
        break;
    case HOSTS:
        w->hosts = value;
        break;
    case REPEAT:
        w->call.repeat = value;
        break;
    case COLOURS:
        w->control.colours = value;
        break;
    case SWITCHES:
        w->aggregate.switches = value;
        break;
    case PAYLOAD:
        w->aggregate.payload = value;
        break;
    case SLOTS:
        w->aggregate.slots = value;
        break;
    default:
        w->control.dead = value;
    }
}

static void take_text(wanted *w, int option, const char *text)
{
    switch (option) {
    case WHAT:
        w->what = text;
        break;
    case OP:
        w->op = text;
        w->call.kind = kind_of(text);
        break;
    case ALGORITHM:
        set_algorithm(w, text);
        break;
    case CUT:
        w->control.cut = cut_of(text);
        break;
    case MODEL:
        read_model(&w->model, text);
        break;
    default:
        if (!sim_model_set(&w->model, text)) {
            bad("a number of the model", text);
        }
    }
}

static void take(wanted *w, int option)
{
    switch (option) {
    case RANKS:
    case PER_HOST:
    case HOSTS:
    case REPEAT:
    case COLOURS:
    case SWITCHES:
    case PAYLOAD:
    case SLOTS:
    case DEAD:
        take_count(w, option, count(optarg));
        break;
    case WHAT:
    case OP:
    case ALGORITHM:
    case MODEL:
    case CUT:
    case SET:
        take_text(w, option, optarg);
        break;
    case FLAT:
        w->call.flat = true;
        break;
    case JSON:
        w->json = true;
        break;
    case HELP:
        fputs(help, stdout);
        sim_model_help(stdout);
        exit(0);
    case '?':
        exit(2);
    default:
        take_number(w, option, number(optarg));
    }
}

static bool run(const wanted *w, sim_result *out)
{
    static const struct {
        const char *name;
        void (*run)(const sim_model *, const sim_control *, sim_result *);
    } others[] = {{"create", sim_create}, {"split", sim_split},
                  {"news", sim_news},     {"idle", sim_idle},
                  {"cut", sim_cut},       {"join", sim_join}};

    if (strcmp(w->what, "collective") == 0) {
        return sim_replay(&w->model, &w->call, out);
    }
    if (strcmp(w->what, "switch") == 0) {
        if (!sim_aggregate_run(&w->model, &w->aggregate, w->call.bytes, out)) {
            bad("a number of hosts, switches, slots and bytes that can be",
                "that");
        }
        return true;
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(w->what, others[i].name) == 0) {
            others[i].run(&w->model, &w->control, out);
            return true;
        }
    }
    bad("collective, switch, create, split, news, idle, cut or join", w->what);
    return false;
}

static void report(const wanted *w, const sim_result *result)
{
    bool collective =
        strcmp(w->what, "collective") == 0 || strcmp(w->what, "switch") == 0;
    sim_title title = {w->what, collective ? w->op : "",
                       collective ? w->call.bytes : 0};

    if (w->json) {
        sim_report_json(&w->model, &title, result, stdout);
    } else {
        sim_report_table(&w->model, &title, result, stdout);
    }
}

int main(int argc, char **argv)
{
    wanted w = {.what = "collective",
                .op = "allreduce",
                .call = {.kind = WF_CALL_ALLREDUCE,
                         .bytes = 8,
                         .how = WF_ALGORITHMS,
                         .repeat = 1,
                         .steps = 20000000},
                .control = {.colours = 1,
                            .dead = 1,
                            .every = 0.5,
                            .timeout = 15,
                            .address = 120,
                            .table = 1e-5},
                .aggregate = {.switches = 1, .payload = 1088, .slots = 256}};
    sim_result result = {0};
    int option;

    sim_model_init(&w.model);
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        take(&w, option);
    }
    if (optind < argc) {
        bad("an option", argv[optind]);
    }
    if (w.hosts > 0) {
        w.model.per_host = (w.model.ranks + w.hosts - 1) / w.hosts;
    }
    if (w.aggregate.loss >= 1) {
        bad("less than 1", "--loss");
    }
    if (w.control.every <= 0 || w.control.timeout <= 0 ||
        w.model.bandwidth <= 0) {
        bad("more than 0", "--every, --timeout or --bandwidth");
    }
    if (!run(&w, &result)) {
        bad("an algorithm for this operation and number of ranks",
            wf_algorithm_name(w.call.how));
    }
    if (result.too_many > 0) {
        fprintf(stderr,
                "bench_simulate: all ranks have %.3g steps together; --steps "
                "allows that\n",
                (double)result.too_many);
        return 1;
    }
    report(&w, &result);
    return result.stuck > 0;
}
