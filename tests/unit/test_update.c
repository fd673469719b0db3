/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse optimizers on the CPU against their formulas in double, and the sums
 * of equal ids. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/status.h>
#include <weft/update.h>

#include "region/rows/rule.h"
#include "wt_cmocka.h"
#include "wt_data.h"

enum { ROWS = 40, STEPS = 5, WIDTH_MAX = 1300 };

/* A table of ROWS rows with a gap after each, and what must be in it. */
typedef struct model {
    uint32_t width;
    weft_dtype type;
    char *weights;
    float *state[2];
    int32_t *steps;
    double *want;
    double *want_state[2];
    uint64_t want_steps[ROWS];
    weft_table table;
    weft_table state_table[WEFT_UPDATE_STATES];
    const weft_table *state_of[WEFT_UPDATE_STATES];
} model;

static double some(uint64_t seed, uint64_t i)
{
    return (double)(wt_mix(seed, 0, i) % 2001) / 500.0 - 2.0;
}

/* Far from 0 even with the decay of a weight: steps follow the sign of a
 * gradient, and that of a small one depends on rounding. */
static double some_gradient(uint64_t seed, uint64_t i)
{
    double g = some(seed, i);

    return g < 0 ? g - 0.5 : g + 0.5;
}

static weft_table table_of(void *at, uint32_t width, uint64_t pitch,
                           weft_dtype type)
{
    return (weft_table){
        .at = at, .rows = ROWS, .pitch = pitch, .width = width, .type = type};
}

static void model_init(model *m, weft_optimizer kind, uint32_t width,
                       weft_dtype type)
{
    size_t element = weft_dtype_size(type);
    uint32_t state_width = kind == WEFT_ROWWISE_ADAGRAD ? 1 : width;
    uint64_t pitch = (width + 3) * element;

    memset(m, 0, sizeof(*m));
    m->width = width;
    m->type = type;
    m->weights = calloc(ROWS, pitch);
    m->want = calloc(ROWS * width, sizeof(double));
    m->steps = calloc(ROWS, sizeof(int32_t));
    m->table = table_of(m->weights, width, pitch, type);
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < width; i++) {
            char *row = m->weights + r * pitch;

            wt_put(row, i, type, some(1, r * width + i), 0);
            wt_get(row, i, type, &m->want[r * width + i], &(double){0});
        }
    }
    for (int s = 0; s < 2; s++) {
        m->state[s] = calloc((size_t)ROWS * state_width, sizeof(float));
        m->want_state[s] = calloc((size_t)ROWS * state_width, sizeof(double));
        m->state_table[s] = table_of(m->state[s], state_width,
                                     state_width * sizeof(float), WEFT_F32);
        m->state_of[s] = &m->state_table[s];
    }
    m->state_table[2] = table_of(m->steps, 1, sizeof(int32_t), WEFT_I32);
    m->state_of[2] = &m->state_table[2];
}

static void model_fini(model *m)
{
    free(m->weights);
    free(m->want);
    free(m->steps);
    for (int s = 0; s < 2; s++) {
        free(m->state[s]);
        free(m->want_state[s]);
    }
}

/* What update.h says, for one element whose gradient, decay included, is g. */
static void want_element(const weft_update *u, uint64_t t, double *w, double g,
                         double *s0, double *s1)
{
    switch (u->kind) {
    case WEFT_SGD:
        *w -= u->lr * g;
        break;
    case WEFT_ADAGRAD:
        *s0 += g * g;
        *w -= u->lr * g / (sqrt(*s0) + u->eps);
        break;
    case WEFT_ROWWISE_ADAGRAD: /* s0 is ready */
        *w -= u->lr * g / (sqrt(*s0) + u->eps);
        break;
    case WEFT_RMSPROP:
        *s0 = u->alpha * *s0 + (1 - u->alpha) * g * g;
        *w -= u->lr * g / (sqrt(*s0) + u->eps);
        break;
    default:
        if (u->decoupled) {
            *w -= u->lr * u->weight_decay * *w;
        }
        *s0 = u->beta1 * *s0 + (1 - u->beta1) * g;
        *s1 = u->beta2 * *s1 + (1 - u->beta2) * g * g;
        *w -= u->lr / (1 - pow(u->beta1, (double)t)) * *s0 /
              (sqrt(*s1 / (1 - pow(u->beta2, (double)t))) + u->eps);
    }
}

static double want_gradient(const weft_update *u, double w, double g)
{
    bool apart = wf_optimizer_is(u->kind, WF_HAS_MOMENTS);

    return apart && u->decoupled ? g : g + u->weight_decay * w;
}

static void want_row(model *m, const weft_update *u, uint64_t row,
                     const float *grads)
{
    double *w = m->want + row * m->width;
    uint64_t t = u->kind == WEFT_LAZY_ADAM ? ++m->want_steps[row] : u->step;
    bool rowwise = u->kind == WEFT_ROWWISE_ADAGRAD;

    if (rowwise) {
        double sum = 0;

        for (uint32_t i = 0; i < m->width; i++) {
            double g = want_gradient(u, w[i], (double)grads[i]);

            sum += g * g;
        }
        m->want_state[0][row] += sum / m->width;
    }
    for (uint32_t i = 0; i < m->width; i++) {
        size_t at = rowwise ? row : row * m->width + i;

        want_element(u, t, &w[i], want_gradient(u, w[i], (double)grads[i]),
                     &m->want_state[0][at],
                     rowwise ? NULL : &m->want_state[1][at]);
    }
    /* Weights of 16 bits are rounded once a step. */
    for (uint32_t i = 0; i < m->width && m->type != WEFT_F32; i++) {
        char cell[8];

        wt_put(cell, 0, m->type, w[i], 0);
        wt_get(cell, 0, m->type, &w[i], &(double){0});
    }
}

static void check_weights(const model *m)
{
    /* A last bit may fall the other way after f32 than after double. */
    double bit = m->type == WEFT_F32 ? 1e-6 : m->type == WEFT_F16 ? 2e-3 : 2e-2;

    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < m->width; i++) {
            double want = m->want[r * m->width + i];
            double got;

            wt_get(m->weights + r * m->table.pitch, i, m->type, &got,
                   &(double){0});
            if (!(fabs(got - want) <= bit * fmax(1, fabs(want)))) {
                fail_msg("row %u element %u is %.9g, should be %.9g", r, i, got,
                         want);
            }
        }
        for (uint32_t i = m->width; i < m->width + 3; i++) {
            double got;

            wt_get(m->weights + r * m->table.pitch, i, m->type, &got,
                   &(double){0});
            assert_true(got == 0); /* the gap between rows */
        }
    }
}

static weft_update rule_of(weft_optimizer kind, double decay, int decoupled)
{
    return (weft_update){.size = sizeof(weft_update),
                         .kind = kind,
                         .decoupled = decoupled,
                         .lr = 0.03,
                         .weight_decay = decay,
                         .eps = 1e-8,
                         .alpha = 0.99,
                         .beta1 = 0.9,
                         .beta2 = 0.999,
                         .step = 1};
}

/* Every second row, another order at each step; one number is -1. */
static uint64_t step_ids(uint32_t step, bool wide, void *out)
{
    uint64_t n = 0;

    for (uint32_t r = 0; r < ROWS; r++) {
        int64_t id = (r * 7 + step) % ROWS;

        if ((id + step) % 2 == 0) {
            id = id == 4 ? -1 : id;
            if (wide) {
                ((int64_t *)out)[n++] = id;
            } else {
                ((int32_t *)out)[n++] = (int32_t)id;
            }
        }
    }
    return n;
}

static void run_steps(weft_optimizer kind, weft_dtype type, uint32_t width,
                      double decay, int decoupled, uint32_t threads)
{
    static float grads[ROWS * WIDTH_MAX];
    weft_update rule = rule_of(kind, decay, decoupled);
    weft_rows_options options = {.size = sizeof(options), .threads = threads};
    bool wide = width % 2 == 0;
    int64_t ids[ROWS];
    model m;

    model_init(&m, kind, width, type);
    for (uint32_t step = 1; step <= STEPS; step++) {
        weft_ids some_ids = {ids, wide ? WEFT_I64 : WEFT_I32, 0, WEFT_HOST};
        weft_rows rows = {grads, 0, WEFT_F32, WEFT_HOST};

        some_ids.n = step_ids(step, wide, ids);
        rule.step = step;
        for (uint64_t i = 0; i < some_ids.n; i++) {
            int64_t id = wide ? ids[i] : ((int32_t *)(void *)ids)[i];

            for (uint32_t k = 0; k < width; k++) {
                grads[i * width + k] =
                    (float)some_gradient(step, i * width + k);
            }
            if (id >= 0) {
                want_row(&m, &rule, (uint64_t)id, grads + i * width);
            }
        }
        assert_int_equal(weft_rows_update(&m.table, m.state_of, &some_ids,
                                          &rows, &rule, &options),
                         WEFT_OK);
    }
    check_weights(&m);
    model_fini(&m);
}

static void steps_follow_the_formulas(void **state)
{
    static const uint32_t widths[] = {1, 7, 64, 1300};
    static const weft_dtype types[] = {WEFT_F32, WEFT_F16, WEFT_BF16};

    (void)state;
    for (int kind = 0; weft_optimizer_name((weft_optimizer)kind); kind++) {
        for (unsigned w = 0; w < 4; w++) {
            for (unsigned t = 0; t < 3; t++) {
                run_steps((weft_optimizer)kind, types[t], widths[w], 0, 0, 1);
                run_steps((weft_optimizer)kind, types[t], widths[w], 0.1, 0, 3);
                run_steps((weft_optimizer)kind, types[t], widths[w], 0.1, 1, 2);
            }
        }
    }
}

static void what_is_wrong_is_named(void **state)
{
    float grads[8] = {0};
    int64_t ids[2] = {0, ROWS};
    weft_ids two = {ids, WEFT_I64, 2, WEFT_HOST};
    weft_ids one = {ids, WEFT_I64, 1, WEFT_HOST};
    weft_rows rows = {grads, 0, WEFT_F32, WEFT_HOST};
    weft_update rule = rule_of(WEFT_ADAM, 0, 0);
    weft_table other;
    const weft_table *few[WEFT_UPDATE_STATES] = {NULL};
    model m;

    (void)state;
    model_init(&m, WEFT_ADAM, 4, WEFT_F32);
    assert_int_equal(
        weft_rows_update(&m.table, m.state_of, &two, &rows, &rule, NULL),
        WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "out of range"));
    assert_int_equal(weft_rows_update(&m.table, few, &one, &rows, &rule, NULL),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "state m is missing"));
    other = m.state_table[1];
    other.rows--;
    few[0] = &m.state_table[0];
    few[1] = &other;
    assert_int_equal(weft_rows_update(&m.table, few, &one, &rows, &rule, NULL),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_detail(), "state v has 39 rows"));
    rule.beta2 = 1;
    assert_int_equal(
        weft_rows_update(&m.table, m.state_of, &one, &rows, &rule, NULL),
        WEFT_ERR_INVALID);
    rule = rule_of(WEFT_ADAM, 0, 0);
    rule.step = 0;
    assert_int_equal(
        weft_rows_update(&m.table, m.state_of, &one, &rows, &rule, NULL),
        WEFT_ERR_INVALID);
    rule = rule_of((weft_optimizer)17, 0, 0);
    assert_int_equal(
        weft_rows_update(&m.table, m.state_of, &one, &rows, &rule, NULL),
        WEFT_ERR_INVALID);
    rule = rule_of(WEFT_SGD, 0, 0);
    rows.type = WEFT_F16;
    assert_int_equal(weft_rows_update(&m.table, NULL, &one, &rows, &rule, NULL),
                     WEFT_ERR_INVALID);
    rows.type = WEFT_F32;
    m.table.type = WEFT_F64;
    m.table.width = 2;
    assert_int_equal(weft_rows_update(&m.table, NULL, &one, &rows, &rule, NULL),
                     WEFT_ERR_INVALID);
    check_weights(&m);
    model_fini(&m);
}

static void an_optimizer_has_a_name_of_its_own(void **state)
{
    const char *name;

    (void)state;
    assert_string_equal(weft_optimizer_name(WEFT_SGD), "sgd");
    assert_string_equal(weft_optimizer_name(WEFT_LAZY_ADAM), "lazy_adam");
    assert_null(weft_optimizer_name((weft_optimizer)-1));
    for (int i = 0; (name = weft_optimizer_name((weft_optimizer)i)); i++) {
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(name,
                                    weft_optimizer_name((weft_optimizer)k));
        }
    }
}

static void gradients_on_a_gpu_need_its_kernels(void **state)
{
    float grads[4] = {0};
    int64_t id = 0;
    weft_ids ids = {&id, WEFT_I64, 1, WEFT_CUDA};
    weft_rows rows = {grads, 0, WEFT_F32, WEFT_CUDA};
    weft_update rule = rule_of(WEFT_SGD, 0, 0);
    model m;

    (void)state;
    if (getenv("WEFT_CUDA_LIBRARY") != NULL) {
        skip(); /* these are no addresses for a GPU */
    }
    model_init(&m, WEFT_SGD, 4, WEFT_F32);
    m.table.place = WEFT_CUDA;
    assert_int_equal(weft_rows_update(&m.table, NULL, &ids, &rows, &rule, NULL),
                     WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(weft_error_detail(), "nvcc"));
    model_fini(&m);
}

static void check_unique(uint64_t n, uint64_t top, uint32_t width, bool wide,
                         weft_dtype type, uint64_t bound)
{
    size_t element = weft_dtype_size(type);
    int64_t *ids = calloc(n + 1, sizeof(int64_t));
    int64_t *out_ids = calloc(n + 1, sizeof(int64_t));
    char *grads = calloc(n * width + 1, element);
    float *sums = calloc(n * (width + 1) + 1, sizeof(float));
    double *want = calloc(top * width + 1, sizeof(double));
    bool *there = calloc(top + 1, sizeof(bool));
    weft_ids some_ids = {ids, wide ? WEFT_I64 : WEFT_I32, n, WEFT_HOST};
    weft_rows rows = {grads, 0, type, WEFT_HOST};
    weft_rows out = {sums, (width + 1) * sizeof(float), WEFT_F32, WEFT_HOST};
    uint64_t count = 99;
    uint64_t seen = 0;

    for (uint64_t i = 0; i < n; i++) {
        int64_t id = (int64_t)(wt_mix(5, 1, i) % (top + 1)) - 1;

        if (wide) {
            ids[i] = id;
        } else {
            ((int32_t *)(void *)ids)[i] = (int32_t)id;
        }
        for (uint32_t k = 0; k < width; k++) {
            double g;

            wt_put(grads, i * width + k, type, some(7, i * width + k), 0);
            wt_get(grads, i * width + k, type, &g, &(double){0});
            if (id >= 0) {
                want[(uint64_t)id * width + k] += g;
            }
        }
        if (id >= 0) {
            there[id] = true;
        }
    }
    assert_int_equal(weft_rows_unique(&some_ids, &rows, width, bound, out_ids,
                                      &out, &count, NULL),
                     WEFT_OK);
    for (uint64_t id = 0; id < top; id++) {
        int64_t got;

        if (!there[id]) {
            continue;
        }
        got = wide ? out_ids[seen] : ((int32_t *)(void *)out_ids)[seen];
        assert_int_equal(got, id);
        for (uint32_t k = 0; k < width; k++) {
            double w = want[id * width + k];

            assert_true(fabs((double)sums[seen * (width + 1) + k] - w) <=
                        1e-4 * fmax(1, fabs(w)));
        }
        seen++;
    }
    assert_int_equal(count, seen);
    for (; seen < n; seen++) {
        assert_int_equal(
            wide ? out_ids[seen] : ((int32_t *)(void *)out_ids)[seen], -1);
    }
    free(ids);
    free(out_ids);
    free(grads);
    free(sums);
    free(want);
    free(there);
}

static void equal_ids_are_summed(void **state)
{
    (void)state;
    check_unique(0, 1, 4, true, WEFT_F32, 0);
    check_unique(1, 1, 4, true, WEFT_F32, 0);
    check_unique(500, 3, 1, false, WEFT_F32, 3);
    check_unique(500, 400, 33, true, WEFT_F16, 0);
    check_unique(3000, 2500, 600, false, WEFT_BF16, 1ull << 40);
    check_unique(20000, 10000, 8, true, WEFT_F32, 10000);
}

static void ids_of_any_size_are_sorted(void **state)
{
    int64_t ids[] = {INT64_MAX, 5, 1ll << 40, -7, 5, INT64_MAX, 0};
    int64_t out[7];
    float grads[] = {1, 2, 4, 8, 16, 32, 64};
    float sums[7];
    uint64_t count;
    weft_ids some_ids = {ids, WEFT_I64, 7, WEFT_HOST};
    weft_rows rows = {grads, 0, WEFT_F32, WEFT_HOST};
    weft_rows to = {sums, 0, WEFT_F32, WEFT_HOST};

    (void)state;
    assert_int_equal(
        weft_rows_unique(&some_ids, &rows, 1, 0, out, &to, &count, NULL),
        WEFT_OK);
    assert_int_equal(count, 4);
    assert_true(out[0] == 0 && out[1] == 5 && out[2] == 1ll << 40 &&
                out[3] == INT64_MAX && out[4] == -1 && out[6] == -1);
    assert_true(sums[0] == 64 && sums[1] == 18 && sums[2] == 4 &&
                sums[3] == 33);
    assert_int_equal(
        weft_rows_unique(&some_ids, &rows, 1, 100, out, &to, &count, NULL),
        WEFT_ERR_INVALID);
    to.type = WEFT_F16;
    assert_int_equal(
        weft_rows_unique(&some_ids, &rows, 1, 0, out, &to, &count, NULL),
        WEFT_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_follow_the_formulas),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(an_optimizer_has_a_name_of_its_own),
        cmocka_unit_test(gradients_on_a_gpu_need_its_kernels),
        cmocka_unit_test(equal_ids_are_summed),
        cmocka_unit_test(ids_of_any_size_are_sorted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
