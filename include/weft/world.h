/* SPDX-License-Identifier: Apache-2.0 */
/* The world: this process as a rank of the job. */
#ifndef WEFT_WORLD_H
#define WEFT_WORLD_H

#include <weft/boot.h>
#include <weft/status.h>

WEFT_BEGIN_DECLS

typedef struct weft_world weft_world;
typedef struct weft_comm weft_comm;

typedef struct weft_world_options {
    size_t size; /* sizeof(weft_world_options) */
    /* How to find the others; NULL means weft_boot_open_env. Borrowed until
     * weft_world_create returns. */
    const weft_boot *boot;
    /* Settings that win over the environment: "TIMEOUT=5s SHM_RING_BYTES=64K",
     * or NULL. */
    const char *settings;
    /* Asked about ten times a second by a call that waits for other ranks, on
     * the thread that made the call: shall it give up, because of a signal,
     * say? If not 0, the communicator is aborted ("interrupted") and the call
     * fails with WEFT_ERR_ABORTED, as does weft_world_create itself. It may use
     * other communicators.
     * weft_request_wait with a bound of its own does not ask. NULL: nobody is
     * asked. */
    int (*interrupted)(void *ctx);
    void *ctx;
} weft_world_options;

/** What is known of a rank. */
typedef struct weft_peer {
    uint32_t rank;
    uint32_t node;     /* ranks with the same number share memory */
    int32_t pid;       /* on its own host */
    int shares_memory; /* with the caller */
    const char *host;  /* its host's name; lives as long as the world */
} weft_peer;

/**
 * Join the job. Collective: returns when all ranks have called it, found out
 * who shares memory with whom, and can talk to each other. `options` may be
 * NULL.
 *
 * Fails with WEFT_ERR_INVALID (settings, rank), WEFT_ERR_TIMEOUT (a rank did
 * not come in time; it is named), WEFT_ERR_PEER (a rank died meanwhile),
 * WEFT_ERR_CLOSED (without a table: another process of this host is the rank
 * that the environment speaks of, such as the parent of the caller),
 * WEFT_ERR_ABORTED (interrupted), WEFT_ERR_NOMEM or WEFT_ERR_SYSTEM; then
 * nothing is left behind.
 */
WEFT_API weft_status weft_world_create(const weft_world_options *options,
                                       weft_world **out);

/**
 * Leave the job. Not collective: the others may go on among themselves; a later
 * operation that needs this rank fails there with WEFT_ERR_PEER. Communicators
 * of this world that still exist can only be destroyed afterwards, in any
 * order. Takes NULL.
 *
 * A child that a rank forks is no rank. There every call that involves other
 * ranks fails at once with WEFT_ERR_CLOSED, requests that were pending are over
 * with it (their callbacks are not called), and destroying things frees the
 * child's memory only: the job goes on as if there were no child.
 */
WEFT_API void weft_world_destroy(weft_world *world);

WEFT_API uint32_t weft_world_rank(const weft_world *world);
WEFT_API uint32_t weft_world_size(const weft_world *world);

/** Describe rank `rank` of the job. */
WEFT_API weft_status weft_world_peer(const weft_world *world, uint32_t rank,
                                     weft_peer *out);

/** The transport that leads from this rank to `rank`: "shm". NULL if there is
 * no such rank. */
WEFT_API const char *weft_world_transport(const weft_world *world,
                                          uint32_t rank);

/** The transports that this library knows, by number, best first: "shm". NULL
 * after the last one. WEFT_TRANSPORTS says which may be used. */
WEFT_API const char *weft_transport_name(uint32_t index);

/** The communicator of all ranks. Owned by the world. */
WEFT_API weft_comm *weft_world_comm(weft_world *world);

/**
 * The progress board as text, one line for each rank of this host: what it is
 * doing, on which communicator, since when. Writes at most `room` bytes,
 * always terminated, and returns the length the whole text has. Callable from
 * any thread at any time.
 */
WEFT_API size_t weft_dump(weft_world *world, char *text, size_t room);

WEFT_END_DECLS

#endif
