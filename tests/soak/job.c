/* SPDX-License-Identifier: Apache-2.0 */
/* Drawing a job. */
#include <stdio.h>
#include <string.h>

#include "soak.h"
#include "wt_data.h"

soak_job job;
soak_board *board;

static uint64_t drawn;

static unsigned draw(unsigned below)
{
    return (unsigned)(wt_mix(job.seed, job.number, drawn++) % below);
}

#define DRAW_FROM(list) ((list)[draw(sizeof(list) / sizeof((list)[0]))])

const char *fault_name(soak_fault fault)
{
    static const char *const names[] = {"calm", "kill", "stop", "starve",
                                        "delay"};

    return names[fault];
}

bool job_is_victim(unsigned rank)
{
    return (job.victims >> rank & 1) != 0;
}

bool job_node_dies(unsigned rank)
{
    for (unsigned r = 0; r < job.ranks; r++) {
        if (job.node[r] == job.node[rank] && !job_is_victim(r)) {
            return false;
        }
    }
    return true;
}

static void draw_shape(void)
{
    static const unsigned nodes[] = {1, 2, 2, 3, 3, 4, 2};
    unsigned ranks = 1 + draw(2);
    bool in_turn = draw(2) == 0;

    job.nodes = DRAW_FROM(nodes);
    job.ranks = job.nodes * ranks;
    if (job.ranks == 1) { /* somebody must be left */
        job.ranks = 2;
    }
    for (unsigned r = 0; r < job.ranks; r++) {
        unsigned a_node = job.ranks / job.nodes;

        job.node[r] = (char)('a' + (in_turn ? r % job.nodes : r / a_node));
    }
    job.node[job.ranks] = '\0';
    job.threads = 1 + draw(SOAK_THREADS);
}

static void draw_keys(void)
{
    static const uint64_t lengths[] = {1, 2, 3, 5, 8, 64, 1500};
    static const unsigned batches[] = {1, 8, 64, SOAK_BATCH};
    static const unsigned caches[] = {3, 3, 3, 1};

    job.keys = draw(2) == 0 ? 24 + draw(40) : 200 + draw(SOAK_KEYS - 200);
    job.shared = job.keys / 2;
    job.length = DRAW_FROM(lengths);
    job.batch = DRAW_FROM(batches);
    while (job.batch * job.length > SOAK_ELEMENTS) {
        job.batch /= 2;
    }
    job.cache = DRAW_FROM(caches) * (uint64_t)job.keys;
    if (draw(8) == 0) {
        job.cache = 1 + (uint64_t)job.keys / 8;
    }
}

static void draw_options(void)
{
    static const weft_dtype types[] = {WEFT_I64, WEFT_F64, WEFT_I32};
    static const weft_techniques techniques[] = {
        WEFT_TECHNIQUES_ALL, WEFT_TECHNIQUES_ALL, WEFT_TECHNIQUES_ALL,
        WEFT_REPLICATION_ONLY, WEFT_RELOCATION_ONLY};
    static const double rounds[] = {100, 1000, 1000, 5000, 5000, -1};

    job.type = DRAW_FROM(types);
    job.techniques = DRAW_FROM(techniques);
    job.rounds = DRAW_FROM(rounds);
    job.eager = draw(4) == 0;
    job.scheme = (weft_sample_scheme)draw(4);
}

static void draw_victims(void)
{
    unsigned first = draw(job.ranks);
    unsigned how = draw(8);

    job.victims = 1u << first;
    if (how >= 4 && how < 7) { /* its whole node */
        for (unsigned r = 0; r < job.ranks; r++) {
            job.victims |= job.node[r] == job.node[first] ? 1u << r : 0;
        }
    } else if (how == 7) { /* and another one */
        job.victims |= 1u << draw(job.ranks);
    }
    if (job.victims + 1 == 1u << job.ranks) { /* somebody must be left */
        job.victims = 1u << first;
    }
}

void job_draw(uint64_t seed, unsigned number, double seconds, bool processes)
{
    job = (soak_job){.seed = seed, .number = number, .seconds = seconds};
    drawn = 0;
    draw_shape();
    draw_keys();
    draw_options();
    job.legs = 1 + draw(3);
    job.fault = (soak_fault)(number % SOAK_FAULTS);
    if (!processes && job.fault != SOAK_DELAY) {
        job.fault = SOAK_CALM;
    }
    if (job.fault == SOAK_KILL || job.fault == SOAK_STARVE) {
        draw_victims();
    } else if (job.fault == SOAK_STOP) {
        job.victims = 1u << draw(job.ranks);
    }
    job.sockets = job.fault == SOAK_DELAY || draw(4) == 0;
}

const char *job_settings(unsigned rank)
{
    static _Thread_local char text[64];

    snprintf(text, sizeof(text), "NODE=%c TIMEOUT=120s LOG=error",
             job.node[rank]);
    return text;
}

void job_text(char *text, size_t room)
{
    static const char *const techniques[] = {"", " copied only", " moved only"};
    static const char *const schemes[] = {"naive", "preloc", "pool", "local"};
    char who[16] = "";
    size_t n = 0;

    for (unsigned r = 0; r < job.ranks; r++) {
        if (job_is_victim(r) && n + 2 < sizeof(who)) {
            who[n++] = (char)('0' + r);
        }
    }
    snprintf(
        text, room,
        "nodes %s x %u, %lld keys of %llu %s%s, batch %u, cache %llu, "
        "rounds %g%s%s, samples %s: %s%s%s",
        job.node, job.threads, (long long)job.keys,
        (unsigned long long)job.length, weft_dtype_name(job.type),
        techniques[job.techniques], job.batch, (unsigned long long)job.cache,
        job.rounds, job.eager ? " eager" : "", job.sockets ? " sockets" : "",
        schemes[job.scheme], fault_name(job.fault), n > 0 ? " of " : "", who);
}
