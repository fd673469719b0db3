/* SPDX-License-Identifier: Apache-2.0 */
/* weft-switch: an aggregator for allreduce, on any Linux host. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/log.h>
#include <weft/weft.h>

#include "agg/address.h"
#include "agg/key.h"
#include "base/settings.h"
#include "base/time.h"
#include "server.h"

static const char help[] =
    "usage: weft-switch --key FILE [options]\n"
    "       weft-switch key FILE\n"
    "\n"
    "Adds up what the ranks of weft jobs send (WEFT_SWITCH=host:port). The\n"
    "second form writes a new key, which the switch and its jobs share, to a\n"
    "file that only its owner can read.\n"
    "\n"
    "  --key FILE          the key\n"
    "  --host ADDRESS      listen here only (default: all interfaces)\n"
    "  --port N            TCP and UDP port (default: %d; 0: any)\n"
    "  --http [ADDR:]PORT  counters and a page (default: 127.0.0.1, port + "
    "1);\n"
    "                      PORT 0: any; \"off\": none\n"
    "  --shards N          threads with a socket each, 1 to 8 (default: 1)\n"
    "  --jobs N            at once (default: 64)\n"
    "  --slots N           of a job in a shard at most (default: 1024)\n"
    "  --memory BYTES      of all jobs (default: 1G)\n"
    "  --job-memory BYTES  of one job (default: 256M)\n"
    "  --patience TIME     for all ranks of a job to come (default: 30s)\n"
    "  --inject FAULTS     for tests: "
    "loss=0.01,repeat=0.01,reorder=0.01,seed=1\n"
    "  --verbose           log jobs as they begin and end\n"
    "  --version, --help\n";

static void print_help(FILE *out)
{
    fprintf(out, help, WF_AGG_PORT);
}

static const struct option long_options[] = {
    {"key", required_argument, NULL, 'k'},
    {"host", required_argument, NULL, 'a'},
    {"port", required_argument, NULL, 'p'},
    {"http", required_argument, NULL, 'w'},
    {"shards", required_argument, NULL, 's'},
    {"jobs", required_argument, NULL, 'j'},
    {"slots", required_argument, NULL, 'n'},
    {"memory", required_argument, NULL, 'm'},
    {"job-memory", required_argument, NULL, 'M'},
    {"patience", required_argument, NULL, 't'},
    {"inject", required_argument, NULL, 'i'},
    {"verbose", no_argument, NULL, 'v'},
    {"version", no_argument, NULL, 'V'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool parse_number(const char *text, unsigned long least,
                         unsigned long most, unsigned long *out)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);

    *out = n;
    return *text >= '0' && *text <= '9' && *end == 0 && n >= least && n <= most;
}

/* [ADDR:]PORT, or "off". */
static bool parse_http(char *text, sw_options *o)
{
    char *colon = strrchr(text, ':');
    unsigned long port;

    if (strcmp(text, "off") == 0) {
        o->http = false;
        return true;
    }
    if (colon != NULL) {
        *colon = 0;
        o->http_host = text;
    }
    if (!parse_number(colon != NULL ? colon + 1 : text, 0, 65535, &port)) {
        return false;
    }
    o->http_port = (uint16_t)port;
    o->http_beside = false;
    return true;
}

static bool parse_sizes(int letter, char *text, sw_options *o)
{
    unsigned long n = 0;

    switch (letter) {
    case 'p':
        return parse_number(text, 0, 65534, &n) &&
               (o->port = (uint16_t)n, true);
    case 's':
        return parse_number(text, 1, WF_AGG_SHARDS, &n) &&
               (o->shards = (uint32_t)n, true);
    case 'j':
        return parse_number(text, 1, SW_JOBS, &n) &&
               (o->jobs = (uint32_t)n, true);
    case 'n':
        return parse_number(text, 1, WF_AGG_SLOTS, &n) &&
               (o->slots = (uint32_t)n, true);
    case 'm':
        return wf_parse_bytes(text, &o->memory) == WEFT_OK;
    case 'M':
        return wf_parse_bytes(text, &o->job_memory) == WEFT_OK;
    case 't':
        return wf_parse_duration(text, &o->patience_ns) == WEFT_OK;
    default:
        return false;
    }
}

static bool parse_one(int letter, char *text, sw_options *o)
{
    switch (letter) {
    case 'k':
        o->key_file = text;
        return true;
    case 'a':
        o->host = text;
        return true;
    case 'w':
        return parse_http(text, o);
    case 'i':
        return sw_inject_parse(text, &o->inject);
    case 'v':
        weft_log_set_level(WEFT_LOG_INFO);
        return true;
    default:
        return parse_sizes(letter, text, o);
    }
}

/* -1: go on; else what to exit with. */
static int parse(int argc, char **argv, sw_options *o)
{
    int letter;
    int which = 0;

    while ((letter = getopt_long(argc, argv, "", long_options, &which)) != -1) {
        if (letter == 'h') {
            print_help(stdout);
            return 0;
        }
        if (letter == 'V') {
            printf("weft-switch %d.%d.%d\n", WEFT_VERSION_MAJOR,
                   WEFT_VERSION_MINOR, WEFT_VERSION_PATCH);
            return 0;
        }
        if (letter == '?') {
            fputs("try weft-switch --help\n", stderr);
            return 2;
        }
        if (!parse_one(letter, optarg, o)) {
            fprintf(stderr, "weft-switch: --%s cannot be '%s'\n",
                    long_options[which].name, optarg);
            return 2;
        }
    }
    if (optind < argc || o->key_file == NULL) {
        print_help(stderr);
        return 2;
    }
    return -1;
}

static int fail(void)
{
    fprintf(stderr, "weft-switch: %s\n", weft_error_detail());
    return 1;
}

static int make_key(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: weft-switch key FILE\n", stderr);
        return 2;
    }
    return wf_agg_key_create(argv[2]) == WEFT_OK ? 0 : fail();
}

int main(int argc, char **argv)
{
    sw_options o = {.port = WF_AGG_PORT,
                    .http = true,
                    .http_host = "127.0.0.1",
                    .http_beside = true,
                    .shards = 1,
                    .jobs = 64,
                    .slots = 1024,
                    .memory = 1ull << 30,
                    .job_memory = 256ull << 20,
                    .patience_ns = 30 * WF_SEC};
    int rc;

    if (argc > 1 && strcmp(argv[1], "key") == 0) {
        return make_key(argc, argv);
    }
    rc = parse(argc, argv, &o);
    if (rc >= 0) {
        return rc;
    }
    return sw_server_run(&o) == WEFT_OK ? 0 : fail();
}
