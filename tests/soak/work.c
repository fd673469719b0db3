/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker does: random operations, many of them asynchronous, and a look
 * at all it reads. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "soak.h"

/* An operation with its memory. */
typedef struct pending {
    weft_request *request;
    char kind; /* P pull, U push, S set, L localize */
    unsigned n;
    int64_t keys[SOAK_BATCH];
    int64_t want[SOAK_BATCH]; /* P: what own keys are; of shared ones: least */
    int64_t values[SOAK_ELEMENTS];
} pending;

typedef struct desk {
    soak_worker *me;
    weft_worker *worker;
    soak_books *books;
    int64_t issued[SOAK_KEYS]; /* own pushes to shared keys */
    pending pending[SOAK_PENDING];
} desk;

uint64_t soak_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed * 0x9e3779b97f4a7c15ull >> 8;
}

void soak_put(void *values, uint64_t at, int64_t number)
{
    if (job.type == WEFT_F64) {
        ((double *)values)[at] = (double)number;
    } else if (job.type == WEFT_I32) {
        ((int32_t *)values)[at] = (int32_t)number;
    } else {
        ((int64_t *)values)[at] = number;
    }
}

int64_t soak_get(const void *values, uint64_t at)
{
    return job.type == WEFT_F64   ? (int64_t)((const double *)values)[at]
           : job.type == WEFT_I32 ? ((const int32_t *)values)[at]
                                  : ((const int64_t *)values)[at];
}

static bool names_a_victim(void)
{
    for (unsigned r = 0; r < job.ranks; r++) {
        if (job_is_victim(r) && wt_names_rank(weft_error_detail(), r)) {
            return true;
        }
    }
    return false;
}

bool soak_tolerates(weft_status st, const char *what)
{
    bool died = st == WEFT_ERR_PEER && job.fault == SOAK_KILL &&
                atomic_load(&board->struck) != 0 && names_a_victim();
    bool starved = st == WEFT_ERR_NOMEM && job.fault == SOAK_STARVE;
    bool full = st == WEFT_ERR_NOMEM && strcmp(what, "localize") == 0;
    bool none = st == WEFT_ERR_INVALID && job.scheme == WEFT_SAMPLE_LOCAL &&
                strcmp(what, "sample") == 0;

    if (st != WEFT_OK && !died && !starved && !full && !none) {
        WT_FAIL("%s: %s: %s", what, weft_status_name(st), weft_error_detail());
    }
    atomic_fetch_add(&board->failed, died);
    atomic_fetch_add(&board->starved, starved);
    return st == WEFT_OK;
}

/* --- books ---------------------------------------------------------------- */

static bool is_shared(int64_t key)
{
    return key < job.shared;
}

/* What is going to be done, in the order in which it takes effect. */
static void note_begun(desk *d, const pending *p)
{
    for (unsigned i = 0; i < p->n; i++) {
        int64_t key = p->keys[i];
        int64_t by = soak_get(p->values, i * job.length);

        if (p->kind == 'U' && is_shared(key)) {
            atomic_fetch_add_explicit(&d->books->begun[key], by,
                                      memory_order_relaxed);
            d->issued[key] += by;
        } else if (p->kind == 'U') {
            d->books->value[key] += by;
        } else if (p->kind == 'S') {
            d->books->value[key] = by;
        }
    }
}

static void note_ended(desk *d, const pending *p, bool well)
{
    for (unsigned i = 0; i < p->n && strchr("US", p->kind) != NULL; i++) {
        int64_t key = p->keys[i];

        if (!well) {
            d->books->unknown[key] = true;
        } else if (is_shared(key)) {
            atomic_fetch_add_explicit(&d->books->done[key],
                                      soak_get(p->values, i * job.length),
                                      memory_order_relaxed);
        }
    }
}

static void check_row(desk *d, const pending *p, unsigned i, bool exact)
{
    int64_t key = p->keys[i];
    const uint64_t at = i * job.length;
    int64_t got = soak_get(p->values, at);
    bool mine = p->want[i] >= 0 && !d->books->unknown[key];

    for (uint64_t e = 1; e < job.length; e++) {
        if (soak_get(p->values, at + e) != got) {
            WT_FAIL("key %lld is torn: element 0 is %lld, %llu is %lld",
                    (long long)key, (long long)got, (unsigned long long)e,
                    (long long)soak_get(p->values, at + e));
        }
    }
    if (exact && mine &&
        (is_shared(key) ? got < p->want[i] : got != p->want[i])) {
        WT_FAIL("a worker pulls key %lld, %s, as %lld after writing %lld",
                (long long)key, is_shared(key) ? "shared" : "its own",
                (long long)got, (long long)p->want[i]);
    }
}

/* --- operations ----------------------------------------------------------- */

static void finish(desk *d, pending *p, weft_status st)
{
    static const char *const names[] = {"pull", "push", "set", "localize"};
    const char *name = names[strchr("PUSL", p->kind) - "PUSL"];
    bool well = soak_tolerates(st, name);
    /* Before a death, which may take away what was written. */
    bool exact = atomic_load(&board->struck) == 0;

    note_ended(d, p, well);
    for (unsigned i = 0; well && p->kind == 'P' && i < p->n; i++) {
        check_row(d, p, i, exact);
    }
    p->kind = 0;
}

static void await(desk *d, pending *p)
{
    weft_status st;

    if (p->request != NULL) {
        st = weft_request_wait(p->request, 0);
        finish(d, p, st);
        weft_request_release(p->request);
        p->request = NULL;
    }
}

static int64_t draw_key(desk *d, char kind)
{
    uint64_t r = soak_random(&d->me->seed);
    int64_t workers = (int64_t)(job.ranks * job.threads);
    int64_t own = (job.keys - job.shared) / workers;
    int64_t hot = job.shared < 8 ? job.shared : 8;

    if (kind == 'S' || (r & 3) == 0) { /* one of its own */
        return own == 0 ? -1
                        : job.shared + (int64_t)(r >> 8) % own * workers +
                              (int64_t)d->me->number;
    }
    if (kind != 'U' && (r & 15) == 1) { /* anybody's */
        return (int64_t)(r >> 8) % job.keys;
    }
    return (int64_t)(r >> 8) % ((r & 16) != 0 ? hot : job.shared);
}

static bool is_own(const desk *d, int64_t key)
{
    return !is_shared(key) &&
           (unsigned)((key - job.shared) % (job.ranks * job.threads)) ==
               d->me->number;
}

static void fill(desk *d, pending *p, char kind)
{
    unsigned most = soak_random(&d->me->seed) % 4 == 0 ? 1 : job.batch;
    unsigned n = 1 + (unsigned)(soak_random(&d->me->seed) % most);

    p->kind = kind;
    p->n = 0;
    for (unsigned i = 0; i < n; i++) {
        int64_t key = draw_key(d, kind);
        int64_t by =
            kind == 'S' ? (int64_t)(soak_random(&d->me->seed) % 1000) : 1;

        if (key < 0) {
            continue;
        }
        for (uint64_t e = 0; e < job.length; e++) {
            soak_put(p->values, p->n * job.length + e, by);
        }
        p->keys[p->n] = key;
        p->want[p->n] = is_shared(key)   ? d->issued[key]
                        : is_own(d, key) ? d->books->value[key]
                                         : -1;
        p->n++;
    }
}

static void start(desk *d, pending *p, bool wait)
{
    weft_pairs pairs = {.keys = {.at = p->keys, .type = WEFT_I64, .n = p->n},
                        .values = p->values,
                        .length = p->n * job.length};
    weft_request **request = wait ? NULL : &p->request;
    weft_status st;

    note_begun(d, p);
    switch (p->kind) {
    case 'P':
        st = weft_store_pull(d->worker, &pairs, request);
        break;
    case 'U':
        st = weft_store_push(d->worker, &pairs, request);
        break;
    case 'S':
        st = weft_store_set(d->worker, &pairs, request);
        break;
    default:
        pairs.keys.n = p->n < 2 ? p->n : 2;
        st = weft_store_localize(d->worker, &pairs.keys, request);
    }
    atomic_fetch_add_explicit(&board->operations, p->n, memory_order_relaxed);
    if (p->request == NULL) {
        finish(d, p, st);
    }
}

static void intend(desk *d, pending *p)
{
    uint64_t r = soak_random(&d->me->seed);
    int64_t from = weft_worker_clock(d->worker) + (int64_t)(r & 7);
    weft_ids ids = {.at = p->keys, .type = WEFT_I64, .n = p->n};

    (void)soak_tolerates(weft_store_intent(d->worker, &ids, from,
                                           from + 1 + (int64_t)(r >> 4 & 15)),
                         "intent");
    atomic_fetch_add_explicit(&board->operations, p->n, memory_order_relaxed);
    p->kind = 0;
}

/* Half of a sample, the rest, or nothing more of it. */
static void sample(desk *d, pending *p)
{
    uint64_t n = p->n;
    int64_t id;
    weft_pairs pairs = {
        .keys = {.at = p->keys, .type = WEFT_I64, .n = (n + 1) / 2},
        .values = p->values,
        .length = (n + 1) / 2 * job.length};
    bool well = soak_tolerates(
        weft_sample_prepare(d->worker, n, weft_worker_clock(d->worker), 0, &id),
        "sample");

    p->kind = 0;
    if (!well) {
        return;
    }
    p->kind = 'P';
    p->n = (unsigned)pairs.keys.n;
    for (unsigned i = 0; i < p->n; i++) {
        p->want[i] = -1;
    }
    if (soak_tolerates(weft_sample_pull(d->worker, id, &pairs, NULL),
                       "sample")) {
        finish(d, p, WEFT_OK);
    }
    p->kind = 0;
    if (n > pairs.keys.n) { /* else it was forgotten when it was used up */
        WT_OK(weft_sample_finish(d->worker, id));
    }
    atomic_fetch_add_explicit(&board->samples, n, memory_order_relaxed);
    atomic_fetch_add_explicit(&board->operations, n, memory_order_relaxed);
}

static void step(desk *d, pending *p)
{
    static const char kinds[] = "UUUUUUUUUUUUUPPPPPPPPSSSIIIIIIXXL";
    uint64_t r = soak_random(&d->me->seed);
    char kind = kinds[r % (sizeof(kinds) - 1)];

    await(d, p);
    fill(d, p, kind == 'X' ? 'P' : kind);
    if (job.fault == SOAK_STARVE && (r >> 16) % 64 == 0) {
        wf_alloc_fail_nth(1 + (unsigned)(r >> 24 & 7));
    }
    if (kind == 'I') {
        intend(d, p);
    } else if (kind == 'X' && p->n > 0) {
        sample(d, p);
    } else if (kind != 'L' || (r >> 16) % 64 == 0) {
        start(d, p, (r >> 32) % 4 == 0);
    } else if ((r >> 16) % 64 == 1) {
        if (!soak_tolerates(weft_store_wait_sync(d->worker), "wait_sync")) {
            atomic_store(&board->lost, 1);
        }
    }
    wf_alloc_fail_nth(0);
    if ((r >> 40) % 2 == 0) {
        weft_worker_advance(d->worker);
    }
}

void *soak_work(void *arg)
{
    soak_worker *me = arg;
    desk *d = calloc(1, sizeof(*d));

    wt_speak_for(me->rank);
    WT_CHECK(d != NULL);
    d->me = me;
    d->books = &board->books[me->number];
    for (int64_t key = 0; key < job.shared; key++) {
        d->issued[key] = atomic_load(&d->books->done[key]);
    }
    d->worker = me->worker;
    for (unsigned i = 0; atomic_load(&board->over) == 0; i++) {
        step(d, &d->pending[i % SOAK_PENDING]);
        atomic_fetch_add_explicit(&board->steps[me->rank], 1,
                                  memory_order_relaxed);
    }
    for (unsigned i = 0; i < SOAK_PENDING; i++) {
        await(d, &d->pending[i]);
    }
    free(d);
    return NULL;
}
