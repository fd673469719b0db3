/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of comm/wait.h. Goals are looked at with a clock of the test's own;
 * waits have naps so long that one who slept through something would never come
 * back. */
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "coll/coll.h"
#include "comm/wait.h"
#include "wt.h"
#include "wt_cmocka.h"

#define FOR_EVER (3600 * WF_SEC)

/* --- goals --------------------------------------------------------------- */

typedef struct thing {
    uint64_t moved;
    unsigned asked;      /* about a peer */
    uint32_t late;       /* bit r: rank r is */
    weft_status gone;    /* what there is to say of rank 1 */
    weft_status excused; /* what a failure becomes */
} thing;

static const _Atomic uint64_t ten_ns = 10;

static void thing_name(const wf_goal *g, char *text, size_t room)
{
    (void)g;
    snprintf(text, room, "a thing");
}

static uint64_t thing_moved(const wf_goal *g)
{
    const thing *t = g->ctx;

    return t->moved;
}

static weft_status thing_gone(const wf_goal *g, uint32_t rank)
{
    thing *t = g->ctx;

    t->asked++;
    return rank != 1 || t->gone == WEFT_OK || t->gone == WF_PENDING
               ? (rank == 1 ? t->gone : WEFT_OK)
               : wf_fail(t->gone, "rank %u went away", rank);
}

static bool thing_awaits(const wf_goal *g, uint32_t rank)
{
    const thing *t = g->ctx;

    return (t->late >> rank & 1) != 0;
}

static weft_status thing_fail(const wf_goal *g, weft_status why)
{
    const thing *t = g->ctx;

    return t->excused != WEFT_OK ? why : t->excused;
}

static const wf_goal_kind thing_kind = {.name = thing_name,
                                        .moved = thing_moved,
                                        .gone = thing_gone,
                                        .awaits = thing_awaits};

static wf_goal goal_of(weft_world *world, thing *t)
{
    static const uint32_t member[] = {0, 1, 2};

    return (wf_goal){.kind = &thing_kind,
                     .ctx = t,
                     .world = world,
                     .rank = weft_world_rank(world),
                     .ranks = weft_world_size(world),
                     .member = member,
                     .timeout_ns = &ten_ns};
}

static void moving_body(weft_world *world)
{
    thing t = {.moved = 7};
    wf_goal goal = goal_of(world, &t);
    wf_stall stall = {0};

    WT_OK(wf_goal_check(&goal, &stall, 100));
    WT_OK(wf_goal_check(&goal, &stall, 110));
    t.moved++;
    WT_OK(wf_goal_check(&goal, &stall, 115));
    WT_OK(wf_goal_check(&goal, &stall, 125));
    WT_STATUS(wf_goal_check(&goal, &stall, 126), WEFT_ERR_TIMEOUT);
    goal.timeout_ns = NULL;
    WT_OK(wf_goal_check(&goal, &stall, FOR_EVER));
}

static void a_goal_that_moves_starts_its_deadline_anew(void **state)
{
    (void)state;
    wt_run_both(1, NULL, moving_body);
}

static void late_body(weft_world *world)
{
    thing t = {.late = 1u << 2};
    wf_goal goal = goal_of(world, &t);
    wf_stall stall = {.since_ns = 1};
    weft_peer late;
    char who[128];
    const char *text;

    if (weft_world_rank(world) == 0) {
        WT_OK(weft_world_peer(world, 2, &late));
        snprintf(who, sizeof(who), "waiting for rank 2 (pid %d on %s; it",
                 late.pid, late.host);
        WT_STATUS(wf_goal_check(&goal, &stall, 3 * WF_SEC), WEFT_ERR_TIMEOUT);
        text = weft_error_detail();
        WT_CHECK(strstr(text, "rank 0: no progress for 3 s in a thing") ==
                 text);
        WT_CHECK(strstr(text, who) != NULL && !wt_names_rank(text, 1));
        t.late = 0;
        WT_STATUS(wf_goal_check(&goal, &stall, 3 * WF_SEC), WEFT_ERR_TIMEOUT);
        WT_CHECK(strstr(weft_error_detail(), "waiting for") == NULL);
    }
    wt_meet();
}

static void a_timeout_names_those_who_are_late_and_no_others(void **state)
{
    (void)state;
    wt_run_both(3, NULL, late_body);
}

static void alarm_body(weft_world *world)
{
    thing t = {.gone = WEFT_OK};
    wf_goal goal = goal_of(world, &t);
    wf_stall stall = {0};

    goal.timeout_ns = NULL;
    if (weft_world_rank(world) == 0) {
        WT_OK(wf_goal_check(&goal, &stall, 1));
        WT_OK(wf_goal_check(&goal, &stall, 2));
        WT_CHECK(t.asked == 2); /* about each of the two others */
        t.gone = WF_PENDING;
        wf_host_alarm(world->host);
        WT_OK(wf_goal_check(&goal, &stall, 3));
        WT_OK(wf_goal_check(&goal, &stall, 4));
        WT_CHECK(t.asked == 6);
        t.gone = WEFT_ERR_PEER;
        WT_STATUS(wf_goal_check(&goal, &stall, 5), WEFT_ERR_PEER);
        WT_CHECK(strstr(weft_error_detail(), "rank 1 went away; it ") != NULL);
    }
    wt_meet();
}

static void peers_are_looked_at_after_an_alarm_and_while_unsure(void **state)
{
    (void)state;
    wt_run_both(3, NULL, alarm_body);
}

static void excuse_body(weft_world *world)
{
    wf_goal_kind kind = thing_kind;
    thing t = {.excused = WEFT_OK};
    wf_goal goal = goal_of(world, &t);
    wf_stall stall = {.since_ns = 1};

    kind.fail = thing_fail;
    goal.kind = &kind;
    WT_OK(wf_goal_check(&goal, &stall, FOR_EVER));
    t.excused = WEFT_ERR_TIMEOUT;
    WT_STATUS(wf_goal_check(&goal, &stall, FOR_EVER), WEFT_ERR_TIMEOUT);
}

static void a_kind_of_goal_may_go_on_after_a_failure(void **state)
{
    (void)state;
    wt_run_both(1, NULL, excuse_body);
}

/* --- waits --------------------------------------------------------------- */

/* What happens in the last look before a sleep, after that look. */
typedef enum event {
    POSTED, /* by one who saw the announcement: the bell rings */
    MOVED,  /* these three came before it, and rang nothing */
    ALARMED,
    FAILED,
    STIRRED, /* the look itself did something */
    SECOND,  /* an active message, to one who listens */
    TURNED,  /* what it listens for will ring the first bell */
    LAST_EVENT
} event;

typedef struct sleeper {
    event event;
    weft_world *world;
    uint64_t moved;
    unsigned lain_down; /* announced that it will sleep */
    bool happened;
    bool over;
} sleeper;

static _Atomic bool turned;

static void happen(wf_wait *w, sleeper *s)
{
    wf_board_rank *own = wf_host_own(s->world->host);

    s->happened = true;
    s->over = s->event == POSTED || s->event == SECOND;
    s->moved += s->event == MOVED;
    w->stirred = s->event == STIRRED;
    atomic_store(&turned, s->event == TURNED);
    if (s->event == POSTED) {
        wf_board_ring(own);
    } else if (s->event == SECOND) {
        wf_board_ring_listener(own);
    } else if (s->event == ALARMED) {
        atomic_fetch_add(&s->world->host->board->alarm, 1);
    }
}

/* What the event brings is seen by the next look. */
static weft_status sleeper_look(wf_wait *w)
{
    sleeper *s = w->goal.ctx;

    if (s->over) {
        return WEFT_OK;
    }
    s->over = s->happened; /* having woken up */
    s->lain_down += w->drowsy;
    if (w->drowsy && !s->happened) {
        happen(w, s);
    }
    return WF_PENDING;
}

static uint64_t sleeper_moved(const wf_goal *g)
{
    const sleeper *s = g->ctx;

    return s->moved;
}

static weft_status sleeper_check(const wf_goal *g)
{
    const sleeper *s = g->ctx;

    return s->event == FAILED && s->happened
               ? wf_fail(WEFT_ERR_CLOSED, "it was closed")
               : WEFT_OK;
}

static bool sleeper_listens(weft_world *world)
{
    (void)world;
    return !atomic_load(&turned);
}

static const wf_goal_kind sleeper_kind = {
    .name = thing_name, .moved = sleeper_moved, .check = sleeper_check};

static void wakeful_body(weft_world *world)
{
    static const wf_pace at_once = {.nap_ns = FOR_EVER};

    for (event e = POSTED; e < LAST_EVENT; e++) {
        sleeper s = {.event = e, .world = world};
        wf_goal goal = {.kind = &sleeper_kind, .ctx = &s, .world = world};
        wf_wait w;

        atomic_store(&turned, false);
        wf_wait_begin(&w, &goal, false);
        wf_wait_pace(&w, &at_once);
        w.listens = e >= SECOND ? sleeper_listens : NULL;
        WT_STATUS(wf_wait_run(&w, sleeper_look),
                  e == FAILED ? WEFT_ERR_CLOSED : WEFT_OK);
        WT_CHECK(s.happened && s.lain_down >= 1);
        WT_CHECK(atomic_load(&wf_host_own(world->host)->asleep) == 0);
        WT_CHECK(atomic_load(&wf_host_own(world->host)->listening) == 0);
    }
}

static void
nothing_that_comes_before_the_last_look_is_over_is_slept_through(void **state)
{
    (void)state;
    wt_run_both(1, NULL, wakeful_body);
}

static weft_status tired_look(wf_wait *w)
{
    wf_wait_tire(w);
    return w->drowsy ? WEFT_OK : WF_PENDING;
}

static void tired_body(weft_world *world)
{
    /* Longer than the test takes, and less than the machine has been up. */
    const wf_pace restless = {.spin_ns = wf_now_ns() / 2,
                              .nap_ns = FOR_EVER,
                              .poll_mask = UINT32_MAX};
    wf_goal goal = wf_goal_none(world, NULL);
    wf_wait w;

    wf_wait_begin(&w, &goal, false);
    wf_wait_pace(&w, &restless);
    w.stall.since_ns = 1; /* it began long ago */
    WT_OK(wf_wait_run(&w, tired_look));
}

static void one_that_leaves_the_driving_to_others_sleeps_at_once(void **state)
{
    (void)state;
    wt_run_both(1, NULL, tired_body);
}

/* How often it was seen awake for a far goal alone. */
static weft_status lingering_look(wf_wait *w)
{
    unsigned *lingered = w->goal.ctx;

    if (w->lingers && ++*lingered == 3) {
        w->preempted = -1; /* as if another thread had had the core */
    }
    return w->drowsy ? WEFT_OK : WF_PENDING;
}

static unsigned times_lingered(weft_world *world, bool far, uint64_t far_ns)
{
    const wf_pace pace = {.far_ns = far_ns, .nap_ns = FOR_EVER};
    unsigned lingered = 0;
    wf_goal goal = wf_goal_none(world, &lingered);
    wf_wait w;

    goal.far = far;
    wf_wait_begin(&w, &goal, false);
    wf_wait_pace(&w, &pace);
    WT_OK(wf_wait_run(&w, lingering_look));
    return lingered;
}

static void lingering_body(weft_world *world)
{
    unsigned lingered = times_lingered(world, true, FOR_EVER);

    /* Fewer, where another thread wanted the core indeed. */
    WT_CHECK(lingered >= 1 && lingered <= 3);
    WT_CHECK(times_lingered(world, false, FOR_EVER) == 0);
    WT_CHECK(times_lingered(world, true, 0) == 0);
}

static void one_that_waits_for_other_nodes_stays_awake_until_its_core_is_wanted(
    void **state)
{
    (void)state;
    wt_run_both(1, NULL, lingering_body);
}

static int third_time(void *ctx)
{
    unsigned *asked = ctx;

    return ++*asked == 3;
}

static weft_status look_in_vain(wf_wait *w)
{
    (void)w;
    return WF_PENDING;
}

static void interrupted_body(weft_world *world)
{
    unsigned asked = 0;
    wf_interrupt interrupt = {third_time, &asked};
    thing t = {0};
    wf_goal goal = goal_of(world, &t);
    wf_wait w;

    goal.timeout_ns = NULL;
    goal.interrupt = &interrupt;
    wf_wait_begin(&w, &goal, true);
    WT_STATUS(wf_wait_run(&w, look_in_vain), WEFT_ERR_ABORTED);
    WT_CHECK(asked == 3);
    WT_CHECK(strcmp(weft_error_detail(), "rank 0: interrupted in a thing") ==
             0);
}

static void an_interrupted_wait_says_what_it_was_for(void **state)
{
    (void)state;
    wt_run_both(1, NULL, interrupted_body);
}

/* --- descriptors -----------------------------------------------------------
 */

/* The transport of a rank with itself, with a descriptor. */
static struct {
    int fd;
    unsigned armed;
} eventful;

static weft_status eventful_open(const wf_port_setup *setup, wf_port **out)
{
    eventful.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    eventful.armed = 0;
    return wf_transport_self.open(setup, out);
}

static void eventful_close(wf_port *port)
{
    wf_transport_self.close(port);
    close(eventful.fd);
}

static int eventful_descriptor(const wf_port *port)
{
    (void)port;
    return eventful.fd;
}

/* Not now; then yes, and there is something to do right after. */
static bool eventful_arm(wf_port *port)
{
    uint64_t one = 1;

    (void)port;
    return eventful.armed++ > 0 &&
           write(eventful.fd, &one, sizeof(one)) == (ssize_t)sizeof(one);
}

static weft_status armed_look(wf_wait *w)
{
    uint64_t count;

    wf_wait_drive(w);
    return read(eventful.fd, &count, sizeof(count)) > 0 ? WEFT_OK : WF_PENDING;
}

static void armed_body(weft_world *world)
{
    static const wf_pace at_once = {.nap_ns = FOR_EVER};
    wf_goal goal = wf_goal_none(world, NULL);
    wf_wait w;

    wf_wait_begin(&w, &goal, true);
    wf_wait_pace(&w, &at_once);
    WT_OK(wf_wait_run(&w, armed_look));
    WT_CHECK(eventful.armed == 2);
}

static void
a_wait_sleeps_when_ports_are_armed_and_a_descriptor_wakes_it(void **state)
{
    wf_transport transport = wf_transport_self;
    const wf_transport *const transports[] = {&transport, NULL};
    static const wf_engine *const engines[] = {&wf_engine_alone, NULL};
    wf_parts parts = {.transports = transports,
                      .layers = {[WF_LAYER_COLL] = {&wf_coll_layer, engines}},
                      .agree = wf_coll_agree};

    (void)state;
    transport.open = eventful_open;
    transport.close = eventful_close;
    transport.descriptor = eventful_descriptor;
    transport.arm = eventful_arm;
    wt_parts = &parts;
    wt_run_both(1, NULL, armed_body);
    wt_parts = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_goal_that_moves_starts_its_deadline_anew),
        cmocka_unit_test(a_timeout_names_those_who_are_late_and_no_others),
        cmocka_unit_test(peers_are_looked_at_after_an_alarm_and_while_unsure),
        cmocka_unit_test(a_kind_of_goal_may_go_on_after_a_failure),
        cmocka_unit_test(
            nothing_that_comes_before_the_last_look_is_over_is_slept_through),
        cmocka_unit_test(one_that_leaves_the_driving_to_others_sleeps_at_once),
        cmocka_unit_test(
            one_that_waits_for_other_nodes_stays_awake_until_its_core_is_wanted),
        cmocka_unit_test(an_interrupted_wait_says_what_it_was_for),
        cmocka_unit_test(
            a_wait_sleeps_when_ports_are_armed_and_a_descriptor_wakes_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
