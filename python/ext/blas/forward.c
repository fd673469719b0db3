/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routines themselves. Fortran passes everything by reference, so that the
 * number of arguments is all there is to know of a routine. Callers in C leave
 * out the lengths of strings that Fortran would add at the end, and so do
 * these.
 */
#include "shim.h"

#define WB_API __attribute__((visibility("default")))

#define TAKE4 const void *a, const void *b, const void *c, const void *d
#define TAKE5 TAKE4, const void *e
#define TAKE6 TAKE5, const void *f
#define TAKE11                                                                 \
    TAKE6, const void *g, const void *h, const void *i, const void *j,         \
        const void *k
#define TAKE13 TAKE11, const void *l, const void *m
#define PASS4 a, b, c, d
#define PASS5 PASS4, e
#define PASS6 PASS5, f
#define PASS11 PASS6, g, h, i, j, k
#define PASS13 PASS11, l, m

#define PLAIN(name, n)                                                         \
    WB_API void name(TAKE##n);                                                 \
    void name(TAKE##n)                                                         \
    {                                                                          \
        typedef void type(TAKE##n);                                            \
        ((type *)wb_enter(WB_##name, __builtin_return_address(0)))(PASS##n);   \
        wb_leave();                                                            \
    }
WB_PLAIN(PLAIN)

#define REAL_DOT(name, value)                                                  \
    WB_API value name(TAKE5);                                                  \
    value name(TAKE5)                                                          \
    {                                                                          \
        typedef value type(TAKE5);                                             \
        value sum =                                                            \
            ((type *)wb_enter(WB_##name, __builtin_return_address(0)))(PASS5); \
                                                                               \
        wb_leave();                                                            \
        return sum;                                                            \
    }
WB_REAL_DOTS(REAL_DOT)

/* With six arguments and a value these serve both conventions: whoever passes
 * five never looks at the sixth, whoever passes six ignores the value. */
#define COMPLEX_DOT(name, value)                                               \
    WB_API value name(value *a, const void *b, const void *c, const void *d,   \
                      const void *e, const void *f);                           \
    value name(value *a, const void *b, const void *c, const void *d,          \
               const void *e, const void *f)                                   \
    {                                                                          \
        typedef value returning(TAKE5);                                        \
        typedef void storing(value *, TAKE5);                                  \
        const void *caller = __builtin_return_address(0);                      \
        wb_function *target = wb_enter(WB_##name, caller);                     \
        bool store = wb_caller_hidden(WB_##name, caller);                      \
        const void *v[] = {store ? b : a, store ? c : b, store ? d : c,        \
                           store ? e : d, store ? f : e};                      \
        value sum = 0;                                                         \
                                                                               \
        if (wb_target_hidden(WB_##name)) {                                     \
            ((storing *)target)(&sum, v[0], v[1], v[2], v[3], v[4]);           \
        } else {                                                               \
            sum = ((returning *)target)(v[0], v[1], v[2], v[3], v[4]);         \
        }                                                                      \
        wb_leave();                                                            \
        if (store) {                                                           \
            *a = sum;                                                          \
        }                                                                      \
        return sum;                                                            \
    }
WB_COMPLEX_DOTS(COMPLEX_DOT)
