/* SPDX-License-Identifier: Apache-2.0 */
/* Sums in fixed point keep what quantise.h promises. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "agg/quantise/table.h"
#include "wt_cmocka.h"

enum { RANKS = 8, MOST = 200, BYTES = MOST * 4 + 4 * 2 };

typedef struct arrays {
    float x[RANKS][MOST];
    int32_t part[RANKS][BYTES / 4];
    int32_t sum[BYTES / 4];
    float out[MOST];
} arrays;

static arrays a;

/* Quantise, add in the order that is given, and turn back. */
static void run(uint32_t ranks, size_t n, const uint32_t *order)
{
    const void *part[RANKS];

    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t from = order != NULL ? order[r] : r;

        wf_quantise(a.x[from], n, ranks, a.part[from]);
        part[r] = a.part[from];
    }
    memset(a.sum, 0xcc, sizeof(a.sum));
    wf_quantised_sum(part, ranks, n, a.sum);
    wf_dequantise(a.sum, n, ranks, 1, a.out);
}

static int log2_up(uint32_t ranks)
{
    int bits = 0;

    for (; 1u << bits < ranks; bits++) {
    }
    return bits;
}

/* The bound of quantise.h for the block that has element i. */
static double bound(uint32_t ranks, size_t n, size_t i)
{
    size_t from = i - i % WF_QUANT_BLOCK;
    size_t end = from + WF_QUANT_BLOCK < n ? from + WF_QUANT_BLOCK : n;
    float most = 0;
    int e;

    for (uint32_t r = 0; r < ranks; r++) {
        for (size_t k = from; k < end; k++) {
            if (isfinite(a.x[r][k]) && fabsf(a.x[r][k]) > most) {
                most = fabsf(a.x[r][k]);
            }
        }
    }
    frexp(most, &e);
    return 0.75 * ranks * ldexp(1, e - 30 + log2_up(ranks));
}

/* What IEEE 754 says of the sum, or the sum itself. */
static void assert_good(uint32_t ranks, size_t n, size_t i)
{
    double sum = 0;
    bool finite = true;
    float got = a.out[i];

    for (uint32_t r = 0; r < ranks; r++) {
        finite = finite && isfinite(a.x[r][i]);
        sum += a.x[r][i];
    }
    if (isnan(sum)) {
        assert_true(isnan(got));
    } else if (!finite) {
        assert_true((double)got == sum);
    } else {
        double err = bound(ranks, n, i);
        float low = (float)(sum - err);
        float high = (float)(sum + err);

        assert_true(got >= low && got <= high);
    }
}

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 32);
}

/* Random mantissas around 2^exponent, with `spread` powers of two between. */
static float random_float(uint64_t *seed, int exponent, unsigned spread)
{
    double m = (int32_t)next_random(seed) / 2147483648.0;

    return (float)ldexp(m, exponent - (int)(next_random(seed) % (spread + 1)));
}

static void the_bound_holds_for_random_blocks(void **state)
{
    static const size_t lengths[] = {1, 63, 64, 65, 128, 200};
    uint64_t seed = 1;

    (void)state;
    for (unsigned t = 0; t < 6000; t++) {
        uint32_t ranks = 1 + t % RANKS;
        size_t n = lengths[t / RANKS % 6];
        int exponent = (int)(next_random(&seed) % 270) - 145;

        for (uint32_t r = 0; r < ranks; r++) {
            int own = exponent - (int)(next_random(&seed) % 40);
            for (size_t i = 0; i < n; i++) {
                a.x[r][i] = random_float(&seed, own, t % 3 == 0 ? 0 : 30);
            }
        }
        run(ranks, n, NULL);
        for (size_t i = 0; i < n; i++) {
            assert_good(ranks, n, i);
        }
    }
}

/* All triples of these, beside each other in one block: NaN and Inf, the ends
 * of the range, denormals, zeros. */
static const float special[] = {0.0f,
                                -0.0f,
                                1.0f,
                                -1.0f,
                                1.0f + FLT_EPSILON,
                                16777217.0f,
                                1e-10f,
                                FLT_MIN,
                                -FLT_MIN,
                                FLT_TRUE_MIN,
                                -FLT_TRUE_MIN,
                                FLT_MIN - FLT_TRUE_MIN,
                                FLT_MAX,
                                -FLT_MAX,
                                0x1p126f,
                                0x1p127f,
                                0x1p-97f,
                                INFINITY,
                                -INFINITY,
                                NAN};
enum { SPECIAL = sizeof(special) / sizeof(special[0]) };

static void every_triple_of_special_numbers_is_right(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SPECIAL * SPECIAL * SPECIAL; i++) {
        const unsigned pick[3] = {i % SPECIAL, i / SPECIAL % SPECIAL,
                                  i / SPECIAL / SPECIAL};

        for (uint32_t r = 0; r < 3; r++) {
            a.x[r][0] = special[pick[r]];
            a.x[r][1] = special[pick[(r + 1) % 3]];
            a.x[r][2] = 3;
        }
        for (size_t n = 1; n <= 3; n++) {
            run(3, n, NULL);
            for (size_t k = 0; k < n; k++) {
                assert_good(3, n, k);
            }
        }
    }
}

static void other_numbers_of_a_block_do_not_see_a_nan(void **state)
{
    float clean[MOST];
    uint64_t seed = 5;

    (void)state;
    for (size_t i = 0; i < 130; i++) {
        a.x[0][i] = random_float(&seed, 3, 4);
        a.x[1][i] = random_float(&seed, 1, 4);
    }
    a.x[0][70] = 0;
    a.x[1][70] = 0;
    run(2, 130, NULL);
    memcpy(clean, a.out, sizeof(clean));
    a.x[0][70] = NAN;
    run(2, 130, NULL);
    assert_true(isnan(a.out[70]));
    a.out[70] = clean[70];
    assert_memory_equal(a.out, clean, 130 * sizeof(float));
    a.x[0][70] = -INFINITY;
    run(2, 130, NULL);
    assert_true(a.out[70] == -INFINITY);
    a.x[1][70] = INFINITY;
    run(2, 130, NULL);
    assert_true(isnan(a.out[70]));
}

static void swap(uint32_t *x, uint32_t *y)
{
    uint32_t t = *x;

    *x = *y;
    *y = t;
}

/* The next permutation in lexicographic order; false after the last. */
static bool next_order(uint32_t *order, uint32_t n)
{
    uint32_t i = n - 1;
    uint32_t k = n - 1;

    while (i > 0 && order[i - 1] > order[i]) {
        i--;
    }
    if (i == 0) {
        return false;
    }
    while (order[k] < order[i - 1]) {
        k--;
    }
    swap(&order[i - 1], &order[k]);
    for (uint32_t end = n - 1; i < end; i++, end--) {
        swap(&order[i], &order[end]);
    }
    return true;
}

/* Exponents, ties and signs differ between the ranks, and some are not finite;
 * all 120 orders of 5 ranks give the same bits. */
static void every_order_gives_the_same_bits(void **state)
{
    uint64_t seed = 9;
    int32_t first[BYTES / 4];

    (void)state;
    for (unsigned t = 0; t < 60; t++) {
        uint32_t order[5] = {0, 1, 2, 3, 4};

        for (uint32_t r = 0; r < 5; r++) {
            int own = (int)(next_random(&seed) % 30);
            for (size_t i = 0; i < 100; i++) {
                bool odd = next_random(&seed) % 50 == 0 && t % 2 == 1;
                a.x[r][i] = odd ? special[next_random(&seed) % SPECIAL]
                                : random_float(&seed, own, 8);
            }
        }
        run(5, 100, NULL);
        memcpy(first, a.sum, sizeof(first));
        do {
            run(5, 100, order);
            assert_memory_equal(a.sum, first, wf_quantised_bytes(100));
        } while (next_order(order, 5));
    }
}

static int16_t *exponents(int32_t *array, size_t n)
{
    return (int16_t *)(void *)(array + n);
}

/* A block of zeros with the larger exponent shows how the other is rounded. */
static void shifts_round_to_nearest_even_exhaustively(void **state)
{
    const void *part[2] = {a.part[0], a.part[1]};

    (void)state;
    for (int shift = 0; shift <= 40; shift++) {
        for (int32_t q = -3000; q <= 3000; q++) {
            double exact = nearbyint(ldexp(q, -shift));

            a.part[0][0] = q;
            exponents(a.part[0], 1)[0] = 2 * 10;
            a.part[1][0] = 0;
            exponents(a.part[1], 1)[0] = (int16_t)(2 * (10 + shift));
            wf_quantised_sum(part, 2, 1, a.sum);
            assert_true(a.sum[0] == (int32_t)exact);
            assert_int_equal(exponents(a.sum, 1)[0], 2 * (10 + shift));
        }
    }
}

/* Of floats near the largest of their block nothing is lost with few ranks. */
static void sums_that_floats_can_hold_are_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < 64; i++) {
        a.x[0][i] = 1.0f + (float)i * FLT_EPSILON;
        a.x[1][i] = -1.0f - (float)(i / 2) * FLT_EPSILON;
    }
    run(2, 64, NULL);
    for (size_t i = 0; i < 64; i++) {
        assert_true(a.out[i] == a.x[0][i] + a.x[1][i]);
    }
}

static void averages_are_divided_before_they_are_rounded(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < 3; r++) {
        a.x[r][0] = FLT_MAX;
        a.x[r][1] = (float)(r + 1);
        a.x[r][2] = r == 1 ? INFINITY : 1;
    }
    run(3, 3, NULL);
    assert_true(a.out[0] == INFINITY);
    wf_dequantise(a.sum, 3, 3, 3, a.out);
    assert_true(fabsf(a.out[0] - FLT_MAX) <= FLT_MAX * 1e-7f);
    assert_true(a.out[2] == INFINITY);
}

static void the_largest_number_of_ranks_does_not_overflow(void **state)
{
    static int32_t same[2];
    const void *part[256];
    int32_t sum[2];
    float x = 0x1.fffffep-1f;
    float out;

    (void)state;
    for (unsigned r = 0; r < 256; r++) {
        static int32_t parts[256][2];

        part[r] = parts[r];
        wf_quantise(&x, 1, 256, parts[r]);
    }
    memcpy(same, part[0], sizeof(same));
    wf_quantised_sum(part, 256, 1, sum);
    assert_int_equal(sum[0], 256 * same[0]);
    wf_dequantise(sum, 1, 256, 1, &out);
    assert_true(fabsf(out - 256) < 256 * 1e-6f);
}

static void bytes_and_numbers_fit_each_other(void **state)
{
    (void)state;
    assert_int_equal(wf_quantised_bytes(0), 0);
    assert_int_equal(wf_quantised_bytes(256), 1032);
    for (size_t bytes = 0; bytes < 3000; bytes++) {
        size_t n = wf_quantised_fits(bytes);
        assert_true(wf_quantised_bytes(n) <= bytes);
        assert_true(wf_quantised_bytes(n + 1) > bytes);
    }
}

/* Numbers of all magnitudes, some not finite, and exponents that differ. */
static void fill_at_random(uint32_t ranks, uint64_t *seed)
{
    for (uint32_t r = 0; r < ranks; r++) {
        int scale = (int)(next_random(seed) % 280) - 150;

        for (size_t i = 0; i < MOST; i++) {
            uint32_t bits = next_random(seed);

            a.x[r][i] = ldexpf((float)(int32_t)bits, scale - 31);
            if (next_random(seed) % 499 == 0) {
                a.x[r][i] = (bits & 1) != 0 ? NAN : INFINITY;
            }
        }
    }
}

static void all_levels_of_the_cpu_give_the_same_bits(void **state)
{
    static arrays other;
    const wf_quantiser *plain = wf_quantiser_of(WF_CPU_PLAIN);
    const void *part[RANKS];
    const void *others[RANKS];
    uint64_t seed = 12;

    (void)state;
    for (int level = 1; level <= (int)wf_cpu_detect(); level++) {
        const wf_quantiser *fast = wf_quantiser_of((wf_cpu_level)level);

        for (unsigned t = 0; t < 500; t++) {
            uint32_t ranks = 1 + t % RANKS;
            size_t n = 1 + (size_t)(next_random(&seed) % MOST);

            fill_at_random(ranks, &seed);
            memset(a.sum, 0, sizeof(a.sum));
            memset(other.sum, 0, sizeof(other.sum));
            for (uint32_t r = 0; r < ranks; r++) {
                plain->quantise(a.x[r], n, ranks, a.part[r]);
                fast->quantise(a.x[r], n, ranks, other.part[r]);
                assert_memory_equal(a.part[r], other.part[r],
                                    wf_quantised_bytes(n));
                part[r] = a.part[r];
                others[r] = other.part[r];
            }
            plain->sum(part, ranks, n, a.sum);
            fast->sum(others, ranks, n, other.sum);
            assert_memory_equal(a.sum, other.sum, wf_quantised_bytes(n));
            plain->dequantise(a.sum, n, ranks, 1 + t % 3, a.out);
            fast->dequantise(other.sum, n, ranks, 1 + t % 3, other.out);
            assert_memory_equal(a.out, other.out, n * sizeof(float));
        }
    }
}

/* Where sums are converted in f32 they are as if it had been done in f64. */
static void results_are_rounded_once_at_all_exponents(void **state)
{
    uint64_t seed = 5;

    (void)state;
    for (int e = -190; e <= 140; e++) {
        for (unsigned i = 0; i < MOST; i++) {
            a.sum[i] = (int32_t)(next_random(&seed) % (1u << 31)) - (1 << 30);
        }
        for (unsigned b = 0; b < 4; b++) {
            exponents(a.sum, MOST)[b] = (int16_t)(2 * e);
        }
        wf_dequantise(a.sum, MOST, 2, 1, a.out);
        for (unsigned i = 0; i < MOST; i++) {
            assert_true(a.out[i] == (float)ldexp(a.sum[i], e - 29));
        }
    }
}

/* What a rank with the key may send: no sanitizer complains. */
static void any_bits_may_come_from_outside(void **state)
{
    const void *part[3] = {a.part[0], a.part[1], a.part[2]};
    uint64_t seed = 77;

    (void)state;
    for (unsigned t = 0; t < 2000; t++) {
        for (unsigned r = 0; r < 3; r++) {
            for (unsigned i = 0; i < BYTES / 4; i++) {
                a.part[r][i] = (int32_t)next_random(&seed);
            }
        }
        wf_quantised_sum(part, 3, MOST, a.sum);
        wf_dequantise(a.sum, MOST, 3, 1 + t % 2, a.out);
    }
}

static void only_sums_of_single_floats_are_quantised(void **state)
{
    (void)state;
    assert_true(wf_quantises(WEFT_F32, WEFT_OP_SUM));
    assert_true(wf_quantises(WEFT_C64, WEFT_OP_AVG));
    assert_false(wf_quantises(WEFT_F32, WEFT_OP_MAX));
    assert_false(wf_quantises(WEFT_C64, WEFT_OP_PROD));
    assert_false(wf_quantises(WEFT_F64, WEFT_OP_SUM));
    assert_false(wf_quantises(WEFT_I32, WEFT_OP_SUM));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bound_holds_for_random_blocks),
        cmocka_unit_test(every_triple_of_special_numbers_is_right),
        cmocka_unit_test(other_numbers_of_a_block_do_not_see_a_nan),
        cmocka_unit_test(every_order_gives_the_same_bits),
        cmocka_unit_test(shifts_round_to_nearest_even_exhaustively),
        cmocka_unit_test(sums_that_floats_can_hold_are_exact),
        cmocka_unit_test(averages_are_divided_before_they_are_rounded),
        cmocka_unit_test(the_largest_number_of_ranks_does_not_overflow),
        cmocka_unit_test(bytes_and_numbers_fit_each_other),
        cmocka_unit_test(all_levels_of_the_cpu_give_the_same_bits),
        cmocka_unit_test(results_are_rounded_once_at_all_exponents),
        cmocka_unit_test(any_bits_may_come_from_outside),
        cmocka_unit_test(only_sums_of_single_floats_are_quantised),
    };

    return cmocka_run_group_tests_name("agg_quantise", tests, NULL, NULL);
}
