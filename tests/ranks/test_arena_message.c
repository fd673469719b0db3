/* SPDX-License-Identifier: Apache-2.0 */
/* Messages out of arenas: the receiver reads them where they lie. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "comm/world.h"
#include "transport/shm/shm.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_data.h"

/* With SHM_CMA=1 all that is larger than SHM_EAGER is read. */
#define READS "TIMEOUT=60s SHM_CMA=1 SHM_EAGER=256 SHM_RING_BYTES=4K"

#define MOST ((size_t)700 << 10)

/* A source of `n` bytes for `round`: in the arena, but for every third, and on
 * no boundary. */
static unsigned char *source_of(unsigned char *shared, unsigned char *own,
                                unsigned round, unsigned rank, size_t n)
{
    unsigned char *at = ((round + rank) % 3 == 2 ? own : shared) + round % 7;

    wt_fill_bytes(at, n, round, rank);
    return at;
}

/* Everybody sends to its neighbour, received in every way there is. */
static void turn(weft_comm *comm, unsigned round, size_t n,
                 unsigned char *buffers[3])
{
    unsigned ranks = weft_comm_size(comm);
    unsigned me = weft_comm_rank(comm);
    unsigned left = (me + ranks - 1) % ranks;
    unsigned char *in = buffers[2];
    size_t room = round % 5 == 4 ? n / 2 : n; /* truncated */
    weft_message_info info = {0};
    weft_request *send = NULL;
    unsigned char *want = malloc(n + 1);

    WT_CHECK(want != NULL);
    WT_OK(weft_isend(comm, source_of(buffers[0], buffers[1], round, me, n), n,
                     (me + 1) % ranks, round, &send));
    if (round % 2 == 0) {
        WT_OK(weft_probe(comm, WEFT_ANY_SOURCE, round, &info));
        WT_CHECK(info.n == n && info.from == left);
    }
    WT_STATUS(weft_recv(comm, in, room, round % 3 ? left : WEFT_ANY_SOURCE,
                        round, &info),
              room < n ? WEFT_ERR_TRUNCATED : WEFT_OK);
    WT_CHECK(info.n == n && info.from == left);
    wt_fill_bytes(want, n, round, left);
    WT_CHECK(memcmp(in, want, room) == 0);
    WT_OK(weft_request_wait(send, 0));
    weft_request_release(send);
    free(want);
}

static void turn_all(weft_world *world, const size_t *sizes, unsigned count,
                     size_t most)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned char *buffers[3] = {NULL, malloc(most + 8), malloc(most + 8)};

    WT_CHECK(buffers[1] != NULL && buffers[2] != NULL);
    WT_OK(weft_arena_alloc(world, most + 8, (void **)&buffers[0]));
    for (unsigned i = 0; i < count; i++) {
        turn(comm, i, sizes[i], buffers);
    }
    weft_arena_free(buffers[0]);
    free(buffers[1]);
    free(buffers[2]);
}

static void sizes_body(weft_world *world)
{
    const size_t sizes[] = {1,    256,   257,       5000,
                            5000, 60001, 100001,    262144,
                            9001, 8193,  MOST - 11, wt_scaled(MOST)};

    turn_all(world, sizes, sizeof(sizes) / sizeof(sizes[0]), MOST);
}

static void each_message_arrives_whole(void **s)
{
    (void)s;
    wt_run_both(1, READS, sizes_body);
    wt_run_both(2, READS, sizes_body);
    wt_run_both(3, READS, sizes_body);
    wt_run(5, "TIMEOUT=60s SHM_CMA=0", sizes_body); /* more than cores */
    wt_run(2, "TIMEOUT=60s ARENA=64M SHM_EAGER=256", sizes_body);
}

static void between_two_nodes_they_take_the_ring(void **s)
{
    (void)s;
    wt_run_nodes(2, 2, sizes_body);
}

/* So large that it is read although each rank may have a core. */
static void large_body(weft_world *world)
{
    const size_t sizes[] = {(17u << 20) + 5, (16u << 20) + 1};

    turn_all(world, sizes, 2, sizes[0]);
}

static void what_is_larger_than_caches_is_always_read(void **s)
{
    (void)s;
    wt_run(2, "TIMEOUT=60s", large_body);
}

/* Lines of records of rank 0 that rank 1 has read so far. */
static uint64_t lines_read(const weft_world *world)
{
    const wf_port *port = wf_world_route(world, 0)->port;
    uint32_t i = 0;

    while (port->peer[i].rank != 0) {
        i++;
    }
    return port->in[i].head;
}

/* The lines that rank 1 reads while `n` bytes come from rank 0, where they
 * begin at `from`. */
static uint64_t lines_of(weft_world *world, unsigned char *from, size_t n,
                         unsigned tag)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned char *to;
    uint64_t lines;

    wt_fill_bytes(from, n, tag, 0);
    if (weft_comm_rank(comm) == 0) {
        WT_OK(weft_send(comm, from, n, 1, tag));
        return 0;
    }
    to = malloc(n);
    WT_CHECK(to != NULL);
    lines = lines_read(world);
    WT_OK(weft_recv(comm, to, n, 0, tag, NULL));
    WT_CHECK(memcmp(from, to, n) == 0);
    free(to);
    return lines_read(world) - lines;
}

/* Reading through the kernel is off: a message is read where it lies, or goes
 * through the ring, line by line. */
static void ring_body(weft_world *world)
{
    size_t n = (17u << 20) + 5; /* more than caches: it is always read */
    unsigned char *own = malloc(n);
    unsigned char *shared = NULL;

    WT_CHECK(own != NULL);
    WT_OK(weft_arena_alloc(world, n, (void **)&shared));
    WT_CHECK(lines_of(world, shared, n, 1) < 64);
    WT_CHECK(lines_of(world, own, n, 2) > n / WF_RING_LINE || wt_rank() == 0);
    weft_arena_free(shared);
    free(own);
}

static void no_byte_of_it_goes_through_the_ring(void **s)
{
    (void)s;
    wt_run(2, "TIMEOUT=60s SHM_CMA=0", ring_body);
}

/* Two messages of one block to two receivers at once, and its own rank. */
static void shared_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    weft_request *send[3];
    unsigned char *from = NULL;
    unsigned char *to = malloc(MOST);
    unsigned char *want = malloc(MOST);

    WT_CHECK(to != NULL && want != NULL);
    WT_OK(weft_arena_alloc(world, MOST, (void **)&from));
    wt_fill_bytes(from, MOST, 1, 0);
    wt_fill_bytes(want, MOST, 1, 0);
    for (unsigned r = 0; r < 3 && weft_comm_rank(comm) == 0; r++) {
        WT_OK(weft_isend(comm, from, MOST, r, 1, &send[r]));
    }
    WT_OK(weft_recv(comm, to, MOST, 0, 1, NULL));
    WT_CHECK(memcmp(to, want, MOST) == 0);
    for (unsigned r = 0; r < 3 && weft_comm_rank(comm) == 0; r++) {
        WT_OK(weft_request_wait(send[r], 0));
        weft_request_release(send[r]);
    }
    weft_arena_free(from);
    free(to);
    free(want);
}

static void one_block_goes_to_several_at_once(void **s)
{
    (void)s;
    wt_run_both(3, READS, shared_body);
}

/* The sender dies when its offer is there and nobody has read it; then the
 * receiver does when it was offered something. */
static void death_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    unsigned char *x = NULL;
    weft_message_info info;
    weft_request *send = NULL;

    WT_OK(weft_arena_alloc(world, MOST, (void **)&x));
    memset(x, 1, MOST);
    if (weft_comm_rank(comm) == 1) {
        WT_OK(weft_isend(comm, x, MOST, 0, 1, &send));
        WT_OK(weft_probe(comm, 0, 2, &info));
        raise(SIGKILL);
    }
    if (weft_comm_rank(comm) == 0) {
        WT_OK(weft_probe(comm, 1, 1, &info));
        WT_OK(weft_isend(comm, x, MOST, 1, 2, &send));
        WT_STATUS(weft_request_wait(send, 0), WEFT_ERR_PEER);
        weft_request_release(send);
        WT_STATUS(weft_recv(comm, x, MOST, 1, 1, NULL), WEFT_ERR_PEER);
    }
    weft_arena_free(x);
}

static void a_death_on_either_side_is_an_error(void **s)
{
    (void)s;
    wt_run_job(&(const wt_job){
        .ranks = 3, .settings = READS, .body = death_body, .doomed = 1u << 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_message_arrives_whole),
        cmocka_unit_test(no_byte_of_it_goes_through_the_ring),
        cmocka_unit_test(between_two_nodes_they_take_the_ring),
        cmocka_unit_test(what_is_larger_than_caches_is_always_read),
        cmocka_unit_test(one_block_goes_to_several_at_once),
        cmocka_unit_test(a_death_on_either_side_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
