/* SPDX-License-Identifier: Apache-2.0 */
/* What the other members of a collective write: calls, lengths and counters in
 * shared memory, or messages. Whatever it is, the operation ends or finds that
 * it cannot go on, and reads and writes only what is its own.
 *
 * The input is a byte each for the operation, its size, its root and choices.
 * Then, of the engine on shared memory, changes to what the others have
 * written: which member, where, how much, and the bytes; of the engine on
 * messages, the script that the port answers from. The others begin with what
 * this rank would write, and as if they had done all their part. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <weft/coll.h>

#include "coll/choose.h"
#include "coll/coll.h"
#include "coll/shm/area.h"
#include "stage.h"

enum {
    MESSAGES = 1, /* bits of the choices */
    SHARED = 2,   /* buffers lie in the arena */
    READS = 4,    /* takers read the root's memory */
    KINDS = 14,
    RANK = 1,
    BLOCK_MAX = 9000,
    SHARED_BYTES = 1 << 16,
    UNTOUCHED = 0xa5,
    LARGE = 700
};

typedef struct cell_stage {
    stage s;
    weft_comm comm;
    uint32_t member[STAGE_RANKS];
    uint32_t local[STAGE_RANKS];
    wf_board_rank *entry[STAGE_RANKS];
    wf_arena arena;
    bool in_shared;
    unsigned char *src;
    unsigned char *dst;
    weft_part src_part[STAGE_RANKS];
    weft_part dst_part[STAGE_RANKS];
} cell_stage;

/* --- the communicator ---------------------------------------------------- */

static void segment_init(weft_comm *comm)
{
    size_t head = WF_COMM_PAGE + WF_COMM_PAGE;
    size_t bytes = head + wf_layers_area(comm);

    /* One for all inputs; what lies behind it is nobody's. */
    static void *base;

    if (base == NULL) {
        must(wf_segment_create("fuzz", bytes, WF_HUGE_OFF, &comm->segment) ==
             WEFT_OK);
        base = comm->segment.base;
    }
    memset(base, 0, bytes);
    comm->segment =
        (wf_segment){.fd = -1, .base = base, .bytes = bytes, .writable = true};
    comm->shared = base;
    comm->done = (wf_comm_done *)(void *)((char *)base + WF_COMM_PAGE);
    comm->own_done = &comm->done[comm->local[comm->rank]];
}

static void comm_init(cell_stage *c, bool messages)
{
    weft_comm *comm = &c->comm;

    *comm = (weft_comm){.world = &c->s.world,
                        .rank = RANK,
                        .size = STAGE_RANKS,
                        .member = c->member,
                        .entry = c->entry,
                        .own = &c->s.board->rank[RANK],
                        .id = 2,
                        .one_node = !messages,
                        .local = c->local,
                        .mates = messages ? 1 : STAGE_RANKS,
                        .tree.nodes = messages ? STAGE_RANKS : 1,
                        .segment = {.fd = -1}};
    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        c->member[r] = r;
        c->local[r] = messages && r != RANK ? WF_NOT_HERE : messages ? 0 : r;
        c->entry[r] = &c->s.board->rank[r];
    }
    atomic_store(&comm->users, 1);
    /* Whatever does not move does not wait either. */
    atomic_store(&comm->timeout_ns, 1);
    pthread_mutex_init(&comm->lock, NULL);
    if (!messages) {
        segment_init(comm);
    }
    must(wf_layers_attach(comm, messages ? NULL
                                         : (unsigned char *)comm->segment.base +
                                               WF_COMM_PAGE + WF_COMM_PAGE) ==
         WEFT_OK);
}

static void comm_fini(cell_stage *c)
{
    wf_layers_detach(&c->comm);
    pthread_mutex_destroy(&c->comm.lock);
}

/* --- buffers ------------------------------------------------------------- */

/* An arena, which the stage has none of. */
static void buffer_share(cell_stage *c)
{
    static unsigned char *base;
    shm_state *state = wf_coll_meets(wf_coll_of(&c->comm))->state;
    size_t bytes = STAGE_RANKS * SHARED_BYTES;

    if (base == NULL) {
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(base != MAP_FAILED);
    }
    c->arena = (wf_arena){.base = base,
                          .range = SHARED_BYTES,
                          .ranges = STAGE_RANKS,
                          .own = base + RANK * SHARED_BYTES};
    state->arena = &c->arena;
    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        state->range[r] = base + r * SHARED_BYTES;
    }
}

/* A block for each member, of the same length. */
static void parts_init(cell_stage *c, size_t n)
{
    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        c->src_part[r] =
            (weft_part){c->src + r * n * sizeof(float), r == RANK ? 0 : n};
        c->dst_part[r] =
            (weft_part){c->dst + r * n * sizeof(float), r == RANK ? 0 : n};
    }
}

static void buffers_init(cell_stage *c, size_t n, bool shared)
{
    size_t bytes = STAGE_RANKS * n * sizeof(float);

    c->in_shared = shared && 2 * bytes <= SHARED_BYTES;
    if (c->in_shared) {
        c->src = c->arena.own;
        c->dst = c->src + SHARED_BYTES / 2;
    } else {
        c->src = calloc(1, bytes + 1);
        c->dst = malloc(bytes + 1);
        must(c->src != NULL && c->dst != NULL);
    }
    memset(c->dst, UNTOUCHED, bytes);
    parts_init(c, n);
}

static void buffers_fini(cell_stage *c)
{
    if (!c->in_shared) {
        free(c->src);
        free(c->dst);
    }
}

/* --- the operations ------------------------------------------------------ */

static weft_status run_one_block(cell_stage *c, uint8_t kind, size_t n,
                                 uint32_t root)
{
    weft_comm *comm = &c->comm;

    switch (kind) {
    case 0:
        return weft_broadcast(comm, c->dst, n, WEFT_F32, root);
    case 1:
        return weft_allreduce(comm, c->src, c->dst, n, WEFT_F32, WEFT_SUM);
    case 2:
        return weft_reduce(comm, c->src, c->dst, n, WEFT_F32, WEFT_SUM, root);
    case 3:
        return weft_scan(comm, c->src, c->dst, n, WEFT_F32, WEFT_SUM);
    case 4:
        return weft_exscan(comm, c->src, c->dst, n, WEFT_F32, WEFT_SUM);
    case 5:
        return weft_allgather(comm, c->src, c->dst, n, WEFT_F32);
    default:
        return weft_gather(comm, c->src, c->dst, n, WEFT_F32, root);
    }
}

static weft_status run(cell_stage *c, uint8_t kind, size_t n, uint32_t root)
{
    weft_comm *comm = &c->comm;

    switch (kind) {
    case 7:
        return weft_scatter(comm, c->src, c->dst, n, WEFT_F32, root);
    case 8:
        return weft_alltoall(comm, c->src, c->dst, n, WEFT_F32);
    case 9:
        return weft_reduce_scatter(comm, c->src, c->dst, n, WEFT_F32, WEFT_SUM);
    case 10:
        return weft_gatherv(comm, c->src, root == RANK ? 0 : n, c->dst_part,
                            WEFT_F32, root);
    case 11:
        return weft_scatterv(comm, c->src_part, c->dst, root == RANK ? 0 : n,
                             WEFT_F32, root);
    case 12:
        return weft_alltoallv(comm, c->src_part, c->dst_part, WEFT_F32);
    case 13:
        return weft_allgatherv(comm, c->src, c->dst_part, WEFT_F32);
    default:
        return run_one_block(c, kind, n, root);
    }
}

/* No rank reports success and leaves a block as it was. Only large ones are
 * looked at, which no change to what the others wrote could fill. */
static void check_filled(const cell_stage *c, uint8_t kind, size_t n)
{
    unsigned char untouched[512];

    memset(untouched, UNTOUCHED, sizeof(untouched));
    for (uint32_t r = 0; r < STAGE_RANKS && kind == 12 && n >= LARGE; r++) {
        const unsigned char *end =
            (const unsigned char *)c->dst_part[r].at + n * sizeof(float);

        must(r == RANK || memcmp(end - sizeof(untouched), untouched,
                                 sizeof(untouched)) != 0);
    }
}

/* --- what the others have written ---------------------------------------- */

/* Our own cell holds the call after a run that nobody joined. */
static void others_agree(cell_stage *c, const shm_cell *ours)
{
    shm_state *state = wf_coll_meets(wf_coll_of(&c->comm))->state;

    for (uint32_t r = 0; r < STAGE_RANKS; r++) {
        shm_head *h = shm_head_of(state, r);

        if (r != RANK) {
            memcpy(shm_cell_of(state, r, 0), ours, state->cell);
            atomic_store(&h->in.value, UINT64_MAX / 2);
            atomic_store(&h->red.value, UINT64_MAX / 2);
            atomic_store(&h->out.value, UINT64_MAX / 2);
        }
    }
}

/* Where the others can write: what they show on the board, their counters and
 * what is behind them, mostly their cells. */
typedef struct place {
    unsigned char *at;
    size_t bytes;
} place;

static place place_of(cell_stage *c, uint8_t member)
{
    shm_state *state = wf_coll_meets(wf_coll_of(&c->comm))->state;
    uint32_t r = member % 2 == 0 ? 0 : 2;
    unsigned char *block = state->area + r * state->block;
    size_t from = member & 2 ? 0 : sizeof(shm_head);

    return member & 4 ? (place){(unsigned char *)&c->s.board->rank[r],
                                sizeof(c->s.board->rank[r])}
                      : (place){block + from, state->block - from};
}

static void others_change(cell_stage *c, script *in)
{
    while (in->left > 0) {
        place to = place_of(c, script_u8(in));
        size_t at = script_u16(in) % to.bytes;
        size_t n = script_u8(in);

        script_bytes(in, to.at + at, n < to.bytes - at ? n : to.bytes - at);
    }
}

/* What the others show can be printed. */
static void check_dump(cell_stage *c)
{
    char text[4096];

    must(weft_dump(&c->s.world, text, sizeof(text)) > 0);
    must(memchr(text, '\0', sizeof(text)) != NULL);
}

static void fuzz_memory(cell_stage *c, script *in, uint8_t kind, size_t n,
                        uint32_t root, uint8_t choices)
{
    static unsigned char ours[1 << 16];
    bool shared = (choices & SHARED) != 0;

    c->s.world.settings.cma = choices & READS ? WF_CMA_ON : WF_CMA_OFF;
    for (unsigned round = 0; round < 2; round++) {
        shm_state *state;

        comm_init(c, false);
        state = wf_coll_meets(wf_coll_of(&c->comm))->state;
        must(state->cell <= sizeof(ours));
        if (shared) {
            buffer_share(c);
        }
        buffers_init(c, n, shared);
        if (round == 1) {
            others_agree(c, (const shm_cell *)(const void *)ours);
            others_change(c, in);
        }
        if (run(c, kind, n, root) == WEFT_OK) {
            check_filled(c, kind, n);
        }
        memcpy(ours, shm_cell_of(state, RANK, 0), state->cell);
        buffers_fini(c);
        comm_fini(c);
    }
}

static void fuzz_messages(cell_stage *c, uint8_t kind, size_t n, uint32_t root)
{
    comm_init(c, true);
    buffers_init(c, n, false);
    if (run(c, kind, n, root) == WEFT_OK) {
        check_filled(c, kind, n);
    }
    buffers_fini(c);
    comm_fini(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const size_t sizes[] = {0, 1, 5, 16, 40, 700, 3000, BLOCK_MAX};
    script in = {data, n};
    uint8_t kind = script_u8(&in) % KINDS;
    size_t count = sizes[script_u8(&in) % 8];
    uint32_t root = script_u8(&in) % STAGE_RANKS;
    uint8_t choices = script_u8(&in);
    bool messages = (choices & MESSAGES) != 0;
    cell_stage c;

    memset(&c, 0, sizeof(c));
    stage_init(&c.s, STAGE_RANKS, RANK, messages, messages ? &in : NULL);
    if (messages) {
        fuzz_messages(&c, kind, count, root);
    } else {
        fuzz_memory(&c, &in, kind, count, root, choices);
    }
    check_dump(&c);
    stage_fini(&c.s);
    return 0;
}
