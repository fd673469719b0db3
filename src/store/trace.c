/* SPDX-License-Identifier: Apache-2.0 */
/* Writing down what happens to chosen keys: a line for each event, with the
 * time in ms since tracing began, the host, the key, and what it was. The
 * server of the host writes it, so each rank that may serve opens the file of
 * its own name when it has something to say. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/time.h"
#include "region/rows/rows.h"
#include "store/hosts/hosts.h"

struct wf_trace {
    FILE *file;
    uint64_t since;
    uint64_t n;
    int64_t key[]; /* as callers call them, in order */
};

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void trace_end(wf_trace *trace)
{
    if (trace != NULL) {
        fclose(trace->file);
        wf_free(trace);
    }
}

void wf_trace_close(weft_store *store)
{
    trace_end(store->trace);
    store->trace = NULL;
}

void wf_trace_event(const weft_store *store, uint64_t key, const char *what)
{
    const wf_trace *t = store->trace;
    int64_t name = t != NULL ? wf_store_name(store, key) : 0;

    if (t != NULL &&
        bsearch(&name, t->key, t->n, sizeof(name), compare) != NULL) {
        fprintf(t->file, "%.3f\t%" PRIu32 "\t%" PRId64 "\t%s\n",
                (double)(wf_now_ns() - t->since) * 1e-6, store->number, name,
                what);
        fflush(t->file);
    }
}

static weft_status trace_begin(const weft_ids *keys, const char *path,
                               wf_trace **out)
{
    wf_trace *t = wf_alloc(sizeof(*t) + keys->n * sizeof(t->key[0]));

    if (t == NULL) {
        return wf_fail_nomem("%" PRIu64 " keys to trace", keys->n);
    }
    t->since = wf_now_ns();
    t->n = keys->n;
    for (uint64_t i = 0; i < keys->n; i++) {
        t->key[i] = wf_id_at(keys, i);
    }
    qsort(t->key, t->n, sizeof(t->key[0]), compare);
    t->file = fopen(path, "we");
    if (t->file == NULL) {
        wf_free(t);
        return wf_fail_errno("cannot write %s", path);
    }
    fputs("ms\thost\tkey\tevent\n", t->file);
    *out = t;
    return WEFT_OK;
}

weft_status weft_store_trace(weft_store *store, const weft_ids *keys,
                             const char *path)
{
    weft_world *world;
    wf_trace *trace = NULL;
    wf_trace *old;
    wf_dense dense = {.many = NULL};
    weft_status st;

    if (store == NULL || keys == NULL || (keys->n > 0 && path == NULL)) {
        return wf_fail(WEFT_ERR_INVALID, "store, keys or path is NULL");
    }
    st = wf_store_check(store);
    if (st == WEFT_OK && keys->n > 0) {
        st = wf_dense_init(&dense, store, "trace", keys, false);
        if (st == WEFT_OK) {
            st = trace_begin(keys, path, &trace);
        }
        wf_dense_fini(&dense);
    }
    if (st == WEFT_OK) {
        world = store->comm->world;
        pthread_mutex_lock(&world->drive);
        old = store->trace;
        store->trace = trace;
        pthread_mutex_unlock(&world->drive);
        trace_end(old);
    }
    return st;
}
