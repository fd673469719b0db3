/* SPDX-License-Identifier: Apache-2.0 */
/* The part of DLPack 1.x that weft reads: how a tensor lies in memory, and the
 * table through which a framework exports one from C. Layouts and numbers are
 * those of the public specification; names are our own. */
#ifndef WFP_DLPACK_H
#define WFP_DLPACK_H

#include <stdbool.h>
#include <stdint.h>

#define WFP_DL_MAJOR 1
#define WFP_DL_CAPSULE "dlpack_exchange_api"
#define WFP_DL_ATTRIBUTE "__dlpack_c_exchange_api__"
/* A tensor that is handed over, and what its taker renames it to. */
#define WFP_DL_TENSOR "dltensor_versioned"

enum {
    WFP_DL_CPU = 1,
    WFP_DL_CUDA = 2,
    WFP_DL_CUDA_HOST = 3, /* pinned, and as good as any host memory */
    WFP_DL_ROCM_HOST = 11
};

enum {
    WFP_DL_INT = 0,
    WFP_DL_UINT = 1,
    WFP_DL_FLOAT = 2,
    WFP_DL_BFLOAT = 4,
    WFP_DL_COMPLEX = 5,
    WFP_DL_BOOL = 6,
    WFP_DL_NONE = 256 /* not a code: a type that DLPack does not have */
};

/* Whole numbers lie in memory as they are: torch negates or conjugates none of
 * them lazily, nor has gradients of them. */
static inline bool wfp_dl_is_whole(uint8_t code)
{
    return code == WFP_DL_INT || code == WFP_DL_UINT || code == WFP_DL_BOOL;
}

enum { WFP_DL_READ_ONLY = 1 };

typedef struct wfp_dl_version {
    uint32_t major;
    uint32_t minor;
} wfp_dl_version;

typedef struct wfp_dl_tensor {
    void *data;
    int32_t device_type;
    int32_t device_id;
    int32_t ndim;
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL means compact, last index fastest */
    uint64_t byte_offset;
} wfp_dl_tensor;

typedef struct wfp_dl_managed {
    wfp_dl_version version;
    void *manager;
    void (*deleter)(struct wfp_dl_managed *self);
    uint64_t flags;
    wfp_dl_tensor tensor;
} wfp_dl_managed;

typedef struct wfp_dl_header {
    wfp_dl_version version;
    struct wfp_dl_header *prev_api; /* an older table of the same framework */
} wfp_dl_header;

/* Objects are passed as void, so that the table needs no Python header. The
 * functions return 0, or -1 with a Python exception set. */
typedef struct wfp_dl_api {
    wfp_dl_header header;
    int (*allocate)(wfp_dl_tensor *prototype, wfp_dl_managed **out, void *ctx,
                    void (*set_error)(void *ctx, const char *kind,
                                      const char *message));
    /* An owning export: the memory stays until the deleter is called. */
    int (*managed_from_object)(void *object, wfp_dl_managed **out);
    int (*managed_to_object)(wfp_dl_managed *tensor, void **out);
    /* A view that holds while the caller keeps the object; may be NULL. */
    int (*borrow_from_object)(void *object, wfp_dl_tensor *out);
    int (*current_work_stream)(int32_t device_type, int32_t device_id,
                               void **out);
} wfp_dl_api;

#endif
