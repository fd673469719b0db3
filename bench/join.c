/* SPDX-License-Identifier: Apache-2.0 */
/* What joining a large job costs a rank beside the bootstrap table: merging
 * tables as the first of a group and as rank 0, and checking the table of the
 * job, which everybody does.
 *
 *     bench_join [ranks [ranks a host [bytes of addresses]]]
 *
 * Prints the best of several rounds, in milliseconds of one processor. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/time.h"
#include "mem/join.h"

enum { ROUNDS = 5 };

typedef struct timing {
    double group_ms;
    double all_ms;
    double check_ms;
    uint64_t group_bytes;
    uint64_t bytes;
} timing;

static void must(weft_status st)
{
    if (st != WEFT_OK) {
        fprintf(stderr, "bench_join: %s\n", weft_error_detail());
        exit(1);
    }
}

static void *room(size_t bytes)
{
    void *p = wf_alloc(bytes);

    if (p == NULL) {
        fprintf(stderr, "bench_join: no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return p;
}

static wf_join_table *single(uint32_t rank, uint32_t ranks, uint32_t per_host,
                             size_t address)
{
    static unsigned char bytes[1 << 16];
    wf_join_record own;
    wf_address to = {.of = "ucx", .data = bytes, .n = address};
    wf_join_table *t = NULL;

    memset(&own, 0, sizeof(own));
    own.pid = (int32_t)rank + 1;
    snprintf(own.node.boot_id, sizeof(own.node.boot_id), "%036u",
             rank / per_host);
    snprintf(own.node.host, sizeof(own.node.host), "host%u", rank / per_host);
    must(wf_join_single(&own, rank, ranks, &to, 1, &t));
    return t;
}

static double ms_since(uint64_t began)
{
    return (double)(wf_now_ns() - began) / 1e6;
}

static void keep_best(double *best, double ms)
{
    *best = *best == 0 || ms < *best ? ms : *best;
}

/* The table of the ranks of one group. */
static wf_join_table *merge_group(uint32_t first, uint32_t count,
                                  uint32_t ranks, uint32_t per_host,
                                  size_t address, timing *out)
{
    wf_join_table **part = room(count * sizeof(wf_join_table *));
    wf_join_table *merged = NULL;
    uint64_t began;

    for (uint32_t i = 0; i < count; i++) {
        part[i] = single(first + i, ranks, per_host, address);
    }
    began = wf_now_ns();
    must(wf_join_merge(part, count, &merged));
    keep_best(&out->group_ms, ms_since(began));
    for (uint32_t i = 0; i < count; i++) {
        wf_free(part[i]);
    }
    wf_free(part);
    out->group_bytes = merged->head->bytes;
    return merged;
}

/* A rank reads it into memory of its own. */
static void check(const wf_join_table *all, uint32_t ranks, timing *out)
{
    size_t n = all->head->bytes;
    wf_join_table *t = wf_join_room(n);
    uint64_t began;

    if (t == NULL) {
        must(wf_fail_nomem("%zu bytes", n));
        return;
    }
    memcpy(t->bytes, all->bytes, n);
    began = wf_now_ns();
    must(wf_join_open(t, n, 0, 0, ranks, ranks));
    keep_best(&out->check_ms, ms_since(began));
    wf_free(t);
}

static timing run(uint32_t ranks, uint32_t per_host, size_t address)
{
    uint32_t group = wf_join_group(ranks);
    uint32_t groups = (ranks + group - 1) / group;
    wf_join_table **part = room(groups * sizeof(wf_join_table *));
    timing out = {0};

    for (uint32_t g = 0; g < groups; g++) {
        uint32_t first = g * group;
        uint32_t count = ranks - first < group ? ranks - first : group;

        timing last = {0}; /* the last group may be small */

        part[g] = merge_group(first, count, ranks, per_host, address,
                              g == 0 ? &out : &last);
    }
    for (unsigned i = 0; i < ROUNDS; i++) {
        wf_join_table *all = NULL;
        uint64_t began = wf_now_ns();

        must(wf_join_merge(part, groups, &all));
        keep_best(&out.all_ms, ms_since(began));
        out.bytes = all->head->bytes;
        check(all, ranks, &out);
        wf_free(all);
    }
    for (uint32_t g = 0; g < groups; g++) {
        wf_free(part[g]);
    }
    wf_free(part);
    return out;
}

static uint32_t argument(int argc, char **argv, int i, uint32_t fallback)
{
    char *end = NULL;
    unsigned long n = i < argc ? strtoul(argv[i], &end, 10) : fallback;

    if (n < 1 || n > 10000000 || (end != NULL && *end != '\0')) {
        fprintf(stderr,
                "bench_join [ranks [ranks a host [bytes of addresses]]]\n");
        exit(2);
    }
    return (uint32_t)n;
}

int main(int argc, char **argv)
{
    uint32_t ranks = argument(argc, argv, 1, 100000);
    uint32_t per_host = argument(argc, argv, 2, 64);
    uint32_t address = argument(argc, argv, 3, 120);
    timing t;

    if (address > 1 << 16) {
        fprintf(stderr, "bench_join: addresses of 64 KiB at most\n");
        return 2;
    }
    t = run(ranks, per_host, address);
    printf("%u ranks, %u a host, %u bytes of addresses each\n", ranks, per_host,
           address);
    printf("first of a group: merges %u tables in %.3f ms (%llu bytes)\n",
           wf_join_group(ranks), t.group_ms, (unsigned long long)t.group_bytes);
    printf("rank 0: merges %u tables in %.2f ms (%llu bytes)\n",
           (ranks + wf_join_group(ranks) - 1) / wf_join_group(ranks), t.all_ms,
           (unsigned long long)t.bytes);
    printf("every rank: checks the job's table in %.2f ms\n", t.check_ms);
    return 0;
}
