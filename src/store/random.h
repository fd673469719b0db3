/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers for sampling: xoshiro256** by Blackman and Vigna, seeded by
 * splitmix64. The same seed, rank and stream give the same numbers on any
 * machine; different ones give streams that have nothing to do with each other.
 * A generator is used by one thread at a time. Not for secrets. */
#ifndef WF_STORE_RANDOM_H
#define WF_STORE_RANDOM_H

#include <stdint.h>

typedef struct wf_generator {
    uint64_t s[4];
} wf_generator;

/* A bijection of 64-bit numbers whose results look random. */
static inline uint64_t wf_random_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline void wf_random_seed(wf_generator *r, uint64_t seed, uint64_t rank,
                                  uint64_t stream)
{
    const uint64_t gold = 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio */
    uint64_t x = wf_random_mix(seed + gold);

    x = wf_random_mix((x ^ rank) + gold);
    x = wf_random_mix((x ^ stream) + gold);
    for (int i = 0; i < 4; i++) {
        x += gold;
        r->s[i] = wf_random_mix(x);
    }
}

static inline uint64_t wf_random_rotate(uint64_t x, int left)
{
    return x << left | x >> (64 - left);
}

/* 64 random bits. */
static inline uint64_t wf_random_next(wf_generator *r)
{
    uint64_t *s = r->s;
    uint64_t out = wf_random_rotate(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = wf_random_rotate(s[3], 45);
    return out;
}

/* In [0, 1), a multiple of 2^-53. */
static inline double wf_random_unit(wf_generator *r)
{
    return (double)(wf_random_next(r) >> 11) * 0x1p-53;
}

/* Below `n`, which is not 0; all numbers are equally likely. The high half of
 * a product, drawn again for the few low halves that would favour some results
 * (Lemire, Fast Random Integer Generation in an Interval, 2019). */
static inline uint64_t wf_random_below(wf_generator *r, uint64_t n)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)wf_random_next(r) * n;

    if ((uint64_t)product < n) {
        uint64_t least = (0 - n) % n; /* 2^64 mod n */

        while ((uint64_t)product < least) {
            product = (wide)wf_random_next(r) * n;
        }
    }
    return (uint64_t)(product >> 64);
}

#endif
