/* SPDX-License-Identifier: Apache-2.0 */
/* A switch that dies, comes back, is asked by strangers, or has no room: all
 * are told, nobody hangs, nothing is harmed. */
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agg/key.h"
#include "base/time.h"
#include "comm/call.h"
#include "rig.h"
#include "wt.h"
#include "wt_cmocka.h"

static const char *const no_options[] = {NULL};
static worker w[RIG_WORKERS];

enum { COUNT = 5000 };

/* Calls until one fails, and at most a minute; ctx counts calls. */
static weft_status call_until_it_fails(worker *me)
{
    _Atomic unsigned *calls = me->ctx;
    uint64_t end = wf_now_ns() + 60 * WF_SEC;
    int32_t x[COUNT];
    weft_status st = worker_join(me);

    while (st == WEFT_OK && wf_now_ns() < end) {
        for (unsigned i = 0; i < COUNT; i++) {
            x[i] = (int32_t)i;
        }
        st = worker_allreduce(me, x, x, COUNT, WEFT_I32, WEFT_OP_SUM, false);
        for (unsigned i = 0; st == WEFT_OK && i < COUNT; i++) {
            if (x[i] != (int32_t)(i * me->options.ranks)) {
                return WEFT_ERR_PROTOCOL;
            }
        }
        atomic_fetch_add(calls, 1);
    }
    return st;
}

typedef struct killer {
    rig *rig;
    int signal;
    _Atomic unsigned *calls;
    atomic_bool is_over; /* no worker calls any more */
    int exit;
} killer;

static void *kill_after_some_calls(void *arg)
{
    killer *k = arg;

    while (atomic_load(k->calls) < 40 && !atomic_load(&k->is_over)) {
        usleep(100);
    }
    k->exit = rig_stop(k->rig, k->signal);
    return NULL;
}

static void end_during_calls(rig *r, int signal, int expected)
{
    _Atomic unsigned calls = 0;
    killer k = {.rig = r, .signal = signal, .calls = &calls};
    wf_agg_options like = worker_options(0, 3, 1);
    pthread_t thread;
    uint64_t began;

    like.patience_ns = 2 * WF_SEC;
    assert_int_equal(pthread_create(&thread, NULL, kill_after_some_calls, &k),
                     0);
    began = wf_now_ns();
    run_workers(r, &like, call_until_it_fails, &calls, w);
    atomic_store(&k.is_over, true);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&calls) >= 40);
    assert_int_equal(k.exit, expected);
    assert_true(wf_now_ns() - began < 30 * WF_SEC);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(w[i].status, WEFT_ERR_PEER);
    }
}

static void a_switch_that_is_killed_is_noticed_and_comes_back(void **state)
{
    rig r;

    (void)state;
    rig_init(&r);
    for (unsigned turn = 0; turn < 3; turn++) {
        uint16_t port = r.port;

        rig_start(&r, no_options);
        assert_true(port == 0 || r.port == port);
        end_during_calls(&r, turn == 0 ? SIGTERM : SIGKILL,
                         turn == 0 ? 0 : -SIGKILL);
    }
    rig_fini(&r);
}

/* --- strangers ------------------------------------------------------------ */

static weft_status just_join(worker *me)
{
    return worker_join(me);
}

static void another_key_is_refused(void **state)
{
    wf_agg_options like = worker_options(0, 1, 2);
    rig r;
    rig other;

    (void)state;
    rig_init(&r);
    rig_init(&other);
    rig_start(&r, no_options);
    other.port = r.port;
    run_workers(&other, &like, just_join, NULL, w);
    assert_int_equal(w[0].status, WEFT_ERR_DENIED);
    assert_true(rig_metric(&r, "weft_switch_refused_ranks_total{why=\"the keys "
                               "differ\"}") == 1);
    run_workers(&r, &like, just_join, NULL, w);
    assert_int_equal(w[0].status, WEFT_OK);
    rig_fini(&other);
    rig_fini(&r);
}

static int udp_socket(void)
{
    wf_udp_address own = {.length = sizeof(struct sockaddr_in)};
    int fd;

    own.at.ss_family = AF_INET;
    assert_int_equal(wf_udp_open(&own, true, &fd), WEFT_OK);
    return fd;
}

/* Rank 0 records what it would send, calls, and then sends the record many
 * times, from elsewhere, with another value in it. */
static weft_status replay(worker *me)
{
    struct {
        wf_agg_head head;
        int32_t value;
    } packet = {{.kind = WF_AGG_DATA}, 1000};
    wf_udp_address at = rig_address(me->rig);
    weft_status st = worker_join(me);
    int32_t x = 1;
    int fd = udp_socket();

    packet.head =
        (wf_agg_head){.kind = WF_AGG_DATA,
                      .job = me->client.link[0].session.joined.job,
                      .epoch = me->client.link[0].session.joined.epoch,
                      .total = 1,
                      .hash = 1,
                      .ranks = 2,
                      .count = 1,
                      .call = WF_CALL_ALLREDUCE,
                      .type = WEFT_I32,
                      .op = WEFT_OP_SUM};
    wf_agg_seal(&me->client.link[0].key, &packet.head, &packet.value);
    for (unsigned call = 0; call < 300 && st == WEFT_OK; call++) {
        x = 1;
        st = worker_allreduce(me, &x, &x, 1, WEFT_I32, WEFT_OP_SUM, false);
        st = st == WEFT_OK && x != 2 ? WEFT_ERR_PROTOCOL : st;
        if (me->options.rank == 0) {
            (void)!sendto(fd, &packet, sizeof(packet), 0,
                          (const struct sockaddr *)&at.at, at.length);
        }
    }
    close(fd);
    return st;
}

static void replays_change_nothing(void **state)
{
    wf_agg_options like = worker_options(0, 2, 3);
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, no_options);
    for (unsigned turn = 0; turn < 2; turn++) {
        run_workers(&r, &like, replay, NULL, w);
        assert_int_equal(w[0].status, WEFT_OK);
        assert_int_equal(w[1].status, WEFT_OK);
    }
    rig_fini(&r);
}

/* Random bytes, and packets of ours that are cut or changed, to both ports. */
static void throw_garbage(const rig *r, unsigned seed)
{
    wf_udp_address at = rig_address(r);
    unsigned char bytes[2000];
    int udp = udp_socket();

    srand(seed);
    for (unsigned i = 0; i < 500; i++) {
        size_t n = (size_t)rand() % sizeof(bytes);
        wf_agg_head head = {.magic = WF_AGG_MAGIC, .format = WF_AGG_FORMAT};

        for (size_t k = 0; k < n; k++) {
            bytes[k] = (unsigned char)rand();
        }
        head.job = (uint32_t)rand() % 4096;
        if (i % 2 == 0 && n >= sizeof(head)) {
            memcpy(bytes, &head, sizeof(head));
        }
        (void)!sendto(udp, bytes, n, 0, (const struct sockaddr *)&at.at,
                      at.length);
        if (i % 20 == 0) {
            int tcp = socket(AF_INET, SOCK_STREAM, 0);

            (void)connect(tcp, (const struct sockaddr *)&at.at, at.length);
            (void)send(tcp, bytes, n, MSG_NOSIGNAL);
            close(tcp);
        }
    }
    close(udp);
}

static weft_status some_calls(worker *me)
{
    int32_t x[COUNT];
    weft_status st = worker_join(me);

    for (unsigned call = 0; call < 20 && st == WEFT_OK; call++) {
        for (unsigned i = 0; i < COUNT; i++) {
            x[i] = (int32_t)i;
        }
        if (me->options.rank == 0) {
            throw_garbage(me->rig, call);
        }
        st = worker_allreduce(me, x, x, COUNT, WEFT_I32, WEFT_OP_SUM, false);
        for (unsigned i = 0; st == WEFT_OK && i < COUNT; i++) {
            st = x[i] == (int32_t)(2 * i) ? WEFT_OK : WEFT_ERR_PROTOCOL;
        }
    }
    return st;
}

static void garbage_is_counted_and_harmless(void **state)
{
    wf_agg_options like = worker_options(0, 2, 4);
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, no_options);
    run_workers(&r, &like, some_calls, NULL, w);
    assert_int_equal(w[0].status, WEFT_OK);
    assert_int_equal(w[1].status, WEFT_OK);
    assert_true(rig_metric(&r, "weft_switch_strangers_total") > 1000);
    assert_int_equal(rig_stop(&r, SIGTERM), 0);
    rig_fini(&r);
}

/* More connections than a switch keeps, which say nothing. */
static void silent_strangers_keep_no_job_out(void **state)
{
    wf_agg_options like = worker_options(0, 2, 11);
    wf_udp_address at;
    int fd[400];
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, no_options);
    at = rig_address(&r);
    for (unsigned i = 0; i < 400; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(
            connect(fd[i], (const struct sockaddr *)&at.at, at.length), 0);
    }
    run_workers(&r, &like, some_calls, NULL, w);
    assert_int_equal(w[0].status, WEFT_OK);
    assert_int_equal(w[1].status, WEFT_OK);
    for (unsigned i = 0; i < 400; i++) {
        close(fd[i]);
    }
    rig_fini(&r);
}

/* --- ranks that do not fit together --------------------------------------- */

static weft_status call_differently(worker *me)
{
    int32_t x[COUNT] = {0};
    weft_status st = worker_join(me);

    if (st == WEFT_OK) {
        st = worker_allreduce(me, x, x, me->options.rank == 2 ? 900 : 1000,
                              WEFT_I32, WEFT_OP_SUM, false);
    }
    return st;
}

static void different_calls_are_named(void **state)
{
    static const char *const some[] = {"--inject", "loss=0.2,seed=9", NULL};
    wf_agg_options like = worker_options(0, 3, 5);
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, some);
    run_workers(&r, &like, call_differently, NULL, w);
    for (unsigned i = 0; i < 3; i++) {
        const wf_agg_called *c = w[i].client.called;

        assert_int_equal(w[i].status, WEFT_ERR_MISMATCH);
        assert_true(c[0].rank == 2 || c[1].rank == 2);
        assert_int_equal(c[0].rank == 2 ? c[0].total : c[1].total, 900);
        assert_int_equal(c[0].rank == 2 ? c[1].total : c[0].total, 1000);
    }
    rig_fini(&r);
}

/* Rank 1 never calls. The others learn who is missing. */
static weft_status wait_for_one(worker *me)
{
    const wf_agg_call call = {.src = me->text,
                              .dst = me->text,
                              .count = 1,
                              .kind = WF_CALL_ALLREDUCE,
                              .type = WEFT_U8,
                              .op = WEFT_OP_SUM};
    _Atomic unsigned *told = me->ctx;
    weft_status st = worker_join(me);

    if (st == WEFT_OK && me->options.rank != 1) {
        wf_agg_client_begin(&me->client, &call, wf_now_ns());
        while (st == WEFT_OK && me->client.missing != 1) {
            st = wf_agg_client_step(&me->client, wf_now_ns());
        }
        atomic_fetch_add(told, 1);
    }
    while (st == WEFT_OK && atomic_load(told) < 2) {
        usleep(100);
    }
    return st;
}

static void a_missing_rank_is_named(void **state)
{
    wf_agg_options like = worker_options(0, 3, 6);
    _Atomic unsigned told = 0;
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, no_options);
    run_workers(&r, &like, wait_for_one, &told, w);
    assert_int_equal(w[0].status, WEFT_OK);
    assert_int_equal(w[0].client.missing, 1);
    assert_int_equal(w[2].client.missing, 1);
    rig_fini(&r);
}

/* --- quotas --------------------------------------------------------------- */

static weft_status join_and_hold(worker *me)
{
    weft_status st = worker_join(me);
    worker second = {.rig = me->rig, .options = me->options};

    if (st == WEFT_OK) {
        second.options.group[0]++;
        st = worker_join(&second);
        me->seed = second.client.link[0].session.joined.status;
        wf_agg_client_close(&second.client);
    }
    return st;
}

static void a_job_too_many_is_refused(void **state)
{
    static const char *const one[] = {"--jobs", "1", NULL};
    wf_agg_options like = worker_options(0, 1, 7);
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, one);
    run_workers(&r, &like, join_and_hold, NULL, w);
    assert_int_equal(w[0].status, WEFT_ERR_DENIED);
    assert_int_equal(w[0].seed, WF_AGG_REFUSED_QUOTA);
    rig_fini(&r);
}

static weft_status slots_granted(worker *me)
{
    weft_status st = worker_join(me);

    me->seed = me->client.link[0].session.joined.slots;
    return st;
}

static void little_memory_means_fewer_slots(void **state)
{
    static const char *const little[] = {"--job-memory", "100K", NULL};
    static const char *const nothing[] = {"--memory", "8K", NULL};
    wf_agg_options like = worker_options(0, 1, 8);
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, little);
    run_workers(&r, &like, slots_granted, NULL, w);
    assert_int_equal(w[0].status, WEFT_OK);
    assert_true(w[0].seed > 0 && w[0].seed < 64);
    (void)rig_stop(&r, SIGTERM);
    rig_start(&r, nothing);
    run_workers(&r, &like, slots_granted, NULL, w);
    assert_int_equal(w[0].status, WEFT_ERR_DENIED);
    rig_fini(&r);
}

static void a_job_whose_ranks_do_not_come_is_given_up(void **state)
{
    static const char *const soon[] = {"--patience", "1s", NULL};
    wf_agg_options like = worker_options(0, 1, 9);
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, soon);
    /* One of two ranks. */
    run_workers(&r, &like, just_join, NULL, w);
    assert_int_equal(w[0].status, WEFT_OK);
    w[0] = (worker){.rig = &r, .options = worker_options(0, 2, 10)};
    assert_int_equal(worker_join(&w[0]), WEFT_ERR_DENIED);
    wf_agg_client_close(&w[0].client);
    assert_true(rig_metric(&r, "weft_switch_jobs ") == 0);
    rig_fini(&r);
}

/* --- the key, and HTTP ---------------------------------------------------- */

static void a_key_is_for_its_owner_only(void **state)
{
    wf_secret key;
    rig r;

    (void)state;
    rig_init(&r);
    assert_int_equal(wf_agg_key_create(r.key_file), WEFT_ERR_SYSTEM);
    chmod(r.key_file, 0640);
    assert_int_equal(wf_agg_key_read(r.key_file, &key), WEFT_ERR_INVALID);
    chmod(r.key_file, 0600);
    assert_int_equal(wf_agg_key_read(r.key_file, &key), WEFT_OK);
    assert_memory_equal(&key, &r.key, sizeof(key));
    assert_int_equal(truncate(r.key_file, 40), 0);
    assert_int_equal(wf_agg_key_read(r.key_file, &key), WEFT_ERR_INVALID);
    rig_fini(&r);
    assert_int_not_equal(wf_agg_key_read(r.key_file, &key), WEFT_OK);
}

static void assert_answers(const rig *r, const char *path, const char *status,
                           const char *text)
{
    char *got = rig_get(r, path);

    assert_non_null(strstr(got, status));
    assert_non_null(strstr(got, text));
    free(got);
}

static void pages_are_served(void **state)
{
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, no_options);
    assert_answers(&r, "/", "200 OK", "<title>weft-switch</title>");
    assert_answers(&r, "/metrics", "200 OK", "weft_switch_uptime_seconds");
    assert_answers(&r, "/jobs.json", "200 OK", "\"jobs\":[]");
    assert_answers(&r, "/etc/passwd", "404 Not Found", "/metrics");
    rig_fini(&r);
}

/* A listener at a port of this host; -1: somebody else has the port. */
static int occupy(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    if (bind(fd, (const struct sockaddr *)&at, sizeof(at)) != 0 ||
        listen(fd, 1) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* rig_start asks for any port for the pages, also at a port for jobs that it
 * names. */
static void pages_at_any_port_need_no_certain_one(void **state)
{
    rig r;
    uint16_t port;
    int fd;

    (void)state;
    rig_init(&r);
    rig_start(&r, no_options);
    port = r.port;
    (void)rig_stop(&r, SIGKILL);
    fd = occupy((uint16_t)(port + 1));
    rig_start(&r, no_options);
    assert_int_equal(r.port, port);
    assert_int_not_equal(r.http, port + 1);
    assert_answers(&r, "/", "200 OK", "<title>weft-switch</title>");
    rig_fini(&r);
    if (fd >= 0) {
        close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_switch_that_is_killed_is_noticed_and_comes_back),
        cmocka_unit_test(another_key_is_refused),
        cmocka_unit_test(replays_change_nothing),
        cmocka_unit_test(garbage_is_counted_and_harmless),
        cmocka_unit_test(silent_strangers_keep_no_job_out),
        cmocka_unit_test(different_calls_are_named),
        cmocka_unit_test(a_missing_rank_is_named),
        cmocka_unit_test(a_job_too_many_is_refused),
        cmocka_unit_test(little_memory_means_fewer_slots),
        cmocka_unit_test(a_job_whose_ranks_do_not_come_is_given_up),
        cmocka_unit_test(a_key_is_for_its_owner_only),
        cmocka_unit_test(pages_are_served),
        cmocka_unit_test(pages_at_any_port_need_no_certain_one),
    };

    return cmocka_run_group_tests_name("switch_life", tests, NULL, NULL);
}
