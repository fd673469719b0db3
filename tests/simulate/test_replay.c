/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives that are replayed: what is sent is received, nobody is stuck, and
 * counts and times are those that the algorithms are known for. */
#include "replay.h"

#include "wt_cmocka.h"

#define CHECK_BYTES 32.0 /* of a record, when calls are compared */

static sim_call call_of(wf_call_kind kind, uint64_t bytes)
{
    return (sim_call){.kind = kind,
                      .bytes = bytes,
                      .how = WF_ALGORITHMS,
                      .repeat = 1,
                      .steps = UINT64_MAX,
                      .flat = true};
}

static sim_model model_of(uint32_t ranks, uint32_t per_host)
{
    sim_model m;

    sim_model_init(&m);
    m.ranks = ranks;
    m.per_host = per_host;
    return m;
}

static void check_one(uint32_t ranks, wf_call_kind kind, wf_algorithm how,
                      uint64_t bytes, bool flat)
{
    sim_model m = model_of(ranks, 3);
    sim_call call = call_of(kind, bytes);
    sim_result out = {0};

    call.how = how;
    call.flat = flat;
    call.repeat = 2;
    if (!sim_replay(&m, &call, &out)) {
        return;
    }
    if (out.stuck > 0) {
        fail_msg("%s by %s of %u ranks, %u bytes: stuck",
                 wf_call_name((uint8_t)kind), wf_algorithm_name(how), ranks,
                 (unsigned)bytes);
    }
    assert_float_equal(out.summary.all_bytes, out.summary.all_received, 0);
    assert_true(out.summary.seconds.least > 0);
}

/* Of every operation, in every way. */
static void check_all(bool flat)
{
    static const uint64_t bytes[] = {1, 12, 5000, 300000};

    for (uint32_t ranks = 2; ranks < 18; ranks++) {
        for (unsigned k = 0; k < WF_CALL_KINDS; k++) {
            bool parts =
                wf_call_is((uint8_t)k, WF_ALL_LENGTHS | WF_OWN_LENGTHS);

            if (parts || wf_message_choose((wf_call_kind)k, 0, 2) == NULL) {
                continue;
            }
            for (unsigned a = 0; a <= WF_ALGORITHMS; a++) {
                for (unsigned i = 0; i < 4; i++) {
                    check_one(ranks, (wf_call_kind)k, (wf_algorithm)a, bytes[i],
                              flat);
                }
            }
        }
    }
}

static void what_is_sent_is_received_by_every_algorithm(void **state)
{
    (void)state;
    check_all(true);
}

static void what_is_sent_is_received_by_rails_of_hosts(void **state)
{
    (void)state;
    check_all(false);
}

/* 12 ranks on 4 hosts, as the library would do it. */
static sim_result on_hosts(wf_call_kind kind, uint64_t bytes)
{
    sim_model m = model_of(12, 3);
    sim_call call = call_of(kind, bytes);
    sim_result out = {0};

    call.flat = false;
    assert_true(sim_replay(&m, &call, &out));
    assert_int_equal(out.stuck, 0);
    return out;
}

static void rails_send_what_one_rank_a_host_would(void **state)
{
    double checks = 4 * 2 * CHECK_BYTES;
    double bytes = 3 << 20;
    sim_result out = on_hosts(WF_CALL_ALLREDUCE, 3 << 20);

    (void)state;
    assert_string_equal(out.among, "rails of hosts");
    assert_float_equal(out.summary.all_bytes, 4 * 2.0 * 3 / 4 * bytes + checks,
                       0);
    /* All ranks of a host have a part in it. */
    assert_true(out.summary.far.least > 0.9 * 2.0 * 3 / 4 * bytes / 3);

    out = on_hosts(WF_CALL_ALLGATHER, 1 << 20);
    assert_float_equal(out.summary.all_bytes, 4 * 9.0 * (1 << 20) + checks, 0);
    out = on_hosts(WF_CALL_BROADCAST, 3 << 20);
    assert_float_equal(out.summary.all_bytes, 3 * bytes + checks, 0);
}

static void only_one_rank_of_a_host_meets_others(void **state)
{
    sim_result out = on_hosts(WF_CALL_BARRIER, 0);

    (void)state;
    assert_string_equal(out.among, "meeting of hosts");
    assert_float_equal(out.summary.all_messages, 4 * 2, 0);
    assert_float_equal(out.summary.messages.most, 2, 0);
    assert_float_equal(out.summary.messages.least, 0, 0);
    out = on_hosts(WF_CALL_ALLREDUCE, 16);
    assert_string_equal(out.how, "dissemination");
    assert_float_equal(out.summary.all_bytes, 4 * 3 * (CHECK_BYTES + 16), 0);
}

/* The bound that the library promises for several hosts. */
static void endpoints_grow_with_the_logarithm_of_hosts(void **state)
{
    static const wf_call_kind kinds[] = {
        WF_CALL_BARRIER, WF_CALL_ALLREDUCE, WF_CALL_BROADCAST,
        WF_CALL_REDUCE,  WF_CALL_ALLGATHER, WF_CALL_REDUCE_SCATTER};

    (void)state;
    for (unsigned k = 0; k < 6; k++) {
        for (uint64_t bytes = 8; bytes < 4 << 20; bytes *= 32) {
            sim_model m = model_of(64, 2);
            sim_call call = call_of(kinds[k], bytes);
            sim_result out;

            call.flat = false;
            assert_true(sim_replay(&m, &call, &out));
            assert_true(out.summary.endpoints.most <= 2 * 5 + 2);
        }
    }
}

static void a_barrier_takes_a_round_for_each_doubling(void **state)
{
    sim_model m = model_of(5, 1);
    sim_call call = call_of(WF_CALL_BARRIER, 0);
    double round =
        m.send + m.latency + (CHECK_BYTES + m.header) / m.bandwidth + m.receive;
    sim_result out;

    (void)state;
    assert_true(sim_replay(&m, &call, &out));
    assert_float_equal(out.summary.messages.most, 3, 0);
    assert_float_equal(out.summary.bytes.most, 3 * CHECK_BYTES, 0);
    assert_float_equal(out.summary.seconds.most, 3 * round, 1e-10);
}

static void as_many_cores_as_ranks_are_enough(void **state)
{
    sim_model m = model_of(2, 1);
    sim_call call = call_of(WF_CALL_ALLREDUCE, 40000);
    sim_result free;
    sim_result shared;

    (void)state;
    call.repeat = 20;
    m.touch = 1e9;
    assert_true(sim_replay(&m, &call, &free));
    m.cores = 2;
    m.one_machine = 1;
    m.touch = 1e9;
    assert_true(sim_replay(&m, &call, &shared));
    assert_true(shared.summary.seconds.most < 1.3 * free.summary.seconds.most);
    m.touch = 0;
    assert_true(sim_replay(&m, &call, &shared));
    m.cores = 0;
    assert_true(sim_replay(&m, &call, &free));
    assert_float_equal(shared.summary.seconds.most, free.summary.seconds.most,
                       1e-12);
}

static void a_ring_sends_each_byte_twice_but_one_part(void **state)
{
    sim_model m = model_of(8, 1);
    sim_call call = call_of(WF_CALL_ALLREDUCE, 8 << 20);
    double checks = 3 * CHECK_BYTES;
    sim_result out;
    double least;

    (void)state;
    call.how = WF_BY_RING;
    m.eager = 1e9;
    m.fold = 1e15;
    assert_true(sim_replay(&m, &call, &out));
    assert_float_equal(out.summary.bytes.most, 2.0 * 7 / 8 * (8 << 20) + checks,
                       0);
    assert_float_equal(out.summary.endpoints.most, 2 + 3, 0);
    least = 2.0 * 7 / 8 * (8 << 20) / m.bandwidth;
    assert_in_range((uint64_t)(out.summary.seconds.most * 1e9),
                    (uint64_t)(least * 1e9), (uint64_t)(1.2 * least * 1e9));
}

static void steps_that_are_alike_need_not_all_be_carried_out(void **state)
{
    sim_model m = model_of(64, 4);
    sim_call call = call_of(WF_CALL_ALLGATHER, 100000);
    sim_result whole;
    sim_result part;

    (void)state;
    call.how = WF_BY_RING;
    assert_true(sim_replay(&m, &call, &whole));
    assert_float_equal(whole.part, 1, 0);
    call.steps = 64 * 40;
    assert_true(sim_replay(&m, &call, &part));
    assert_true(part.part < 0.5);
    assert_int_equal(part.stuck, 0);
    assert_true(part.summary.seconds.most > 0.9 * whole.summary.seconds.most);
    assert_true(part.summary.seconds.most < 1.1 * whole.summary.seconds.most);
    assert_true(part.summary.bytes.most > 0.9 * whole.summary.bytes.most);
    assert_true(part.summary.bytes.most < 1.1 * whole.summary.bytes.most);
}

static void more_steps_than_allowed_are_refused(void **state)
{
    sim_model m = model_of(64, 4);
    sim_call call = call_of(WF_CALL_ALLTOALL, 100000);
    sim_result out;

    (void)state;
    call.steps = 100;
    assert_true(sim_replay(&m, &call, &out));
    assert_int_equal(out.too_many, 64 * 63);
}

static void small_data_goes_along_when_calls_are_compared(void **state)
{
    sim_model m = model_of(4, 1);
    sim_call call = call_of(WF_CALL_ALLREDUCE, 16);
    sim_result out;

    (void)state;
    assert_true(sim_replay(&m, &call, &out));
    assert_string_equal(out.how, "dissemination");
    assert_float_equal(out.summary.messages.most, 2, 0);
    assert_float_equal(out.summary.bytes.most, 3 * (CHECK_BYTES + 16), 0);
}

static void the_same_call_gives_the_same_result_again(void **state)
{
    sim_model m = model_of(13, 4);
    sim_call call = call_of(WF_CALL_REDUCE, 1 << 20);
    sim_result a;
    sim_result b;

    (void)state;
    call.repeat = 3;
    m.cores = 2;
    m.one_machine = 1;
    assert_true(sim_replay(&m, &call, &a));
    assert_true(sim_replay(&m, &call, &b));
    assert_memory_equal(&a.summary, &b.summary, sizeof(a.summary));
    assert_int_equal(a.stuck, 0);
}

static void an_algorithm_that_does_not_apply_is_refused(void **state)
{
    sim_model m = model_of(6, 1);
    sim_call call = call_of(WF_CALL_ALLGATHER, 100000);
    sim_result out;

    (void)state;
    call.how = WF_BY_DOUBLING;
    assert_false(sim_replay(&m, &call, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_sent_is_received_by_every_algorithm),
        cmocka_unit_test(what_is_sent_is_received_by_rails_of_hosts),
        cmocka_unit_test(rails_send_what_one_rank_a_host_would),
        cmocka_unit_test(only_one_rank_of_a_host_meets_others),
        cmocka_unit_test(endpoints_grow_with_the_logarithm_of_hosts),
        cmocka_unit_test(a_barrier_takes_a_round_for_each_doubling),
        cmocka_unit_test(as_many_cores_as_ranks_are_enough),
        cmocka_unit_test(a_ring_sends_each_byte_twice_but_one_part),
        cmocka_unit_test(steps_that_are_alike_need_not_all_be_carried_out),
        cmocka_unit_test(more_steps_than_allowed_are_refused),
        cmocka_unit_test(small_data_goes_along_when_calls_are_compared),
        cmocka_unit_test(the_same_call_gives_the_same_result_again),
        cmocka_unit_test(an_algorithm_that_does_not_apply_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
