/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks come together: the job's table, how it comes to every rank, and
 * who is linked with whom. */
#include "mem/join.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/time.h"
#include "mem/mesh.h"
#include "wt_cmocka.h"

enum { RANKS = 3 };

static bool detail_has(const char *text)
{
    return strstr(weft_error_detail(), text) != NULL;
}

/* --- the table -------------------------------------------------------------
 */

static void fill_record(wf_join_record *r, uint32_t rank)
{
    *r = (wf_join_record){.magic = WF_JOIN_MAGIC,
                          .version = WF_JOIN_VERSION,
                          .rank = rank,
                          .pid = 100,
                          .user = 1000,
                          .netns = 5,
                          .userns = 6};
    strcpy(r->boot_id, "0f1e2d3c-0000-4000-8000-123456789abc");
    strcpy(r->host, "host");
    strcpy(r->node, "node");
}

static size_t table_bytes(uint32_t ranks)
{
    return sizeof(wf_join_head) + ranks * sizeof(wf_join_record);
}

/* Of exactly its size, so that a sanitizer sees a read past its end. */
static wf_join_table *make_table(uint32_t ranks)
{
    wf_join_table *t = calloc(1, table_bytes(ranks));

    assert_non_null(t);
    t->head = (wf_join_head){
        .magic = WF_JOIN_MAGIC, .version = WF_JOIN_VERSION, .ranks = ranks};
    for (uint32_t r = 0; r < ranks; r++) {
        fill_record(&t->record[r], r);
    }
    return t;
}

static void a_table_as_rank_0_writes_it_is_accepted(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 20; ranks++) {
        wf_join_table *t = make_table(ranks);

        assert_int_equal(wf_join_check(t, table_bytes(ranks), ranks), WEFT_OK);
        free(t);
    }
}

/* Each part of a table, in memory of its own size. */
static void a_table_of_any_other_length_is_refused(void **state)
{
    wf_join_table *whole = make_table(RANKS);
    size_t bytes = table_bytes(RANKS);

    (void)state;
    for (size_t n = 0; n <= bytes + 9; n++) {
        void *part = calloc(1, n > 0 ? n : 1);

        assert_non_null(part);
        memcpy(part, whole, n < bytes ? n : bytes);
        assert_int_equal(wf_join_check(part, n, RANKS),
                         n == bytes ? WEFT_OK : WEFT_ERR_PROTOCOL);
        free(part);
    }
    free(whole);
}

static void a_table_for_another_number_of_ranks_is_refused(void **state)
{
    wf_join_table *t = make_table(RANKS);

    (void)state;
    assert_int_equal(wf_join_check(t, table_bytes(RANKS), RANKS + 1),
                     WEFT_ERR_PROTOCOL);
    assert_true(detail_has("has 3 ranks, but this rank was started with 4"));
    assert_int_equal(wf_join_check(t, table_bytes(RANKS), UINT32_MAX),
                     WEFT_ERR_PROTOCOL);
    t->head.ranks = UINT32_MAX;
    assert_int_equal(wf_join_check(t, table_bytes(RANKS), RANKS),
                     WEFT_ERR_PROTOCOL);
    assert_int_equal(wf_join_check(t, table_bytes(RANKS), UINT32_MAX),
                     WEFT_ERR_PROTOCOL);
    free(t);
}

/* Spoil `n` bytes at `at`; the table must be refused with `why`. */
static void expect_spoilt(wf_join_table *t, void *at, int fill, size_t n,
                          const char *why)
{
    unsigned char old[64];

    assert_true(n <= sizeof(old));
    memcpy(old, at, n);
    memset(at, fill, n);
    assert_int_equal(wf_join_check(t, table_bytes(RANKS), RANKS),
                     WEFT_ERR_PROTOCOL);
    assert_true(detail_has(why));
    memcpy(at, old, n);
    assert_int_equal(wf_join_check(t, table_bytes(RANKS), RANKS), WEFT_OK);
}

static void a_head_of_another_version_is_refused(void **state)
{
    wf_join_table *t = make_table(RANKS);

    (void)state;
    expect_spoilt(t, &t->head.magic, 0, 1, "comes from another version");
    expect_spoilt(t, &t->head.version, WF_JOIN_VERSION + 1, 1,
                  "comes from another version");
    free(t);
}

static void a_malformed_record_is_refused_and_its_rank_named(void **state)
{
    wf_join_table *t = make_table(RANKS);

    (void)state;
    for (uint32_t i = 0; i < RANKS; i++) {
        wf_join_record *r = &t->record[i];
        char rank[16];

        snprintf(rank, sizeof(rank), "rank %u", i);
        expect_spoilt(t, &r->magic, 0, 1, rank);
        expect_spoilt(t, &r->version, 9, 1, "another version");
        expect_spoilt(t, &r->rank, 9, 1, rank);
        expect_spoilt(t, r->boot_id, 0, 1, rank);
        expect_spoilt(t, r->boot_id, 'b', sizeof(r->boot_id), rank);
        expect_spoilt(t, r->host, 'h', sizeof(r->host), rank);
        expect_spoilt(t, r->node, 'n', sizeof(r->node), rank);
    }
    free(t);
}

static void a_note_of_failure_gives_its_text_as_far_as_it_goes(void **state)
{
    static const char text[] = "rank 1 did not join in time";
    size_t bytes = sizeof(wf_join_head) + strlen(text);
    wf_join_head head = {
        .magic = WF_JOIN_MAGIC, .version = WF_JOIN_VERSION, .failed = 1};

    (void)state;
    for (size_t n = sizeof(head); n <= bytes; n++) {
        char *note = malloc(n);
        char want[100];

        assert_non_null(note);
        memcpy(note, &head, sizeof(head));
        memcpy(note + sizeof(head), text, n - sizeof(head));
        assert_int_equal(wf_join_check(note, n, 2), WEFT_ERR_PEER);
        snprintf(want, sizeof(want), "rank 0 could not form the job: %.*s",
                 (int)(n - sizeof(head)), text);
        assert_string_equal(weft_error_detail(), want);
        free(note);
    }
}

static void expect_apart(const wf_join_record *a, const wf_join_record *b,
                         bool same_host)
{
    assert_int_equal(wf_join_same_host(a, b), same_host);
    assert_int_equal(wf_join_same_host(b, a), same_host);
    assert_false(wf_join_same_node(a, b));
    assert_false(wf_join_same_node(b, a));
}

static void one_host_is_one_boot_user_and_set_of_namespaces(void **state)
{
    wf_join_record a;
    wf_join_record b;

    (void)state;
    fill_record(&a, 0);
    fill_record(&b, 1);
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
    wf_join_record a;
    wf_join_record b;

    (void)state;
    fill_record(&a, 0);
    fill_record(&b, 1);
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
    assert_int_equal(wf_join_describe(&settings, rank, name, &r), WEFT_OK);
    return r;
}

static void what_a_rank_says_of_itself_is_accepted(void **state)
{
    wf_join_table *t = make_table(2);

    (void)state;
    t->record[0] = describe(0, NULL);
    t->record[1] = describe(1, "NODE=elsewhere");
    assert_int_equal(wf_join_check(t, table_bytes(2), 2), WEFT_OK);
    assert_int_equal(t->record[1].pid, getpid());
    assert_int_equal(t->record[1].socket[0], 1);
    assert_int_equal(t->record[1].socket[1], 77);
    assert_string_equal(t->record[1].node, "elsewhere");
    expect_apart(&t->record[0], &t->record[1], true);
    free(t);
}

/* --- the exchange, over a store in this process ----------------------------
 */

typedef struct value {
    char key[32];
    size_t n;
    char data[4096];
} value;

typedef struct store {
    value values[8];
    size_t count;
} store;

static weft_status store_set(void *ctx, const char *key, const void *data,
                             size_t n)
{
    store *s = ctx;
    value *v = &s->values[s->count++];

    assert_true(s->count <= sizeof(s->values) / sizeof(s->values[0]));
    assert_true(n <= sizeof(v->data));
    snprintf(v->key, sizeof(v->key), "%s", key);
    memcpy(v->data, data, n);
    v->n = n;
    return WEFT_OK;
}

/* What is not there yet will never be: all ranks are this thread. */
static weft_status store_get(void *ctx, const char *key, void *data, size_t *n,
                             uint32_t timeout_ms)
{
    const store *s = ctx;

    (void)timeout_ms;
    for (size_t i = 0; i < s->count; i++) {
        const value *v = &s->values[i];

        if (strcmp(v->key, key) == 0) {
            assert_true(v->n <= *n);
            memcpy(data, v->data, v->n);
            *n = v->n;
            return WEFT_OK;
        }
    }
    return WEFT_ERR_TIMEOUT;
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
    return exchange_with(s, rank, ranks, NULL, 0, out);
}

static void publish(store *s, uint32_t rank, const void *data, size_t n)
{
    char key[32];

    snprintf(key, sizeof(key), "weft/rank/%u", rank);
    assert_int_equal(store_set(s, key, data, n), WEFT_OK);
}

static store *make_store(void)
{
    store *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    return s;
}

static void all_ranks_end_with_the_same_table(void **state)
{
    store *s = make_store();
    wf_join_table *t[RANKS] = {NULL};
    wf_join_record r;

    (void)state;
    for (uint32_t i = 1; i < RANKS; i++) {
        r = describe(i, NULL);
        publish(s, i, &r, sizeof(r));
    }
    for (uint32_t i = 0; i < RANKS; i++) {
        assert_int_equal(exchange(s, i, RANKS, &t[i]), WEFT_OK);
        assert_int_equal(wf_join_check(t[i], table_bytes(RANKS), RANKS),
                         WEFT_OK);
        assert_memory_equal(t[i], t[0], table_bytes(RANKS));
    }
    assert_true((t[0]->head.secret.k[0] | t[0]->head.secret.k[1]) != 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        wf_free(t[i]);
    }
    free(s);
}

/* Rank r has r addresses, of lengths that no alignment suits. */
static size_t addresses_of(uint32_t rank, wf_address *out)
{
    static const char bytes[] = "an address that means nothing to anybody here";

    for (uint32_t i = 0; i < rank; i++) {
        out[i] = (wf_address){i == 0 ? "first" : "second", bytes + i,
                              i == 0 ? 13 * rank : 0};
    }
    return rank;
}

static wf_join_table *join_with_addresses(store *s)
{
    wf_address a[RANKS];
    wf_join_table *t = NULL;

    for (uint32_t r = 1; r < RANKS; r++) { /* rank 0 has not come yet */
        assert_int_equal(exchange_with(s, r, RANKS, a, addresses_of(r, a), &t),
                         WEFT_ERR_TIMEOUT);
    }
    assert_int_equal(exchange_with(s, 0, RANKS, NULL, 0, &t), WEFT_OK);
    wf_free(t);
    assert_int_equal(exchange(s, 1, RANKS, &t), WEFT_OK);
    return t;
}

static void addresses_of_any_length_reach_all_ranks(void **state)
{
    store *s = make_store();
    wf_join_table *t = join_with_addresses(s);

    (void)state;
    for (uint32_t r = 0; r < RANKS; r++) {
        wf_address want[RANKS];
        wf_address got;
        size_t n = addresses_of(r, want);

        for (size_t i = 0; i < n; i++) {
            assert_true(wf_join_address(t, r, want[i].of, &got));
            assert_int_equal(got.n, want[i].n);
            assert_memory_equal(got.data, want[i].data, got.n);
        }
        assert_int_equal(wf_join_address(t, r, "second", &got), r == 2);
        assert_false(wf_join_address(t, r, "third", &got));
    }
    wf_free(t);
    free(s);
}

static void malformed_addresses_are_refused(void **state)
{
    store *s = make_store();
    wf_join_table *t = join_with_addresses(s);
    size_t n = table_bytes(RANKS);
    wf_join_section *first = (wf_join_section *)(void *)((char *)t + n);
    uint64_t bytes = t->record[1].address_bytes;

    (void)state;
    n += bytes + t->record[2].address_bytes;
    assert_int_equal(wf_join_check(t, n, RANKS), WEFT_OK);
    assert_int_equal(wf_join_check(t, n - 8, RANKS), WEFT_ERR_PROTOCOL);
    for (uint64_t wrong = 0; wrong < 3; wrong++) {
        first->bytes = wrong == 0 ? bytes : wrong == 1 ? UINT64_MAX : 1;
        assert_int_equal(wf_join_check(t, n, RANKS), WEFT_ERR_PROTOCOL);
        assert_true(detail_has("the addresses of rank 1 are malformed"));
    }
    first->bytes = 13;
    memset(first->of, 'x', sizeof(first->of));
    assert_int_equal(wf_join_check(t, n, RANKS), WEFT_ERR_PROTOCOL);
    first->of[4] = '\0';
    assert_int_equal(wf_join_check(t, n, RANKS), WEFT_OK);
    for (uint64_t add = 1; add != 0; add <<= 1) {
        t->record[1].address_bytes = bytes + add;
        assert_int_equal(wf_join_check(t, n, RANKS), WEFT_ERR_PROTOCOL);
    }
    wf_free(t);
    free(s);
}

/* Rank 0 cannot form the job of two; both must be told `why`. */
static void expect_no_job(store *s, weft_status want, const char *why)
{
    wf_join_table *t = (wf_join_table *)(void *)s;

    assert_int_equal(exchange(s, 0, 2, &t), want);
    assert_string_equal(weft_error_detail(), why);
    assert_int_equal(exchange(s, 1, 2, &t), WEFT_ERR_PEER);
    assert_true(detail_has("rank 0 could not form the job: "));
    assert_true(detail_has(why));
    assert_ptr_equal(t, s);
}

static void all_are_told_of_a_rank_that_did_not_come(void **state)
{
    store *s = make_store();

    (void)state;
    expect_no_job(s, WEFT_ERR_TIMEOUT, "rank 1 did not join in time");
    free(s);
}

static void all_are_told_of_a_malformed_record(void **state)
{
    static const char malformed[] = "the record of rank 1 is malformed";
    store *s = make_store();
    wf_join_record r = describe(1, NULL);

    (void)state;
    publish(s, 1, &r, sizeof(r) - 1);
    expect_no_job(s, WEFT_ERR_PROTOCOL, malformed);
    memset(s, 0, sizeof(*s));
    r.rank = 0;
    publish(s, 1, &r, sizeof(r));
    expect_no_job(s, WEFT_ERR_PROTOCOL, malformed);
    memset(s, 0, sizeof(*s));
    r = describe(1, NULL);
    r.version++;
    publish(s, 1, &r, sizeof(r));
    expect_no_job(s, WEFT_ERR_PROTOCOL, "rank 1 runs another version of weft");
    free(s);
}

static void a_rank_gives_up_when_rank_0_says_nothing(void **state)
{
    store *s = make_store();
    wf_join_table *t = NULL;

    (void)state;
    assert_int_equal(exchange(s, 1, 2, &t), WEFT_ERR_TIMEOUT);
    assert_true(detail_has("rank 0 did not form the job in time"));
    assert_null(t);
    free(s);
}

static void the_exchange_survives_any_failed_allocation(void **state)
{
    weft_status st;
    unsigned nth = 0;

    (void)state;
    do {
        store *s = make_store();
        wf_join_table *t = NULL;

        wf_alloc_fail_nth(++nth);
        st = exchange(s, 0, 1, &t);
        wf_alloc_fail_nth(0);
        assert_true(st == WEFT_OK || (st == WEFT_ERR_NOMEM && t == NULL));
        wf_free(t);
        free(s);
    } while (st != WEFT_OK);
    assert_true(nth > 1);
}

/* --- who is linked with whom ------------------------------------------------
 */

/* Ranks up to which all are linked: none, few, as is usual, all. */
static const uint32_t mesh_limits[] = {0, 1, 8, 64, 300};

typedef void check_mesh(uint32_t count, uint32_t limit);

static void for_all_meshes(check_mesh *check)
{
    for (uint32_t count = 1; count <= 300; count++) {
        for (size_t i = 0; i < sizeof(mesh_limits) / sizeof(mesh_limits[0]);
             i++) {
            check(count, mesh_limits[i]);
        }
    }
}

static void check_symmetric(uint32_t count, uint32_t limit)
{
    for (uint32_t a = 0; a < count; a++) {
        assert_false(wf_mesh_linked(a, a, count, limit));
        for (uint32_t b = 0; b < a; b++) {
            assert_int_equal(wf_mesh_linked(a, b, count, limit),
                             wf_mesh_linked(b, a, count, limit));
        }
    }
}

static void links_have_two_ends_and_nobody_is_linked_with_itself(void **state)
{
    (void)state;
    for_all_meshes(check_symmetric);
}

static void check_star(uint32_t count, uint32_t limit)
{
    for (uint32_t a = 1; a < count; a++) {
        assert_true(wf_mesh_linked(0, a, count, limit));
    }
}

static void everybody_is_linked_with_0_and_so_with_everybody(void **state)
{
    (void)state;
    for_all_meshes(check_star);
}

static void check_whole(uint32_t count, uint32_t limit)
{
    for (uint32_t a = 0; a < count && count <= limit; a++) {
        for (uint32_t b = 0; b < a; b++) {
            assert_true(wf_mesh_linked(a, b, count, limit));
        }
    }
}

static void up_to_the_limit_all_are_linked_with_all(void **state)
{
    (void)state;
    for_all_meshes(check_whole);
}

/* A death is seen by neighbours even when rank 0 died too; and nobody but rank
 * 0 needs many descriptors. */
static void check_neighbours(uint32_t count, uint32_t limit)
{
    for (uint32_t a = 0; a < count; a++) {
        uint32_t links = 0;

        for (uint32_t b = 0; b < count; b++) {
            links += wf_mesh_linked(a, b, count, limit);
        }
        if (count > 1) {
            assert_true(wf_mesh_linked(a, (a + 1) % count, count, limit));
        }
        assert_true(links >= (count < 5 ? count - 1 : 4));
        assert_true(a == 0 || count <= limit || links <= 9);
    }
}

static void above_the_limit_neighbours_in_a_circle_are_linked(void **state)
{
    (void)state;
    for_all_meshes(check_neighbours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_as_rank_0_writes_it_is_accepted),
        cmocka_unit_test(a_table_of_any_other_length_is_refused),
        cmocka_unit_test(a_table_for_another_number_of_ranks_is_refused),
        cmocka_unit_test(a_head_of_another_version_is_refused),
        cmocka_unit_test(a_malformed_record_is_refused_and_its_rank_named),
        cmocka_unit_test(a_note_of_failure_gives_its_text_as_far_as_it_goes),
        cmocka_unit_test(one_host_is_one_boot_user_and_set_of_namespaces),
        cmocka_unit_test(nodes_of_one_host_differ_by_their_name_only),
        cmocka_unit_test(what_a_rank_says_of_itself_is_accepted),
        cmocka_unit_test(all_ranks_end_with_the_same_table),
        cmocka_unit_test(addresses_of_any_length_reach_all_ranks),
        cmocka_unit_test(malformed_addresses_are_refused),
        cmocka_unit_test(all_are_told_of_a_rank_that_did_not_come),
        cmocka_unit_test(all_are_told_of_a_malformed_record),
        cmocka_unit_test(a_rank_gives_up_when_rank_0_says_nothing),
        cmocka_unit_test(the_exchange_survives_any_failed_allocation),
        cmocka_unit_test(links_have_two_ends_and_nobody_is_linked_with_itself),
        cmocka_unit_test(everybody_is_linked_with_0_and_so_with_everybody),
        cmocka_unit_test(up_to_the_limit_all_are_linked_with_all),
        cmocka_unit_test(above_the_limit_neighbours_in_a_circle_are_linked),
    };

    return cmocka_run_group_tests_name("join", tests, NULL, NULL);
}
