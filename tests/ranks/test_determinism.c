/* SPDX-License-Identifier: Apache-2.0 */
/* The same inputs, group and settings give the same bits on every rank, in
 * every run and in every form of the call, also where rounding makes the order
 * of additions visible. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "wt.h"
#include "wt_buffer.h"
#include "wt_cmocka.h"
#include "wt_coll.h"
#include "wt_data.h"

static const weft_dtype types[] = {WEFT_F16, WEFT_BF16, WEFT_F32,
                                   WEFT_F64, WEFT_C64,  WEFT_C128};
static const weft_op_kind kinds[] = {WEFT_OP_SUM, WEFT_OP_AVG,
                                     WEFT_OP_PREMUL_SUM};
enum { TYPES = 6, KINDS = 3, SIZES = 4, CASES = TYPES * KINDS * SIZES };

static weft_dtype case_type(unsigned i)
{
    return types[i % TYPES];
}

static weft_op case_op(unsigned i)
{
    weft_op op = {kinds[i / TYPES % KINDS], 1.0 / 3};

    return op;
}

static size_t case_size(unsigned i)
{
    const size_t sizes[SIZES] = {1, 1023, 20011, wt_scaled(150007)};

    return sizes[i / TYPES / KINDS];
}

/* --- forms of the call --------------------------------------------------- */

enum { PLAIN, REQUEST, OUT_OF_PLACE, SHIFTED, FORMS };

/* Reduce `data` in one of the forms; the caller frees the result. */
static char *reduce_as(weft_comm *comm, unsigned form, weft_dtype type,
                       weft_op op, const char *data, size_t n)
{
    size_t elem = weft_dtype_size(type);
    weft_request *request = NULL;
    char *result = malloc(n * elem + 1);
    wt_buffer src;
    char *to;

    WT_CHECK(result != NULL);
    wt_buffer_init(&src, n * elem, form == SHIFTED ? elem : 0);
    memcpy(src.data, data, n * elem);
    to = form == PLAIN || form == REQUEST ? src.data : result;
    if (form == REQUEST) {
        WT_OK(weft_iallreduce(comm, src.data, to, n, type, op, &request));
        WT_OK(weft_request_wait(request, 0));
        weft_request_release(request);
    } else {
        WT_OK(weft_allreduce(comm, src.data, to, n, type, op));
    }
    if (to != result) {
        memcpy(result, to, n * elem);
    }
    wt_buffer_fini(&src);
    return result;
}

static char *rough_data(weft_world *world, weft_dtype type, size_t n)
{
    char *data = malloc(n * weft_dtype_size(type) + 1);

    WT_CHECK(data != NULL);
    wt_fill_rough(data, n, type, n, weft_world_rank(world));
    return data;
}

static void forms_case(weft_world *world, weft_dtype type, weft_op op, size_t n)
{
    weft_comm *comm = weft_world_comm(world);
    size_t bytes = n * weft_dtype_size(type);
    char *data = rough_data(world, type, n);
    char *first = reduce_as(comm, PLAIN, type, op, data, n);

    wt_check_same(world, first, bytes);
    for (unsigned form = REQUEST; form < FORMS; form++) {
        char *other = reduce_as(comm, form, type, op, data, n);

        if (memcmp(first, other, bytes) != 0) {
            WT_FAIL("%s of %zu %s: form %u gives other bits",
                    weft_op_name(op.kind), n, weft_dtype_name(type), form);
        }
        free(other);
    }
    free(first);
    free(data);
}

static void forms_body(weft_world *world)
{
    for (unsigned i = 0; i < CASES; i++) {
        forms_case(world, case_type(i), case_op(i), case_size(i));
    }
}

static void all_ranks_and_all_forms_of_a_call_give_the_same_bits(void **state)
{
    (void)state;
    wt_run_both(2, NULL, forms_body);
    wt_run_both(3, NULL, forms_body);
    wt_run_both(5, NULL, forms_body);
    wt_run_both(3, "ENGINE=message", forms_body);
}

/* --- repeated runs ------------------------------------------------------- */

/* One word for each case, left on the board for the parent. */
static void hashes_body(weft_world *world)
{
    for (unsigned i = 0; i < CASES; i++) {
        weft_dtype type = case_type(i);
        size_t n = case_size(i);
        char *data = rough_data(world, type, n);
        char *x = reduce_as(weft_world_comm(world), i % FORMS, type, case_op(i),
                            data, n);

        if (weft_world_rank(world) == 0) {
            atomic_store(wt_word(i),
                         (uint32_t)wt_hash(x, n * weft_dtype_size(type)));
        }
        free(data);
        free(x);
    }
}

static void take_hashes(uint32_t *hash)
{
    for (unsigned i = 0; i < CASES; i++) {
        hash[i] = atomic_load(wt_word(i));
    }
}

static void repeated_runs_give_the_same_bits(void **state)
{
    uint32_t first[CASES];
    uint32_t again[CASES];

    (void)state;
    wt_run_threads(4, NULL, hashes_body);
    take_hashes(first);
    for (unsigned i = 0; i < 2; i++) {
        wt_run_both(4, NULL, hashes_body);
        take_hashes(again);
        assert_memory_equal(first, again, sizeof(first));
    }
}

/* How ranks wait must not show in the result. */
static void patience_does_not_change_the_bits(void **state)
{
    uint32_t first[CASES];
    uint32_t again[CASES];

    (void)state;
    wt_run_threads(3, "SPIN=0s YIELD=0s", hashes_body);
    take_hashes(first);
    wt_run_threads(3, "SPIN=1ms", hashes_body);
    take_hashes(again);
    assert_memory_equal(first, again, sizeof(first));
}

/* --- every collective ---------------------------------------------------- */

/* Ways to make the same call. */
enum {
    BLOCKING,
    BEHIND_A_REQUEST,
    IN_PLACE,
    OFF_ALIGNMENT,
    ALL_SHARED,
    SOME_SHARED,
    DST_SHARED,
    WAYS
};

static wt_coll call_of(wt_coll_kind kind, unsigned i)
{
    const size_t sizes[] = {3, 1023, wt_scaled(20011)};
    weft_op op = case_op(i);
    bool takes = wt_coll_takes(kind, op.kind);

    return (wt_coll){.kind = kind,
                     .type = case_type(i),
                     .op = takes ? op : WEFT_SUM,
                     .n = sizes[i / 2 % 3],
                     .root = i % 2,
                     .rough = true,
                     .seed = i};
}

static uint64_t hash_of(weft_comm *comm, const wt_pool *pool, wt_coll c,
                        unsigned way)
{
    wt_call call;
    uint64_t hash;

    c.in_place = way == IN_PLACE;
    c.shift = way == OFF_ALIGNMENT;
    c.shared_src = way == ALL_SHARED ? UINT32_MAX : way == SOME_SHARED ? 5 : 0;
    c.shared_dst = way == DST_SHARED ? UINT32_MAX : c.shared_src;
    wt_call_init(&call, comm, &c, pool);
    WT_OK(way == BEHIND_A_REQUEST ? wt_call_run_request(&call)
                                  : wt_call_run(&call));
    hash = wt_call_hash(&call);
    wt_call_fini(&call);
    return hash;
}

static uint64_t check_ways(weft_world *world, const wt_pool *pool,
                           const wt_coll *c)
{
    weft_comm *comm = weft_world_comm(world);
    uint64_t first = hash_of(comm, pool, *c, BLOCKING);

    for (unsigned way = BLOCKING + 1; way < WAYS; way++) {
        bool left_alone = c->kind == WT_EXSCAN && weft_comm_rank(comm) == 0;

        if (hash_of(comm, pool, *c, way) != first && !left_alone) {
            char text[400];

            wt_coll_text(c, text, sizeof(text));
            WT_FAIL("%s: way %u gives other bits", text, way);
        }
    }
    if (wt_coll_same(c->kind)) {
        wt_check_same(world, &first, sizeof(first));
    }
    return first;
}

/* One word for each kind and rank, left on the board for the parent. */
static void ways_body(weft_world *world)
{
    weft_comm *comm = weft_world_comm(world);
    wt_pool pool;

    wt_pool_init(&pool, comm, 4u << 20);
    for (unsigned kind = 0; kind < WT_COLLS; kind++) {
        uint64_t hash = 0;

        for (unsigned i = 0; i < TYPES; i++) {
            wt_coll c = call_of((wt_coll_kind)kind, i + i % KINDS * TYPES);

            hash = wt_mix(hash, i, check_ways(world, &pool, &c));
        }
        atomic_store(wt_word(kind * 8 + weft_comm_rank(comm)), (uint32_t)hash);
    }
    wt_pool_fini(&pool, comm);
}

static void take_all_words(uint32_t *word)
{
    for (unsigned i = 0; i < WT_WORDS; i++) {
        word[i] = atomic_load(wt_word(i));
    }
}

static void run_again(unsigned ranks, const char *settings)
{
    if (WT_TSAN) {
        wt_run_threads(ranks, settings, ways_body);
    } else {
        wt_run(ranks, settings, ways_body);
    }
}

static void every_collective_gives_the_same_bits_again(void **state)
{
    static const char *const settings[] = {NULL, "FLAT_BYTES=64 CHUNK_BYTES=4K",
                                           "ENGINE=message"};
    uint32_t first[WT_WORDS];
    uint32_t again[WT_WORDS];

    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        wt_run_threads(3 + i, settings[i], ways_body);
        take_all_words(first);
        run_again(3 + i, settings[i]);
        take_all_words(again);
        assert_memory_equal(first, again, sizeof(first));
    }
}

/* --- and they are right -------------------------------------------------- */

/* Rough sums in f32 against sums in double: the error of adding a few numbers
 * below 64 in any order is far below 1e-3. */
static void accurate_body(weft_world *world)
{
    unsigned ranks = weft_world_size(world);
    size_t n = 20011;
    char *data = rough_data(world, WEFT_F32, n);
    char *got =
        reduce_as(weft_world_comm(world), PLAIN, WEFT_F32, WEFT_SUM, data, n);
    float *one = malloc(n * sizeof(*one));
    double *sum = calloc(n, sizeof(*sum));
    double re;
    double im;

    WT_CHECK(one != NULL && sum != NULL);
    for (unsigned r = 0; r < ranks; r++) {
        wt_fill_rough(one, n, WEFT_F32, n, r);
        for (size_t i = 0; i < n; i++) {
            sum[i] += (double)one[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        wt_get(got, i, WEFT_F32, &re, &im);
        WT_CHECK(fabs(re - sum[i]) < 1e-3);
    }
    free(data);
    free(got);
    free(one);
    free(sum);
}

static void rounded_sums_are_close_to_the_exact_ones(void **state)
{
    (void)state;
    wt_run_both(5, NULL, accurate_body);
    wt_run_both(4, "ENGINE=message", accurate_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_and_all_forms_of_a_call_give_the_same_bits),
        cmocka_unit_test(repeated_runs_give_the_same_bits),
        cmocka_unit_test(patience_does_not_change_the_bits),
        cmocka_unit_test(every_collective_gives_the_same_bits_again),
        cmocka_unit_test(rounded_sums_are_close_to_the_exact_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
