/* SPDX-License-Identifier: Apache-2.0 */
/* What the switch has counted, as text for Prometheus and as JSON. Counters of
 * shards are copied under their locks first: printing takes longer than a
 * shard should wait. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/time.h"
#include "server.h"

/* A job, summed over its shards. */
typedef struct totals {
    uint64_t verdict[WF_AGG_VERDICTS];
    uint64_t refused[WF_AGG_REFUSALS];
    uint64_t results;
    uint64_t bytes;
    uint64_t unsent;
    sw_rank rank[WF_AGG_RANKS];
} totals;

static void add_lane(const sw_lane *lane, uint32_t ranks, totals *t)
{
    for (unsigned i = 0; i < WF_AGG_VERDICTS; i++) {
        t->verdict[i] += lane->verdict[i];
    }
    for (unsigned i = 0; i < WF_AGG_REFUSALS; i++) {
        t->refused[i] += lane->refused[i];
    }
    t->results += lane->results;
    t->bytes += lane->bytes;
    t->unsent += lane->unsent;
    for (uint32_t r = 0; r < ranks; r++) {
        const sw_rank *from = &lane->rank[r];

        t->rank[r].packets += from->packets;
        t->rank[r].resent += from->resent;
        t->rank[r].last += from->last;
        t->rank[r].late_ns += from->late_ns;
        t->rank[r].rtt_us =
            from->rtt_us > t->rank[r].rtt_us ? from->rtt_us : t->rank[r].rtt_us;
    }
}

static void add_up(sw_server *s, const sw_job *job, totals *t)
{
    *t = (totals){.results = 0};
    for (uint32_t i = 0; i < s->shards; i++) {
        pthread_mutex_lock(&s->shard[i].lock);
        add_lane(&job->lane[i], job->like.ranks, t);
        pthread_mutex_unlock(&s->shard[i].lock);
    }
}

/* The next job that runs, from `*at` on. */
static const sw_job *next_job(const sw_server *s, uint32_t *at)
{
    while (*at < SW_JOBS) {
        const sw_job *job = s->job[(*at)++];

        if (job != NULL && job->active) {
            return job;
        }
    }
    return NULL;
}

/* --- Prometheus ----------------------------------------------------------- */

static void print_family(FILE *f, const char *name, const char *type,
                         const char *help)
{
    fprintf(f, "# HELP weft_switch_%s %s\n# TYPE weft_switch_%s %s\n", name,
            help, name, type);
}

static void print_switch(FILE *f, sw_server *s)
{
    uint64_t packets = 0;
    uint64_t strangers = 0;

    for (uint32_t i = 0; i < s->shards; i++) {
        pthread_mutex_lock(&s->shard[i].lock);
        packets += s->shard[i].packets;
        strangers += s->shard[i].strangers;
        pthread_mutex_unlock(&s->shard[i].lock);
    }
    print_family(f, "uptime_seconds", "gauge", "Since the switch started.");
    fprintf(f, "weft_switch_uptime_seconds %.3f\n",
            (double)(wf_now_ns() - s->since_ns) / 1e9);
    print_family(f, "jobs", "gauge", "Jobs that run or wait for ranks.");
    fprintf(f, "weft_switch_jobs %u\n", s->jobs);
    print_family(f, "jobs_total", "counter", "Jobs that began.");
    fprintf(f, "weft_switch_jobs_total %llu\n", (unsigned long long)s->joined);
    print_family(f, "memory_bytes", "gauge", "Memory of all jobs.");
    fprintf(f, "weft_switch_memory_bytes %llu\n",
            (unsigned long long)s->memory);
    print_family(f, "packets_total", "counter", "Packets that came.");
    fprintf(f, "weft_switch_packets_total %llu\n", (unsigned long long)packets);
    print_family(f, "strangers_total", "counter",
                 "Packets that are not ours or of no job.");
    fprintf(f, "weft_switch_strangers_total %llu\n",
            (unsigned long long)strangers);
    print_family(f, "refused_ranks_total", "counter",
                 "Ranks that could not join.");
    for (uint32_t i = 1; i < WF_AGG_STATUSES; i++) {
        fprintf(f, "weft_switch_refused_ranks_total{why=\"%s\"} %llu\n",
                wf_agg_status_text(i), (unsigned long long)s->refused[i]);
    }
}

/* The families that have a sample for each job or rank. Those of one family
 * must stand together, so each is printed for all jobs in turn. */
typedef void print_fn(FILE *f, const char *name, const sw_job *job,
                      const totals *t);

static void print_verdicts(FILE *f, const char *name, const sw_job *job,
                           const totals *t)
{
    for (unsigned v = 0; v < WF_AGG_VERDICTS; v++) {
        fprintf(f, "weft_switch_%s{job=\"%u\",verdict=\"%s\"} %llu\n", name,
                job->id, wf_agg_verdict_name((wf_agg_verdict)v),
                (unsigned long long)t->verdict[v]);
    }
}

static void print_refusals(FILE *f, const char *name, const sw_job *job,
                           const totals *t)
{
    for (unsigned w = WF_AGG_GOOD + 1; w < WF_AGG_REFUSALS; w++) {
        fprintf(f, "weft_switch_%s{job=\"%u\",why=\"%s\"} %llu\n", name,
                job->id, wf_agg_refusal_name((wf_agg_refusal)w),
                (unsigned long long)t->refused[w]);
    }
}

#define PRINT_JOB(field)                                                       \
    static void print_##field(FILE *f, const char *name, const sw_job *job,    \
                              const totals *t)                                 \
    {                                                                          \
        fprintf(f, "weft_switch_%s{job=\"%u\"} %llu\n", name, job->id,         \
                (unsigned long long)t->field);                                 \
    }
PRINT_JOB(results)
PRINT_JOB(bytes)
PRINT_JOB(unsent)

#define PRINT_RANK(field, unit)                                                \
    static void print_##field(FILE *f, const char *name, const sw_job *job,    \
                              const totals *t)                                 \
    {                                                                          \
        for (uint32_t r = 0; r < job->like.ranks; r++) {                       \
            fprintf(f, "weft_switch_%s{job=\"%u\",rank=\"%u\"} %.9g\n", name,  \
                    job->id, r, (double)t->rank[r].field *(unit));             \
        }                                                                      \
    }
PRINT_RANK(packets, 1)
PRINT_RANK(resent, 1)
PRINT_RANK(last, 1)
PRINT_RANK(late_ns, 1e-9)
PRINT_RANK(rtt_us, 1e-6)

static const struct {
    const char *name;
    const char *type;
    const char *help;
    print_fn *print;
} families[] = {
    {"job_packets_total", "counter",
     "Packets of a job, by what was done with them.", print_verdicts},
    {"job_refused_total", "counter", "Packets of a job that were refused.",
     print_refusals},
    {"job_results_total", "counter", "Chunks reduced.", print_results},
    {"job_bytes_total", "counter", "Payload that was kept.", print_bytes},
    {"job_unsent_total", "counter", "Batches that the kernel did not take.",
     print_unsent},
    {"rank_packets_total", "counter", "Packets of a rank.", print_packets},
    {"rank_resent_total", "counter",
     "Of these, sent again: loss, or a late rank.", print_resent},
    {"rank_last_total", "counter",
     "Chunks for which all others waited for this rank.", print_last},
    {"rank_late_seconds_total", "counter",
     "How long others waited for it, summed over chunks.", print_late_ns},
    {"rank_rtt_seconds", "gauge", "Round trip as the rank measured it.",
     print_rtt_us},
};

/* A text that is written as it grows, and room for a job's totals. */
typedef struct report {
    FILE *f;
    char *text;
    totals *t;
} report;

static bool report_open(report *r, size_t *bytes)
{
    r->text = NULL;
    r->t = wf_alloc(sizeof(*r->t));
    r->f = r->t != NULL ? open_memstream(&r->text, bytes) : NULL;
    if (r->f == NULL) {
        wf_free(r->t);
        return false;
    }
    return true;
}

static char *report_close(report *r)
{
    wf_free(r->t);
    fclose(r->f);
    return r->text;
}

char *sw_metrics(sw_server *s, size_t *bytes)
{
    report r;
    const sw_job *job;

    if (!report_open(&r, bytes)) {
        return NULL;
    }
    print_switch(r.f, s);
    for (unsigned i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        print_family(r.f, families[i].name, families[i].type, families[i].help);
        for (uint32_t at = 0; (job = next_job(s, &at)) != NULL;) {
            add_up(s, job, r.t);
            families[i].print(r.f, families[i].name, job, r.t);
        }
    }
    return report_close(&r);
}

/* --- JSON ----------------------------------------------------------------- */

static void print_job_json(FILE *f, const sw_job *job, const totals *t)
{
    fprintf(f,
            "{\"job\":%u,\"ranks\":%u,\"slots\":%u,\"memory\":%llu,"
            "\"seconds\":%.1f,\"results\":%llu,\"bytes\":%llu,\"late\":%llu,"
            "\"rank\":[",
            job->id, job->like.ranks, job->joined.slots,
            (unsigned long long)job->memory,
            (double)(wf_now_ns() - job->since_ns) / 1e9,
            (unsigned long long)t->results, (unsigned long long)t->bytes,
            (unsigned long long)t->verdict[WF_AGG_DROPPED_LATE]);
    for (uint32_t r = 0; r < job->like.ranks; r++) {
        const sw_rank *k = &t->rank[r];

        fprintf(f,
                "%s{\"packets\":%llu,\"resent\":%llu,\"last\":%llu,"
                "\"late\":%.6f,\"rtt\":%u}",
                r == 0 ? "" : ",", (unsigned long long)k->packets,
                (unsigned long long)k->resent, (unsigned long long)k->last,
                (double)k->late_ns / 1e9, k->rtt_us);
    }
    fprintf(f, "]}");
}

char *sw_jobs_json(sw_server *s, size_t *bytes)
{
    report r;
    const sw_job *job;

    if (!report_open(&r, bytes)) {
        return NULL;
    }
    fprintf(r.f, "{\"seconds\":%.3f,\"memory\":%llu,\"jobs\":[",
            (double)(wf_now_ns() - s->since_ns) / 1e9,
            (unsigned long long)s->memory);
    for (uint32_t at = 0, n = 0; (job = next_job(s, &at)) != NULL; n++) {
        add_up(s, job, r.t);
        fputs(n == 0 ? "" : ",", r.f);
        print_job_json(r.f, job, r.t);
    }
    fprintf(r.f, "]}\n");
    return report_close(&r);
}
