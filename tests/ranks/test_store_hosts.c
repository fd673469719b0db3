/* SPDX-License-Identifier: Apache-2.0 */
/* A store over pretended nodes: what its header promises, whatever moves. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <weft/coll.h>

#include "store/hosts/hosts.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_launched.h"
#include "wt_store.h"

#define KEYS 40u
#define LENGTH 3u

static void run_shapes(wt_body *body)
{
    for (unsigned hosts = 1; hosts <= 4; hosts++) {
        for (unsigned ranks = 1; ranks <= 2; ranks++) {
            wt_run_nodes(hosts, ranks, body);
        }
    }
}

static weft_store *make(weft_world *world, weft_store_options o)
{
    weft_store *store = NULL;

    o.size = sizeof(o);
    o.keys = KEYS;
    o.length = LENGTH;
    o.cache = o.cache > 0 ? o.cache : 3 * KEYS;
    WT_OK(weft_store_create(weft_world_comm(world), &o, &store));
    return store;
}

/* --- plain operations ------------------------------------------------------
 */

/* Of a rank that has pushed to and pulled all keys. */
static void check_counts(weft_store *store)
{
    weft_store_info info;
    weft_store_stats s;

    weft_store_describe(store, &info);
    weft_store_count(store, &s);
    WT_CHECK(s.pulls >= KEYS && s.pushes >= KEYS);
    WT_CHECK((s.messages > 0) == (info.hosts > 1));
    WT_CHECK(s.bytes >= s.messages);
    WT_CHECK((s.local_pulls < s.pulls) == (info.hosts > 1));
    WT_OK(weft_store_barrier(store));
    weft_store_reset_count(store);
    weft_store_count(store, &s);
    WT_CHECK(s.pulls == 0 && s.pushes == 0);
}

static void all_keys_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.type = WEFT_I64});
    uint32_t ranks = weft_world_size(world);
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    for (int64_t key = 0; key < KEYS; key++) {
        int64_t values[LENGTH] = {1, 10, key};
        weft_pairs p = wt_pairs(&key, 1, values, LENGTH);

        WT_OK(weft_store_push(worker, &p, NULL));
    }
    WT_OK(weft_store_barrier(store));
    for (int64_t key = 0; key < KEYS; key++) {
        int64_t values[LENGTH] = {0};
        weft_pairs p = wt_pairs(&key, 1, values, LENGTH);

        WT_OK(weft_store_pull(worker, &p, NULL));
        WT_CHECK(values[0] == ranks && values[1] == 10 * ranks &&
                 values[2] == key * ranks);
    }
    WT_OK(weft_store_barrier(store));
    if (weft_world_rank(world) == 0) {
        for (int64_t key = 0; key < KEYS; key++) {
            int64_t values[LENGTH] = {7, 8, 9};
            weft_pairs p = wt_pairs(&key, 1, values, LENGTH);

            WT_OK(weft_store_set(worker, &p, NULL));
            values[0] = 0;
            WT_OK(weft_store_pull(worker, &p, NULL));
            WT_CHECK(values[0] == 7);
        }
    }
    check_counts(store);
    wt_store_finish(store, worker);
}

static void keys_of_all_hosts_are_pulled_pushed_and_set(void **state)
{
    (void)state;
    run_shapes(all_keys_body);
}

/* --- intent ----------------------------------------------------------------
 */

static void localize_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.type = WEFT_I64});
    uint32_t rank = weft_world_rank(world);
    int64_t keys[KEYS];
    int64_t values[KEYS * LENGTH];
    weft_pairs p = {.keys = {.at = keys, .type = WEFT_I64}, .values = values};
    weft_worker *worker;
    int local;

    WT_OK(weft_worker_create(store, &worker));
    for (int64_t k = 0; k < KEYS; k++) {
        if (k / 3 % weft_world_size(world) == rank) {
            keys[p.keys.n++] = k;
        }
    }
    p.length = p.keys.n * LENGTH;
    WT_OK(weft_store_localize(worker, &p.keys, NULL));
    WT_OK(weft_store_pull_local(worker, &p, &local));
    WT_CHECK(local == 1);
    for (uint64_t i = 0; i < p.length; i++) {
        values[i] = 5;
    }
    WT_OK(weft_store_push(worker, &p, NULL));
    wt_store_settle(store, worker);
    for (int64_t k = 0; k < KEYS; k++) {
        int64_t row[LENGTH];
        weft_pairs q = wt_pairs(&k, 1, row, LENGTH);

        WT_OK(weft_store_pull(worker, &q, NULL));
        WT_CHECK(row[0] == 5 && row[2] == 5);
    }
    wt_store_finish(store, worker);
}

/* Does the server keep anything of any key? */
static bool has_records(weft_store *store)
{
    wf_store_hosts *h = store->remote;
    bool any;

    pthread_mutex_lock(&h->world->drive);
    any = h->active.count > 0;
    for (uint32_t i = 0; i < atomic_load(&h->book.head->made); i++) {
        any = any || h->book.record[i].used != 0;
    }
    pthread_mutex_unlock(&h->world->drive);
    return any;
}

/* All keys to the host of the last rank, and an intent that ends. */
static void fetch_all(weft_store *store, weft_worker *worker)
{
    int64_t keys[KEYS];
    weft_ids ids = {.at = keys, .type = WEFT_I64, .n = KEYS};
    weft_store_stats now;

    for (int64_t k = 0; k < KEYS; k++) {
        keys[k] = k;
    }
    WT_OK(weft_store_intent(worker, &ids, 0, 1));
    do {
        WT_OK(weft_store_wait_sync(worker));
        weft_store_count(store, &now);
    } while (now.owned < KEYS);
    weft_worker_advance(worker);
}

static void records_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.type = WEFT_I64});
    bool last = weft_world_rank(world) + 1 == weft_world_size(world);
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    if (last) {
        fetch_all(store, worker);
    }
    WT_OK(weft_store_barrier(store));
    do {
        WT_OK(weft_store_wait_sync(worker));
    } while (has_records(store));
    for (int64_t key = 0; key < KEYS; key++) {
        int64_t values[LENGTH] = {1, 1, 1};
        weft_pairs p = wt_pairs(&key, 1, values, LENGTH);

        WT_OK(weft_store_push(worker, &p, NULL));
    }
    WT_OK(weft_store_barrier(store));
    for (int64_t key = 0; key < KEYS; key++) {
        int64_t values[LENGTH] = {0};
        weft_pairs p = wt_pairs(&key, 1, values, LENGTH);

        WT_OK(weft_store_pull(worker, &p, NULL));
        WT_CHECK(values[2] == weft_world_size(world));
    }
    WT_CHECK(!has_records(store));
    wt_store_finish(store, worker);
}

static void keys_that_moved_and_nobody_wants_have_no_records(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, records_body);
    wt_run_nodes(3, 2, records_body);
}

static void localized_keys_are_here(void **state)
{
    (void)state;
    run_shapes(localize_body);
}

/* --- everything at once ----------------------------------------------------
 */

typedef struct mix {
    weft_store *store;
    uint64_t seed;
    uint64_t pushed; /* ones that it added to element 0, in all */
    unsigned steps;
} mix;

#define BATCH 8u

static void mix_step(mix *m, weft_worker *worker, weft_request **request)
{
    int64_t keys[BATCH];
    int64_t values[BATCH * LENGTH];
    weft_pairs p = {.keys = {.at = keys, .type = WEFT_I64, .n = BATCH},
                    .values = values,
                    .length = BATCH * LENGTH};
    int64_t clock = weft_worker_clock(worker);
    uint64_t what = wt_random(&m->seed) % 16;

    for (unsigned i = 0; i < BATCH; i++) {
        uint64_t r = wt_random(&m->seed);

        keys[i] = (int64_t)(r % (r >> 60 < 8 ? KEYS : 6)); /* six are hot */
    }
    for (unsigned i = 0; i < BATCH * LENGTH; i++) {
        values[i] = 1;
    }
    if (what < 8) {
        WT_OK(weft_store_push(worker, &p, what < 4 ? request : NULL));
        m->pushed += BATCH;
    } else if (what < 11) {
        WT_OK(weft_store_pull(worker, &p, NULL));
        for (unsigned i = 0; i < BATCH; i++) {
            WT_CHECK(values[i * LENGTH] == values[i * LENGTH + 1] &&
                     values[i * LENGTH] == values[i * LENGTH + 2]);
        }
    } else if (what < 15) {
        WT_OK(weft_store_intent(worker, &p.keys, clock + 2,
                                clock + 4 + (int64_t)(what % 3) * 5));
    } else if (wt_random(&m->seed) % 64 == 0) {
        p.keys.n = 1; /* for ever */
        WT_OK(weft_store_localize(worker, &p.keys, NULL));
    }
    if (what % 2 == 0) {
        weft_worker_advance(worker);
    }
}

static void *mix_main(void *arg)
{
    mix *m = arg;
    weft_request *request[8] = {NULL};
    weft_worker *worker;

    WT_OK(weft_worker_create(m->store, &worker));
    for (unsigned i = 0; i < m->steps; i++) {
        weft_request **r = &request[i % 8];

        if (*r != NULL) {
            WT_OK(weft_request_wait(*r, 0));
            weft_request_release(*r);
            *r = NULL;
        }
        mix_step(m, worker, r);
    }
    for (unsigned i = 0; i < 8; i++) {
        if (request[i] != NULL) {
            WT_OK(weft_request_wait(request[i], 0));
            weft_request_release(request[i]);
        }
    }
    weft_worker_destroy(worker);
    return NULL;
}

static void check_totals(weft_world *world, weft_store *store, uint64_t pushed)
{
    int64_t all[3] = {0};
    int64_t mine = (int64_t)pushed;
    weft_worker *worker;

    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_barrier(store));
    wt_store_settle(store, worker);
    WT_OK(weft_allreduce(weft_world_comm(world), &mine, &mine, 1, WEFT_I64,
                         (weft_op){.kind = WEFT_OP_SUM}));
    for (int64_t k = 0; k < KEYS; k++) {
        int64_t row[LENGTH];
        weft_pairs p = wt_pairs(&k, 1, row, LENGTH);

        WT_OK(weft_store_pull(worker, &p, NULL));
        for (unsigned i = 0; i < LENGTH; i++) {
            all[i] += row[i];
        }
    }
    if (all[0] != mine) {
        fprintf(stderr, "%lld of %lld\n", (long long)all[0], (long long)mine);
    }
    WT_CHECK(all[0] == mine && all[1] == mine && all[2] == mine);
    WT_OK(weft_store_barrier(store));
    weft_worker_destroy(worker);
}

static weft_techniques mix_techniques;
static unsigned mix_threads;
static unsigned mix_steps;

/* What happened in all runs, in memory that their processes share. */
typedef struct tally {
    _Atomic uint64_t operations; /* on keys */
    _Atomic uint64_t moved;
    _Atomic uint64_t copied;
    _Atomic uint64_t expired;
    _Atomic uint64_t parked;
} tally;
static tally *sum;

static void count_up(weft_store *store)
{
    weft_store_stats s;

    weft_store_count(store, &s);
    atomic_fetch_add(&sum->operations, s.pulls + s.pushes);
    atomic_fetch_add(&sum->moved, s.moved_in);
    atomic_fetch_add(&sum->copied, s.copied_in);
    atomic_fetch_add(&sum->expired, s.expired);
    atomic_fetch_add(&sum->parked, s.parked);
    if (mix_techniques == WEFT_REPLICATION_ONLY) {
        WT_CHECK(s.moved_in == 0);
    } else if (mix_techniques == WEFT_RELOCATION_ONLY) {
        WT_CHECK(s.copied_in == 0);
    }
    if (wt_rank() == 0 && getenv("WT_SHOW") != NULL) {
        wt_note("moved in %llu out %llu, copied %llu expired %llu parked %llu "
                "forwarded %llu refused %llu rounds %llu stale %.4f",
                (unsigned long long)s.moved_in, (unsigned long long)s.moved_out,
                (unsigned long long)s.copied_in, (unsigned long long)s.expired,
                (unsigned long long)s.parked, (unsigned long long)s.forwarded,
                (unsigned long long)s.refused, (unsigned long long)s.rounds,
                s.staleness);
    }
}

static void mix_body(weft_world *world)
{
    weft_store *store =
        make(world, (weft_store_options){.type = WEFT_I64,
                                         .techniques = mix_techniques,
                                         .rounds = 5000});
    uint32_t rank = weft_world_rank(world);
    mix m[3];
    pthread_t thread[3];
    uint64_t pushed = 0;

    for (unsigned t = 0; t < mix_threads; t++) {
        m[t] = (mix){.store = store,
                     .seed = 88172645463325252ull * (rank * 3 + t + 1),
                     .steps = mix_steps};
        WT_CHECK(pthread_create(&thread[t], NULL, mix_main, &m[t]) == 0);
    }
    for (unsigned t = 0; t < mix_threads; t++) {
        WT_CHECK(pthread_join(thread[t], NULL) == 0);
        pushed += m[t].pushed;
    }
    check_totals(world, store, pushed);
    count_up(store);
    weft_store_destroy(store);
}

/* On one host operations are cheap, and there are more of them. */
static unsigned steps_of(unsigned hosts)
{
    unsigned n = WT_TSAN || WT_ASAN ? 40 : 230;

    if (getenv("WT_STEPS") != NULL) {
        return (unsigned)atoi(getenv("WT_STEPS"));
    }
    return hosts == 1 ? 40 * n : n;
}

/* Ranks are processes and threads in turn. */
static void mix_shape(unsigned hosts, unsigned ranks)
{
    wt_job job = wt_job_on_nodes(hosts, ranks, mix_body);

    if (WT_TSAN || (hosts + ranks + mix_threads) % 2 != 0) {
        wt_run_job_threads(&job);
    } else {
        wt_run_job(&job);
    }
}

static void mix_shapes(void)
{
    for (unsigned hosts = 1; hosts <= 4; hosts++) {
        mix_steps = steps_of(hosts);
        for (unsigned ranks = 1; ranks <= 2; ranks++) {
            for (mix_threads = 1; mix_threads <= 3; mix_threads++) {
                mix_shape(hosts, ranks);
            }
        }
    }
}

/* Has it happened? A process that mpirun has started knows of its own rank
 * only, which may have had no part in a job. */
static bool happened(uint64_t times)
{
    return times > 0 || wt_launched();
}

static void totals_are_exact_whatever_moves(void **state)
{
    (void)state;
    sum = mmap(NULL, sizeof(*sum), PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(sum != MAP_FAILED);
    mix_techniques = WEFT_TECHNIQUES_ALL;
    mix_shapes();
    assert_true(happened(sum->moved) && happened(sum->copied) &&
                happened(sum->expired) && happened(sum->parked));
    assert_true(WT_TSAN || WT_ASAN || wt_launched() ||
                sum->operations >= 1000000);
    munmap(sum, sizeof(*sum));
}

static void totals_are_exact_if_keys_are_only_copied_or_moved(void **state)
{
    (void)state;
    sum = mmap(NULL, sizeof(*sum), PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(sum != MAP_FAILED);
    mix_steps = steps_of(2);
    mix_threads = 2;
    mix_techniques = WEFT_REPLICATION_ONLY;
    wt_run_nodes(3, 1, mix_body);
    assert_true(happened(sum->copied));
    mix_techniques = WEFT_RELOCATION_ONLY;
    wt_run_nodes(3, 1, mix_body);
    assert_true(happened(sum->moved));
    munmap(sum, sizeof(*sum));
}

/* --- what is counted and told ----------------------------------------------
 */

static void refused_body(weft_world *world)
{
    weft_store *store =
        make(world, (weft_store_options){.type = WEFT_I64, .cache = 1});
    int64_t keys[KEYS];
    weft_ids all = {.at = keys, .type = WEFT_I64, .n = KEYS};
    weft_worker *worker;
    weft_store_stats s;

    for (int64_t i = 0; i < KEYS; i++) {
        keys[i] = i;
    }
    WT_OK(weft_worker_create(store, &worker));
    WT_OK(weft_store_intent(worker, &all, 0, 100));
    for (int i = 0; i < 5; i++) {
        wt_store_settle(store, worker);
    }
    weft_store_count(store, &s);
    WT_CHECK(s.rounds >= 10 && s.refused > 0);
    WT_CHECK(s.refused <= KEYS);
    wt_store_finish(store, worker);
}

static void an_intent_without_room_is_counted_once(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, refused_body);
    wt_run_nodes(3, 1, refused_body);
}

/* As if the server had noticed that a difference was lost. */
static void lost_body(weft_world *world)
{
    weft_store *store = make(world, (weft_store_options){.type = WEFT_I64});
    wf_book_head *head = store->remote->book.head;
    weft_worker *early;
    weft_worker *late;
    weft_worker *last;

    WT_OK(weft_worker_create(store, &early));
    atomic_store(&head->lost_with, 1 + weft_world_rank(world));
    atomic_store(&head->lost, 3);
    WT_OK(weft_worker_create(store, &late));
    WT_STATUS(weft_store_wait_sync(late), WEFT_ERR_PEER);
    WT_CHECK(strstr(weft_error_detail(), "3 keys") != NULL);
    WT_STATUS(weft_store_wait_sync(early), WEFT_ERR_PEER);
    WT_OK(weft_worker_create(store, &last));
    WT_OK(weft_store_wait_sync(last));
    WT_OK(weft_store_wait_sync(late));
    atomic_store(&head->lost, 4);
    WT_STATUS(weft_store_wait_sync(last), WEFT_ERR_PEER);
    WT_CHECK(strstr(weft_error_detail(), "1 keys") != NULL);
    weft_worker_destroy(early);
    weft_worker_destroy(late);
    weft_worker_destroy(last);
    weft_store_destroy(store);
}

static void a_worker_is_told_of_what_was_lost_before_it_was_made(void **state)
{
    (void)state;
    wt_run_nodes(2, 1, lost_body);
}

/* --- the world goes first --------------------------------------------------
 */

static wt_job left; /* set before the ranks are forked */

/* Rank 0 leaves the job, and the threads of its store go on for a while. */
static void left_bare(void)
{
    weft_worker *worker;
    weft_world *world;
    weft_store *store;

    WT_OK(wt_join(left.settings_of(wt_rank()), 0, &world));
    store = make(world, (weft_store_options){.type = WEFT_I64, .rounds = -1});
    WT_OK(weft_worker_create(store, &worker));
    if (wt_rank() == 1) {
        fetch_all(store, worker);
    }
    wt_meet();
    if (wt_rank() == 0) {
        wf_store_hosts *h = store->remote;

        weft_world_destroy(world);
        pthread_mutex_lock(&h->world->drive);
        wf_hosts_look(h);
        wf_serve_tick(h, 0, true);
        wf_out_flush(h);
        pthread_mutex_unlock(&h->world->drive);
        weft_worker_destroy(worker);
        weft_store_destroy(store);
        wt_meet();
        return;
    }
    wt_meet();
    weft_worker_destroy(worker);
    weft_store_destroy(store);
    weft_world_destroy(world);
}

static void a_store_whose_world_is_gone_sends_nothing(void **state)
{
    (void)state;
    left = wt_job_on_nodes(2, 1, NULL);
    left.bare = left_bare;
    for (unsigned i = 0; i < 10; i++) {
        wt_run_job_both(&left);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_all_hosts_are_pulled_pushed_and_set),
        cmocka_unit_test(localized_keys_are_here),
        cmocka_unit_test(an_intent_without_room_is_counted_once),
        cmocka_unit_test(a_worker_is_told_of_what_was_lost_before_it_was_made),
        cmocka_unit_test(keys_that_moved_and_nobody_wants_have_no_records),
        cmocka_unit_test(totals_are_exact_whatever_moves),
        cmocka_unit_test(totals_are_exact_if_keys_are_only_copied_or_moved),
        cmocka_unit_test(a_store_whose_world_is_gone_sends_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
