/* SPDX-License-Identifier: Apache-2.0 */
/* What the cores can do at most: multiply-adds in registers, and bytes read.
 *
 * A matrix product cannot take less time than its multiply-adds at the peak
 * rate, nor than reading its operands once. Every thread repeats a short chunk
 * of work until time is up and keeps the best; the rate is the sum over the
 * threads, all of which begin together. It is measured by `dense/rank.py`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

/* As wide as the registers: a wider vector would be spilled. */
#if defined(__AVX512F__)
enum { VECTOR = 64, CHAINS = 24 };
#elif defined(__AVX__)
enum { VECTOR = 32, CHAINS = 12 };
#else
enum { VECTOR = 16, CHAINS = 12 };
#endif

typedef float floats __attribute__((vector_size(VECTOR)));
typedef double doubles __attribute__((vector_size(VECTOR)));

enum {
    STEPS = 20000, /* of a chunk, which takes some hundred us */
    MOST_THREADS = 512,
};

/* Not known when this is compiled: the compiler would find sums that never
 * change and leave them out. */
static volatile float one_half = 0.5F;

/* Sums of enough independent chains to keep all units busy, all of them in
 * registers: hence the unrolling, and no inlining. They tend to 2, so that no
 * number gets denormal or infinite. */
#define DEFINE_CHUNK(name, vector)                                             \
    static __attribute__((noinline)) double name(void)                         \
    {                                                                          \
        vector sum[CHAINS];                                                    \
        vector half = (vector){0} + one_half;                                  \
        vector one = (vector){0} + 1.0F;                                       \
        _Pragma("GCC unroll 32") for (int i = 0; i < CHAINS; i++)              \
        {                                                                      \
            sum[i] = one * (float)i;                                           \
        }                                                                      \
        for (int step = 0; step < STEPS; step++) {                             \
            _Pragma("GCC unroll 32") for (int i = 0; i < CHAINS; i++)          \
            {                                                                  \
                sum[i] = sum[i] * half + one;                                  \
            }                                                                  \
        }                                                                      \
        _Pragma("GCC unroll 32") for (int i = 1; i < CHAINS; i++)              \
        {                                                                      \
            sum[0] += sum[i];                                                  \
        }                                                                      \
        return (double)sum[0][0];                                              \
    }

DEFINE_CHUNK(chunk_f32, floats)
DEFINE_CHUNK(chunk_f64, doubles)

typedef struct task {
    _Atomic int *go; /* 0: wait, 1: begin, -1: leave */
    bool f64;
    const float *at; /* what is read; NULL: multiply-adds */
    size_t bytes;
    double ms;
    double rate; /* out: per ns */
    double sink; /* out: so that the work is not optimised away */
} task;

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double read_all(const float *at, size_t bytes)
{
    const floats *from = (const floats *)at;
    size_t count = bytes / sizeof(floats);
    floats sum[8] = {{0}};

    for (size_t i = 0; i + 8 <= count; i += 8) {
        for (size_t j = 0; j < 8; j++) {
            sum[j] += from[i + j];
        }
    }
    for (size_t j = 1; j < 8; j++) {
        sum[0] += sum[j];
    }
    return (double)sum[0][0];
}

static double work_of(const task *t)
{
    size_t width = t->f64 ? sizeof(double) : sizeof(float);

    return t->at != NULL ? (double)t->bytes
                         : 2.0 * STEPS * CHAINS * (VECTOR / (double)width);
}

static double run_once(const task *t)
{
    if (t->at != NULL) {
        return read_all(t->at, t->bytes);
    }
    return t->f64 ? chunk_f64() : chunk_f32();
}

static void *run(void *given)
{
    task *t = given;
    double end;
    int go;

    while ((go = atomic_load(t->go)) == 0) {
        sched_yield();
    }
    if (go < 0) {
        return NULL;
    }
    end = now_ns() + t->ms * 1e6;
    do {
        double before = now_ns();
        t->sink += run_once(t);
        double rate = work_of(t) / (now_ns() - before);
        t->rate = rate > t->rate ? rate : t->rate;
    } while (now_ns() < end);
    return NULL;
}

/* The sum of the rates of `threads` copies of `one`, each with its part of
 * `at`; 0 if they cannot all be started. */
static double sum_of(const task *one, int threads, const float *at)
{
    _Atomic int go = 0;
    pthread_t ids[MOST_THREADS];
    task tasks[MOST_THREADS];
    double rate = 0;
    int started = 0;

    for (; started < threads; started++) {
        task *mine = &tasks[started];

        *mine = *one;
        mine->go = &go;
        if (at != NULL) {
            mine->at = at + (size_t)started * (one->bytes / sizeof(*at));
        }
        if (pthread_create(&ids[started], NULL, run, mine) != 0) {
            break;
        }
    }
    atomic_store(&go, started == threads ? 1 : -1);
    for (int i = 0; i < started; i++) {
        pthread_join(ids[i], NULL);
        rate += tasks[i].rate;
    }
    return rate;
}

/* GFLOP/s of multiply-adds in registers. */
double peak_flops(int f64, int threads, double ms)
{
    task one = {.f64 = f64 != 0, .ms = ms};

    return threads < 1 || threads > MOST_THREADS ? 0
                                                 : sum_of(&one, threads, NULL);
}

/* GB/s of reading `bytes`, shared by the threads, again and again: from a
 * cache if one holds them. */
double peak_read(size_t bytes, int threads, double ms)
{
    size_t line = 8 * sizeof(floats);
    task one = {.ms = ms};
    float *at;
    double rate;

    if (threads < 1 || threads > MOST_THREADS) {
        return 0;
    }
    one.bytes = (bytes / (size_t)threads + line - 1) / line * line;
    at = aligned_alloc(line, one.bytes * (size_t)threads);
    if (at == NULL) {
        return 0;
    }
    for (size_t i = 0; i < one.bytes * (size_t)threads / sizeof(*at); i++) {
        at[i] = 1.0F;
    }
    rate = sum_of(&one, threads, at);
    free(at);
    return rate;
}
