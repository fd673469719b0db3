/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes to rows with an optimizer: gradients of equal keys are summed first,
 * then each row takes one step, as weft_rows_unique and weft_rows_update do. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/status.h"
#include "store/table.h"

/* Keys of one length, and what summing makes of them. */
typedef struct step_group {
    uint64_t n;
    uint64_t length;
    uint64_t *at;    /* positions in the batch */
    int64_t *keys;   /* as they come */
    char *grads;     /* of the store's type, without gaps */
    int64_t *unique; /* each key once, in rising order */
    float *sums;
    uint64_t *absent; /* positions in `unique` */
} step_group;

static void group_free(step_group *g)
{
    wf_free(g->at);
    wf_free(g->keys);
    wf_free(g->grads);
    wf_free(g->unique);
    wf_free(g->sums);
    wf_free(g->absent);
}

static weft_status group_alloc(step_group *g, size_t element)
{
    uint64_t elements = g->n * g->length;

    g->at = wf_alloc(g->n * sizeof(*g->at));
    g->keys = wf_alloc(g->n * sizeof(*g->keys));
    g->grads = wf_alloc(elements * element + 1);
    g->unique = wf_alloc(g->n * sizeof(*g->unique));
    g->sums = wf_alloc(elements * sizeof(*g->sums) + 1);
    g->absent = wf_alloc(g->n * sizeof(*g->absent));
    if (g->at == NULL || g->keys == NULL || g->grads == NULL ||
        g->unique == NULL || g->sums == NULL || g->absent == NULL) {
        return wf_fail_nomem("the gradients of %llu keys",
                             (unsigned long long)g->n);
    }
    return WEFT_OK;
}

/* Take all keys of a class out of the batch. Gradients are copied: they may lie
 * at any address, with those of other lengths in between. */
static void group_fill(const wf_slots *slots, const wf_batch *batch,
                       const wf_class *class, step_group *g)
{
    const char *values = batch->values;

    g->n = 0;
    for (uint64_t i = 0; i < batch->keys.n; i++) {
        int64_t key = wf_id_at(&batch->keys, i);
        const wf_class *own = wf_class_of(slots, (uint64_t)key);
        size_t bytes = own->length * slots->element;

        if (own == class) {
            memcpy(g->grads + g->n * bytes, values, bytes);
            g->at[g->n] = i;
            g->keys[g->n++] = key;
        }
        values += bytes;
    }
}

static weft_status group_sum(const wf_slots *slots, step_group *g)
{
    weft_ids ids = {.at = g->keys, .type = WEFT_I64, .n = g->n};
    weft_rows from = {.at = g->grads,
                      .pitch = g->length * slots->element,
                      .type = slots->type};
    weft_rows to = {
        .at = g->sums, .pitch = g->length * sizeof(float), .type = WEFT_F32};
    uint64_t n = 0;
    weft_status st = wf_unique_run(&ids, &from, g->length, slots->keys,
                                   g->unique, &to, &n, 1);

    if (st == WEFT_OK) {
        /* What is left of `unique` is not looked at. */
        g->n = n;
    }
    return st;
}

static int key_order(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* A key that is absent is so wherever it is in the batch. */
static void group_absent(const step_group *g, uint64_t n, uint64_t absents,
                         bool *absent)
{
    for (uint64_t i = 0; i < absents; i++) {
        g->unique[i] = g->unique[g->absent[i]];
    }
    for (uint64_t i = 0; absents > 0 && i < n; i++) {
        if (bsearch(&g->keys[i], g->unique, absents, sizeof(*g->unique),
                    key_order) != NULL) {
            absent[g->at[i]] = true;
        }
    }
}

static weft_status group_step(wf_slots *slots, const wf_batch *batch,
                              const wf_class *class, uint32_t writer,
                              bool *absent)
{
    wf_stepper stepper = slots->stepper;
    wf_write write = {.op = WF_WRITE_STEP,
                      .writer = writer,
                      .element = sizeof(float),
                      .stepper = &stepper};
    step_group g = {.n = batch->keys.n, .length = class->length};
    weft_status st = group_alloc(&g, slots->element);
    uint64_t n = 0;
    wf_batch sums = {.absents = 0};

    if (st == WEFT_OK) {
        group_fill(slots, batch, class, &g);
        n = g.n;
        st = group_sum(slots, &g);
    }
    if (st == WEFT_OK) {
        sums.keys = (weft_ids){.at = g.unique, .type = WEFT_I64, .n = g.n};
        sums.values = (char *)g.sums;
        sums.absent = g.absent;
        st = wf_slots_write_all(slots, &sums, &write);
        group_absent(&g, n, sums.absents, absent);
    }
    group_free(&g);
    return st;
}

/* The classes of the batch's keys, one after the other. */
static weft_status groups_step(wf_slots *slots, wf_batch *batch,
                               uint32_t writer, bool *absent)
{
    bool *done = wf_zalloc(slots->count);
    weft_status st =
        done == NULL ? wf_fail_nomem("%u lengths", slots->count) : WEFT_OK;

    for (uint64_t i = 0; st == WEFT_OK && i < batch->keys.n; i++) {
        const wf_class *class =
            wf_class_of(slots, (uint64_t)wf_id_at(&batch->keys, i));

        if (!done[class - slots->classes]) {
            done[class - slots->classes] = true;
            st = group_step(slots, batch, class, writer, absent);
        }
    }
    wf_free(done);
    return st;
}

weft_status wf_slots_step(wf_slots *slots, wf_batch *batch, uint32_t writer)
{
    uint64_t n = batch->keys.n;
    bool *absent;
    weft_status st;

    if (n == 0) {
        return WEFT_OK;
    }
    absent = wf_zalloc(n);
    if (absent == NULL) {
        return wf_fail_nomem("%llu keys", (unsigned long long)n);
    }
    st = groups_step(slots, batch, writer, absent);
    for (uint64_t i = 0; st == WEFT_OK && i < n; i++) {
        if (absent[i]) {
            batch->absent[batch->absents++] = i;
        }
    }
    wf_free(absent);
    return st;
}
