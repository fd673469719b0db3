/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libweftblas.so, which "weft blas run" preloads: it has the routines of BLAS
 * that PyTorch calls, and passes each call on to a library of the user's
 * choice.
 *
 *   libtorch_cpu.so --sgemm_--> libweftblas.so --dlsym--> libopenblas.so.0
 *
 * Preloading the library itself would do for most programs. This file between
 * the two is there for what that gets wrong:
 *
 *  1. Only BLAS is replaced. The library is loaded with RTLD_LOCAL, so LAPACK,
 *     which OpenBLAS also has, stays PyTorch's.
 *  2. Complex dot products: some compilers return the value in registers,
 * others through a pointer in front of the arguments. Both sides are asked
 * which.
 *  3. Threads do not multiply: the library uses as many as PyTorch does, and
 * one when it is called from within a parallel region.
 *  4. An OpenBLAS that was built for one thread keeps buffers that two callers
 *     would share, and gives wrong results when PyTorch calls it from several
 *     threads. Its calls take turns.
 *  5. Each process says which calls arrived here and where they went, line by
 *     line as it happens: also one that is killed later has said it.
 *
 * WEFTBLAS_LIBRARY names the library, WEFTBLAS_PREFIX what stands before its
 * names (as in scipy_sgemm_), WEFTBLAS_REPORT the file that the lines go to.
 * A process that calls no BLAS neither loads the library nor writes a line.
 */
#ifndef WEFT_BLAS_SHIM_H
#define WEFT_BLAS_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What PyTorch calls of BLAS, with the number of arguments. Those that return
 * a value are listed apart. */
#define WB_PLAIN(X)                                                            \
    X(sgemm_, 13)                                                              \
    X(dgemm_, 13)                                                              \
    X(cgemm_, 13)                                                              \
    X(zgemm_, 13)                                                              \
    X(sgemv_, 11)                                                              \
    X(dgemv_, 11)                                                              \
    X(cgemv_, 11)                                                              \
    X(zgemv_, 11)                                                              \
    X(strsm_, 11)                                                              \
    X(dtrsm_, 11)                                                              \
    X(ctrsm_, 11)                                                              \
    X(ztrsm_, 11)                                                              \
    X(saxpy_, 6)                                                               \
    X(daxpy_, 6)                                                               \
    X(caxpy_, 6)                                                               \
    X(zaxpy_, 6)                                                               \
    X(scopy_, 5)                                                               \
    X(dcopy_, 5)                                                               \
    X(ccopy_, 5)                                                               \
    X(zcopy_, 5)                                                               \
    X(sscal_, 4)                                                               \
    X(dscal_, 4)                                                               \
    X(cscal_, 4)                                                               \
    X(zscal_, 4)
#define WB_REAL_DOTS(X)                                                        \
    X(sdot_, float)                                                            \
    X(ddot_, double)
#define WB_COMPLEX_DOTS(X)                                                     \
    X(cdotu_, float _Complex)                                                  \
    X(cdotc_, float _Complex)                                                  \
    X(zdotu_, double _Complex)                                                 \
    X(zdotc_, double _Complex)

#define WB_ENUM(name, ignored) WB_##name,
enum { WB_PLAIN(WB_ENUM) WB_REAL_DOTS(WB_ENUM) WB_COMPLEX_DOTS(WB_ENUM) WB_N };
#undef WB_ENUM

typedef void wb_function(void);

/* A shared object that is loaded here: libtorch_cpu.so. */
typedef struct wb_object {
    const char *file;
    uintptr_t begin, end;
    uintptr_t base;
    uintptr_t dynamic; /* of its dynamic section */
} wb_object;

/* Names of the routines, in the order of the enumeration. */
extern const char *const wb_names[WB_N];

/*
 * The function that serves this routine: the library's; where it has none, the
 * one that would have been called without this file. The first call of a
 * routine in a process writes a line. Ends the process if there is neither.
 * wb_leave follows when the function has returned.
 */
wb_function *wb_enter(int routine, const void *caller);
void wb_leave(void);

/* Whether a complex dot product returns its value through a first argument:
 * the one that serves it, and the one that the caller believes to call. */
bool wb_target_hidden(int routine);
bool wb_caller_hidden(int routine, const void *caller);

/* The library's function for a routine, if it has one. False if the library has
 * not been looked at so far, as nothing was called. */
bool wb_target(int routine, const void **out);

/* The routine that `name` is, or -1. */
int wb_routine(const char *name);

/* libtorch_cpu.so, if it is loaded. */
bool wb_find_torch(wb_object *out);

/* Let the library use as many threads as PyTorch does at this moment. */
void wb_threads_open(void *library, void *torch);
void wb_threads_follow(void);

/* Lines of the report; one thread at a time writes them. */
void wb_note_call(const char *name, const void *caller, const void *target);
void wb_note_bindings(void);
void wb_note_failure(const char *why);
void wb_note_end(void);

#endif
