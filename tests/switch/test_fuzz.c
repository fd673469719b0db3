/* SPDX-License-Identifier: Apache-2.0 */
/* A live switch that strangers, impostors and mad ranks write to: it lives,
 * counts what it refuses, and a job beside them gets exact results.
 *
 *   stranger   has no key: bytes at random, changed packets with wrong tags
 *   impostor   has recorded what others sent, and sends it again
 *   mad rank   has the key and a job: changed packets and messages that are
 *              sealed all the same */
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/time.h"
#include "comm/call.h"
#include "rig.h"
#include "wt.h"
#include "wt_cmocka.h"

enum { RANKS = 2, COUNT = 5000, PACKET = 1024 };

static uint64_t seconds_ns(void)
{
    return (wt_full() ? 60 : 3) * (uint64_t)WF_SEC;
}

static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

/* --- the job beside them -------------------------------------------------- */

static atomic_bool over;
static _Atomic unsigned calls;
/* What its ranks know, for those who have recorded their packets. */
static wf_agg_joined told;
static wf_agg_key told_key;
static atomic_bool is_told;

static bool is_right(const int32_t *x, unsigned turn)
{
    for (unsigned i = 0; i < COUNT; i++) {
        if (x[i] != (int32_t)(RANKS * (i + turn) + 1)) {
            return false;
        }
    }
    return true;
}

/* Ranks agree on the end by their sums: rank 0 adds to the first one. */
static weft_status reduce_until_over(worker *me)
{
    weft_status st = worker_join(me);
    int32_t x[COUNT];
    int32_t end[1] = {0};

    if (st == WEFT_OK && me->options.rank == 0) {
        told = me->client.link[0].session.joined;
        told_key = me->client.link[0].key;
        atomic_store(&is_told, true);
    }
    for (unsigned turn = 0; st == WEFT_OK && end[0] == 0; turn++) {
        for (unsigned i = 0; i < COUNT; i++) {
            x[i] = (int32_t)(i + turn + me->options.rank);
        }
        st = worker_allreduce(me, x, x, COUNT, WEFT_I32, WEFT_OP_SUM, false);
        if (st == WEFT_OK && !is_right(x, turn)) {
            return WEFT_ERR_PROTOCOL;
        }
        end[0] = me->options.rank == 0 && atomic_load(&over);
        if (st == WEFT_OK) {
            st =
                worker_allreduce(me, end, end, 1, WEFT_I32, WEFT_OP_SUM, false);
        }
        atomic_fetch_add(&calls, 1);
    }
    return st;
}

static void *job_main(void *arg)
{
    static worker w[RIG_WORKERS];
    const wf_agg_options like = worker_options(0, RANKS, 1);

    run_workers(arg, &like, reduce_until_over, NULL, w);
    for (unsigned i = 0; i < RANKS; i++) {
        if (w[i].status != WEFT_OK) {
            print_error("rank %u: %s\n", i, w[i].text);
            return w; /* anything but NULL */
        }
    }
    return NULL;
}

/* --- packets -------------------------------------------------------------- */

typedef struct attack {
    const rig *rig;
    uint64_t random;
    int fd;
    uint16_t port; /* of the switch's packets */
    worker mad;    /* a rank with a job of its own */
} attack;

static void change(attack *a, void *bytes, size_t n)
{
    unsigned char *at = bytes;

    for (uint64_t i = 1 + next(&a->random) % 6; i > 0; i--) {
        at[next(&a->random) % n] = (unsigned char)next(&a->random);
    }
}

static wf_agg_head head_for(attack *a, const wf_agg_joined *job, unsigned ranks)
{
    uint64_t chunk = next(&a->random) % 8;

    return (wf_agg_head){.magic = WF_AGG_MAGIC,
                         .format = WF_AGG_FORMAT,
                         .kind = WF_AGG_DATA,
                         .version =
                             (uint8_t)wf_agg_version_of(chunk, job->slots),
                         .job = job->job,
                         .epoch = job->epoch,
                         .chunk = chunk,
                         .total = COUNT,
                         .hash = 1,
                         .slot = (uint16_t)wf_agg_slot_of(chunk, job->slots),
                         .rank = (uint16_t)(next(&a->random) % ranks),
                         .ranks = (uint16_t)ranks,
                         .count = (uint16_t)(next(&a->random) % 200),
                         .call = WF_CALL_ALLREDUCE,
                         .type = WEFT_I32,
                         .op = WEFT_OP_SUM};
}

static void send_packet(const attack *a, const wf_agg_head *head, size_t bytes)
{
    unsigned char packet[sizeof(*head) + WF_AGG_PAYLOAD_MAX] = {0};
    wf_udp_address to = rig_address(a->rig);

    ((struct sockaddr_in *)&to.at)->sin_port = htons(a->port);
    memcpy(packet, head, sizeof(*head));
    (void)sendto(a->fd, packet, bytes, MSG_DONTWAIT | MSG_NOSIGNAL,
                 (const struct sockaddr *)&to.at, to.length);
}

static size_t whole_length(const wf_agg_head *head)
{
    size_t payload = wf_agg_payload(head);

    return sizeof(*head) + (payload <= WF_AGG_PAYLOAD_MAX ? payload : 0);
}

static void stranger_sends(attack *a)
{
    wf_agg_head head = head_for(a, &told, RANKS);

    head.tag = next(&a->random);
    switch (next(&a->random) % 4) {
    case 0: /* the wrong tag */
        break;
    case 1: /* another version of the format */
        head.format = 0;
        break;
    case 2:
        change(a, &head, sizeof(head));
        break;
    default:
        send_packet(a, &head, next(&a->random) % PACKET);
        return;
    }
    send_packet(a, &head, whole_length(&head));
}

/* The first chunk of the job's epoch was over long ago. */
static void impostor_sends(attack *a)
{
    static const unsigned char zeros[WF_AGG_PAYLOAD_MAX];
    wf_agg_head head = head_for(a, &told, RANKS);

    if (atomic_load(&calls) > 100) {
        wf_agg_seal(&told_key, &head, zeros);
        send_packet(a, &head, whole_length(&head));
    }
}

static void mad_rank_sends(attack *a)
{
    static const unsigned char zeros[WF_AGG_PAYLOAD_MAX];
    wf_agg_head head = head_for(a, &a->mad.client.link[0].session.joined, 1);

    if (next(&a->random) % 2 == 0) {
        change(a, &head, sizeof(head));
        head.job = a->mad.client.link[0].session.joined.job;
    }
    wf_agg_seal(&a->mad.client.link[0].key, &head, zeros);
    send_packet(a, &head, whole_length(&head));
}

/* --- control messages ----------------------------------------------------- */

static int dial(const attack *a)
{
    wf_udp_address at = rig_address(a->rig);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connect(fd, (const struct sockaddr *)&at.at, at.length) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* A join of a group of its own, changed and proved, or not proved, or what was
 * right on another connection; then whatever the switch answers. */
static void join_madly(attack *a)
{
    static wf_agg_join recorded;
    int fd = dial(a);
    wf_agg_hello hello;
    wf_agg_join join = {.group = {next(&a->random), 3},
                        .ranks = 1,
                        .slots = 4,
                        .payload = 1088,
                        .port = 9};
    uint64_t how = next(&a->random) % 6;
    char answer[64];

    assert_true(fd >= 0);
    assert_int_equal(recv(fd, &hello, sizeof(hello), MSG_WAITALL),
                     sizeof(hello));
    if (how >= 2) {
        change(a, (char *)&join + 8, sizeof(join) - 16);
    }
    wf_agg_join_prove(&a->rig->key, hello.nonce, &join);
    if (how == 0) {
        join.proof ^= 1;
    } else if (how == 1 && recorded.magic != 0) {
        join = recorded;
    } else if (how == 5) {
        join.format = 0;
    }
    recorded = how == 2 ? join : recorded;
    if (how == 3) {
        (void)send(fd, &join, next(&a->random) % sizeof(join), MSG_NOSIGNAL);
    } else if (send(fd, &join, sizeof(join), MSG_NOSIGNAL) > 0 && how < 2) {
        assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL),
                         sizeof(answer));
    }
    close(fd);
}

/* --- all of it ------------------------------------------------------------ */

static void begin(attack *a, const rig *r)
{
    wf_udp_address own = {.length = sizeof(struct sockaddr_in)};

    *a = (attack){.rig = r, .random = 0x9e3779b97f4a7c15u};
    own.at.ss_family = AF_INET;
    assert_int_equal(wf_udp_open(&own, true, &a->fd), WEFT_OK);
    a->mad.rig = r;
    a->mad.options = worker_options(0, 1, 2);
    assert_int_equal(worker_join(&a->mad), WEFT_OK);
    a->port = a->mad.client.link[0].session.joined.port[0];
}

/* The name of a counter that is 0, of all that the attack makes the switch
 * count; NULL: there is none. */
static const char *counts_not(const rig *r)
{
    static const char *const names[] = {
        "weft_switch_strangers_total",
        "weft_switch_refused_ranks_total{why=\"the keys differ\"}",
        "weft_switch_refused_ranks_total{why=\"it cannot serve",
        "weft_switch_job_refused_total{job=\"%u\",why=\"tag\"}",
        "weft_switch_job_packets_total{job=\"%u\",verdict=\"late\"}"};
    static char name[100];

    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *job = strstr(names[i], "%u");

        if (job == NULL) {
            (void)snprintf(name, sizeof(name), "%s", names[i]);
        } else {
            (void)snprintf(name, sizeof(name), "%.*s%u%s",
                           (int)(job - names[i]), names[i], told.job, job + 2);
        }
        if (rig_metric(r, name) == 0) {
            return name;
        }
    }
    return NULL;
}

static void attack_for(attack *a, uint64_t ns)
{
    uint64_t end = wf_now_ns() + ns;

    while (wf_now_ns() < end) {
        for (unsigned i = 0; i < 50; i++) {
            stranger_sends(a);
            impostor_sends(a);
            mad_rank_sends(a);
        }
        join_madly(a);
    }
}

/* For a while, and until the switch has counted all that there is to count: the
 * job may be slow to get to where a recorded packet is late. */
static void go_on(attack *a)
{
    uint64_t end = wf_now_ns() + seconds_ns() + 60 * WF_SEC;

    while (!atomic_load(&is_told)) {
        usleep(100);
    }
    attack_for(a, seconds_ns());
    while (counts_not(a->rig) != NULL) {
        if (wf_now_ns() > end) {
            fail_msg("%s is 0", counts_not(a->rig));
        }
        attack_for(a, WF_SEC / 2);
    }
}

static void strangers_and_mad_ranks_harm_no_job(void **state)
{
    static const char *const options[] = {"--patience", "300ms", NULL};
    static attack a;
    pthread_t job;
    void *failed = NULL;
    rig r;

    (void)state;
    rig_init(&r);
    rig_start(&r, options);
    assert_int_equal(pthread_create(&job, NULL, job_main, &r), 0);
    begin(&a, &r);
    go_on(&a);
    atomic_store(&over, true);
    pthread_join(job, &failed);
    assert_null(failed);
    print_message("%u calls beside them\n", atomic_load(&calls));
    wf_agg_client_close(&a.mad.client);
    close(a.fd);
    assert_int_equal(rig_stop(&r, SIGTERM), 0);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_and_mad_ranks_harm_no_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
