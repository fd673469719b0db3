/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of .npy files, as NumPy writes them and as it does not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "region/file/npy.h"
#include "wt_cmocka.h"

/* A header of `version` around `text`, in memory of exactly its size. */
static void *header_of(unsigned version, const char *text, size_t *n)
{
    size_t prefix = version == 1 ? 10 : 12;
    size_t len = strlen(text);
    unsigned char *p = malloc(prefix + len);

    assert_non_null(p);
    memcpy(p, "\x93NUMPY", 6);
    p[6] = (unsigned char)version;
    p[7] = 0;
    p[8] = (unsigned char)len;
    p[9] = (unsigned char)(len >> 8);
    if (version > 1) {
        p[10] = (unsigned char)(len >> 16);
        p[11] = (unsigned char)(len >> 24);
    }
    memcpy(p + prefix, text, len);
    *n = prefix + len;
    return p;
}

static weft_status parse(unsigned version, const char *text, wf_npy *out)
{
    size_t n;
    void *p = header_of(version, text, &n);
    weft_status st = wf_npy_parse("a.npy", p, n, out);

    free(p);
    return st;
}

static void what_numpy_writes_is_read(void **state)
{
    wf_npy npy;

    (void)state;
    for (unsigned version = 1; version <= 3; version++) {
        assert_int_equal(parse(version,
                               "{'descr': '<f4', 'fortran_order': False, "
                               "'shape': (3, 4), }          \n",
                               &npy),
                         WEFT_OK);
        assert_int_equal(npy.dims, 2);
        assert_int_equal(npy.shape[0], 3);
        assert_int_equal(npy.shape[1], 4);
        assert_int_equal(npy.type, WEFT_F32);
        assert_int_equal(npy.row_bytes, 16);
        assert_int_equal(npy.data_bytes, 48);
    }
    assert_int_equal(parse(1,
                           "{\"shape\":(7L,),\"fortran_order\":True,"
                           "\"descr\":\"|u1\"}",
                           &npy),
                     WEFT_OK);
    assert_int_equal(npy.dims, 1);
    assert_int_equal(npy.shape[0], 7);
    assert_int_equal(npy.type, WEFT_U8);
    assert_int_equal(parse(1,
                           "{'descr': '<c16', 'fortran_order': False, "
                           "'shape': (2, 0, 5), }\n",
                           &npy),
                     WEFT_OK);
    assert_int_equal(npy.data_bytes, 0);
}

static void all_types_that_numpy_has_are_known(void **state)
{
    static const struct {
        const char *code;
        weft_dtype type;
    } all[] = {{"|b1", WEFT_BOOL}, {"|u1", WEFT_U8},    {"|i1", WEFT_I8},
               {"<i2", WEFT_I16},  {"<i4", WEFT_I32},   {"<i8", WEFT_I64},
               {"<f2", WEFT_F16},  {"<f4", WEFT_F32},   {"<f8", WEFT_F64},
               {"<c8", WEFT_C64},  {"<c16", WEFT_C128}, {"|V2", WEFT_BF16},
               {"<V2", WEFT_BF16}};

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char text[128];
        wf_npy npy;

        snprintf(text, sizeof(text),
                 "{'descr': '%s', 'fortran_order': False, 'shape': (9, 2), }",
                 all[i].code);
        assert_int_equal(parse(1, text, &npy), WEFT_OK);
        assert_int_equal(npy.type, all[i].type);
        assert_int_equal(npy.row_bytes, 2 * weft_dtype_size(all[i].type));
    }
}

#define DESCR "'descr': '<f4', "
#define ORDER "'fortran_order': False, "
#define SHAPE "'shape': (3, 4), "

static void what_regions_cannot_hold_is_refused_and_named(void **state)
{
    static const char *const texts[][2] = {
        {"{" DESCR "'fortran_order': True, " SHAPE "}", "Fortran"},
        {"{'descr': '>f4', " ORDER SHAPE "}", "byte order"},
        {"{'descr': '<u4', " ORDER SHAPE "}", "'<u4'"},
        {"{'descr': '<U10', " ORDER SHAPE "}", "'<U10'"},
        {"{'descr': '|O', " ORDER SHAPE "}", "'|O'"},
        {"{'descr': [('a', '<f4')], " ORDER SHAPE "}", "records"},
        {"{" DESCR ORDER "'shape': (), }", "single number"},
        {"{" DESCR ORDER "'shape': (1,1,1,1,1,1,1,1,1), }", "dimensions"}};
    wf_npy npy;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(parse(1, texts[i][0], &npy), WEFT_ERR_UNSUPPORTED);
        if (strstr(weft_error_detail(), texts[i][1]) == NULL) {
            fail_msg("%s: %s", texts[i][0], weft_error_detail());
        }
    }
}

static void malformed_headers_are_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "{}",
        "{" DESCR ORDER "}",
        "{" DESCR SHAPE "}",
        "{" ORDER SHAPE "}",
        "{" DESCR ORDER SHAPE,
        "{" DESCR ORDER SHAPE "} x",
        "{" DESCR ORDER SHAPE "'more': 1, }",
        "{" DESCR ORDER "'shape': 3, }",
        "{" DESCR ORDER "'shape': (3 4), }",
        "{" DESCR ORDER "'shape': (3, -4), }",
        "{" DESCR ORDER "'shape': (3, 4",
        "{" DESCR ORDER "'shape': (18446744073709551616, 1), }",
        "{" DESCR ORDER "'shape': (18446744073709551615, 2), }",
        "{" DESCR ORDER "'shape': (4294967296, 4294967296), }",
        "{" DESCR "'fortran_order': Maybe, " SHAPE "}",
        "{'descr': '<f4",
        "{'descr': '', " ORDER SHAPE "}",
        "{descr: '<f4', " ORDER SHAPE "}",
    };
    wf_npy npy;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (parse(2, texts[i], &npy) != WEFT_ERR_PROTOCOL) {
            fail_msg("accepted: %s", texts[i]);
        }
    }
}

static void versions_and_lengths_are_checked(void **state)
{
    wf_npy npy;
    size_t n;
    size_t bytes;
    unsigned char *p =
        header_of(1, "{" DESCR ORDER SHAPE "}                   \n", &n);

    (void)state;
    assert_int_equal(wf_npy_header_bytes("a", p, 12, &bytes), WEFT_OK);
    assert_int_equal(bytes, n);
    assert_int_equal(wf_npy_parse("a", p, n - 1, &npy), WEFT_ERR_PROTOCOL);
    assert_int_equal(wf_npy_parse("a", p, 11, &npy), WEFT_ERR_INVALID);
    p[6] = 4;
    assert_int_equal(wf_npy_parse("a", p, n, &npy), WEFT_ERR_UNSUPPORTED);
    p[6] = 2; /* the length is now 4 bytes, of which two are text */
    assert_int_equal(wf_npy_parse("a", p, n, &npy), WEFT_ERR_PROTOCOL);
    p[0] = 'x';
    assert_int_equal(wf_npy_parse("a", p, n, &npy), WEFT_ERR_INVALID);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_numpy_writes_is_read),
        cmocka_unit_test(all_types_that_numpy_has_are_known),
        cmocka_unit_test(what_regions_cannot_hold_is_refused_and_named),
        cmocka_unit_test(malformed_headers_are_refused),
        cmocka_unit_test(versions_and_lengths_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
