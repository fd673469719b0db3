/* SPDX-License-Identifier: Apache-2.0 */
/* The checksum of blocks, whole and in pieces. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "wt_cmocka.h"

enum { N = 5000 };

static void fill(unsigned char *bytes, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(seed >> 56);
    }
}

/* Those of RFC 3720, and the usual one. */
static void known_values_come_out(void **state)
{
    unsigned char bytes[32];

    (void)state;
    assert_int_equal(wf_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(wf_crc32c(0, "", 0), 0);
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(wf_crc32c(0, bytes, sizeof(bytes)), 0x8a9136aau);
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(wf_crc32c(0, bytes, sizeof(bytes)), 0x62a8ab43u);
    for (unsigned i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)i;
    }
    assert_int_equal(wf_crc32c(0, bytes, sizeof(bytes)), 0x46dd794eu);
}

static void it_goes_on_where_it_stopped(void **state)
{
    unsigned char bytes[N];

    (void)state;
    fill(bytes, N, 1);
    for (size_t cut = 0; cut <= N; cut += 97) {
        uint32_t crc = wf_crc32c(0, bytes, cut);

        crc = wf_crc32c(crc, bytes + cut, N - cut);
        assert_int_equal(crc, wf_crc32c(0, bytes, N));
    }
}

static void both_ways_give_the_same(void **state)
{
    unsigned char bytes[N];

    (void)state;
    if (wf_crc32c_hardware() == NULL) {
        skip();
    }
    fill(bytes, N, 2);
    for (size_t n = 0; n < 200; n++) {
        for (size_t at = 0; at < 9; at++) {
            assert_int_equal(wf_crc32c_plain()(7, bytes + at, n),
                             wf_crc32c_hardware()(7, bytes + at, n));
        }
    }
}

static void pieces_in_any_order_make_the_whole(void **state)
{
    static const size_t cuts[] = {0, 0, 1, 2, 9, 700, 701, 4096, N, N};
    enum { PIECES = sizeof(cuts) / sizeof(cuts[0]) - 1 };
    unsigned char bytes[N];
    uint32_t sum = 0;

    (void)state;
    fill(bytes, N, 3);
    for (int i = PIECES - 1; i >= 0; i--) {
        sum ^= wf_crc32c_piece(bytes + cuts[i], cuts[i + 1] - cuts[i],
                               N - cuts[i + 1]);
    }
    assert_int_equal(wf_crc32c_join(sum, N), wf_crc32c(0, bytes, N));
    assert_int_equal(wf_crc32c_join(0, 0), 0);
}

static void every_flipped_bit_shows(void **state)
{
    unsigned char bytes[257];
    uint32_t crc;

    (void)state;
    fill(bytes, sizeof(bytes), 4);
    crc = wf_crc32c(0, bytes, sizeof(bytes));
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(wf_crc32c(0, bytes, sizeof(bytes)), crc);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values_come_out),
        cmocka_unit_test(it_goes_on_where_it_stopped),
        cmocka_unit_test(both_ways_give_the_same),
        cmocka_unit_test(pieces_in_any_order_make_the_whole),
        cmocka_unit_test(every_flipped_bit_shows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
