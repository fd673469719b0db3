/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a job find one another: a table of functions over some
 * key-value store that all of them reach. */
#ifndef WEFT_BOOT_H
#define WEFT_BOOT_H

#include <weft/status.h>

WEFT_BEGIN_DECLS

/**
 * A bootstrap table. A world calls it only while it is being made, from the
 * thread that makes it, O(1) times per rank. Keys are short printable strings;
 * values are at most WEFT_BOOT_VALUE_MAX bytes. Functions return WEFT_OK or a
 * failure, and may describe it with weft_boot_fail().
 */
typedef struct weft_boot {
    size_t size; /* sizeof(weft_boot) */
    uint32_t rank;
    uint32_t ranks;
    void *ctx; /* handed to each function */
    /* Publish a value under a key that nobody has set yet. */
    weft_status (*set)(void *ctx, const char *key, const void *value, size_t n);
    /* Wait until `key` is set, `timeout_ms` at most, and copy its value: `*n`
     * comes in as the room in `value` and leaves as the length.
     * WEFT_ERR_TIMEOUT when it was not set in time. A world that can be
     * interrupted asks again and again, for a tenth of a second each. */
    weft_status (*get)(void *ctx, const char *key, void *value, size_t *n,
                       uint32_t timeout_ms);
    /* This rank has joined and needs the table no more. Optional; not called
     * if joining failed. */
    void (*done)(void *ctx);
    /* Not 0: the table reaches ranks of this host only. Then nothing is made
     * ready for messages between hosts, unless WEFT_TRANSPORTS names it. */
    int32_t one_host;
} weft_boot;

#define WEFT_BOOT_VALUE_MAX (1u << 20)

/** Say why a boot function fails; returns `status`. */
WEFT_API weft_status weft_boot_fail(weft_status status, const char *text);

/**
 * A table over a directory that all ranks see; it must exist and be writable.
 * `key` separates jobs that share the directory, and is used once. The last
 * rank to call weft_boot_close removes all files, so the job leaves nothing
 * behind once all have closed it.
 */
WEFT_API weft_status weft_boot_open_dir(const char *path, const char *key,
                                        uint32_t rank, uint32_t ranks,
                                        weft_boot **out);

/**
 * A table for ranks on this host that know a common `name`: rank 0 answers the
 * others on an abstract Unix socket, to processes of the same user only. It
 * leaves nothing behind, whatever dies.
 */
WEFT_API weft_status weft_boot_open_local(const char *name, uint32_t rank,
                                          uint32_t ranks, weft_boot **out);

/**
 * The table that the environment describes: WEFT_RANK/WEFT_RANKS (with
 * WEFT_JOB, and WEFT_BOOT_DIR for the directory), torchrun, Open MPI,
 * MPICH/PMI, Slurm, or, with none of them, a job of one rank.
 */
WEFT_API weft_status weft_boot_open_env(weft_boot **out);

/** Where weft_boot_open_env would look: "torchrun", "openmpi", "alone", ... */
WEFT_API const char *weft_boot_launcher(void);

/**
 * The rank that the launcher gives this process, also in a job that cannot
 * start for another reason; 0 if it gives none. For messages.
 */
WEFT_API uint32_t weft_boot_rank_hint(void);

/**
 * The rank of this process and the number of ranks, as weft_boot_open_env would
 * take them from the environment. Fails with WEFT_ERR_INVALID, naming the
 * variable that is missing or wrong, and then writes nothing.
 */
WEFT_API weft_status weft_boot_rank(uint32_t *rank, uint32_t *ranks);

/** End a table that one of the calls above made. Takes NULL. */
WEFT_API void weft_boot_close(weft_boot *boot);

WEFT_END_DECLS

#endif
