/* SPDX-License-Identifier: Apache-2.0 */
/* Some ranks of a large job as threads; the others are keys of the table. */
#include "mem/join_share.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/secret.h"
#include "base/time.h"
#include "mem/link.h"
#include "wt_cmocka.h"

enum { RANKS = WF_JOIN_SHARED_FROM, MATES = 4, KEYS = 2 * RANKS };

typedef struct value {
    char key[40];
    size_t n;
    void *data;
} value;

/* The bootstrap table: what is not there yet is waited for. */
typedef struct board {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    value *values;
    size_t count;
    uint64_t job;   /* random, so that sockets have names of their own */
    uint32_t first; /* of the mates; all others are alone on their hosts */
    uint32_t group; /* ranks of one */
    wf_join_table *table; /* of the job, once it was set by the test */
    const char *refused;  /* a key that cannot be set the first time */
} board;

typedef struct rank {
    board *board;
    uint32_t rank;
    wf_patience patience;
    uint32_t reads;  /* of the table of the job */
    bool late;       /* a key did not come in time */
    uint64_t secret; /* that it knows */
    weft_status st;
    char why[512];
    wf_join_table *table;
    pthread_t thread;
} rank;

static weft_status board_set(board *b, const char *key, const void *data,
                             size_t n)
{
    value *v;

    pthread_mutex_lock(&b->lock);
    v = &b->values[b->count++];
    snprintf(v->key, sizeof(v->key), "%s", key);
    v->data = malloc(n > 0 ? n : 1);
    if (v->data != NULL) {
        memcpy(v->data, data, n);
    }
    v->n = n;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return v->data != NULL ? WEFT_OK : WEFT_ERR_NOMEM;
}

static weft_status boot_set(void *ctx, const char *key, const void *data,
                            size_t n)
{
    rank *r = ctx;
    board *b = r->board;

    if (b->refused != NULL && strcmp(key, b->refused) == 0) {
        b->refused = NULL;
        return weft_boot_fail(WEFT_ERR_SYSTEM, "no room");
    }
    return board_set(b, key, data, n);
}

static const value *find(const board *b, const char *key)
{
    for (size_t i = 0; i < b->count; i++) {
        if (strcmp(b->values[i].key, key) == 0) {
            return &b->values[i];
        }
    }
    return NULL;
}

static weft_status boot_get(void *ctx, const char *key, void *data, size_t *n,
                            uint32_t timeout_ms)
{
    rank *r = ctx;
    board *b = r->board;
    const value *v;
    struct timespec until;
    bool over = false;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    r->reads += strcmp(key, "weft/table") == 0;
    pthread_mutex_lock(&b->lock);
    while ((v = find(b, key)) == NULL && !over) {
        over = pthread_cond_timedwait(&b->changed, &b->lock, &until) != 0;
    }
    r->late |= v == NULL;
    if (v != NULL) {
        memcpy(data, v->data, v->n);
        *n = v->n;
    }
    pthread_mutex_unlock(&b->lock);
    return v != NULL ? WEFT_OK : WEFT_ERR_TIMEOUT;
}

static wf_join_record record_of(const board *b, uint32_t r)
{
    wf_join_record own;
    bool mate = r >= b->first && r < b->first + MATES;

    memset(&own, 0, sizeof(own));
    own.pid = (int32_t)r + 1;
    own.socket[0] = b->job;
    own.socket[1] = r;
    snprintf(own.node.boot_id, sizeof(own.node.boot_id), "%036u",
             mate ? RANKS : r);
    snprintf(own.node.host, sizeof(own.node.host), "host");
    return own;
}

/* The tables of the ranks from `from` on, up to `end`, merged. */
static wf_join_table *merged(const board *b, uint32_t from, uint32_t end)
{
    wf_join_table **part = calloc(end - from, sizeof(wf_join_table *));
    wf_join_table *t = NULL;

    assert_non_null(part);
    for (uint32_t r = from; r < end; r++) {
        wf_join_record own = record_of(b, r);

        assert_int_equal(
            wf_join_single(&own, r, RANKS, NULL, 0, &part[r - from]), WEFT_OK);
    }
    assert_int_equal(wf_join_merge(part, end - from, &t), WEFT_OK);
    for (uint32_t r = from; r < end; r++) {
        wf_free(part[r - from]);
    }
    free(part);
    return t;
}

static void set_merged(board *b, const char *kind, uint32_t from, uint32_t end)
{
    wf_join_table *t = merged(b, from, end);
    char key[40];

    snprintf(key, sizeof(key), "weft/%s/%u", kind, from);
    assert_int_equal(board_set(b, key, t->bytes, t->head->bytes), WEFT_OK);
    wf_free(t);
}

static board make_board(uint32_t first)
{
    board b = {.lock = PTHREAD_MUTEX_INITIALIZER,
               .changed = PTHREAD_COND_INITIALIZER,
               .values = calloc(KEYS, sizeof(value)),
               .first = first,
               .group = wf_join_group(RANKS)};

    assert_non_null(b.values);
    assert_int_equal(wf_random(&b.job, sizeof(b.job)), WEFT_OK);
    return b;
}

/* What all ranks but the mates set. */
static void set_others(board *b)
{
    uint32_t start = b->first / b->group * b->group;

    for (uint32_t r = start; r < start + b->group; r++) {
        if (r < b->first || r >= b->first + MATES) {
            set_merged(b, "rank", r, r + 1);
        }
    }
    for (uint32_t g = b->group; g < RANKS; g += b->group) {
        if (g != start) {
            set_merged(b, "group", g, g + b->group);
        }
    }
}

/* What rank 0 sets. */
static void set_table(board *b)
{
    size_t at = 0;

    b->table = merged(b, 0, RANKS);
    for (uint32_t part = 0; at < b->table->head->bytes; part++) {
        size_t left = b->table->head->bytes - at;
        size_t n = left < WEFT_BOOT_VALUE_MAX ? left : WEFT_BOOT_VALUE_MAX;
        char key[40];

        snprintf(key, sizeof(key), part == 0 ? "weft/table" : "weft/table.%u",
                 part);
        assert_int_equal(board_set(b, key, b->table->bytes + at, n), WEFT_OK);
        at += n;
    }
}

static void free_board(board *b)
{
    for (size_t i = 0; i < b->count; i++) {
        free(b->values[i].data);
    }
    free(b->values);
    wf_free(b->table);
}

static weft_boot boot_of(rank *r)
{
    return (weft_boot){.size = sizeof(weft_boot),
                       .rank = r->rank,
                       .ranks = RANKS,
                       .ctx = r,
                       .set = boot_set,
                       .get = boot_get};
}

/* With time that a test never waits for. */
static rank make_rank(board *b, uint32_t number)
{
    return (rank){.board = b,
                  .rank = number,
                  .patience = {.deadline_ns = wf_now_ns() + 60 * WF_SEC}};
}

static void *rank_main(void *arg)
{
    rank *r = arg;
    weft_boot boot = boot_of(r);
    wf_join_record own = record_of(r->board, r->rank);

    r->st = wf_join_exchange(&boot, &own, NULL, 0, &r->patience, &r->table);
    snprintf(r->why, sizeof(r->why), "%s", weft_error_detail());
    return NULL;
}

/* Let the mates join from number `from` on; how many have read the table. */
static uint32_t readers(board *b, uint32_t from)
{
    rank r[MATES] = {0};
    uint32_t count = 0;

    for (uint32_t i = from; i < MATES; i++) {
        r[i] = make_rank(b, b->first + i);
        assert_int_equal(pthread_create(&r[i].thread, NULL, rank_main, &r[i]),
                         0);
    }
    for (uint32_t i = from; i < MATES; i++) {
        pthread_join(r[i].thread, NULL);
        assert_int_equal(r[i].st, WEFT_OK);
        assert_int_equal(r[i].table->head->ranks, RANKS);
        assert_memory_equal(r[i].table->bytes, r[from].table->bytes,
                            r[from].table->head->bytes);
        count += r[i].reads > 0;
    }
    for (uint32_t i = from; i < MATES; i++) {
        wf_join_free(r[i].table);
    }
    return count;
}

/* --- the tests -------------------------------------------------------------
 */

static void one_rank_of_a_host_reads_the_table_for_its_mates(void **state)
{
    board b = make_board(wf_join_group(RANKS)); /* the first of them leads */

    (void)state;
    set_others(&b);
    set_table(&b);
    assert_int_equal(readers(&b, 0), 1);
    free_board(&b);
}

static void rank_0_hands_the_table_that_it_made_to_its_mates(void **state)
{
    board b = make_board(0);

    (void)state;
    set_others(&b);
    assert_int_equal(readers(&b, 0), 0);
    free_board(&b);
}

/* In the place of the first mate. */
typedef struct stand_in {
    int listener;
    wf_join_mates own;
} stand_in;

/* The first mate is `reader` here and no rank: all others read by themselves.
 */
static void expect_each_reads(void *(*reader)(void *))
{
    board b = make_board(wf_join_group(RANKS));
    wf_join_record own = record_of(&b, b.first);
    stand_in in = {.listener = -1, .own = {.others = MATES - 1}};
    pthread_t thread;

    memcpy(in.own.socket, own.socket, sizeof(own.socket));
    set_table(&b);
    set_merged(&b, "group", b.first, b.first + b.group);
    if (reader != NULL) {
        assert_int_equal(wf_join_share_listen(own.socket, &in.listener),
                         WEFT_OK);
        assert_int_equal(pthread_create(&thread, NULL, reader, &in), 0);
    }
    assert_int_equal(readers(&b, 1), MATES - 1);
    if (reader != NULL) {
        pthread_join(thread, NULL);
        close(in.listener);
    }
    free_board(&b);
}

/* Answer all mates with `memory`, of so many bytes; -1: with nothing. */
static void answer_all(int listener, int memory, uint64_t bytes)
{
    wf_packet p = {.kind = WF_PACKET_TABLE, .bytes = sizeof(bytes)};

    memcpy(p.data, &bytes, sizeof(bytes));
    for (uint32_t i = 1; i < MATES; i++) {
        int mate = -1;

        (void)wf_link_accept(listener, wf_now_ns() + 60 * WF_SEC, &mate);
        if (memory >= 0) {
            (void)wf_link_send(mate, &p, memory, wf_now_ns() + 60 * WF_SEC);
        }
        close(mate);
    }
}

static void *dies(void *arg)
{
    const stand_in *in = arg;

    answer_all(in->listener, -1, 0);
    return NULL;
}

static void *could_change_it_later(void *arg)
{
    const stand_in *in = arg;
    int memory = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const size_t bytes = 1 << 20;

    if (ftruncate(memory, (off_t)bytes) == 0) {
        answer_all(in->listener, memory, bytes);
    }
    close(memory);
    return NULL;
}

static void *hands_out_nonsense(void *arg)
{
    wf_join_head head;
    wf_join_table t = {.head = &head, .bytes = (unsigned char *)&head};
    const stand_in *in = arg;

    memset(&head, 0xff, sizeof(head));
    head.bytes = sizeof(head);
    wf_join_share_give(in->listener, &t, &in->own);
    return NULL;
}

static void mates_of_one_that_is_gone_read_the_table_themselves(void **state)
{
    (void)state;
    expect_each_reads(NULL);
    expect_each_reads(dies);
}

static void memory_that_is_no_sealed_table_is_not_believed(void **state)
{
    (void)state;
    expect_each_reads(could_change_it_later);
    expect_each_reads(hands_out_nonsense);
}

/* --- failures -------------------------------------------------------------
 */

/* Let the mates of rank 0, and it as well if it is to, try in vain. None of
 * them may wait until its time is over. */
static void expect_told(board *b, uint32_t from, const char *why)
{
    rank r[MATES] = {0};

    for (uint32_t i = from; i < MATES; i++) {
        r[i] = make_rank(b, i);
        assert_int_equal(pthread_create(&r[i].thread, NULL, rank_main, &r[i]),
                         0);
    }
    for (uint32_t i = from; i < MATES; i++) {
        pthread_join(r[i].thread, NULL);
        assert_int_equal(r[i].st, WEFT_ERR_PEER);
        assert_non_null(strstr(r[i].why, why));
        assert_false(r[i].late);
    }
}

static void decline(rank *r)
{
    weft_boot boot = boot_of(r);

    weft_boot_fail(WEFT_ERR_SYSTEM, "no more of anything");
    wf_join_decline(&boot);
}

static void mates_of_rank_0_are_told_at_once_why_there_is_no_job(void **state)
{
    static const char why[] = "could not join: no more of anything";
    board b = make_board(0);
    rank last;

    (void)state;
    for (uint32_t r = MATES; r + 1 < b.group; r++) {
        set_merged(&b, "rank", r, r + 1);
    }
    /* The answer comes from a table that is not there yet. */
    last = make_rank(&b, b.group - 1);
    decline(&last);
    expect_told(&b, 0, why);
    free_board(&b);

    b = make_board(0);
    last = make_rank(&b, 0);
    decline(&last);
    expect_told(&b, 1, "rank 0 could not form the job: no more of anything");
    free_board(&b);
}

static void mates_of_rank_0_are_told_that_it_could_not_set_their_table(void **s)
{
    board b = make_board(0);
    rank first = make_rank(&b, 0);

    (void)s;
    set_others(&b);
    b.refused = "weft/group/0";
    assert_int_equal(pthread_create(&first.thread, NULL, rank_main, &first), 0);
    expect_told(&b, 1, "rank 0 could not form the job: no room");
    pthread_join(first.thread, NULL);
    assert_int_equal(first.st, WEFT_ERR_SYSTEM);
    free_board(&b);
}

/* It looks for their table for a minute, but for that of the job as well. */
static void who_waits_for_a_missing_mate_is_told_that_rank_0_declined(void **s)
{
    board b = make_board(wf_join_group(RANKS));
    rank first = make_rank(&b, 0);
    rank r = make_rank(&b, b.first + 1);

    (void)s;
    decline(&first);
    rank_main(&r);
    assert_int_equal(r.st, WEFT_ERR_PEER);
    assert_non_null(strstr(r.why, "no more of anything"));
    assert_true(wf_now_ns() + 30 * WF_SEC < r.patience.deadline_ns);
    free_board(&b);
}

/* What Python tells once: it is up to the caller to remember. */
static int once(void *ctx)
{
    return (*(unsigned *)ctx)++ == 0;
}

static void who_is_interrupted_while_it_looks_for_mates_gives_up(void **state)
{
    board b = make_board(wf_join_group(RANKS));
    rank r = make_rank(&b, b.first + 1);
    unsigned asked = 0;

    (void)state;
    r.patience.interrupt = (wf_interrupt){once, &asked};
    rank_main(&r);
    assert_int_equal(r.st, WEFT_ERR_ABORTED);
    assert_int_equal(r.reads, 0);
    free_board(&b);
}

static void a_reader_that_is_stuck_is_named(void **state)
{
    board b = make_board(wf_join_group(RANKS));
    rank r = make_rank(&b, b.first + 1);
    wf_join_record reader = record_of(&b, b.first);
    char want[128];
    int listener = -1;

    (void)state;
    set_table(&b);
    set_merged(&b, "group", b.first, b.first + b.group);
    assert_int_equal(wf_join_share_listen(reader.socket, &listener), WEFT_OK);
    r.patience.deadline_ns = wf_now_ns() + 50 * WF_MS;
    rank_main(&r);
    assert_int_equal(r.st, WEFT_ERR_TIMEOUT);
    snprintf(want, sizeof(want),
             "rank %u (pid %u on host) did not hand over the table of the job "
             "in time",
             b.first, b.first + 1);
    assert_string_equal(r.why, want);
    close(listener);
    free_board(&b);
}

/* What a mate of this rank knows, with a secret of these numbers. */
static wf_join_mates known_of(const rank *r, uint64_t secret)
{
    wf_join_record own = record_of(r->board, r->rank);
    wf_join_mates known = {.reader = r->rank, .secret = {{secret, 0}}};

    memcpy(known.socket, own.socket, sizeof(known.socket));
    known.others = 1;
    return known;
}

static void *takes(void *arg)
{
    rank *r = arg;
    wf_join_mates known = known_of(r, r->secret);

    r->st = wf_join_share_take(&known, RANKS, &r->patience, &r->table);
    return NULL;
}

/* One of the same user that has seen the name of the socket. */
static void a_stranger_gets_no_table_and_the_mate_does(void **state)
{
    board b = make_board(1);
    wf_join_record own = record_of(&b, 1);
    rank stranger = make_rank(&b, 1);
    rank mate = make_rank(&b, 1);
    wf_join_mates known = known_of(&mate, 5);
    int listener = -1;

    (void)state;
    stranger.secret = 4;
    mate.secret = 5;
    b.table = merged(&b, 0, RANKS);
    assert_int_equal(wf_join_share_listen(own.socket, &listener), WEFT_OK);
    assert_int_equal(pthread_create(&stranger.thread, NULL, takes, &stranger),
                     0);
    assert_int_equal(pthread_create(&mate.thread, NULL, takes, &mate), 0);
    wf_join_share_give(listener, b.table, &known);
    wf_join_share_end(listener);
    pthread_join(stranger.thread, NULL);
    pthread_join(mate.thread, NULL);
    assert_int_equal(stranger.st, WEFT_ERR_CLOSED);
    assert_int_equal(mate.st, WEFT_OK);
    wf_join_free(mate.table);
    free_board(&b);
}

/* A child that another thread has forked meanwhile holds the socket. */
static void one_that_listens_no_more_is_gone_though_a_child_lives(void **state)
{
    board b = make_board(1);
    wf_join_record own = record_of(&b, 1);
    rank r[2] = {make_rank(&b, 1), make_rank(&b, 1)};
    int listener = -1;
    int life[2];
    pid_t child;
    char end;

    (void)state;
    assert_int_equal(wf_join_share_listen(own.socket, &listener), WEFT_OK);
    assert_int_equal(pipe(life), 0);
    child = fork();
    if (child == 0) {
        close(life[1]);
        _exit(read(life[0], &end, 1) != 0);
    }
    assert_int_equal(pthread_create(&r[0].thread, NULL, takes, &r[0]), 0);
    weft_boot_fail(WEFT_ERR_SYSTEM, "an error before");
    wf_join_share_end(listener);
    assert_string_equal(weft_error_detail(), "an error before");
    takes(&r[1]);
    pthread_join(r[0].thread, NULL);
    assert_int_equal(r[0].st, WEFT_ERR_CLOSED);
    assert_int_equal(r[1].st, WEFT_ERR_CLOSED);
    close(life[0]);
    close(life[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    free_board(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_of_a_host_reads_the_table_for_its_mates),
        cmocka_unit_test(rank_0_hands_the_table_that_it_made_to_its_mates),
        cmocka_unit_test(mates_of_one_that_is_gone_read_the_table_themselves),
        cmocka_unit_test(memory_that_is_no_sealed_table_is_not_believed),
        cmocka_unit_test(mates_of_rank_0_are_told_at_once_why_there_is_no_job),
        cmocka_unit_test(
            mates_of_rank_0_are_told_that_it_could_not_set_their_table),
        cmocka_unit_test(
            who_waits_for_a_missing_mate_is_told_that_rank_0_declined),
        cmocka_unit_test(who_is_interrupted_while_it_looks_for_mates_gives_up),
        cmocka_unit_test(a_reader_that_is_stuck_is_named),
        cmocka_unit_test(a_stranger_gets_no_table_and_the_mate_does),
        cmocka_unit_test(one_that_listens_no_more_is_gone_though_a_child_lives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
