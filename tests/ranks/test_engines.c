/* SPDX-License-Identifier: Apache-2.0 */
/* Engines are chosen for each operation, and those above src/coll can add
 * theirs. The one added here, "added", offers to do large allreduces of f32 and
 * all gatherv, and has memory; it does its work by messages. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/choose.h"
#include "coll/coll.h"
#include "weft.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"

enum {
    FROM = 1000, /* elements of an allreduce that are ours */
    BEGUN = 0,   /* words: operations that were ours, on all ranks */
    ALLOCATED = 1,
    FREED = 2
};

static wf_offer added_offer(const weft_comm *comm, wf_call_kind kind)
{
    wf_offer offer = wf_offer_all(comm->size > 1 ? 90 : 0);

    switch (kind) {
    case WF_CALL_ALLREDUCE:
        offer.types = 1u << WEFT_F32;
        offer.from = FROM * sizeof(float);
        return offer;
    case WF_CALL_GATHERV:
    case WF_CALL_ALLOC:
        return offer;
    default:
        return (wf_offer){0};
    }
}

static weft_status added_attach(weft_comm *comm, void *area, void **state)
{
    return wf_engine_message.attach(comm, area, state);
}

static void added_detach(weft_comm *comm, void *state)
{
    wf_engine_message.detach(comm, state);
}

static void added_begin(wf_coll_op *op)
{
    wt_word_add(BEGUN, 1);
    wf_engine_message.begin(op);
}

static weft_status added_alloc(weft_comm *comm, void *state, size_t bytes,
                               uint64_t salt, void **out)
{
    (void)state;
    (void)salt;
    *out = calloc(1, bytes);
    wt_word_add(ALLOCATED, 1);
    return wf_coll_all_or_none(comm, WEFT_OK);
}

static void added_free(weft_comm *comm, void *state, void *buffer)
{
    (void)comm;
    (void)state;
    wt_word_add(FREED, 1);
    free(buffer);
}

static const wf_engine added = {
    .name = "added",
    .what = "what a test adds",
    .offer = added_offer,
    .attach = added_attach,
    .detach = added_detach,
    .begin = added_begin,
    .alloc = added_alloc,
    .free = added_free,
};

/* --- running with it ------------------------------------------------------ */

static const char *nodes; /* a letter a rank, or NULL: all on one */

static const char *node_settings(unsigned rank)
{
    static _Thread_local char text[32];

    snprintf(text, sizeof(text), "NODE=%c", nodes[rank]);
    return text;
}

static void run_with(const wf_engine *const *engines, const wt_job *job)
{
    static wf_parts parts;

    parts = wf_weft_parts;
    parts.layers[WF_LAYER_COLL].given = engines;
    wt_parts = &parts;
    wt_run_job_both(job);
    wt_parts = NULL;
}

static const wf_engine *const with_added[] = {
    &wf_engine_alone,   &wf_engine_shm, &wf_engine_hosts,
    &wf_engine_message, &added,         NULL};

static void run(unsigned ranks, const char *where, wt_body *body)
{
    wt_job job = {.ranks = ranks, .body = body};

    nodes = where;
    job.settings_of = where != NULL ? node_settings : NULL;
    run_with(with_added, &job);
}

/* On all ranks; `n` is what they have counted together since the last time. */
static void expect(unsigned word, uint32_t n)
{
    wt_meet();
    WT_CHECK(atomic_load(wt_word(word)) == n);
    wt_meet();
    if (wt_rank() == 0) {
        wt_word_set(word, 0);
    }
    wt_meet();
}

static wt_coll allreduce_of(size_t n, weft_dtype type)
{
    return (wt_coll){
        .kind = WT_ALLREDUCE, .type = type, .op = WEFT_SUM, .n = n};
}

/* --- who serves what ------------------------------------------------------ */

static void carry_out_both(weft_comm *comm, const wt_coll *what)
{
    wt_coll_carry_out(comm, what, NULL, true);
    wt_coll_carry_out(comm, what, NULL, false);
}

static void offers_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    wt_coll few = allreduce_of(FROM - 1, WEFT_F32);
    wt_coll many = allreduce_of(FROM, WEFT_F32);
    wt_coll other_type = allreduce_of(FROM, WEFT_F64);
    wt_coll gatherv = {.kind = WT_GATHERV, .type = WEFT_I32, .n = 3};
    wt_coll scatterv = {.kind = WT_SCATTERV, .type = WEFT_I32, .n = 3};

    carry_out_both(comm, &few);
    carry_out_both(comm, &other_type);
    carry_out_both(comm, &scatterv);
    WT_OK(weft_barrier(comm));
    expect(BEGUN, 0);
    carry_out_both(comm, &many);
    expect(BEGUN, 2 * wt_ranks());
    carry_out_both(comm, &gatherv);
    expect(BEGUN, 2 * wt_ranks());
}

static void an_engine_serves_the_calls_that_its_offer_covers(void **state)
{
    (void)state;
    run(2, NULL, offers_body);
    run(3, NULL, offers_body);
    run(3, "aba", offers_body);
}

static void alone_body(weft_world *world)
{
    wt_coll many = allreduce_of(FROM, WEFT_F32);

    carry_out_both(weft_world_comm(world), &many);
    expect(BEGUN, 0);
}

static void an_engine_that_offers_nothing_is_not_asked(void **state)
{
    (void)state;
    run(1, NULL, alone_body);
}

/* Many at once, small and large in turn, and a blocking one behind them. */
static void order_body(weft_world *world)
{
    enum { CALLS = 12 };
    weft_comm *comm = weft_world_comm(world);
    wt_call call[CALLS];
    weft_request *request[CALLS];

    for (unsigned i = 0; i < CALLS; i++) {
        wt_coll what = allreduce_of(i % 3 == 0 ? FROM + i : 1 + i, WEFT_F32);

        wt_call_init(&call[i], comm, &what, NULL);
    }
    for (unsigned i = 0; i + 1 < CALLS; i++) {
        WT_OK(wt_call_start(&call[i], &request[i]));
    }
    WT_OK(wt_call_run(&call[CALLS - 1]));
    for (unsigned i = 0; i < CALLS; i++) {
        if (i + 1 < CALLS) {
            WT_OK(weft_request_wait(request[i], 0));
            weft_request_release(request[i]);
        }
        wt_call_check(&call[i]);
        wt_call_fini(&call[i]);
    }
}

static void operations_of_two_engines_keep_their_order(void **state)
{
    (void)state;
    run(2, NULL, order_body);
    run(5, NULL, order_body);
    run(3, "abb", order_body);
}

/* --- calls that differ ---------------------------------------------------- */

static void differ_body(weft_world *world)
{
    static const size_t odd[] = {1, FROM};

    for (unsigned i = 0; i < 4; i++) {
        weft_comm *comm = NULL;
        size_t n = wt_rank() == 1 ? odd[i % 2] : odd[1 - i % 2];
        float *data = calloc(FROM, sizeof(*data));
        weft_request *request = NULL;
        weft_status st;

        WT_OK(weft_comm_dup(weft_world_comm(world), &comm));
        if (i < 2) {
            st = weft_allreduce(comm, data, data, n, WEFT_F32, WEFT_SUM);
        } else {
            st = weft_iallreduce(comm, data, data, n, WEFT_F32, WEFT_SUM,
                                 &request);
            /* It may be known by now. */
            st = st == WEFT_OK ? weft_request_wait(request, 0) : st;
            weft_request_release(request);
        }
        WT_STATUS(st, WEFT_ERR_MISMATCH);
        WT_CHECK(strstr(weft_error_detail(), "allreduce of 1 f32") != NULL);
        WT_CHECK(strstr(weft_error_detail(), "allreduce of 1000 f32") != NULL);
        wt_meet(); /* that a rank has left would be as good a reason */
        weft_comm_destroy(comm);
        free(data);
    }
}

static void calls_that_two_engines_serve_are_told_apart(void **state)
{
    (void)state;
    run(2, NULL, differ_body);
    run(3, NULL, differ_body);
    run(3, "aba", differ_body);
}

/* --- memory --------------------------------------------------------------- */

static void memory_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    void *buffer = NULL;

    WT_OK(weft_alloc(comm, 100, &buffer));
    memset(buffer, 1, 100);
    weft_free(comm, buffer);
    expect(ALLOCATED, wt_ranks());
    expect(FREED, wt_ranks());
}

static void weft_alloc_has_the_memory_of_the_engine_that_offers_it(void **state)
{
    (void)state;
    run(2, NULL, memory_body);
    run(3, "aba", memory_body);
}

/* --- the setting ---------------------------------------------------------- */

static void by_messages_body(weft_world *world)
{
    wt_coll many = allreduce_of(FROM, WEFT_F32);

    carry_out_both(weft_world_comm(world), &many);
    expect(BEGUN, 0);
}

static void the_engine_that_the_setting_names_goes_before_others(void **state)
{
    wt_job job = {
        .ranks = 2, .settings = "ENGINE=message", .body = by_messages_body};

    (void)state;
    run_with(with_added, &job);
    job.settings = "ENGINE=added"; /* which cannot do everything */
    job.body = offers_body;
    run_with(with_added, &job);
}

static void wrong_name_bare(void)
{
    weft_world *world = NULL;

    WT_STATUS(wt_join("ENGINE=warp", 0, &world), WEFT_ERR_INVALID);
    WT_CHECK(strstr(weft_error_detail(),
                    "'warp' is not an engine (auto, alone, "
                    "shm, hosts, message, added)") != NULL);
}

static void an_unknown_engine_is_refused_with_the_known_ones(void **state)
{
    wt_job job = {.ranks = 1, .bare = wrong_name_bare};

    (void)state;
    run_with(with_added, &job);
}

static void unserved_bare(void)
{
    weft_world *world = NULL;

    WT_STATUS(wt_join(NULL, 0, &world), WEFT_ERR_UNSUPPORTED);
    WT_CHECK(strstr(weft_error_detail(), "no engine serves") != NULL);
}

static void calls_that_no_engine_serves_are_told_of_at_the_start(void **state)
{
    static const wf_engine *const few[] = {&wf_engine_alone, &added, NULL};
    wt_job job = {.ranks = 2, .bare = unserved_bare};

    (void)state;
    run_with(few, &job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_engine_serves_the_calls_that_its_offer_covers),
        cmocka_unit_test(an_engine_that_offers_nothing_is_not_asked),
        cmocka_unit_test(operations_of_two_engines_keep_their_order),
        cmocka_unit_test(calls_that_two_engines_serve_are_told_apart),
        cmocka_unit_test(
            weft_alloc_has_the_memory_of_the_engine_that_offers_it),
        cmocka_unit_test(the_engine_that_the_setting_names_goes_before_others),
        cmocka_unit_test(an_unknown_engine_is_refused_with_the_known_ones),
        cmocka_unit_test(calls_that_no_engine_serves_are_told_of_at_the_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
