/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of settings. They are read once, when a world is made; nobody
 * else looks at the environment, save the launchers' variables in src/boot and
 * the vector unit in base/cpu.c. */
#ifndef WF_BASE_SETTINGS_H
#define WF_BASE_SETTINGS_H

#include <stdbool.h>
#include <weft/settings.h>
#include <weft/status.h>

typedef enum wf_huge {
    WF_HUGE_OFF,
    WF_HUGE_THP,    /* advise transparent huge pages */
    WF_HUGE_HUGETLB /* reserved huge pages, else WF_HUGE_THP */
} wf_huge;

/* Cross-memory attach: the receiver reads the sender's memory, and nothing goes
 * through a ring. */
typedef enum wf_cma {
    WF_CMA_OFF,
    WF_CMA_ON,
    WF_CMA_AUTO /* where it pays: for messages, and in each collective */
} wf_cma;

typedef struct wf_settings {
    uint32_t log;
    uint64_t timeout_ns;
    uint64_t boot_timeout_ns;
    uint64_t host_timeout_ns;
    uint64_t heartbeat_ns;
    char node[64];
    char transports[64]; /* "auto", or names with commas */
    char mpi[16];        /* "auto", or the name of a library */
    char engine[32];
    char algorithm[256];
    char switch_at[256]; /* "host:port", or "" */
    char switch_key[256];
    uint64_t switch_payload;
    uint32_t switch_slots;
    uint64_t spin_ns; /* UINT64_MAX: chosen by ranks and cores */
    uint64_t yield_ns;
    uint32_t huge;
    uint64_t arena_bytes; /* UINT64_MAX: chosen by the host's memory */
    uint64_t arena_keep_bytes;
    uint64_t ring_bytes;
    uint64_t eager_bytes;
    uint32_t cma; /* a wf_cma */
    uint64_t ucx_eager_bytes;
    uint32_t mesh_ranks;
    uint64_t flat_bytes; /* UINT64_MAX: chosen by the number of ranks */
    uint64_t chunk_bytes;
    char cuda_driver[256];
    uint32_t threads; /* 0: chosen by ranks and cores */
} wf_settings;

/* Defaults, then the environment, then `overrides` ("TIMEOUT=5s NODE=a", or
 * NULL). WEFT_ERR_INVALID names the setting and what it takes. */
weft_status wf_settings_load(const char *overrides, wf_settings *out);

/* Warn about unknown WEFT_ names in the environment. */
void wf_settings_warn_unknown(void);

/* The settings that members of a communicator must share, since what they
 * choose alike without asking depends on them: a line "NAME=value" for each. */
#define WF_SETTINGS_SHARED_MAX 900u
void wf_settings_shared(const wf_settings *s, char *text, size_t room);

/* WEFT_ERR_MISMATCH names the first one in which two ranks differ. */
weft_status wf_settings_compare(const wf_settings *own, uint32_t rank,
                                const char *theirs, uint32_t other);

/* Parsers, exported for their tests and the fuzzer. */
weft_status wf_parse_bytes(const char *text, uint64_t *out);
weft_status wf_parse_duration(const char *text, uint64_t *ns);

#endif
