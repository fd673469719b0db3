/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that call different things get an error that names both of them and
 * what each called, never a wrong number and never a hang. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_cmocka.h"

enum { BARRIER, BROADCAST, ALLREDUCE, SPLIT };

typedef struct one_call {
    unsigned what;
    size_t n;
    weft_dtype type;
    weft_op op;
    uint32_t root;
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
        st = call(comm, &mine[i], buf);
    }
    for (unsigned i = 0; st == WEFT_OK && i < 3; i++) {
        st = weft_barrier(comm);
    }
    return st;
}

static void check_text(const char *text, unsigned ranks)
{
    unsigned others = 0;

    for (unsigned r = 0; r < ranks; r++) {
        others += r != ODD_RANK && wt_names_rank(text, r);
    }
    if (!wt_names_rank(text, ODD_RANK) || others == 0) {
        WT_FAIL("does not name both ranks: %s", text);
    }
    for (unsigned i = 0; i < 4 && the.words[i] != NULL; i++) {
        if (strstr(text, the.words[i]) == NULL) {
            WT_FAIL("does not say \"%s\": %s", the.words[i], text);
        }
    }
}

static void mismatch_body(weft_world *world)
{
    weft_comm *comm = NULL;
    char *buf = calloc(1, 8u << 20);
    char text[1024];
    weft_status st;

    WT_CHECK(buf != NULL);
    WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
    st = run_into_it(comm, buf);
    WT_STATUS(st, WEFT_ERR_MISMATCH);
    snprintf(text, sizeof(text), "%s", weft_error_detail());
    check_text(text, weft_world_size(world));

    /* From now on it fails at once and says the same. */
    WT_STATUS(weft_barrier(comm), WEFT_ERR_MISMATCH);
    WT_CHECK(strcmp(text, weft_error_detail()) == 0);
    WT_STATUS(weft_comm_error(comm), WEFT_ERR_MISMATCH);
    WT_OK(weft_barrier(weft_world_comm(world)));
    weft_comm_destroy(comm);
    free(buf);
}

static void expect_mismatch(mismatch m)
{
    static const char *const settings[] = {"TIMEOUT=20s",
                                           "TIMEOUT=20s ENGINE=message"};

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
    return (one_call){ALLREDUCE, n, type, WEFT_SUM, 0};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_operation_is_told_of),
        cmocka_unit_test(another_count_is_told_of),
        cmocka_unit_test(a_small_and_a_large_count_are_told_of),
        cmocka_unit_test(another_type_is_told_of),
        cmocka_unit_test(another_reduction_is_told_of),
        cmocka_unit_test(another_factor_is_told_of),
        cmocka_unit_test(another_root_is_told_of),
        cmocka_unit_test(another_order_is_told_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
