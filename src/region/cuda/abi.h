/* SPDX-License-Identifier: Apache-2.0 */
/* What libweft asks of libweft_cuda.so, the kernels that nvcc compiles.
 *
 * That library exports one symbol, a wf_cuda_functions named by WF_CUDA_SYMBOL.
 * Everything in here is plain data, so that C and CUDA C++ agree on it; the
 * number WF_CUDA_ABI changes with any of it.
 *
 * Calls work on the device of the stream, or for NULL on the one that is
 * current in the calling thread. They put work on the stream and return; they
 * neither wait nor copy to the host, and a stream that is being captured
 * records them. They return 0, a CUDA runtime error number, or one of the
 * negative numbers below. */
#ifndef WF_REGION_CUDA_ABI_H
#define WF_REGION_CUDA_ABI_H

#include <weft/rows.h>
#include <weft/update.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WF_CUDA_ABI 1
#define WF_CUDA_SYMBOL "weft_cuda_functions"

enum {
    WF_CUDA_UNSUPPORTED = -1, /* types or sizes that no kernel has */
    WF_CUDA_UNREACHABLE = -2, /* host memory that no GPU sees */
    /* Parts of a table that travel with a call; more are refused. */
    WF_CUDA_PARTS_MAX = 128
};

/* A range of rows that lie one after the other. */
typedef struct wf_cuda_part {
    uint64_t row; /* the first; dealt tables: unused */
    uint64_t at;  /* its first column, a device address */
} wf_cuda_part;

/* A table as the device sees it: row r lies at `at` + r * pitch, or where its
 * part says. */
typedef struct wf_cuda_table {
    uint64_t at;
    uint64_t pitch;
    uint64_t rows;  /* numbers from here on are past the end */
    uint64_t width; /* elements */
    weft_dtype type;
    int32_t on_host; /* registered host memory: far away, in pages */
    uint64_t first;  /* added to a number before its part is looked up */
    uint64_t run;    /* > 0: runs of so many rows are dealt to the parts */
    uint32_t parts;  /* 0: flat */
    const wf_cuda_part *part; /* by row, in rising order; or by rank */
} wf_cuda_table;

/* Gather, scatter and adding scatter. `rows` is read or written. */
typedef struct wf_cuda_rows_call {
    wf_cuda_table table;
    weft_ids ids;
    weft_rows rows; /* pitch is never 0 */
    weft_bounds bounds;
    int32_t deterministic;
    int32_t sort;
    uint32_t tune; /* 0: chosen; else chunks in flight of a thread: 1 2 4 8 */
    void *stream;
} wf_cuda_rows_call;

/* One step of an optimizer on rows that differ; tables are flat. */
typedef struct wf_cuda_update_call {
    wf_cuda_table weights;
    wf_cuda_table state[WEFT_UPDATE_STATES]; /* at 0: not used */
    weft_ids ids;
    weft_rows grads;
    weft_bounds bounds;
    weft_update rule;
    void *stream;
} wf_cuda_update_call;

typedef struct wf_cuda_unique_call {
    weft_ids ids;
    weft_rows grads;
    uint64_t width;
    uint64_t rows; /* numbers are below this; 0: not known */
    void *out_ids; /* of the type of ids, as many */
    float *out_grads;
    uint64_t out_pitch;
    uint64_t *out_count; /* on the device */
    void *stream;
} wf_cuda_unique_call;

/* A number that was past the end; seen is 0 if there was none. */
typedef struct wf_cuda_bad {
    uint32_t seen;
    uint32_t unused;
    int64_t id;
    uint64_t at; /* its position in the ids */
    uint64_t rows;
} wf_cuda_bad;

typedef struct wf_cuda_functions {
    uint32_t abi;
    /* The device that calls with this stream work on. */
    int (*device)(void *stream, int32_t *out);
    const char *(*explain)(int error);
    /* Where the device sees host memory; WF_CUDA_UNREACHABLE if it does not. */
    int (*reach)(const void *host, uint64_t *out);
    int (*gather)(const wf_cuda_rows_call *call);
    int (*scatter)(const wf_cuda_rows_call *call);
    int (*scatter_add)(const wf_cuda_rows_call *call);
    int (*update)(const wf_cuda_update_call *call);
    int (*unique)(const wf_cuda_unique_call *call);
    /* Waits for the stream, tells of a bad number and forgets it. */
    int (*check)(void *stream, wf_cuda_bad *out);
    /* Gives back the scratch memory of a stream; waits for the stream. What a
     * captured graph uses stays. */
    int (*trim)(void *stream);
} wf_cuda_functions;

#ifdef __cplusplus
}
#endif

#endif
