/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a saved region: what is written can be read, and what is not
 * right is refused before it is used. */
#include <string.h>

#include "base/crc32c.h"
#include "base/types.h"
#include "region/file/format.h"
#include "wt_cmocka.h"

static wf_file_header header_of(uint32_t dims, const uint64_t *shape,
                                weft_dtype type, uint32_t parts)
{
    wf_file_shape what = {
        .dims = dims, .shape = shape, .type = type, .parts = parts};
    wf_file_header h;

    assert_int_equal(wf_file_layout(&what, &h), WEFT_OK);
    wf_file_seal(&h);
    return h;
}

static wf_file_header usual(void)
{
    static const uint64_t shape[] = {100000, 3, 5};

    return header_of(3, shape, WEFT_F32, 3);
}

static void what_was_laid_out_is_accepted(void **state)
{
    static const uint64_t shapes[][WEFT_REGION_DIMS_MAX] = {
        {1, 1, 1, 1, 1, 1, 1, 1},
        {0, 3, 1, 1, 2, 1, 1, 1},
        {7, 0, 1, 1, 1, 1, 1, 1},
        {1000003, 3, 2, 1, 1, 1, 1, 2},
        {(uint64_t)1 << 38, 4, 1, 1, 1, 1, 1, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (uint32_t dims = 1; dims <= WEFT_REGION_DIMS_MAX; dims++) {
            for (int type = 0; type < WF_DTYPE_COUNT; type++) {
                wf_file_header h =
                    header_of(dims, shapes[i], (weft_dtype)type, 1 + dims);

                assert_int_equal(wf_file_check("f", &h, wf_file_bytes(&h)),
                                 WEFT_OK);
                assert_int_equal(wf_file_type(&h), type);
                assert_int_equal(h.data_at % WF_FILE_DATA_UNIT, 0);
                assert_true(h.table_at + 4 * h.blocks <= h.data_at);
            }
        }
    }
}

static void too_large_a_shape_is_refused(void **state)
{
    static const uint64_t shapes[][3] = {
        {UINT64_MAX, 2, 1},
        {2, UINT64_MAX, 1},
        {(uint64_t)1 << 32, (uint64_t)1 << 32, 1},
        {(uint64_t)1 << 61, 1, 1},
        {0, (uint64_t)1 << 32, (uint64_t)1 << 32}};
    wf_file_header h;

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        wf_file_shape what = {
            .dims = 3, .shape = shapes[i], .type = WEFT_F32, .parts = 1};

        assert_int_equal(wf_file_layout(&what, &h), WEFT_ERR_INVALID);
    }
}

static void every_flipped_bit_of_it_is_found(void **state)
{
    wf_file_header good = usual();

    (void)state;
    for (size_t bit = 0; bit < 8 * sizeof(good); bit++) {
        wf_file_header bad = good;

        ((unsigned char *)&bad)[bit / 8] ^= (unsigned char)(1u << bit % 8);
        assert_int_not_equal(wf_file_check("f", &bad, wf_file_bytes(&good)),
                             WEFT_OK);
    }
}

static void cut_off_and_longer_files_are_told_apart(void **state)
{
    wf_file_header h = usual();

    (void)state;
    assert_int_equal(wf_file_check("f", &h, wf_file_bytes(&h) - 1),
                     WEFT_ERR_PROTOCOL);
    assert_non_null(strstr(weft_error_detail(), "cut off"));
    assert_int_equal(wf_file_check("f", &h, wf_file_bytes(&h) + 1),
                     WEFT_ERR_PROTOCOL);
    assert_non_null(strstr(weft_error_detail(), "added to"));
}

static void foreign_files_are_told_apart(void **state)
{
    wf_file_header h = usual();

    (void)state;
    h.magic[0] = 'x';
    assert_int_equal(wf_file_check("f", &h, wf_file_bytes(&h)),
                     WEFT_ERR_INVALID);
    h = usual();
    h.order = __builtin_bswap32(h.order);
    assert_int_equal(wf_file_check("f", &h, wf_file_bytes(&h)),
                     WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(weft_error_detail(), "byte order"));
    h = usual();
    h.version = 2;
    wf_file_seal(&h);
    assert_int_equal(wf_file_check("f", &h, wf_file_bytes(&h)),
                     WEFT_ERR_UNSUPPORTED);
    assert_non_null(strstr(weft_error_detail(), "version 2"));
}

typedef void change(wf_file_header *h);

static void no_dims(wf_file_header *h)
{
    h->dims = 0;
}
static void many_dims(wf_file_header *h)
{
    h->dims = 9;
}
static void unknown_type(wf_file_header *h)
{
    memcpy(h->type, "f33", 4);
}
static void endless_type(wf_file_header *h)
{
    memset(h->type, 'f', sizeof(h->type));
}
static void other_shape(wf_file_header *h)
{
    h->shape[1] = 4;
}
static void wrapping_shape(wf_file_header *h)
{
    /* 2^63 * 2 * 5 * 4 wraps to 0 */
    h->shape[0] = (uint64_t)1 << 63;
    h->shape[1] = 2;
    h->row_bytes = 40;
    h->data_bytes = 0;
    h->blocks = 0;
}
static void other_row(wf_file_header *h)
{
    h->row_bytes++;
}
static void no_block(wf_file_header *h)
{
    h->block_bytes = 0;
}
static void odd_block(wf_file_header *h)
{
    h->block_bytes = 5000;
}
static void huge_block(wf_file_header *h)
{
    h->block_bytes = (uint64_t)1 << 40;
    h->blocks = 1;
}
static void more_blocks(wf_file_header *h)
{
    h->blocks++;
}
static void parts_in_header(wf_file_header *h)
{
    h->parts_at = 0;
}
static void table_in_parts(wf_file_header *h)
{
    h->table_at = h->parts_at;
}
static void wrapping_table(wf_file_header *h)
{
    h->table_at = UINT64_MAX - 3;
}
static void data_in_table(wf_file_header *h)
{
    h->data_at = 0;
}
static void wrapping_data(wf_file_header *h)
{
    h->data_at = UINT64_MAX - WF_FILE_DATA_UNIT + 1;
}
static void odd_data(wf_file_header *h)
{
    h->data_at += 512;
}
static void unknown_partition(wf_file_header *h)
{
    h->partition = 3;
}
static void no_parts(wf_file_header *h)
{
    h->parts = 0;
}
static void many_parts(wf_file_header *h)
{
    h->parts = UINT32_MAX;
}
static void run_of_equal(wf_file_header *h)
{
    h->run = 1;
}
static void no_run(wf_file_header *h)
{
    h->partition = WEFT_PARTITION_ROUND_ROBIN;
}

/* With a checksum that is right: whoever wrote it was wrong. */
static void contradictions_are_refused(void **state)
{
    static change *const changes[] = {
        no_dims,        many_dims,      unknown_type,
        endless_type,   other_shape,    wrapping_shape,
        other_row,      no_block,       odd_block,
        huge_block,     more_blocks,    parts_in_header,
        table_in_parts, wrapping_table, data_in_table,
        wrapping_data,  odd_data,       unknown_partition,
        no_parts,       many_parts,     run_of_equal,
        no_run};

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        wf_file_header h = usual();

        changes[i](&h);
        wf_file_seal(&h);
        if (wf_file_check("f", &h, wf_file_bytes(&h)) == WEFT_OK) {
            fail_msg("change %zu was accepted", i);
        }
    }
}

static void parts_and_table_have_checksums(void **state)
{
    static const uint64_t shape[] = {300000};
    wf_file_header h = header_of(1, shape, WEFT_F64, 3);
    uint64_t rows[3] = {100000, 150000, 50000};
    uint32_t table[3] = {1, 2, 3};

    (void)state;
    assert_int_equal(h.blocks, 3);
    h.parts_crc = wf_crc32c(0, rows, sizeof(rows));
    h.table_crc = wf_crc32c(0, table, sizeof(table));
    assert_int_equal(wf_file_check_parts("f", &h, rows), WEFT_OK);
    assert_int_equal(wf_file_check_table("f", &h, table), WEFT_OK);
    table[1] ^= 16;
    assert_int_equal(wf_file_check_table("f", &h, table), WEFT_ERR_PROTOCOL);
    rows[0]++;
    assert_int_equal(wf_file_check_parts("f", &h, rows), WEFT_ERR_PROTOCOL);
    /* The right checksum of a wrong list. */
    h.parts_crc = wf_crc32c(0, rows, sizeof(rows));
    assert_int_equal(wf_file_check_parts("f", &h, rows), WEFT_ERR_PROTOCOL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_laid_out_is_accepted),
        cmocka_unit_test(too_large_a_shape_is_refused),
        cmocka_unit_test(every_flipped_bit_of_it_is_found),
        cmocka_unit_test(cut_off_and_longer_files_are_told_apart),
        cmocka_unit_test(foreign_files_are_told_apart),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(parts_and_table_have_checksums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
