/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks come together: the job's table, and how it comes to every rank. */
#include "mem/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/status.h"
#include "base/time.h"
#include "wt_cmocka.h"

enum { RANKS = 3 };

static bool detail_has(const char *text)
{
    return strstr(weft_error_detail(), text) != NULL;
}

/* --- the table -------------------------------------------------------------
 */

static wf_join_node make_node(const char *host)
{
    wf_join_node n = {.user = 1000, .netns = 5, .userns = 6, .session = 7};

    snprintf(n.boot_id, sizeof(n.boot_id), "0f1e2d3c-0000-4000-8000-%s", host);
    snprintf(n.host, sizeof(n.host), "%s", host);
    strcpy(n.node, "node");
    return n;
}

/* Rank r has r % 3 addresses, of lengths that no alignment suits. */
static size_t addresses_of(uint32_t rank, wf_address *out)
{
    static const char bytes[] = "an address that means nothing to anybody here";

    for (uint32_t i = 0; i < rank % 3; i++) {
        out[i] = (wf_address){i == 0 ? "first" : "second", bytes + i,
                              i == 0 ? 13 * (rank % 3) : 0};
    }
    return rank % 3;
}

static wf_join_table *make_single(uint32_t rank, uint32_t ranks,
                                  const wf_join_node *node)
{
    wf_join_record own = {(int32_t)(100 + rank), {rank, 77}, *node};
    wf_join_table *t = NULL;
    wf_address a[RANKS];

    assert_int_equal(
        wf_join_single(&own, rank, ranks, a, addresses_of(rank, a), &t),
        WEFT_OK);
    return t;
}

/* Ranks `first` to `end` of `ranks`, `each` of them on a host; or with ranks
 * dealt to hosts in turn, where `deal` is the number of hosts. */
static wf_join_table *make_part(uint32_t first, uint32_t end, uint32_t ranks,
                                uint32_t each, uint32_t deal)
{
    wf_join_table **part = calloc(end - first, sizeof(wf_join_table *));
    wf_join_table *t = NULL;

    assert_non_null(part);
    for (uint32_t r = first; r < end; r++) {
        char host[12];
        wf_join_node node;

        snprintf(host, sizeof(host), "h%u", deal > 0 ? r % deal : r / each);
        node = make_node(host);
        node.cpus[r % 64] = 1;
        part[r - first] = make_single(r, ranks, &node);
    }
    assert_int_equal(wf_join_merge(part, end - first, &t), WEFT_OK);
    for (uint32_t r = first; r < end; r++) {
        wf_free(part[r - first]);
    }
    free(part);
    return t;
}

static wf_join_table *make_table(uint32_t ranks)
{
    return make_part(0, ranks, ranks, 2, 0);
}

/* Check `n` bytes in memory of exactly their size, so that a sanitizer sees a
 * read past their end. */
static weft_status check_bytes(const void *bytes, size_t n, uint32_t ranks)
{
    size_t room = n > sizeof(wf_join_head) ? n : sizeof(wf_join_head);
    wf_join_table *copy = wf_join_room(room);
    weft_status st;

    assert_non_null(copy);
    memset(copy->bytes, 0, room);
    memcpy(copy->bytes, bytes, n);
    st = wf_join_open(copy, n, 0, 0, ranks, ranks);
    wf_free(copy);
    return st;
}

static weft_status check_table(const wf_join_table *t)
{
    return check_bytes(t->bytes, t->head->bytes, t->head->total);
}

static void expect_addresses(const wf_join_table *t, uint32_t r)
{
    wf_address want[RANKS];
    wf_address got;
    size_t n = addresses_of(r, want);

    for (size_t i = 0; i < n; i++) {
        assert_true(wf_join_address(t, r, want[i].of, &got));
        assert_int_equal(got.n, want[i].n);
        assert_memory_equal(got.data, want[i].data, got.n);
    }
    assert_int_equal(wf_join_address(t, r, "second", &got), n == 2);
    assert_false(wf_join_address(t, r, "third", &got));
}

static void merged_tables_hold_every_rank_and_each_node_once(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 70; ranks++) {
        for (uint32_t each = 1; each <= 8; each++) {
            wf_join_table *t = make_part(0, ranks, ranks, each, 0);

            assert_int_equal(check_table(t), WEFT_OK);
            assert_int_equal(t->head->nodes, (ranks + each - 1) / each);
            for (uint32_t r = 0; r < ranks; r++) {
                assert_int_equal(t->member[r].node, r / each);
                assert_int_equal(t->member[r].pid, 100 + r);
                assert_int_equal(t->member[r].socket[0], r);
                assert_int_equal(t->member[r].socket[1], 77);
                expect_addresses(t, r);
            }
            wf_free(t);
        }
    }
}

/* Merge a job of `ranks` in groups, as ranks do. */
static wf_join_table *merge_in_groups(uint32_t ranks, uint32_t each,
                                      uint32_t deal)
{
    uint32_t group = wf_join_group(ranks);
    uint32_t groups = (ranks + group - 1) / group;
    wf_join_table **part = calloc(groups, sizeof(wf_join_table *));
    wf_join_table *t = NULL;

    assert_non_null(part);
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t end = (g + 1) * group < ranks ? (g + 1) * group : ranks;

        part[g] = make_part(g * group, end, ranks, each, deal);
    }
    assert_int_equal(wf_join_merge(part, groups, &t), WEFT_OK);
    for (uint32_t g = 0; g < groups; g++) {
        wf_free(part[g]);
    }
    free(part);
    return t;
}

static void a_hundred_thousand_ranks_fit_however_they_are_placed(void **state)
{
    static const uint32_t many = 100000;
    /* {ranks on a host one after the other, or hosts that they are dealt to} */
    static const uint32_t placed[][2] = {{1, 0}, {64, 0}, {0, 1563}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        wf_join_table *t = merge_in_groups(many, placed[i][0], placed[i][1]);

        assert_int_equal(check_table(t), WEFT_OK);
        assert_int_equal(t->head->nodes, i == 0 ? many : 1563);
        for (uint32_t r = 0; r < many; r += 999) {
            assert_int_equal(t->member[r].node, i == 0   ? r
                                                : i == 1 ? r / 64
                                                         : r % 1563);
            expect_addresses(t, r);
        }
        wf_free(t);
    }
}

static void groups_have_about_as_many_members_as_there_are_groups(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 1u << 20; ranks = ranks * 5 / 4 + 1) {
        uint32_t group = wf_join_group(ranks);

        assert_true((uint64_t)group * group >= ranks);
        assert_true(group == 32 || (uint64_t)group * group < 4ull * ranks);
    }
}

static void a_node_has_the_cores_of_all_its_ranks(void **state)
{
    wf_join_table *t = make_part(0, 7, 7, 3, 0);

    (void)state;
    assert_int_equal(wf_join_cpus(t, 0), 3);
    assert_int_equal(wf_join_cpus(t, 5), 3);
    assert_int_equal(wf_join_cpus(t, 6), 1);
    strcpy(t->node[1].boot_id, t->node[0].boot_id); /* another node, one host */
    strcpy(t->node[1].node, "elsewhere");
    assert_int_equal(wf_join_cpus(t, 0), 6);
    memset(t->node[2].cpus, 0, sizeof(t->node[2].cpus));
    assert_int_equal(wf_join_cpus(t, 6), 1);
    wf_free(t);
}

static void ranks_of_several_sessions_on_a_host_are_told_apart(void **state)
{
    wf_join_node a = make_node("a");
    wf_join_node b = make_node("a");
    wf_join_node c = make_node("c");
    wf_join_table *part[3];
    wf_join_table *t = NULL;

    (void)state;
    for (int64_t other = 7; other <= 8; other++) {
        b.session = other;
        part[0] = make_single(0, 3, &a);
        part[1] = make_single(1, 3, &b);
        part[2] = make_single(2, 3, &c);
        assert_int_equal(wf_join_merge(part, 3, &t), WEFT_OK);
        for (uint32_t r = 0; r < 3; r++) {
            assert_int_equal(wf_join_one_session(t, r), other == 7 || r == 2);
            wf_free(part[r]);
        }
        wf_free(t);
    }
}

/* Each part of a table, in memory of its own size. */
static void a_table_of_any_other_length_is_refused(void **state)
{
    wf_join_table *whole = make_table(RANKS);
    size_t bytes = whole->head->bytes;
    unsigned char *padded = calloc(1, bytes + 9);

    (void)state;
    assert_non_null(padded);
    memcpy(padded, whole->bytes, bytes);
    for (size_t n = 0; n <= bytes + 9; n++) {
        assert_int_equal(check_bytes(padded, n, RANKS),
                         n == bytes ? WEFT_OK : WEFT_ERR_PROTOCOL);
        if (n >= sizeof(wf_join_head)) { /* and says so itself */
            ((wf_join_head *)(void *)padded)->bytes = n;
            assert_int_equal(check_bytes(padded, n, RANKS),
                             n == bytes ? WEFT_OK : WEFT_ERR_PROTOCOL);
            ((wf_join_head *)(void *)padded)->bytes = bytes;
        }
    }
    free(padded);
    wf_free(whole);
}

static void a_table_for_another_number_of_ranks_is_refused(void **state)
{
    wf_join_table *t = make_table(RANKS);

    (void)state;
    assert_int_equal(check_bytes(t->bytes, t->head->bytes, RANKS + 1),
                     WEFT_ERR_PROTOCOL);
    assert_string_equal(weft_error_detail(),
                        "rank 0 was started as one of 3 ranks, but this rank "
                        "as one of 4");
    t->head->total = UINT32_MAX;
    assert_int_equal(check_bytes(t->bytes, t->head->bytes, UINT32_MAX),
                     WEFT_ERR_PROTOCOL);
    t->head->ranks = UINT32_MAX;
    assert_int_equal(check_bytes(t->bytes, t->head->bytes, UINT32_MAX),
                     WEFT_ERR_PROTOCOL);
    t->head->nodes = UINT32_MAX;
    assert_int_equal(check_bytes(t->bytes, t->head->bytes, UINT32_MAX),
                     WEFT_ERR_PROTOCOL);
    wf_free(t);
}

/* Spoil `n` bytes at `at`; the table must be refused with `why`. */
static void expect_spoilt(wf_join_table *t, void *at, int fill, size_t n,
                          const char *why)
{
    unsigned char old[64];

    assert_true(n <= sizeof(old));
    memcpy(old, at, n);
    memset(at, fill, n);
    assert_int_equal(check_bytes(t->bytes, t->head->bytes, RANKS),
                     WEFT_ERR_PROTOCOL);
    assert_true(detail_has(why));
    memcpy(at, old, n);
    assert_int_equal(check_table(t), WEFT_OK);
}

static void another_version_of_weft_is_refused_and_both_are_named(void **state)
{
    wf_join_table *t = make_table(RANKS);
    char want[100];

    (void)state;
    expect_spoilt(t, &t->head->magic, 0, 1, "record of rank 0 is malformed");
    expect_spoilt(t, &t->head->version, WF_JOIN_VERSION - 1, 1,
                  "rank 0 runs an older version of weft than this rank");
    snprintf(want, sizeof(want), "rank 0 runs weft %s, this rank runs weft %s",
             weft_version(), weft_version());
    expect_spoilt(t, &t->head->version, WF_JOIN_VERSION + 1, 1, want);
    snprintf(want, sizeof(want), "rank 0 runs weft 7%s, this rank runs weft %s",
             weft_version() + 1, weft_version());
    expect_spoilt(t, t->head->weft, '7', 1, want);
    expect_spoilt(t, t->head->weft, 'x', sizeof(t->head->weft), "runs weft xx");
    wf_free(t);
}

static void what_is_malformed_is_refused(void **state)
{
    wf_join_table *t = make_table(RANKS);

    (void)state;
    expect_spoilt(t, &t->head->first, 1, 1, "malformed");
    expect_spoilt(t, &t->head->ranks, RANKS - 1, 1, "malformed");
    for (int nodes = 0; nodes <= 4; nodes++) {
        if (nodes != 2) {
            expect_spoilt(t, &t->head->nodes, nodes, 1, "");
        }
    }
    for (uint32_t i = 0; i < t->head->nodes; i++) {
        wf_join_node *n = &t->node[i];
        char which[16];

        snprintf(which, sizeof(which), "node %u", i);
        expect_spoilt(t, n->boot_id, 0, 1, which);
        expect_spoilt(t, n->boot_id, 'b', sizeof(n->boot_id), which);
        expect_spoilt(t, n->host, 'h', sizeof(n->host), which);
        expect_spoilt(t, n->node, 'n', sizeof(n->node), which);
    }
    expect_spoilt(t, &t->member[0].node, 1, 1, "record of rank 0");
    expect_spoilt(t, &t->member[1].node, 9, 1, "record of rank 1");
    expect_spoilt(t, &t->member[2].node, 2, 1, "record of rank 2");
    /* A node without ranks. */
    expect_spoilt(t, &t->member[2].node, 0, 1, "longer than its contents");
    wf_free(t);
}

static void malformed_addresses_are_refused(void **state)
{
    wf_join_table *t = make_table(RANKS);
    wf_join_section *first = (wf_join_section *)(void *)t->address;
    uint64_t end = t->member[1].end;

    (void)state;
    for (uint64_t wrong = 0; wrong < 3; wrong++) {
        first->bytes = wrong == 0 ? end : wrong == 1 ? UINT64_MAX : 1;
        assert_int_equal(check_table(t), WEFT_ERR_PROTOCOL);
        assert_true(detail_has("the addresses of rank 1 are malformed"));
    }
    first->bytes = 13;
    memset(first->of, 'x', sizeof(first->of));
    assert_int_equal(check_table(t), WEFT_ERR_PROTOCOL);
    first->of[4] = '\0';
    assert_int_equal(check_table(t), WEFT_OK);
    for (uint64_t add = 1; add != 0; add <<= 1) {
        t->member[1].end = end + add;
        assert_int_equal(check_table(t), WEFT_ERR_PROTOCOL);
        t->member[1].end = end - add;
        assert_int_equal(check_table(t), WEFT_ERR_PROTOCOL);
    }
    wf_free(t);
}

static void a_note_of_failure_gives_its_text_as_far_as_it_goes(void **state)
{
    static const char text[] = "rank 1 did not join in time";
    size_t bytes = sizeof(wf_join_head) + strlen(text);
    wf_join_table *t = make_table(RANKS);
    unsigned char note[200] = {0};
    wf_join_head *head = (wf_join_head *)(void *)note;

    (void)state;
    *head = *t->head;
    head->failed = WF_JOIN_FAILED_JOB;
    memcpy(head + 1, text, strlen(text));
    for (size_t n = sizeof(*head); n <= bytes; n++) {
        char want[100];

        assert_int_equal(check_bytes(note, n, 2), WEFT_ERR_PEER);
        snprintf(want, sizeof(want), "rank 0 could not form the job: %.*s",
                 (int)(n - sizeof(*head)), text);
        assert_string_equal(weft_error_detail(), want);
    }
    wf_free(t);
}

static void expect_apart(const wf_join_node *a, const wf_join_node *b,
                         bool same_host)
{
    assert_int_equal(wf_join_same_host(a, b), same_host);
    assert_int_equal(wf_join_same_host(b, a), same_host);
    assert_false(wf_join_same_node(a, b));
    assert_false(wf_join_same_node(b, a));
}

static void one_host_is_one_boot_user_and_set_of_namespaces(void **state)
{
    wf_join_node a = make_node("host");
    wf_join_node b = make_node("host");

    (void)state;
    /* Names of hosts are no proof of anything. */
    strcpy(b.host, "another name");
    assert_true(wf_join_same_host(&a, &b));
    assert_true(wf_join_same_node(&a, &b));
    b.user++;
    expect_apart(&a, &b, false);
    b.user = a.user;
    b.netns++;
    expect_apart(&a, &b, false);
    b.netns = a.netns;
    b.userns++;
    expect_apart(&a, &b, false);
    b.userns = a.userns;
    b.boot_id[0]++;
    expect_apart(&a, &b, false);
}

static void nodes_of_one_host_differ_by_their_name_only(void **state)
{
    wf_join_node a = make_node("host");
    wf_join_node b = make_node("host");

    (void)state;
    strcpy(b.node, "nod");
    expect_apart(&a, &b, true);
    strcpy(b.node, "");
    expect_apart(&a, &b, true);
    strcpy(a.node, "");
    assert_true(wf_join_same_node(&a, &b));
}

static wf_join_record describe(uint32_t rank, const char *overrides)
{
    const uint64_t name[2] = {rank, 77};
    wf_settings settings;
    wf_join_record r;

    assert_int_equal(wf_settings_load(overrides, &settings), WEFT_OK);
    assert_int_equal(wf_join_describe(&settings, name, &r), WEFT_OK);
    return r;
}

static void what_a_rank_says_of_itself_is_accepted(void **state)
{
    wf_join_record r[2] = {describe(0, NULL), describe(1, "NODE=elsewhere")};
    wf_join_table *part[2] = {NULL, NULL};
    wf_join_table *t = NULL;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(wf_join_single(&r[i], i, 2, NULL, 0, &part[i]),
                         WEFT_OK);
    }
    assert_int_equal(wf_join_merge(part, 2, &t), WEFT_OK);
    assert_int_equal(check_table(t), WEFT_OK);
    assert_int_equal(t->member[1].pid, getpid());
    assert_int_equal(t->member[1].socket[0], 1);
    assert_int_equal(t->member[1].socket[1], 77);
    assert_string_equal(wf_join_node_of(t, 1)->node, "elsewhere");
    expect_apart(&t->node[0], &t->node[1], true);
    wf_free(part[0]);
    wf_free(part[1]);
    wf_free(t);
}

/* --- the exchange, over a store in this process ----------------------------
 */

typedef struct value {
    char key[32];
    size_t n;
    void *data;
} value;

typedef struct store {
    value *values;
    size_t count;
    size_t room;
    size_t gets;
} store;

/* A key is set once; that it was set before is the past of this thread, which
 * is one rank after the other. */
static weft_status store_set(void *ctx, const char *key, const void *data,
                             size_t n)
{
    store *s = ctx;
    value *v;

    assert_true(n <= WEFT_BOOT_VALUE_MAX);
    if (s->count == s->room) {
        s->room = s->room * 2 + 8;
        s->values = realloc(s->values, s->room * sizeof(*v));
        assert_non_null(s->values);
    }
    v = &s->values[s->count++];
    snprintf(v->key, sizeof(v->key), "%s", key);
    v->data = malloc(n > 0 ? n : 1);
    assert_non_null(v->data);
    memcpy(v->data, data, n);
    v->n = n;
    return WEFT_OK;
}

/* What is not there yet will never be: all ranks are this thread. */
static weft_status store_get(void *ctx, const char *key, void *data, size_t *n,
                             uint32_t timeout_ms)
{
    store *s = ctx;

    (void)timeout_ms;
    s->gets++;
    for (size_t i = 0; i < s->count; i++) {
        const value *v = &s->values[i];

        if (strcmp(v->key, key) == 0) {
            if (v->n > *n) {
                return WEFT_ERR_TRUNCATED;
            }
            memcpy(data, v->data, v->n);
            *n = v->n;
            return WEFT_OK;
        }
    }
    return WEFT_ERR_TIMEOUT;
}

static store *make_store(void)
{
    store *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    return s;
}

static void empty_store(store *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->values[i].data);
    }
    s->count = 0;
}

static void free_store(store *s)
{
    empty_store(s);
    free(s->values);
    free(s);
}

static weft_boot boot_of(store *s, uint32_t rank, uint32_t ranks)
{
    return (weft_boot){.size = sizeof(weft_boot),
                       .rank = rank,
                       .ranks = ranks,
                       .ctx = s,
                       .set = store_set,
                       .get = store_get};
}

static weft_status exchange_with(store *s, uint32_t rank, uint32_t ranks,
                                 const wf_address *addresses, size_t count,
                                 wf_join_table **out)
{
    weft_boot boot = boot_of(s, rank, ranks);
    wf_join_record own = describe(rank, NULL);

    /* Longer than anything takes; a test never waits for it to pass. */
    return wf_join_exchange(
        &boot, &own, addresses, count,
        &(wf_patience){.deadline_ns = wf_now_ns() + 60 * WF_SEC}, out);
}

static weft_status exchange(store *s, uint32_t rank, uint32_t ranks,
                            wf_join_table **out)
{
    wf_address a[RANKS];

    return exchange_with(s, rank, ranks, a, addresses_of(rank, a), out);
}

/* Let all ranks publish what they have, those that others wait for last, so
 * that nobody has to wait. */
static void publish_all(store *s, uint32_t ranks, uint32_t except)
{
    uint32_t group = wf_join_group(ranks);
    wf_join_table *t = NULL;

    for (uint32_t leads = 0; leads <= 1; leads++) {
        for (uint32_t r = 1; r < ranks; r++) {
            if ((r % group == 0) == leads && r != except) {
                assert_int_not_equal(exchange(s, r, ranks, &t), WEFT_OK);
            }
        }
    }
}

static void expect_all_have_the_same(uint32_t ranks)
{
    store *s = make_store();
    wf_join_table *first = NULL;

    publish_all(s, ranks, ranks);
    assert_int_equal(exchange(s, 0, ranks, &first), WEFT_OK);
    assert_int_equal(check_table(first), WEFT_OK);
    assert_true((first->head->secret.k[0] | first->head->secret.k[1]) != 0);
    for (uint32_t r = 1; r < ranks; r += ranks < 100 ? 1 : 37) {
        wf_join_table *t = NULL;

        assert_int_equal(exchange(s, r, ranks, &t), WEFT_OK);
        assert_int_equal(t->head->bytes, first->head->bytes);
        assert_memory_equal(t->bytes, first->bytes, first->head->bytes);
        if (r % wf_join_group(ranks) != 0) {
            assert_int_equal(t->operations, 2);
        }
        expect_addresses(t, r);
        wf_free(t);
    }
    wf_free(first);
    free_store(s);
}

static void all_ranks_end_with_the_same_table(void **state)
{
    (void)state;
    expect_all_have_the_same(2);
    expect_all_have_the_same(3);
    expect_all_have_the_same(32);
    expect_all_have_the_same(33);
    expect_all_have_the_same(65);
    expect_all_have_the_same(1100);
}

/* One rank's own record, that of a group and the table of the job. */
static void tables_longer_than_a_value_travel_in_parts(void **state)
{
    static const size_t bytes = 3 * WEFT_BOOT_VALUE_MAX / 2 + 3;
    unsigned char *data = malloc(bytes);
    wf_address a = {"long", data, bytes};
    wf_address got;

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)(i % 251);
    }
    for (uint32_t ranks = 2; ranks <= 34; ranks += 32) {
        store *s = make_store();
        wf_join_table *t = NULL;

        assert_int_equal(exchange_with(s, ranks - 1, ranks, &a, 1, &t),
                         WEFT_ERR_TIMEOUT);
        publish_all(s, ranks, ranks - 1);
        assert_int_equal(exchange_with(s, 0, ranks, &a, 1, &t), WEFT_OK);
        wf_free(t);
        assert_int_equal(exchange(s, 1, ranks, &t), WEFT_OK);
        assert_true(wf_join_address(t, 0, "long", &got));
        assert_int_equal(got.n, bytes);
        assert_memory_equal(got.data, data, bytes);
        assert_true(wf_join_address(t, ranks - 1, "long", &got));
        assert_memory_equal(got.data, data, bytes);
        assert_int_equal(t->operations, 5);
        wf_free(t);
        free_store(s);
    }
    free(data);
}

/* Rank 0 cannot form the job; all must be told `why`. */
static void expect_no_job(store *s, uint32_t ranks, weft_status want,
                          const char *why)
{
    wf_join_table *t = (wf_join_table *)(void *)s;

    assert_int_equal(exchange(s, 0, ranks, &t), want);
    assert_string_equal(weft_error_detail(), why);
    assert_int_equal(exchange(s, 1, ranks, &t), WEFT_ERR_PEER);
    assert_true(detail_has("rank 0 could not form the job: "));
    assert_true(detail_has(why));
    assert_ptr_equal(t, s);
    empty_store(s);
}

static void all_are_told_of_a_rank_that_did_not_come(void **state)
{
    store *s = make_store();

    (void)state;
    expect_no_job(s, 2, WEFT_ERR_TIMEOUT, "rank 1 did not join in time");
    publish_all(s, 40, 30);
    expect_no_job(s, 40, WEFT_ERR_TIMEOUT, "rank 30 did not join in time");
    publish_all(s, 40, 32);
    expect_no_job(s, 40, WEFT_ERR_TIMEOUT, "rank 32 did not join in time");
    /* The first of its group finds out, and rank 0 passes it on. */
    publish_all(s, 40, 33);
    expect_no_job(s, 40, WEFT_ERR_PEER, "rank 33 did not join in time");
    free_store(s);
}

static void all_are_told_of_a_rank_that_cannot_join(void **state)
{
    static const uint32_t who[] = {1, 32, 33};
    store *s = make_store();

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        weft_boot boot = boot_of(s, who[i], 40);
        char want[64];

        weft_boot_fail(WEFT_ERR_SYSTEM, "no more of anything");
        wf_join_decline(&boot);
        assert_string_equal(weft_error_detail(), "no more of anything");
        publish_all(s, 40, who[i]);
        snprintf(want, sizeof(want),
                 "rank %u could not join: no more of anything", who[i]);
        expect_no_job(s, 40, WEFT_ERR_PEER, want);
    }
    free_store(s);
}

static void all_are_told_of_a_malformed_record(void **state)
{
    static const char malformed[] = "the record of rank 1 is malformed";
    wf_join_node node = make_node("host");
    wf_join_table *t = make_single(1, 2, &node);
    store *s = make_store();

    (void)state;
    store_set(s, "weft/rank/1", t->bytes, t->head->bytes - 1);
    expect_no_job(s, 2, WEFT_ERR_PROTOCOL, malformed);
    store_set(s, "weft/rank/1", t->bytes, 0);
    expect_no_job(s, 2, WEFT_ERR_PROTOCOL, malformed);
    t->head->first = 0;
    store_set(s, "weft/rank/1", t->bytes, t->head->bytes);
    expect_no_job(s, 2, WEFT_ERR_PROTOCOL, malformed);
    t->head->first = 1;
    t->head->total = 3;
    store_set(s, "weft/rank/1", t->bytes, t->head->bytes);
    expect_no_job(s, 2, WEFT_ERR_PROTOCOL,
                  "rank 1 was started as one of 3 ranks, but this rank as one "
                  "of 2");
    wf_free(t);
    free_store(s);
}

/* Values of the full length whose head says that more is to come. */
static void lengths_that_make_no_sense_are_refused(void **state)
{
    static const uint64_t lengths[] = {0, WEFT_BOOT_VALUE_MAX - 1, 1ull << 40,
                                       UINT64_MAX};
    unsigned char *data = calloc(1, WEFT_BOOT_VALUE_MAX);
    wf_join_node node = make_node("host");
    wf_join_table *t = make_single(1, 2, &node);
    store *s = make_store();

    (void)state;
    assert_non_null(data);
    memcpy(data, t->bytes, t->head->bytes);
    for (size_t i = 0; i < 4; i++) {
        ((wf_join_head *)(void *)data)->bytes = lengths[i];
        store_set(s, "weft/rank/1", data, WEFT_BOOT_VALUE_MAX);
        expect_no_job(s, 2, WEFT_ERR_PROTOCOL,
                      "the record of rank 1 is malformed");
    }
    ((wf_join_head *)(void *)data)->bytes = WEFT_BOOT_VALUE_MAX + 1;
    store_set(s, "weft/rank/1", data, WEFT_BOOT_VALUE_MAX);
    expect_no_job(s, 2, WEFT_ERR_TIMEOUT, "rank 1 did not join in time");
    wf_free(t);
    free(data);
    free_store(s);
}

static void a_rank_gives_up_when_rank_0_says_nothing(void **state)
{
    store *s = make_store();
    wf_join_table *t = NULL;

    (void)state;
    assert_int_equal(exchange(s, 1, 2, &t), WEFT_ERR_TIMEOUT);
    assert_true(detail_has("rank 0 did not form the job in time"));
    assert_null(t);
    free_store(s);
}

/* Rank 0 of 40 collects from ranks and from a group. */
static void the_exchange_survives_any_failed_allocation(void **state)
{
    for (uint32_t ranks = 1; ranks <= 40; ranks += 39) {
        store *s = make_store();
        weft_status st;
        unsigned nth = 0;

        (void)state;
        publish_all(s, ranks, ranks);
        do {
            wf_join_table *t = NULL;

            wf_alloc_fail_nth(++nth);
            st = exchange(s, 0, ranks, &t);
            wf_alloc_fail_nth(0);
            assert_true(st == WEFT_OK || (st == WEFT_ERR_NOMEM && t == NULL));
            wf_free(t);
        } while (st != WEFT_OK);
        assert_true(nth > 1);
        free_store(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_tables_hold_every_rank_and_each_node_once),
        cmocka_unit_test(a_hundred_thousand_ranks_fit_however_they_are_placed),
        cmocka_unit_test(groups_have_about_as_many_members_as_there_are_groups),
        cmocka_unit_test(a_node_has_the_cores_of_all_its_ranks),
        cmocka_unit_test(ranks_of_several_sessions_on_a_host_are_told_apart),
        cmocka_unit_test(a_table_of_any_other_length_is_refused),
        cmocka_unit_test(a_table_for_another_number_of_ranks_is_refused),
        cmocka_unit_test(another_version_of_weft_is_refused_and_both_are_named),
        cmocka_unit_test(what_is_malformed_is_refused),
        cmocka_unit_test(malformed_addresses_are_refused),
        cmocka_unit_test(a_note_of_failure_gives_its_text_as_far_as_it_goes),
        cmocka_unit_test(one_host_is_one_boot_user_and_set_of_namespaces),
        cmocka_unit_test(nodes_of_one_host_differ_by_their_name_only),
        cmocka_unit_test(what_a_rank_says_of_itself_is_accepted),
        cmocka_unit_test(all_ranks_end_with_the_same_table),
        cmocka_unit_test(tables_longer_than_a_value_travel_in_parts),
        cmocka_unit_test(all_are_told_of_a_rank_that_did_not_come),
        cmocka_unit_test(all_are_told_of_a_rank_that_cannot_join),
        cmocka_unit_test(all_are_told_of_a_malformed_record),
        cmocka_unit_test(lengths_that_make_no_sense_are_refused),
        cmocka_unit_test(a_rank_gives_up_when_rank_0_says_nothing),
        cmocka_unit_test(the_exchange_survives_any_failed_allocation),
    };

    return cmocka_run_group_tests_name("join", tests, NULL, NULL);
}
