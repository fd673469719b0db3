/* SPDX-License-Identifier: Apache-2.0 */
/* The text is a Python literal, {'descr': '<f4', 'fortran_order': False,
 * 'shape': (3, 4), }, with its keys in any order. The parser knows just the
 * values that can occur in it, and reads nothing behind `end`. */
#include "region/file/npy.h"

#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "base/types.h"
#include "region/file/format.h"

typedef struct npy_text {
    const char *name;
    const char *at;
    const char *end;
} npy_text;

/* A quoted string, where it lies. */
typedef struct npy_word {
    const char *at;
    size_t n;
} npy_word;

static weft_status malformed(const npy_text *t, const char *what)
{
    return wf_fail(WEFT_ERR_PROTOCOL, "%s: the .npy header is malformed: %s",
                   t->name, what);
}

/* --- tokens -------------------------------------------------------------- */

static void skip_space(npy_text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' ||
                              *t->at == '\t' || *t->at == '\r')) {
        t->at++;
    }
}

static bool take(npy_text *t, char c)
{
    skip_space(t);
    if (t->at == t->end || *t->at != c) {
        return false;
    }
    t->at++;
    return true;
}

static bool take_name(npy_text *t, const char *word)
{
    size_t n = strlen(word);

    skip_space(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0) {
        return false;
    }
    t->at += n;
    return true;
}

static bool take_string(npy_text *t, npy_word *out)
{
    const char *close;
    char quote;

    skip_space(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"')) {
        return false;
    }
    quote = *t->at++;
    close = memchr(t->at, quote, (size_t)(t->end - t->at));
    if (close == NULL) {
        return false;
    }
    *out = (npy_word){t->at, (size_t)(close - t->at)};
    t->at = close + 1;
    return true;
}

static bool take_number(npy_text *t, uint64_t *out)
{
    uint64_t n = 0;
    const char *first;

    skip_space(t);
    first = t->at;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*t->at - '0'), &n)) {
            return false;
        }
    }
    *out = n;
    if (t->at == first) {
        return false;
    }
    /* Python 2 wrote 3L. */
    if (t->at < t->end && *t->at == 'L') {
        t->at++;
    }
    return true;
}

static bool word_is(const npy_word *word, const char *text)
{
    return word->n == strlen(text) && memcmp(word->at, text, word->n) == 0;
}

/* --- values -------------------------------------------------------------- */

static bool find_type(const npy_word *word, weft_dtype *out)
{
#define TYPE(name, number, bytes, text, kind, part, array, code, ...)          \
    if ((code) != NULL && word_is(word, code)) {                               \
        *out = WEFT_##name;                                                    \
        return true;                                                           \
    }
    WEFT_DTYPE_TABLE(TYPE)
#undef TYPE
    return false;
}

static weft_status parse_type(npy_text *t, wf_npy *out)
{
    npy_word descr;
    npy_word code;
    const char here = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '<' : '>';

    if (take(t, '[')) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s holds records; a region holds plain numbers",
                       t->name);
    }
    if (!take_string(t, &descr)) {
        return malformed(t, "its descr is no string");
    }
    if (descr.n < 2) {
        return malformed(t, "its descr is too short");
    }
    code = (npy_word){descr.at + 1, descr.n - 1};
    if (!find_type(&code, &out->type)) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s is of type '%.*s', which regions do not support",
                       t->name, (int)(descr.n < 32 ? descr.n : 32), descr.at);
    }
    if (descr.at[0] != here && descr.at[0] != '|' && descr.at[0] != '=' &&
        wf_dtype_bytes(out->type) > 1) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s is in the other byte order ('%.*s')", t->name,
                       (int)descr.n, descr.at);
    }
    return WEFT_OK;
}

static weft_status parse_shape(npy_text *t, wf_npy *out)
{
    uint32_t dims = 0;

    if (!take(t, '(')) {
        return malformed(t, "its shape is no tuple");
    }
    while (!take(t, ')')) {
        if (dims == WEFT_REGION_DIMS_MAX) {
            return wf_fail(WEFT_ERR_UNSUPPORTED,
                           "%s has more than %d dimensions", t->name,
                           WEFT_REGION_DIMS_MAX);
        }
        if (!take_number(t, &out->shape[dims++])) {
            return malformed(t, "its shape holds something else than numbers");
        }
        if (!take(t, ',') &&
            (skip_space(t), t->at == t->end || *t->at != ')')) {
            return malformed(t, "its shape does not end");
        }
    }
    out->dims = dims;
    return WEFT_OK;
}

static weft_status parse_order(npy_text *t, bool *fortran)
{
    if (take_name(t, "False")) {
        *fortran = false;
    } else if (take_name(t, "True")) {
        *fortran = true;
    } else {
        return malformed(t, "fortran_order is neither True nor False");
    }
    return WEFT_OK;
}

/* --- the whole ----------------------------------------------------------- */

enum { SAW_TYPE = 1, SAW_ORDER = 2, SAW_SHAPE = 4, SAW_ALL = 7 };

static weft_status parse_entry(npy_text *t, unsigned *saw, bool *fortran,
                               wf_npy *out)
{
    npy_word key;

    if (!take_string(t, &key) || !take(t, ':')) {
        return malformed(t, "a key is missing");
    }
    if (word_is(&key, "descr")) {
        *saw |= SAW_TYPE;
        return parse_type(t, out);
    }
    if (word_is(&key, "fortran_order")) {
        *saw |= SAW_ORDER;
        return parse_order(t, fortran);
    }
    if (word_is(&key, "shape")) {
        *saw |= SAW_SHAPE;
        return parse_shape(t, out);
    }
    return malformed(t, "it has a key that is none of NumPy's");
}

static weft_status parse_dict(npy_text *t, bool *fortran, wf_npy *out)
{
    unsigned saw = 0;

    if (!take(t, '{')) {
        return malformed(t, "it is no dict");
    }
    while (!take(t, '}')) {
        weft_status st = parse_entry(t, &saw, fortran, out);

        if (st != WEFT_OK) {
            return st;
        }
        if (!take(t, ',') &&
            (skip_space(t), t->at == t->end || *t->at != '}')) {
            return malformed(t, "its dict does not end");
        }
    }
    skip_space(t);
    if (t->at != t->end || saw != SAW_ALL) {
        return malformed(t, saw != SAW_ALL ? "a key is missing"
                                           : "there is more behind its dict");
    }
    return WEFT_OK;
}

/* Sizes of what was read; and is the order one that rows can be taken from? */
static weft_status measure(const npy_text *t, bool fortran, wf_npy *npy)
{
    uint64_t elements;

    if (npy->dims == 0) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s holds a single number and no rows", t->name);
    }
    if (fortran && npy->dims > 1) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s is in Fortran order (column-major); save it "
                       "again from numpy.ascontiguousarray(array)",
                       t->name);
    }
    if (!wf_file_row_elements(npy->dims, npy->shape, &elements) ||
        __builtin_mul_overflow(elements, wf_dtype_bytes(npy->type),
                               &npy->row_bytes) ||
        __builtin_mul_overflow(npy->row_bytes, npy->shape[0],
                               &npy->data_bytes) ||
        npy->data_bytes > INT64_MAX - npy->data_at) {
        return malformed(t, "its shape is larger than any file");
    }
    return WEFT_OK;
}

bool wf_npy_is(const void *bytes, size_t n)
{
    return n >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0;
}

weft_status wf_npy_header_bytes(const char *name, const void *prefix, size_t n,
                                size_t *out)
{
    const unsigned char *p = prefix;
    uint64_t bytes;

    if (!wf_npy_is(prefix, n) || n < WF_NPY_PREFIX) {
        return wf_fail(WEFT_ERR_INVALID, "%s is not a .npy file", name);
    }
    if (p[6] < 1 || p[6] > 3) {
        return wf_fail(WEFT_ERR_UNSUPPORTED,
                       "%s has .npy version %u.%u; 1 to 3 are supported", name,
                       p[6], p[7]);
    }
    bytes = p[6] == 1 ? 10 + ((uint64_t)p[8] | (uint64_t)p[9] << 8)
                      : 12 + ((uint64_t)p[8] | (uint64_t)p[9] << 8 |
                              (uint64_t)p[10] << 16 | (uint64_t)p[11] << 24);
    if (bytes > WF_NPY_HEADER_MAX || bytes < WF_NPY_PREFIX) {
        return wf_fail(WEFT_ERR_PROTOCOL,
                       "%s: the .npy header length %" PRIu64 " is out of range",
                       name, bytes);
    }
    *out = (size_t)bytes;
    return WEFT_OK;
}

weft_status wf_npy_parse(const char *name, const void *bytes, size_t n,
                         wf_npy *out)
{
    const char *p = bytes;
    wf_npy npy = {.data_at = n};
    bool fortran = false;
    size_t header;
    weft_status st = wf_npy_header_bytes(name, bytes, n, &header);

    if (st == WEFT_OK && header != n) {
        st = wf_fail(WEFT_ERR_PROTOCOL, "%s: the .npy header is truncated",
                     name);
    }
    if (st == WEFT_OK) {
        npy_text t = {name, p + (p[6] == 1 ? 10 : 12), p + n};

        st = parse_dict(&t, &fortran, &npy);
        if (st == WEFT_OK) {
            st = measure(&t, fortran, &npy);
        }
    }
    if (st == WEFT_OK) {
        *out = npy;
    }
    return st;
}
