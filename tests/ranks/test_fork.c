/* SPDX-License-Identifier: Apache-2.0 */
/* Forked children of ranks that have operations under way: whatever a child
 * calls, it is told at once that it is no rank, and its parent's job goes on as
 * if there were no child. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wt.h"
#include "wt_cmocka.h"

enum { LARGE = 1 << 20, TAG = 7, CHILD_SECONDS = 60 };

/* With the shared-memory engine and CMA, with messages, and between nodes. */
static const char *const settings[] = {
    "TIMEOUT=10m", "TIMEOUT=10m SHM_CMA=1", "TIMEOUT=10m ENGINE=message",
    "TIMEOUT=10m SHM_RING_BYTES=4K SHM_EAGER=1K"};

/* What rank 0 has under way when it forks. */
typedef struct pending {
    weft_world *world;
    weft_comm *comm; /* of all ranks, not the world's */
    unsigned char *out;
    unsigned char in[16];
    float sum[4];
    weft_request *send;
    weft_request *receive;
    weft_request *reduce;
    weft_region *region;
    void *shared;
    unsigned calls; /* of the callback */
} pending;

typedef void child_body(pending *p);

/* Everything that is still shared can only be read from here on: a store to it
 * ends the child. What its user may write is left as it is. */
static void forbid_writing(const pending *p)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];

    WT_CHECK(maps != NULL);
    while (fgets(line, sizeof(line), maps) != NULL) {
        unsigned long from;
        unsigned long until;
        char mode[5];
        char *user = weft_region_base(p->region);

        if (sscanf(line, "%lx-%lx %4s", &from, &until, mode) == 3 &&
            mode[3] == 's' && mode[1] == 'w' && strstr(line, "memfd:") &&
            !((char *)from <= user && user < (char *)until)) {
            WT_CHECK(mprotect((void *)from, until - from, PROT_READ) == 0);
        }
    }
    fclose(maps);
}

static void in_child(child_body *body, pending *p)
{
    int status = -1;
    pid_t child = fork();

    WT_CHECK(child >= 0);
    if (child == 0) {
        alarm(CHILD_SECONDS);
        forbid_writing(p);
        body(p);
        _exit(0);
    }
    WT_CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) {
        WT_FAIL("the child ended with status %#x", status);
    }
}

static void count_call(weft_request *request, weft_status status, void *ctx)
{
    pending *p = ctx;

    (void)request;
    (void)status;
    p->calls++;
}

static void begin(weft_world *world, pending *p)
{
    uint64_t shape[2] = {8, 2};
    uint32_t rank = weft_world_rank(world);

    *p = (pending){.world = world, .out = malloc(LARGE)};
    WT_CHECK(p->out != NULL);
    memset(p->out, 17, LARGE);
    WT_OK(weft_comm_dup(weft_world_comm(world), &p->comm));
    WT_OK(weft_region_create(p->comm, 2, shape, WEFT_F32, NULL, &p->region));
    WT_OK(weft_alloc(p->comm, 4096, &p->shared));
    for (int i = 0; i < 4; i++) {
        p->sum[i] = (float)rank;
    }
    if (rank == 0) {
        WT_OK(weft_isend(p->comm, p->out, LARGE, 1, TAG, &p->send));
        WT_OK(weft_irecv(p->comm, p->in, sizeof(p->in), 1, TAG, NULL,
                         &p->receive));
        WT_OK(weft_iallreduce(p->comm, p->sum, p->sum, 4, WEFT_F32, WEFT_SUM,
                              &p->reduce));
        WT_OK(weft_request_on_done(p->receive, count_call, p));
    }
}

/* All that rank 0 began goes to its end, and more. */
static void finish(pending *p)
{
    uint32_t rank = weft_comm_rank(p->comm);

    if (rank == 1) {
        memset(p->out, 0, LARGE);
        WT_OK(weft_recv(p->comm, p->out, LARGE, 0, TAG, NULL));
        WT_CHECK(p->out[0] == 17 && p->out[LARGE - 1] == 17);
        WT_OK(weft_send(p->comm, "fifteen letters", sizeof(p->in), 0, TAG));
    }
    if (rank == 0) {
        WT_OK(weft_request_wait(p->send, 0));
        WT_OK(weft_request_wait(p->receive, 0));
        WT_OK(weft_request_wait(p->reduce, 0));
        WT_CHECK(strcmp((char *)p->in, "fifteen letters") == 0);
        weft_request_release(p->send);
        weft_request_release(p->receive);
        weft_request_release(p->reduce);
    } else {
        WT_OK(weft_allreduce(p->comm, p->sum, p->sum, 4, WEFT_F32, WEFT_SUM));
    }
    WT_CHECK(p->sum[0] == (float)(wt_ranks() * (wt_ranks() - 1) / 2));
    WT_OK(weft_region_barrier(p->region, 0));
    WT_OK(weft_barrier(p->comm));
    weft_free(p->comm, p->shared);
    weft_region_destroy(p->region);
    weft_comm_destroy(p->comm);
    WT_OK(weft_barrier(weft_world_comm(p->world)));
    free(p->out);
}

static child_body *body_of_child;

static void rank_body(weft_world *world)
{
    pending p;

    begin(world, &p);
    if (weft_world_rank(world) == 0) {
        in_child(body_of_child, &p);
    }
    wt_meet();
    finish(&p);
    WT_CHECK(wt_rank() != 0 || p.calls == 1);
}

static void run(child_body *body)
{
    body_of_child = body;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        wt_run(2, settings[i], rank_body);
    }
    wt_run(3, settings[0], rank_body);
}

/* --- the end of a child ----------------------------------------------------
 */

static void destroys_world(pending *p)
{
    weft_world_destroy(p->world);
}

static void
a_child_that_destroys_its_world_takes_nothing_from_its_parent(void **s)
{
    (void)s;
    run(destroys_world);
}

static void destroys_everything(pending *p)
{
    weft_free(p->comm, p->shared);
    weft_region_destroy(p->region);
    weft_request_release(p->send);
    weft_request_release(p->receive);
    weft_comm_destroy(p->comm);
    weft_world_destroy(p->world);
    weft_request_release(p->reduce);
    WT_CHECK(p->calls == 0); /* those are its parent's */
}

static void nor_does_one_that_lets_go_of_all_it_has(void **s)
{
    (void)s;
    run(destroys_everything);
}

static void aborts(pending *p)
{
    weft_comm_abort(p->comm, "from a child");
    weft_comm_abort(weft_world_comm(p->world), "from a child");
}

static void nor_does_one_that_aborts(void **s)
{
    (void)s;
    run(aborts);
}

/* --- calls of a child ------------------------------------------------------
 */

static void is_told(weft_status st)
{
    WT_STATUS(st, WEFT_ERR_CLOSED);
    if (strstr(weft_error_detail(), "forked") == NULL) {
        WT_FAIL("\"%s\" does not speak of a fork", weft_error_detail());
    }
}

static void tests_and_waits(pending *p)
{
    weft_request *const all[] = {p->send, p->receive, p->reduce};

    for (int i = 0; i < 3; i++) {
        int done = 0;

        is_told(weft_request_test(all[i], &done));
        WT_CHECK(done == 1);
        is_told(weft_request_wait(all[i], 0));
        is_told(weft_request_wait(all[i], 0.001));
    }
    WT_STATUS(weft_request_on_done(p->receive, count_call, p),
              WEFT_ERR_INVALID);
    WT_OK(weft_request_on_done(p->send, count_call, p));
    WT_CHECK(p->calls == 1); /* at once: it is over here */
}

static void a_child_that_tests_and_waits_is_told_at_once(void **s)
{
    (void)s;
    run(tests_and_waits);
}

static void sends(weft_comm *comm, pending *p)
{
    weft_request *r = NULL;
    int found;

    is_told(weft_send(comm, p->in, 4, 1, TAG));
    is_told(weft_send(comm, p->in, 4, 0, TAG));
    is_told(weft_recv(comm, p->in, 4, 1, TAG, NULL));
    is_told(weft_sendrecv(comm, p->in, 4, 1, TAG, p->sum, 4, 1, TAG, NULL));
    is_told(weft_probe(comm, 1, TAG, NULL));
    is_told(weft_iprobe(comm, 1, TAG, &found, NULL));
    is_told(weft_isend(comm, p->in, 4, 1, TAG, &r));
    is_told(weft_irecv(comm, p->in, 4, WEFT_ANY_SOURCE, TAG, NULL, &r));
    WT_CHECK(r == NULL);
}

static void calls_collectives(weft_comm *comm, pending *p)
{
    weft_request *r = NULL;
    weft_comm *made = NULL;
    uint32_t both[] = {0, 1};
    void *buffer = NULL;

    is_told(weft_comm_error(comm));
    is_told(weft_barrier(comm));
    is_told(weft_ibarrier(comm, &r));
    is_told(weft_allreduce(comm, p->sum, p->sum, 4, WEFT_F32, WEFT_SUM));
    is_told(weft_iallreduce(comm, p->sum, p->sum, 4, WEFT_F32, WEFT_SUM, &r));
    is_told(weft_broadcast(comm, p->out, LARGE, WEFT_U8, 0));
    is_told(weft_comm_dup(comm, &made));
    is_told(weft_comm_split(comm, 0, 0, &made));
    is_told(weft_comm_subset(comm, both, 2, &made));
    is_told(weft_comm_create_group(comm, both, 2, 0, 0, &made));
    is_told(weft_comm_shrink(comm, both, 0, &made));
    is_told(weft_alloc(comm, 64, &buffer));
    WT_CHECK(r == NULL && made == NULL && buffer == NULL);
}

static void uses_regions(pending *p)
{
    uint64_t shape[2] = {8, 2};
    weft_region *made = NULL;
    volatile float *rows = weft_region_base(p->region);

    if (rows != NULL) { /* all parts are mapped: it may write them */
        rows[0] = 1;
    }
    is_told(weft_region_barrier(p->region, 0));
    is_told(weft_region_signal(p->region, 0, 0, 1));
    is_told(weft_region_wait(p->region, 0, 1, 0));
    is_told(weft_region_resize(p->region, 4));
    is_told(weft_region_create(p->comm, 2, shape, WEFT_F32, NULL, &made));
    is_told(weft_region_save(p->region, p->comm, "/dev/null", NULL));
    WT_CHECK(made == NULL);
}

static void calls_all(pending *p)
{
    char text[256];

    sends(p->comm, p);
    sends(weft_world_comm(p->world), p);
    calls_collectives(p->comm, p);
    calls_collectives(weft_world_comm(p->world), p);
    uses_regions(p);
    WT_CHECK(weft_dump(p->world, text, sizeof(text)) > 0);
    tests_and_waits(p);
    p->calls = 0;
    destroys_everything(p);
}

static void a_child_is_told_of_every_call_that_it_is_no_rank(void **s)
{
    (void)s;
    run(calls_all);
}

/* A child can be a rank of a job of its own, and its child likewise. */
static void joins_alone(pending *p)
{
    weft_world_options options = {.size = sizeof(options)};
    weft_world *own = NULL;
    float one = 1;
    int status = -1;
    pid_t child;

    (void)p;
    unsetenv("WEFT_RANK");
    WT_OK(weft_world_create(&options, &own));
    WT_OK(weft_allreduce(weft_world_comm(own), &one, &one, 1, WEFT_F32,
                         WEFT_SUM));
    child = fork();
    WT_CHECK(child >= 0);
    if (child == 0) {
        is_told(weft_barrier(weft_world_comm(own)));
        is_told(weft_barrier(p->comm));
        weft_world_destroy(own);
        weft_world_destroy(p->world);
        _exit(0);
    }
    WT_CHECK(waitpid(child, &status, 0) == child && status == 0);
    WT_OK(weft_barrier(weft_world_comm(own)));
    weft_world_destroy(own);
    weft_world_destroy(p->world);
}

static void a_child_can_have_a_job_of_its_own(void **s)
{
    (void)s;
    run(joins_alone);
}

/* --- forks while other threads are at work ---------------------------------
 */

enum { FORKS = 40 };

/* Waits for what only comes when all forks are over. */
static void *receive_main(void *arg)
{
    pending *p = arg;
    char end[4] = "";

    wt_speak_for(0);
    WT_OK(weft_recv(p->comm, end, sizeof(end), 1, TAG + 1, NULL));
    WT_CHECK(strcmp(end, "end") == 0);
    return NULL;
}

static void send_to_and_fro(weft_comm *comm, uint32_t peer, int rounds)
{
    static float block[3 * LARGE / 64];

    for (int i = 0; i < rounds; i++) {
        weft_request *r = NULL;

        WT_OK(weft_isend(comm, block, sizeof(block), peer, TAG + 2, &r));
        WT_OK(weft_recv(comm, block, sizeof(block), peer, TAG + 2, NULL));
        WT_OK(weft_request_wait(r, 0));
        weft_request_release(r);
    }
}

static void *busy_main(void *arg)
{
    pending *p = arg;

    wt_speak_for(0);
    send_to_and_fro(p->comm, 1, 20 * FORKS);
    return NULL;
}

static void fork_often(pending *p)
{
    pthread_t receiver;
    pthread_t busy;

    WT_CHECK(pthread_create(&receiver, NULL, receive_main, p) == 0);
    WT_CHECK(pthread_create(&busy, NULL, busy_main, p) == 0);
    for (int i = 0; i < FORKS; i++) {
        in_child(i % 2 == 0 ? calls_all : destroys_world, p);
    }
    WT_CHECK(pthread_join(busy, NULL) == 0);
    wt_word_set(0, 1);
    WT_CHECK(pthread_join(receiver, NULL) == 0);
}

static void crowded_body(weft_world *world)
{
    pending p;

    begin(world, &p);
    if (wt_rank() == 0) {
        fork_often(&p);
    } else {
        send_to_and_fro(p.comm, 0, 20 * FORKS);
        wt_word_await(0, 1);
        WT_OK(weft_send(p.comm, "end", 4, 0, TAG + 1));
    }
    finish(&p);
}

static void it_does_not_matter_what_other_threads_are_doing(void **s)
{
    (void)s;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        wt_run(2, settings[i], crowded_body);
    }
}

static const char *node_of(unsigned rank)
{
    return rank == 0 ? "TIMEOUT=10m NODE=a" : "TIMEOUT=10m NODE=b";
}

static void nor_whether_ranks_share_memory(void **s)
{
    wt_job job = {.ranks = 2, .settings_of = node_of, .body = rank_body};

    (void)s;
    body_of_child = calls_all;
    wt_run_job(&job);
    job.body = crowded_body;
    wt_run_job(&job);
}

static void fork_in_callback(weft_request *request, weft_status st, void *ctx)
{
    (void)request;
    WT_OK(st);
    in_child(calls_all, ctx);
    wt_word_set(1, 1);
}

static void callback_body(weft_world *world)
{
    weft_request *r = NULL;
    char in[4];
    pending p;

    begin(world, &p);
    if (wt_rank() == 1) {
        wt_word_await(0, 1);
        WT_OK(weft_send(p.comm, p.in, 4, 0, TAG + 1));
    } else {
        WT_OK(weft_irecv(p.comm, in, 4, 1, TAG + 1, NULL, &r));
        WT_OK(weft_request_on_done(r, fork_in_callback, &p));
        wt_word_set(0, 1);
        WT_OK(weft_request_wait(r, 0));
        weft_request_release(r);
        wt_word_await(1, 1);
    }
    finish(&p);
}

static void a_callback_may_fork(void **s)
{
    (void)s;
    wt_run(2, settings[0], callback_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            a_child_that_destroys_its_world_takes_nothing_from_its_parent),
        cmocka_unit_test(nor_does_one_that_lets_go_of_all_it_has),
        cmocka_unit_test(nor_does_one_that_aborts),
        cmocka_unit_test(a_child_that_tests_and_waits_is_told_at_once),
        cmocka_unit_test(a_child_is_told_of_every_call_that_it_is_no_rank),
        cmocka_unit_test(a_child_can_have_a_job_of_its_own),
        cmocka_unit_test(it_does_not_matter_what_other_threads_are_doing),
        cmocka_unit_test(nor_whether_ranks_share_memory),
        cmocka_unit_test(a_callback_may_fork),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
