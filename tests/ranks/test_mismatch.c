/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that call different things get an error that names both of them and
 * what each called, never a wrong number and never a hang. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"

enum { BARRIER, BROADCAST, ALLREDUCE, SPLIT };

typedef struct one_call {
    unsigned what;
    size_t n;
    weft_dtype type;
    weft_op op;
    uint32_t root;
    uint64_t mark;
} one_call;

/* What the odd rank calls and what all others call, and the words that the
 * error must contain. Set before the ranks are forked. */
typedef struct mismatch {
    one_call usual[2];
    one_call odd[2];
    unsigned calls;
    const char *words[4];
    bool blocking;
} mismatch;

static mismatch the;

enum { ODD_RANK = 1 };

static weft_status start(weft_comm *comm, const one_call *c, void *buf,
                         weft_request **out)
{
    switch (c->what) {
    case BARRIER:
        return weft_ibarrier(comm, out);
    case BROADCAST:
        return weft_ibroadcast(comm, buf, c->n, c->type, c->root, out);
    default:
        return weft_iallreduce(comm, buf, buf, c->n, c->type, c->op, out);
    }
}

static weft_status split(weft_comm *comm)
{
    weft_comm *half = NULL;
    weft_status st = weft_comm_split(comm, 0, 0, &half);

    weft_comm_destroy(half);
    return st;
}

static weft_status call_blocking(weft_comm *comm, const one_call *c, void *buf)
{
    switch (c->what) {
    case BARRIER:
        return weft_barrier(comm);
    case BROADCAST:
        return weft_broadcast(comm, buf, c->n, c->type, c->root);
    case ALLREDUCE:
        return weft_allreduce(comm, buf, buf, c->n, c->type, c->op);
    default:
        return split(comm);
    }
}

static weft_status call(weft_comm *comm, const one_call *c, void *buf)
{
    weft_request *request = NULL;
    weft_status st;

    if (the.blocking || c->what == SPLIT) {
        return call_blocking(comm, c, buf);
    }
    st = start(comm, c, buf, &request);
    if (st == WEFT_OK) {
        st = weft_request_wait(request, 0);
        weft_request_release(request);
    }
    return st;
}

/* A rank that needs nothing from the odd one may get through the call itself,
 * but not much further. */
static weft_status run_into_it(weft_comm *comm, void *buf)
{
    const one_call *mine =
        weft_comm_rank(comm) == ODD_RANK ? the.odd : the.usual;
    weft_status st = WEFT_OK;

    for (unsigned i = 0; st == WEFT_OK && i < the.calls; i++) {
        weft_comm_set_mark(comm, mine[i].mark);
        st = call(comm, &mine[i], buf);
        weft_comm_set_mark(comm, 0);
    }
    for (unsigned i = 0; st == WEFT_OK && i < 3; i++) {
        st = weft_barrier(comm);
    }
    return st;
}

static void check_text(const char *text, const char *const *words,
                       unsigned ranks)
{
    unsigned others = 0;

    for (unsigned r = 0; r < ranks; r++) {
        others += r != ODD_RANK && wt_names_rank(text, r);
    }
    if (!wt_names_rank(text, ODD_RANK) || others == 0) {
        WT_FAIL("does not name both ranks: %s", text);
    }
    for (unsigned i = 0; i < 4 && words[i] != NULL; i++) {
        if (strstr(text, words[i]) == NULL) {
            WT_FAIL("does not say \"%s\": %s", words[i], text);
        }
    }
}

/* It was told of; from now on everything fails at once and says the same. */
static void check_told(weft_comm *comm, weft_status st,
                       const char *const *words)
{
    char text[1024];

    WT_STATUS(st, WEFT_ERR_MISMATCH);
    snprintf(text, sizeof(text), "%s", weft_error_detail());
    check_text(text, words, weft_comm_size(comm));
    WT_STATUS(weft_barrier(comm), WEFT_ERR_MISMATCH);
    WT_CHECK(strcmp(text, weft_error_detail()) == 0);
    WT_STATUS(weft_comm_error(comm), WEFT_ERR_MISMATCH);
}

static void mismatch_body(weft_world *world)
{
    weft_comm *comm = NULL;
    char *buf = calloc(1, 8u << 20);

    WT_CHECK(buf != NULL);
    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    check_told(comm, run_into_it(comm, buf), the.words);
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_comm_destroy(comm);
    free(buf);
}

static void expect_mismatch(mismatch m)
{
    static const char *const settings[] = {"TIMEOUT=1800s",
                                           "TIMEOUT=1800s ENGINE=message"};

    for (unsigned i = 0; i < 2; i++) {
        the = m;
        the.calls = m.calls != 0 ? m.calls : 1;
        the.blocking = true;
        wt_run_both(3, settings[i], mismatch_body);
        wt_run_both(2, settings[i], mismatch_body);
        the.blocking = false;
        wt_run_both(3, settings[i], mismatch_body);
    }
}

static one_call sum_of(size_t n, weft_dtype type)
{
    return (one_call){ALLREDUCE, n, type, WEFT_SUM, 0, 0};
}

static void another_operation_is_told_of(void **state)
{
    (void)state;
    expect_mismatch((mismatch){.usual = {sum_of(10, WEFT_F32)},
                               .odd = {{.what = BARRIER}},
                               .words = {"allreduce", "barrier"}});
    expect_mismatch(
        (mismatch){.usual = {sum_of(10, WEFT_F32)},
                   .odd = {{.what = BROADCAST, .n = 10, .type = WEFT_F32}},
                   .words = {"allreduce", "broadcast"}});
    expect_mismatch((mismatch){.usual = {{.what = SPLIT}},
                               .odd = {{.what = BARRIER}},
                               .words = {"barrier"}});
}

static void another_count_is_told_of(void **state)
{
    (void)state;
    expect_mismatch((mismatch){.usual = {sum_of(10, WEFT_F32)},
                               .odd = {sum_of(11, WEFT_F32)},
                               .words = {"10", "11"}});
    expect_mismatch(
        (mismatch){.usual = {{.what = BROADCAST, .n = 50, .type = WEFT_U8}},
                   .odd = {{.what = BROADCAST, .n = 49, .type = WEFT_U8}},
                   .words = {"broadcast", "50", "49"}});
}

static void another_mark_is_told_of(void **state)
{
    one_call one = sum_of(10, WEFT_F32);
    one_call other = sum_of(10, WEFT_F32);
    one_call barrier = {.what = BARRIER, .mark = 7};

    (void)state;
    one.mark = 0x123456789;
    other.mark = 0x12345678a;
    expect_mismatch(
        (mismatch){.usual = {one},
                   .odd = {other},
                   .words = {"mark 0x123456789", "mark 0x12345678a"}});
    expect_mismatch((mismatch){.usual = {barrier},
                               .odd = {{.what = BARRIER}},
                               .words = {"barrier, mark 0x7"}});
}

/* The two would take different algorithms. */
static void a_small_and_a_large_count_are_told_of(void **state)
{
    (void)state;
    expect_mismatch((mismatch){.usual = {sum_of(1000003, WEFT_F32)},
                               .odd = {sum_of(3, WEFT_F32)},
                               .words = {"1000003", "3"}});
    expect_mismatch((mismatch){.usual = {sum_of(0, WEFT_F32)},
                               .odd = {sum_of(500000, WEFT_F32)},
                               .words = {"500000"}});
    expect_mismatch((mismatch){
        .usual = {{.what = BROADCAST, .n = 3000000, .type = WEFT_U8}},
        .odd = {{.what = BARRIER}},
        .words = {"3000000", "barrier"}});
}

static void another_type_is_told_of(void **state)
{
    (void)state;
    expect_mismatch((mismatch){.usual = {sum_of(10, WEFT_F32)},
                               .odd = {sum_of(10, WEFT_I32)},
                               .words = {"f32", "i32"}});
    expect_mismatch((mismatch){.usual = {sum_of(300000, WEFT_F32)},
                               .odd = {sum_of(300000, WEFT_BF16)},
                               .words = {"f32", "bf16"}});
}

static void another_reduction_is_told_of(void **state)
{
    one_call max = sum_of(10, WEFT_F32);

    (void)state;
    max.op = WEFT_MAX;
    expect_mismatch((mismatch){.usual = {sum_of(10, WEFT_F32)},
                               .odd = {max},
                               .words = {"sum", "max"}});
}

static void another_factor_is_told_of(void **state)
{
    one_call half = sum_of(10, WEFT_F32);
    one_call quarter = sum_of(10, WEFT_F32);

    (void)state;
    half.op = weft_premul_sum(0.5);
    quarter.op = weft_premul_sum(0.25);
    expect_mismatch((mismatch){
        .usual = {half}, .odd = {quarter}, .words = {"0.5", "0.25"}});
}

static void another_root_is_told_of(void **state)
{
    (void)state;
    expect_mismatch((mismatch){
        .usual = {{.what = BROADCAST, .n = 8, .type = WEFT_I64, .root = 0}},
        .odd = {{.what = BROADCAST, .n = 8, .type = WEFT_I64, .root = 1}},
        .words = {"from rank 0", "from rank 1"}});
    expect_mismatch((mismatch){
        .usual =
            {{.what = BROADCAST, .n = 100000, .type = WEFT_I64, .root = 1}},
        .odd = {{.what = BROADCAST, .n = 100000, .type = WEFT_I64, .root = 0}},
        .words = {"from rank 0", "from rank 1"}});
}

static void another_order_is_told_of(void **state)
{
    one_call sum = sum_of(5, WEFT_F64);
    one_call barrier = {.what = BARRIER};

    (void)state;
    expect_mismatch((mismatch){.usual = {sum, barrier},
                               .odd = {barrier, sum},
                               .calls = 2,
                               .words = {"allreduce", "barrier"}});
}

/* --- every collective ---------------------------------------------------- */

/* One element less in a part, on one rank; nobody then reaches past his own
 * memory. */
typedef struct shorter {
    bool src;
    bool dst;
    unsigned part;
    bool own; /* and in n, which is this rank's own part */
} shorter;

typedef struct odd_collective {
    wt_coll usual;
    wt_coll odd;
    shorter usual_less;
    shorter odd_less;
    const char *words[4];
} odd_collective;

static void shorten(wt_call *call, const shorter *less)
{
    call->src[less->part].n -= less->src;
    call->dst[less->part].n -= less->dst;
    call->n -= less->own;
}

static weft_status
run_collective_into_it(weft_comm *comm, const odd_collective *c, bool blocking)
{
    bool odd = weft_comm_rank(comm) == ODD_RANK;
    wt_call call;
    weft_status st;

    wt_call_init(&call, comm, odd ? &c->odd : &c->usual, NULL);
    shorten(&call, odd ? &c->odd_less : &c->usual_less);
    st = blocking ? wt_call_run(&call) : wt_call_run_request(&call);
    for (unsigned i = 0; st == WEFT_OK && i < 3; i++) {
        st = weft_barrier(comm);
    }
    wt_call_fini(&call);
    return st;
}

static void expect_told(weft_world *world, const odd_collective *c,
                        bool blocking)
{
    weft_comm *comm = NULL;
    weft_status st;

    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    st = run_collective_into_it(comm, c, blocking);
    if (st != WEFT_ERR_MISMATCH) {
        char text[400];

        wt_coll_text(&c->odd, text, sizeof(text));
        WT_FAIL("%s: %s (%s)", text, weft_status_name(st),
                st == WEFT_OK ? "no error" : weft_error_detail());
    }
    check_told(comm, st, c->words);
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_comm_destroy(comm);
}

static wt_coll call_of(wt_coll_kind kind, size_t n)
{
    return (wt_coll){.kind = kind,
                     .type = WEFT_F32,
                     .op = WEFT_SUM,
                     .n = n,
                     .lengths = WT_EVEN,
                     .placing = WT_GAPS,
                     .seed = (uint64_t)kind};
}

/* Small and large ones take different ways. */
static const size_t sizes[] = {10, 50000};

enum { SIZES = 2 };

static void other_kinds_body(weft_world *world)
{
    for (unsigned i = 0; i < WT_COLLS * SIZES; i++) {
        wt_coll_kind a = (wt_coll_kind)(i / SIZES);
        wt_coll_kind b = (wt_coll_kind)((a + 1 + i % 5) % WT_COLLS);
        odd_collective c = {.usual = call_of(a, sizes[i % SIZES]),
                            .odd = call_of(b, sizes[i / 3 % SIZES]),
                            .words = {wt_coll_name(a), wt_coll_name(b)}};

        expect_told(world, &c, i / 2 % 2 == 0);
    }
}

/* Counts, of operations in which all ranks pass the same. */
static void other_counts_body(weft_world *world)
{
    for (unsigned i = 0; i < WT_COLLS * 3; i++) {
        wt_coll_kind kind = (wt_coll_kind)(i / 3);
        odd_collective c = {.usual = call_of(kind, i % 3 == 0 ? 10 : 50000),
                            .odd = call_of(kind, i % 3 == 2 ? 50001 : 11)};

        c.words[0] = wt_coll_name(kind);
        if (kind == WT_BARRIER || wt_coll_has_parts(kind)) {
            continue;
        }
        c.words[1] = i % 3 == 0 ? "10" : "50000";
        c.words[2] = i % 3 == 2 ? "50001" : "11";
        expect_told(world, &c, i % 2 == 0);
    }
}

static void other_types_body(weft_world *world)
{
    for (unsigned i = SIZES; i < WT_COLLS * SIZES; i++) {
        wt_coll_kind kind = (wt_coll_kind)(i / SIZES);
        odd_collective c = {.usual = call_of(kind, sizes[i % SIZES]),
                            .odd = call_of(kind, sizes[i % SIZES]),
                            .words = {wt_coll_name(kind), "f32", "i32"}};

        c.odd.type = WEFT_I32;
        expect_told(world, &c, i / 2 % 2 == 0);
    }
}

static void other_reductions_body(weft_world *world)
{
    for (unsigned i = 0; i < WT_COLLS * SIZES; i++) {
        wt_coll_kind kind = (wt_coll_kind)(i / SIZES);
        odd_collective c = {.usual = call_of(kind, sizes[i % SIZES]),
                            .odd = call_of(kind, sizes[i % SIZES]),
                            .words = {wt_coll_name(kind), "sum", "max"}};

        c.odd.op = WEFT_MAX;
        if (wt_coll_reduces(kind)) {
            expect_told(world, &c, i / 2 % 2 == 0);
        }
    }
}

static void other_roots_body(weft_world *world)
{
    for (unsigned i = 0; i < WT_COLLS * SIZES * 2; i++) {
        wt_coll_kind kind = (wt_coll_kind)(i / SIZES / 2);
        odd_collective c = {
            .usual = call_of(kind, sizes[i % SIZES]),
            .odd = call_of(kind, sizes[i % SIZES]),
            .words = {wt_coll_name(kind), " rank 0", " rank 1"}};

        c.usual.root = i / SIZES % 2;
        c.odd.root = 1 - c.usual.root;
        if (wt_coll_has_root(kind)) {
            expect_told(world, &c, i % 3 == 0);
        }
    }
}

/* As many in all, but one more here and one less there. */
static void other_parts_body(weft_world *world)
{
    for (unsigned i = 0; i < 2 * SIZES; i++) {
        wt_coll_kind kind = i / SIZES == 0 ? WT_ALLGATHERV : WT_REDUCE_SCATTERV;
        bool src = kind == WT_REDUCE_SCATTERV;
        odd_collective c = {.usual = call_of(kind, sizes[i % SIZES]),
                            .odd = call_of(kind, sizes[i % SIZES]),
                            .usual_less = {src, !src, 0, false},
                            .odd_less = {src, !src, 1, false},
                            .words = {wt_coll_name(kind), "parts"}};

        expect_told(world, &c, i % 2 == 0);
        expect_told(world, &c, i % 2 != 0);
    }
}

/* What one rank sends is not what another expects. */
static void uneven_body(weft_world *world)
{
    const struct {
        wt_coll_kind kind;
        uint32_t root;
        shorter less;
    } cases[] = {
        {WT_GATHERV, 0, {.own = true}},
        {WT_GATHERV, 1, {.dst = true, .part = 0}},
        {WT_SCATTERV, 0, {.own = true}},
        {WT_SCATTERV, 1, {.src = true, .part = 0}},
        {WT_ALLTOALLV, 0, {.src = true, .part = 0}},
        {WT_ALLTOALLV, 0, {.dst = true, .part = 0}},
    };

    for (unsigned i = 0; i < 6 * SIZES * 2; i++) {
        size_t n = sizes[i / 6 % SIZES];
        odd_collective c = {.usual = call_of(cases[i % 6].kind, n),
                            .odd = call_of(cases[i % 6].kind, n),
                            .odd_less = cases[i % 6].less};

        c.usual.root = cases[i % 6].root;
        c.odd.root = cases[i % 6].root;
        c.words[0] = wt_coll_name(c.odd.kind);
        c.words[1] = n == 10 ? "40" : "200000";
        c.words[2] = n == 10 ? "36" : "199996";
        expect_told(world, &c, i / 12 == 0);
    }
}

static void on_both_engines(wt_body *body)
{
    wt_run_both(3, "TIMEOUT=1800s", body);
    wt_run_both(2, "TIMEOUT=1800s CHUNK_BYTES=4K FLAT_BYTES=64", body);
    wt_run_both(3, "TIMEOUT=1800s ENGINE=message", body);
    wt_run_both(2, "TIMEOUT=1800s ENGINE=message", body);
}

static void any_two_collectives_are_told_apart(void **state)
{
    (void)state;
    on_both_engines(other_kinds_body);
}

static void another_count_of_any_collective_is_told_of(void **state)
{
    (void)state;
    on_both_engines(other_counts_body);
}

static void another_type_of_any_collective_is_told_of(void **state)
{
    (void)state;
    on_both_engines(other_types_body);
}

static void another_reduction_of_any_collective_is_told_of(void **state)
{
    (void)state;
    on_both_engines(other_reductions_body);
}

static void another_root_of_any_collective_is_told_of(void **state)
{
    (void)state;
    on_both_engines(other_roots_body);
}

static void other_parts_are_told_of(void **state)
{
    (void)state;
    on_both_engines(other_parts_body);
}

static void parts_of_another_length_than_expected_are_told_of(void **state)
{
    (void)state;
    on_both_engines(uneven_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_operation_is_told_of),
        cmocka_unit_test(another_count_is_told_of),
        cmocka_unit_test(another_mark_is_told_of),
        cmocka_unit_test(a_small_and_a_large_count_are_told_of),
        cmocka_unit_test(another_type_is_told_of),
        cmocka_unit_test(another_reduction_is_told_of),
        cmocka_unit_test(another_factor_is_told_of),
        cmocka_unit_test(another_root_is_told_of),
        cmocka_unit_test(another_order_is_told_of),
        cmocka_unit_test(any_two_collectives_are_told_apart),
        cmocka_unit_test(another_count_of_any_collective_is_told_of),
        cmocka_unit_test(another_type_of_any_collective_is_told_of),
        cmocka_unit_test(another_reduction_of_any_collective_is_told_of),
        cmocka_unit_test(another_root_of_any_collective_is_told_of),
        cmocka_unit_test(other_parts_are_told_of),
        cmocka_unit_test(parts_of_another_length_than_expected_are_told_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
