/* SPDX-License-Identifier: Apache-2.0 */
/* The part of PMIx's binary interface that src/boot/pmix.c uses, declared here
 * so that libweft is built without PMIx and finds it when it runs. The PMIx
 * standard keeps these from version 2 on; tests/unit/test_pmix_abi.c compares
 * them with pmix.h where that is installed. */
#ifndef WF_BOOT_PMIX_ABI_H
#define WF_BOOT_PMIX_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_PMIX_LIBRARY "libpmix.so.2"

enum {
    WF_PMIX_OK = 0,
    WF_PMIX_NOT_FOUND = -46,
    WF_PMIX_BOOL = 1,   /* types of values */
    WF_PMIX_BYTES = 27, /* pmix_byte_object_t */
    WF_PMIX_GLOBAL = 3, /* scope: for all processes of the job */
};

/* Do not trust what is known of a process already: it may have put more. */
#define WF_PMIX_REFRESH "pmix.get.refresh"

/* pmix_proc_t */
typedef struct wf_pmix_proc {
    char nspace[256];
    uint32_t rank;
} wf_pmix_proc;

/* pmix_value_t */
typedef struct wf_pmix_value {
    uint16_t type;
    union {
        bool flag;
        struct {
            char *data;
            size_t n;
        } bytes;
        uint64_t room[3];
    } is;
} wf_pmix_value;

/* pmix_info_t */
typedef struct wf_pmix_info {
    char key[512];
    uint32_t flags;
    wf_pmix_value value;
} wf_pmix_info;

typedef void wf_pmix_value_fn(int status, wf_pmix_value *value, void *ctx);

typedef struct wf_pmix_calls {
    int (*init)(wf_pmix_proc *self, wf_pmix_info *info, size_t n);
    int (*finalize)(const wf_pmix_info *info, size_t n);
    int (*put)(uint8_t scope, const char *key, wf_pmix_value *value);
    int (*commit)(void);
    int (*get_nb)(const wf_pmix_proc *proc, const char *key,
                  const wf_pmix_info *info, size_t n, wf_pmix_value_fn *fn,
                  void *ctx);
    const char *(*error_string)(int status);
} wf_pmix_calls;

#endif
