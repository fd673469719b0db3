/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of all kinds under way at once: on one communicator and on
 * several, waited for in any order, with blocking ones among them. What is
 * drawn comes from a seed, which is printed; WT_SEED=n runs it again. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"
#include "wt_data.h"

enum { WINDOW = 8, COMMS = 3, POOL_BYTES = 1 << 20 };

/* Set before the ranks are forked. */
static struct {
    uint64_t seed;
    unsigned steps;
    unsigned comms;
    bool by_messages;
} the;

/* Numbers that are the same on all ranks, or this rank's own. */
typedef struct drawing {
    uint64_t who;
    uint64_t next;
} drawing;

static uint32_t draw(drawing *d, uint32_t below)
{
    return (uint32_t)(wt_mix(the.seed, d->who, d->next++) % below);
}

static void draw_reduction(drawing *d, wt_coll *c)
{
    bool found = false;

    while (!found) {
        found = wt_type_and_op(draw(d, WF_DTYPE_COUNT * WF_OP_COUNT), &c->type,
                               &c->op) &&
                wt_coll_takes(c->kind, c->op.kind);
    }
}

static wt_coll draw_call(drawing *d, unsigned ranks)
{
    wt_coll c = {.kind = (wt_coll_kind)draw(d, WT_COLLS),
                 .rounded_often = the.by_messages};

    c.type = (weft_dtype)draw(d, WF_DTYPE_COUNT);
    if (wt_coll_reduces(c.kind)) {
        draw_reduction(d, &c);
    }
    c.n = draw(d, 4) == 0 ? draw(d, (uint32_t)wt_scaled(2000)) : draw(d, 100);
    c.root = draw(d, ranks);
    c.lengths = (wt_lengths)draw(d, WT_LENGTHS);
    c.placing = (wt_placing)draw(d, WT_PLACINGS);
    c.shift = draw(d, 4);
    c.in_place = draw(d, 2) == 0;
    c.shared_src = draw(d, 2) * draw(d, UINT32_MAX);
    c.shared_dst = draw(d, 2) * draw(d, UINT32_MAX);
    c.seed = draw(d, 1u << 30);
    return c;
}

/* --- calls under way ----------------------------------------------------- */

typedef struct flight {
    wt_call call;
    weft_request *request; /* NULL: nothing is under way */
    wt_pool pool;
} flight;

typedef struct flights {
    weft_comm *comm[COMMS];
    flight flight[WINDOW];
} flights;

/* The world's ranks, once more, and in the reverse order. */
static void flights_init(flights *f, weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    int rank = (int)weft_comm_rank(comm);

    memset(f, 0, sizeof(*f));
    f->comm[0] = comm;
    WT_OK(weft_comm_dup(comm, &f->comm[1]));
    WT_OK(weft_comm_split(comm, 0, -rank, &f->comm[2]));
    for (unsigned i = 0; i < WINDOW; i++) {
        wt_pool_init(&f->flight[i].pool, f->comm[i % COMMS], POOL_BYTES);
    }
}

static void flights_fini(flights *f)
{
    for (unsigned i = 0; i < WINDOW; i++) {
        wt_pool_fini(&f->flight[i].pool, f->comm[i % COMMS]);
    }
    weft_comm_destroy(f->comm[2]);
    weft_comm_destroy(f->comm[1]);
}

static void check_ok(const flight *f, weft_status st)
{
    char text[400];

    if (st != WEFT_OK) {
        wt_coll_text(&f->call.what, text, sizeof(text));
        WT_FAIL("seed %llu, %s: %s: %s", (unsigned long long)the.seed, text,
                weft_status_name(st), weft_error_detail());
    }
}

static void land(flight *f)
{
    wt_call_check(&f->call);
    wt_call_fini(&f->call);
}

/* Wait for it if it is under way, sometimes by looking again and again. */
static void await(flight *f, bool by_looking)
{
    int done = 0;

    if (f->request == NULL) {
        return;
    }
    while (by_looking && !done) {
        check_ok(f, weft_request_test(f->request, &done));
        sched_yield();
    }
    check_ok(f, weft_request_wait(f->request, 0));
    weft_request_release(f->request);
    f->request = NULL;
    land(f);
}

static void await_all(flights *f, drawing *own)
{
    unsigned first = draw(own, WINDOW);

    for (unsigned i = 0; i < WINDOW; i++) {
        await(&f->flight[(first + i * 3) % WINDOW], draw(own, 4) == 0);
    }
}

/* --- a long sequence of random calls ------------------------------------- */

static void random_body(weft_world *world)
{
    drawing same = {.who = WT_MAX_RANKS};
    drawing own = {.who = weft_world_rank(world)};
    flights f;

    flights_init(&f, world);
    for (unsigned step = 0; step < the.steps; step++) {
        flight *next = &f.flight[step % WINDOW];
        weft_comm *comm = f.comm[draw(&same, the.comms)];
        wt_coll c = draw_call(&same, weft_comm_size(comm));

        await(next, draw(&own, 8) == 0);
        if (draw(&own, 4) == 0) {
            await(&f.flight[draw(&own, WINDOW)], false);
        }
        wt_call_init(&next->call, comm, &c, &next->pool);
        if (draw(&same, 3) == 0) {
            check_ok(next, wt_call_run(&next->call));
            land(next);
        } else {
            check_ok(next, wt_call_start(&next->call, &next->request));
        }
    }
    await_all(&f, &own);
    flights_fini(&f);
}

/* WT_SEED; else always the same one, or, in the full run, a new one. */
static uint64_t choose_seed(void)
{
    const char *given = getenv("WT_SEED");

    if (given != NULL) {
        return strtoull(given, NULL, 0);
    }
    return wt_full() ? (uint64_t)time(NULL) : 20;
}

static void run_random(unsigned ranks, const char *settings, unsigned comms)
{
    the.seed = choose_seed() + ranks;
    the.steps = wt_full() ? 20000 : WT_TSAN ? 150 : WT_ASAN ? 300 : 600;
    the.comms = comms;
    the.by_messages = settings != NULL && strstr(settings, "message") != NULL;
    wt_note("seed %llu, %u ranks, %s", (unsigned long long)the.seed - ranks,
            ranks, settings != NULL ? settings : "default settings");
    wt_run_job_both(&(wt_job){.ranks = ranks,
                              .settings = settings,
                              .body = random_body,
                              .deadline = wt_full() ? 600 : 120});
}

static void random_calls_on_one_communicator_are_right(void **state)
{
    (void)state;
    run_random(1, NULL, 1);
    run_random(2, NULL, 1);
    run_random(3, "FLAT_BYTES=64 CHUNK_BYTES=4K", 1);
    run_random(5, NULL, 1);
    run_random(3, "ENGINE=message", 1);
}

static void random_calls_on_three_communicators_are_right(void **state)
{
    (void)state;
    run_random(2, NULL, 3);
    run_random(4, "CHUNK_BYTES=4K", 3);
    run_random(8, NULL, 3);
    run_random(4, "ENGINE=message SHM_EAGER=256", 3);
}

static void ranks_that_never_poll_make_random_calls_too(void **state)
{
    (void)state;
    run_random(3, "SPIN=0s YIELD=0s CHUNK_BYTES=4K", 2);
    run_random(3, "SPIN=0s YIELD=0s ENGINE=message", 2);
}

/* --- every kind behind every kind ---------------------------------------- */

static wt_coll call_of(wt_coll_kind kind, size_t n, uint64_t seed)
{
    return (wt_coll){.kind = kind,
                     .type = WEFT_I32,
                     .op = WEFT_SUM,
                     .n = n,
                     .root = (uint32_t)seed % 2,
                     .seed = seed};
}

/* One is under way while the next is called, blocking or not. */
static void pairs_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    size_t sizes[] = {5, wt_scaled(30000)};
    flight f[2] = {{.request = NULL}};

    for (unsigned i = 0; i < WT_COLLS * WT_COLLS; i++) {
        wt_coll a = call_of(i % WT_COLLS, sizes[i / 2 % 2], i);
        wt_coll b = call_of(i / WT_COLLS, sizes[i % 2], i + 1);

        wt_call_init(&f[0].call, comm, &a, NULL);
        wt_call_init(&f[1].call, comm, &b, NULL);
        check_ok(&f[0], wt_call_start(&f[0].call, &f[0].request));
        if (i / 4 % 2 == 0) {
            check_ok(&f[1], wt_call_run(&f[1].call));
            land(&f[1]);
        } else {
            check_ok(&f[1], wt_call_start(&f[1].call, &f[1].request));
            await(&f[1], false);
        }
        await(&f[0], false);
    }
}

static void every_kind_follows_every_other(void **state)
{
    (void)state;
    wt_run_both(2, NULL, pairs_body);
    wt_run_both(3, "CHUNK_BYTES=4K", pairs_body);
    wt_run_both(3, "ENGINE=message", pairs_body);
}

/* --- two communicators, in another order on each rank -------------------- */

/* Nothing orders calls on different communicators, so each rank may start them
 * as it likes. */
static void crossing_body(weft_world *world)
{
    drawing same = {.who = WT_MAX_RANKS};
    drawing own = {.who = weft_world_rank(world)};
    unsigned rounds = wt_full() ? 2000 : WT_TSAN ? 20 : 100;
    flights f;

    flights_init(&f, world);
    for (unsigned round = 0; round < rounds; round++) {
        unsigned first = draw(&own, COMMS);

        for (unsigned i = 0; i < COMMS; i++) {
            flight *next = &f.flight[i];
            wt_coll c = draw_call(&same, weft_world_size(world));

            wt_call_init(&next->call, f.comm[i], &c, &next->pool);
        }
        for (unsigned i = 0; i < COMMS; i++) {
            flight *next = &f.flight[(first + i) % COMMS];

            check_ok(next, wt_call_start(&next->call, &next->request));
        }
        await_all(&f, &own);
    }
    flights_fini(&f);
}

static void communicators_do_not_wait_for_each_other(void **state)
{
    (void)state;
    the.seed = choose_seed();
    the.by_messages = false;
    wt_run_both(2, NULL, crossing_body);
    wt_run_both(5, NULL, crossing_body);
    the.by_messages = true;
    wt_run_both(3, "ENGINE=message", crossing_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_follows_every_other),
        cmocka_unit_test(random_calls_on_one_communicator_are_right),
        cmocka_unit_test(random_calls_on_three_communicators_are_right),
        cmocka_unit_test(ranks_that_never_poll_make_random_calls_too),
        cmocka_unit_test(communicators_do_not_wait_for_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
