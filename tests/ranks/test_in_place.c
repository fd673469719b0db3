/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in arenas are used where they lie, on every communicator of the
 * node: what the slots of its members held before a collective they hold after
 * it. */
#include <string.h>

#include "coll/choose.h"
#include "coll/shm/area.h"
#include "wt.h"
#include "wt_cmocka.h"
#include "wt_coll.h"

#define POOL_BYTES (4u << 20)
#define MANY 30011          /* elements: several chunks of 4 KiB */
#define JOINT_FLOATS 200001 /* two ranks copy a broadcast of those together */
#define MARK 0xa5

/* Without reading through the kernel, which would need no slots either. */
#define SETTINGS "TIMEOUT=60s FLAT_BYTES=64 CHUNK_BYTES=4K SHM_CMA=0"

static unsigned char *own_slots(const weft_comm *comm, size_t *bytes)
{
    const shm_state *s = wf_coll_meets(wf_coll_of(comm))->state;

    *bytes = SHM_SLOTS * s->slot;
    return shm_slot_of(s, comm->rank, 0);
}

static void mark_slots(weft_comm *comm)
{
    size_t bytes;
    unsigned char *at = own_slots(comm, &bytes);

    memset(at, MARK, bytes);
    WT_OK(weft_barrier(comm));
}

/* How many members find other bytes in their slots. */
static int64_t members_with_data(weft_comm *comm)
{
    int64_t found = 0;
    size_t bytes;
    const unsigned char *at;

    WT_OK(weft_barrier(comm)); /* nobody writes into slots of others any more */
    at = own_slots(comm, &bytes);
    for (size_t i = 0; i < bytes && found == 0; i++) {
        found = at[i] != MARK;
    }
    WT_OK(weft_allreduce(comm, &found, &found, 1, WEFT_I64, WEFT_SUM));
    return found;
}

/* Do slots get data of this collective, with buffers in the arena or not? */
static bool goes_through_slots(weft_comm *comm, wt_coll what,
                               const wt_pool *pool, bool in_arena)
{
    what.shared_src = in_arena ? UINT32_MAX : 0;
    what.shared_dst = what.shared_src;
    mark_slots(comm);
    wt_coll_carry_out(comm, &what, pool, what.seed % 2 == 0);
    return members_with_data(comm) > 0;
}

static void expect_in_place(weft_comm *comm, const wt_coll *what,
                            const wt_pool *pool)
{
    if (goes_through_slots(comm, *what, pool, true)) {
        WT_FAIL("%s of arenas went through slots on communicator %u",
                wt_coll_name(what->kind), comm->id);
    }
    if (!goes_through_slots(comm, *what, pool, false)) {
        WT_FAIL("%s of private memory did not show in slots",
                wt_coll_name(what->kind));
    }
}

static void expect_all_in_place(weft_comm *comm, const wt_pool *pool)
{
    for (unsigned i = 0; i < 2 * WT_COLLS; i++) {
        wt_coll what = {.kind = (wt_coll_kind)(i % WT_COLLS),
                        .type = WEFT_F32,
                        .op = {.kind = WEFT_OP_SUM},
                        .root = i % weft_comm_size(comm),
                        .n = wt_scaled(MANY),
                        .lengths = WT_EVEN,
                        .shift = i % 3,
                        .seed = i + i / WT_COLLS};

        if (what.kind != WT_BARRIER) {
            expect_in_place(comm, &what, pool);
        }
        if (what.kind == WT_BROADCAST) {
            what.n = wt_scaled(JOINT_FLOATS);
            expect_in_place(comm, &what, pool);
        }
    }
}

static void expect_and_close(weft_comm *comm, const wt_pool *pool)
{
    expect_all_in_place(comm, pool);
    weft_comm_destroy(comm);
}

static void groups_body(weft_world *world)
{
    static const uint32_t members[] = {3, 0, 2};
    weft_comm *all = weft_world_comm(world);
    weft_comm *some = NULL;
    wt_pool pool = {.bytes = POOL_BYTES};

    WT_OK(weft_arena_alloc(world, POOL_BYTES, (void **)&pool.src));
    WT_OK(weft_arena_alloc(world, POOL_BYTES, (void **)&pool.dst));
    expect_all_in_place(all, &pool);
    WT_OK(weft_comm_dup(all, &some));
    expect_and_close(some, &pool);
    WT_OK(weft_comm_split(all, wt_rank() % 2, -(int)wt_rank(), &some));
    expect_and_close(some, &pool);
    if (wt_rank() != 1) {
        WT_OK(weft_comm_create_group(all, members, 3, 7, 0, &some));
        expect_and_close(some, &pool);
        WT_OK(weft_comm_subset(all, members, 3, &some));
        expect_and_close(some, &pool);
    }
    WT_OK(weft_barrier(all));
    weft_arena_free(pool.src);
    weft_arena_free(pool.dst);
}

static void no_slot_gets_data_of_arenas_on_any_communicator(void **state)
{
    (void)state;
    wt_run_both(4, SETTINGS, groups_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_slot_gets_data_of_arenas_on_any_communicator),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
