/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/status.h"

weft_status wf_random(void *out, size_t n)
{
    char *p = out;

    while (n > 0) {
        ssize_t got = getrandom(p, n, 0);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return wf_fail_errno("getrandom");
        }
        p += got;
        n -= (size_t)got;
    }
    return WEFT_OK;
}

static inline uint64_t rotl(uint64_t x, unsigned b)
{
    return (x << b) | (x >> (64 - b));
}

static void sip_rounds(uint64_t v[4], unsigned rounds)
{
    while (rounds-- > 0) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotl(v[1], 13) ^ v[0];
        v[3] = rotl(v[3], 16) ^ v[2];
        v[0] = rotl(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotl(v[1], 17) ^ v[2];
        v[3] = rotl(v[3], 21) ^ v[0];
        v[2] = rotl(v[2], 32);
    }
}

uint64_t wf_keyed_hash(const wf_secret *key, const void *data, size_t n)
{
    uint64_t v[4] = {
        key->k[0] ^ 0x736f6d6570736575u, key->k[1] ^ 0x646f72616e646f6du,
        key->k[0] ^ 0x6c7967656e657261u, key->k[1] ^ 0x7465646279746573u};
    const unsigned char *p = data;
    size_t left = n;
    uint64_t word;

    for (; left >= 8; left -= 8, p += 8) {
        memcpy(&word, p, 8);
        v[3] ^= word;
        sip_rounds(v, 2);
        v[0] ^= word;
    }
    word = (uint64_t)n << 56;
    for (size_t i = 0; i < left; i++) {
        word |= (uint64_t)p[i] << (8 * i);
    }
    v[3] ^= word;
    sip_rounds(v, 2);
    v[0] ^= word;
    v[2] ^= 0xff;
    sip_rounds(v, 4);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
